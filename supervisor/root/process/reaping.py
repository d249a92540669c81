"""The end of a main process: its status and its usage."""

import os
import time
from typing import NamedTuple

from supervisor.host.cgroups import Usage
from supervisor.host.pidfds import exit_status
from supervisor.host.procfs import io_bytes
from supervisor.ipc.messages import Exited
from supervisor.root.process.managed_process import ManagedProcess


class Reaped(NamedTuple):
    """The result of a main process. Of an adopted one, little more than the status is known."""

    status: int | None
    """Wait status; None: unknown."""
    read_bytes: int | None = None
    write_bytes: int | None = None
    user_us: int = 0
    system_us: int = 0
    max_rss_bytes: int = 0


def reap(instance: ManagedProcess) -> Reaped | None:
    """Reap a main process, or release an adopted one; return None if that is not possible yet."""
    if instance.main.adopted:
        status = status_of(instance)
        os.close(instance.main.pidfd)
        return Reaped(status)
    read_bytes, write_bytes = io_bytes(instance.main.pid)
    pid, status, usage = os.wait4(instance.main.pid, os.WNOHANG)
    if not pid:
        return None
    user_us, system_us = int(usage.ru_utime * 1e6), int(usage.ru_stime * 1e6)
    return Reaped(status, read_bytes, write_bytes, user_us, system_us, usage.ru_maxrss * 1024)


def own_failure(instance: ManagedProcess) -> str | None:
    """Return the text for a failed client of another engine; it has ended, and is not reaped."""
    if not instance.spawn.own_failures or instance.main.adopted:
        return None
    found = os.waitid(os.P_PID, instance.main.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    exited = found is not None and found.si_code == os.CLD_EXITED
    return instance.spawn.own_failures.get(str(found.si_status)) if found is not None and exited else None


def status_of(instance: ManagedProcess) -> int | None:
    """Return the wait status of an adopted main process that has ended; None: unknown."""
    if instance.outcome.status is None:
        instance.outcome.status = exit_status(instance.main.pidfd, instance.main.pid, instance.main.ticks)
    return instance.outcome.status


def exited(instance: ManagedProcess, reaped: Reaped, lines: int) -> Exited:
    """Return the exit of a run whose log has so many lines."""
    usage = instance.outcome.usage
    read_bytes, write_bytes = _most(reaped, usage)
    user_us, system_us = reaped.user_us, reaped.system_us
    if usage is not None and usage.user_us + usage.system_us > user_us + system_us:
        # It includes processes that were never waited for.
        user_us, system_us = usage.user_us, usage.system_us
    return Exited(
        run=instance.run,
        status=reaped.status,
        unknown=reaped.status is None,
        cause="start_failed" if instance.outcome.reason else instance.cause,
        by=instance.by,
        reason=instance.outcome.reason,
        started_at=instance.main.started_at,
        ended_at=instance.outcome.ended_at or time.time_ns() // 1_000_000,
        user_us=user_us,
        system_us=system_us,
        max_rss_bytes=reaped.max_rss_bytes,
        read_bytes=read_bytes,
        write_bytes=write_bytes,
        oom_kills=usage.oom_kills if usage is not None else 0,
        lines=lines,
        leftovers=list(instance.outcome.leftovers.values()),
        origin=instance.spawn.origin,
    )


def _most(reaped: Reaped, usage: Usage | None) -> tuple[int | None, int | None]:
    """Bytes read and written. A cgroup includes processes that were never waited for, but not unwritten pages."""
    counted = (None, None) if usage is None else (usage.read_bytes, usage.write_bytes)
    pairs = zip((reaped.read_bytes, reaped.write_bytes), counted, strict=True)
    read_bytes, write_bytes = (max((one for one in pair if one is not None), default=None) for pair in pairs)
    return read_bytes, write_bytes
