"""Imports crontabs of users and of the system (``/etc/crontab``, ``/etc/cron.d``), which have a column for the user.

Jobs in a crontab have no names, so each is named after the program that does the work.
"""

import os
import pwd
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from supervisor.host.zones import is_zone
from supervisor.schedule.cron import validate
from supervisor.tools.importers.cron_commands import ASIDE, as_run, name_of
from supervisor.tools.importers.import_result import Outcome

_SYSTEM_PATH = re.compile(r".*/cron\.d/.*|.*/etc/crontab")
_USER_PATH = re.compile(r".*/crontabs/.*|.*/spool/cron/.*")
_ANACRON = re.compile(r"(?P<period>\d+|@\w+)\s+(?P<delay>\d+)\s+(?P<name>\S*[A-Za-z]\S*)\s+(?P<command>\S.*)")
_PERIODS = {"1": "@daily", "7": "@weekly"}
_VARIABLE = re.compile(r"""("?)([A-Za-z_][A-Za-z0-9_]*)\1\s*=\s*(.*)""")
_PERCENT = re.compile(r"(?<!\\)%")
_FIELDS = 5
_FIELD = re.compile(r"(?=.*[\d*])[\d*,/?~-]+")
"""The pattern of a word that looks like another field of a schedule."""
_OPTIONS = re.compile(r"-[a-zA-Z]+")
_HEADING = re.compile(
    r"m\s+h\s+dom|\(0\s*-\s*\d|^[|.*`'+=~-]|Edit this file|For more information|user-name", re.IGNORECASE
)
"""The pattern of comments that explain the columns or draw lines, which are not descriptions of jobs."""
_USERS = frozenset({
    "root", "www-data", "nobody", "daemon", "backup", "postgres", "mysql", "nginx", "apache", "ubuntu", "debian",
})  # fmt: skip
"""Common users, which this host need not have if the crontab comes from another host."""
_PROGRAMS = frozenset({"backup", "sync", "mail", "man", "news", "git", "mysql", "postgres", "nginx", "proxy", "list"})
"""Common names of users that are also names of programs or scripts."""
_USER = re.compile(r"[A-Za-z_][\w.-]*\$?")
_INPUT = "RINGWARD_INPUT"
_PATH = "/usr/bin:/bin"
_SHELL = "/bin/sh"
_ENVIRONMENT = (
    f"cron starts these jobs in the home directory of their user with few variables (PATH={_PATH});"
    " here they inherit the daemon's: set user, working_dir and env_base if that matters"
)


@dataclass(frozen=True)
class _Line:
    """The parts of a line with a job."""

    location: str
    text: str
    schedule: str
    user: str | None
    command: str
    name: str | None = None
    """The name of the job, which only anacrontabs give."""


def has_users(path: str, text: str, outcome: Outcome) -> bool:
    """Return whether a file has a column for the user, which its path or its lines tell; report a doubt.

    The lines tell it if the sixth word of each can only be a user: there is no such program, and a program or a path
    follows.
    """
    whole = os.path.abspath(path)
    if _SYSTEM_PATH.fullmatch(whole) or _USER_PATH.fullmatch(whole):
        return _SYSTEM_PATH.fullmatch(whole) is not None
    jobs = [line for _, line in _lines(path, text, system=False) if line is not None]
    words = [(line.command.split()) for line in jobs]
    if words and all(len(word) > 1 and _may_be_user(word[0]) and _may_be_program(word[1]) for word in words):
        if doubtful := sorted({word[0] for word in words if not _is_user(word[0]) or word[0] in _PROGRAMS}):
            names = ", ".join(doubtful)
            outcome.note(path, f"{names}: taken for users; use --no-system if they are programs, else --system")
        return True
    for line, word in zip(jobs, words, strict=True):
        if len(word) > 1 and _is_user(word[0]):
            outcome.note(
                line.location,
                f"{word[0]} is a user, but taken for a program; use --system if it is not, else --no-system",
            )
    return False


def _may_be_user(word: str) -> bool:
    return _USER.fullmatch(word) is not None and not _is_program(word)


def _may_be_program(word: str) -> bool:
    return "/" in word or word[:1] in "([{" or word in _PROGRAMS or _is_program(word)


def _is_program(word: str) -> bool:
    return word in ASIDE or shutil.which(word) is not None


def _is_user(word: str) -> bool:
    """Return whether a word is the name of a user, here or on most hosts."""
    try:
        return word in _USERS or pwd.getpwnam(word) is not None
    except KeyError:
        return False


