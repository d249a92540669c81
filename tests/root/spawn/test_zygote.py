"""Starts by a spare process: same result as by the root, exactly once, even if the spare or the zygote dies."""

import ast
import errno
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.host.cgroups import is_spare, run_of
from supervisor.host.shortage import Descriptors
from supervisor.ipc.messages import Spawn
from supervisor.root.spawn import shim, zygote
from supervisor.root.spawn.posix_spawn import StartedProcess
from tests.root.spawn.test_posix_spawn import ODD, UNEXECUTABLE, make_spawn, make_unexecutable, read_all, variables
from tests.root.start_bench import DAEMON, StartBench, bench
from tests.support.host_features import require_cgroups
from tests.support.waiting import until


@pytest.fixture
def root() -> Iterator[StartBench]:
    require_cgroups()
    with bench() as prefork_bench:
        yield prefork_bench


class Outcome:
    """The result of a started process that has ended."""

    def __init__(self, started: StartedProcess) -> None:
        _, status = os.waitpid(started.pid, 0)
        self.code = os.waitstatus_to_exitcode(status)
        for fd in started.pipes:
            if fd is not None:
                os.set_blocking(fd, True)
        self.out, self.err = (b"" if fd is None else read_all(fd) for fd in started.pipes)
        self.word = b""
        if started.status_fd is not None:
            os.set_blocking(started.status_fd, True)
            self.word = os.read(started.status_fd, 256)
        for fd in (*started.pipes, started.pidfd, started.status_fd):
            if fd is not None:
                os.close(fd)


def outcome(root: StartBench, spawn: Spawn, nofile: int | None = None) -> Outcome:
    """Start a run by a spare process, and wait for its end."""
    spare = root.prepare()
    root.starts.descriptors.restore = lambda: nofile  # type: ignore[method-assign]
    assert not root.begin(spawn)
    assert root.started[spawn.run].pid == spare
    return Outcome(root.settle(spawn))


