"""A file system that can be frozen: an image on a loop device, in the daemon's own mount namespace.

A file system that stays frozen hangs every process that touches it. So a guard process thaws it after the test, however
the test ends: the guard waits for the end of a pipe whose other end the test's process holds.
"""

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.daemon import Daemon

FIFREEZE, FITHAW = 0xC0045877, 0xC0045878
_GUARD = f"""
import fcntl, os, select, sys
print("ready", flush=True)
select.select([0], [], [], 300)
try:
    fcntl.ioctl(int(sys.argv[1]), {FITHAW}, 0)
except OSError:
    pass
"""
_MOUNT = 'mount -o loop "$1" "$2" && shift 2 && exec "$@"'


class FrozenLogs(Daemon):
    """A daemon with a separate file system for data/logs, or for all of data."""

    def __init__(self, directory: Path, *, all_data: bool = False) -> None:
        super().__init__(directory)
        self.logs = self.data if all_data else self.data / "logs"
        self.logs.mkdir(parents=True, mode=0o700)
        self.data.chmod(0o700)
        # In memory: freezing flushes dirty pages, which is slow on a busy disk.
        self._images = tempfile.TemporaryDirectory(dir="/dev/shm")
        self._image = Path(self._images.name) / "image"
        make_image(self._image)
        self._fd = -1
        self._guard: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        return [*in_namespace(), "sh", "-c", _MOUNT, "sh", str(self._image), str(self.logs), *super().command()]

    def freeze(self) -> None:
        """Block all writes to the logs until the thaw."""
        self._fd = os.open(f"/proc/{self.pid}/root{self.logs}", os.O_RDONLY | os.O_DIRECTORY)
        self._guard = subprocess.Popen(
            [sys.executable, "-I", "-c", _GUARD, str(self._fd)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=[self._fd],
        )
        assert self._guard.stdout is not None
        assert self._guard.stdout.readline() == b"ready\n"
        fcntl.ioctl(self._fd, FIFREEZE, 0)

    def thaw(self) -> None:
        """Permit writes again; repeating this has no effect."""
        if self._guard is None:
            return
        self._guard.communicate()  # the end of its input makes it thaw
        self._guard = None
        os.close(self._fd)

    def log_files(self) -> list[str]:
        """Return the names of the log files on the frozen file system."""
        return [path.name for path in Path(f"/proc/{self.pid}/root{self.logs}").rglob("*.log")]

    def clean(self) -> None:
        self.thaw()
        super().clean()
        self._images.cleanup()


def in_namespace() -> list[str]:
    """Return the command prefix for a private mount namespace."""
    return ["unshare", "--mount", "--propagation", "private"]


def make_image(path: Path) -> None:
    """Create an empty ext4 file system."""
    with path.open("wb") as file:
        file.truncate(64 << 20)
    subprocess.run(["mkfs.ext4", "-q", str(path)], check=True)


def why_not() -> str | None:
    """Return why file systems cannot be frozen here, or None."""
    if os.geteuid():
        return "freezing a file system takes root"
    for tool in ("unshare", "mount", "mkfs.ext4"):
        if shutil.which(tool) is None:
            return f"{tool} is not installed"
    with tempfile.TemporaryDirectory() as directory:
        image, point = Path(directory) / "image", Path(directory) / "point"
        make_image(image)
        point.mkdir()
        command = [*in_namespace(), "sh", "-c", _MOUNT, "sh", str(image), str(point), "true"]
        tried = subprocess.run(command, capture_output=True, text=True)
        return None if tried.returncode == 0 else f"no loop device can be mounted: {tried.stderr.strip()}"
