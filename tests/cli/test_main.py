"""The program as a whole: help, loading, exit codes."""

import base64
import contextlib
import errno
import http.client
import importlib
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from supervisor.cli import exit_codes
from supervisor.cli.client import UnixEndpoint, UrlEndpoint, url_endpoint
from supervisor.cli.main import COMMANDS, cli, load, module_of
from supervisor.version import VERSION
from tests.support.command_line import Ringward
from tests.support.fake_daemon import RUN, Answer, FakeDaemon, Request, event, events, line, problem
from tests.support.ports import free_port
from tests.support.waiting import until

PROGRAM = [sys.executable, "-c", "from supervisor.cli.entry import main; main()"]


def test_help_names_every_command_and_exit_code(ringward: Ringward) -> None:
    """The help lists every command with its summary, and every exit code."""
    result = ringward("--help", plain=True)
    assert result.exit_code == 0
    for name, (_, text) in COMMANDS.items():
        assert name in result.output
        assert text in result.output
    for code in exit_codes.MEANINGS:
        assert f"  {code} " in result.output


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_help_with_an_example(ringward: Ringward, name: str) -> None:
    """The help of each command begins with the summary in the list of commands and ends with an example."""
    result = ringward(name, "--help", plain=True)
    assert result.exit_code == 0
    assert "Example: " in result.output
    command = load(name)
    assert command.name == name
    assert command.get_short_help_str(200).rstrip(".")[:10] == COMMANDS[name][1][:10]


