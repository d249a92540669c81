"""Warnings about a valid configuration: resources that runs need and this host lacks, and retention that loses runs.

A missing user, directory or program is not an error, because a package or a mount may provide it before the run.
"""

import contextlib
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, combinations, islice, takewhile

from msgspec import Struct

from supervisor.config.files.reading import Source, read_source
from supervisor.config.model import Config, Service, Task
from supervisor.config.problems import Problem, quoted
from supervisor.config.value_records import Command, HostCheck
from supervisor.host.cgroups import LIMITS, path_of
from supervisor.host.detached_thread import DetachedThread
from supervisor.host.shared_memory import file_system_types


def available_controllers(types: Mapping[str, str] | None = None, proc: str = "/proc") -> frozenset[str]:
    """Return the cgroup controllers that a daemon of this user can give to its runs.

    A daemon of root can use all controllers of the hierarchy. A daemon of another user can use the controllers of this
    process's cgroup, if the cgroup is writable.

    Args:
        types: type of the file system at each mount point; None to read them from the host.
        proc: where /proc is mounted.
    """
    mounts = file_system_types() if types is None else types
    mount = next((mount_point for mount_point, kind in mounts.items() if kind == "cgroup2"), None)
    if mount is None:
        return frozenset()
    directory = mount
    try:
        if os.geteuid() != 0:
            directory += path_of("self", proc).rstrip("/")
        if not os.access(directory, os.W_OK):
            return frozenset()
        with open(f"{directory}/cgroup.controllers", encoding="ascii") as file:
            return frozenset(file.read().split())
    except OSError:  # ENOENT: the cgroup is outside our cgroup namespace; EACCES
        return frozenset()


Unit = Task | Service

_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./+-@:,")
"""Characters without a special meaning to a shell."""
_SAMPLE = 2000
"""Maximum number of instants from which the interval of a schedule is computed."""
_SPAN_MS = 366 * 86_400_000
"""The period from which these instants are taken, unless ``keep_for`` is longer."""
_COMPARED = 1000
"""Number of the next times of each expression that are compared."""
_PATIENCE_S = 1.0
"""Time limit for a name service or a mount to report an absence."""


class _Advice(Struct, frozen=True):
    """A warning about a key of a task or service; the key may be set in [defaults]."""

    unit: Unit
    key: str
    message: str
    remedy: str


def missing(config: Config, environ: Mapping[str, str]) -> list[Problem]:
    """Return warnings about users, directories, programs, files, and controllers that this host lacks.

    Args:
        config: a valid configuration.
        environ: the daemon's environment, for ``PATH``.

    Raises:
        ConfigError: a file of the configuration has changed and is no longer valid.
    """
    there = available_controllers() if config.daemon.cgroups else frozenset[str]()
    return _with_positions(config, [*_missing(config, environ), *_not_applied(config, there), *_links(config)])


def _missing(config: Config, environ: Mapping[str, str]) -> Iterator[_Advice]:
    refusals: dict[str, str | None] = {}
    for unit in _units(config):
        if unit.launcher is not None:
            continue  # it runs elsewhere: on a remote host, in an image or in a cluster
        if unit.user is not None:
            if unit.user not in refusals:
                refusals[unit.user] = _refusal(unit.user)
            if (refusal := refusals[unit.user]) is not None:
                create = "create the user" if refusal.startswith("no such") else "run the daemon as root"
                yield _Advice(unit, "user", refusal, f"{create}, or its runs end as start_failed")
        if unit.working_dir is not None and _is_missing(unit.working_dir, directory=True):
            message = f"no such directory: {unit.working_dir}"
            yield _Advice(unit, "working_dir", message, "create it, or its runs end as start_failed")
            continue
        commands = {"run": unit.run, "only_if": unit.only_if if isinstance(unit, Task) else None}
        programs = (_missing_program(unit, key, command, environ) for key, command in commands.items())
        for key, name in dict.fromkeys(filter(None, programs)):
            where = "" if "/" in name else f" in PATH ({_path(unit, environ)})"
            remedy = "install it, or write its full path"
            if len(name.split()) > 1:
                remedy = f"write each word as an item of the list: [{', '.join(map(quoted, name.split()))}]"
            yield _Advice(unit, key, f"no such program: {name}{where}", remedy)


def _not_applied(config: Config, there: frozenset[str]) -> Iterator[_Advice]:
    for unit in _units(config):
        for name, (controller, _file) in LIMITS.items():
            if name in unit.limits and controller not in there and unit.launcher is None:
                message = f"limits.{name} is not applied: no cgroup with the {controller} controller is available"
                yield _Advice(unit, "limits", message, "ringward doctor shows the missing controllers")


