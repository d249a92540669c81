"""Sockets that the daemon holds for services, on a bench."""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from supervisor.config.load import load
from supervisor.config.value_records import HeldSocket
from supervisor.ipc.messages import HOLDS_SOCKETS, Decoder
from supervisor.scheduler.loop.loop import Loop
from supervisor.scheduler.loop.root_connection import RootConnection
from supervisor.scheduler.runs.live_units import Unit
from supervisor.scheduler.services import held_sockets
from supervisor.scheduler.services.instance_transitions import State
from tests.scheduler.bench import Bench
from tests.scheduler.service_bench import answer_to, ends, restarted, run_all, states, taken_up
from tests.support.ports import free_port
from tests.support.waiting import until

Make = Callable[[str], Bench]


def service(sockets: str, more: str = "") -> str:
    return f'[services.s]\nrun = ["true"]\nhealthy_after = "0s"\n{more}\n[services.s.sockets]\n{sockets}\n'


def begun(harness: Bench) -> Unit:
    """Begin to start the service; the answer of the thread that binds its sockets waits for the loop."""
    unit = harness.units["s"]
    with harness.committer.changing() as change:
        harness.controller.take_over(unit, change)
    harness.store.work_all()
    return unit


def started(harness: Bench, unit: Unit) -> None:
    """Let the sockets be bound, and all instances start."""

    def all_run() -> bool:
        harness.loop.round(0)
        run_all(harness)
        return states(unit) == [State.RUNNING] * len(unit.instances)

    until(all_run, "the instances")


def go_on(harness: Bench, condition: Callable[[], bool], description: str) -> None:
    """Run the loop until a condition is met."""

    def met() -> bool:
        harness.loop.round(0)
        harness.store.work_all()
        return condition()

    until(met, description)


def listens(address: str | tuple[str, int]) -> bool:
    with socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET) as client:
        return client.connect_ex(address) == 0


def redefine(harness: Bench, text: str) -> None:
    (Path(harness.settings.config_path)).write_text(text)
    change = harness.committer.change()
    harness.controller.replace(harness.units["s"], load(harness.settings.config_path).services["s"], change)
    harness.committer.commit(change)
    harness.store.work_all()


def test_sockets_are_bound_before_the_start(bench: Make) -> None:
    """The root holds all sockets before the first instance starts; a restart changes none of them."""
    one, other = free_port(), free_port()
    harness = bench(service(f'b = "tcp:127.0.0.1:{one}"\na = "tcp:127.0.0.1:{other}"', "instances = 2"))
    unit = begun(harness)
    assert states(unit) == [State.HELD] * 2
    assert {instance.line for instance in unit.instances} == {"waits for its sockets to be bound"}
    assert harness.root.take("spawn") == []
    started(harness, unit)
    assert [frame["op"] for frame in harness.root.sent if frame["op"] == "hold"] == ["hold"] * 2
    assert list(harness.root.held) == [("s", "b"), ("s", "a")]
    assert listens(("127.0.0.1", one))
    before = dict(harness.root.held)
    restarted(harness)
    assert listens(("127.0.0.1", one))
    for instance in unit.instances:
        ends(harness, instance, cause="stop")
    started(harness, unit)
    assert harness.root.held == before


def test_sockets_are_closed_when_no_instance_needs_them(bench: Make) -> None:
    """While an instance runs or is about to, sockets stay open; when all are stopped or fatal, they are closed."""
    port = free_port()
    harness = bench(service(f'a = "tcp:127.0.0.1:{port}"', "instances = 2\nrestart_attempts = 0\nfatal_retry = '1h'"))
    unit = taken_up(harness)
    started(harness, unit)
    answer_to(harness, "service_stop")
    ends(harness, unit.instances[0], cause="stop")
    assert listens(("127.0.0.1", port))
    ends(harness, unit.instances[1], cause="stop")
    assert not listens(("127.0.0.1", port))
    assert harness.root.held == {}
    answer_to(harness, "service_start")
    started(harness, unit)
    for instance in unit.instances:
        instance.healthy = False
        harness.exited(instance.run.id, status=1 << 8, ran_ms=-1)  # type: ignore[union-attr]
        harness.store.work_all()
        assert listens(("127.0.0.1", port)) == (instance.index == 0)
    assert states(unit) == [State.FATAL] * 2


def test_stop_while_sockets_are_bound(bench: Make) -> None:
    """A socket that is bound after a stop is closed again."""
    port = free_port()
    harness = bench(service(f'a = "tcp:127.0.0.1:{port}"'))
    unit = begun(harness)
    answer_to(harness, "service_stop")
    go_on(harness, lambda: not harness.controller.sockets._waiting, "the thread to answer")
    assert harness.root.held == {}
    assert states(unit) == [State.STOPPED]
    assert not listens(("127.0.0.1", port))


