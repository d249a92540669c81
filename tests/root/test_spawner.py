"""Starts by the spawner: as by ourselves, and whatever happens to it, each exactly once."""

import ast
import contextlib
import errno
import os
import select
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.messages import Spawn
from supervisor.root import shim, spawner
from supervisor.root.cgroups import Cgroup, Cgroups
from supervisor.root.spawn import Plan, Started
from supervisor.root.starts import Start
from tests.root.births import Nursery, nursery
from tests.root.test_spawn import read_all, wanted
from tests.waiting import until


class Supply:
    """Cgroups for runs."""

    def __init__(self, place: Cgroups) -> None:
        self._place = place
        self.made: list[Cgroup] = []

    def new(self) -> Cgroup:
        self.made.append(self._place.make(f"test-{os.getpid()}-{len(self.made)}"))
        return self.made[-1]


@pytest.fixture
def cgroups() -> Iterator[Supply]:
    place = Cgroups.find()
    if place is None:
        pytest.skip("there is no cgroup version 2 hierarchy in which we may make cgroups")
    supply = Supply(place)
    yield supply
    for cgroup in supply.made:
        until(cgroup.remove, f"the processes of {cgroup.path} to end")
    place.close()


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> Iterator[Nursery]:
    """A root that is not in a hurry, however busy the machine is."""
    monkeypatch.setattr("supervisor.root.starts._PATIENCE_S", 3600.0)
    with nursery() as one:
        yield one


class Outcome:
    """What became of a start, at its end."""

    def __init__(self, started: Started) -> None:
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


def outcome(root: Nursery, spawn: Spawn, cgroup: Cgroup, nofile: int | None = None) -> Outcome:
    """Start it by the spawner, and wait for its end."""
    root.warm()
    assert root.begin(spawn, cgroup, nofile)
    return Outcome(root.settle(spawn))