def _links(config: Config) -> Iterator[_Advice]:
    for task in config.tasks.values():
        for path in filter(os.path.islink, task.on_change):
            if not os.readlink(path).startswith("..data/"):  # as Kubernetes mounts a file: its updates start runs
                message = f"{path} is a symbolic link, and writes to its target start no runs"
                yield _Advice(task, "on_change", message, "name the file that it leads to")


def advised(config: Config, environ: Mapping[str, str]) -> list[Problem]:
    """Return the warnings of :func:`missing`, :func:`cut_short` and :func:`odd_times` as of now.

    Raises:
        ConfigError: a file of the configuration has changed and is no longer valid.
    """
    now_ms = time.time_ns() // 1_000_000
    return [*missing(config, environ), *cut_short(config, now_ms), *odd_times(config, now_ms)]


def odd_times(config: Config, now_ms: int) -> list[Problem]:
    """Return warnings about schedules that windows always skip, and about times with several values of parameters.

    Args:
        config: a valid configuration.
        now_ms: the time after which to look at instants, in milliseconds since the epoch.

    Raises:
        ConfigError: a file of the configuration has changed and is no longer valid.
    """
    return _with_positions(config, [*_shared_times(config, now_ms), *_without_times(config, now_ms)])


def _without_times(config: Config, now_ms: int) -> Iterator[_Advice]:
    from supervisor.config.window_times import units_of_windows
    from supervisor.schedule.instants import Schedule
    from supervisor.schedule.windows import Windows

    windows = Windows(config.windows.values(), units_of_windows(config))
    for name in windows.units():
        task = config.tasks.get(name)
        if task is None:
            continue
        schedule = Schedule(task)
        schedule.windows = windows.of(name)
        skipped = next(schedule.occurrences(now_ms), None)
        if skipped is not None and skipped.window and next(schedule.running(now_ms), None) is None:
            key = "cron" if task.crons else "every" if task.every_ms is not None else "at"
            message = f"has no time outside of the window {skipped.window}, which skips them"
            yield _Advice(task, key, message, 'change it or the window, or set instants = "defer" there')


def _shared_times(config: Config, now_ms: int) -> Iterator[_Advice]:
    from supervisor.schedule.instants import Schedule

    for task in config.tasks.values():
        if len(set(task.cron_params)) < 2:
            continue
        schedule = Schedule(task)
        times = [{instant.at for instant in islice(cron.occurrences(now_ms), _COMPARED)} for cron in schedule.crons]
        for (first, later), (one, other) in zip(combinations(task.cron, 2), combinations(times, 2), strict=True):
            if first.params != later.params and (shared := one & other):
                message = f'"{first.expression}" and "{later.expression}" have {schedule.local(min(shared))} in common'
                yield _Advice(task, "cron", message, "the run gets the parameters of the first")


def advised_soon(config: Config, environ: Mapping[str, str]) -> list[Problem]:
    """Return the warnings of :func:`advised`; none if they take longer than a second, or if a file just changed.

    A name service or a network file system may not answer.
    """
    from supervisor.config.problems import ConfigError

    problems: list[Problem] = []

    def examine() -> None:
        # The files may have been edited since the configuration was read.
        with contextlib.suppress(ConfigError, AttributeError, TypeError):
            problems.extend(advised(config, environ))

    try:
        return problems if DetachedThread(examine).wait(_PATIENCE_S) else []
    except RuntimeError:  # the limit of threads is reached
        return []


def cut_short(config: Config, now_ms: int) -> list[Problem]:
    """Return warnings about tasks that set ``keep_for``, but whose ``keep_runs`` removes runs earlier.

    Args:
        config: a valid configuration.
        now_ms: the time after which to look at instants, in milliseconds since the epoch.

    Raises:
        ConfigError: a file of the configuration has changed and is no longer valid.
    """
    main, *included = _sources(config)
    tables = [source.data.get("tasks", {}) for source in (main, *included)]
    names = {name for tasks in tables for name, keys in tasks.items() if "keep_for" in keys}
    for_all = "keep_for" in main.data.get("defaults", {})
    chosen = [task for task in config.tasks.values() if for_all or task.name in names]
    return _with_positions(config, list(_cut_short(chosen, now_ms)))


