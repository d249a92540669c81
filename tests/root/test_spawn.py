import contextlib
import os
import shutil
from pathlib import Path

import pytest

from supervisor.messages import Spawn
from supervisor.root import spawn as spawning

SHELLS = ["dash", "bash", "busybox"]


def wanted(
    argv: list[str],
    cwd: str | None = None,
    env: dict[str, str] | None = None,
    *,
    tty: bool = False,
    merge: bool = False,
) -> Spawn:
    return Spawn(
        run="R",
        task="t",
        argv=argv,
        env=env or {},
        cwd=cwd,
        log="",
        log_max_bytes=1,
        stop_signal=15,
        grace_ms=1,
        tty=tty,
        merge_stderr=merge,
    )


def read_all(fd: int) -> bytes:
    """What a pipe or terminal holds; a terminal gives it in pieces, and EIO at its end."""
    data = b""
    with contextlib.suppress(OSError):
        while more := os.read(fd, 65536):
            data += more
    return data


class Outcome:
    def __init__(self, spawn: Spawn, nofile: int | None = None) -> None:
        started = spawning.start(spawn, {"PATH": os.environ["PATH"]}, nofile)
        _, status = os.waitpid(started.pid, 0)
        self.code = os.waitstatus_to_exitcode(status)
        self.out, self.err = (b"" if fd is None else read_all(fd) for fd in started.pipes)
        self.word = "" if started.status_fd is None else os.read(started.status_fd, 64).decode().strip()
        for fd in (*started.pipes, started.status_fd, started.pidfd):
            if fd is not None:
                os.close(fd)


