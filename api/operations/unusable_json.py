"""Values that JSON allows and no text or number here can hold: lone surrogates, and numbers out of range.

The decoder reports both as malformed JSON. RFC 8259 (6, 8.2) allows both and leaves it to the receiver to refuse them.
"""

import json
import math
import re
from collections.abc import Iterator
from typing import NoReturn

from api.schemas.records import ErrorDetail

_SURROGATE = re.compile("[\ud800-\udfff]")
_OUT_OF_RANGE = object()
_MAX_ERRORS = 100


def unusable_values(raw: bytes) -> list[ErrorDetail]:
    """Name the values of a body that this API cannot hold; empty: there are none, or the body is no JSON.

    Raises:
        RecursionError: the body is nested too deeply.
    """
    try:
        data = json.loads(raw.decode(), parse_int=_integer, parse_float=_float, parse_constant=_no_json)
    except ValueError:  # UnicodeDecodeError and JSONDecodeError are ones
        return []
    errors: list[ErrorDetail] = []
    waiting = [("body", data)]
    while waiting and len(errors) < _MAX_ERRORS:
        place, value = waiting.pop()
        if value is _OUT_OF_RANGE:
            errors.append(ErrorDetail(place, "is a number out of range: the largest is about 1.8e308"))
        elif isinstance(value, str):
            errors += _surrogates(place, value)
        elif isinstance(value, list):
            waiting += reversed([(f"{place}[{index}]", item) for index, item in enumerate(value)])
        elif isinstance(value, dict):
            names = [(name, f"{place}.{_shown(name)}") for name in value]
            errors += [error for name, inner in names for error in _surrogates(inner, name)]
            waiting += reversed([(inner, value[name]) for name, inner in names])
    return errors


def _integer(text: str) -> object:
    try:
        return int(text)
    except ValueError:  # Python converts no more than some thousand digits
        return _OUT_OF_RANGE


def _float(text: str) -> object:
    return _OUT_OF_RANGE if math.isinf(float(text)) else 0.0


def _no_json(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _surrogates(place: str, text: str) -> Iterator[ErrorDetail]:
    found = _SURROGATE.search(text)
    if found is not None:
        yield ErrorDetail(place, f"contains {_shown(found[0])}, a lone surrogate, which stands for no character")


def _shown(text: str) -> str:
    """`text` as it can be encoded."""
    return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
