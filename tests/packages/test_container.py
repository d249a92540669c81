"""The container image, built without a registry of images, and run by podman."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.host_features import require
from tests.support.paths import ROOT
from tests.support.waiting import until

pytestmark = pytest.mark.packages
TASKS = '[tasks.who]\nrun = "id -un; echo $$"\n[services.s]\nrun = "exec sleep 3600"\n'
NAME = "ringward-test"
"""Of the image, the container and its volume, in a storage of the test."""


class Engine:
    """Podman and buildah with files of their own, which also work inside of a container."""

    def __init__(self, directory: Path) -> None:
        storage, engine = directory / "storage.conf", directory / "containers.conf"
        places = f'graphroot = "{directory}/storage"\nrunroot = "{directory}/run"\n'
        storage.write_text(f'[storage]\ndriver = "vfs"\n{places}')
        engine.write_text(
            # An outer container can have lower limits than podman's defaults.
            '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]\n'
            '[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\nruntime = "runc"\n'
        )
        self.environ = os.environ | {
            "BUILDAH_ISOLATION": "chroot",
            "CONTAINERS_CONF": str(engine),
            "CONTAINERS_STORAGE_CONF": str(storage),
        }

    def call(self, *command: str | Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(command, cwd=ROOT, env=self.environ, capture_output=True, text=True)
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def execute(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run something in the container."""
        return self.call("podman", "exec", NAME, *command, check=False)


@pytest.fixture(scope="module")
def engine(index: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:  # noqa: ARG001 - it skips
    """An engine that has the image of the working tree."""
    require("buildah", "mmdebstrap", "podman", "runc")
    if os.geteuid() != 0:
        pytest.skip("only root can build and run containers here")
    place = tmp_path_factory.mktemp("containers")
    new_engine = Engine(place)
    new_engine.call("sh", "deploy/container/build.sh", NAME)
    yield new_engine
    new_engine.call("podman", "rm", "--force", "--time=0", "--volumes", NAME, check=False)
    new_engine.call("podman", "rmi", "--all", "--force", check=False)
    shutil.rmtree(place)


def test_reproducible_image(engine: Engine) -> None:
    """An image that is built twice, from the same sources and Debian packages, has the same layers, byte for byte.

    Its configuration differs in the id and the host name of the container that buildah built it in.
    """
    engine.call("sh", "deploy/container/build.sh", f"{NAME}-again")
    names = (f"localhost/{NAME}", f"localhost/{NAME}-again")
    first, again = (
        engine.call("podman", "image", "inspect", "--format={{.RootFS.Layers}}", name).stdout for name in names
    )
    assert again == first


def test_container_runs_as_its_user(engine: Engine, tmp_path: Path) -> None:
    """Process 1 and all processes that it starts belong to the image's user, who can write only the volume and /tmp.

    The container becomes healthy, runs tasks, and stops with status 0.
    """
    tasks = tmp_path / "tasks.toml"
    tasks.write_text(TASKS)
    engine.call(
        *("podman", "run", "--detach", f"--name={NAME}", "--network=none"),
        *("--read-only", "--read-only-tmpfs=false", "--tmpfs=/tmp", f"--volume={NAME}:/var/lib/ringward"),
        *(f"--volume={tasks}:/etc/ringward/conf.d/tasks.toml:ro", f"localhost/{NAME}"),
    )
    healthy = lambda: engine.call("podman", "healthcheck", "run", NAME, check=False).returncode == 0  # noqa: E731
    until(healthy, "the container to be healthy")
    assert engine.execute("cat", "/proc/1/comm").stdout.startswith("ringward")
    assert engine.execute("stat", "--format=%U", "/proc/1", "/var/lib/ringward").stdout.split() == ["ringward"] * 2
    who = engine.execute("ringward", "run", "who")
    assert (who.returncode, who.stdout.split()[0]) == (0, "ringward"), who
    assert "Read-only file system" in engine.execute("touch", "/var/tmp/one").stderr
    assert engine.execute("touch", "/tmp/one").returncode == 0
    until(lambda: engine.execute("ringward", "status").returncode == 0, "nothing to need attention")
    engine.call("podman", "stop", NAME)
    state = engine.call("podman", "inspect", "--format={{.State.ExitCode}}", NAME)
    assert state.stdout == "0\n", engine.call("podman", "logs", NAME).stderr
