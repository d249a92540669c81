"""Imports crontabs of users and of the system (``/etc/crontab``, ``/etc/cron.d``), which have a column for the user.

Cron runs ``SHELL -c COMMAND``, ignores the exit code and leaves background processes running. Ringward runs
``SHELL -e -c COMMAND``, treats exit codes other than 0 as failures, and ends a run with its command. The importer
rewrites commands accordingly. Jobs in a crontab have no names, so each is named after the program that does the work.
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
from supervisor.tools.importers.import_result import Outcome

_WORD = re.compile(r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|\\.|[^\s;&|()<>"'])+|[<>]+&?\s*\S*|&&|\|\||[;&|()\n]""")
_SEPARATOR = re.compile(r"&&|\|\||[;&|()\n]")
_NUMBER = re.compile(r"[\d.,:+-]+[a-zA-Z%]?")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_PLAIN = re.compile(r"[A-Za-z][\w.+@-]*")
_ARITHMETIC = re.compile(r"\$\(\([^)]*\)\)")
# fmt: off
_KEYWORDS = frozenset({"if", "then", "else", "elif", "fi", "while", "until", "do", "done", "!", "{", "}", "time"})
_INTERPRETERS = frozenset({
    "sh", "bash", "dash", "zsh", "ksh", "python", "python2", "python3", "perl", "ruby", "php", "node", "java",
})
_WRAPPERS = {
    "nice": "n", "ionice": "cnp", "timeout": "ks", "env": "uCS", "sudo": "ugh", "flock": "wE", "chrt": "", "time": "",
    "taskset": "", "command": "", "exec": "a", "nohup": "", "setsid": "", "cronic": "", "chronic": "", "stdbuf": "ioe",
    "systemd-cat": "tp", "runuser": "ug", "su": "sg", "xargs": "nIPL", "unbuffer": "", "doas": "u", "setpriv": "",
}
"""Programs that run the command that follows them, and their options that take a value."""
_ASIDE = frozenset({
    "cd", "test", "[", "[[", "source", ".", "true", "false", "yes", "echo", "printf", "sleep", "set", "export",
    "ulimit", "umask", "for", "case", ":", "wait", "eval", "kill", "exit", "date", "mkdir", "touch", "cat",
})
"""Commands that usually only prepare for another command."""
# fmt: on
_STATUSES = frozenset({"true", "false", "test"})
"""Commands that do nothing."""


def name_of(command: str) -> str:
    """Return a name for a command: that of the first program or script that does the work, or else ``task``."""
    aside = ""
    for words in _commands(_ARITHMETIC.sub("0", command)):
        program, script = _program(words)
        plain_name = next((name for name in (_bare(script), _bare(program)) if _PLAIN.fullmatch(name)), "")
        if plain_name and os.path.basename(program) not in _ASIDE:
            return plain_name
        aside = aside or (plain_name if plain_name not in _STATUSES else "")
    return aside or "task"


def _commands(command: str) -> list[list[str]]:
    commands: list[list[str]] = [[]]
    for word in _WORD.findall(command):
        if _SEPARATOR.fullmatch(word):
            commands.append([])
        elif word[0] not in "<>":
            commands[-1].append(word)
    return [words for words in commands if words]


def _program(words: list[str]) -> tuple[str, str]:
    """Return the program of a command, without keywords and wrappers, and the script that the program interprets."""
    remaining = [word.strip("\"'") for word in words]
    while remaining and (remaining[0] in _KEYWORDS or _ASSIGNMENT.match(remaining[0])):
        remaining.pop(0)
    while remaining and (wrapper := os.path.basename(remaining[0])) in _WRAPPERS:
        remaining = _unwrapped(wrapper, remaining[1:])
    if not remaining:
        return "", ""
    program = os.path.basename(remaining[0])
    if program in ("su", "runuser") or program not in _INTERPRETERS:
        return remaining[0], ""
    if "-c" in remaining[1:-1]:
        return "", name_of(remaining[remaining.index("-c") + 1])
    return remaining[0], next((word for word in remaining[1:] if not word.startswith("-")), "")


