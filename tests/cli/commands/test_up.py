"""The work of ``ringward up`` before it becomes the root process."""

import errno
import json
import os
import re
import shutil
import signal
import stat
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from supervisor.cli import exit_codes
from supervisor.cli.commands.daemon import recover
from supervisor.cli.commands.daemon import up as up_command
from supervisor.cli.main import cli
from supervisor.config.problems import UnusableObject
from supervisor.ipc import listening_sockets, stale_helpers
from supervisor.ipc.messages import DaemonSettings
from supervisor.startup import admin_password, api_access, data_directory, early_api_server, runtime_directory
from supervisor.startup.refusal import NotStarted, RefusalCause
from supervisor.tools.doctor import data

CONFIG = "[tasks.a]\nrun = 'x'\n[services.b]\nrun = 'x'\n[services.c]\nrun = 'x'\n"


@dataclass
class Executed:
    """The intercepted execution of the root."""

    program: str
    arguments: list[str]
    settings: DaemonSettings
    api: list[int] | None
    """The API server that was started ahead."""
    lock: int
    place: int
    environ: dict[str, str]


@dataclass
class Outcome:
    result: Result
    executed: Executed | None


Up = Callable[..., Outcome]


@pytest.fixture
def shared_memory() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="ringward-test-", dir="/dev/shm"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def up(tmp_path: Path, shared_memory: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Up]:
    """Call ``ringward up`` with a configuration; nothing is bound or executed."""
    locks: list[int] = []
    roots: list[Executed] = []

    def execv(program: str, arguments: list[str]) -> None:
        options = dict(zip(arguments[5::2], arguments[6::2], strict=True))
        with open(int(options["--start"]), "rb") as memory:
            start = json.load(memory)
        locks.extend((int(options["--place"]), int(options["--lock"])))
        settings = DaemonSettings.from_dict(start["boot"])
        roots.append(Executed(program, arguments, settings, start["api"], locks[-1], locks[-2], dict(os.environ)))

    monkeypatch.setattr(os, "execv", execv)
    monkeypatch.setattr(listening_sockets, "listen", lambda _settings: [])
    monkeypatch.setattr(runtime_directory, "candidates", lambda _environ, _euid: [str(shared_memory / "ringward")])

    def call(*args: str, config: str = CONFIG) -> Outcome:
        path = tmp_path / "ringward.toml"
        path.write_text(config)
        path.chmod(0o644)
        result = CliRunner().invoke(cli, ["up", *args], prog_name="ringward")
        return Outcome(result, roots.pop() if roots else None)

    yield call
    for lock in locks:
        os.close(lock)


def boot_of(outcome: Outcome) -> DaemonSettings:
    assert outcome.executed, outcome.result.output
    return outcome.executed.settings


def test_root_arguments(up: Up, tmp_path: Path, shared_memory: Path) -> None:
    """The root gets its settings, the lock, an isolated interpreter, and directories that only the user can enter."""
    outcome = up()
    settings = boot_of(outcome)
    assert outcome.executed
    assert outcome.executed.arguments[1:6] == ["-I", "-m", "ringward", "root", "--start"]
    assert settings.data_dir == str(tmp_path / "data")
    assert settings.config_path == str(tmp_path / "ringward.toml")
    assert settings.http_socket == str(tmp_path / "data/ringward.sock")
    assert settings.listen == [("127.0.0.1", 7464)]
    assert (settings.workers, settings.shutdown_timeout_ms, settings.log_level) == (1, 8000, "info")
    assert settings.runtime_dir == str(shared_memory / "ringward" / settings.daemon_id)
    assert len(settings.token) == 64
    for path in (settings.data_dir, settings.runtime_dir):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o700
    assert os.get_inheritable(outcome.executed.lock)
    assert (tmp_path / "data/lock").read_text() == f"{os.getpid()}\n"
    assert stat.S_IMODE((tmp_path / "data/id").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "step",
    [
        (recover, "allow"),
        (api_access, "share"),
        (up_command, "_banner"),
        (stale_helpers, "end"),
        (early_api_server, "started"),
        (listening_sockets, "listen"),
        (data_directory, "store_identity"),
        (os, "execv"),
    ],
    ids=lambda step: step[1],
)
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "no space"), KeyboardInterrupt()], ids=["error", "Ctrl-C"])
def test_failed_start(
    up: Up, shared_memory: Path, monkeypatch: pytest.MonkeyPatch, step: tuple[Any, str], error: BaseException
) -> None:
    """A start that fails at any step leaves no runtime directory, unless an earlier daemon has left files there."""
    first = boot_of(up())
    shutil.rmtree(first.runtime_dir)

    def fails(*_args: object, **_options: object) -> None:
        raise error

    monkeypatch.setattr(*step, fails)
    assert up().result.exit_code != 0
    assert os.listdir(shared_memory / "ringward") == []
    left = Path(first.runtime_dir, "01M7Y4S5W8ZZEFJCB1RHHNKRSN.ring")
    left.parent.mkdir(mode=0o700)
    left.touch()
    assert up().result.exit_code != 0
    assert left.exists()