@pytest.fixture(params=SHELLS)
def _shell(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the shells that a distribution has as /bin/sh."""
    found = shutil.which(request.param)
    assert found, f"{request.param} is not installed: .ci/run installs it"
    shell = tmp_path / "sh"  # busybox takes its applet from the name
    shell.symlink_to(found)
    monkeypatch.setattr(spawning, "_SHELL", str(shell))


@pytest.mark.usefixtures("_shell")
class TestShim:
    def test_a_command_runs_in_its_directory(self, tmp_path: Path) -> None:
        """The working directory is entered, and the status pipe closes without a word."""
        outcome = Outcome(wanted(["sh", "-c", "pwd; exit 3"], cwd=str(tmp_path)))
        assert (outcome.code, outcome.out.decode(), outcome.word) == (3, f"{tmp_path}\n", "")

    def test_standard_input_is_empty(self, tmp_path: Path) -> None:
        """The command reads end of file, not the status pipe."""
        outcome = Outcome(wanted(["cat"], cwd=str(tmp_path)))
        assert (outcome.code, outcome.out, outcome.word) == (0, b"", "")

    def test_no_descriptor_leaks(self, tmp_path: Path) -> None:
        """The command has its three standard descriptors and nothing of ours."""
        for fd in map(int, os.listdir("/proc/self/fd")):
            if fd > 2:  # what whoever started the tests left open is none of ours; the root does the same at its start
                with contextlib.suppress(OSError):  # EBADF: the descriptor of the listing
                    os.set_inheritable(fd, False)
        outcome = Outcome(wanted(["sh", "-c", "for f in /proc/$$/fd/*; do readlink $f; done"], cwd=str(tmp_path)))
        pipes = [line for line in outcome.out.split() if line.startswith(b"pipe:")]
        assert len(pipes) == 2, outcome.out

    def test_a_missing_directory_is_told(self) -> None:
        """A directory that cannot be entered is told apart from anything the command could do."""
        assert Outcome(wanted(["true"], cwd="/no/such/directory")).word == "cwd"

    def test_a_missing_command_is_told(self) -> None:
        """So is a command that does not exist."""
        assert Outcome(wanted(["/no/such/command"])).word == "exec 127"

    def test_a_missing_interpreter_is_told(self, tmp_path: Path) -> None:
        """So is a script whose interpreter does not exist."""
        script = tmp_path / "script"
        script.write_text("#!/no/such/interpreter\n")
        script.chmod(0o700)
        assert Outcome(wanted([str(script)])).word == "exec 127"

    def test_a_file_that_is_no_program_is_told(self, tmp_path: Path) -> None:
        """So is a file without the permission to execute."""
        script = tmp_path / "script"
        script.write_text("true\n")
        assert Outcome(wanted([str(script)])).word == "exec 126"

    def test_exit_statuses_of_the_command_are_its_own(self) -> None:
        """A command that itself ends with 125, 126 or 127 was started."""
        for code in (125, 126, 127):
            outcome = Outcome(wanted(["sh", "-c", f"exit {code}"]))
            assert (outcome.code, outcome.word) == (code, "")

    def test_the_descriptor_limit_is_restored(self) -> None:
        """The soft limit that we raised for ourselves is the original one in the command."""
        assert Outcome(wanted(["sh", "-c", "ulimit -Sn"]), nofile=123).out == b"123\n"

    def test_odd_arguments_arrive_as_they_are(self) -> None:
        """Nothing is expanded, split or read as an option."""
        odd = ["-n", "a b", "$HOME", "*", "", "'\"\\", "\n"]
        outcome = Outcome(wanted(["sh", "-c", 'printf "%s|" "$@"', "x", *odd]))
        assert outcome.out.decode() == "".join(f"{one}|" for one in odd)

    def test_the_environment_is_what_was_asked_for(self, tmp_path: Path) -> None:
        """No helper variable of the shim reaches the command."""
        outcome = Outcome(wanted(["env"], cwd=str(tmp_path), env={"A": "1"}))
        names = {line.split(b"=")[0] for line in outcome.out.splitlines()}
        assert {b"A", b"PATH"} <= names <= {b"A", b"PATH", b"PWD", b"SHLVL", b"_"}

    def test_a_terminal(self, tmp_path: Path) -> None:
        """Both outputs are the controlling terminal of a session of its own; standard input is still empty."""
        script = "cat; for fd in 0 1 2; do [ -t $fd ] && echo $fd; done; echo to tty >/dev/tty; echo to stderr >&2"
        outcome = Outcome(wanted(["sh", "-c", script], cwd=str(tmp_path), tty=True))
        assert (outcome.code, outcome.out, outcome.err) == (0, b"1\n2\nto tty\nto stderr\n", b"")
        assert outcome.word == ""

    def test_what_cannot_start_in_a_terminal_is_told(self) -> None:
        """As with pipes."""
        assert Outcome(wanted(["/no/such/command"], tty=True)).word == "exec 127"


def test_a_plain_shell_command_needs_no_shim() -> None:
    """The common case executes /bin/sh once."""
    outcome = Outcome(wanted(["/bin/sh", "-e", "-c", "echo out; echo err >&2; false; echo never"]))
    assert (outcome.code, outcome.out, outcome.err) == (1, b"out\n", b"err\n")
    assert not spawning.needs_shim(wanted(["/bin/sh"]), None)


def test_signals_are_as_if_nobody_had_touched_them() -> None:
    """No signal that a program can use is ignored or blocked in the child, SIGPIPE included."""
    outcome = Outcome(wanted(["/bin/sh", "-c", "grep -E 'Sig(Blk|Ign)' /proc/self/status"]))
    # Signals 32 and 33 are glibc's own; its posix_spawn ignores them in the child until the program sets them up.
    internal = 1 << 31 | 1 << 32
    masks = [int(line.split()[1], 16) & ~internal for line in outcome.out.splitlines()]
    assert masks == [0, 0]


def test_a_failed_start_leaves_nothing_open() -> None:
    """An argument list that is too long is an error, and no descriptor stays."""
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="too long"):
        spawning.start(wanted(["/bin/sh", "-c", "x" * 200_000]), {}, None)
    with pytest.raises(ValueError, match="null"):
        spawning.start(wanted(["/bin/sh", "-c", "a\0b"]), {}, None)
    assert set(os.listdir("/proc/self/fd")) == before


def test_a_terminal_has_a_size_and_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs learn how wide it is, and TERM is set unless the daemon or the definition has one."""
    monkeypatch.delenv("TERM", raising=False)
    show = ["/bin/sh", "-c", 'stty size </dev/tty; echo "$TERM"']
    assert Outcome(wanted(show, tty=True)).out == b"40 120\nxterm-256color\n"
    assert Outcome(wanted(show, tty=True, env={"TERM": "vt100"})).out == b"40 120\nvt100\n"
    assert Outcome(wanted(["/bin/sh", "-c", 'echo "$TERM"'])).out == b"\n"


def test_merged_output_is_one_pipe() -> None:
    """Standard error goes where standard output goes."""
    outcome = Outcome(wanted(["/bin/sh", "-c", "echo 1; echo 2 >&2; echo 3"], merge=True))
    assert (outcome.out, outcome.err) == (b"1\n2\n3\n", b"")


def test_a_failed_start_leaves_no_terminal_open() -> None:
    """An argument list that is too long is an error, and no descriptor stays."""
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="too long"):
        spawning.start(wanted(["/bin/sh", "-c", "x" * 200_000], tty=True), {}, None)
    assert set(os.listdir("/proc/self/fd")) == before


def test_our_end_of_a_terminal_is_ours_alone() -> None:
    """It does not block, and no program that is started later inherits it."""
    started = spawning.start(wanted(["/bin/sh", "-c", "exit"], tty=True), {}, None)
    master = started.pipes[0]
    assert not os.get_blocking(master)
    assert not os.get_inheritable(master)
    os.waitpid(started.pid, 0)
    os.close(master)
    os.close(started.pidfd)