def test_help_is_light() -> None:
    """Help loads neither commands nor libraries, so that it is fast."""
    code = """
import sys
from supervisor.cli.main import cli
cli(["--help"], standalone_mode=False)
print(sorted(sys.modules), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = done.stderr
    for module in ("rich", "http.client", "tomli", "asyncio", "apsw", "peewee", "supervisor.cli.commands"):
        assert f"'{module}'" not in loaded
        assert f"'{module}." not in loaded


def test_commands_load_neither_api_nor_store(daemon: FakeDaemon, data: Path) -> None:
    """A client command loads only an HTTP client."""
    daemon.on("GET", "/api/tasks", {"items": []})
    code = "import sys; from supervisor.cli.main import cli; cli(sys.argv[1:], standalone_mode=False)\n"
    code += "print(sorted(sys.modules), file=sys.stderr)"
    command = [sys.executable, "-c", code, "--data", str(data), "ps"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    for module in ("api", "store", "logring", "rich", "supervisor.scheduler", "supervisor.root"):
        assert f"'{module}'" not in done.stderr


def test_version(ringward: Ringward) -> None:
    """The output has the version."""
    assert VERSION in ringward("--version", plain=True).output


@pytest.mark.parametrize("args", [["nothing"], ["ps", "--nothing"], ["run"], [], ["logs", "-n", "-1", "x"]])
def test_usage_error(ringward: Ringward, args: list[str]) -> None:
    """Usage errors have the exit code of sysexits.h."""
    assert ringward(*args, plain=True).exit_code == exit_codes.USAGE


@pytest.mark.parametrize(
    "arguments",
    [
        ("--data", "data", "ps"),
        ("init", "x.toml"),
        ("service", "install", "--init", "systemd", "-c", "x"),
        ("up", "--data", "d"),
    ],
)
def test_removed_current_directory(
    ringward: Ringward, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    """A command whose relative path cannot be resolved says that the current directory was removed."""
    (tmp_path / "ringward.toml").write_text("")
    (tmp_path / "ringward.toml").chmod(0o644)
    monkeypatch.setenv("RINGWARD_CONFIG", str(tmp_path / "ringward.toml"))
    (tmp_path / "removed").mkdir()
    monkeypatch.chdir(tmp_path / "removed")
    (tmp_path / "removed").rmdir()
    result = ringward(*arguments, plain=True)
    assert (result.exit_code, result.stdout) == (exit_codes.USAGE, "")
    assert result.stderr == "ringward: the current directory was removed; change to another one\n"


def test_missing_daemon(ringward: Ringward, data: Path) -> None:
    """A missing daemon exits with 69 and one line, with the socket and the remedy."""
    result = ringward("ps")
    assert result.exit_code == exit_codes.UNREACHABLE
    expected = f"ringward: no daemon answers at {data}/ringward.sock; start one with: ringward up\n"
    assert result.stderr == expected


@pytest.mark.parametrize("arguments", [("job",), ("j*",), ("job", "other"), ("--all", "--yes")])
def test_run_without_a_daemon(ringward: Ringward, arguments: tuple[str, ...]) -> None:
    """Without a daemon, `run` exits with 69 for one task and for several, because no task is known to be missing."""
    assert ringward("run", *arguments).exit_code == exit_codes.UNREACHABLE


def test_options_before_or_after_the_command(ringward: Ringward, data: Path) -> None:
    """Options before and after the command have the same meaning."""
    elsewhere = data / "elsewhere"
    for args in (["--data", str(elsewhere), "ps"], ["ps", "--data", str(elsewhere)]):
        assert f"{elsewhere}/ringward.sock" in ringward(*args, plain=True).stderr


def test_invalid_configuration(ringward: Ringward, tmp_path: Path) -> None:
    """A client that needs the configuration to find the daemon reports its error and exits with 78."""
    path = tmp_path / "broken.toml"
    path.write_text("[http]\nsocket = 1\n")
    path.chmod(0o644)
    result = ringward("-c", str(path), "ps", plain=True)
    assert result.exit_code == exit_codes.CONFIG
    assert "broken.toml:2: http.socket: must be a path" in result.stderr


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (problem(401, "who are you"), exit_codes.NOT_PERMITTED),
        (problem(403, "not you"), exit_codes.NOT_PERMITTED),
        (problem(422, "wrong", [{"location": "query.limit", "message": "too large"}]), exit_codes.USAGE),
        (problem(503, "later"), exit_codes.UNREACHABLE),
        (problem(500, "a failure"), exit_codes.REFUSED),
        (Answer(500, b"<html>", "text/html"), exit_codes.UNREACHABLE),
        (Answer(404, b"<html>", "text/html"), exit_codes.UNREACHABLE),
        (Answer(302, b"", "text/html"), exit_codes.UNREACHABLE),
        (Answer(403, b"<html>", "text/html"), exit_codes.NOT_PERMITTED),
        (Answer(200, b"<html>", "text/html"), exit_codes.UNREACHABLE),
        (Answer(200, b"{", broken=True), exit_codes.UNREACHABLE),
        (Answer(200, b"[]"), exit_codes.UNREACHABLE),
        (Answer(200, b""), exit_codes.UNREACHABLE),
        (Answer(200, b'{"status": "success"}'), exit_codes.UNREACHABLE),
    ],
)
def test_daemon_errors(ringward: Ringward, daemon: FakeDaemon, answer: Answer, code: int) -> None:
    """Refusals, missing permission and invalid answers have different exit codes and no traceback."""
    daemon.on("GET", "/api/tasks", answer)
    result = ringward("ps")
    assert result.exit_code == code
    assert result.stderr.startswith("ringward: ")
    assert result.exception is None or isinstance(result.exception, SystemExit)
    if answer.status == 422:
        assert "--limit: too large" in result.stderr


def test_error_with_escape_sequences(ringward: Ringward, daemon: FakeDaemon) -> None:
    """Escape sequences in quoted text are made visible."""
    daemon.on("GET", "/api/tasks", problem(404, "no \x1b]0;title\x07 here"))
    assert "\x1b" not in ringward("ps").stderr


def test_url_without_a_listener(ringward: Ringward, monkeypatch: pytest.MonkeyPatch) -> None:
    """A URL without a listener is named; an invalid URL is a usage error that names it."""
    url = f"http://127.0.0.1:{free_port()}"
    monkeypatch.setenv("RINGWARD_URL", url)
    result = ringward("ps", plain=True)
    assert (result.exit_code, url in result.stderr) == (exit_codes.UNREACHABLE, True)
    for invalid in ("ftp://x", "http://x:y", "unix:"):
        result = ringward("--url", invalid, "ps", plain=True)
        assert (result.exit_code, invalid in result.stderr) == (exit_codes.USAGE, True)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (socket.EAI_NONAME, 'host name not found: "alpha"'),
        (socket.EAI_AGAIN, 'cannot look up the host name "alpha": try again'),
    ],
)
def test_unknown_host_name(ringward: Ringward, monkeypatch: pytest.MonkeyPatch, code: int, message: str) -> None:
    """A host name that cannot be resolved is named as the problem, and not the connection."""

    def unresolved(*_args: object, **_options: object) -> None:
        raise socket.gaierror(code, "try again")

    monkeypatch.setattr(socket, "getaddrinfo", unresolved)
    result = ringward("--url", "http://alpha:7464", "ps", plain=True)
    assert (result.exit_code, result.stderr) == (exit_codes.UNREACHABLE, f"ringward: {message}\n")


@pytest.mark.parametrize(
    "url",
    [
        "http://a..b/",
        f"http://{64 * 'a'}.example.com/",
        "http://127.0.0.1:0/",
        "http://127.0.0.1:9/\u00e4",
        "http://127.0.0.1:9/a b",
        "http://\u00e4",
    ],
)
def test_invalid_url(ringward: Ringward, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """An invalid host name or path is a usage error; a password of arbitrary bytes causes no traceback."""
    assert ringward("--url", url, "ps", plain=True).exit_code == exit_codes.USAGE
    monkeypatch.setenv("RINGWARD_PASSWORD", "\udcff")
    assert ringward("--url", "http://127.0.0.1:9", "ps", plain=True).exit_code == exit_codes.UNREACHABLE


@pytest.mark.parametrize(
    "arguments",
    [
        ("search", "\udcff", "text"),
        ("search", "job", "text", "--run", "\udcff"),
        ("notify", "test", "\udcff"),
        ("token", "revoke", "\udcff"),
    ],
)
def test_arguments_with_invalid_utf8(ringward: Ringward, daemon: FakeDaemon, arguments: tuple[str, ...]) -> None:
    """The bytes are sent to the daemon, which refuses them."""
    assert ringward(*arguments).exception is None or isinstance(ringward(*arguments).exception, SystemExit)
    assert "%FF" in daemon.requests[0].path or "\ufffd" in str(daemon.requests[0].query)


@pytest.mark.parametrize("arguments", ["upgrade", "password", "backup copy", "validate"])
def test_local_commands_take_no_url(ringward: Ringward, arguments: str) -> None:
    """A local command rejects --url even before its name, because it would act on the wrong daemon."""
    result = ringward("--url", "http://127.0.0.1:9", *arguments.split(), plain=True)
    assert result.exit_code == exit_codes.USAGE
    assert "it has no --url" in result.stderr


def test_token_on_the_unix_socket(ringward: Ringward, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    """Members of the socket's group send the token; root and the daemon's user do not need it."""
    daemon.on("GET", "/api/tasks", {"items": []})
    monkeypatch.setenv("RINGWARD_PASSWORD", "rw_secret")
    assert ringward("ps").exit_code == 0
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert ringward("ps").exit_code == 0
    sent = [request.headers.get("Authorization") for request in daemon.requests]
    assert (sent[0], sent[-1]) == (None, "Basic OnJ3X3NlY3JldA==")


def test_tls_errors(ringward: Ringward) -> None:
    """An error of TLS is reported as such, not as the system error with the same number."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            connection.close()

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"https://127.0.0.1:{server.getsockname()[1]}"
        result = ringward("--url", url, "ps", plain=True)
        thread.join()
    message = f"ringward: the server at {url} does not use TLS; use a URL that begins with http://\n"
    assert (result.exit_code, result.stderr) == (exit_codes.UNREACHABLE, message)