def _unwrapped(wrapper: str, words: list[str]) -> list[str]:
    """Return the command that a wrapper runs."""
    words = list(words)
    lock = wrapper == "flock"
    while words:
        word = words[0]
        if word == "-c" and wrapper in ("flock", "su", "runuser"):
            return _commands(words[1])[0] if len(words) > 1 and _commands(words[1]) else []
        if word.startswith("-") and len(word) > 1:
            takes_value = word[1:] in tuple(_WRAPPERS[wrapper]) and len(words) > 1
            words = words[2 if takes_value else 1 :]
        elif word == "-" or _ASSIGNMENT.match(word) or _NUMBER.fullmatch(word):
            words = words[1:]
        elif lock:
            words, lock = words[1:], False
        elif wrapper in ("su", "runuser") and "-c" in words:
            words = words[words.index("-c") :]
        else:
            return words
    return []


def _bare(word: str) -> str:
    """Return the last component of a path, without the file name extension of a script."""
    name = os.path.basename(word)
    stem, end = os.path.splitext(name)
    return stem if end in (".sh", ".py", ".pl", ".rb", ".php", ".js", ".bash", ".jar", ".cgi", ".bat") else name


_QUOTED = r"'[^']*'|\"(?:[^\"\\]|\\.)*\"|\\."
_OPERATOR = re.compile(rf"{_QUOTED}|(?P<operator>&>>|&>|>&|<&|&&|\|&|\|\||;|&|\n)", re.DOTALL)
_DETACHED = re.compile(r"\s*(?:(?:nohup|setsid)(?:\s+(?:--\w+|-\w+))*\s+)+(?=\S)")
_TEST = re.compile(r"(?:\[\[?\s.*\s\]\]?|test\s.*)", re.DOTALL)
_BASH = frozenset({"bash", "zsh"})


@dataclass(frozen=True)
class Command:
    """A converted command, with notes about the conversion."""

    run: str | list[str]
    """The value of the key ``run``, which is a list if ``-e`` would change the behaviour of the command."""
    advice: tuple[str, ...]


def as_run(command: str, shell: str, *, input_text: str = "") -> Command:
    """Convert a command to the value of the key ``run``.

    Args:
        command: The command that cron passes to the shell.
        shell: The shell of the job.
        input_text: The here-document with the command's input; empty: there is none.
    """
    advice = []
    if os.path.basename(shell) not in _BASH and (text := _both_redirected(command)) != command:
        command = text
        advice.append(f"&> is bash syntax, which {shell} may read as &; written as > FILE 2>&1")
    if (text := _foreground(command)) != command:
        command = text
        advice.append("stays in the foreground here: the run lasts as long as the command")
    if (text := _guarded(command)) != command:
        command = text
        advice.append("a false test is not a failure here either: written with if")
    wrong_with_e = any(operator in (";", "&", "\n") for operator, _ in _operators(command))
    text = f"{{ {command}\n}} {input_text}" if input_text else command
    return Command([shell, "-c", text] if wrong_with_e else text, tuple(advice))


def _operators(command: str) -> list[tuple[str, int]]:
    """Return the shell operators outside quotes, each with its index."""
    return [(match["operator"], match.start("operator")) for match in _OPERATOR.finditer(command) if match["operator"]]


def _both_redirected(command: str) -> str:
    for operator, start in reversed(_operators(command)):
        if operator in ("&>>", "&>"):
            behind = start + len(operator)
            if target := re.match(rf"\s*(?:{_QUOTED}|[^\s;&|<>()])+", command[behind:]):
                end = behind + target.end()
                command = f"{command[:start]}{operator[1:]}{command[behind:end]} 2>&1{command[end:]}"
    return command


def _foreground(command: str) -> str:
    """Return the command without a trailing ampersand and without nohup and setsid, which would detach it."""
    operators = _operators(command)
    if operators and operators[-1][0] == "&" and not command[operators[-1][1] + 1 :].strip():
        command = command[: operators[-1][1]].rstrip()
    starts = [0, *(start + len(operator) for operator, start in _operators(command) if operator in ("&&", "||", ";"))]
    for start in reversed(starts):
        if match := _DETACHED.match(command, start):
            command = command[:start] + (" " if start else "") + command[match.end() :]
    return command