def _cut_short(tasks: Sequence[Task], now_ms: int) -> Iterator[_Advice]:
    from supervisor.config.value_types.durations import format_duration

    paces: dict[tuple[object, ...], float | None] = {}
    for task in tasks:
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
    """Return a span, rounded to days, hours, minutes or seconds: the largest unit that it has at least two of."""
    for unit_ms in (86_400_000, 3_600_000, 60_000):
        if span_ms >= 2 * unit_ms:
            return round(span_ms / unit_ms) * unit_ms
    return max(1000, round(span_ms / 1000) * 1000)


def _interval_ms(task: Task, now_ms: int, span_ms: int) -> float | None:
    """Return the mean time between instants of a schedule; None if there are not two within `span_ms`."""
    from supervisor.schedule.instants import Schedule

    if task.every_ms is not None:
        return task.every_ms
    occurrences = Schedule(task).occurrences(now_ms)
    first = next(occurrences, None)
    if first is None:
        return None
    near = takewhile(lambda instant: instant.at <= first.at + span_ms, chain([first], occurrences))
    instants = [instant.at for instant in islice(near, _SAMPLE) if instant.runs]
    return (instants[-1] - instants[0]) / (len(instants) - 1) if len(instants) > 1 else None


def _units(config: Config) -> Iterator[Unit]:
    yield from config.tasks.values()
    yield from config.services.values()


def _sources(config: Config) -> list[Source]:
    """Return the files of the configuration, its main file first."""
    return [read_source(config.path), *(read_source(path) for path in config.files if path != config.path)]


def _with_positions(config: Config, advices: list[_Advice]) -> list[Problem]:
    """Return the warnings with file and line."""
    if not advices:
        return []
    main, *included = _sources(config)
    defaults = main.data.get("defaults", {})
    sources = {
        (table, name): source
        for source in (main, *included)
        for table in ("tasks", "services")
        for name in source.data.get(table, {})
    }
    problems = []
    for advice in advices:
        path = (f"{advice.unit.kind}s", advice.unit.name)
        source = sources.get(path, main)
        if advice.key in defaults and advice.key not in source.data.get(path[0], {}).get(path[1], {}):
            message = f"{advice.message} (of {advice.unit.kind} {advice.unit.name})"
            problems.append(main.problem(("defaults", advice.key), message, advice.remedy))
        else:
            problems.append(source.problem((*path, advice.key), advice.message, advice.remedy))
    return problems


def _refusal(user: str) -> str | None:
    """Return the reason why nothing can run as `user`; None if there is none."""
    from supervisor.host.unix_accounts import NoSuchAccount, resolve

    try:
        resolve(user)
    except NoSuchAccount as err:
        return str(err)
    except OSError:  # the name service does not answer, which may be temporary
        return None
    return None


def _is_missing(path: str, *, directory: bool = False) -> bool:
    """Return whether a path does not exist or has another type; a path that cannot be examined is accepted."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:  # EACCES: the run's user may have the permission
        return False
    return os.path.isdir(path) != directory


def _missing_program(
    unit: Unit, key: str, command: Command | HostCheck | None, environ: Mapping[str, str]
) -> tuple[str, str] | None:
    """Return the key and name of the program of a command of the unit if it does not exist, else None."""
    if command is None or isinstance(command, HostCheck):
        return None
    if isinstance(command, str):
        if _is_missing(unit.shell):
            return "shell", unit.shell
        words = command.split(maxsplit=1)
        first = words[0] if words else ""
        # Only an absolute path is certainly a program: other words may be builtins, functions or assignments.
        return (key, first) if first.startswith("/") and _PLAIN.issuperset(first) and _is_missing(first) else None
    program = command[0]
    if "/" in program:
        return (key, program) if _is_missing(os.path.join(unit.working_dir or os.getcwd(), program)) else None
    if (program == "ringward" and unit.may) or shutil.which(program, path=_path(unit, environ)):
        return None
    return None if _hidden(unit, environ) else (key, program)


def _path(unit: Unit, environ: Mapping[str, str]) -> str:
    """Return the PATH in which the program of a unit is searched."""
    from supervisor.host.unix_accounts import CLEAN_PATH

    return unit.env.get("PATH") or (CLEAN_PATH if unit.clean_env else environ.get("PATH", os.defpath))


def _hidden(unit: Unit, environ: Mapping[str, str]) -> bool:
    """Return whether a directory of the unit's PATH is not readable, so that the program may be there."""
    return any(
        os.path.isdir(word) and not os.access(word, os.R_OK | os.X_OK)
        for word in _path(unit, environ).split(os.pathsep)
    )