def test_url_with_a_path() -> None:
    """A URL can have a path and no port, as behind a proxy; the password is sent by HTTP Basic."""
    endpoint = url_endpoint("https://example.org/ringward/", "open-sesame")
    assert str(endpoint) == "https://example.org:443/ringward"
    assert endpoint.authorization == "Basic " + base64.b64encode(b":open-sesame").decode()
    plain = url_endpoint("http://127.0.0.1", None)
    assert isinstance(plain, UrlEndpoint)
    assert (plain.port, plain.prefix, plain.authorization) == (80, "", None)


def test_token_of_a_run() -> None:
    """The token of a run replaces a password, over TCP and over the Unix socket."""
    for url in ("http://127.0.0.1:7464", "unix:/run/d/ringward.sock"):
        assert url_endpoint(url, "open-sesame", "rr_token").authorization == "Bearer rr_token"
    endpoint = url_endpoint("unix:/run/d/ringward.sock", None)
    assert isinstance(endpoint, UnixEndpoint)
    assert endpoint.path == "/run/d/ringward.sock"


@pytest.mark.parametrize(("token", "code"), [("rr_token\n", exit_codes.OK), ("a\nb", 64), ("rr_\udcff", 64)])
def test_invalid_token_of_a_run(
    ringward: Ringward, data: Path, daemon: FakeDaemon, monkeypatch: pytest.MonkeyPatch, token: str, code: int
) -> None:
    """A RINGWARD_TOKEN that cannot be in a header is an error of the command line; space around it is ignored."""
    daemon.on("GET", "/api/tasks", {"items": []})
    monkeypatch.setenv("RINGWARD_URL", f"unix:{data}/ringward.sock")
    monkeypatch.setenv("RINGWARD_TOKEN", token)
    result = ringward("ps", plain=True)
    assert (result.exit_code, "RINGWARD_TOKEN" in result.stderr) == (code, code != 0)


