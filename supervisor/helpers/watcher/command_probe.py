"""Single probes by a command.

A command has its own session. All its descendants are killed when its main process exits or its time limit passes. A
process that survives SIGKILL is not waited for, but reaped whenever it exits.

The watcher is the subreaper of the commands (prctl(2)), so processes that lose their parent become its children. Such a
process belongs to a running command if it has the session, the process group or the marker of that command. All others
are probe leftovers and are killed.

The watcher only executes ``/bin/sh`` itself: executing a file on a hung disk would block the watcher with its child.
"""

import asyncio
import contextlib
import itertools
import os
import signal
import subprocess
from collections.abc import Collection, Mapping

from logring.mask import Mask
from supervisor.helpers.watcher.attempts import ProbeFailed
from supervisor.host import prepared_command
from supervisor.host.process_environ import Environments
from supervisor.host.procfs import Process, children, family, look, send
from supervisor.ipc.probe_request import ProbeRequest

MARK = "RINGWARD_PROBE"
_PATIENCE_S = 0.01
"""Longest wait for an unreadable environment, which delays all probes once."""
_PASSES = 20
"""Passes per call; processes that fork faster are found by the next call."""


class ProbeLeftovers:
    """Kills leftover processes of finished probes."""

    def __init__(self) -> None:
        self._environments = Environments(_PATIENCE_S)

    def end(self, over: Collection[int], running: Mapping[int, str]) -> bool:
        """Kill leftovers until a pass finds no new one; return whether some may remain.

        Args:
            over: ids of the main processes of finished probes that are not reaped.
            running: ids and markers of the main processes of running probes.
        """
        seen: set[tuple[int, int]] = set()
        for _ in range(_PASSES):
            roots, unknown = self._orphans(over, running)
            members = family([*over, *roots])
            new = [one for one in members.values() if (one.pid, one.start) not in seen]
            if not new:
                return bool(members) or unknown
            for process in new:
                seen.add((process.pid, process.start))
                send(process, signal.SIGKILL)
        return True

    def _orphans(self, over: Collection[int], running: Mapping[int, str]) -> tuple[list[int], bool]:
        """Return the ids of leftovers, and whether the owner of some process is unknown."""
        found, unknown = [], False
        for pid in children(os.getpid()):
            if pid in over or pid in running:
                continue
            with contextlib.suppress(ChildProcessError):  # ECHILD: reaped meanwhile
                if os.waitpid(pid, os.WNOHANG)[0]:
                    continue
            process = look(pid)
            if process is None:
                continue
            belongs = self._belongs(process, running)
            unknown = unknown or belongs is None
            if belongs is False:
                found.append(pid)
        return found, unknown

    def _belongs(self, process: Process, running: Mapping[int, str]) -> bool | None:
        if process.session in running or process.group in running:
            return True
        variables = self._environments.read(process.pid, process.start)
        return None if variables is None else variables.get(MARK) in running.values()


_REAP_S = 1.0
_LOOK_S = (0.01, 1.0)
"""Time between searches for leftovers: first and longest."""
_TAIL_BYTES = 4096
_SHOWN = 200

_SHELL = "/bin/sh"
_BEGIN = '[ -z "$1" ] || umask "$1"; [ -z "$2" ] || cd -- "$2" || exit 126; unset OLDPWD; shift 2; exec "$@"'


class CommandProbes:
    """Carries out all probes by commands.

    Args:
        alone: whether this process is the subreaper, so that all its children are commands or their leftovers.
    """

    def __init__(self, *, alone: bool) -> None:
        self._attempts: dict[int, _Attempt] = {}
        """Attempts that are not reaped, by process id."""
        self._numbers = itertools.count()
        self._leftovers = ProbeLeftovers() if alone else None
        self._ending_leftovers: asyncio.Task[None] | None = None

    async def run(self, request: ProbeRequest) -> str:
        """Execute a command; return the beginning of its standard output if the request asks for it.

        Raises:
            ProbeFailed: the command cannot start or fails; the text has the last line of its output.
        """
        attempt = _Attempt(request, f"{request.key}/{next(self._numbers)}")
        self._attempts[attempt.pid] = attempt
        try:
            status = await attempt.ended
            said, answer = attempt.last_line(), attempt.answer()
        finally:
            attempt.close()
            attempt.reaped.add_done_callback(lambda _: self._attempts.pop(attempt.pid))
            if self._leftovers is not None and (self._ending_leftovers is None or self._ending_leftovers.done()):
                self._ending_leftovers = asyncio.get_running_loop().create_task(self._end_leftovers(self._leftovers))
        if status != 0:
            how = f"killed by signal {-status}" if status < 0 else f"exited with code {status}"
            raise ProbeFailed(f"{request.argv[0]} {how}: {said}" if said else f"{request.argv[0]} {how}")
        return answer

    async def _end_leftovers(self, leftovers: ProbeLeftovers) -> None:
        """Kill leftovers of finished probes until none remain."""
        look_s = _LOOK_S[0]
        while True:
            over = {pid for pid, attempt in self._attempts.items() if attempt.over}
            marks = {pid: attempt.mark for pid, attempt in self._attempts.items() if pid not in over}
            if not leftovers.end(over, marks) and not over:
                return
            await asyncio.sleep(look_s)
            look_s = min(2 * look_s, _LOOK_S[1])

    async def ended(self) -> None:
        """Wait up to a second until finished commands and their leftovers are gone."""
        waiting = {attempt.reaped for attempt in self._attempts.values() if attempt.over}
        if self._ending_leftovers is not None:
            waiting.add(self._ending_leftovers)
        if waiting:
            await asyncio.wait(waiting, timeout=_REAP_S)