def test_readiness_descriptor(up: Up) -> None:
    """The root inherits the descriptor; a closed one is a usage error before anything is created."""
    reader, writer = os.pipe()
    executed = up("--ready-fd", str(writer)).executed
    assert executed
    assert executed.arguments[-2:] == ["--ready", str(writer)]
    assert os.get_inheritable(writer)
    os.close(reader)
    os.close(writer)
    refused = up("--ready-fd", str(writer)).result
    assert refused.exit_code == exit_codes.USAGE
    assert f"{writer} is not an open descriptor" in refused.stderr


def test_copy_of_a_data_directory(up: Up, tmp_path: Path) -> None:
    """While the original's daemon runs, the copy gets its own identity and keeps it; the original keeps its own."""
    settings = boot_of(up())
    (tmp_path / "copy").mkdir(mode=0o700)
    shutil.copy(tmp_path / "data/id", tmp_path / "copy/id")
    copied = up("--data", str(tmp_path / "copy"))
    other = boot_of(copied)
    assert "is a copy of the data directory of a running daemon" in copied.result.output
    assert other.daemon_id != settings.daemon_id
    assert other.runtime_dir != settings.runtime_dir
    assert (tmp_path / "copy/id").read_text().strip() == other.daemon_id
    assert (tmp_path / "data/id").read_text().strip() == settings.daemon_id


def test_command_line_overrides_the_configuration(up: Up, tmp_path: Path) -> None:
    """Settings come from the configuration, and the command line overrides them."""
    config = (
        "[daemon]\ndata_dir='d'\nlog_level='debug'\nshutdown_timeout='1s'\n[http]\nlisten=[]\nsocket='s'\nworkers=2"
    )
    settings = boot_of(up(config=config))
    assert (settings.data_dir, settings.http_socket) == (str(tmp_path / "d"), str(tmp_path / "s"))
    assert (settings.listen, settings.workers, settings.log_level, settings.shutdown_timeout_ms) == (
        [],
        2,
        "debug",
        1000,
    )
    settings = boot_of(up("--data", "other", "--listen", "127.0.0.1:0", "--listen", "[::1]:1", config=config))
    assert settings.data_dir == str(tmp_path / "other")
    assert settings.listen == [("127.0.0.1", 0), ("::1", 1)]


def test_data_directory_keeps_its_identity(up: Up, shared_memory: Path) -> None:
    """The identity is created once, and the runtime directory stays the same."""
    first = up()
    assert first.executed
    for descriptor in (first.executed.lock, first.executed.place):
        with open(os.devnull, "rb") as nothing:
            os.dup2(nothing.fileno(), descriptor)
    second = boot_of(up())
    assert second.daemon_id == first.executed.settings.daemon_id
    assert second.token != first.executed.settings.token
    assert [path.name for path in (shared_memory / "ringward").iterdir()] == [second.daemon_id]


