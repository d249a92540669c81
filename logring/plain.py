"""Objects as values that JSON has, and back: for handing them to another program that knows the same classes.

An object of a known class is taken apart into its attributes, and put together without its constructor. All of its
attributes have to be there, and no others: so nothing is forgotten, and what another version wrote is not mistaken for
ours. What JSON lacks becomes an object with one member, its name::

    b"..."          {"bytes": "..."}, each byte a character
    tuple, set ...  {"tuple": [...]}
    dict            {"dict": [[key, value], ...]}
    Known           {"Known": {"attribute": value, ...}}
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

_SEQUENCES: dict[str, Callable[[list[Any]], Any]] = {"tuple": tuple, "set": set, "frozenset": frozenset, "deque": deque}


class Foreign(Exception):
    """The values were not made of the classes that are known here."""


class Plain:
    """Takes objects of certain classes apart, and puts them together again.

    Args:
        known: the classes, each with those of its attributes that stay behind. A class has ``__slots__``, or is a
            dataclass or an enumeration; one that is derived from bytes has ``frames`` alone.
    """

    def __init__(self, known: Mapping[type, Collection[str]]) -> None:
        self._names = {cls: _attributes(cls).difference(without) for cls, without in known.items()}
        self._known = {cls.__name__: cls for cls in known}

    def down(self, value: Any) -> Any:
        """`value` as JSON has it.

        Raises:
            TypeError: there is an object of an unknown class in it.
        """
        cls = type(value)
        if value is None or cls in (bool, int, float, str):
            return value
        if cls is bytes:
            return {"bytes": value.decode("latin-1")}
        if cls is list:
            return [self.down(one) for one in value]
        if cls is dict:
            return {"dict": [[self.down(key), self.down(one)] for key, one in value.items()]}
        if cls.__name__ in _SEQUENCES:
            return {cls.__name__: [self.down(one) for one in value]}
        if cls not in self._names:
            raise TypeError(f"{cls.__name__} cannot be taken apart")
        if isinstance(value, Enum):
            return {cls.__name__: value.value}
        found = {name: self.down(getattr(value, name)) for name in self._names[cls]}
        if isinstance(value, bytes):
            found[""] = value.decode("latin-1")
        return {cls.__name__: found}

    def up(self, value: Any) -> Any:
        """What :meth:`down` was given.

        Raises:
            Foreign: an unknown class, or other attributes than its.
        """
        if isinstance(value, list):
            return [self.up(one) for one in value]
        if not isinstance(value, dict):
            return value
        ((name, body),) = value.items()
        if name == "bytes":
            return body.encode("latin-1")
        if name == "dict":
            return {self.up(key): self.up(one) for key, one in body}
        if name in _SEQUENCES:
            return _SEQUENCES[name]([self.up(one) for one in body])
        if name not in self._known:
            raise Foreign(f"{name} is not known")
        return self._together(self._known[name], body)

    def _together(self, cls: Any, body: Any) -> Any:
        if issubclass(cls, Enum):
            try:
                return cls(body)
            except ValueError as err:
                raise Foreign(str(err)) from err
        values = {name: self.up(one) for name, one in body.items()}
        if is_dataclass(cls):
            make: Any = cls
            try:
                return make(**values)  # fields that came later have defaults
            except TypeError as err:
                raise Foreign(str(err)) from err
        thing = cls.__new__(cls, values.pop("").encode("latin-1")) if issubclass(cls, bytes) else cls.__new__(cls)
        same_names(cls.__name__, values, self._names[cls])
        for name, one in values.items():
            setattr(thing, name, one)
        return thing


def same_names(what: str, found: Collection[str], wanted: Collection[str]) -> None:
    """Check that the attributes are those that there are here.

    Raises:
        Foreign: they are not.
    """
    if set(found) != set(wanted):
        raise Foreign(f"{what} differs in {', '.join(sorted(set(found) ^ set(wanted)))}")


def _attributes(cls: Any) -> set[str]:
    if issubclass(cls, Enum):
        return set()
    if is_dataclass(cls):
        return {field.name for field in fields(cls)}
    if issubclass(cls, bytes):
        return {"frames"}
    return {name for one in cls.__mro__ for name in getattr(one, "__slots__", ())}