def test_new_address_of_several_instances(bench: Make) -> None:
    """Instances that may have bound an address themselves stop together, and start once the daemon has bound it."""
    harness = bench(service("", "instances = 2").replace("[services.s.sockets]", ""))
    unit = taken_up(harness)
    with socket.create_server(("127.0.0.1", 0)) as own:
        port = own.getsockname()[1]
        redefine(harness, service(f'a = "tcp:127.0.0.1:{port}"', "instances = 2"))
        assert states(unit) == [State.RESTARTING] * 2
        ends(harness, unit.instances[0], cause="stop")
        go_on(harness, lambda: "in use" in (unit.instances[0].line or ""), "the reason")
    ends(harness, unit.instances[1], cause="stop")
    started(harness, unit)
    assert listens(("127.0.0.1", port))
    redefine(harness, service(f'b = "tcp:127.0.0.1:{free_port()}"', "instances = 2"))
    assert harness.root.held == {}


def test_takeover_closes_unneeded_sockets(bench: Make) -> None:
    """A new scheduler closes sockets whose service or configuration is gone, and keeps the others."""
    port = free_port()
    harness = bench(service(f'a = "tcp:127.0.0.1:{port}"'))
    unit = taken_up(harness)
    started(harness, unit)
    (held,) = [frame for frame in harness.root.sent if frame["op"] == "hold"]
    for name in ("s", "gone"):
        for socket_name in ("b", "c"):
            harness.root.held[name, socket_name] = socket.socket()
    listed = [["s", "a", held["identity"]], ["s", "b", "?"], ["s", "c", "?"], ["gone", "b", "?"], ["gone", "c", "?"]]
    harness.controller.sockets.know(listed)
    harness.controller.sockets.settle(harness.units)
    assert list(harness.root.held) == [("s", "a")]


def test_root_that_holds_no_sockets(bench: Make) -> None:
    """A root of an earlier version gets no sockets; it refuses the run with the reason."""
    harness = bench(service(f'a = "tcp:127.0.0.1:{free_port()}"'))
    harness.root.protocol = HOLDS_SOCKETS - 1
    taken_up(harness)
    assert harness.root.held == {}
    (request,) = harness.root.requests.values()
    assert request["refusal"] == "the running supervisor is too old for sockets: run ringward upgrade"


@pytest.fixture
def unix_socket() -> Iterator[Callable[..., socket.socket | str]]:
    """Bind a Unix socket with these settings; return it, or the reason why that is impossible."""
    with ExitStack() as stack:

        def bind(path: Path, **settings: object) -> socket.socket | str:
            bound = held_sockets._bound(
                HeldSocket(name="a", address=f"unix:{path}", **settings)  # type: ignore[arg-type]
            )
            return bound if isinstance(bound, str) else stack.enter_context(bound)

        yield bind


def test_unix_socket(tmp_path: Path, unix_socket: Callable[..., socket.socket | str]) -> None:
    """A socket file has its mode whatever the umask, and replaces one that nobody listens on, but no other file."""
    path = tmp_path / "a.sock"
    before = os.umask(0o077)
    try:
        first = unix_socket(path, mode=0o640)
        assert isinstance(first, socket.socket)
        assert path.stat().st_mode & 0o777 == 0o640
        assert f"{Path('/proc/self/comm').read_text().strip()} ({os.getpid()}) listens there" in str(unix_socket(path))
        first.close()
        assert isinstance(unix_socket(path), socket.socket)
        assert path.stat().st_mode & 0o777 == 0o666
    finally:
        os.umask(before)
    file = tmp_path / "file"
    file.write_text("kept")
    assert unix_socket(file) == f"cannot listen on unix:{file}: Address already in use"
    assert file.read_text() == "kept"
    assert "No such file" in str(unix_socket(tmp_path / "none" / "a.sock"))


def test_owner_of_a_unix_socket(tmp_path: Path, unix_socket: Callable[..., socket.socket | str]) -> None:
    """A socket gets another owner only in a directory that no other user can change."""
    assert unix_socket(tmp_path / "a", user="nobody-here") == "no such user: nobody-here"
    assert unix_socket(tmp_path / "a", group="nobody-here") == "no such group: nobody-here"
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    reason = str(unix_socket(folder / "a", user=str(os.geteuid())))
    assert reason.startswith(f"cannot give {folder}/a another owner: other users can change {folder}")
    assert isinstance(unix_socket(folder / "a"), socket.socket)


def test_sockets_reach_a_busy_root_with_their_messages() -> None:
    """However full the connection is, each socket arrives with the first byte of its message, and in order."""
    ours, theirs = socket.socketpair()
    with theirs:
        loop = Loop()
        connection = RootConnection(ours.detach())
        connection.attach(loop, lambda _message: None)
        passed = [socket.socket() for _ in range(40)]
        inodes = [os.fstat(each.fileno()).st_ino for each in passed]
        for number, each in enumerate(passed):
            connection.send({"op": "note", "text": "x" * 20_000})
            connection.send({"op": "hold", "name": number}, each)
        decoder, received, names = Decoder(), list[int](), list[int]()
        theirs.setblocking(False)
        while len(names) < len(passed):
            loop.round(0)
            try:
                data, fds, _, _ = socket.recv_fds(theirs, 4096, 4)
            except BlockingIOError:
                continue
            received += fds
            names += [message["name"] for message in decoder.feed(data) if message["op"] == "hold"]
            assert len(received) >= len(names)
        assert [os.fstat(fd).st_ino for fd in received] == inodes
        assert all(each.fileno() < 0 for each in passed)
        for fd in received:
            os.close(fd)
        connection._sock.close()
