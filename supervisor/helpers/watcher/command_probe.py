"""Single probes by a command.

Each command has its own session. Its descendants are killed when its main process exits or its time limit passes. The
watcher does not wait for a process that survives SIGKILL, but reaps it when it exits.

The watcher is a subreaper (prctl(2)), so descendants of commands that lose their parent become its children. Such a
process belongs to a running command if it has the command's session, process group or marker. All other ones are probe
leftovers and are killed.

The watcher itself executes only ``/bin/sh``. To execute a file on a hung disk would block the watcher along with the
child, because :class:`subprocess.Popen` waits for execve(2).
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
from supervisor.host.procfs import Process, children, family, find_process, send
from supervisor.ipc.probe_request import ProbeRequest

MARK = "RINGWARD_PROBE"
_PATIENCE_S = 0.01
"""Longest wait for the first read of an environment, which delays all probes."""
_PASSES = 20
"""Limit of passes per call. The next call finds processes that fork faster."""


class ProbeLeftovers:
    """Kills leftover processes of finished probes."""

    def __init__(self) -> None:
        self._environments = Environments(_PATIENCE_S)

    def end(self, over: Collection[int], running: Mapping[int, str]) -> bool:
        """Kill leftovers until a pass finds no new one; return whether some may remain.

        Args:
            over: The ids of the unreaped main processes of finished probes.
            running: The markers of running probes, by the id of the main process.
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
        """Return the ids of adopted leftovers, and whether the owner of any process is still unknown."""
        found, unknown = [], False
        for pid in children(os.getpid()):
            if pid in over or pid in running:
                continue
            with contextlib.suppress(ChildProcessError):  # ECHILD: reaped meanwhile
                if os.waitpid(pid, os.WNOHANG)[0]:
                    continue
            process = find_process(pid)
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
"""The first and the longest pause between searches for leftovers."""
_TAIL_BYTES = 4096
_SHOWN = 200

_SHELL = "/bin/sh"
_BEGIN = '[ -z "$1" ] || umask "$1"; [ -z "$2" ] || cd -- "$2" || exit 126; unset OLDPWD; shift 2; exec "$@"'


class CommandProbes:
    """Carries out all probes by commands.

    Args:
        alone: Whether this process is a subreaper whose children are all commands or their leftovers.
    """

    def __init__(self, *, alone: bool) -> None:
        self._attempts: dict[int, _Attempt] = {}
        """Attempts whose main process is not reaped yet, by its id."""
        self._numbers = itertools.count()
        self._leftovers = ProbeLeftovers() if alone else None
        self._ending_leftovers: asyncio.Task[None] | None = None

    async def run(self, request: ProbeRequest) -> str:
        """Execute a command; return the beginning of its standard output for kind ask, or else an empty string.

        Raises:
            ProbeFailed: the command cannot be started or has failed; the text contains the last line of its output.
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
        """Kill leftovers of finished probes until no leftovers and no unreaped commands remain."""
        look_s = _LOOK_S[0]
        while True:
            over = {pid for pid, attempt in self._attempts.items() if attempt.over}
            marks = {pid: attempt.mark for pid, attempt in self._attempts.items() if pid not in over}
            if not leftovers.end(over, marks) and not over:
                return
            await asyncio.sleep(look_s)
            look_s = min(2 * look_s, _LOOK_S[1])

    async def ended(self) -> None:
        """Wait at most a second for finished commands and their leftovers to end."""
        waiting = {attempt.reaped for attempt in self._attempts.values() if attempt.over}
        if self._ending_leftovers is not None:
            waiting.add(self._ending_leftovers)
        if waiting:
            await asyncio.wait(waiting, timeout=_REAP_S)


class _Attempt:
    """One execution of a command.

    Raises:
        ProbeFailed: the command cannot be started.
    """

    def __init__(self, request: ProbeRequest, mark: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._mask = Mask(request.env[name].encode("utf-8", "surrogateescape") for name in request.secrets)
        self._tail = self._head = b""
        self.mark = mark
        """The marker in the environment of all its processes."""
        self.over = False
        """Whether the probe is finished, so that its remaining processes are leftovers."""
        self.ended: asyncio.Future[int] = self._loop.create_future()
        """The exit code, or the number of the signal as a negative number."""
        self.reaped: asyncio.Future[None] = self._loop.create_future()
        env = {**request.env, MARK: mark}
        lost = prepared_command.lost_in_shells(env, request.chosen)
        self._output, theirs = os.pipe2(os.O_CLOEXEC)
        self._answers, answering = -1, theirs
        try:
            if request.kind == "ask":
                self._answers, answering = os.pipe2(os.O_CLOEXEC)
            if request.uid is not None:  # so that the user can open the pipes by name, such as /dev/stderr
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
        # WNOWAIT leaves the process unreaped, so that its id still identifies its process group.
        found = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOWAIT)
        if found is not None and not self.ended.done():
            self.ended.set_result(found.si_status if found.si_code == os.CLD_EXITED else -found.si_status)

    def last_line(self) -> str:
        """Return the last line of its output for display; empty if it has printed nothing."""
        self._readable()
        lines = self._mask.clean(self._tail).decode(errors="replace").strip().splitlines()
        return "".join(char if char.isprintable() else " " for char in lines[-1])[:_SHOWN] if lines else ""

    def answer(self) -> str:
        """Return the beginning of its standard output for kind ask, or else an empty string."""
        if self._answers < 0:
            return ""
        self._answering()
        return self._mask.clean(self._head).decode(errors="replace")

    def close(self) -> None:
        """Finish the probe: kill its process group and close the pipes. The main process is reaped when it exits."""
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
    """Return a command line that sets the user, umask and directory, in this order, and executes the command.

    Args:
        request: The request with the command.
        carries: Whether variables must be carried past the shell.
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
