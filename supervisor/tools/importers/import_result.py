"""The outcome of an import: the tasks and services, a report, and the configuration file that is written."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from supervisor.config.key_tables import UNIT_NAME, keys_of
from supervisor.config.value_types.durations import parse_duration

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_NOT_NAME = re.compile(r"[^a-zA-Z0-9._:-]+")
_LITERAL = frozenset({"run"})
"""Keys in which Ringward does not substitute ``${``."""

_SHUTDOWN: str = keys_of("daemon")["shutdown_timeout"].default

Kind = str
"""``tasks``, ``services`` or ``launchers``."""


class UnreadableFile(Exception):
    """A file does not have the stated format."""


def check_text(path: str, value: object) -> None:
    """Check that all strings in the content of a file can be written.

    Raises:
        UnreadableFile: a string has a lone surrogate, which JSON and YAML can express as an escape.
    """
    try:
        json.dumps(value, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError as err:
        raise UnreadableFile(f"{path}: a string is not valid Unicode text") from err


class WithReferences(str):
    """A value in which ``${NAME}`` is a reference to a variable of the daemon."""

    __slots__ = ()


@dataclass(frozen=True)
class Note:
    """A line of the report, which is also a comment in the written file."""

    location: str
    """The location in the other program's configuration: a file, a line or a section."""
    text: str
    check: bool
    """Whether a setting is not converted or changes its meaning."""

    def __str__(self) -> str:
        return f"{self.location}: {self.text}"


@dataclass
class ImportedUnit:
    """A task, a service or a launcher."""

    kind: Kind
    name: str
    keys: dict[str, Any]
    origin: str
    """Its origin, for the comment above it."""
    locations: tuple[str, ...]
    """The locations whose notes belong to it."""


@dataclass
class Outcome:
    """The imported units, and the report about everything else."""

    units: list[ImportedUnit] = field(default_factory=list)
    _sequence: list[ImportedUnit | Note] = field(default_factory=list)

    @property
    def lost(self) -> list[Note]:
        """Return the notes about settings that are not converted or change their meaning."""
        return self._merged(check=True)

    @property
    def advice(self) -> list[Note]:
        """Return the notes about settings that are converted."""
        return self._merged(check=False)

    def _merged(self, *, check: bool) -> list[Note]:
        """Return each text once, with all locations for which it holds."""
        locations: dict[str, list[str]] = {}
        for note in self._sequence:
            if isinstance(note, Note) and note.check == check:
                locations.setdefault(note.text, []).append(note.location)
        return [Note(", ".join(found), text, check) for text, found in locations.items()]

    @property
    def notes(self) -> list[str]:
        """Return the lines of the report, beginning with settings that are not converted."""
        return [str(note) for note in (*self.lost, *self.advice)]

    def note(self, location: str, text: str) -> None:
        """Report a setting that is not converted or changes its meaning, unless the same note exists."""
        self._report(Note(location, text, check=True))

    def advise(self, location: str, text: str) -> None:
        """Report a fact about a setting that is converted, unless the same note exists."""
        self._report(Note(location, text, check=False))

    def stops_within(self, location: str, graceful_stop: str | None, *, explicit: bool) -> None:
        """Report a stop time that is longer than the default time of a daemon's shutdown.

        Args:
            location: The location of the note.
            graceful_stop: The stop time; None: there is none.
            explicit: Whether the file sets the time; otherwise it is the other program's default.
        """
        if graceful_stop is not None and parse_duration(graceful_stop) > parse_duration(_SHUTDOWN):
            report = self.note if explicit else self.advise
            report(
                location,
                f"a shutdown kills runs after shutdown_timeout ({_SHUTDOWN}), before these {graceful_stop}: "
                f"set a longer shutdown_timeout in [daemon] of the main file",
            )

    def _report(self, note: Note) -> None:
        if note not in self._sequence:
            self._sequence.append(note)

    def add(
        self,
        kind: Kind,
        base_name: str,
        keys: Mapping[str, Any],
        origin: str,
        *locations: str,
        invented: bool = False,
    ) -> ImportedUnit:
        """Add a unit with a valid and unused name that is derived from the wanted one, and report a changed name.

        Args:
            kind: The kind of the unit.
            base_name: The name in the other program's configuration.
            keys: The values of the keys; None and empty values are left out.
            origin: The origin, for the comment above the unit.
            locations: The locations whose notes belong to the unit; default: `origin`.
            invented: Whether the other program has no name for the unit.
        """
        name = _NOT_NAME.sub("-", base_name).strip("-.")[:90] or "task"
        used_names = {unit.name for unit in self.units if (unit.kind == "launchers") == (kind == "launchers")}
        free = next(
            candidate for candidate in (name, *(f"{name}-{n}" for n in range(2, 10_000))) if candidate not in used_names
        )
        if not UNIT_NAME.fullmatch(free):
            raise ValueError(free)
        present = {key: value for key, value in keys.items() if value not in (None, {}, [])}
        unit = ImportedUnit(kind, free, present, origin, locations or (origin,))
        if free != name and not invented:
            self.note(unit.locations[0], f"there is another {name}: is named {free} here")
        elif free != base_name and not invented:
            self.advise(unit.locations[0], f"is named {free} here")
        self.units.append(unit)
        self._sequence.append(unit)
        return unit

    def toml(self, source: str) -> str:
        """Return the configuration file, with the notes as comments in the places of their units."""
        owned = {location for unit in self.units for location in unit.locations}
        lines = [f"# Made by ringward import from {_comment(source)}."]
        merged = [*self.lost, *self.advice]
        for note in merged:
            if note not in self._sequence:  # it has several locations
                lines += ["", _remark(note, str(note))]
        for entry in self._sequence:
            if isinstance(entry, ImportedUnit):
                lines += ["", *self._written(entry, merged)]
            elif entry.location not in owned and entry in merged:
                lines += ["", _remark(entry, str(entry))]
        return "\n".join(lines) + "\n"

    def _written(self, unit: ImportedUnit, merged: list[Note]) -> Iterator[str]:
        yield f"# {_comment(unit.origin)}"
        for note in self._sequence:
            if isinstance(note, Note) and note.location in unit.locations and note in merged:
                yield _remark(note, note.text)
        yield f"[{unit.kind}.{_key(unit.name)}]"
        for key, value in unit.keys.items():
            yield f"{key} = {_value(value, literal=key in _LITERAL)}"


def _remark(note: Note, text: str) -> str:
    return f"# {'CHECK' if note.check else 'Note'}: {_comment(text)}"


def _comment(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _string(name)


def _string(text: str) -> str:
    """Return a basic string of TOML, which differs from a JSON string in that DEL must be escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any, *, literal: bool) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(name)} = {_value(item, literal=literal)}" for name, item in value.items())
        return f"{{ {inner} }}"
    if isinstance(value, Iterable) and not isinstance(value, str):
        return f"[{', '.join(_value(item, literal=literal) for item in value)}]"
    text = str(value)
    literal = literal or isinstance(value, WithReferences)
    return _string(text if literal else text.replace("${", "$${"))


def seconds(count: float) -> str:
    """Return seconds as a duration of the configuration, such as ``10s`` or ``1500ms``.

    Raises:
        ValueError: the number is not finite.
    """
    try:
        ms = round(count * 1000)
    except OverflowError as err:
        raise ValueError("a duration is too long") from err
    return f"{ms // 1000}s" if ms % 1000 == 0 else f"{ms}ms"
