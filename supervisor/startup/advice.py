"""Warnings about a valid configuration: missing features of this host that runs need, and retention that loses runs.

A missing user, directory or program is no error: a package or a mount may bring it before the run.
"""

import contextlib
import os
import shutil
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice, takewhile

from supervisor.config.files.reading import read_source
from supervisor.config.model import Config, Service, Task
from supervisor.config.problems import Problem
from supervisor.host.shared_memory import file_system_types

BY_CGROUP = ("memory", "cpu")
"""The limits of a run that only a controller of that name applies."""
_OWN_CGROUP = "/proc/self/cgroup"


def available_controllers(types: Mapping[str, str] | None = None, own: str = _OWN_CGROUP) -> frozenset[str]:
    """Return the controllers that a daemon of this user can give to its runs.

    A daemon of root gets all controllers of the hierarchy, from its service manager or by itself. Another user gets the
    controllers of this process's cgroup, if the cgroup is writable.

    Args:
        types: of the file system at each mount point; None: as they are.
        own: the file that names our cgroups.
    """
    found = file_system_types() if types is None else types
    mount = next((place for place, kind in found.items() if kind == "cgroup2"), None)
    if mount is None:
        return frozenset()
    directory = mount
    try:
        if os.geteuid() != 0:
            with open(own, encoding="ascii", errors="replace") as file:
                directory += next((line[3:].strip() for line in file if line.startswith("0::")), "/").rstrip("/")
        if not os.access(directory, os.W_OK):
            return frozenset()
        with open(f"{directory}/cgroup.controllers", encoding="ascii") as file:
            return frozenset(file.read().split())
    except OSError:  # ENOENT: out of our namespace; EACCES
        return frozenset()


Unit = Task | Service

_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./+-@:,")
"""Characters that a shell takes as they are."""
_SAMPLE = 2000
"""Most instants from which the interval of a schedule is computed."""
_SPAN_MS = 366 * 86_400_000
"""Time that is covered by these instants, unless ``keep_for`` is longer."""


@dataclass(frozen=True)
class _Advice:
    """A warning about a key of a task or service, which may come from [defaults]."""

    unit: Unit
    key: str
    message: str
    remedy: str


def missing(config: Config, environ: Mapping[str, str]) -> list[Problem]:
    """Warn about users, directories, programs and controllers for limits that do not exist on this host.

    Args:
        config: a valid configuration.
        environ: the daemon's, for ``PATH``.

    Raises:
        ConfigError: a file of the configuration has changed and is not valid any more.
    """
    there = available_controllers() if config.daemon.cgroups else frozenset[str]()
    return _placed(config, [*_missing(config, environ), *_not_applied(config, there)])


def _missing(config: Config, environ: Mapping[str, str]) -> Iterator[_Advice]:
    refusals: dict[str, str | None] = {}
    for unit in _units(config):
        if unit.launcher is not None:
            continue  # its host, image or cluster has users, directories and programs of its own
        if unit.user is not None:
            if unit.user not in refusals:
                refusals[unit.user] = _refusal(unit.user)
            if (refusal := refusals[unit.user]) is not None:
                yield _Advice(unit, "user", refusal, "create the user, or its runs end as start_failed")
        if unit.working_dir is not None and _is_missing(unit.working_dir, directory=True):
            message = f"no such directory: {unit.working_dir}"
            yield _Advice(unit, "working_dir", message, "create it, or its runs end as start_failed")
        elif (program := _missing_program(unit, environ)) is not None:
            key, name = program
            where = "" if "/" in name else f" in PATH ({_path(unit, environ)})"
            yield _Advice(unit, key, f"no such program: {name}{where}", "install it, or write its full path")


def _not_applied(config: Config, there: frozenset[str]) -> Iterator[_Advice]:
    for unit in _units(config):
        for name in BY_CGROUP:
            if name in unit.limits and name not in there and unit.launcher is None:
                message = f"limits.{name} is not applied: no cgroup with the {name} controller is available"
                yield _Advice(unit, "limits", message, "ringward doctor shows the missing controllers")


def missing_soon(config: Config, environ: Mapping[str, str], patience_s: float) -> list[Problem]:
    """As :func:`missing`; nothing if a name service or a mount does not answer in time, or a file has just changed."""
    from supervisor.config.problems import ConfigError

    found: list[Problem] = []

    def look() -> None:
        with contextlib.suppress(ConfigError):
            found.extend(missing(config, environ))

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    looking.join(patience_s)
    return [] if looking.is_alive() else found


def cut_short(config: Config, now_ms: int) -> list[Problem]:
    """Warn where ``keep_runs`` removes runs before the ``keep_for`` that is set has passed.

    Args:
        config: a valid configuration.
        now_ms: the time from which schedules are followed, in milliseconds since the epoch.

    Raises:
        ConfigError: a file of the configuration has changed and is not valid any more.
    """
    return _placed(config, list(_cut_short(config, now_ms)), only_set=True)


