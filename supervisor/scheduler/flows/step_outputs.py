"""The values that a run writes to ``RINGWARD_OUTPUT``: lines ``key=text`` and ``key:=JSON``. Pure."""

import json
import re
from collections.abc import Collection
from typing import Any

from msgspec import Struct

from supervisor.scheduler.flows.step_values import EXIT_CODE

MOST_BYTES = 64 * 1024
_LINE = re.compile(r"([A-Za-z_][A-Za-z0-9_-]{0,39})(:?)=(.*)", re.DOTALL)


class Outputs(Struct):
    """What a run wrote."""

    values: dict[str, Any]
    withheld: frozenset[str] = frozenset()
    """Keys whose values contain a secret of the run; they are not kept."""
    problems: list[str] = []
    """What was wrong, without values."""

    @property
    def keys(self) -> set[str]:
        """The keys that were written."""
        return {*self.values, *self.withheld}


NONE = Outputs({})


def parsed(content: bytes, secrets: Collection[str]) -> Outputs:
    """Return the values in a file; of several values of a key, the last one."""
    values: dict[str, Any] = {}
    withheld: set[str] = set()
    problems: list[str] = []
    if len(content) > MOST_BYTES:
        problems.append(f"wrote more than {MOST_BYTES // 1024} KiB to RINGWARD_OUTPUT; the rest does not count")
        content = content[: content.rfind(b"\n", 0, MOST_BYTES) + 1]
    for number, line in enumerate(content.split(b"\n"), 1):
        if not line.strip():
            continue
        try:
            key, value = _value(line.removesuffix(b"\r").decode())
        except ValueError:
            problems.append(f"line {number} of RINGWARD_OUTPUT is not key=text or key:=JSON")
            continue
        if key in values or key in withheld:
            problems.append(f"wrote {key} more than once to RINGWARD_OUTPUT; the last value counts")
        values.pop(key, None)
        withheld.discard(key)
        if any(secret in text for secret in secrets if secret for text in _texts(value)):
            withheld.add(key)
            problems.append(f"the value of {key} in RINGWARD_OUTPUT contains a secret, so it is not kept")
        else:
            values[key] = value
    return Outputs(values, frozenset(withheld), problems)


def _value(line: str) -> tuple[str, Any]:
    match = _LINE.fullmatch(line)
    if match is None or match[1] == EXIT_CODE:
        raise ValueError(line)
    key, is_json, text = match.groups()
    return key, json.loads(text, parse_constant=_no_constant) if is_json else text


def _no_constant(name: str) -> None:
    raise ValueError(f"JSON has no {name}")


def _texts(value: Any) -> list[str]:
    """Return all texts in a value, and the value as JSON."""
    if isinstance(value, str):
        return [value]
    inside = [*value.keys(), *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
    return [json.dumps(value, ensure_ascii=False), *(text for part in inside for text in _texts(part))]
