"""Compose files: YAML as compose reads it, with variables filled in."""

import os
import re
from collections.abc import Mapping
from typing import Any

from supervisor.config.files.env_file import parse_variables
from supervisor.config.problems import Invalid
from supervisor.tools.importers.outcome import Outcome, Unreadable

_TYPES = (
    ("tag:yaml.org,2002:bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("tag:yaml.org,2002:int", r"0|[-+]?[1-9][0-9]*", "-+0123456789"),
    ("tag:yaml.org,2002:float", r"[-+]?[0-9]*\.[0-9]+", "-+.0123456789"),
    ("tag:yaml.org,2002:null", r"~|null|Null|NULL|", ("~", "n", "N", "")),
    ("tag:yaml.org,2002:merge", r"<<", "<"),
)
"""Of YAML 1.2: in 1.1, which PyYAML reads, the port ``22:22`` would be a number of seconds, and ``on`` true."""
_VARIABLE = re.compile(
    r"\$(?:(?P<escaped>\$)|(?P<bare>[A-Za-z_]\w*)|\{(?P<name>[A-Za-z_]\w*)(?:(?P<how>:?[-?+])(?P<other>(?:[^{}]|\$\{[^{}]*\})*))?\})"
)


def content(path: str, text: str, outcome: Outcome) -> Mapping[str, Any]:
    """Return the content of a compose file; variables come from the environment and from ``.env`` beside the file.

    Raises:
        Unreadable: it is no compose file.
    """
    import yaml  # takes 20 ms

    loader = yaml.SafeLoader(text)
    resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    for tag, pattern, starts in _TYPES:
        for start in starts:
            resolvers.setdefault(start, []).append((tag, re.compile(f"(?:{pattern})$")))
    loader.yaml_implicit_resolvers = resolvers
    try:
        found = loader.get_single_data()
    except (yaml.YAMLError, RecursionError) as err:
        raise Unreadable(f"{path}: is not YAML: {' '.join(str(err).split())}") from err
    finally:
        loader.dispose()
    if not isinstance(found, Mapping) or not isinstance(found.get("services"), Mapping):
        raise Unreadable(f"{path}: has no services")
    variables = _Variables(path, outcome)
    filled: Mapping[str, Any] = variables.filled(found)
    return filled


class _Variables:
    """Fills in ``$NAME`` and ``${NAME:-default}``."""

    def __init__(self, path: str, outcome: Outcome) -> None:
        self._path = path
        self._outcome = outcome
        file = os.path.join(os.path.dirname(os.path.abspath(path)), ".env")
        self._values = {**_env_file(file, outcome), **os.environ}

    def filled(self, value: Any) -> Any:
        """Return a value with all variables in it filled in."""
        if isinstance(value, Mapping):
            return {str(key): self.filled(one) for key, one in value.items()}
        if isinstance(value, list):
            return [self.filled(one) for one in value]
        return self._text(value) if isinstance(value, str) else value

    def _text(self, text: str) -> str:
        return _VARIABLE.sub(self._replaced, text)

    def _replaced(self, found: re.Match[str]) -> str:
        if found["escaped"]:
            return "$"
        name, how, other = found["bare"] or found["name"], found["how"] or "", found["other"] or ""
        value = self._values.get(name)
        is_there = value is not None and (value != "" or not how.startswith(":"))
        if how.endswith("+"):
            return self._text(other) if is_there else ""
        if is_there:
            self._outcome.advise(self._path, f"${name} has the value that it has here and now")
            return value or ""
        if how.endswith("-"):
            return self._text(other)
        self._outcome.note(self._path, f"${name} is not set: it is empty{f' ({other})' if other else ''}")
        return ""


def _env_file(path: str, outcome: Outcome) -> dict[str, str]:
    try:
        with open(path, encoding="utf-8") as file:
            return parse_variables(file.read())
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, Invalid) as err:
        outcome.note(path, f"cannot read it: {err}")
        return {}
