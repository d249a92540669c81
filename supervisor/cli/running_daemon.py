"""The running daemon of a data directory as a process, for commands that do not use its API."""

import contextlib
import fcntl
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from supervisor.cli import exit_codes
from supervisor.cli.failure import Failure
from supervisor.host.files import read_json
from supervisor.host.pidfds import has_ended
from supervisor.startup.runtime_directory import candidates

_TITLE = b"ringward supervisor"
_ANSWER = "upgrade.json"
_POLL_S = 0.02
_UPGRADE_S = 180.0
"""Time limit of an upgrade."""


class RunningDaemon:
    """A running daemon.

    Args:
        data: its data directory.

    Raises:
        Failure: no daemon runs on the directory, or we are not permitted to find out.
    """

    def __init__(self, data: str) -> None:
        self._data = data
        self._runtime_dir = ""
        path = os.path.join(data, "lock")
        try:
            with open(path, encoding="ascii") as lock, open(os.path.join(data, "id"), encoding="ascii") as identity:
                self.pid = int(lock.read().strip() or 0)
                self._id = identity.read().strip()
                self.uid = os.fstat(lock.fileno()).st_uid
                locked = _held(lock.fileno())
        except FileNotFoundError as err:
            raise self._none() from err
        except (OSError, ValueError) as err:
            raise Failure(f"{path}: {getattr(err, 'strerror', None) or err}", exit_codes.NOT_PERMITTED) from err
        if not locked or not self._is_root_process():
            raise self._none()

    def _none(self) -> Failure:
        return Failure(f"no daemon runs on {self._data}", exit_codes.UNREACHABLE)

    def _is_root_process(self) -> bool:
        """Return whether the pid is that of the daemon: in another pid namespace it means another process."""
        try:
            with open(f"/proc/{self.pid}/cmdline", "rb") as file:
                return file.read().rstrip(b"\0") == _TITLE
        except OSError:  # ENOENT: it has exited, or is in another pid namespace
            return False

    def answer(self) -> dict[str, Any]:
        """Return the daemon's published answer about upgrades.

        Raises:
            Failure: its runtime directory cannot be found or read.
        """
        for base in (*candidates(os.environ, self.uid), f"/run/user/{self.uid}/ringward"):
            directory = os.path.join(base, self._id)
            # ENOENT: the runtime directory is in another place. ValueError: the file is damaged.
            with contextlib.suppress(OSError, ValueError):
                answer: dict[str, object] = read_json(os.path.join(directory, _ANSWER))
                self._runtime_dir = directory
                return answer
        raise Failure("cannot find the daemon's runtime directory", exit_codes.UNREACHABLE)

    @contextmanager
    def request(self, environment: dict[str, object]) -> Iterator[None]:
        """Request this environment for an upgrade inside the block, in a file that only the daemon's user can read.

        Raises:
            Failure: the file cannot be written.
        """
        name = self.answer()["request"]
        try:
            directory = os.open(self._runtime_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as err:
            raise Failure(f"{self._runtime_dir}: {err.strerror}", exit_codes.NOT_PERMITTED) from err
        new = f"{name}.{os.getpid()}"
        try:
            fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=directory)
            with open(fd, "w", encoding="utf-8") as file:
                json.dump(environment, file)
                os.fchown(fd, self.uid, -1)
            os.replace(new, name, src_dir_fd=directory, dst_dir_fd=directory)
            yield
        except OSError as err:
            raise Failure(f"{self._runtime_dir}/{name}: {err.strerror}", exit_codes.NOT_PERMITTED) from err
        finally:
            for leftover in (new, name):
                with contextlib.suppress(FileNotFoundError):  # the daemon removes a request that it has read
                    os.unlink(leftover, dir_fd=directory)
            os.close(directory)

    @contextmanager
    def pidfd(self) -> Iterator[int]:
        """Provide a pidfd of the daemon inside the block.

        Raises:
            Failure: the daemon has exited.
        """
        try:
            pidfd = os.pidfd_open(self.pid)
        except ProcessLookupError as err:
            raise self._none() from err
        try:
            yield pidfd
        finally:
            os.close(pidfd)

    def upgrade(self) -> dict[str, Any]:
        """Signal the daemon to upgrade, and wait for the result.

        Raises:
            Failure: we are not permitted to signal it, it exited, or it took too long.
        """
        before = self.answer()
        number = before["number"] + (before["state"] != "trying")
        deadline_s = time.monotonic() + _UPGRADE_S
        with self.pidfd() as pidfd:
            try:
                signal.pidfd_send_signal(pidfd, signal.SIGUSR2)
            except PermissionError as err:
                raise Failure("only the daemon's user and root may upgrade it", exit_codes.NOT_PERMITTED) from err
            except ProcessLookupError as err:
                raise self._none() from err
            while time.monotonic() < deadline_s:
                if has_ended(pidfd, _POLL_S):
                    raise Failure("the daemon ended during the upgrade", exit_codes.UNREACHABLE)
                answer = self.answer()
                if answer["number"] >= number and answer["state"] != "trying":
                    return answer
        raise Failure(f"the daemon did not answer within {_UPGRADE_S:g} s; check its log", exit_codes.UNREACHABLE)


def _held(fd: int) -> bool:
    """Return whether another process holds the lock on `fd`."""
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False