def _guarded(command: str) -> str:
    """Rewrite ``[ TEST ] && COMMAND`` with ``if``, so that a false test exits with 0."""
    operators = _operators(command)
    if [operator for operator, _ in operators if operator in ("&&", "||", ";", "&", "\n")][:1] != ["&&"]:
        return command
    if any(operator in ("||", ";", "&", "\n") for operator, _ in operators):
        return command
    at = next(start for operator, start in operators if operator == "&&")
    test, action = command[:at].strip(), command[at + 2 :].strip()
    return f"if {test}; then {action}; fi" if _TEST.fullmatch(test) else command


_SYSTEM = ("/etc/crontab", "/etc/cron.d/")
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
_USERS = frozenset({"root", "www-data", "nobody", "daemon", "postgres", "mysql", "nginx", "apache", "ubuntu", "debian"})
"""Common users, which this host need not have if the crontab comes from another host."""
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


def is_system(path: str, text: str = "") -> bool:
    """Return whether a file has the column for the user, by its path or because each command begins with a user."""
    if os.path.abspath(path).startswith(_SYSTEM):
        return True
    commands = [line.command for _, line in _lines(path, text, system=False) if line is not None]
    words = [command.split() for command in commands]
    return bool(words) and all(len(word) > 1 and _is_user(word[0]) for word in words)


def _is_user(word: str) -> bool:
    """Return whether a word is the name of a user and not of a program."""
    try:
        return word in _USERS or (pwd.getpwnam(word) is not None and shutil.which(word) is None)
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
    comment = ""
    for number, (line, job) in enumerate(_lines(path, text, system=system), 1):
        if not line or line.startswith("#"):
            comment = _description(line)
        elif job is not None:
            _job(job, comment, variables, outcome)
            comment = ""
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


def _description(comment: str) -> str:
    """Return a comment as the description of the job below it; empty if it is a heading or disabled code."""
    text = comment.strip("# \t")
    job = _parsed(text, "", system=False)
    is_job = job is not None and (job.schedule == "@reboot" or validate(job.schedule) is None)
    if is_job or _VARIABLE.fullmatch(text) or _HEADING.search(text) or not re.search("[^\\W\\d_]", text):
        return ""
    return text


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
    else:
        keys["cron"] = line.schedule
    shell = variables.get("SHELL") or _SHELL
    text, given = _split(command)
    run = as_run(text, shell, input_text=given)
    keys["run"] = run.run
    keys["leftovers"] = "leave"  # cron leaves background processes running
    for remark in run.advice:
        outcome.advise(location, remark)
    _environment(variables, location, keys, outcome)
    if isinstance(run.run, list):
        keys["shell"] = None
    if line.user is not None:
        _as_user(line.user, location, keys, outcome)
    else:
        outcome.advise(location.rpartition(":")[0], _ENVIRONMENT)
        if _is_user(first := command.split()[0]) and len(command.split()) > 1:
            outcome.note(
                location, f"{first} is a user; use --system if the lines of the file have a column for the user"
            )
    outcome.add("tasks", name_of(command), keys, f"{location}: {line.text}", location)


def _leave_out(line: _Line, outcome: Outcome, reason: str) -> None:
    outcome.note(line.location, f"the job is not carried over: {reason}: {line.text}")


def _wrong(line: _Line) -> str | None:
    """Return why a job cannot be carried over; None if it can."""
    if line.user is not None and not re.fullmatch(r"[\w.@-]+\$?", line.user):
        return f"no such user: {line.user} (the lines of this file have a column for the user)"
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
    keys["shell"] = env.pop("SHELL", None)
    if zone := env.pop("CRON_TZ", None):
        if is_zone(zone):
            keys["timezone"] = zone
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
    keys["env"] = env


def _as_user(user: str, location: str, keys: dict[str, Any], outcome: Outcome) -> None:
    """Set the keys for a user, so that the job starts as in cron: in the user's home directory, with few variables."""
    keys["user"], keys["env_base"] = user, "clean"
    keys["env"] = {"PATH": _PATH} | keys["env"]
    if keys["working_dir"] is None:
        try:
            keys["working_dir"] = pwd.getpwnam(user).pw_dir
        except KeyError:
            outcome.note(
                location,
                f"no such user on this host: {user}; cron starts it in the user's home directory; set working_dir",
            )
