"""The result of reading another program's configuration, and the configuration of ours that is written of it."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from supervisor.config.schema import UNIT_NAME, keys_of
from supervisor.config.value_types.durations import parse_duration

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_NOT_NAME = re.compile(r"[^a-zA-Z0-9._:-]+")
_LITERAL = frozenset({"run"})
"""Keys in which ``${`` means nothing to us."""

_SHUTDOWN: str = keys_of("daemon")["shutdown_timeout"].default

Kind = str
"""``tasks``, ``services`` or ``launchers``."""


class Unreadable(Exception):
    """A file does not have the stated format."""


class WithReferences(str):
    """A value whose ``${NAME}`` are references to the daemon's variables."""

    __slots__ = ()


@dataclass(frozen=True)
class Note:
    """One line of the report, which the written file has as a comment, too."""

    place: str
    """Of the other program's configuration: a file, a line, a section."""
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


@dataclass
class Unit:
    """A task, a service or a launcher."""

    kind: Kind
    name: str
    keys: dict[str, Any]
    origin: str
    """Where it comes from, as a comment."""
    places: tuple[str, ...]
    """Notes on these places belong to it."""


@dataclass
class Outcome:
    """Tasks and services, and a report on the rest, each line with its place."""

    units: list[Unit] = field(default_factory=list)
    lost: list[Note] = field(default_factory=list)
    """Settings that are not carried over, or change their meaning."""
    advice: list[Note] = field(default_factory=list)
    """Settings that are carried over with a note."""
    _sequence: list[Unit | Note] = field(default_factory=list)

    @property
    def notes(self) -> list[str]:
        """Return the report, with the settings that are not carried over first."""
        return [str(note) for note in (*self.lost, *self.advice)]

    def note(self, place: str, text: str) -> None:
        """Report a thing that is not carried over, or that means something else here, once."""
        self._report(self.lost, Note(place, text))

    def advise(self, place: str, text: str) -> None:
        """Report a thing that is carried over and that people have to know, once."""
        self._report(self.advice, Note(place, text))

    def stops_within(self, place: str, graceful_stop: str | None, *, explicit: bool) -> None:
        """Point out a time to stop that is longer than the daemon's own unless its configuration says more.

        Args:
            place: of the note.
            graceful_stop: the time.
            explicit: whether the file sets it; otherwise it is the default of the other program.
        """
        if graceful_stop is not None and parse_duration(graceful_stop) > parse_duration(_SHUTDOWN):
            report = self.note if explicit else self.advise
            report(
                place,
                f"a shutdown kills runs after shutdown_timeout ({_SHUTDOWN}), before these {graceful_stop}: "
                f"set a longer shutdown_timeout in [daemon] of the main file",
            )

    def _report(self, notes: list[Note], note: Note) -> None:
        if note not in notes:
            notes.append(note)
            self._sequence.append(note)

    def add(self, kind: Kind, wanted: str, keys: Mapping[str, Any], origin: str, *places: str) -> Unit:
        """Add a unit under a valid and free name made of the wanted one.

        Args:
            kind: of the unit.
            wanted: its name there.
            keys: their values; None and empty values are left out.
            origin: for the comment above it.
            places: notes on these belong to it; default: `origin`.
        """
        name = _NOT_NAME.sub("-", wanted).strip("-.")[:90] or "task"
        taken = {unit.name for unit in self.units if (unit.kind == "launchers") == (kind == "launchers")}
        free = next(one for one in (name, *(f"{name}-{n}" for n in range(2, 10_000))) if one not in taken)
        if not UNIT_NAME.fullmatch(free):
            raise ValueError(free)
        present = {key: value for key, value in keys.items() if value not in (None, {}, [])}
        unit = Unit(kind, free, present, origin, places or (origin,))
        self.units.append(unit)
        self._sequence.append(unit)
        return unit

    def toml(self, source: str) -> str:
        """Return the configuration; notes stand where the unit stands, or would stand."""
        owned = {place for unit in self.units for place in unit.places}
        lines = [f"# Made by ringward import from {_comment(source)}."]
        for one in self._sequence:
            if isinstance(one, Unit):
                lines += ["", *self._written(one)]
            elif one.place not in owned:
                lines += ["", self._remark(one, str(one))]
        return "\n".join(lines) + "\n"

    def _written(self, unit: Unit) -> Iterator[str]:
        yield f"# {_comment(unit.origin)}"
        for note in self._sequence:
            if isinstance(note, Note) and note.place in unit.places:
                yield self._remark(note, note.text)
        yield f"[{unit.kind}.{_key(unit.name)}]"
        for key, value in unit.keys.items():
            yield f"{key} = {_value(value, literal=key in _LITERAL)}"

    def _remark(self, note: Note, text: str) -> str:
        return f"# {'LOOK AT THIS' if note in self.lost else 'Note'}: {_comment(text)}"


def _comment(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _string(name)


def _string(text: str) -> str:
    """Return a basic string of TOML, which has the escapes of JSON, and one for DEL."""
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
    literal = literal or isinstance(value, WithReferences)
    return _string(text if literal else text.replace("${", "$${"))


def seconds(count: float) -> str:
    """Return a duration as we write it."""
    ms = round(count * 1000)
    return f"{ms // 1000}s" if ms % 1000 == 0 else f"{ms}ms"
