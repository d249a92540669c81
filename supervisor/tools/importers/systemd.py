"""Imports systemd services and their timers, whose ``OnCalendar`` (systemd.time(7)) becomes cron expressions."""

import functools
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from supervisor.config.files.env_file import parse_variables
from supervisor.config.problems import InvalidValue
from supervisor.host.zones import is_zone
from supervisor.tools.importers.import_result import Outcome, UnreadableFile, seconds
from supervisor.tools.importers.shell_words import for_shell
from supervisor.tools.importers.unit_values import FOR_EVER, endless_span, restarts, signal_name, span, statuses

_WORDS = {
    "minutely": "* * * * *",
    "hourly": "0 * * * *",
    "daily": "0 0 * * *",
    "weekly": "0 0 * * 1",
    "monthly": "0 0 1 * *",
    "quarterly": "0 0 1 1,4,7,10 *",
    "semiannually": "0 0 1 1,7 *",
    "yearly": "0 0 1 1 *",
    "annually": "0 0 1 1 *",
}
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_EVENT = re.compile(
    r"(?:(?P<days>[A-Za-z]{3}[A-Za-z,.\-]*)\s*)?"
    r"(?:(?P<year>\*|\d{4})-(?P<month>[\d*,./]+)(?:-(?P<day>[\d*,./]+)|(?P<from_end>~0?1|~0?7/1))\s*)?"
    r"(?:(?P<hour>[\d*,./]+):(?P<minute>[\d*,./]+)(?::(?P<second>[\d*,./]+))?)?"
)
_PART = re.compile(r"(?:\*|\d+)(?:\.\.\d+)?(?:/\d+)?")
_SECOND_RANGE = re.compile(r"(\d+)/(\d+)")
_HIGHEST = {"minute": 59, "hour": 23, "day": 31, "month": 12, "second": 59}
_DAYS_OF_WEEK = 7
_WEEKS = {"1-7": 1, "8-14": 2, "15-21": 3, "22-28": 4, "29-31": 5}
"""The days of the month in which each weekday occurs for the nth time."""
_NONE = "no cron expression means"


def to_cron(text: str) -> str:
    """Convert a calendar expression to a cron expression.

    Raises:
        ValueError: the text is not a calendar expression, or cron cannot express it.
    """
    text = text.strip()
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    match = _EVENT.fullmatch(text)
    if not text or match is None or (match["year"] or "*") != "*":
        raise ValueError(f"{_NONE} {text}")
    at_midnight = match["hour"] is None
    parts = {
        name: "0" if at_midnight and name in ("minute", "hour") else _field(name, match[name] or "*")
        for name in ("minute", "hour", "day", "month")
    }
    week = _week(match["days"]) if match["days"] else "*"
    parts["day"], week = _day_and_week(parts["day"], match["from_end"], week)
    second = _field("second", match["second"] or "0")
    return " ".join(([] if second == "0" else [second]) + [*parts.values(), week])


def _day_and_week(day: str, from_end: str | None, week: str) -> tuple[str, str]:
    """Return the fields for the day and the weekday. In cron one of them must match, in systemd both."""
    weekdays, parts = week.split(","), day.split(",")
    if from_end is None:
        if "*" in (week, day):
            return day, week
        if all(part in _WEEKS for part in parts):
            return "*", ",".join(f"{weekday}#{_WEEKS[part]}" for part in parts for weekday in weekdays)
    elif week == "*" and "/" not in from_end:
        return "L", week
    elif week != "*" and "/" in from_end:
        return "*", ",".join(f"L{weekday}" for weekday in weekdays)
    raise ValueError(f"{_NONE} the weekdays {week} within the days {day}{from_end or ''}")


def _field(name: str, text: str) -> str:
    parts = []
    for part in text.split(","):
        if not _PART.fullmatch(part):
            raise ValueError(f"{_NONE} {text}")
        part = part.replace("..", "-")
        # 0/15 means every 15th value from 0 to the highest one.
        part = (
            _SECOND_RANGE.sub(lambda match: f"{int(match[1])}-{_HIGHEST[name]}/{match[2]}", part)
            if "-" not in part
            else part
        )
        parts.append(re.sub(r"\d+", lambda match: str(int(match[0])), part))
    return ",".join(parts)


