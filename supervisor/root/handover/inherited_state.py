"""Loads the previous root's table. The trial of a version also loads it, to prove that it can."""

import json
import os
import sys
from dataclasses import dataclass

from logring.state_json import from_json
from supervisor.host.osport import become, end_with_parent
from supervisor.ipc.child_process import RINGWARD
from supervisor.root.handover.run_recovery import RecoveredRun, recover
from supervisor.root.handover.state_schema import Handover
from supervisor.root.handover.table import HandoverRejected, read
from supervisor.root.output.run_log import RunLog

_PROCESSES = ("spawner", "scheduler", "watcher", "filewatcher", "janitor", "notifier", "exporter")
_API = "api"
"""The API server, which is checked as the user of the API workers. With ``--check``, each process only loads its
modules."""


@dataclass(frozen=True)
class InheritedState:
    """The state of the previous root, and the objects made from it."""

    state: Handover
    runs: list[RecoveredRun]
    logs: list[tuple[RunLog, float | None]]
    """Logs of runs that have ended or could not be started, and since when they wait for their files."""
    daemon: RunLog

    @classmethod
    def load(cls, fd: int) -> "InheritedState":
        """Load a table from its descriptor, without changing anything.

        Raises:
            HandoverRejected: the version that wrote it is too new or too old.
            UnknownFormat, KeyError, TypeError: the content does not match the number of the format.
            OSError: a ring cannot be mapped.
            LogError: a file is not a ring.
        """
        state: Handover = from_json(Handover, read(fd))
        drained = set(state.lives.ended_pipes)
        return cls(
            state=state,
            runs=[recover(*run, drained=run.state.run in drained) for run in state.runs],
            logs=[(RunLog.load(log), log.since_s) for log in state.pump.logs],
            daemon=RunLog.load(state.pump.daemon),
        )


def check(fd: int) -> int:
    """Check whether this version accepts a table and whether each of its processes can start; return the exit status.

    An unexpected error ends the process with a traceback. The process inherits descriptors of the root that started it,
    so it must not outlive that root. It does not inherit locks and listeners.
    """
    end_with_parent()
    os.chdir("/")  # as api.serve does, before gunicorn is loaded
    try:
        daemon_settings = InheritedState.load(fd).state.boot
    except HandoverRejected as err:
        print(err)
        return 1
    settings = json.dumps(daemon_settings.to_dict()).encode()
    for process in _PROCESSES:
        text = _rehearse(process, settings)
        if text is not None:
            print(text)
            return 1
    account = (
        None if daemon_settings.api_account is None else (*daemon_settings.api_account, daemon_settings.api_groups)
    )
    text = _rehearse(_API, b"", account)  # the settings are not for the user of API workers
    if text is not None:
        who = "" if account is None else f"API workers cannot start as user {account[0]}: "
        before, _, last = text.rpartition("\n")
        print(f"{before}\n{who}{last}")
        return 1
    return 0


def _rehearse(process: str, settings: bytes, account: tuple[int, int, list[int]] | None = None) -> str | None:
    """Let a process try its imports; return its output if they fail.

    The process gets `settings` on standard input. It inherits no other descriptors, since these include pipes of runs.
    """
    given = os.memfd_create("ringward-settings", os.MFD_CLOEXEC)
    os.write(given, settings)
    os.lseek(given, 0, os.SEEK_SET)
    reading, writing = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        try:
            for fd, target in ((given, 0), (writing, 1), (writing, 2)):
                os.dup2(fd, target)
            os.closerange(3, os.sysconf("SC_OPEN_MAX"))
            if account is not None:
                become(*account)
            end_with_parent()  # only now, because changing the user clears it (PR_SET_PDEATHSIG, prctl(2))
            os.execv(sys.executable, [sys.executable, *RINGWARD, process, "--check"])  # noqa: S606 - no shell is wanted
        except OSError as err:
            os.write(1, f"{sys.executable} cannot be executed: {err.strerror}".encode())
        finally:
            os._exit(1)
    os.close(given)
    os.close(writing)
    with open(reading, errors="replace") as output:
        text = output.read().strip()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return None if status == 0 else text or f"{process} ended with {status}"