def read(path: str, text: str, outcome: Outcome, *, system: bool) -> None:
    """Add the jobs of a crontab to the outcome.

    Args:
        path: The path of the file, for messages.
        text: The content of the file.
        outcome: The outcome to which the jobs are added.
        system: Whether the lines have a column for the user.
    """
    variables: dict[str, str] = {}
    comment: list[str] = []
    if is_anacrontab(path, text):
        outcome.advise(
            path, "is an anacrontab: its jobs start at the time of their period here, or later if missed then"
        )
        lines = _anacron_lines(path, text)
    else:
        lines = _lines(path, text, system=system)
    for number, (line, job) in enumerate(lines, 1):
        if line.startswith("#"):
            comment.append(line)
            continue
        description, comment = _description(comment), []
        if not line:
            continue
        if job is not None:
            _job(job, description, variables, outcome)
        elif match := _VARIABLE.fullmatch(line):
            variables[match[2]] = _unquoted(match[3])
            if match[2] == "MAILTO" and variables["MAILTO"]:
                mail = f"mail to {variables['MAILTO']}: create a notifier, and name it in notify_on_failure"
                outcome.note(f"{path}:{number}", mail)
        else:
            outcome.note(f"{path}:{number}", f"is not a line of a crontab{' with a user' if system else ''}: {line}")


def _lines(path: str, text: str, *, system: bool) -> Iterator[tuple[str, _Line | None]]:
    """Yield each line with its job; None if the line has no job."""
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        yield line, None if line.startswith("#") else _parsed(line, f"{path}:{number}", system=system)


def is_anacrontab(path: str, text: str) -> bool:
    """Return whether a file is an anacrontab, whose lines have a period, a delay in minutes and a name."""
    if os.path.basename(path) == "anacrontab":
        return True
    jobs = [line for _, line in _lines(path, text, system=False) if line is not None]
    return bool(jobs) and all(
        _ANACRON.fullmatch(job.text) and (job.schedule.startswith("@") or validate(job.schedule) is not None)
        for job in jobs
    )


def _anacron_lines(path: str, text: str) -> Iterator[tuple[str, _Line | None]]:
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        match = None if _VARIABLE.fullmatch(line) else _ANACRON.fullmatch(line)
        period = _PERIODS.get(match["period"], match["period"]) if match else ""
        yield line, _Line(f"{path}:{number}", line, period, None, match["command"], match["name"]) if match else None


def _parsed(line: str, location: str, *, system: bool) -> _Line | None:
    """Return the job on a line; None if there is none."""
    if not line or _VARIABLE.fullmatch(line):
        return None
    columns = 1 if line.startswith("@") else _FIELDS
    parts = line.split(None, columns + system)
    if len(parts) <= columns + system:
        return None
    schedule = " ".join(parts[:columns]).removeprefix("-")  # in cronie, a leading hyphen keeps the job out of syslog
    return _Line(location, line, schedule, parts[columns] if system else None, parts[-1])


def _description(comment: list[str]) -> str:
    """Return the comment above a job as its description; empty if a line is a heading or disabled code."""
    lines = [line.strip("# \t") for line in comment]
    for line in lines:
        job = _parsed(line, "", system=False)
        is_job = job is not None and (job.schedule == "@reboot" or validate(job.schedule) is None)
        if is_job or _VARIABLE.fullmatch(line) or _HEADING.search(line):
            return ""
    text = " ".join(filter(None, lines))
    return text if re.search(r"[^\W\d_]", text) else ""


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "\"'" else text


def _job(line: _Line, comment: str, variables: dict[str, str], outcome: Outcome) -> None:
    location = line.location
    keys: dict[str, Any] = {"description": comment or None}
    if wrong := _wrong(line):
        _leave_out(line, outcome, wrong)
        return
    command = line.command
    while (first := command.partition(" ")[0]) and _OPTIONS.fullmatch(first):
        if not set(first[1:]) <= set("nqs"):
            _leave_out(line, outcome, f"the job has an unknown option: {first}")
            return
        if "s" in first:
            keys["on_overlap"] = "skip"
        command = command.partition(" ")[2].lstrip()
    if not command:
        _leave_out(line, outcome, "it has no command")
        return
    if line.schedule == "@reboot":
        keys["run_on_start"] = "boot"
    elif line.schedule.isdigit():
        keys["every"] = f"{line.schedule}d"
    else:
        keys["cron"] = line.schedule
    # anacron runs each command with /bin/sh in /; SHELL and HOME are variables for it, and % is an ordinary character
    is_anacron = line.name is not None
    only_env = {name: variables[name] for name in ("SHELL", "HOME") if is_anacron and name in variables}
    variables = {name: value for name, value in variables.items() if name not in only_env}
    text, given = (command, "") if is_anacron else _split(command)
    run = as_run(text, variables.get("SHELL") or _SHELL, input_text=given)
    keys["run"] = run.run
    keys["leftovers"] = "leave"  # cron leaves background processes running
    for remark in run.advice:
        outcome.advise(location, remark)
    _environment(variables, location, keys, outcome)
    if isinstance(run.run, list):
        keys["shell"] = None
    if line.user is not None:
        _as_user(line.user, location, keys, outcome)
    elif is_anacron:
        keys["working_dir"] = "/"
        keys["env"] |= only_env
    else:
        outcome.advise(location.rpartition(":")[0], _ENVIRONMENT)
    name, origin = line.name or name_of(command), f"{location}: {line.text}"
    outcome.add("tasks", name, keys, origin, location, invented=not is_anacron)


