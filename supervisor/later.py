"""Modules that others import and hardly ever use: loaded when something in them is asked for.

:class:`importlib.util.LazyLoader` is meant for this, but up to Python 3.11 any import of such a module loads it.

Standard library only: the root process loads this.
"""

import importlib.util
import sys
from _thread import RLock
from types import ModuleType
from typing import Any

_lock = RLock()
_begun: set[str] = set()
_lent: dict[str, dict[str, Any]] = {}
"""What modules have that did not load themselves, by their names."""


class _Later(ModuleType):
    """A module that loads itself when it does not have what it is asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        _load(self)
        if name not in vars(self):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return vars(self)[name]


def _load(module: ModuleType) -> None:
    if module.__spec__ is None or module.__spec__.loader is None:
        return
    with _lock:
        if module.__name__ not in _begun:
            _begun.add(module.__name__)
            module.__spec__.loader.exec_module(module)
            module.__class__ = ModuleType  # from now on it is one like others


def unused(*_arguments: object) -> None:
    """In place of what is taken from a module and not called."""


def import_later(name: str, known: dict[str, Any] | None = None, /, **taken: Any) -> None:
    """Have a module load itself later, unless it is loaded.

    Args:
        name: of a module; one that is not installed stays away.
        known: what others use of it, and can have without the module, for good.
        taken: what others take from it when they are loaded themselves, and what they get until :func:`settle`.
    """
    if name in sys.modules:
        return
    parent, _, child = name.rpartition(".")
    spec = importlib.util.find_spec(name)
    if spec is None:
        return
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    module.__class__ = _Later
    vars(module).update(known or {}, **taken)
    _lent[name] = taken
    if parent:
        setattr(sys.modules[parent], child, module)


def settle() -> None:
    """Whoever has taken something has done so: from now on that loads its module, too."""
    for name, taken in _lent.items():
        if is_later(name):
            for thing in taken:
                delattr(sys.modules[name], thing)
    _lent.clear()


def is_later(name: str) -> bool:
    """Whether a module was imported and has not loaded itself."""
    return isinstance(sys.modules.get(name), _Later)


def load(name: str) -> None:
    """Load a module of :func:`import_later` that is going to be used after all."""
    if is_later(name):
        _load(sys.modules[name])
