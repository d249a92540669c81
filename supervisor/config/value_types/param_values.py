"""Values of task parameters: which are valid, and their form for the command. All values are text."""

import re
from collections.abc import Callable, Mapping
from typing import Final

from logring.mask import MAX_SECRET, MIN_SECRET, Mask
from supervisor.config.problems import InvalidValue, quoted
from supervisor.config.value_records import Param
from supervisor.config.value_types.patterns import VALUE_PATTERN

MAX_BYTES = 64 * 1024
"""Maximum size of all values of a run together; the kernel accepts 128 KiB in one argument."""

_INTEGER = re.compile(r"-?[0-9]{1,18}")
_NUMBER = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,18})?")
_TRUTH = {"true": "true", "1": "true", "false": "false", "0": "false"}
_SHOWN_CHOICES = 10


def normal(param: Param, text: str) -> str:
    """Return a value in the form that the command gets.

    Raises:
        InvalidValue: the value is not valid for the parameter; the message does not quote it.
    """
    if "\0" in text:
        raise InvalidValue("must not contain a NUL character", show=False)
    if len(text.encode()) > MAX_BYTES:
        raise InvalidValue(f"must be at most {MAX_BYTES} bytes long", show=False)
    value = TYPES[param.type](text)
    if param.choices and value not in param.choices:
        raise InvalidValue(f"must be {'one of its choices' if param.secret else _one_of(param.choices)}")
    if param.pattern is not None and not VALUE_PATTERN.compiled(param.pattern).fullmatch(value):
        raise InvalidValue(f"must match {quoted(param.pattern)}")
    if param.required and not value:
        raise InvalidValue("must not be empty", show=False)
    if param.kind == "arg" and value.startswith("-") and _is_free(param):
        remedy = "to permit such values, set pattern, choices or type"
        raise InvalidValue("must not begin with a hyphen, as options do", remedy)
    if param.secret:
        try:
            Mask([value.encode()])
        except ValueError:
            message = f"cannot be masked: a secret must have lines of {MIN_SECRET} to {MAX_SECRET} bytes"
            raise InvalidValue(message, show=False) from None
    return value


def _one_of(choices: tuple[str, ...]) -> str:
    """Return a short error. It suggests no similar value, because the search would block the scheduler."""
    if len(choices) > _SHOWN_CHOICES:
        return f"one of its {len(choices)} choices"
    return " or ".join(map(quoted, choices))


def _is_free(param: Param) -> bool:
    return param.type == "string" and param.pattern is None and not param.choices


def _integer(text: str) -> str:
    if not _INTEGER.fullmatch(text):
        raise InvalidValue("must be a whole number of at most 18 digits")
    return str(int(text))


def _number(text: str) -> str:
    if not _NUMBER.fullmatch(text):
        raise InvalidValue('must be a number such as "1.5"')
    return text


def _boolean(text: str) -> str:
    if text not in _TRUTH:
        raise InvalidValue('must be "true" or "false"')
    return _TRUTH[text]


TYPES: Final[Mapping[str, Callable[[str], str]]] = {
    "string": str,
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
}
"""Converters by type: each returns a text in the form for the command, or raises Invalid."""
