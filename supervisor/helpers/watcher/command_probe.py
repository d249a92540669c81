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
from codecs import getincrementaldecoder
from collections.abc import Collection, Mapping

from logring.mask import MASK, Mask
from supervisor.helpers.watcher.network_probes import NOT_MET, ProbeFailed
from supervisor.host import prepared_command
from supervisor.host.process_environ import Environments
from supervisor.host.procfs import Process, children_of, find_process, send_signal, with_descendants
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

    def end(self, finished: Collection[int], running: Mapping[int, str]) -> bool:
        """Kill leftovers until a pass finds no new one; return whether some may remain.

        Args:
            finished: The ids of the unreaped main processes of finished probes.
            running: The markers of running probes, by the id of the main process.
        """
        seen: set[tuple[int, int]] = set()
        for _ in range(_PASSES):
            roots, unknown = self._orphans(finished, running)
            members = with_descendants([*finished, *roots])
            new = [member for member in members.values() if (member.pid, member.start) not in seen]
            if not new:
                return bool(members) or unknown
            for process in new:
                seen.add((process.pid, process.start))
                send_signal(process, signal.SIGKILL)
        return True

    def _orphans(self, finished: Collection[int], running: Mapping[int, str]) -> tuple[list[int], bool]:
        """Return the ids of adopted leftovers, and whether the owner of any process is still unknown."""
        orphans, unknown = [], False
        for pid in children_of(os.getpid()):
            if pid in finished or pid in running:
                continue
            with contextlib.suppress(ChildProcessError):  # ECHILD: reaped meanwhile
                if os.waitpid(pid, os.WNOHANG)[0]:
                    continue
            process = find_process(pid)
            if process is None:
                continue
            is_owned = self._is_of_running_probe(process, running)
            unknown = unknown or is_owned is None
            if is_owned is False:
                orphans.append(pid)
        return orphans, unknown

    def _is_of_running_probe(self, process: Process, running: Mapping[int, str]) -> bool | None:
        if process.session in running or process.group in running:
            return True
        variables = self._environments.read(process.pid, process.start)
        return None if variables is None else variables.get(MARK) in running.values()


_REAP_S = 1.0
_SEARCH_S = (0.01, 1.0)
"""The first and the longest pause between searches for leftovers."""
_MAX_CHARS = 4096
"""Limit of characters to keep, of the beginning and of the end of an output."""
_SHOWN = 200
_MASK = MASK.decode()