class _Attempt:
    """A running command.

    Raises:
        ProbeFailed: the command cannot start.
    """

    def __init__(self, request: ProbeRequest, mark: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._mask = Mask(request.env[name].encode("utf-8", "surrogateescape") for name in request.secrets)
        self._tail = self._head = b""
        self.mark = mark
        """Marker in the environment of all its processes."""
        self.over = False
        """Whether the probe is finished."""
        self.ended: asyncio.Future[int] = self._loop.create_future()
        """Exit status, or the signal as a negative number."""
        self.reaped: asyncio.Future[None] = self._loop.create_future()
        env = {**request.env, MARK: mark}
        lost = prepared_command.lost_in_shells(env, request.chosen)
        self._output, theirs = os.pipe2(os.O_CLOEXEC)
        self._answers, answering = -1, theirs
        try:
            if request.kind == "ask":
                self._answers, answering = os.pipe2(os.O_CLOEXEC)
            if request.uid is not None:  # so that it can open its outputs by name, such as /dev/stderr
                for one in {theirs, answering}:
                    os.fchown(one, request.uid, -1)
            self._process = subprocess.Popen(
                _wrapped(request, carries=bool(lost)),
                stdin=subprocess.DEVNULL,
                stdout=answering,
                stderr=theirs,
                env=prepared_command.carried(env, lost),
                start_new_session=True,
            )
        except (OSError, ValueError, subprocess.SubprocessError) as err:
            self._close_pipes()
            raise ProbeFailed(f"{request.argv[0]} cannot be started: {getattr(err, 'strerror', None) or err}") from err
        finally:
            for one in {theirs, answering}:
                os.close(one)
        self.pid = self._process.pid
        self._pidfd = os.pidfd_open(self.pid)
        os.set_blocking(self._output, False)
        self._loop.add_reader(self._output, self._readable)
        if self._answers >= 0:
            os.set_blocking(self._answers, False)
            self._loop.add_reader(self._answers, self._answering)
        self._loop.add_reader(self._pidfd, self._exited)

    def _readable(self) -> None:
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._output, 65536)
            self._tail = (self._tail + data)[-_TAIL_BYTES:]
            if not data:
                self._loop.remove_reader(self._output)

    def _answering(self) -> None:
        with contextlib.suppress(BlockingIOError):
            data = os.read(self._answers, 65536)
            self._head = (self._head + data)[:_TAIL_BYTES]
            if not data:
                self._loop.remove_reader(self._answers)

    def _close_pipes(self) -> None:
        for one in (self._output, self._answers):
            if one >= 0:
                self._loop.remove_reader(one)
                os.close(one)

    def _exited(self) -> None:
        self._loop.remove_reader(self._pidfd)
        # Not reaped, so that its id still identifies its process group.
        found = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOWAIT)
        if found is not None and not self.ended.done():
            self.ended.set_result(found.si_status if found.si_code == os.CLD_EXITED else -found.si_status)

    def last_line(self) -> str:
        """Return the last line of its output."""
        self._readable()
        lines = self._mask.clean(self._tail).decode(errors="replace").strip().splitlines()
        return "".join(char if char.isprintable() else " " for char in lines[-1])[:_SHOWN] if lines else ""

    def answer(self) -> str:
        """Return the beginning of its standard output, if the request asks for it."""
        if self._answers < 0:
            return ""
        self._answering()
        return self._mask.clean(self._head).decode(errors="replace")

    def close(self) -> None:
        """Kill its process group."""
        self.over = True
        with contextlib.suppress(ProcessLookupError, PermissionError):  # ESRCH; EPERM: it changed its user
            os.killpg(self.pid, signal.SIGKILL)
        self._close_pipes()
        self._loop.remove_reader(self._pidfd)
        self._loop.add_reader(self._pidfd, self._reap)

    def _reap(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._process.wait()
        self.reaped.set_result(None)


def _wrapped(request: ProbeRequest, *, carries: bool) -> list[str]:
    """Return the command behind a shell that sets its user, umask and directory, in this order.

    Args:
        request: the request of the probe.
        carries: whether some variables would not survive a shell.
    """
    umask = "" if request.umask is None else f"{request.umask:04o}"
    user = None if request.uid is None or request.gid is None else (request.uid, request.gid, request.groups)
    if carries or (user is not None and _SETPRIV is None):
        python = prepared_command.command_line(request.argv, status_pipe=False, user=user, cwd=request.cwd)
        return [_SHELL, "-c", _BEGIN, "ringward", umask, "", *python]
    shell = [_SHELL, "-c", _BEGIN, "ringward", umask, request.cwd or "", *request.argv]
    if user is None:
        return shell
    groups = prepared_command.joined_groups(request.gid, request.groups)
    become = [_SETPRIV or "setpriv", f"--reuid={request.uid}", f"--regid={request.gid}", f"--groups={groups}"]
    return [_SHELL, "-c", 'exec "$@"', "ringward", *become, *shell]


_SETPRIV = prepared_command.setpriv()
