"""Modules that gunicorn, gevent, Falcon and msgspec import for cases that we do not have: loaded by who uses them."""

import os
import typing
from types import FunctionType, MethodType, SimpleNamespace
from typing import Any

from supervisor.later import import_later, unused


class _Ignored:
    """A description that nobody reads."""

    def __init__(self, *arguments: object, **more: object) -> None:
        pass


class _NoSocket:
    """What no socket is."""


class _NoError(OSError):
    """What no error is."""


class _Signature:
    """As much of a signature as is asked for: the parameters of a function or a method, if that is what it is."""

    def __init__(self, function: Any) -> None:
        code = getattr(function, "__code__", None)
        names = code.co_varnames[: code.co_argcount] if code else ()
        kind = _Kinds.POSITIONAL_OR_KEYWORD
        own = names[isinstance(function, MethodType) :]
        self.parameters = {name: SimpleNamespace(name=name, kind=kind) for name in own}


class _Kinds:
    """Kinds of parameters, by the numbers that they have in :mod:`inspect`."""

    POSITIONAL_ONLY = 0
    POSITIONAL_OR_KEYWORD = 1
    VAR_POSITIONAL = 2
    VAR_KEYWORD = 4


def _as_it_is(*_interfaces: object) -> Any:
    return lambda cls: cls


HARDLY_USED: dict[str, dict[str, Any]] = {
    "argparse": {},
    "ast": {},
    "asyncio": {"Runner": unused, "create_task": unused, "get_running_loop": unused},
    "email.utils": {},
    "html": {},
    "http.cookiejar": {"Cookie": object},
    "importlib.metadata": {"version": unused},
    "inspect": {
        "Parameter": _Kinds,
        "getmembers": unused,
        "iscoroutinefunction": unused,
        "signature": _Signature,
    },
    "logging.config": {"dictConfig": unused, "fileConfig": unused},
    "logging.handlers": {},
    "pathlib": {"Path": str},
    "platform": {"system": lambda: os.uname().sysname, "uname": os.uname},
    "ssl": {},
    "tempfile": {},
    "typing_extensions": {
        **{name: getattr(typing, name) for name in ("NotRequired", "Required", "get_type_hints")},
        "override": lambda method: method,
    },
    "xml.etree.ElementTree": {},
    "zope.interface": {
        "Attribute": _Ignored,
        "Interface": object,
        "classImplements": unused,
        "implementer": _as_it_is,
    },
}
"""Their names; and what is taken from them until the application is made, for the same cases."""

_KNOWN: dict[str, dict[str, Any]] = {
    "inspect": {
        "isclass": lambda one: isinstance(one, type),
        "isfunction": lambda one: isinstance(one, FunctionType),
        "ismethod": lambda one: isinstance(one, MethodType),
    },
    "ssl": {"CERT_NONE": 0, "PROTOCOL_SSLv23": 2, "PROTOCOL_TLS": 2, "SSLError": _NoError, "SSLSocket": _NoSocket},
}
"""What they are asked for all the time. Who serves with TLS loads :mod:`ssl`."""


def postpone() -> None:
    """Have what is hardly used loaded by who uses it."""
    for name, taken in HARDLY_USED.items():
        import_later(name, _KNOWN.get(name), **taken)