def _week(text: str) -> str:
    days: list[int] = []
    for part in text.strip(",").split(","):
        first, _, last = part.replace("..", "-").partition("-")
        start = _day(first)
        end = _day(last) if last else start
        days += [(start + n) % _DAYS_OF_WEEK for n in range((end - start) % _DAYS_OF_WEEK + 1)]
    return ",".join(map(str, sorted(set(days)))) if len(set(days)) < _DAYS_OF_WEEK else "*"


def _day(text: str) -> int:
    if text[:3].lower() not in _DAYS:
        raise ValueError(f"{_NONE} {text}")
    return _DAYS.index(text[:3].lower())


Sections = dict[str, dict[str, list[str]]]
"""The values of each key in each section. An empty value has removed all earlier values of its key."""

_SERVICE, _TIMER = ".service", ".timer"
_PREFIXES = "@-:+!|"
_WHOLE = re.compile(r"\$[A-Za-z_][A-Za-z0-9_]*")
_REPLACED = re.compile(r"\$\$|\$\{[A-Za-z_][A-Za-z0-9_]*\}|^\$[A-Za-z_][A-Za-z0-9_]*$")
"""The variables that systemd replaces in an argument of a command, and the escape for a dollar sign."""
_WORD = re.compile(r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|\\.|[^\s"'\\])+""")
_QUOTED = re.compile(r"""(["'])((?:(?!\1)[^\\]|\\.)*)\1|((?:[^"'\\]|\\.)+)""")
_ESCAPE = re.compile(r"""\\(?:([abfnrtvs\\"'])|x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([0-7]{3}))""")
_ESCAPED = dict(zip("abfnrtvs", "\a\b\f\n\r\t\v ", strict=True))
_SPECIFIER = re.compile(r"%[%a-zA-Z]")
_DIRECTORIES = {"%t": "/run", "%S": "/var/lib", "%C": "/var/cache", "%L": "/var/log", "%E": "/etc", "%T": "/tmp"}  # noqa: S108 - what systemd means by it
"""The specifiers for directories, with their values in the system manager (systemd.unit(5))."""
_RESTART = {"always": "always", "no": "never", "on-success": "always"}
_RESTART_MEANS_THE_SAME = ("always", "no", "on-failure")
_BOOT = ("default", "multi-user", "graphical", "basic", "sysinit", "local-fs")
_AT_BOOT = frozenset(f"{name}.target" for name in _BOOT)
"""Targets that each boot reaches."""
_TIME = "90s"
"""The default time limit for a start or a stop (DefaultTimeoutStartSec=, DefaultTimeoutStopSec=)."""
_NOTIFY = ("notify", "notify-reload")
_RESTARTING = frozenset(
    {
        "RestartSec",
        "RestartSteps",
        "RestartMaxDelaySec",
        "StartLimitBurst",
        "StartLimitIntervalSec",
        "StartLimitInterval",
    }
)
_TO_THE_LOG = frozenset({"journal", "inherit", "syslog", "kmsg", "journal+console", "syslog+console", "kmsg+console"})
# fmt: off
_DROPPED = frozenset({
    "Type", "Restart", "ExecStart", "ExecStartPre", "Group", "Environment", "EnvironmentFile",
    "Description", "SyslogIdentifier", "PIDFile", "RemainAfterExit", "KillMode", "NotifyAccess", "TimeoutStartSec",
    "TimeoutStopSec", "TimeoutSec", "WatchdogSec",
})
# fmt: on
"""Keys that are handled elsewhere or have no meaning for Ringward."""


def read(files: Mapping[str, str], outcome: Outcome) -> None:
    """Add services to the outcome. Services with a timer and oneshot services become tasks.

    Args:
        files: The content of the unit files by path.
        outcome: The outcome to which the units are added.

    Raises:
        UnreadableFile: a file is not a unit.
    """
    units = _units(files, outcome)
    timers: dict[str, tuple[str, Sections]] = {}
    for name, (path, sections) in units.items():
        if name.endswith(_TIMER):
            service = _last(sections, "Timer", "Unit") or name.removesuffix(_TIMER) + _SERVICE
            if service in timers:
                outcome.note(path, f"{service} has another timer already: this one is left out")
                continue
            timers[service] = path, sections
            if service not in units:
                outcome.note(path, f"its service {service} is not among the given files")
        elif not name.endswith(_SERVICE):
            outcome.note(path, "only services and timers are converted")
    for name, (path, sections) in units.items():
        if name.endswith(_SERVICE):
            try:
                _service(name.removesuffix(_SERVICE), path, sections, timers.get(name), outcome)
            except ValueError as err:  # an unterminated quote
                outcome.note(path, f"is not converted: {err}")


def _units(files: Mapping[str, str], outcome: Outcome) -> dict[str, tuple[str, Sections]]:
    """Return the path and the sections of each unit by its name."""
    units: dict[str, tuple[str, Sections]] = {}
    for path, text in files.items():
        sections = _parsed(path, text, outcome)
        if "@." in (name := os.path.basename(path)):
            outcome.note(path, "is a template: import a copy of it, named NAME@INSTANCE.service, for each instance")
        elif name in units:
            outcome.note(path, f"is left out: {units[name][0]} has the same name")
        else:
            units[name] = path, sections
    return units


def _parsed(path: str, text: str, outcome: Outcome) -> Sections:
    sections: Sections = {}
    current: dict[str, list[str]] | None = None
    for line in _joined(text):
        if not line:
            continue
        if line[0] == "[" and line[-1] == "]":
            current = sections.setdefault(line[1:-1], {})
            continue
        key, equals, value = line.partition("=")
        if not equals or current is None:
            raise UnreadableFile(f"{path}: is not a unit of systemd: {line}")
        if value.strip():
            value = _specified(value.strip(), os.path.basename(path))
            if left := sorted(set(_SPECIFIER.findall(value)) - {"%%"}):
                outcome.note(path, f"specifiers are not replaced ({', '.join(left)}): {key.strip()}={value}")
            value = value if key.startswith("Exec") else value.replace("%%", "%")
            current.setdefault(key.strip(), []).append(value)
        else:
            current.pop(key.strip(), None)
    return sections


def _joined(text: str) -> Iterator[str]:
    """Yield the lines of a file, with continued lines joined and without comments, even inside continued lines."""
    continued = ""
    for line in text.splitlines():
        if line.lstrip().startswith(("#", ";")):
            continue
        if line.endswith("\\"):
            continued += line[:-1] + " "
            continue
        yield (continued + line).strip()
        continued = ""
    yield continued.strip()


def _words(text: str) -> list[str]:
    """Split a text into words, which keep their quotes and escapes.

    Raises:
        ValueError: a quote is unterminated.
    """
    if _WORD.sub("", text).strip():
        raise ValueError("No closing quotation")
    return _WORD.findall(text)


def _unquoted(word: str) -> str:
    return "".join(_ESCAPE.sub(_unescaped, match[2] or match[3] or "") for match in _QUOTED.finditer(word))


def _unescaped(match: re.Match[str]) -> str:
    if letter := match[1]:
        return _ESCAPED.get(letter, letter)
    return chr(int(match[5], 8) if match[5] else int(match[2] or match[3] or match[4], 16))


def _specified(value: str, name: str) -> str:
    """Replace the specifiers for the unit's name and for well-known directories; %% stays unchanged."""
    stem = name.rpartition(".")[0]
    prefix, _, instance = stem.partition("@")
    specifiers = _DIRECTORIES | {"%n": name, "%N": stem, "%p": prefix, "%i": instance, "%I": instance.replace("-", "/")}
    return _SPECIFIER.sub(lambda match: specifiers.get(match[0], match[0]), value)


def _last(sections: Sections, section: str, key: str) -> str | None:
    return sections.get(section, {}).get(key, [None])[-1]


def _service(name: str, path: str, sections: Sections, timer: tuple[str, Sections] | None, outcome: Outcome) -> None:
    settings = sections.get("Service", {})
    kind = (settings.get("Type") or ["simple"])[-1]
    is_task = timer is not None or kind == "oneshot"
    if not settings.get("ExecStart"):
        outcome.note(path, "has no ExecStart")
        return
    if kind == "forking":
        outcome.note(path, "Type=forking: let the program stay in the foreground")
    keys: dict[str, Any] = {"run": _run(settings, path, outcome), "working_dir": "/"}
    keys["description"] = _last(sections, "Unit", "Description")
    keys["limits"] = {}
    note = functools.partial(outcome.note, path)
    for key, values in settings.items():
        last = [" ".join(values)] if key == "SuccessExitStatus" else values[-1:]
        for value in last if key in _KEYS or key in _LIMITS else values:
            _carry(key, value, keys, note, kind=kind, is_task=is_task)
    if settings.get("Group"):
        keys["user"] = f"{keys.get('user', 'root')}:{settings['Group'][-1]}"
    _environment(settings, keys, path, outcome)
    _stopping(settings, keys, path, outcome)
    restart = (settings.get("Restart") or ["no"])[-1]
    if is_task:
        _schedule(path, sections, timer, keys, outcome)
        if restart != "no":
            outcome.note(path, f"Restart={restart} is not converted; set retry_attempts")
    else:
        if restart not in _RESTART_MEANS_THE_SAME:
            outcome.note(path, f"Restart={restart}: is {_RESTART.get(restart, 'on_failure')} here")
        keys["restart"] = _RESTART.get(restart, "on_failure")
        _supervision(settings, sections, kind, keys, path, outcome)
        if not _is_started_at_boot(sections):
            outcome.advise(path, "no boot target wants it, but it starts with the daemon: else set autostart = false")
    _others(sections, path, outcome)
    outcome.add("tasks" if is_task else "services", name, keys, path, path, *([timer[0]] if timer else []))


def _stopping(settings: Mapping[str, list[str]], keys: dict[str, Any], path: str, outcome: Outcome) -> None:
    """Carry over how the service is stopped."""
    mode = (settings.get("KillMode") or ["control-group"])[-1]
    if mode in ("process", "mixed"):
        keys["stop_target"] = "main"
    if mode == "process":
        keys["leftovers"] = "leave"
        outcome.note(path, "KillMode=process: Ringward kills remaining processes after graceful_stop")
    elif mode == "none":
        outcome.note(path, "KillMode=none is not converted: a stop ends all processes here")
    wait = (settings.get("TimeoutStopSec") or settings.get("TimeoutSec") or [""])[-1]
    if not wait:
        keys["graceful_stop"] = _TIME
    else:
        try:
            keys["graceful_stop"] = endless_span(wait)
        except ValueError:
            outcome.note(path, f"TimeoutStopSec={wait} is not converted")
    outcome.stops_within(path, keys.get("graceful_stop"), explicit=bool(wait))


def _supervision(
    settings: Mapping[str, list[str]], sections: Sections, kind: str, keys: dict[str, Any], path: str, outcome: Outcome
) -> None:
    """Carry over the restart limits of a service, and its readiness and liveness."""

    def value(key: str) -> str | None:
        return _last(sections, "Unit", key) or _last(sections, "Service", key)

    if keys["restart"] != "never":
        try:
            keys |= restarts(value)
        except ValueError:
            shown = " ".join(f"{key}={value(key)}" for key in sorted(_RESTARTING) if value(key))
            outcome.note(path, f"{shown} is not converted")
    start, watchdog = value("TimeoutStartSec") or value("TimeoutSec"), value("WatchdogSec")
    try:
        if kind in _NOTIFY:
            keys["ready"] = {"notify": True, "timeout": endless_span(start) if start else _TIME}
        elif start and settings.get("ExecStartPre"):
            outcome.note(path, f"TimeoutStartSec={start} is not converted: it would also apply to ExecStartPre")
        if watchdog and watchdog != "infinity" and span(watchdog):
            keys["live"] = {"notify": True, "every": seconds(span(watchdog)), "failures": 1}
        if (access := value("NotifyAccess")) not in (None, "all") and ("ready" in keys or "live" in keys):
            outcome.note(path, f"NotifyAccess={access}: notifications of all processes of the service count here")
    except ValueError:
        outcome.note(path, f"TimeoutStartSec={start} WatchdogSec={watchdog} is not converted")


def _run(settings: Mapping[str, list[str]], path: str, outcome: Outcome) -> list[str] | str:
    """Return all commands of a service as one, which is a list of arguments if it needs no shell."""
    first, then = (
        [_command(line, path, outcome) for lines in settings.get(key, []) for line in _separate(lines)]
        for key in ("ExecStartPre", "ExecStart")
    )
    commands = [*first, *then]
    only = commands[0]
    if len(commands) == 1 and not (only.fails_alone or only.has_variables):
        return only.words
    shown = [f"{command.shown()} || :" if command.fails_alone else command.shown() for command in commands]
    if not commands[-1].fails_alone:
        shown[-1] = f"exec {shown[-1]}"
    if codes := _other_successes(settings):
        # After such a code of ExecStart the next command runs; one of ExecStartPre is a failure nevertheless.
        failure = next(code for code in range(1, 256) if code not in codes)
        success = f"case $? in {'|'.join(map(str, codes))}) ;; *) exit $? ;; esac"
        for at, command in enumerate(commands[:-1]):
            if not command.fails_alone:
                shown[at] += f" || exit {failure}" if at < len(first) else f" || {success}"
    # systemd splits values, but expands no patterns
    plain = "set -f; " if any(command.splits for command in commands) else ""
    return plain + "\n".join(shown)  # with sh -e, the first command that fails ends the run


def _other_successes(settings: Mapping[str, list[str]]) -> list[int]:
    """Return the exit codes other than 0 with which a command of ``ExecStart`` succeeds."""
    try:
        return statuses(" ".join(settings.get("SuccessExitStatus", [])))[1:]
    except ValueError:  # it is not converted
        return []


@dataclass(frozen=True)
class _Command:
    words: list[str]
    fails_alone: bool
    """Whether a failure of the command is ignored (prefix -)."""
    literal: bool
    """Whether variables in the command are not replaced (prefix :)."""

    @property
    def has_variables(self) -> bool:
        return not self.literal and any(_REPLACED.search(word) for word in self.words)

    @property
    def splits(self) -> bool:
        """Return whether the value of a variable is split into several arguments."""
        return not self.literal and any(_WHOLE.fullmatch(word) for word in self.words)

    def shown(self) -> str:
        """Return the command as shell code."""
        if self.literal:
            return shlex.join(self.words)
        # systemd also splits the value of a variable that is an argument of its own.
        return " ".join(
            word if _WHOLE.fullmatch(word) else for_shell([word], _REPLACED, _replaced) for word in self.words
        )


def _separate(line: str) -> Iterator[str]:
    """Yield the commands of a line, which are separated by semicolons that are words of their own."""
    words: list[str] = []
    for word in (*_words(line), ";"):
        if word != ";":
            words.append(word)
        elif words:
            yield " ".join(words)
            words = []


def _command(line: str, path: str, outcome: Outcome) -> _Command:
    bare = line.lstrip(_PREFIXES)
    marks = line[: len(line) - len(bare)]
    if "@" in marks:
        outcome.note(path, f"the second word of {bare} stays an argument")
    if set("+!") & set(marks):
        outcome.note(path, f"{bare} runs with full privileges under systemd, and as the unit's user here")
    words = [";" if word == r"\;" else _unquoted(word) for word in _words(bare.replace("%%", "%"))]
    return _Command(words, "-" in marks, ":" in marks)


def _replaced(match: re.Match[str]) -> str:
    return r"\$" if match[0] == "$$" else match[0]


def _carry(
    key: str, value: str, keys: dict[str, Any], note: Callable[[str], None], *, kind: str, is_task: bool
) -> None:
    try:
        if key == "WorkingDirectory" and value.startswith("-/"):
            note(f"{key}={value}: must exist here")
        if key in _LIMITS:
            limit, parse = _LIMITS[key]
            value = _hard_limit(key, value, note) if key.startswith("Limit") else value
            keys["limits"][limit] = parse(value)
        elif key in _KEYS:
            target, parse = _KEYS[key]
            keys[target] = parse(value)
        elif key in ("TimeoutStartSec", "TimeoutSec") if kind == "oneshot" else key == "RuntimeMaxSec":
            if (timeout := endless_span(value)) != FOR_EVER:
                keys["timeout"] = timeout
        elif key in ("StandardOutput", "StandardError") and value in _TO_THE_LOG:
            pass
        elif key not in _DROPPED and not (key in _RESTARTING and not is_task):
            note(f"{key}={value} is not converted")
    except (ValueError, KeyError):
        note(f"{key}={value} is not converted")


def _environment(settings: Mapping[str, list[str]], keys: dict[str, Any], path: str, outcome: Outcome) -> None:
    words = [_unquoted(word) for line in settings.get("Environment", []) for word in _words(line)]
    pairs = [word.partition("=") for word in words]
    keys["env"] = {name: value for name, equals, value in pairs if name and equals}
    files: list[str] = []
    for name in settings.get("EnvironmentFile", []):
        if name.startswith("-") and not os.path.exists(name[1:]):
            outcome.note(path, f"EnvironmentFile={name}: no such file, so it is left out")
        else:
            files.append(name.removeprefix("-"))
    keys["env_file"] = files
    for file in files if keys["env"] else ():  # under systemd they override Environment
        try:
            with open(file, encoding="utf-8") as opened:
                overridden = parse_variables(opened.read())
        except (OSError, UnicodeDecodeError, InvalidValue):
            outcome.note(path, f"EnvironmentFile={file} overrides Environment under systemd, but not here")
        else:
            keys["env"] = {name: value for name, value in keys["env"].items() if name not in overridden}


def _is_started_at_boot(sections: Sections) -> bool:
    """Return whether a boot target wants the unit."""
    install = sections.get("Install", {})
    wanted_by = [name for key in ("WantedBy", "RequiredBy") for line in install.get(key, []) for name in line.split()]
    return not _AT_BOOT.isdisjoint(wanted_by)


def _schedule(
    path: str, sections: Sections, timer: tuple[str, Sections] | None, keys: dict[str, Any], outcome: Outcome
) -> None:
    if timer is None:
        if _is_started_at_boot(sections):
            keys["run_on_start"] = "boot"
        else:
            outcome.note(path, "is a task without a schedule: set one, or run it by hand")
        return
    path, sections = timer
    crons: list[str] = []
    zones = {_zone(value) for value in sections.get("Timer", {}).get("OnCalendar", [])}
    if len(zones) > 1:
        outcome.note(path, "its times are in several time zones; a task has one: create a task for each")
    for key, values in sections.get("Timer", {}).items():
        for value in values:
            try:
                _time(key, value, keys, crons)
            except ValueError:
                outcome.note(path, f"{key}={value} is not converted")
            if key in ("OnBootSec", "OnStartupSec"):
                outcome.note(path, f"{key}={value}: it then runs at once, without that delay")
    if crons and "every" in keys:
        outcome.note(path, f"a task has OnCalendar or an interval, not both: {keys.pop('every')} is left out")
    keys["cron"] = crons
    if (_last(sections, "Timer", "Persistent") or "").lower() not in ("true", "yes", "on", "1", "t", "y"):
        keys["catch_up"] = 0
        if crons:
            outcome.advise(path, "systemd also runs it after a suspend at its time; if that matters, remove catch_up")
    elif crons:
        keys["catch_up_window"] = FOR_EVER


def _zone(calendar: str) -> str:
    last = calendar.rpartition(" ")[2]
    return last if is_zone(last) else ""


def _time(key: str, value: str, keys: dict[str, Any], crons: list[str]) -> None:
    """Carry over one setting of a timer.

    Raises:
        ValueError: the setting cannot be converted.
    """
    if key == "OnCalendar":
        words = value.rsplit(maxsplit=1)
        if len(words) == 2 and is_zone(words[1]):
            value, keys["timezone"] = words
        crons.append(to_cron(value))
    elif key in ("OnUnitActiveSec", "OnUnitInactiveSec") and "every" not in keys:
        keys["every"] = seconds(span(value))
    elif key == "RandomizedDelaySec":
        keys["jitter"] = seconds(span(value))
    elif key in ("OnBootSec", "OnStartupSec"):
        keys["run_on_start"] = "boot" if key == "OnBootSec" else True
    elif key not in ("Persistent", "Unit", "AccuracySec"):
        raise ValueError(key)


def _others(sections: Sections, path: str, outcome: Outcome) -> None:
    """Report conditions for the start, and references to other units, which users must convert themselves."""
    for key, values in sections.get("Unit", {}).items():
        if key.startswith(("Condition", "Assert")) or key in ("Conflicts", "OnSuccess", "Upholds", "StartLimitAction"):
            for value in values:
                outcome.note(path, f"{key}={value} is not converted")
    for value in " ".join(sections.get("Unit", {}).get("After", [])).split():
        if value.endswith(_SERVICE):
            outcome.advise(path, f"After={value}: set depends_on if necessary")
    for key in ("Requires", "Wants", "BindsTo", "Requisite", "PartOf", "OnFailure"):
        for value in sections.get("Unit", {}).get(key, []):
            outcome.note(path, f"{key}={value}: set depends_on or notify_on_failure if necessary")


def _directory(text: str) -> str:
    directory = text.removeprefix("-")
    if not directory.startswith("/"):
        raise ValueError(text)
    return directory


def _amount(text: str) -> str:
    """Return a size of the configuration. In both programs, K is 1024."""
    match = re.fullmatch(r"(\d+)([KMGT]?)", text)
    if match is None:
        raise ValueError(text)
    return match[1] + (match[2].lower() + "b" if match[2] else "b")


def _cores(text: str) -> float:
    return int(text.removesuffix("%")) / 100


def _unlimited(text: str) -> str:
    return "unlimited" if text == "infinity" else _amount(text)


def _hard_limit(key: str, text: str, note: Callable[[str], None]) -> str:
    """Return the hard limit of a pair, which a program can reach by itself; the soft one has no equivalent."""
    soft, colon, hard = text.partition(":")
    if colon and soft != hard:
        note(f"{key}={text}: both limits are {hard} here")
    return hard or soft


_KEYS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "WorkingDirectory": ("working_dir", _directory),
    "User": ("user", str),
    "UMask": ("umask", lambda text: f"{int(text, 8):03o}"),
    "KillSignal": ("stop_signal", signal_name),
    "SuccessExitStatus": ("exit_codes", statuses),
}
_LIMITS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "Nice": ("nice", int),
    "OOMScoreAdjust": ("oom_score_adj", int),
    "LimitNOFILE": ("nofile", int),
    "LimitNPROC": ("nproc", int),
    "LimitCORE": ("core", _unlimited),
    "LimitMEMLOCK": ("memlock", _unlimited),
    "LimitAS": ("address_space", _unlimited),
    "LimitFSIZE": ("file_size", _unlimited),
    "LimitSTACK": ("stack", _unlimited),
    "LimitCPU": ("cpu_time", lambda text: seconds(span(text))),
    "MemoryMax": ("memory", _amount),
    "MemoryHigh": ("memory_high", _amount),
    "MemorySwapMax": ("swap", _amount),
    "TasksMax": ("pids", int),
    "CPUQuota": ("cpu", _cores),
    "CPUWeight": ("cpu_weight", int),
    "IOWeight": ("io_weight", int),
}
