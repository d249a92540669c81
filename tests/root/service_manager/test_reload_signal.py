import os
import pty
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.ipc import child_process
from supervisor.ipc.child_process import ChildProcess
from supervisor.ipc.messages import DaemonSettings, Decoder
from supervisor.root.helper_processes import Helper
from supervisor.root.service_manager.reload_signal import ReloadSignal, Terminal
from tests.root.loop.test_shortage import BOOT
from tests.scheduler.fake_clock import FakeClock


@pytest.fixture
def notices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The socket of the service manager."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        yield sock


def test_reload_notices(notices: socket.socket) -> None:
    """The service manager gets the start, with its time, and the end; an end without a start is not sent."""
    sent: list[dict[str, object]] = []
    reloading = ReloadSignal(sent.append, FakeClock())
    reloading.end()
    reloading.request_reload()
    assert sent == [{"op": "reload"}]
    assert notices.recv(4096) == b"RELOADING=1\nMONOTONIC_USEC=1000000000"
    reloading.reloaded()
    reloading.end()
    assert notices.recv(4096).startswith(b"READY=1")
    with pytest.raises(BlockingIOError):
        notices.recv(4096)


def test_scheduler_dies_during_a_reload(notices: socket.socket) -> None:
    """The next scheduler is asked to reload again; the service manager gets the end after it has reloaded."""
    sent: list[dict[str, object]] = []
    reloading = ReloadSignal(sent.append, FakeClock())
    reloading.request_reload()
    assert notices.recv(4096).startswith(b"RELOADING=1")
    reloading.scheduler_started()
    assert sent == [{"op": "reload"}] * 2
    with pytest.raises(BlockingIOError):
        notices.recv(4096)
    reloading.reloaded()
    assert notices.recv(4096).startswith(b"READY=1")
    reloading.scheduler_started()
    assert len(sent) == 2


def test_terminal_hangup() -> None:
    """A terminal counts as gone only after its other end was closed."""
    handler = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the test runner may ignore it
    try:
        master, terminal = pty.openpty()
        hangup_terminal = Terminal(terminal)
        before = hangup_terminal.has_hung_up
        os.close(master)
        assert (before, hangup_terminal.has_hung_up) == (False, True)
        os.close(terminal)
    finally:
        signal.signal(signal.SIGHUP, handler)


def test_nohup() -> None:
    """A daemon that ignores SIGHUP does not watch its terminal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        master, terminal = pty.openpty()
        hangup_terminal = Terminal(terminal)
        os.close(master)
        assert not hangup_terminal.has_hung_up
        os.close(terminal)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_pipe_is_not_a_terminal() -> None:
    """A daemon with its output in a pipe never ends by SIGHUP."""
    reader, writer = os.pipe()
    terminal = Terminal(writer)
    os.close(reader)
    assert not terminal.has_hung_up
    os.close(writer)


def test_stopped_helper_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A helper that is not running is not replaced, because its next start has the new settings anyway."""
    settings = {**BOOT.to_dict(), "runtime_dir": str(tmp_path)}
    helper = Helper("gunicorn", "api.serve", DaemonSettings.from_dict(settings), [])
    assert not helper.replace(0.0)
    assert (helper.replaced, helper.kill_at_s) == (False, None)
    helper.settings = DaemonSettings.from_dict({**settings, "workers": 5})
    ours, theirs = socket.socketpair()
    pidfd, output = os.pidfd_open(os.getpid()), os.open(os.devnull, os.O_RDONLY)
    monkeypatch.setattr(child_process, "start", lambda *_: ChildProcess(os.getpid(), pidfd, ours, output))
    helper.start({}, 0.0)
    helper.flush()
    (hello,) = Decoder().feed(theirs.recv(1 << 20))
    assert (hello["op"], hello["boot"]["workers"]) == ("hello", 5)
    for end_of_pair in (ours, theirs):
        end_of_pair.close()
    for fd in (pidfd, output):
        os.close(fd)