def test_socket_of_another_user(ringward: Ringward, monkeypatch: pytest.MonkeyPatch) -> None:
    """A socket without permission exits with 77, unlike a missing daemon."""

    def connect(_connection: http.client.HTTPConnection) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr("supervisor.cli.client._UnixConnection.connect", connect)
    result = ringward("ps")
    assert (result.exit_code, "run this as its user or as root" in result.stderr) == (exit_codes.NOT_PERMITTED, True)


def test_interrupted_command(daemon: FakeDaemon, data: Path) -> None:
    """Ctrl-C ends a waiting client with 130, without a traceback."""
    waiting = threading.Event()

    def wait(_request: Request) -> Answer:
        waiting.set()
        released.wait()
        return Answer()

    released = threading.Event()
    daemon.on("GET", "/api/tasks", wait)
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); " + PROGRAM[-1]
    command = [*PROGRAM[:-1], code, "--data", str(data), "ps"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            until(waiting.is_set, "the request")
            child.send_signal(signal.SIGINT)
            until(lambda: child.poll() is not None, "the client to end")
            _out, err = child.communicate()
        finally:
            child.kill()
            released.set()
    assert (child.returncode, err.strip()) == (exit_codes.INTERRUPTED, "")


def test_interrupted_start() -> None:
    """Ctrl-C while the program still loads its modules ends it with 130, without a traceback."""
    code = f"""
import sys
class Interrupt:
    def find_spec(self, name, path, target=None):
        if name == "supervisor.cli.main":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupt())
{PROGRAM[-1]}
"""
    done = subprocess.run([*PROGRAM[:-1], code, "ps"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (exit_codes.INTERRUPTED, "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_partial_write(tmp_path: Path, unbuffered: str) -> None:
    """Output that is cut off by a limit is an error, also with PYTHONUNBUFFERED."""
    called = ["sh", "-c", 'ulimit -f 1; exec "$@" > "$0"', str(tmp_path / "help.txt"), *PROGRAM, "--help"]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(called, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr) == (exit_codes.OUTPUT, "ringward: cannot write output: File too large\n")


def test_closed_pipe(daemon: FakeDaemon, data: Path) -> None:
    """`ringward logs --raw x | head` ends silently."""
    run_id = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    daemon.on("GET", f"/api/runs/{run_id}", {"id": run_id})
    daemon.on("GET", f"/api/runs/{run_id}/log/raw", Answer(200, b"x" * 4_000_000, "text/plain"))
    command = [*PROGRAM, "--data", str(data), "logs", "--raw", run_id]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout
        assert child.stderr
        os.read(child.stdout.fileno(), 1)
        child.stdout.close()
        assert child.stderr.read() == b""
    assert child.returncode == exit_codes.READER_GONE


@pytest.mark.parametrize("name", ["web", RUN])
def test_closed_pipe_ends_following(daemon: FakeDaemon, data: Path, name: str) -> None:
    """`ringward logs -f web | grep -m1 ready` ends after that line, although no further line arrives."""
    row = line(0, "ready")
    unit = (
        event("run", {"r": 0, "runId": RUN, "taskName": "web", "instanceIndex": 0}),
        event("lines", [{"r": 0, **row}]),
    )
    daemon.on("GET", f"/api/runs/{RUN}", {"id": RUN})
    daemon.on("GET", f"/api/runs/{RUN}/log", {"totalLines": 1})
    daemon.on("GET", f"/api/runs/{RUN}/log/stream", events(event("line", row, 0)), events())
    daemon.on("GET", "/api/tasks/web", {"name": "web", "kind": "task"})
    daemon.on("GET", "/api/tasks/web/log/stream", events(*unit), events())
    command = [*PROGRAM, "--data", str(data), "logs", "-f", name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout
        assert child.stderr
        assert b"ready" in child.stdout.readline()
        child.stdout.close()
        assert child.stderr.read() == b""
    assert child.returncode == exit_codes.READER_GONE


@pytest.mark.parametrize(("option", "code", "shown"), [([], exit_codes.USAGE, b""), (["--force"], 0, b"\x1b]0;x\x07")])
def test_raw_output_to_a_terminal(daemon: FakeDaemon, data: Path, option: list[str], code: int, shown: bytes) -> None:
    """`logs --raw` sends control sequences to a terminal only with --force."""
    run_id = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    daemon.on("GET", f"/api/runs/{run_id}", {"id": run_id})
    daemon.on("GET", f"/api/runs/{run_id}/log/raw", Answer(200, b"\x1b]0;x\x07", "text/plain"))
    controller, terminal = pty.openpty()
    try:
        command = [*PROGRAM, "--data", str(data), "logs", "--raw", *option, run_id]
        done = subprocess.run(command, stdout=terminal, stderr=subprocess.PIPE, text=True, check=False)
        os.set_blocking(controller, False)
        received = bytearray()

        def is_shown() -> bool:  # the kernel passes on the output of a terminal in parts, and later
            with contextlib.suppress(BlockingIOError):
                received.extend(os.read(controller, 100))
            return shown in received

        until(is_shown, "the output")
    finally:
        os.close(controller)
        os.close(terminal)
    assert (done.returncode, bytes(received)) == (code, shown)
    assert ("redirect the output, or add --force" in done.stderr) is not bool(option)


@pytest.mark.parametrize(
    ("redirection", "command", "code", "message"),
    [
        (">/dev/full", "ps", exit_codes.OUTPUT, "cannot write output: No space left on device\n"),
        (">/dev/full", "--help", exit_codes.OUTPUT, "cannot write output: No space left on device\n"),
        ("<&- >&-", "ps", exit_codes.OK, ""),
        ("2>/dev/full", "health", exit_codes.UNREACHABLE, ""),
    ],
)
def test_failed_output(daemon: FakeDaemon, data: Path, redirection: str, command: str, code: int, message: str) -> None:
    """Output to a full disk gives one line; closed descriptors are ignored."""
    daemon.on("GET", "/api/tasks", {"items": []})
    called = ["sh", "-c", f'exec "$@" {redirection}', "sh", *PROGRAM, "--data", str(data), command]
    done = subprocess.run(called, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.removeprefix("ringward: ")) == (code, message)


def test_closed_descriptors() -> None:
    """Closed standard descriptors are opened on /dev/null, so that the log does not go into a data file."""
    code = "import os, supervisor.cli.entry as main; main._open_what_is_closed()\n"
    code += "print(*(f'{os.readlink(f\"/proc/self/fd/{fd}\")} {os.get_inheritable(fd)}' for fd in (0, 2)))"
    command = ["sh", "-c", 'exec "$@" <&- 2>&-', "sh", sys.executable, "-c", code]
    assert subprocess.check_output(command, text=True) == "/dev/null True /dev/null True\n"


def test_openapi(ringward: Ringward, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A separate process prints the document; if it fails, the reason is shown."""
    script = tmp_path / "python"
    script.write_text('#!/bin/sh\necho "{\\"args\\": \\"$*\\"}"\n')
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    assert json.loads(ringward("openapi", plain=True).output) == {"args": "-I -m ringward api-document"}
    script.write_text("#!/bin/sh\necho broken >&2; exit 3\n")
    result = ringward("openapi", plain=True)
    assert (result.exit_code, "broken" in result.stderr) == (exit_codes.REFUSED, True)


def test_commands_match_their_modules() -> None:
    """Each command is registered under the name of its module."""
    directory = Path(importlib.import_module("supervisor.cli.commands").__file__ or "").parent
    names = {f"supervisor.cli.commands.{path.parent.name}.{path.stem}" for path in directory.glob("*/[!_]*.py")}
    assert names == {module_of(name) for name in COMMANDS}
    assert cli.name == "cli"
