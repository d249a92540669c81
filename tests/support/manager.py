"""A fake service manager: it keeps the descriptors that the daemon stores, and restarts the daemon with them."""

import array
import os
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.daemon import Daemon

_FIRST_FD = 3
_HIGH_FD = 400
_MAX_FDS = 253

# In a separate process, which sets its pid and the numbers of the descriptors before it becomes the daemon.
_HAND_OVER = """
import os, sys
count = int(sys.argv[1])
for number in range(count):
    os.dup2(int(sys.argv[2]) + number, 3 + number)
os.closerange(3 + count, int(sys.argv[2]) + count)
os.environ["LISTEN_PID"] = str(os.getpid())
os.execv(sys.argv[3], sys.argv[3:])
"""


class Manager:
    """A thread that handles FDSTORE=1 and FDSTOREREMOVE=1 like systemd."""

    def __init__(self) -> None:
        self._directory = tempfile.mkdtemp(prefix="rw-")
        self.address = f"{self._directory}/notify"
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._sock.bind(self.address)
        self.stored: dict[str, list[int]] = {}
        self.removed: list[str] = []
        self.problems: list[str] = []
        self.told: list[dict[str, str]] = []
        """Messages that are not about descriptors."""
        self.lock = threading.Lock()
        self._received = threading.Event()
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        while True:
            data, ancillary, _, _ = self._sock.recvmsg(4096, socket.CMSG_SPACE(_MAX_FDS * 4))
            fds = array.array("i")
            for _, _, content in ancillary:
                fds.frombytes(content)
            state = dict(line.split("=", 1) for line in data.decode().splitlines())
            with self.lock:
                if state.get("FDSTORE") == "1":
                    if state.get("FDPOLL") != "0":
                        self.problems.append(f"{state} would be dropped when it hangs up")
                    self.stored.setdefault(state["FDNAME"], []).extend(fds)
                    continue
                for fd in fds:
                    os.close(fd)
                if state.get("FDSTOREREMOVE") == "1":
                    self.removed.append(state["FDNAME"])
                    for fd in self.stored.pop(state["FDNAME"], []):
                        os.close(fd)
                elif "END" in state:
                    return
                elif "HEARD" in state:
                    self._received.set()
                else:
                    self.told.append(state)

    def count(self, assignment: str) -> int:
        """Return how many times a message such as ``READY=1`` was received."""
        name, _, value = assignment.partition("=")
        with self.lock:
            return sum(state_message.get(name) == value for state_message in self.told)

    def of(self, run: str) -> list[int]:
        """Return the stored descriptors of a run."""
        with self.lock:
            return list(self.stored.get(f"ringward-{run}", []))

    def handed_over(self) -> tuple[list[int], str]:
        """Return all descriptors and their names, after reading all messages of a dead daemon."""
        self._received.clear()
        self._sock.sendto(b"HEARD=1", self.address)
        self._received.wait()
        with self.lock:
            pairs = [(name, fd) for name, fds in self.stored.items() for fd in fds]
        return [fd for _, fd in pairs], ":".join(name for name, _ in pairs)

    def close(self) -> None:
        """Stop the thread and close everything."""
        self._sock.sendto(b"END=1", self.address)
        self._thread.join()
        self._sock.close()
        for fds in self.stored.values():
            for fd in fds:
                os.close(fd)
        os.unlink(self.address)
        os.rmdir(self._directory)


class Managed(Daemon):
    """A daemon under such a service manager."""

    def __init__(self, directory: Path, manager: Manager) -> None:
        super().__init__(directory)
        self.manager = manager
        self._names = ""
        self._command: list[str] = []

    def environment(self) -> dict[str, str]:
        stored = {"LISTEN_FDS": str(self._names.count(":") + 1), "LISTEN_FDNAMES": self._names} if self._names else {}
        return {**super().environment(), "NOTIFY_SOCKET": self.manager.address, **stored}

    def command(self) -> list[str]:
        return [*self._command, *super().command()]

    def launch(self, stderr: int | None = None, *, stdout: int | None = None, close_fds: bool = True) -> None:
        fds, self._names = self.manager.handed_over()
        high = [os.dup2(fd, _HIGH_FD + number, inheritable=True) for number, fd in enumerate(fds)]
        self._command = [sys.executable, "-I", "-S", "-c", _HAND_OVER, str(len(fds)), str(_HIGH_FD)] if fds else []
        try:
            super().launch(stderr, stdout=stdout, close_fds=close_fds and not fds)
        finally:
            for fd in high:
                os.close(fd)
            self._names = ""

    def kill(self) -> None:
        """Kill the supervisor alone with SIGKILL."""
        assert self.process is not None
        self.process.kill()
        self.process.wait(60)


@contextmanager
def soaked_daemon(directory: Path, *, descriptor_store: bool) -> Iterator[Daemon]:
    """Yield a daemon, and remove all its processes and directories afterwards."""
    with ExitStack() as stack:
        if descriptor_store:
            manager = Manager()
            stack.callback(manager.close)
            daemon: Daemon = Managed(directory, manager)
        else:
            daemon = Daemon(directory)
        stack.callback(daemon.clean)
        yield daemon


@contextmanager
def service_manager(*, descriptor_store: bool) -> Iterator[None]:
    """Give each daemon that starts meanwhile a descriptor store. None of them may need its descriptors back."""
    if not descriptor_store:
        yield
        return
    manager = Manager()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NOTIFY_SOCKET", manager.address)
        try:
            yield
        finally:
            manager.close()
