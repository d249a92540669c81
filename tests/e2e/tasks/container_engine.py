"""Real container engines for tests, reached through a client named ``docker``; tests without one are skipped."""

import io
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.support.waiting import until

IMAGE = "ringward-test:latest"
_SYSTEM_PATH = "/usr/sbin:/sbin"
_NAME_SERVERS = ("/usr/lib/podman/aardvark-dns", "/usr/libexec/podman/aardvark-dns", "/usr/lib/cni/dnsname")
"""Of podman; packages of distributions leave them out."""
_PROGRAMS = ("sh", "echo", "cat", "sleep", "mkdir", "wget", "httpd", "true", "env")


class ContainerEngine:
    """An engine with an image of busybox.

    Attributes:
        env: the variables that a process needs to find the client and the engine.
        resolves_names: whether containers of a network find each other by name.
    """

    def __init__(self, env: dict[str, str], *, resolves_names: bool) -> None:
        self.env = env
        self.resolves_names = resolves_names

    def client(self, *arguments: str, data: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run the client to its end."""
        return subprocess.run(["docker", *arguments], input=data, capture_output=True, env={**os.environ, **self.env})

    def containers(self, *filters: str) -> list[str]:
        """Return the ids of the containers, stopped ones included."""
        listing = self.client("ps", "--all", "--quiet", *(f"--filter={run_filter}" for run_filter in filters))
        assert listing.returncode == 0, listing.stderr
        return listing.stdout.decode().split()

    def works(self) -> bool:
        """Return whether the engine answers."""
        return self.client("version").returncode == 0

    def import_busybox(self) -> None:
        """Make the image, or skip the test."""
        imported = self.client("import", "-", IMAGE, data=_busybox())
        tried = self.client("run", "--rm", "--network=none", IMAGE, "true") if imported.returncode == 0 else imported
        if tried.returncode:
            pytest.skip(f"this container engine starts no container: {tried.stderr.decode().strip()[-300:]}")


@contextmanager
def container_engine(name: str) -> Iterator[ContainerEngine]:
    """Yield an engine of this name, ``docker`` or ``podman``, with storage of its own; or skip the test."""
    if os.geteuid():
        pytest.skip("only root may start a container engine of its own")
    # The path of a Unix socket is at most 107 bytes, which pytest's directories can exceed.
    place = Path(tempfile.mkdtemp(prefix="rw-engine-"))
    start = {"docker": _dockerd, "podman": _podman}[name]
    try:
        with start(place) as engine:
            engine.import_busybox()
            try:
                yield engine
            finally:
                for network in engine.client("network", "ls", "--quiet", "--filter=name=shop_").stdout.decode().split():
                    engine.client("network", "rm", network)
    finally:
        shutil.rmtree(place, ignore_errors=True)


@contextmanager
def _dockerd(place: Path) -> Iterator[ContainerEngine]:
    path = f"{os.environ['PATH']}:{_SYSTEM_PATH}"
    program = shutil.which("dockerd", path=path)
    if program is None or shutil.which("docker") is None:
        pytest.skip("docker is not installed")
    socket = f"unix://{place}/s"
    options = [
        "--storage-driver=vfs",
        "--bridge=none",
        "--iptables=false",
        f"--host={socket}",
        f"--pidfile={place}/pid",
    ]
    log = place / "log"
    with log.open("wb") as output:
        daemon = subprocess.Popen(
            [program, *options, f"--data-root={place}/data", f"--exec-root={place}/run"],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PATH": path},
        )
    engine = ContainerEngine({"DOCKER_HOST": socket}, resolves_names=True)
    try:
        until(lambda: engine.works() or daemon.poll() is not None, "the engine to answer", 60.0)
        if daemon.poll() is not None:
            pytest.skip(f"dockerd does not run here: {log.read_text()[-300:]}")
        yield engine
    finally:
        daemon.terminate()
        daemon.wait(60)


@contextmanager
def _podman(place: Path) -> Iterator[ContainerEngine]:
    program = shutil.which("podman")
    if program is None:
        pytest.skip("podman is not installed")
    (place / "bin").mkdir()
    (place / "networks").mkdir()
    wrapper = place / "bin" / "docker"
    runtime = "--runtime=runc" if shutil.which("runc") else ""
    storage = f"--root={place}/data --runroot={place}/run --storage-driver=vfs"
    options = f"{storage} --cgroup-manager=cgroupfs --network-config-dir={place}/networks {runtime}"
    # The test host has higher default limits than containers have.
    limits = "--ulimit=nofile=1024:1024 --ulimit=nproc=100:100"
    wrapper.write_text(
        f'#!/bin/sh\nif [ "$1" = run ]; then shift; set -- run {limits} "$@"; fi\nexec {program} {options} "$@"\n'
    )
    wrapper.chmod(0o755)
    path = f"{wrapper.parent}:{os.environ['PATH']}:{_SYSTEM_PATH}"
    yield ContainerEngine({"PATH": path}, resolves_names=any(map(os.path.exists, _NAME_SERVERS)))
    with suppress(OSError):
        subprocess.run([str(wrapper), "rm", "--all", "--force"], capture_output=True)


def _busybox() -> bytes:
    """Return the root file system of the image; skip the test where there is no busybox."""
    program = shutil.which("busybox")
    if program is None:
        pytest.skip("busybox is not installed")
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        tar.add(program, "bin/busybox")
        for name in _PROGRAMS:
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
        for name in ("tmp", "etc"):
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o1777
            tar.addfile(folder)
    return data.getvalue()