def _cut_short(config: Config, now_ms: int) -> Iterator[_Advice]:
    from supervisor.config.value_types.durations import format_duration

    paces: dict[tuple[object, ...], float | None] = {}
    for task in config.tasks.values():
        span_ms = max(task.keep_for_ms, _SPAN_MS)
        schedule = (task.crons, task.timezone, task.every_ms, task.dst_gap, task.dst_overlap, span_ms)
        if schedule not in paces:
            paces[schedule] = _interval_ms(task, now_ms, span_ms)
        interval_ms = paces[schedule]
        if interval_ms is None or task.keep_runs == 0 or task.keep_runs * interval_ms >= task.keep_for_ms:
            continue
        lasts = format_duration(_rounded(task.keep_runs * interval_ms))
        needed = int(task.keep_for_ms / interval_ms) + 1
        message = f"keep_runs = {task.keep_runs} covers only about {lasts} of this schedule"
        yield _Advice(task, "keep_for", message, f"for the whole time set keep_runs = {needed} or more")


def _rounded(span_ms: float) -> int:
    """Return a span in whole days, hours or minutes, whichever it has several of."""
    for unit_ms in (86_400_000, 3_600_000, 60_000):
        if span_ms >= 2 * unit_ms:
            return round(span_ms / unit_ms) * unit_ms
    return max(1000, round(span_ms / 1000) * 1000)


def _interval_ms(task: Task, now_ms: int, span_ms: int) -> float | None:
    """Return the mean time between two instants of a schedule; None: it has no two within `span_ms`."""
    from supervisor.schedule.instants import Schedule

    if task.every_ms is not None:
        return task.every_ms
    occurrences = Schedule(task).occurrences(now_ms)
    first = next(occurrences, None)
    if first is None:
        return None
    near = takewhile(lambda one: one.at <= first.at + span_ms, chain([first], occurrences))
    instants = [one.at for one in islice(near, _SAMPLE) if one.runs]
    return (instants[-1] - instants[0]) / (len(instants) - 1) if len(instants) > 1 else None


def _units(config: Config) -> Iterator[Unit]:
    yield from config.tasks.values()
    yield from config.services.values()


def _placed(config: Config, found: list[_Advice], *, only_set: bool = False) -> list[Problem]:
    """Return the warnings with file and line; `only_set`: without warnings about a key that is not set."""
    if not found:
        return []
    main = read_source(config.path)
    defaults = main.data.get("defaults", {})
    sources = {
        (table, name): source
        for source in (main, *(read_source(path) for path in config.files if path != config.path))
        for table in ("tasks", "services")
        for name in source.data.get(table, {})
    }
    problems = []
    for one in found:
        path = (f"{one.unit.kind}s", one.unit.name)
        source = sources.get(path, main)
        if one.key in defaults and one.key not in source.data.get(path[0], {}).get(path[1], {}):
            message = f"{one.message} (of {one.unit.kind} {one.unit.name})"
            problems.append(main.problem(("defaults", one.key), message, one.remedy))
        elif not only_set or one.key in source.data.get(path[0], {}).get(path[1], {}):
            problems.append(source.problem((*path, one.key), one.message, one.remedy))
    return problems


def _refusal(user: str) -> str | None:
    """Why nothing can be run as a user; None: it can."""
    from supervisor.host.users import NoSuchAccount, resolve

    try:
        resolve(user)
    except NoSuchAccount as err:
        return str(err)
    except OSError:  # the name service does not answer, which may pass
        return None
    return None


def _is_missing(path: str, *, directory: bool = False) -> bool:
    """Return whether a path does not exist or has another type; a path that cannot be examined is accepted."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:  # EACCES: the user of the run may be allowed to
        return False
    return os.path.isdir(path) != directory


def _missing_program(unit: Unit, environ: Mapping[str, str]) -> tuple[str, str] | None:
    """Key and name of a program that does not exist."""
    if isinstance(unit.run, str):
        if _is_missing(unit.shell):
            return "shell", unit.shell
        words = unit.run.split(maxsplit=1)
        first = words[0] if words else ""
        # Other words may be builtin commands, functions or assignments.
        return ("run", first) if first.startswith("/") and _PLAIN.issuperset(first) and _is_missing(first) else None
    program = unit.run[0]
    if "/" in program:
        return ("run", program) if _is_missing(os.path.join(unit.working_dir or os.getcwd(), program)) else None
    if (program == "ringward" and unit.may) or shutil.which(program, path=_path(unit, environ)):
        return None
    return None if _hidden(unit, environ) else ("run", program)


def _path(unit: Unit, environ: Mapping[str, str]) -> str:
    """Return where the program of a unit is looked for."""
    from supervisor.host.users import CLEAN_PATH

    return unit.env.get("PATH") or (CLEAN_PATH if unit.clean_env else environ.get("PATH", os.defpath))


def _hidden(unit: Unit, environ: Mapping[str, str]) -> bool:
    """Return whether a directory of PATH cannot be looked into."""
    return any(
        os.path.isdir(one) and not os.access(one, os.R_OK | os.X_OK) for one in _path(unit, environ).split(os.pathsep)
    )