_SHELL = "/bin/sh"
_BEGIN = '[ -z "$1" ] || umask "$1"; [ -z "$2" ] || cd -- "$2" || exit 126; unset OLDPWD; shift 2\n'
_EXECUTE = 'exec "$@"'


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
            attempt.watch()
            status = await attempt.ended
            output, answer = attempt.outcome()
        finally:
            attempt.close()
            attempt.reaped.add_done_callback(lambda _: self._attempts.pop(attempt.pid))
            if self._leftovers is not None and (self._ending_leftovers is None or self._ending_leftovers.done()):
                self._ending_leftovers = asyncio.get_running_loop().create_task(self._end_leftovers(self._leftovers))
        if request.kind == "condition" and status == NOT_MET:
            raise ProbeFailed(output or f"{request.argv[0]} exited with code {status}", status)
        if status != 0:
            how = f"killed by signal {-status}" if status < 0 else f"exited with code {status}"
            raise ProbeFailed(f"{request.argv[0]} {how}: {output}" if output else f"{request.argv[0]} {how}")
        return answer

    async def _end_leftovers(self, leftovers: ProbeLeftovers) -> None:
        """Kill leftovers of finished probes until no leftovers and no unreaped commands remain."""
        pause_s = _SEARCH_S[0]
        while True:
            finished = {pid for pid, attempt in self._attempts.items() if attempt.finished}
            marks = {pid: attempt.mark for pid, attempt in self._attempts.items() if pid not in finished}
            if not leftovers.end(finished, marks) and not finished:
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _SEARCH_S[1])

    async def ended(self) -> None:
        """Wait at most a second for finished commands and their leftovers to end."""
        waiting = {attempt.reaped for attempt in self._attempts.values() if attempt.finished}
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
        self._name = request.argv[0]
        self.mark = mark
        """The marker in the environment of all its processes."""
        self.finished = False
        """Whether the probe is finished, so that its remaining processes are leftovers."""
        self.ended: asyncio.Future[int] = self._loop.create_future()
        """The exit code, or the number of the signal as a negative number."""
        self.reaped: asyncio.Future[None] = self._loop.create_future()
        self._pidfd = -1
        argv, env = _prepared(request, {**request.env, MARK: mark})
        mask = Mask(request.env[name].encode("utf-8", "surrogateescape") for name in request.secrets)
        output, theirs = os.pipe2(os.O_CLOEXEC)
        self._output = _MaskedOutput(output, mask)
        self._answers: _MaskedOutput | None = None
        answering = theirs
        try:
            if request.kind == "ask":
                answers, answering = os.pipe2(os.O_CLOEXEC)
                self._answers = _MaskedOutput(answers, mask.another())
            if request.uid is not None:  # so that the user can open the pipes by name, such as /dev/stderr
                for fd in {theirs, answering}:
                    os.fchown(fd, request.uid, -1)
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=answering,
                stderr=theirs,
                env=env,
                start_new_session=True,
            )
        except (OSError, ValueError, subprocess.SubprocessError) as err:
            self._close_pipes()
            raise ProbeFailed(f"{self._name} cannot be started: {getattr(err, 'strerror', None) or err}") from err
        finally:
            for fd in {theirs, answering}:
                os.close(fd)
        self.pid = self._process.pid

    def watch(self) -> None:
        """Read the output and wait for the exit.

        Raises:
            ProbeFailed: the process cannot be tracked; the caller must close the attempt, which kills it.
        """
        try:
            self._pidfd = os.pidfd_open(self.pid)
            self._loop.add_reader(self._pidfd, self._exited)
            for pipe in self._pipes():
                self._loop.add_reader(pipe.fd, self._readable, pipe)
        except OSError as err:  # EMFILE, ENFILE, ENOMEM; ENOSPC: too many descriptors are watched
            self._close_pidfd()
            raise ProbeFailed(f"{self._name} was killed, because it could not be tracked: {err.strerror}") from err

    def _pipes(self) -> list["_MaskedOutput"]:
        return [self._output] if self._answers is None else [self._output, self._answers]

    def _readable(self, output: "_MaskedOutput") -> None:
        if not output.read():
            self._loop.remove_reader(output.fd)

    def _close_pipes(self) -> None:
        for pipe in self._pipes():
            self._loop.remove_reader(pipe.fd)
            os.close(pipe.fd)

    def _exited(self) -> None:
        self._loop.remove_reader(self._pidfd)
        # WNOWAIT leaves the process unreaped, so that its id still identifies its process group.
        exit_info = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOWAIT)
        if exit_info is not None and not self.ended.done():
            self.ended.set_result(exit_info.si_status if exit_info.si_code == os.CLD_EXITED else -exit_info.si_status)

    def outcome(self) -> tuple[str, str]:
        """Return the last line of the output, for display, and the answer of kind ask; both may be empty."""
        for pipe in self._pipes():
            pipe.finish()
        return self._output.last_line(), "" if self._answers is None else self._answers.beginning()

    def close(self) -> None:
        """Finish the probe: kill its process group and close the pipes. The main process is reaped when it exits."""
        self.finished = True
        with contextlib.suppress(ProcessLookupError, PermissionError):  # ESRCH; EPERM: it changed its user
            os.killpg(self.pid, signal.SIGKILL)
        self._close_pipes()
        if self._pidfd < 0:
            self._reap_untracked()
            return
        self._loop.remove_reader(self._pidfd)
        self._loop.add_reader(self._pidfd, self._reap)

    def _close_pidfd(self) -> None:
        if self._pidfd >= 0:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    def _reap(self) -> None:
        self._close_pidfd()
        self._process.wait()
        self.reaped.set_result(None)

    def _reap_untracked(self) -> None:
        """Reap the main process without a pidfd, which could not be opened."""
        if self._process.poll() is None:
            self._loop.call_later(_SEARCH_S[0], self._reap_untracked)
        else:
            self.reaped.set_result(None)


