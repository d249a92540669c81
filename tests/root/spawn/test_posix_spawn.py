import contextlib
import errno
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from supervisor.host import prepared_command
from supervisor.host.cgroups import Cgroup
from supervisor.host.prepared_command import NO_INTERPRETER, FirstEnvironment
from supervisor.ipc.messages import Spawn
from supervisor.root.spawn import posix_spawn as spawning
from supervisor.root.spawn import shim
from tests.support.host_features import require, require_cgroups
from tests.support.waiting import until

SHELLS = ["dash", "bash", "busybox"]
ODD = {
    "app.name": "shop",
    "a-b": "two\nlines",
    "1st": "\udcff",
    "sp ace": "",
    "é": "ü",
    "BASH_FUNC_f%%": "() { :; }",
    "IFS": "x",
    "OPTIND": "none",
    "PS1": "$",
}
"""Variables that some shells drop, set or refuse."""


def make_spawn(
    argv: list[str],
    cwd: str | None = None,
    env: dict[str, str] | None = None,
    *,
    tty: bool = False,
    merge: bool = False,
    run: str = "R",
    **more: Any,
) -> Spawn:
    return Spawn(
        run=run,
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
        **more,
    )


UNEXECUTABLE = {
    "no-such-command": "exec 127 No such file or directory",
    "missing": "exec 127 No such file or directory",
    "no-interpreter": f"exec 127 {NO_INTERPRETER}",
    "carriage-return": f"exec 127 {NO_INTERPRETER}",
    "not-executable": "exec 126 Permission denied",
    "directory": "exec 126 Permission denied",
    "loop": "exec 126 Too many levels of symbolic links",
    "not-executable/file": "exec 127 No such file or directory",
}
"""Commands that cannot be executed, and the reports."""


def make_unexecutable(directory: Path) -> None:
    """Make the files of UNEXECUTABLE."""
    for name, text, mode in (
        ("no-interpreter", "#! /no/such/interpreter -e\n", 0o755),
        ("carriage-return", "#!/bin/sh\r\n", 0o755),
        ("not-executable", "true\n", 0o644),
    ):
        (directory / name).write_text(text)
        (directory / name).chmod(mode)
    (directory / "directory").mkdir()
    (directory / "loop").symlink_to("loop")


def read_all(fd: int) -> bytes:
    """Return the content of a pipe or terminal; a terminal delivers pieces, and EIO at its end."""
    data = b""
    with contextlib.suppress(OSError):
        while more := os.read(fd, 65536):
            data += more
    return data


def variables(printed: bytes) -> dict[str, str]:
    """Parse the output of ``printenv -0``."""
    return dict(os.fsdecode(entry).split("=", 1) for entry in printed.split(b"\0") if entry)


class Outcome:
    def __init__(
        self,
        spawn: Spawn,
        nofile: int | None = None,
        cgroup: Cgroup | None = None,
        sockets: Sequence[int] = (),
    ) -> None:
        started = spawning.start(spawn, {"PATH": os.environ["PATH"]}, nofile, cgroup, sockets)
        _, status = os.waitpid(started.pid, 0)
        self.code = os.waitstatus_to_exitcode(status)
        self.out, self.err = (b"" if fd is None else read_all(fd) for fd in started.pipes)
        self.word = "" if started.status_fd is None else os.read(started.status_fd, 256).decode().strip()
        for fd in (*started.pipes, started.status_fd, started.pidfd):
            if fd is not None:
                os.close(fd)


