"""The wheel in fresh environments, beside other packages."""

import os
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.version import VERSION
from tests.e2e.services.test_readiness import is_ready
from tests.packages.conftest import SUPERVISORD
from tests.packages.environment import RELEASE, Environment, Installed, release_wheel, wheel
from tests.packages.load import UNITS, load, version
from tests.support.waiting import until

pytestmark = pytest.mark.packages

PACKAGES = ("api", "logring", "store", "supervisor")


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the working tree."""
    return wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def daemon(environment: Environment, tmp_path: Path) -> Iterator[Installed]:
    installed = Installed(tmp_path, environment)
    yield installed
    installed.clean()


def test_installed_names(ours: Path) -> None:
    """The wheel has only the module ``ringward``, the folder ``ringward``, which is no package, and its metadata."""
    with zipfile.ZipFile(ours) as file:
        names = file.namelist()
    assert {name.partition("/")[0] for name in names} == {"ringward.py", "ringward", f"ringward-{VERSION}.dist-info"}
    assert {name.split("/")[1] for name in names if name.startswith("ringward/")} == set(PACKAGES)


def test_all_files_are_installed(ours: Path) -> None:
    """The wheel has every file of the packages, including data files, with contents and permissions."""
    top = ours.parent.parent / "sources"
    paths = [path for name in PACKAGES for path in (top / name).rglob("*") if "__pycache__" not in path.parts]
    files = {f"ringward/{path.relative_to(top)}": path for path in paths if path.is_file()}
    assert {"ringward/supervisor/path/ringward", "ringward/supervisor/tools/service/templates/run"} <= set(files)
    with zipfile.ZipFile(ours) as file:
        infos = {info.filename: info for info in file.infolist() if info.filename.startswith("ringward/")}
        assert set(infos) == set(files)
        assert [name for name, path in files.items() if file.read(name) != path.read_bytes()] == []
    modes = {name: bool(info.external_attr >> 16 & 0o100) for name, info in infos.items()}
    assert modes == {name: bool(path.stat().st_mode & 0o100) for name, path in files.items()}


def test_pipx(ours: Path, environment: Environment, tmp_path: Path) -> None:
    """A user can install the command with pipx, and the removal leaves nothing."""
    environment.pip("install", "pipx")
    places = {"PIPX_HOME": str(tmp_path / "home"), "PIPX_BIN_DIR": str(tmp_path / "bin")}
    pipx = [environment.directory / "bin/pipx"]
    subprocess.run([*pipx, "install", ours], env=os.environ | places, check=True)
    result = subprocess.run([tmp_path / "bin/ringward", "--version"], capture_output=True, text=True)
    assert result.stdout == f"ringward, version {VERSION}\n", result.stderr
    subprocess.run([*pipx, "uninstall", "ringward"], env=os.environ | places, check=True)
    assert list(tmp_path.glob("bin/*")) == list(tmp_path.glob("home/venvs/ringward")) == []


@pytest.mark.parametrize("first", [True, False], ids=["supervisord first", "supervisord last"])
def test_coexistence_with_supervisord(ours: Path, environment: Environment, *, first: bool) -> None:
    """Installed in either order, Ringward and supervisord both work, and uninstalling either leaves the other whole."""
    for package in (SUPERVISORD, ours) if first else (ours, SUPERVISORD):
        environment.pip("install", str(package), "setuptools<81")
    files = {name: environment.files(name) for name in ("supervisor", "ringward")}
    assert environment.run("supervisord", "--version").stdout == "4.3.0\n"
    assert environment.run("ringward", "--version").stdout == f"ringward, version {VERSION}\n"
    gone, remaining_package = ("ringward", "supervisor") if first else ("supervisor", "ringward")
    environment.pip("uninstall", "--yes", gone)
    assert environment.files(remaining_package) == files[remaining_package]
    assert environment.run("supervisord" if first else "ringward", "--version").stdout.endswith("\n")
    assert not any(Path(path).exists() for path in files[gone])


def test_packages_of_the_same_names(ours: Path, environment: Environment, daemon: Installed, tmp_path: Path) -> None:
    """With a user's own ``api`` and ``store`` in its environment, a daemon runs tasks, which import the user's own."""
    own = tmp_path / "own"
    for name in ("api", "store", "supervisor"):
        (own / name).mkdir(parents=True)
        (own / name / "__init__.py").write_text(f'WHOSE = "the user\'s {name}"\n')
    (own / "pyproject.toml").write_text('[project]\nname = "own"\nversion = "1"\n')
    (own / "setup.cfg").write_text("[options]\npackages = api, store, supervisor\n")
    environment.pip("install", ours, own)
    program = tmp_path / "program.py"
    program.write_text("import api, store, supervisor\nprint(api.WHOSE, store.WHOSE, supervisor.WHOSE, sep=', ')\n")
    daemon.write(
        f'[tasks.own]\nrun = ["{environment.directory}/bin/python", "{program}"]\n'
        '[tasks.asks]\nrun = "ringward run own"\nmay = ["run:own"]\n'
        "[services.s]\nrun = 'echo up; exec sleep 3600'\nready = { log = 'up' }\n"
    )
    daemon.start()
    until(lambda: is_ready(daemon), "the watcher to see the line")
    assert daemon.cli("run", "own").stdout == "the user's api, the user's store, the user's supervisor\n"
    result = daemon.cli("run", "asks")
    assert result.stdout == "the user's api, the user's store, the user's supervisor\n", result
    assert environment.run("ringward", "openapi").stdout.startswith("{")
    daemon.kill_helper("ringward scheduler")
    daemon.kill_helper("ringward gunicorn")
    assert daemon.cli("run", "own").returncode == 0
    assert daemon.stop() == 0
    files = environment.files("own")
    environment.pip("uninstall", "--yes", "ringward")
    assert environment.files("own") == files
    assert environment.run("python", program).returncode == 0


def test_installed_daemon_upgrades_in_place(
    ours: Path, environment: Environment, daemon: Installed, tmp_path: Path
) -> None:
    """An installed daemon runs a task, streams its output, and becomes the version that pip installs over it."""
    environment.pip("install", ours)
    go = tmp_path / "go"
    daemon.write(f'[tasks.t]\nrun = "echo first; until test -e {go}; do sleep 0.05; done; echo last"\n')
    daemon.start()
    run = daemon.trigger("t")
    path = f"/api/runs/{run}/log/stream"
    stream = daemon.stream(path)
    first = next(iter(stream))
    assert first.data["text"] == "first"
    environment.pip("install", "--no-deps", wheel(tmp_path / "newer", "99.0"))
    assert daemon.cli("upgrade").stdout == f"Ringward {VERSION} -> 99.0\n"
    assert daemon.get("/api/daemon").json()["version"] == "99.0"
    stream.close()
    assert daemon.run(run)["status"] == "running"
    go.touch()
    assert daemon.ended(run)["endReason"] == "succeeded"
    following = daemon.stream(path, first.id)
    assert [event.data.get("text") for event in following] == ["last", None]
    following.close()
    assert daemon.stop() == 0


def test_upgrade_from_a_release_and_back(
    ours: Path, environment: Environment, daemon: Installed, tmp_path: Path
) -> None:
    """Under load, pip upgrades a daemon of an older release to this version, and back, and nothing is lost."""
    release = release_wheel(tmp_path / "release")
    environment.pip("install", ours)  # with the dependencies of both
    environment.pip("install", "--no-deps", release)
    daemon.write(UNITS)
    daemon.start()
    with load(daemon):
        for path, expected in ((ours, VERSION), (release, RELEASE)):
            environment.pip("install", "--no-deps", path)
            done = daemon.cli("upgrade")
            assert done.returncode == 0, done
            assert version(daemon) == expected
    assert daemon.stop() == 0