def test_second_daemon(up: Up) -> None:
    """A second daemon exits with 75 and names the pid of the first."""
    boot_of(up())
    result = up().result
    assert result.exit_code == exit_codes.ALREADY_RUNNING
    assert f"(pid {os.getpid()})" in result.stderr


def test_signals_wait_for_the_root(up: Up, monkeypatch: pytest.MonkeyPatch) -> None:
    """Signals such as Ctrl-C are blocked until the root runs, and end it cleanly, without a traceback."""
    blocked: set[int] = set()
    execute = os.execv

    def execv(program: str, arguments: list[str]) -> None:
        blocked.update(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
        execute(program, arguments)

    monkeypatch.setattr(os, "execv", execv)
    monkeypatch.setattr(listening_sockets, "listen", lambda _settings: [])
    assert up().executed
    assert blocked >= {signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2}
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_banner(up: Up, monkeypatch: pytest.MonkeyPatch) -> None:
    """The banner has the configuration and the addresses, but not the generated password, which would be logged."""
    outcome = up("--listen", "127.0.0.1:1")
    settings = boot_of(outcome)
    for text in (
        settings.config_path,
        settings.data_dir,
        "http://127.0.0.1:1\n",
        "1 task, 2 services",
        "ringward password",
    ):
        assert text in outcome.result.stdout
    assert settings.password not in outcome.result.output
    assert (settings.password_ephemeral, len(settings.password)) == (True, 24)
    monkeypatch.setenv("RINGWARD_PASSWORD", "open-sesame")
    outcome = up("--data", "d2")
    assert outcome.executed
    assert (boot_of(outcome).password, boot_of(outcome).password_ephemeral) == ("open-sesame", False)
    assert "open-sesame" not in outcome.result.output
    assert "RINGWARD_PASSWORD" not in outcome.executed.environ


def test_banner_as_json(up: Up) -> None:
    """The JSON banner is one line with the same facts, without the generated password."""
    outcome = up("--listen", "127.0.0.1:1", "--json")
    settings = boot_of(outcome)
    document = json.loads(outcome.result.stdout)
    assert document["addresses"] == ["http://127.0.0.1:1"]
    assert (document["config"], document["dataDir"], document["socket"]) == (
        settings.config_path,
        settings.data_dir,
        settings.http_socket,
    )
    assert (document["tasks"], document["services"]) == (1, 2)
    assert settings.password not in outcome.result.output


def test_invalid_configuration(up: Up, tmp_path: Path) -> None:
    """An invalid configuration exits with 78, and nothing is created."""
    result = up(config="[tasks.a]\nrn = 'x'\n").result
    assert result.exit_code == exit_codes.CONFIG
    assert "tasks.a.rn: unknown key" in result.stderr
    assert not (tmp_path / "data").exists()


def test_missing_configuration(up: Up) -> None:
    """A missing configuration exits with 78 and is named."""
    result = up("-c", "missing.toml").result
    assert (result.exit_code, "missing.toml: cannot be read" in result.stderr) == (exit_codes.CONFIG, True)


@pytest.mark.parametrize("listen", ["0.0.0.0:1", "127.0.0.1", "127.0.0.1:99999", "example.org:1"])
def test_addresses_on_the_command_line_are_checked(up: Up, listen: str) -> None:
    """Addresses on the command line are checked like those in the configuration."""
    result = up("--listen", listen).result
    assert (result.exit_code, listen in result.stderr) == (exit_codes.USAGE, True)


def test_long_socket_path(up: Up) -> None:
    """A socket path that is too long is reported with the key that changes it."""
    result = up("--data", "x" * 120).result
    assert (result.exit_code, "set socket in [http]" in result.stderr) == (exit_codes.CONFIG, True)


def test_path_with_invalid_utf8(up: Up, tmp_path: Path) -> None:
    """A path that is not UTF-8 is refused, because the database and the API cannot represent it."""
    result = up("--data", os.fsdecode(b"d\xff")).result
    assert (result.exit_code, "d\\udcff: the path is not UTF-8" in result.stderr) == (exit_codes.DATA_DIR, True)
    elsewhere = tmp_path / os.fsdecode(b"c\xff.toml")
    elsewhere.write_text(CONFIG)
    elsewhere.chmod(0o644)
    assert up("-c", str(elsewhere)).result.exit_code == exit_codes.CONFIG


def test_file_in_place_of_the_socket(up: Up, tmp_path: Path) -> None:
    """A file or a directory in place of the socket is reported and not removed."""
    (tmp_path / "precious").write_text("data")
    (tmp_path / "directory").mkdir()
    for name in ("precious", "directory"):
        result = up(config=f'[http]\nsocket = "{name}"\n').result
        assert (result.exit_code, "exists and is not a socket" in result.stderr) == (exit_codes.CONFIG, True)
    with pytest.raises(listening_sockets.CannotListen, match="in use"):
        listening_sockets._unix(str(tmp_path / "precious"), None)
    assert (tmp_path / "precious").read_text() == "data"


class TestPassword:
    def test_password_file(self, tmp_path: Path) -> None:
        """The password is the first line of the file."""
        (tmp_path / "pw").write_text("open-sesame\r\nmore\n")
        resolved = admin_password.resolve_password({}, str(tmp_path / "pw"))
        assert (resolved.value, resolved.ephemeral, resolved.origin) == (
            "open-sesame",
            False,
            f"from {tmp_path / 'pw'}",
        )
        assert "open-sesame" not in repr(resolved)

    @pytest.mark.parametrize(("value", "message"), [("", "is empty"), ("seven77", "shorter than 8")])
    def test_short_password(self, tmp_path: Path, value: str, message: str) -> None:
        """A short or empty password is refused, even from an empty variable."""
        with pytest.raises(UnusableObject, match=message):
            admin_password.resolve_password({"RINGWARD_PASSWORD": value}, None)
        (tmp_path / "pw").write_text(f"{value}\n")
        with pytest.raises(UnusableObject, match=message):
            admin_password.resolve_password({}, str(tmp_path / "pw"))

    def test_password_with_invalid_utf8(self) -> None:
        """A password that is not UTF-8 is refused, because the API server could not check it."""
        with pytest.raises(UnusableObject, match="RINGWARD_PASSWORD is not UTF-8"):
            admin_password.resolve_password({"RINGWARD_PASSWORD": os.fsdecode(b"\xff" * 10)}, None)

    def test_unreadable_password_file(self, tmp_path: Path) -> None:
        """The error has the path of the unreadable file."""
        (tmp_path / "binary").write_bytes(b"\xff" * 10)
        for name in ("missing", "binary", "."):
            with pytest.raises(UnusableObject, match=str(tmp_path)):
                admin_password.resolve_password({}, str(tmp_path / name))


class TestDataDirectory:
    def test_parents_are_created(self, tmp_path: Path) -> None:
        """Missing parents are created, and only the directory itself is closed to other users."""
        data_directory.prepare(str(tmp_path / "a/b"))
        assert stat.S_IMODE((tmp_path / "a/b").stat().st_mode) == 0o700
        assert list((tmp_path / "a/b").iterdir()) == []

    def test_file_in_place_of_the_directory(self, tmp_path: Path) -> None:
        """A file in place of the directory, or of a parent, is reported."""
        (tmp_path / "file").touch()
        for name in ("file", "file/below", "file/far/below"):
            with pytest.raises(NotStarted, match="is not a directory, or its parent is not") as caught:
                data_directory.prepare(str(tmp_path / name))
            assert caught.value.cause is RefusalCause.DATA_DIRECTORY

    def test_user_without_a_home_directory(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A user without a home directory has to name a data directory: the default would depend on where it starts."""
        monkeypatch.chdir(tmp_path)
        with pytest.raises(NotStarted, match="no home directory; set data_dir"):
            data_directory.prepare("~/.local/state/ringward")
        assert list(tmp_path.iterdir()) == []
        finding = data.directory("~/.local/state/ringward")
        assert (finding.verdict, finding.remedy) == ("fail", "set data_dir in [daemon], or HOME")

    def test_world_writable_directory(self, tmp_path: Path) -> None:
        """A world-writable directory is refused with the command that fixes its mode."""
        (tmp_path / "open").mkdir()
        (tmp_path / "open").chmod(0o777)
        with pytest.raises(NotStarted, match="chmod o-w"):
            data_directory.prepare(str(tmp_path / "open"))

    def test_shared_directory(self, tmp_path: Path) -> None:
        """A shared directory such as /tmp is refused with the advice to use another one, not to change its mode."""
        (tmp_path / "open").mkdir()
        (tmp_path / "open").chmod(0o1777)
        with pytest.raises(NotStarted, match="use a directory of its own"):
            data_directory.prepare(str(tmp_path / "open"))
        finding = data.directory(str(tmp_path / "open"))
        assert (finding.verdict, finding.remedy) == ("fail", "set data_dir to a directory of its own")

    @pytest.mark.parametrize(
        ("code", "message"),
        [
            (errno.EROFS, "read-only"),
            (errno.ENOSPC, "is full"),
            (errno.EDQUOT, "quota"),
            (errno.EACCES, r"belongs to .* \(mode 0700\), and this is"),
            (errno.EIO, os.strerror(errno.EIO)),
        ],
    )
    def test_unwritable_directory(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, message: str
    ) -> None:
        """One line says why the directory cannot be written, and no file remains."""

        def write(_fd: int, _data: bytes) -> int:
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(os, "write", write)
        with pytest.raises(NotStarted, match=message) as caught:
            data_directory.prepare(str(tmp_path / "data"))
        assert "\n" not in str(caught.value)
        assert list((tmp_path / "data").iterdir()) == []

    def test_damaged_identity_is_not_replaced(self, tmp_path: Path) -> None:
        """A damaged identity stops the start, because rings and markers of active runs can have the old one."""
        (tmp_path / "id").write_text("nonsense\n")
        with pytest.raises(NotStarted, match="has no valid id"):
            data_directory.identity(str(tmp_path))
        assert (tmp_path / "id").read_text() == "nonsense\n"

    def test_identities_are_ulids(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """An identity is a ULID: 26 characters of Crockford's base 32, with the time and 80 random bits."""
        monkeypatch.setattr("time.time_ns", lambda: 1_469_922_850_259_000_000)
        first, second = data_directory.new_id(), data_directory.new_id()
        assert first != second
        for name in (first, second):
            assert re.fullmatch("01ARZ3NDEK[0-9A-HJKMNP-TV-Z]{16}", name)


class TestRuntimeDirectory:
    ID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"

    def test_places(self) -> None:
        """Root's own directory is tried first, and a relative XDG_RUNTIME_DIR is ignored."""
        session = {"XDG_RUNTIME_DIR": "/run/user/7"}
        assert runtime_directory.candidates(session, 0) == [
            "/run/ringward",
            "/run/user/7/ringward",
            "/dev/shm/ringward-0",
        ]
        assert runtime_directory.candidates({"XDG_RUNTIME_DIR": "x"}, 7) == ["/dev/shm/ringward-7"]

    @pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a directory of another user")
    def test_name_taken_by_another_user(
        self, shared_memory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Another directory is created, which the next start finds again; the foreign one is not changed."""
        monkeypatch.setattr(runtime_directory, "SHARED_MEMORY", str(shared_memory))
        mounts = tmp_path / "mountinfo"
        mounts.write_text(f"1 0 8:1 / / rw - ext4 /dev/sda rw\n2 1 0:5 / {shared_memory} rw - tmpfs tmpfs rw\n")
        taken_directory = shared_memory / "ringward-0"
        (taken_directory / self.ID).mkdir(parents=True)
        for path in (taken_directory, taken_directory / self.ID):
            os.chown(path, 12345, 12345)
        assert runtime_directory.candidates({}, 0) == ["/run/ringward"]
        directory = Path(runtime_directory.prepare(self.ID, {}, str(mounts)))
        assert directory.parent.name.startswith("ringward-0-")
        assert [stat.S_IMODE(path.stat().st_mode) for path in (directory, directory.parent)] == [0o700] * 2
        assert runtime_directory.prepare(self.ID, {}, str(mounts)) == str(directory)
        assert runtime_directory.candidates({}, 0) == ["/run/ringward", str(directory.parent)]
        assert list(taken_directory.iterdir()) == [taken_directory / self.ID]

    def test_only_tmpfs(self, shared_memory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Directories on a disk are skipped; if none is left, the error has each reason."""
        mounts = tmp_path / "mountinfo"
        mounts.write_text(
            "1 0 8:1 / / rw - ext4 /dev/sda rw\n"
            f"2 1 0:5 / {shared_memory}/with\\040blank rw shared:1 - tmpfs tmpfs rw\n"
            f"3 1 0:6 / {shared_memory}/over rw - tmpfs tmpfs rw\n"
            f"4 3 8:2 / {shared_memory}/over rw - xfs /dev/sdb rw\n"
        )
        for name in ("with blank", "over", "disk"):
            (shared_memory / name).mkdir()
        places = [f"{shared_memory}/{name}/r" for name in ("missing", "over", "disk", "with blank")]
        monkeypatch.setattr(runtime_directory, "candidates", lambda _environ, _euid: list(places))
        directory = runtime_directory.prepare(self.ID, {}, str(mounts))
        assert directory == f"{shared_memory}/with blank/r/{self.ID}"
        places.pop()
        with pytest.raises(NotStarted, match="on xfs, not on tmpfs") as caught:
            runtime_directory.prepare(self.ID, {}, str(mounts))
        assert "on ext4, not on tmpfs" in str(caught.value)
        assert "No such file" in str(caught.value)

    def test_foreign_directories_and_links_are_refused(
        self, shared_memory: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Links, and directories that another user owns or can write, are refused."""
        names = ["link", "file", "open", "foreign"]
        monkeypatch.setattr(
            runtime_directory, "candidates", lambda _environ, _euid: [str(shared_memory / name) for name in names]
        )
        (shared_memory / "target").mkdir()
        (shared_memory / "link").symlink_to("target")
        (shared_memory / "file").touch()
        (shared_memory / "open").mkdir()
        (shared_memory / "open").chmod(0o777)
        (shared_memory / "foreign").mkdir()
        if os.geteuid() == 0:
            os.chown(shared_memory / "foreign", 12345, -1)
        else:
            names.pop()
        with pytest.raises(NotStarted) as caught:
            runtime_directory.prepare(self.ID, {})
        assert caught.value.cause is RefusalCause.DATA_DIRECTORY
        expected = ["link is not a directory", "file is not a directory", "open is writable by other users"]
        for text in expected + ["foreign belongs to user 12345"] * (os.geteuid() == 0):
            assert text in str(caught.value)

    def test_existing_runtime_directory(self, shared_memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The directory of a crashed daemon is found even if the environment has changed."""
        bases = [str(shared_memory / "first"), str(shared_memory / "second")]
        monkeypatch.setattr(runtime_directory, "candidates", lambda _environ, _euid: list(bases))
        (shared_memory / "second" / self.ID).mkdir(parents=True, mode=0o700)
        assert runtime_directory.prepare(self.ID, {}) == f"{bases[1]}/{self.ID}"

    def test_long_paths_are_skipped(self, shared_memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A place whose socket paths would exceed 107 bytes is skipped."""
        bases = [str(shared_memory / ("x" * 80)), str(shared_memory / "y")]
        monkeypatch.setattr(runtime_directory, "candidates", lambda _environ, _euid: list(bases))
        assert runtime_directory.prepare(self.ID, {}) == f"{bases[1]}/{self.ID}"