@pytest.fixture(params=SHELLS)
def _shell(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each shell that a distribution uses as /bin/sh, in a directory that every user can read."""
    program = require(request.param)
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)
        shell = f"{directory}/sh"  # busybox takes its applet from the name
        os.symlink(program, shell)
        monkeypatch.setattr(shim, "SHELL", shell)
        yield


@pytest.fixture
def cgroup() -> Iterator[Cgroup]:
    """A cgroup for one run."""
    place = require_cgroups()
    made = place.make(f"test-{os.getpid()}")
    yield made
    until(made.remove, "the cgroup to be empty")
    place.close()


@pytest.mark.usefixtures("_shell")
class TestShim:
    def test_working_directory(self, tmp_path: Path) -> None:
        """The command runs in its working directory, and the status pipe closes without a message."""
        outcome = Outcome(make_spawn(["sh", "-c", "pwd; exit 3"], cwd=str(tmp_path)))
        assert (outcome.code, outcome.out.decode(), outcome.word) == (3, f"{tmp_path}\n", "")

    def test_standard_input_is_empty(self, tmp_path: Path) -> None:
        """The command reads end of file instead of the status pipe."""
        outcome = Outcome(make_spawn(["cat"], cwd=str(tmp_path)))
        assert (outcome.code, outcome.out, outcome.word) == (0, b"", "")

    def test_no_descriptor_leaks(self, tmp_path: Path) -> None:
        """The command has its three standard descriptors and none of the root's."""
        for fd in map(int, os.listdir("/proc/self/fd")):
            if fd > 2:  # inherited from the test runner; the root does the same when it starts
                with contextlib.suppress(OSError):  # EBADF: the descriptor of the listing
                    os.set_inheritable(fd, False)
        outcome = Outcome(make_spawn(["sh", "-c", "for f in /proc/$$/fd/*; do readlink $f; done"], cwd=str(tmp_path)))
        pipes = [line for line in outcome.out.split() if line.startswith(b"pipe:")]
        assert len(pipes) == 2, outcome.out

    def test_missing_directory(self) -> None:
        """An inaccessible directory is reported differently from any failure of the command."""
        assert Outcome(make_spawn(["true"], cwd="/no/such/directory")).word == "cwd"

    @pytest.mark.parametrize("way", [{}, {"cwd": "/"}, {"env": ODD}, {"stdin_open": True}, {"limits": {"nofile": 64}}])
    @pytest.mark.parametrize(("name", "word"), [*UNEXECUTABLE.items()])
    def test_command_that_cannot_be_executed(self, tmp_path: Path, name: str, word: str, way: dict[str, Any]) -> None:
        """The reason is reported once, and nothing of a shell is in the output."""
        make_unexecutable(tmp_path)
        command = name if name == "no-such-command" else f"{tmp_path}/{name}"
        outcome = Outcome(make_spawn([command], **way))
        expected = f"exec 127 {prepared_command.NOT_EXECUTABLE}" if "limits" in way else word
        assert (outcome.word, outcome.out, outcome.err) == (expected, b"", b"")

    @pytest.mark.parametrize("way", [{}, {"env": ODD}])
    def test_command_that_only_the_kernel_refuses(self, tmp_path: Path, way: dict[str, Any]) -> None:
        """A reason that only execve tells is reported by Python, or stands in the output once, and nothing hides it."""
        busy = tmp_path / "busy"
        shutil.copy("/bin/true", busy)
        with busy.open("ab"):
            spawn = make_spawn([str(busy)], **way)
            outcome = Outcome(spawn)
        assert outcome.code == 126
        reason = shim.explain(spawn, outcome.word) or ""
        if way:
            assert (reason, outcome.err) == (f"cannot execute {busy}: Text file busy", b"")
        else:
            assert reason == f"cannot execute {busy}: the last line of its output says why"
            assert outcome.err.count(b"Text file busy") == 1

    def test_exit_statuses_of_the_shim(self) -> None:
        """A command that itself ends with 125, 126 or 127 counts as started."""
        for code in (125, 126, 127):
            outcome = Outcome(make_spawn(["sh", "-c", f"exit {code}"]))
            assert (outcome.code, outcome.word) == (code, "")

    def test_descriptor_limit_is_restored(self) -> None:
        """The command has the original soft limit of descriptors, which the root raised only for itself."""
        assert Outcome(make_spawn(["sh", "-c", "ulimit -Sn"]), nofile=123).out == b"123\n"

    def test_odd_arguments_arrive_unchanged(self) -> None:
        """Arguments are neither expanded nor split nor read as options."""
        odd = ["-n", "a b", "$HOME", "*", "", "'\"\\", "\n"]
        outcome = Outcome(make_spawn(["sh", "-c", 'printf "%s|" "$@"', "x", *odd]))
        assert outcome.out.decode() == "".join(f"{odd_word}|" for odd_word in odd)

    def test_environment_is_exact(self, tmp_path: Path) -> None:
        """No helper variable of the shim reaches the command."""
        outcome = Outcome(make_spawn(["env"], cwd=str(tmp_path), env={"A": "1"}))
        names = {line.split(b"=")[0] for line in outcome.out.splitlines()}
        assert {b"A", b"PATH"} <= names <= {b"A", b"PATH", b"PWD", b"SHLVL", b"_"}

    @pytest.mark.parametrize(
        "more",
        [{}, {"cwd": "/"}, {"limits": {"nofile": 64, "stack": 1 << 20}}, {"umask": 0o22}, {"stdin_open": True}],
    )
    def test_odd_variables_arrive(self, more: dict[str, Any]) -> None:
        """A variable with any name reaches the command with its value, and no other variable is added."""
        outcome = Outcome(make_spawn(["printenv", "-0"], env=ODD, **more))
        assert {name: variables(outcome.out).get(name) for name in ODD} == ODD
        assert not [name for name in variables(outcome.out) if name.startswith(("RINGWARD_", "LC_"))]
        assert (outcome.code, outcome.err, outcome.word) == (0, b"", "")

    def test_largest_variable_arrives(self) -> None:
        """A variable of the kernel's maximum size passes through the shell in parts."""
        largest = "x" * (128 * 1024 - len("large.name=\0"))
        outcome = Outcome(make_spawn(["bash", "-c", "printenv large.name | wc -c"], "/", env={"large.name": largest}))
        assert int(outcome.out) == len(largest) + 1

    def test_odd_variables_change_nothing_else(self, tmp_path: Path) -> None:
        """Directory, standard input, signals, missing commands and scripts work the same with odd variables."""
        script = tmp_path / "script"
        script.write_text("pwd; readlink /proc/self/fd/0; exit 4\n")
        script.chmod(0o755)
        for argv, cwd, code, out, word in (
            (["sh", "-c", "pwd; readlink /proc/self/fd/0; exit 3"], str(tmp_path), 3, f"{tmp_path}\n/dev/null\n", ""),
            ([str(script)], "/", 4, "/\n/dev/null\n", ""),
            (["sh", "-c", "kill -PIPE $$"], None, -13, "", ""),
            (["sh", "-c", 'echo "$PWD"'], str(tmp_path), 0, f"{tmp_path}\n", ""),
            (["/no/such/command"], None, 127, "", "exec 127 No such file or directory"),
            (["no-such-command"], None, 127, "", "exec 127 No such file or directory"),
            (["/etc/passwd"], None, 126, "", "exec 126 Permission denied"),
            (["true"], "/no/such", 125, "", "cwd"),
        ):
            outcome = Outcome(make_spawn(argv, cwd, env={"app.name": "shop", "PATH": "/usr/bin:/bin"}))
            assert (outcome.code, outcome.out.decode(), outcome.err, outcome.word) == (code, out, b"", word)
        missing = Outcome(make_spawn(["true"], env={"app.name": "shop"}, stdin_file="/no/such"))
        assert missing.word == "stdin"

    def test_odd_variables_reach_another_shell(self) -> None:
        """Odd variables reach the shell that the run names, even through other commands."""
        bash = require("bash")
        outcome = Outcome(make_spawn([bash, "-e", "-c", "tr '\\0' '\\n' </proc/$$/environ"], "/", env=ODD))
        assert b"app.name=shop\n" in outcome.out

    def test_terminal(self, tmp_path: Path) -> None:
        """Both outputs are the controlling terminal of a separate session; standard input is still empty."""
        script = "cat; for fd in 0 1 2; do [ -t $fd ] && echo $fd; done; echo to tty >/dev/tty; echo to stderr >&2"
        outcome = Outcome(make_spawn(["sh", "-c", script], cwd=str(tmp_path), tty=True))
        assert (outcome.code, outcome.out, outcome.err) == (0, b"1\n2\nto tty\nto stderr\n", b"")
        assert outcome.word == ""

    def test_shell_text_joins_its_cgroup_first(self, cgroup: Cgroup) -> None:
        """A shell text joins its cgroup without a second shell, keeps its line numbers, and has no extra descriptor."""
        # /bin/ls: the ls that is built into some shells would show the descriptors of the shell.
        text = "cat /proc/self/cgroup; /bin/ls -l /proc/self/fd | grep -c cgroup.procs; umask; ulimit -Sn; exit 3"
        outcome = Outcome(make_spawn([shim.SHELL, "-e", "-c", f"set +e; {text}"], umask=0o027), 99, cgroup)
        lines = outcome.out.decode().splitlines()
        assert [line for line in lines if line.startswith("0::") and line.endswith(os.path.basename(cgroup.path))]
        assert lines[-3:] == ["0", "0027", "99"]
        assert (outcome.code, outcome.word, outcome.err) == (3, "", b"")
        wrong = make_spawn([shim.SHELL, "-e", "-c", "true\nfi\n"])
        assert Outcome(wrong, None, cgroup).err == Outcome(wrong).err != b""

    def test_command_joins_its_cgroup_first(self, cgroup: Cgroup, tmp_path: Path) -> None:
        """A command is in its cgroup before it runs, and has no descriptor of it."""
        outcome = Outcome(
            make_spawn(["sh", "-c", "cat /proc/self/cgroup; ls /proc/self/fd"], str(tmp_path)), None, cgroup
        )
        assert f"/{os.path.basename(cgroup.path)}\n" in outcome.out.decode()
        assert (outcome.code, outcome.word) == (0, "")

    def test_removed_cgroup(self, cgroup: Cgroup, tmp_path: Path) -> None:
        """A run that cannot join its cgroup is not started."""
        cgroup.remove()
        assert Outcome(make_spawn(["true"], str(tmp_path)), None, cgroup).word == "cgroup"
        with pytest.raises(FileNotFoundError):
            Outcome(make_spawn([shim.SHELL, "-e", "-c", "true"]), None, cgroup)

    @pytest.mark.parametrize("cwd", [None, "/"])
    def test_open_standard_input(self, cwd: str | None) -> None:
        """An open standard input has neither content nor an end, with or without a shell."""
        script = "import os, select; print(select.select([0], [], [], 0)[0], os.fstat(0).st_mode >> 12)"
        outcome = Outcome(make_spawn([shutil.which("python3") or "", "-c", script], cwd, stdin_open=True))
        assert (outcome.code, outcome.out, outcome.word) == (0, b"[] 1\n", "")

    def test_open_standard_input_leaks_no_descriptor(self, cgroup: Cgroup) -> None:
        """The command has its three descriptors and no other."""
        for cwd in (None, "/"):
            outcome = Outcome(make_spawn(["/bin/ls", "/proc/self/fd"], cwd, stdin_open=True), None, cgroup)
            assert (outcome.out.split(), outcome.word) == (
                [b"0", b"1", b"2", b"3"],
                "",
            )  # 3: the directory that ls reads

    @pytest.mark.parametrize(
        "more",
        [
            {},
            {"cwd": "/"},
            {"env": ODD},
            {"limits": {"nofile": 64}, "umask": 0o27},
            {"stdin_open": True},
            {"stdin_open": True, "env": ODD},
        ],
    )
    def test_sockets(self, cgroup: Cgroup, more: dict[str, Any]) -> None:
        """The command has its sockets from descriptor 3 on, in order and no others, and is the process they are for."""
        script = "import os, sys; print(os.getpid(), os.environ['LISTEN_PID'], *map(os.readlink, sys.argv[1:]))"
        python = [shutil.which("python3") or "", "-c", script]
        sockets = [os.memfd_create(f"socket{number}", os.MFD_CLOEXEC) for number in range(12)]
        for fd in map(int, os.listdir("/proc/self/fd")):
            if fd > 2:  # inherited from the test runner; the root does the same when it starts
                with contextlib.suppress(OSError):  # EBADF: the descriptor of the listing
                    os.set_inheritable(fd, False)
        for count in (1, 4, 6) if "stdin_open" in more else (1, 12):
            paths = [f"/proc/self/fd/{number}" for number in range(3, 3 + count)]
            given = [*sockets[:count]][::-1]
            names = [f"s{fd}" for fd in given]
            outcome = Outcome(make_spawn([*python, *paths], sockets=names, **more), None, cgroup, given)
            pid, listen_pid, *links = outcome.out.decode().replace(" (deleted)", "").split()
            assert (pid, links, outcome.word) == (listen_pid, [f"/memfd:socket{n}" for n in range(count)][::-1], "")
            outcome = Outcome(make_spawn(["ls", "/proc/self/fd"], sockets=names, **more), None, cgroup, given)
            assert sorted(map(int, outcome.out.split())) == [*range(3 + count + 1)]  # one more: the directory of ls
        for fd in sockets:
            os.close(fd)

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the user of a process")
    @pytest.mark.parametrize("env", [{}, {"app.name": "shop"}])
    def test_sockets_of_another_user(self, env: dict[str, str]) -> None:
        """A command with another user gets its sockets, and is the process they are for."""
        sockets = [os.memfd_create(name, os.MFD_CLOEXEC) for name in ("one", "two")]
        script = "id -u; [ $$ = $LISTEN_PID ] && echo $LISTEN_FDS; readlink /proc/self/fd/3 /proc/self/fd/4"
        user: dict[str, Any] = {"uid": 65534, "gid": 65534, "groups": [65534]}
        spawn = make_spawn(["sh", "-c", script], env={**env, "LISTEN_FDS": "2"}, sockets=["one", "two"], **user)
        outcome = Outcome(spawn, sockets=sockets)
        assert outcome.out.replace(b" (deleted)", b"").split() == [b"65534", b"2", b"/memfd:one", b"/memfd:two"]
        for fd in sockets:
            os.close(fd)

    def test_standard_input_from_a_file(self, tmp_path: Path) -> None:
        """The command reads the file from its beginning."""
        source = tmp_path / "an input"
        source.write_text("one\ntwo\n")
        for argv in (["cat"], [shim.SHELL, "-e", "-c", "cat"]):
            outcome = Outcome(make_spawn(argv, stdin_file=str(source)))
            assert (outcome.code, outcome.out, outcome.word) == (0, b"one\ntwo\n", "")

    def test_standard_input_from_a_missing_file(self, tmp_path: Path) -> None:
        """The command is not executed, and the reason names the file."""
        spawn = make_spawn(["echo", "ran"], stdin_file=str(tmp_path / "missing"))
        outcome = Outcome(spawn)
        assert (outcome.out, outcome.word) == (b"", "stdin")
        assert "missing as standard input" in (shim.explain(spawn, "stdin\n") or "")

    def test_limits(self) -> None:
        """Every limit is set, in the units of each shell."""
        mb = 1 << 20
        limits = {
            "address_space": 512 * mb,
            "cpu_time": 77,
            "nofile": 66,
            "nproc": 4000,
            "core": 0,
            "file_size": 3 * mb,
            "stack": 2 * mb,
            "memlock": 1 << 16,
            "nice": 3,
            "oom_score_adj": 300,
        }
        script = "cat /proc/self/limits /proc/self/oom_score_adj; nice"
        outcome = Outcome(make_spawn(["sh", "-c", script], limits=limits))
        assert (outcome.code, outcome.word) == (0, "")
        text = outcome.out.decode()
        shown = {line[:25].strip(): line[26:].split()[:2] for line in text.splitlines()}
        expected = {
            "Max address space": 512 * mb,
            "Max open files": 66,
            "Max processes": 4000,
            "Max core file size": 0,
            "Max file size": 3 * mb,
            "Max stack size": 2 * mb,
            "Max locked memory": 1 << 16,
        }
        assert {name: shown[name] for name in expected} == {name: [str(n), str(n)] for name, n in expected.items()}
        assert shown["Max cpu time"] == ["77", "78"]
        assert text.splitlines()[-2:] == ["300", "3"]

    def test_limit_of_processor_time(self) -> None:
        """A process at its limit ends by the signal that names it, not by SIGKILL."""
        outcome = Outcome(make_spawn(["sh", "-c", "while :; do :; done"], limits={"cpu_time": 1}))
        assert outcome.code in (-signal.SIGXCPU, 128 + signal.SIGXCPU)

    def test_limit_cannot_be_set(self) -> None:
        """The report names the limit that cannot be set."""
        assert Outcome(make_spawn(["true"], limits={"nofile": 1 << 30})).word == "limit nofile"

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the user of a process")
    @pytest.mark.parametrize("by", ["setpriv", "python"])
    def test_another_user(self, by: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """All ids are changed, and later errors are reported as usual."""
        if by == "python":
            monkeypatch.setattr(shim, "SETPRIV", None)
        other: dict[str, Any] = {"uid": 65534, "gid": 65533, "groups": [65533, 4]}
        show = "grep -E '^(Uid|Gid|Groups|Cap(Eff|Prm))' /proc/self/status; pwd"
        outcome = Outcome(make_spawn(["sh", "-c", show], "/", **other))
        words = outcome.out.decode().split()
        ids = ["Uid:", *["65534"] * 4, "Gid:", *["65533"] * 4, "Groups:", "4", "65533"]
        assert words == [*ids, "CapPrm:", "0" * 16, "CapEff:", "0" * 16, "/"]
        assert outcome.word == "user"
        odd = Outcome(make_spawn(["printenv", "app.name"], "/", env=ODD, **other))
        assert (odd.out, odd.word) == (b"shop\n", "user")
        assert shim.explain(make_spawn(["true"], **other), "user\n") is None
        failures: tuple[tuple[list[str], str | None, str], ...] = (
            (["/no/such"], None, "exec 127 "),
            (["true"], "/root/no", "cwd"),
        )
        for argv, cwd, word in failures:
            spawn = make_spawn(argv, cwd, **other)
            outcome = Outcome(spawn)
            assert outcome.word.startswith(f"user\n{word}")
            assert outcome.err == b""
            assert shim.explain(spawn, outcome.word) is not None

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the user of a process")
    @pytest.mark.parametrize("by", ["setpriv", "python"])
    @pytest.mark.parametrize("more", [{}, {"app.name": "shop"}, {"UID": "7", "SHLVL": "3"}])
    def test_root_does_not_see_the_variables_of_another_user(
        self, by: str, more: dict[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Only programs of the run's user get its variables, such as those of the dynamic loader, and get them all."""
        if by == "python":
            monkeypatch.setattr(shim, "SETPRIV", None)
        with tempfile.TemporaryDirectory() as directory:
            os.chmod(directory, 0o777)
            for name in ("renice", "sh", "setpriv"):
                program = Path(directory, name)
                program.write_text(f'#!/bin/sh\nid -u >>{directory}/called\nexec /usr/bin/{name} "$@"\n')
                program.chmod(0o755)
            env = {
                "LD_DEBUG": "statistics",
                "LD_DEBUG_OUTPUT": f"{directory}/loaded",
                "LD_AUDIT": f"{directory}/audit.so",
                "LD_PRELOAD": f"{directory}/preload.so",
                "LD_LIBRARY_PATH": directory,
                "GLIBC_TUNABLES": "glibc.malloc.check=0",
                "BASH_ENV": f"{directory}/renice",
                "ENV": f"{directory}/renice",
                "PATH": f"{directory}:/usr/bin:/bin",
                "_stdin": "odd",
                "RINGWARD_RUN_ID": "7",
                **more,
            }
            spawn = make_spawn(
                ["printenv", "-0"], "/", env=env, uid=65534, gid=65534, limits={"nice": 1}, clean_env=True
            )
            outcome = Outcome(spawn)
            shown = variables(outcome.out)
            traces = [Path(directory, name) for name in os.listdir(directory) if name.startswith("loaded")]
            assert {name: shown.get(name) for name in env} == env
            assert shown.keys() - env.keys() <= {"PWD", "SHLVL", "_"}
            assert {path.stat().st_uid for path in traces} == {65534}
            assert not Path(directory, "called").exists()

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the user of a process")
    def test_large_variables_of_another_user_arrive(self) -> None:
        """Variables of the kernel's maximum size reach the command of another user."""
        large = "x" * (128 * 1024 - len("LARGE=\0"))
        command = ["bash", "-c", 'echo "${#LARGE}"']
        outcome = Outcome(make_spawn(command, "/", env={"LARGE": large}, uid=65534, gid=65534))
        assert (int(outcome.out), outcome.word) == (len(large), "user")

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the user of a process")
    def test_user_cannot_be_changed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """If the user cannot be changed, the command does not run."""
        monkeypatch.setattr(shim, "SETPRIV", "/bin/false")
        spawn = make_spawn(["sh", "-c", "echo here"], uid=65534, gid=65534)
        outcome = Outcome(spawn)
        assert (outcome.out, outcome.word) == (b"", "")
        assert "cannot become user 65534" in (shim.explain(spawn, outcome.word) or "")

    def test_failed_start_in_a_terminal(self) -> None:
        """A failed start in a terminal is reported as with pipes."""
        assert Outcome(make_spawn(["/no/such/command"], tty=True)).word == "exec 127 No such file or directory"


def test_plain_shell_command_needs_no_shim() -> None:
    """The common case executes /bin/sh once."""
    outcome = Outcome(make_spawn(["/bin/sh", "-e", "-c", "echo out; echo err >&2; false; echo never"]))
    assert (outcome.code, outcome.out, outcome.err) == (1, b"out\n", b"err\n")
    first = FirstEnvironment({}, (), other_user=False)
    assert shim.wrapped(make_spawn(["/bin/sh"]), None, first, None) == (["/bin/sh"], False)


def test_signals_are_at_defaults() -> None:
    """No signal that a program can use is ignored or blocked in the child, not even SIGPIPE."""
    outcome = Outcome(make_spawn(["/bin/sh", "-c", "grep -E 'Sig(Blk|Ign)' /proc/self/status"]))
    # Signals 32 and 33 are glibc's own; its posix_spawn ignores them in the child until the program sets them up.
    internal = 1 << 31 | 1 << 32
    masks = [int(line.split()[1], 16) & ~internal for line in outcome.out.splitlines()]
    assert masks == [0, 0]


def test_failed_start_leaks_no_descriptor() -> None:
    """An argument that is too long or has a NUL is an error, and no descriptor stays open."""
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="too long"):
        spawning.start(make_spawn(["/bin/sh", "-c", "x" * 200_000]), {}, None)
    with pytest.raises(ValueError, match="null"):
        spawning.start(make_spawn(["/bin/sh", "-c", "a\0b"]), {}, None)
    assert set(os.listdir("/proc/self/fd")) <= before


def test_terminal_size_and_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The terminal has a size, and TERM is set unless the daemon or the definition sets it."""
    monkeypatch.delenv("TERM", raising=False)
    show = ["/bin/sh", "-c", 'stty size </dev/tty; echo "$TERM"']
    assert Outcome(make_spawn(show, tty=True)).out == b"40 120\nxterm-256color\n"
    assert Outcome(make_spawn(show, tty=True, env={"TERM": "vt100"})).out == b"40 120\nvt100\n"
    assert Outcome(make_spawn(["/bin/sh", "-c", 'echo "$TERM"'])).out == b"\n"


def test_merged_output_is_one_pipe() -> None:
    """Standard error goes to the pipe of standard output."""
    outcome = Outcome(make_spawn(["/bin/sh", "-c", "echo 1; echo 2 >&2; echo 3"], merge=True))
    assert (outcome.out, outcome.err) == (b"1\n2\n3\n", b"")


def test_failed_start_closes_the_terminal() -> None:
    """An argument that is too long is an error, and the terminal does not stay open."""
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(OSError, match="too long"):
        spawning.start(make_spawn(["/bin/sh", "-c", "x" * 200_000], tty=True), {}, None)
    assert set(os.listdir("/proc/self/fd")) <= before


def test_master_end_is_not_inherited() -> None:
    """The root's end of a terminal does not block, and later programs do not inherit it."""
    started = spawning.start(make_spawn(["/bin/sh", "-c", "exit"], tty=True), {}, None)
    master = started.pipes[0]
    assert not os.get_blocking(master)
    assert not os.get_inheritable(master)
    os.waitpid(started.pid, 0)
    os.close(master)
    os.close(started.pidfd)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can change the user of a process")
def test_outputs_cannot_change_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user's run can open its outputs by name; without CAP_CHOWN it has its outputs, but cannot do that."""

    def refuse(_fd: int, _uid: int, _gid: int) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    script = "echo out; echo err >&2; echo name >/dev/stdout"
    spawn = make_spawn(["sh", "-c", script], "/", uid=65534, gid=65534)
    assert Outcome(spawn).out == b"out\nname\n"
    monkeypatch.setattr(os, "fchown", refuse)
    outcome = Outcome(spawn)
    assert (outcome.out, outcome.err[:4]) == (b"out\n", b"err\n")
    assert b"Permission denied" in outcome.err
