"""Crontabs: of users, and of the system (``/etc/crontab``, ``/etc/cron.d``), which have a column for the user."""

import os
import pwd
import re
from typing import Any

from supervisor.importers.outcome import Outcome
from supervisor.scheduler.cron import validate
from supervisor.zones import is_zone

_SYSTEM = ("/etc/crontab", "/etc/cron.d/")
_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)")
_PERCENT = re.compile(r"(?<!\\)%")
_FIELDS = 5
# fmt: off
_NO_NAMES = frozenset({
    "cd", "test", "[", "[[", "if", "then", "exec", "nice", "ionice", "env", "sudo", "flock",
    "timeout", "sh", "bash", "true", "command",
})
# fmt: on
_INPUT = "RINGWARD_INPUT"
_PATH = "/usr/bin:/bin"
_ENVIRONMENT = (
    f"cron starts these in their user's home with few variables (PATH={_PATH}); here they have the daemon's:"
    " give each of them user, working_dir and env_base where that matters"
)


def is_system(path: str) -> bool:
    """Whether a file has the column for the user, by where it is."""
    return os.path.abspath(path).startswith(_SYSTEM)


def read(path: str, text: str, outcome: Outcome, *, system: bool) -> None:
    """Add the jobs of a crontab.

    Args:
        path: of the file, for messages.
        text: its content.
        outcome: what they are added to.
        system: its lines have a column for the user.
    """
    variables: dict[str, str] = {}
    comment = ""
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        place = f"{path}:{number}"
        if not line or line.startswith("#"):
            comment = line.lstrip("# ").strip()
        elif found := _VARIABLE.fullmatch(line):
            variables[found[1]] = _unquoted(found[2])
        else:
            _job(line, place, comment, variables, outcome, system=system)
            comment = ""


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


def _job(line: str, place: str, comment: str, variables: dict[str, str], outcome: Outcome, *, system: bool) -> None:
    columns = 1 if line.startswith("@") else _FIELDS
    parts = line.split(None, columns + system)
    if len(parts) <= columns + system:
        outcome.note(place, "is no line of a crontab" + (" with a user" if system else ""))
        return
    schedule = " ".join(parts[:columns]).removeprefix("-")  # cronie's mark for a job that syslog need not hear of
    keys: dict[str, Any] = {"description": comment or None}
    if schedule == "@reboot":
        keys["run_on_start"] = "boot"
    elif (wrong := validate(schedule)) is not None:
        outcome.note(place, f"its schedule is not carried over, nor is the job: {wrong}")
        return
    else:
        keys["cron"] = schedule
    command = parts[-1]
    keys["run"] = _with_input(command)
    _environment(variables, place, keys, outcome)
    if system:
        _as_user(parts[columns], place, keys, outcome)
    else:
        outcome.note(place.rpartition(":")[0], _ENVIRONMENT)
    outcome.add("tasks", _name(command), keys, f"{place}: {line}")


def _with_input(command: str) -> str:
    """A percent sign ends the command; what follows is its input, in which each other one ends a line."""
    first, *rest = _PERCENT.split(command)
    first, rest = first.replace("\\%", "%"), [part.replace("\\%", "%") for part in rest]
    if rest and not rest[-1]:
        rest.pop()  # the last line has its end already
    if not rest:
        return first.rstrip()
    return "\n".join(("{ " + first.rstrip(), f"}} <<'{_INPUT}'", *rest, _INPUT))


def _environment(variables: dict[str, str], place: str, keys: dict[str, Any], outcome: Outcome) -> None:
    """What the variables above a job mean for it."""
    env = dict(variables)
    mail = env.pop("MAILTO", "")
    env.pop("MAILFROM", None)
    if mail:
        outcome.note(place, f"mail to {mail}: make a notifier, and name it in notify_on_failure")
    keys["shell"] = env.pop("SHELL", None)
    if zone := env.pop("CRON_TZ", None):
        if is_zone(zone):
            keys["timezone"] = zone
        else:
            outcome.note(place, f"CRON_TZ: {zone} is no time zone here")
    if delay := env.pop("RANDOM_DELAY", None):
        keys["jitter"] = f"{int(delay)}m" if delay.isdigit() else None
    keys["working_dir"] = env["HOME"] if env.get("HOME", "").startswith("/") else None
    keys["env"] = env


def _as_user(user: str, place: str, keys: dict[str, Any], outcome: Outcome) -> None:
    """What cron gives to a command of a user: their home, hardly any variables."""
    keys["user"], keys["env_base"] = user, "clean"
    keys["env"] = {"PATH": _PATH} | keys["env"]
    if keys["working_dir"] is None:
        try:
            keys["working_dir"] = pwd.getpwnam(user).pw_dir
        except KeyError:
            outcome.note(place, f"there is no user {user} here; cron starts it in their home: set working_dir")


def _name(command: str) -> str:
    """Of the first program in a command that says something."""
    # What a test looks for says nothing; only a program is looked for with -x.
    for word in re.split(r"[\s;&|()]+", re.sub(r"\s-[defrs]\s+\S+", " ", command)):
        bare = os.path.basename(word.strip("\"'{}"))
        if bare and bare not in _NO_NAMES and not word.startswith(("-", "$", ">", "<", "/dev/")) and "=" not in word:
            if word.startswith("/") and bare == word.strip("/") and len(word) > 1:
                continue  # a directory such as / that is gone to
            return os.path.splitext(bare)[0]
    return "task"