def state(pid: int) -> str:
    """As in proc_pid_stat(5)."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


class TestTheNewProcess:
    def test_it_is_ours_and_in_its_cgroup(self, root: Nursery, cgroups: Supply) -> None:
        """A child of the root, leader of a session of its own, in its cgroup before anything of its own runs."""
        cgroup = cgroups.new()
        script = "cat /proc/self/cgroup; echo $PPID $$; cut -d' ' -f5,6 /proc/$$/stat"
        found = outcome(root, wanted(["/bin/sh", "-e", "-c", script]), cgroup)
        lines = found.out.decode().splitlines()
        assert [line for line in lines if line.startswith("0::") and line.endswith(os.path.basename(cgroup.path))]
        parent, own = lines[-2].split()
        assert (int(parent), lines[-1], found.code, found.word) == (os.getpid(), f"{own} {own}", 0, b"")

    def test_it_has_nothing_of_ours(self, root: Nursery, cgroups: Supply) -> None:
        """No descriptor but the three, no signal blocked or ignored, an empty input, and the environment of the run."""
        script = "cat; ls /proc/self/fd | wc -l; grep -E 'Sig(Blk|Ign)' /proc/self/status; env"
        found = outcome(root, wanted(["/bin/sh", "-e", "-c", script], env={"A": "1"}), cgroups.new())
        lines = found.out.decode().splitlines()
        assert lines[0] == "4"  # with that of the listing
        internal = 1 << 31 | 1 << 32  # glibc's own, which its posix_spawn ignores in the spawner
        assert [int(line.split()[1], 16) & ~internal for line in lines[1:3]] == [0, 0]
        assert {line.split("=")[0] for line in lines[3:]} == {"A", "PATH", "PWD"}

    def test_a_terminal(self, root: Nursery, cgroups: Supply) -> None:
        """Both outputs are its controlling terminal."""
        script = "for fd in 0 1 2; do [ -t $fd ] && echo $fd; done; echo to tty >/dev/tty; echo to stderr >&2"
        found = outcome(root, wanted(["/bin/sh", "-c", script], tty=True), cgroups.new())
        assert (found.code, found.out) == (0, b"1\n2\nto tty\nto stderr\n")

    def test_the_shell_does_the_rest(self, root: Nursery, cgroups: Supply, tmp_path: Path) -> None:
        """Directory, umask and limits, over the status pipe as ever."""
        spawn = wanted(["sh", "-c", "pwd; umask; ulimit -Sn; exit 3"], str(tmp_path), umask=0o027)
        found = outcome(root, spawn, cgroups.new(), nofile=99)
        assert (found.code, found.out.decode(), found.word) == (3, f"{tmp_path}\n0027\n99\n", b"")

    def test_no_shell_in_between(
        self, root: Nursery, cgroups: Supply, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        """A command that needs a directory, a umask and a limit at most is executed at once, found as a shell does."""
        monkeypatch.setattr(shim, "SHELL", "/no/such/shell")
        script = "import os, resource; print(os.getcwd(), os.umask(0), resource.getrlimit(7)[0], os.read(0, 1))"
        env = {"PATH": f"/no/such:{os.path.dirname(sys.executable)}", "PWD": "/old", "OLDPWD": "/older", "A": "1"}
        script += "; print(sorted(os.environ.items()))"
        spawn = wanted([os.path.basename(sys.executable), "-c", script], str(tmp_path), umask=0o027, env=env)
        found = outcome(root, spawn, cgroups.new(), nofile=99)
        lines = found.out.decode().splitlines()
        assert (found.code, found.word, lines[0]) == (0, b"", f"{tmp_path} {0o027} 99 b''")
        seen = dict(ast.literal_eval(lines[1]))
        assert (seen["PWD"], seen["A"], "OLDPWD" in seen) == (str(tmp_path), "1", False)

    def test_a_script_without_a_first_line(self, root: Nursery, cgroups: Supply, tmp_path: Path) -> None:
        """Is one for the shell, as ever."""
        script = tmp_path / "script"
        script.write_text("echo here; exit 4\n")
        script.chmod(0o755)
        found = outcome(root, wanted([str(script)]), cgroups.new())
        assert (found.code, found.out, found.word) == (4, b"here\n", b"")

    @pytest.mark.parametrize(
        ("argv", "more", "words"),
        [
            (["/no/such/command"], {}, "does not exist"),
            (["true"], {"cwd": "/no/such/directory"}, "/no/such/directory cannot be entered"),
            (["true"], {"limits": {"nofile": 1 << 30}}, "limits.nofile = 1073741824 cannot be set"),
            (["/etc/passwd"], {}, "permission denied"),
        ],
    )
    def test_what_cannot_start_says_why(
        self, root: Nursery, cgroups: Supply, argv: list[str], more: dict[str, Any], words: str
    ) -> None:
        """As it would without the spawner."""
        spawn = wanted(argv, **more)
        assert words in (shim.explain(spawn, outcome(root, spawn, cgroups.new()).word.decode()) or "")

    @pytest.mark.parametrize("cwd", [None, "/"])
    def test_a_shell_that_cannot_be_executed(
        self, root: Nursery, cgroups: Supply, monkeypatch: pytest.MonkeyPatch, cwd: str | None
    ) -> None:
        """With a status pipe and without, the reason is the kernel's."""
        monkeypatch.setattr(shim, "SHELL", "/no/such/shell")
        spawn = wanted(["/no/such/shell", "-e", "-c", "true"], cwd)
        found = outcome(root, spawn, cgroups.new())
        assert shim.explain(spawn, found.word.decode()) == "cannot be started: No such file or directory"

    @pytest.mark.parametrize(("argv", "why"), [(["x" * 200_000], "too long"), (["a\0b"], "null")])
    def test_what_the_spawner_is_not_given(self, root: Nursery, cgroups: Supply, argv: list[str], why: str) -> None:
        """What is too large or impossible fails here, with its reason, and leaves nothing open."""
        root.warm()
        before = set(os.listdir("/proc/self/fd"))
        spawn = wanted(["/bin/sh", "-c", *argv])
        assert not root.begin(spawn, cgroups.new())
        assert why in root.failed[spawn.run]
        assert set(os.listdir("/proc/self/fd")) <= before


