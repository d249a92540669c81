"""The container image, as far as it can be made without its base."""

import subprocess
from pathlib import Path

import pytest

from tests.deploy.image import UNSHARE, Container, Image, instructions
from tests.support.paths import ROOT
from tests.support.waiting import until

TASKS = '[tasks.who]\nrun = "id -un; echo $$"\n[services.s]\nrun = "exec sleep 3600"\n'


def test_copied_files_exist_and_are_not_ignored() -> None:
    """Every file that the Containerfile copies exists, and the ignore list lets it through."""
    sources = [rest.split()[0] for word, rest in instructions() if word == "COPY" and not rest.startswith("--from=")]
    assert sources == [".", "deploy/container/ringward.toml"]
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    shown = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    assert all((ROOT / name).exists() for name in shown)
    installed = {"api", "logring", "store", "supervisor", "ringward.py"}
    assert installed | {"setup.py", "setup.cfg", "pyproject.toml", "deploy/container"} <= shown


def test_the_container_runs_as_its_user(tmp_path: Path) -> None:
    """Process 1 and everything it runs belong to the image's user; it is healthy, and stops when told to."""
    if subprocess.run([*UNSHARE, "true"], capture_output=True).returncode:
        pytest.skip("no namespaces can be made here")
    container = Container(Image(), tmp_path, TASKS)
    try:
        until(lambda: container.run(*container.image.health).returncode == 0, "the container to be healthy")
        assert container.run("cat", "/proc/1/comm").stdout.startswith("ringward")
        who = container.run("ringward", "run", "who")
        assert (who.returncode, who.stdout.split()[0]) == (0, "ringward"), who
        until(lambda: container.run("ringward", "status").returncode == 0, "nothing to need attention")
        assert container.stop() == 0, container.output.read_text()
        assert {path.stat().st_uid for path in (container.data, *container.data.iterdir())} == {7464}
        assert (container.data / "ringward.db").exists()
    finally:
        container.end()
