"""Warnings about variables that do not get past the shell for which a command is a text."""

import os
from collections.abc import Iterable, Mapping
from typing import Any

from supervisor.config.files.positions import KeyPath
from supervisor.config.problems import Invalid, quoted
from supervisor.config.value_types.launchers import LOCAL
from supervisor.host.prepared_command import is_identifier

_DROPPING = ("dash", "ash", "busybox")
"""Shells that pass on variables only under names that are identifiers; bash passes on all."""
_TEXTS = ("run", "ready", "live")


def dropped(values: Mapping[str, Any], own: Mapping[str, Any]) -> Iterable[tuple[KeyPath, Invalid]]:
    """Return a warning for each text whose shell drops a variable, with the place of the text.

    Args:
        values: all values of a unit.
        own: the keys of its own table; a text from [defaults] has no position in it.
    """
    odd = sorted(name for key in ("env", "secrets") for name in values.get(key, ()) if not is_identifier(name))
    shell = values.get("shell", "/bin/sh")
    program = os.path.basename(os.path.realpath(shell))
    if values.get("launcher", LOCAL) != LOCAL or not odd or not program.startswith(_DROPPING):
        return
    for key in _TEXTS:
        value = values.get(key)
        text = value if key == "run" else getattr(value, "target", None)
        if isinstance(text, str) and (key == "run" or getattr(value, "kind", None) == "exec"):
            names = ", ".join(map(quoted, odd))
            message = f"{shell} is {program}, which drops variables with names such as {names}"
            remedy = f'write {key if key == "run" else "exec"} as a list of arguments, or add shell = "/bin/bash"'
            yield ((key,) if key in own else ()), Invalid(message, remedy, show=False)
