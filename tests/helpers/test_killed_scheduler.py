"""Helpers whose scheduler was killed before it read their answer."""

import socket
import subprocess
import sys
from typing import Any

import pytest

from supervisor.ipc.child_process import RINGWARD
from supervisor.ipc.delivery_request import PingRequest
from supervisor.ipc.helper_messages import HelperMessage, encode
from supervisor.ipc.probe_request import ProbeRequest, StartProbe, WatcherSetup
from tests.support.ports import free_port


def watch() -> list[HelperMessage]:
    """Return requests to which the watcher answers."""
    request = ProbeRequest(key="run", kind="exec", argv=["true"], every_ms=1000, timeout_ms=60_000)
    return [WatcherSetup("/nonexistent", ""), StartProbe(request)]


def notify() -> list[HelperMessage]:
    """Return a request to which the notifier answers."""
    return [PingRequest(key="ping", url=f"http://127.0.0.1:{free_port()}/")]


@pytest.mark.parametrize(("helper", "requests"), [("watcher", watch), ("notifier", notify)])
def test_unread_answer(helper: str, requests: Any) -> None:
    """A helper whose answer is not read ends with status 0 and prints nothing."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        argv = [sys.executable, *RINGWARD, helper, "--fd", str(theirs.fileno())]
        process = subprocess.Popen(argv, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE, text=True)
        theirs.close()
        for frame in requests():
            ours.sendall(encode(frame))
        ours.shutdown(socket.SHUT_RD)  # an answer fails with EPIPE, while the helper still waits for requests
        _, messages = process.communicate(timeout=60)
    assert (process.returncode, messages) == (0, "")
