"""Frozen dataclasses that are made in a fraction of the time.

:func:`dataclasses.dataclass` writes and compiles the methods of each class, a millisecond for a class, at every start
of every process. Here all classes share the same methods, which look up what the class is like. Fields, defaults,
inheritance, ``replace`` and ``asdict`` are those of :mod:`dataclasses`, and so is what a type checker sees.

Standard library only: the root process loads this.
"""

from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NoReturn

from supervisor.later import import_later

import_later("inspect")  # which dataclasses needs for classes that have no docstring

import dataclasses  # noqa: E402
from dataclasses import asdict, field  # noqa: E402

__all__ = ["asdict", "dataclass", "field"]

_set = object.__setattr__


class _Shape:
    """What the shared methods need to know of one class."""

    def __init__(self, cls: type) -> None:
        fields = dataclasses.fields(cls)
        self.slotted = any("__slots__" in vars(one) for one in cls.__mro__)
        self.names = frozenset(field.name for field in fields)
        self.positional = [field.name for field in fields if not field.kw_only]
        self.shown = [field.name for field in fields if field.repr]
        self.values: Callable[[Any], Any] = attrgetter(*self.names) if fields else lambda _one: ()
        self._defaults = {field.name: field.default for field in fields if field.default is not dataclasses.MISSING}
        self._factories = {
            field.name: field.default_factory for field in fields if field.default_factory is not dataclasses.MISSING
        }

    def completed(self, cls: type, said: dict[str, Any]) -> dict[str, Any]:
        """The values with the defaults of those that were not said.

        Raises:
            TypeError: there is no such field, or one without a default was not said.
        """
        values = self._defaults | {name: make() for name, make in self._factories.items() if name not in said} | said
        if values.keys() != self.names:
            unknown, missing = sorted(values.keys() - self.names), sorted(self.names - values.keys())
            what = f"got unexpected arguments {unknown}" if unknown else f"lacks the arguments {missing}"
            raise TypeError(f"{cls.__qualname__}() {what}")
        return values


def _init(self: Any, /, *given: Any, **said: Any) -> None:
    shape: _Shape = self.__shape__
    if given:
        taken = shape.positional[: len(given)]
        if len(taken) < len(given) or not said.keys().isdisjoint(taken):
            raise TypeError(f"{type(self).__qualname__}() got too many arguments")
        said.update(zip(taken, given, strict=True))
    if said.keys() != shape.names:
        said = shape.completed(type(self), said)
    if shape.slotted:
        for name, value in said.items():
            _set(self, name, value)
    else:
        self.__dict__.update(said)


def _repr(self: Any) -> str:
    return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in self.__shape__.shown)})"


def _eq(self: Any, other: Any) -> Any:
    if type(other) is not type(self):
        return NotImplemented
    values = self.__shape__.values
    return values(self) == values(other)


def _hash(self: Any) -> int:
    return hash(self.__shape__.values(self))


def _setattr(self: Any, name: str, _value: object) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r} of {type(self).__qualname__}")


def _delattr(self: Any, name: str) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r} of {type(self).__qualname__}")


_METHODS = {
    "__init__": _init,
    "__repr__": _repr,
    "__eq__": _eq,
    "__hash__": _hash,
    "__setattr__": _setattr,
    "__delattr__": _delattr,
}

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(*, frozen, kw_only=False, slots=False):
        """As :func:`dataclasses.dataclass`, when it is `frozen`. Every field is compared, and can be given."""
        if not frozen:
            raise TypeError("only frozen ones are made here")

        def decorate(cls):
            own = {name for name in _METHODS if name in vars(cls)}
            made = dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only, slots=slots)(cls)
            for name, method in _METHODS.items():
                if name not in own:
                    setattr(made, name, method)
            made.__shape__ = _Shape(made)
            return made

        return decorate
