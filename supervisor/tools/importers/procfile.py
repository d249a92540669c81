"""Imports Procfiles of Foreman and Heroku."""

import os
import re

from supervisor.tools.importers.cron_commands import stops_with_e
from supervisor.tools.importers.import_result import Outcome

_LINE = re.compile(r"([A-Za-z0-9_-]+):\s*(.+)")
_OWN_PORT = re.compile(r"""^(?:export )?PORT=["']?(\d{1,5})["']?$""", re.MULTILINE)
_RELEASE = "release"
_PORT, _FIRST_PORT, _STEP = re.compile(r"\$\{?PORT\b"), 5000, 100


def read(path: str, text: str, outcome: Outcome) -> None:
    """Add the processes of a Procfile to the outcome, each with the file ``.env`` in its directory, if there is one."""
    directory = os.path.dirname(os.path.abspath(path))
    env_file = os.path.join(directory, ".env")
    named = [env_file] if os.path.exists(env_file) else None
    count, first_port = 0, _first_port(env_file)
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        location = f"{path}:{number}"
        if not line or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            outcome.note(location, f"is not a line of a Procfile: {line}")
            continue
        name, command = match.groups()
        run = ["/bin/sh", "-c", command] if stops_with_e(command) else command
        keys: dict[str, object] = {"run": run, "working_dir": directory, "env_file": named}
        port = first_port + _STEP * count
        keys["env"] = {"PORT": str(port)}  # many programs read this variable by themselves
        if _PORT.search(command):
            outcome.advise(location, f"PORT is {port}, as with Foreman; change it in env")
        count += 1
        if name == _RELEASE:
            outcome.advise(location, "release is a task without a schedule: run it when you deploy")
        outcome.add("tasks" if name == _RELEASE else "services", name, keys, f"{location}: {line}", location)


def _first_port(env_file: str) -> int:
    """Return the value of PORT in the file, from which Foreman counts, or else Foreman's default."""
    try:
        with open(env_file, encoding="utf-8") as file:
            match = _OWN_PORT.search(file.read())
    except (OSError, UnicodeDecodeError):
        return _FIRST_PORT
    return int(match[1]) if match else _FIRST_PORT