class _MaskedOutput:
    """Reads the output of a command from a pipe; keeps the beginning and the end, with secrets masked.

    The output is masked before it is cut, so that no part of a secret remains at the cut.

    Args:
        fd: The read end of the pipe.
        mask: Masks this output alone.
    """

    def __init__(self, fd: int, mask: Mask) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self._mask = mask
        self._decoder = getincrementaldecoder("utf-8")(errors="replace")
        self._head = self._tail = ""

    def read(self) -> bool:
        """Read available output; return False at its end."""
        try:
            data = os.read(self.fd, 65536)
        except BlockingIOError:
            return True
        self._keep(self._mask.feed(data))
        return bool(data)

    def finish(self) -> None:
        """Read the rest of the output when the command has exited."""
        self.read()
        self._keep(self._mask.finish())

    def _keep(self, masked: bytes) -> None:
        text = self._decoder.decode(masked)
        # One more character tells whether a mask was split.
        self._head += text[: _MAX_CHARS + 1 - len(self._head)]
        self._tail = end_of(self._tail + text, _MAX_CHARS)

    def beginning(self) -> str:
        """Return the beginning of the output."""
        return beginning_of(self._head, _MAX_CHARS)

    def last_line(self) -> str:
        """Return the last line of the output for display; empty if there is none."""
        lines = self._tail.strip().splitlines()
        line = "".join(char if char.isprintable() else " " for char in lines[-1]) if lines else ""
        return beginning_of(line, _SHOWN)


def beginning_of(masked: str, limit: int) -> str:
    """Return at most the first `limit` characters, without the first part of a mask that the cut would split."""
    beginning = masked[:limit]
    if masked[limit : limit + 1] != _MASK[0]:
        return beginning
    stars = len(beginning) - len(beginning.rstrip(_MASK[0]))
    return beginning[: len(beginning) - stars % len(_MASK)]


def end_of(masked: str, limit: int) -> str:
    """Return at most the last `limit` characters, without the last part of a mask that the cut would split."""
    ending = masked[-limit:]
    if masked[-limit - 1 : -limit] != _MASK[0]:
        return ending
    stars = len(ending) - len(ending.lstrip(_MASK[0]))
    return ending[stars % len(_MASK) :]


def _prepared(request: ProbeRequest, env: Mapping[str, str]) -> tuple[list[str], Mapping[str, str]]:
    """Return a command line that sets the user, umask and directory, in this order, and executes the command.

    Args:
        request: The request with the command.
        env: The environment of the command.

    Returns:
        The command line and the environment for it.
    """
    umask = "" if request.umask is None else f"{request.umask:04o}"
    user = None if request.uid is None or request.gid is None else (request.uid, request.gid, request.groups)
    first = prepared_command.FirstEnvironment(
        env, request.chosen, other_user=user is not None, by_python=_SETPRIV is None
    )
    if first.by_python:
        python = prepared_command.command_line(request.argv, status_pipe=False, user=user, cwd=request.cwd)
        return [_SHELL, "-c", _BEGIN + _EXECUTE, "ringward", umask, "", *python], first.variables
    script = first.restore + _BEGIN + prepared_command.report_missing(status_pipe=False, stdin="''") + _EXECUTE
    shell = [_SHELL, "-c", script, "ringward", umask, request.cwd or "", *request.argv]
    if user is None:
        return shell, first.variables
    groups = prepared_command.joined_groups(request.gid, request.groups)
    become = [_SETPRIV or "setpriv", f"--reuid={request.uid}", f"--regid={request.gid}", f"--groups={groups}"]
    return [_SHELL, "-c", _EXECUTE, "ringward", *become, *shell], first.variables


_SETPRIV = prepared_command.setpriv()
