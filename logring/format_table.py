"""Conversion of objects to JSON values and back, driven by tables that map attributes to fields of the format.

A program hands objects over to another version of itself, so the format has its own names. Renaming a class or an
attribute changes only its line in the table. A field added later has a default, which is used for data from an older
version. Data with an unknown field is rejected, because the value of that field would be lost.

Types that JSON lacks become an object with one member, named after the type::

    b"..."          {"bytes": "..."}, one character per byte
    tuple, set ...  {"tuple": [...]}
    dict            {"dict": [[key, value], ...]}
    a shape         {"Name": {"field": value, ...}}
    an enumeration  {"Name": value}
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

_SEQUENCES: dict[str, Callable[[list[object]], object]] = {
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
    "deque": deque,
}


class UnknownFormat(Exception):
    """The values have a format that this version does not know."""


@dataclass(frozen=True)
class Field:
    """One field of the format."""

    name: str
    """In the format; never changes."""
    attribute: str
    """Name of the object's attribute; may change."""
    default: Callable[[], object] | None = None
    """Returns the value for data written before this field existed; None if the field always existed."""


@dataclass(frozen=True)
class Shape:
    """How objects of one class are written. A class derived from bytes stores its bytes in the field ``""``."""

    cls: type
    name: str
    """In the format; never changes."""
    fields: tuple[Field, ...]
    make: Callable[..., object] | None = None
    """Builds an object from its attributes. If None, they are set on an object made without its constructor."""


def fields(
    names: str, *, renamed: Mapping[str, str] | None = None, later: Mapping[str, Callable[[], object]] | None = None
) -> tuple[Field, ...]:
    """Return fields of a format.

    Args:
        names: field names in the format, separated by blanks.
        renamed: attribute names by field, where the two differ.
        later: defaults, by field, of fields that were added later.
    """
    attributes, defaults = renamed or {}, later or {}
    return tuple(Field(name, attributes.get(name, name), defaults.get(name)) for name in (*names.split(), *defaults))


def values_of(instance: object, format_fields: Iterable[Field]) -> dict[str, object]:
    """Return the values of an object's attributes, keyed by field name."""
    return {field.name: getattr(instance, field.attribute) for field in format_fields}


def attributes_of(owner: str, content: Mapping[str, Any], format_fields: Iterable[Field]) -> dict[str, Any]:
    """Return the values keyed by attribute name, with defaults for missing fields that were added later.

    Raises:
        UnknownFormat: a field is missing or unknown; the message begins with `owner`.
    """
    remaining = dict(content)
    values = {}
    for field in format_fields:
        if field.name in remaining:
            values[field.attribute] = remaining.pop(field.name)
        elif field.default is not None:
            values[field.attribute] = field.default()
        else:
            raise UnknownFormat(f"{owner} lacks {field.name}")
    if remaining:
        raise UnknownFormat(f"{owner} has the unknown fields {', '.join(sorted(remaining))}")
    return values


class Schema:
    """Converts objects of known shapes to JSON values and back."""

    def __init__(self, shapes: Iterable[Shape], enums: Mapping[str, type[Enum]] | None = None) -> None:
        """`enums` maps names in the format to enumerations."""
        self._by_name = {shape.name: shape for shape in shapes}
        self._by_class = {shape.cls: shape for shape in self._by_name.values()}
        self._enums = dict(enums or {})
        self._enum_names = {cls: name for name, cls in self._enums.items()}

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """All shapes, in no particular order."""
        return tuple(self._by_name.values())

    def to_json(self, value: Any) -> Any:
        """Return `value` converted to JSON types.

        Raises:
            TypeError: the value contains an object of an unknown class.
        """
        cls = type(value)
        if value is None or cls in (bool, int, float, str):
            return value
        if cls is bytes:
            return {"bytes": value.decode("latin-1")}
        if cls is list:
            return [self.to_json(item) for item in value]
        if cls is dict:
            return {"dict": [[self.to_json(key), self.to_json(item)] for key, item in value.items()]}
        if cls.__name__ in _SEQUENCES:
            return {cls.__name__: [self.to_json(item) for item in value]}
        if cls in self._enum_names:
            return {self._enum_names[cls]: value.value}
        shape = self._by_class.get(cls)
        if shape is None:
            raise TypeError(f"{cls.__name__} has no shape")
        body = {name: self.to_json(item) for name, item in values_of(value, shape.fields).items()}
        if isinstance(value, bytes):
            body[""] = value.decode("latin-1")
        return {shape.name: body}

    def from_json(self, value: Any) -> Any:
        """Return the object that was given to :meth:`to_json`.

        Raises:
            UnknownFormat: the value has an unknown shape, or a shape has missing or unknown fields.
        """
        if isinstance(value, list):
            return [self.from_json(item) for item in value]
        if not isinstance(value, dict):
            return value
        ((name, body),) = value.items()
        if name == "bytes":
            return body.encode("latin-1")
        if name == "dict":
            return {self.from_json(key): self.from_json(item) for key, item in body}
        if name in _SEQUENCES:
            return _SEQUENCES[name]([self.from_json(item) for item in body])
        if name in self._enums:
            try:
                return self._enums[name](body)
            except ValueError as err:
                raise UnknownFormat(str(err)) from err
        if name not in self._by_name:
            raise UnknownFormat(f"{name} is not known")
        return self._object(self._by_name[name], body)

    def _object(self, shape: Shape, body: dict[str, Any]) -> Any:
        cls: Any = shape.cls
        content = dict(body)
        text = content.pop("").encode("latin-1") if issubclass(cls, bytes) else None
        values = attributes_of(shape.name, {name: self.from_json(item) for name, item in content.items()}, shape.fields)
        if shape.make is not None:
            return shape.make(**values)
        thing = cls.__new__(cls) if text is None else cls.__new__(cls, text)
        for name, item in values.items():
            setattr(thing, name, item)
        return thing