def state(pid: int) -> str:
    """Return the state letter of a process, as in proc_pid_stat(5)."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def no_memory(_fd: int, _handler: Callable[[int], None]) -> None:
    raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))


class TestNewProcess:
    def test_parent_session_and_cgroup(self, root: StartBench) -> None:
        """The process is a child of the root and a session leader, and is in its cgroup before the command runs."""
        script = "cat /proc/self/cgroup; echo $PPID $$; cut -d' ' -f5,6 /proc/$$/stat"
        result = outcome(root, make_spawn(["/bin/sh", "-e", "-c", script]))
        lines = result.out.decode().splitlines()
        cgroup = root.cgroups["R"]
        assert cgroup is not None
        assert [line for line in lines if line.startswith("0::") and line.endswith(os.path.basename(cgroup.path))]
        assert run_of(cgroup.path) == "R"
        parent, own = lines[-2].split()
        assert (int(parent), lines[-1], result.code, result.word) == (os.getpid(), f"{own} {own}", 0, b"")

    def test_process_inherits_nothing_else(self, root: StartBench) -> None:
        """The process inherits only the standard descriptors and the run's environment; signals are at defaults."""
        script = "cat; ls /proc/self/fd | wc -l; grep -E 'Sig(Blk|Ign)' /proc/self/status; env"
        result = outcome(root, make_spawn(["/bin/sh", "-e", "-c", script], env={"A": "1"}))
        lines = result.out.decode().splitlines()
        assert lines[0] == "4"  # including the descriptor of the listing
        internal = 1 << 31 | 1 << 32  # glibc's own, which its posix_spawn ignores in the zygote
        assert [int(line.split()[1], 16) & ~internal for line in lines[1:3]] == [0, 0]
        assert {line.split("=")[0] for line in lines[3:]} == {"A", "PATH", "PWD"}

    def test_joining_process_inherits_no_pidfd(self, root: StartBench) -> None:
        """The pidfd of a spare process is not inherited by a process that the root starts itself."""
        first, second = (make_spawn(["/bin/sh", "-c", "ls -l /proc/self/fd; cat"], run=run) for run in "AB")
        root.prepare()
        assert not root.begin(first)
        root.starts._joined_s = float("inf")
        root.starts.start(second, 0)
        listing = Outcome(root.settle(second)).out.decode()
        assert "pidfd" not in listing
        assert len(listing.splitlines()) == 5  # the total, three descriptors, and the one of the listing
        assert Outcome(root.settle(first)).code == 0

    def test_terminal(self, root: StartBench) -> None:
        """Both outputs are the controlling terminal."""
        script = "for fd in 0 1 2; do [ -t $fd ] && echo $fd; done; echo to tty >/dev/tty; echo to stderr >&2"
        result = outcome(root, make_spawn(["/bin/sh", "-c", script], tty=True))
        assert (result.code, result.out) == (0, b"1\n2\nto tty\nto stderr\n")

    def test_shell_prepares_the_run(self, root: StartBench, tmp_path: Path) -> None:
        """A shell sets directory, umask and limits, and reports through the status pipe as usual."""
        spawn = make_spawn(["sh", "-c", "pwd; umask; ulimit -Sn; exit 3"], str(tmp_path), umask=0o027)
        result = outcome(root, spawn, nofile=99)
        assert (result.code, result.out.decode(), result.word) == (3, f"{tmp_path}\n0027\n99\n", b"")

    def test_no_shell_for_simple_settings(
        self, root: StartBench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """A command that needs only directory, umask and limits runs without a shell, found as a shell finds it."""
        monkeypatch.setattr(shim, "SHELL", "/no/such/shell")
        script = "import os, resource; print(os.getcwd(), os.umask(0), resource.getrlimit(7)[0], os.read(0, 1))"
        env = {"PATH": f"/no/such:{os.path.dirname(sys.executable)}", "PWD": "/old", "OLDPWD": "/older", "A": "1"}
        script += "; print(sorted(os.environ.items()))"
        spawn = make_spawn([os.path.basename(sys.executable), "-c", script], str(tmp_path), umask=0o027, env=env)
        result = outcome(root, spawn, nofile=99)
        lines = result.out.decode().splitlines()
        assert (result.code, result.word, lines[0]) == (0, b"", f"{tmp_path} {0o027} 99 b''")
        seen = dict(ast.literal_eval(lines[1]))
        assert (seen["PWD"], seen["A"], "OLDPWD" in seen) == (str(tmp_path), "1", False)

    @pytest.mark.parametrize("more", [{}, {"cwd": "/"}, {"cwd": "/", "limits": {"nofile": 64}}])
    def test_odd_variables_arrive(self, root: StartBench, more: dict[str, Any]) -> None:
        """Variables that shells drop or set reach the command, with or without a shell."""
        result = outcome(root, make_spawn(["printenv", "-0"], env=ODD, **more))
        assert {name: variables(result.out).get(name) for name in ODD} == ODD
        assert not [name for name in variables(result.out) if name.startswith("RINGWARD_")]
        assert (result.code, result.err, result.word) == (0, b"", b"")

    def test_script_without_an_interpreter_line(self, root: StartBench, tmp_path: Path) -> None:
        """A script without an interpreter line runs in the shell, as usual."""
        script = tmp_path / "script"
        script.write_text("echo here; exit 4\n")
        script.chmod(0o755)
        result = outcome(root, make_spawn([str(script)]))
        assert (result.code, result.out, result.word) == (4, b"here\n", b"")

    @pytest.mark.parametrize(
        ("argv", "more", "words"),
        [
            (["/no/such/command"], {}, "No such file"),
            (["true"], {"cwd": "/no/such/directory"}, "cannot enter working_dir /no/such/directory"),
            (["true"], {"limits": {"nofile": 1 << 30}}, "limits.nofile = 1073741824 cannot be set"),
            (["/etc/passwd"], {}, "Permission denied"),
        ],
    )
    def test_failed_start_has_the_reason(
        self, root: StartBench, argv: list[str], more: dict[str, Any], words: str
    ) -> None:
        """A failed start reports the same reason as without the zygote."""
        spawn = make_spawn(argv, **more)
        assert words in (shim.explain(spawn, outcome(root, spawn).word.decode()) or "")

    @pytest.mark.parametrize(("name", "word"), [*UNEXECUTABLE.items()])
    def test_command_that_cannot_be_executed(self, root: StartBench, tmp_path: Path, name: str, word: str) -> None:
        """The kernel's reason is reported once, and nothing of a shell is in the output."""
        make_unexecutable(tmp_path)
        command = name if name == "no-such-command" else f"{tmp_path}/{name}"
        result = outcome(root, make_spawn([command], "/"))
        assert (result.word.decode(), result.out, result.err) == (word, b"", b"")

    def test_busy_command(self, root: StartBench, tmp_path: Path) -> None:
        """A program that is being written is reported as such."""
        busy = tmp_path / "busy"
        shutil.copy("/bin/true", busy)
        with busy.open("ab"):
            result = outcome(root, make_spawn([str(busy)], "/"))
        assert (result.word, result.err) == (b"exec 126 Text file busy", b"")

    @pytest.mark.parametrize("cwd", [None, "/"])
    def test_shell_cannot_be_executed(self, root: StartBench, monkeypatch: pytest.MonkeyPatch, cwd: str | None) -> None:
        """The reason is the kernel's, with and without a status pipe."""
        monkeypatch.setattr(shim, "SHELL", "/no/such/shell")
        spawn = make_spawn(["/no/such/shell", "-e", "-c", "true"], cwd)
        result = outcome(root, spawn)
        start = "could not start" if cwd is None else "cannot execute /no/such/shell"
        assert shim.explain(spawn, result.word.decode()) == f"{start}: No such file or directory"

    @pytest.mark.parametrize(("argv", "reason"), [(["x" * 200_000], "too long"), (["a\0b"], "null")])
    def test_invalid_arguments(self, root: StartBench, argv: list[str], reason: str) -> None:
        """Arguments that are too large or invalid fail in the root with the reason, and leak no descriptor."""
        spawn = make_spawn(["/bin/sh", "-c", *argv])
        root.warm()
        before = set(os.listdir("/proc/self/fd"))
        root.prepare()
        assert not root.begin(spawn)
        assert reason in root.refused[spawn.run]
        assert set(os.listdir("/proc/self/fd")) <= before


class TestZygote:
    def test_many_starts_leak_nothing(self, root: StartBench) -> None:
        """After many starts, the root and the zygote have leaked no descriptor and no cgroup."""
        pid = root.warm()
        descriptor_sets = []
        for number in range(300):
            assert outcome(root, make_spawn(["/bin/sh", "-e", "-c", "exit 5"], run=f"R{number}")).code == 5
            root.leave()
            if number in (0, 299):
                until(lambda: state(pid) == "S", "the zygote to wait")
                descriptor_sets.append([set(os.listdir(f"/proc/{process_id}/fd")) for process_id in (pid, "self")])
        # Threads of other tests' servers may open a few in this process meanwhile.
        assert all(len(after - before) < 50 for before, after in zip(*descriptor_sets, strict=True))
        root.clear()

    def test_zygote_ends_with_the_root(self, root: StartBench) -> None:
        """The zygote and its spare end as soon as the root's end of the socket is closed."""
        pid, spare = root.warm(), root.prepare()
        root.starts.close()
        assert not os.path.exists(f"/proc/{pid}")
        assert os.waitpid(spare, 0) == (spare, zygote._FAILED << 8)
        root.clear()

    def test_only_the_first_start_uses_a_spare(self, root: StartBench) -> None:
        """Starts that arrive while one waits for a spare, or right after it, join a cgroup, in order."""
        root.warm()
        first, second, third = (make_spawn(["/bin/sh", "-c", "true"], run=run) for run in "BAC")
        assert root.begin(first)
        root.begin(second)
        root.turn(lambda: not root.starts.under_way, "both")
        root.starts.start(third, 0)
        assert list(root.started) == ["B", "A", "C"]
        names = [os.path.basename(cgroup.path) for cgroup in root.cgroups.values() if cgroup is not None]
        assert [is_spare(name, DAEMON) for name in names] == [True, False, False]
        for spawn in (first, second, third):
            assert Outcome(root.settle(spawn)).code == 0

    def test_used_spare_is_replaced(self, root: StartBench) -> None:
        """A used spare is replaced after a pause in which no start joins a cgroup."""
        first = root.prepare()
        spawn = make_spawn(["/bin/sh", "-c", "true"])
        assert not root.begin(spawn)
        root.starts.tick(root.clock.monotonic_s())
        assert not root.prefork.under_way
        root.clock.advance(0.003)
        root.turn(lambda: root.prefork.ready, "another one")
        assert first not in root.prefork.pids
        assert Outcome(root.settle(spawn)).code == 0

    def test_expected_start_prepares_a_spare(self, root: StartBench) -> None:
        """If a start is expected, a spare is prepared as soon as the zygote listens."""
        root.starts.expect()
        root.turn(lambda: root.prefork.ready, "a spare")

    def test_killed_zygote_is_replaced(self, root: StartBench) -> None:
        """A killed zygote is replaced, and no start waits for the replacement."""
        pid = root.warm()
        os.kill(pid, signal.SIGKILL)
        until(lambda: state(pid) == "Z", "its end")
        spawn = make_spawn(["/bin/sh", "-c", "echo once"])
        root.begin(spawn)
        assert Outcome(root.settle(spawn)).out == b"once\n"
        root.clock.advance(2.0)
        root.turn(lambda: root.prefork._zygote not in (pid, None), "another one")
        assert "the zygote exited with signal 9" in root.log.text
        assert outcome(root, make_spawn(["/bin/sh", "-c", "echo again"], run="S")).out == b"again\n"

    def test_dying_zygotes_are_delayed(self, root: StartBench) -> None:
        """A zygote that keeps dying is replaced with growing delays; meanwhile runs start without it."""

        def gone() -> bool:
            root.watch.round(None)
            return root.prefork._zygote is None

        waits = []
        root.prefork.ensure_zygote()
        for _ in range(8):
            pid = root.prefork._zygote
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            until(gone, "its end")
            due_s = root.prefork.next_s()
            assert due_s is not None
            waits.append(due_s - root.clock.monotonic_s())
            root.clock.advance_to(due_s)
            root.prefork.tick(due_s)
        pid = root.prefork._zygote
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        until(gone, "its end")
        assert waits == pytest.approx([1, 2, 4, 8, 16, 32, 60, 60])
        spawn = make_spawn(["/bin/sh", "-c", "echo once"])
        assert not root.begin(spawn)
        assert Outcome(root.settle(spawn)).out == b"once\n"

    def test_zygote_killed_before_a_request(self, root: StartBench) -> None:
        """If the zygote is stopped and then killed before it reads a request, the root starts the run itself, once."""
        pid = root.warm()
        os.kill(pid, signal.SIGSTOP)
        until(lambda: state(pid) == "T", "it to stop")
        spawn = make_spawn(["/bin/sh", "-c", "echo once"])
        assert root.begin(spawn)
        os.kill(pid, signal.SIGKILL)
        assert Outcome(root.settle(spawn)).out == b"once\n"

    def test_descriptors_of_starts_behind_a_stopped_zygote(
        self, root: StartBench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Of many starts that wait for the zygote, only as many are accepted as there are descriptors for."""
        with monkeypatch.context() as patch:
            patch.setattr("resource.getrlimit", lambda _which: (256, 256))
            patch.setattr("supervisor.host.shortage.open_descriptors", lambda _limit: 256 - 64 - 13 * 10)
            root.starts.descriptors = Descriptors()
            pid = root.warm()
            os.kill(pid, signal.SIGSTOP)
            until(lambda: state(pid) == "T", "it to stop")
            spawns = [make_spawn(["/bin/sh", "-c", "true"], run=f"R{number}") for number in range(20)]
            for spawn in spawns:
                root.begin(spawn)
        assert [*root.starts.under_way] == [spawn.run for spawn in spawns[:13]]
        assert root.waiting == dict.fromkeys((spawn.run for spawn in spawns[13:]), "too few free descriptors")
        os.kill(pid, signal.SIGKILL)
        for spawn in spawns[:13]:
            assert Outcome(root.settle(spawn)).code == 0

    def test_hung_zygote_is_killed(self, root: StartBench) -> None:
        """A stopped zygote is killed after a time limit."""
        pid = root.warm()
        os.kill(pid, signal.SIGSTOP)
        until(lambda: state(pid) == "T", "it to stop")
        spawn = make_spawn(["/bin/sh", "-c", "echo once"])
        assert root.begin(spawn)
        root.clock.advance(2.0)
        assert Outcome(root.settle(spawn)).out == b"once\n"
        root.turn(lambda: root.prefork._zygote != pid, "its end")
        assert "the zygote has not responded for 2 s: killing it" in root.log.text

    def test_no_memory_to_watch_a_spare(self, root: StartBench, monkeypatch: pytest.MonkeyPatch) -> None:
        """If the kernel has no memory to watch a new spare, the root starts the run itself, once."""
        root.warm()
        spawn = make_spawn(["/bin/sh", "-c", "echo once"])
        with monkeypatch.context() as patch:
            patch.setattr(root.watch, "add", no_memory)
            assert not root.begin(spawn)
        assert Outcome(root.settle(spawn)).out == b"once\n"
        assert not root.prefork.under_way
        root.prefork.drop()

    @pytest.mark.parametrize("watched", [0, 1])
    def test_no_memory_to_watch_the_zygote(
        self, root: StartBench, monkeypatch: pytest.MonkeyPatch, watched: int
    ) -> None:
        """If the kernel has no memory to watch a new zygote, the root kills it and starts another one later."""
        before = set(os.listdir("/proc/self/fd"))
        outcomes = iter((*[root.watch.add] * watched, no_memory))

        def add(fd: int, handler: Callable[[int], None]) -> None:
            next(outcomes)(fd, handler)

        with monkeypatch.context() as patch:
            patch.setattr(root.watch, "add", add)
            root.prefork.ensure_zygote()
        assert root.prefork.pids == []
        while root.shown:
            os.close(root.shown.pop())
        assert set(os.listdir("/proc/self/fd")) <= before
        assert "cannot start the zygote: [Errno 12] Cannot allocate memory" in root.log.text
        root.clock.advance(1.0)
        root.warm()

    def test_close_during_a_start(self, root: StartBench, tmp_path: Path) -> None:
        """Closing the queue during a start runs nothing, and leaks no descriptor."""
        side = tmp_path / "side"
        before = set(os.listdir("/proc/self/fd"))
        root.warm()
        assert root.begin(make_spawn(["/bin/sh", "-c", f"echo here > {side}"]))
        root.starts.close()
        while root.shown:
            os.close(root.shown.pop())
        assert set(os.listdir("/proc/self/fd")) <= before
        root.clear()
        assert not side.exists()


class TestDismissedSpare:
    def test_dismissed_spare_executes_nothing(self, root: StartBench, tmp_path: Path) -> None:
        """A prepared spare that is dismissed executes nothing; its run starts once, on request."""
        spare = root.prepare()
        side = tmp_path / "side"
        spawn = make_spawn(["/bin/sh", "-c", f"echo $$ >> {side}"])
        root.starts.prepare(spawn, 0)
        root.starts.tick(float("inf"))
        assert os.waitpid(spare, 0)[1] == zygote._FAILED << 8
        assert not side.exists()
        root.begin(spawn)
        assert Outcome(root.settle(spawn)).code == 0
        assert len(side.read_text().split()) == 1

    @pytest.mark.parametrize("more", [{"cwd": "/"}, {"tty": True}])
    def test_changed_run_dismisses_the_spare(self, root: StartBench, more: dict[str, Any]) -> None:
        """A run that differs from its announcement starts as requested, and the prepared spare executes nothing."""
        spare = root.prepare()
        root.starts.prepare(make_spawn(["/bin/sh", "-c", "echo other"], **more), 0)
        spawn = make_spawn(["/bin/sh", "-c", "echo once >/dev/tty" if "tty" in more else "echo once"], **more)
        root.begin(spawn)
        # If its terminal is closed first, the kernel sends it SIGHUP.
        assert os.waitpid(spare, 0)[1] in {zygote._FAILED << 8, int(signal.SIGHUP) if "tty" in more else -1}
        result = Outcome(root.settle(spawn))
        assert (result.code, result.out, result.word) == (0, b"once\n", b"")

    @pytest.mark.parametrize("announced", [False, True])
    def test_killed_spare(self, root: StartBench, announced: bool) -> None:
        """If the spare is killed and reaped before or after its preparation, the root starts the run itself."""
        spare = root.prepare()
        spawn = make_spawn(["/bin/sh", "-c", "echo once"])
        if announced:
            root.starts.prepare(spawn, 0)
        os.kill(spare, signal.SIGKILL)
        os.waitpid(spare, 0)
        root.begin(spawn)
        assert Outcome(root.settle(spawn)).out == b"once\n"

    @pytest.mark.parametrize("how", ["killed", "another wish"])
    def test_address_passes_to_the_replacement(
        self, root: StartBench, monkeypatch: pytest.MonkeyPatch, how: str
    ) -> None:
        """The sd_notify address passes to the replacement, however long closing the spare's descriptors takes."""
        monkeypatch.setattr("supervisor.root.process.notify_socket._close_in_thread", lambda _close, _closed: True)
        spare = root.prepare()
        notify = f"@ringward/test/{os.getpid()}"
        spawn, other = (make_spawn(["/bin/sh", "-c", f"echo {word}"], notify=notify) for word in ("once", "other"))
        root.starts.prepare(spawn if how == "killed" else other, 0)
        if how == "killed":
            os.kill(spare, signal.SIGKILL)
            os.waitpid(spare, 0)
        root.begin(spawn)
        assert root.refused == {}
        assert Outcome(root.settle(spawn)).out == b"once\n"
        notify_socket = root.notify_sockets["R"]
        assert notify_socket is not None
        notify_socket._sock.close()


def test_announced_run_is_ready(root: StartBench) -> None:
    """An announced run is ready on request, with all its descriptors; another run does not disturb it."""
    spare = root.prepare()
    spawn, other = (make_spawn(["/bin/sh", "-c", "echo $0"], run=run) for run in "AB")
    root.starts.prepare(spawn, 0)
    root.starts.prepare(other, 0)  # one at a time
    before = set(os.listdir("/proc/self/fd"))
    root.begin(other)
    assert Outcome(root.settle(other)).code == 0
    assert not root.begin(spawn)
    assert root.started["A"].pid == spare
    assert Outcome(root.settle(spawn)).code == 0
    assert set(os.listdir("/proc/self/fd")) < before


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.E2BIG, errno.EPERM])
def test_kernel_without_clone_into_cgroup(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """If the kernel cannot create processes in cgroups, later starts join without trying; the log reports it once."""
    require_cgroups()
    refuse = f"def refuse(_cgroup): raise OSError({code}, 'x')\n"
    program = (
        f"import sys\nfrom supervisor.root.spawn import zygote\n{refuse}zygote.copy = refuse\n"
        "del sys.argv[1]\nsys.exit(zygote.main())\n"
    )
    monkeypatch.setattr("supervisor.ipc.child_process.RINGWARD", ("-I", "-c", program))
    with bench() as root:
        root.warm()
        first, second = (make_spawn(["/bin/sh", "-c", "echo here"], run=run) for run in "AB")
        assert root.begin(first)
        assert Outcome(root.settle(first)).out == b"here\n"
        root.turn(lambda: root.prefork._zygote is None, "the end of the zygote")
        assert not root.begin(second)
        assert Outcome(root.settle(second)).out == b"here\n"
        assert root.prefork._zygote is None
        assert root.log.text.count(os.strerror(code)) == 1
