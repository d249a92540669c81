"""What comes of reading another program's configuration, and how it is written as ours."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from supervisor.config.schema import UNIT_NAME

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_NOT_NAME = re.compile(r"[^a-zA-Z0-9._:-]+")
_LITERAL = frozenset({"run"})
"""Keys in which ``${`` means nothing to us."""

Kind = str
"""``tasks`` or ``services``."""


class Unreadable(Exception):
    """A file cannot be read as what it is said to be."""


@dataclass
class Unit:
    """A task or service."""

    kind: Kind
    name: str
    keys: dict[str, Any]
    origin: str
    """Where it comes from, as a comment."""


@dataclass
class Outcome:
    """Tasks and services, and what could not be carried over: each with its place."""

    units: list[Unit] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def note(self, place: str, text: str) -> None:
        """Tell of something that could not be carried over, once."""
        line = f"{place}: {text}"
        if line not in self.notes:
            self.notes.append(line)

    def add(self, kind: Kind, wanted: str, keys: Mapping[str, Any], origin: str) -> Unit:
        """Add a task or service under a name that is valid and free, made of the one that is wanted."""
        name = _NOT_NAME.sub("-", wanted).strip("-.")[:90] or "task"
        taken = {unit.name for unit in self.units}
        free = next(one for one in (name, *(f"{name}-{n}" for n in range(2, 10_000))) if one not in taken)
        if not UNIT_NAME.fullmatch(free):
            raise ValueError(free)
        unit = Unit(kind, free, {key: value for key, value in keys.items() if value not in (None, {}, [])}, origin)
        self.units.append(unit)
        return unit

    def toml(self, source: str) -> str:
        """Our configuration."""
        lines = [f"# Made by ringward import from {_comment(source)}."]
        for unit in self.units:
            lines += ["", f"# {_comment(unit.origin)}", f"[{unit.kind}.{_key(unit.name)}]"]
            for key, value in unit.keys.items():
                lines.append(f"{key} = {_value(value, literal=key in _LITERAL)}")
        return "\n".join(lines) + "\n"


def _comment(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _string(name)


def _string(text: str) -> str:
    """A basic string of TOML, whose escapes are those of JSON, but for DEL."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any, *, literal: bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(name)} = {_value(one, literal=literal)}" for name, one in value.items())
        return f"{{ {inner} }}"
    if isinstance(value, Iterable) and not isinstance(value, str):
        return f"[{', '.join(_value(one, literal=literal) for one in value)}]"
    text = str(value)
    return _string(text if literal else text.replace("${", "$${"))


def seconds(count: float) -> str:
    """A duration as we write it."""
    ms = round(count * 1000)
    return f"{ms // 1000}s" if ms % 1000 == 0 else f"{ms}ms"
