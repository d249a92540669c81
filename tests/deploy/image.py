"""Execute the Containerfile with Linux namespaces, another root directory and another user.

There is no base image: the host's programs, mounted read-only, replace it. The test environment replaces the result of
the first stage. All other instructions run as written.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from tests.support.paths import ROOT
from tests.support.waiting import until

FILE = ROOT / "deploy/container/Containerfile"
UNSHARE = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child"]
_BASE = """
set -e
mount -t tmpfs -o mode=755 tmpfs "$root"
mkdir -p "$root"/etc "$root"/proc "$root"/var/lib
mkdir -m 1777 "$root"/tmp
bind() {
    mkdir -p "$root$2"
    mount --rbind "$1" "$root$2"
    mount -o remount,bind,ro "$root$2"
}
for path in /bin /lib /lib64 /sbin; do
    if [ -L "$path" ]; then cp -a "$path" "$root"; elif [ -e "$path" ]; then bind "$path" "$path"; fi
done
mount -t proc proc "$root"/proc
mkdir -p "$root"/dev/shm
mount -t tmpfs tmpfs "$root"/dev/shm
for device in null zero urandom random; do
    touch "$root/dev/$device"
    mount --bind "/dev/$device" "$root/dev/$device"
done
cp -a /etc/passwd /etc/group /etc/shadow /etc/gshadow /etc/login.defs /etc/ld.so.cache "$root"/etc
"""


def instructions() -> list[tuple[str, str]]:
    """Word and the rest of each instruction."""
    lines = [line for line in FILE.read_text().splitlines() if line and not line.startswith("#")]
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in lines]


class Image:
    """The last stage of the file, in directories of a test."""

    def __init__(self) -> None:
        found = instructions()
        last = max(index for index, (word, _) in enumerate(found) if word == "FROM")
        self.steps = found[last + 1 :]
        said = dict(self.steps)
        self.user, self.volume = said["USER"], said["VOLUME"]
        self.entry: list[str] = json.loads(said["ENTRYPOINT"]) + json.loads(said["CMD"])
        self.health: list[str] = json.loads(said["HEALTHCHECK"].partition(" CMD ")[2])
        self.stop = signal.Signals[said["STOPSIGNAL"]]
        path = said["ENV"].partition("=")[2].strip('"').replace("${PATH}", "/usr/local/bin:/usr/bin:/bin")
        self.execute = [f"--userspec={self.user}:{self.user}", "/", "env", "-i", f"PATH={path}", f"HOME={self.volume}"]

    def script(self, root: Path, data: Path, tasks: Path) -> str:
        """What makes the container out of an empty directory, and becomes its process 1."""
        lines = [f"root={shlex.quote(str(root))}", _BASE]
        bound = {"/usr", sys.base_prefix, sys.prefix, str(ROOT)}
        lines += [f"bind {shlex.quote(path)} {shlex.quote(path)}" for path in sorted(bound)]
        for word, rest in self.steps:
            source, _, target = rest.partition(" ")
            if word == "RUN":
                lines.append(f'chroot "$root" /bin/sh -c {shlex.quote(rest)}')
            elif rest.startswith("--from=build "):
                lines.append(f"bind {shlex.quote(sys.prefix)} {target.split()[1]}")
            elif word == "COPY":
                lines.append(f'install -D -m 0644 {shlex.quote(str(ROOT / source))} "$root"{target}')
        lines += [
            f'install -D -m 0644 {shlex.quote(str(tasks))} "$root"/etc/ringward/conf.d/tasks.toml',
            # A new volume has the owner and the mode of the directory that it takes the place of.
            f'chown --reference="$root"{self.volume} {shlex.quote(str(data))}',
            f'chmod --reference="$root"{self.volume} {shlex.quote(str(data))}',
            f'mount --bind {shlex.quote(str(data))} "$root"{self.volume}',
            shlex.join(["exec", "chroot", *self.execute, *self.entry]).replace(" / ", ' "$root" ', 1),
        ]
        return "\n".join(lines)


class Container:
    """One that runs."""

    def __init__(self, image: Image, place: Path, tasks: str) -> None:
        self.image = image
        self.data, self.output = place / "data", place / "output"
        (place / "root").mkdir()
        self.data.mkdir()
        (place / "tasks.toml").write_text(tasks)
        script = image.script(place / "root", self.data, place / "tasks.toml")
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [*UNSHARE, "/bin/sh", "-c", script], stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    @property
    def init(self) -> int:
        """Its process 1 as it is seen from outside."""
        assert self.process.poll() is None, self.output.read_text()
        return until(psutil.Process(self.process.pid).children, "process 1")[0].pid

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """As engines execute something in a container, such as its health check."""
        enter = ["nsenter", f"--target={self.init}", "--mount", "--pid", "--root", "--wd", "chroot"]
        return subprocess.run([*enter, *self.image.execute, *command], capture_output=True, text=True, timeout=120)

    def stop(self) -> int:
        """As engines do; returns the exit status."""
        os.kill(self.init, self.image.stop)
        return self.process.wait(60)

    def end(self) -> None:
        """Leave nothing running."""
        self.process.kill()
        self.process.wait()