class TestTheSpawner:
    def test_nothing_leaks(self, root: Nursery, cgroups: Supply) -> None:
        """After a thousand starts both sides have the descriptors that they had after the first."""
        pid = root.warm()
        cgroup = cgroups.new()
        held = []
        for number in range(1000):
            spawn = wanted(["/bin/sh", "-e", "-c", "exit 5"], run=f"R{number}")
            assert root.begin(spawn, cgroup)
            assert Outcome(root.settle(spawn)).code == 5
            if number in (0, 999):
                until(lambda: state(pid) == "S", "the spawner to wait")
                held.append([set(os.listdir(f"/proc/{one}/fd")) for one in (pid, "self")])
        assert all(after <= before for before, after in zip(*held, strict=True))

    def test_it_ends_with_the_root(self, root: Nursery) -> None:
        """As soon as nobody holds the other end of its socket."""
        pid = root.warm()
        root.starts.close()
        assert not os.path.exists(f"/proc/{pid}")

    def test_only_the_first_of_many(self, root: Nursery, cgroups: Supply, monkeypatch: pytest.MonkeyPatch) -> None:
        """What comes while it has one, or right after that, starts without it, and in order."""
        monkeypatch.setattr("supervisor.root.starts._QUIET_S", 3600.0)
        root.warm()
        first, second, third = (wanted(["/bin/sh", "-c", "true"], run=run) for run in "BAC")
        assert root.begin(first, cgroups.new())
        root.begin(second, cgroups.new())
        root.turn(lambda: not root.starts.under_way, "both")
        root.starts.begin(Start(third, Plan(third, {}, None, cgroups.new()), None, []))
        assert list(root.started) == ["B", "A", "C"]
        for spawn in (first, second, third):
            assert Outcome(root.settle(spawn)).code == 0

    def test_there_is_another_one(self, root: Nursery, cgroups: Supply) -> None:
        """One that was killed is replaced, and until then nothing waits."""
        root.starts._again_s = 0.0
        pid = root.warm()
        os.kill(pid, signal.SIGKILL)
        until(lambda: state(pid) == "Z", "its end")
        spawn = wanted(["/bin/sh", "-c", "echo once"])
        root.begin(spawn, cgroups.new())
        assert Outcome(root.settle(spawn)).out == b"once\n"
        root.turn(lambda: root.starts.pid not in (pid, None), "another one")
        assert "the spawner ended with signal 9" in root.log.text
        assert outcome(root, wanted(["/bin/sh", "-c", "echo again"]), cgroups.new()).out == b"again\n"

    def test_one_after_the_other_ends(self, root: Nursery, cgroups: Supply) -> None:
        """There is another one less and less often; meanwhile runs start the other way."""
        waits = []
        root.starts.wake()
        for _ in range(8):
            pid = root.starts.pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            root.turn(lambda: root.starts.pid is None, "its end")
            due_s = root.starts.next_s()
            assert due_s is not None
            waits.append(due_s - root.starts._launched_s)
            root.starts._launched_s -= waits[-1]  # so much time passes
            root.starts.tend(due_s)
        pid = root.starts.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        root.turn(lambda: root.starts.pid is None, "its end")
        assert waits == pytest.approx([1, 2, 4, 8, 16, 32, 60, 60])
        spawn = wanted(["/bin/sh", "-c", "echo once"])
        assert not root.begin(spawn, cgroups.new())
        assert Outcome(root.settle(spawn)).out == b"once\n"

    def test_it_is_killed_with_a_start_in_hand(self, root: Nursery, cgroups: Supply) -> None:
        """Stopped before it reads, then killed: the start goes the other way, once."""
        pid = root.warm()
        os.kill(pid, signal.SIGSTOP)
        until(lambda: state(pid) == "T", "it to stop")
        spawn = wanted(["/bin/sh", "-c", "echo once"])
        assert root.begin(spawn, cgroups.new())
        os.kill(pid, signal.SIGKILL)
        assert Outcome(root.settle(spawn)).out == b"once\n"

    def test_it_hangs(self, root: Nursery, cgroups: Supply) -> None:
        """A stopped one is waited for, for a while, and killed."""
        pid = root.warm()
        os.kill(pid, signal.SIGSTOP)
        until(lambda: state(pid) == "T", "it to stop")
        spawn = wanted(["/bin/sh", "-c", "echo once"])
        assert root.begin(spawn, cgroups.new())
        deadline_s = root.starts.next_s()
        assert deadline_s is not None
        root.starts.tend(deadline_s)
        assert Outcome(root.settle(spawn)).out == b"once\n"
        root.turn(lambda: root.starts.pid != pid, "its end")
        assert "the spawner has done nothing for 3600 s: killing it" in root.log.text

    def test_a_process_that_nobody_knows(self, root: Nursery, cgroups: Supply, tmp_path: Path) -> None:
        """Made, and then given up, it ends without having executed anything; so nothing runs twice."""
        root.warm()
        side = tmp_path / "side"
        spawn = wanted(["/bin/sh", "-c", f"echo $$ >> {side}"])
        cgroup = cgroups.new()
        assert root.begin(spawn, cgroup)
        made = until(cgroup.members, "its process")
        root.starts.tend(float("inf"))
        assert Outcome(root.settle(spawn)).code == 0
        assert [os.waitpid(pid, 0)[1] for pid in made] == [spawner._FAILED << 8]
        assert len(side.read_text().split()) == 1

    @pytest.mark.parametrize("more", [{"cwd": "/"}, {"tty": True}])
    def test_what_is_given_up_meddles_with_nothing(self, root: Nursery, cgroups: Supply, more: dict[str, Any]) -> None:
        """It shares the outputs of the one that follows it: it says nothing there, and its terminal is not taken."""
        root.warm()
        spawn = wanted(["/bin/sh", "-c", "echo once >/dev/tty" if "tty" in more else "echo once"], **more)
        cgroup = cgroups.new()
        assert root.begin(spawn, cgroup)
        (pid,) = until(cgroup.members, "its process")
        until(lambda: state(pid) == "S", "it to wait for our word")
        assert root.starts._channel is not None
        select.select([root.starts._channel], [], [])  # we have not heard yet what it is
        root.starts.tend(float("inf"))
        assert os.waitpid(pid, 0)[1] == spawner._FAILED << 8
        found = Outcome(root.settle(spawn))
        assert (found.code, found.out, found.word) == (0, b"once\n", b"")

    def test_a_process_that_is_killed_before_it_is_known(self, root: Nursery, cgroups: Supply) -> None:
        """Reaped with the strangers even: the start goes the other way."""
        root.warm()
        spawn = wanted(["/bin/sh", "-c", "echo once"])
        cgroup = cgroups.new()
        assert root.begin(spawn, cgroup)
        (pid,) = until(cgroup.members, "its process")
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        assert Outcome(root.settle(spawn)).out == b"once\n"

    def test_closed_with_a_start_in_hand(self, root: Nursery, cgroups: Supply, tmp_path: Path) -> None:
        """Nothing of that runs, and nothing stays open."""
        side = tmp_path / "side"
        before = set(os.listdir("/proc/self/fd"))
        root.warm()
        cgroup = cgroups.new()
        root.begin(wanted(["/bin/sh", "-c", f"echo here > {side}"]), cgroup)
        root.starts.close()
        while root.shown:
            os.close(root.shown.pop())
        assert set(os.listdir("/proc/self/fd")) <= before
        with contextlib.suppress(ChildProcessError):  # none was made
            os.waitpid(-1, 0)
        assert not side.exists()


@pytest.mark.parametrize("code", [errno.ENOSYS, errno.E2BIG, errno.EPERM])
def test_a_kernel_that_cannot(cgroups: Supply, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    """Where processes cannot be made in cgroups they join, from then on without trying, and the log says so once."""
    refuse = f"def refuse(_cgroup): raise OSError({code}, 'x')\n"
    program = (
        f"import sys\nfrom supervisor.root import spawner\n{refuse}spawner.copy = refuse\nsys.exit(spawner.main())\n"
    )
    monkeypatch.setattr("supervisor.root.starts._PROGRAM", ["-I", "-c", program])
    with nursery() as root:
        assert outcome(root, wanted(["/bin/sh", "-c", "echo once"]), cgroups.new()).out == b"once\n"
        root.turn(lambda: root.starts.pid is None, "the end of the spawner")
        spawn = wanted(["/bin/sh", "-c", "echo again"])
        assert not root.begin(spawn, cgroups.new())
        assert Outcome(root.settle(spawn)).out == b"again\n"
        assert root.starts.pid is None
        assert root.log.text.count(os.strerror(code)) == 1