def _leave_out(line: _Line, outcome: Outcome, reason: str) -> None:
    outcome.note(line.location, f"the job is not converted: {reason}: {line.text}")


def _wrong(line: _Line) -> str | None:
    """Return why a job cannot be converted; None if it can."""
    if line.user is not None and not re.fullmatch(r"[\w.@-]+\$?", line.user):
        return f"no such user: {line.user} (the lines of this file have a column for the user)"
    if line.schedule.isdigit():
        return None
    if not line.schedule.startswith("@") and _FIELD.fullmatch(line.user or line.command.split()[0]):
        return f"there are more than {_FIELDS} fields before the command"
    if line.schedule != "@reboot" and (wrong := validate(line.schedule)) is not None:
        return f"its schedule cannot be expressed: {wrong}"
    return None


def _split(command: str) -> tuple[str, str]:
    """Return a command, and its input as a here-document.

    The first percent sign ends the command. The rest is its input, in which each further percent sign ends a line.
    """
    first, *input_lines = _PERCENT.split(command)
    first, input_lines = first.replace("\\%", "%"), [part.replace("\\%", "%") for part in input_lines]
    if input_lines and not input_lines[-1]:
        input_lines.pop()  # the percent sign at the end has already ended the last line
    return first.rstrip(), "\n".join((f"<<'{_INPUT}'", *input_lines, _INPUT)) if input_lines else ""


def _environment(variables: dict[str, str], location: str, keys: dict[str, Any], outcome: Outcome) -> None:
    """Set the keys of a job that the variables above it determine."""
    env = dict(variables)
    env.pop("MAILTO", None)
    env.pop("MAILFROM", None)
    if hours := env.pop("START_HOURS_RANGE", None):
        outcome.note(location, f"START_HOURS_RANGE = {hours} is not converted")
    keys["shell"] = env.pop("SHELL", None)
    if zone := env.pop("CRON_TZ", None):
        if is_zone(zone):
            keys["timezone"] = zone
            outcome.advise(location, f"CRON_TZ = {zone}: cronie obeys it, Debian's cron ignores it, Ringward obeys it")
        else:
            outcome.note(location, f"CRON_TZ: unknown time zone {zone}")
    if delay := env.pop("RANDOM_DELAY", None):
        keys["jitter"] = f"{int(delay)}m" if delay.isdigit() else None
        if not delay.isdigit():
            outcome.note(location, f"RANDOM_DELAY: {delay} is not a number of minutes")
    home = env.get("HOME", "")
    keys["working_dir"] = home if home.startswith("/") else None
    if home and not home.startswith("/"):
        outcome.note(location, f"HOME: {home} is not an absolute path, so the job starts in the daemon's directory")
    elif home and not os.path.isdir(home):
        outcome.note(location, f"HOME: no directory {home} here; cron starts the job all the same, Ringward does not")
    keys["env"] = env


def _as_user(user: str, location: str, keys: dict[str, Any], outcome: Outcome) -> None:
    """Set the keys for a user, so that the job starts as in cron: in the user's home directory, with few variables."""
    keys["user"], keys["env_base"] = user, "clean"
    keys["env"] = {"PATH": _PATH} | keys["env"]
    if keys["working_dir"] is not None:
        return
    try:
        home = pwd.getpwnam(user).pw_dir
    except KeyError:
        outcome.note(
            location, f"no such user on this host: {user}; cron starts it in the user's home directory; set working_dir"
        )
        return
    if os.path.isdir(home):
        keys["working_dir"] = home
    else:
        outcome.advise(location, f"{user} has no home directory ({home}): the job starts in the daemon's directory")
