"""``ringward init``."""

import json
from pathlib import Path

import pytest
import tomli

from supervisor.cli import exit_codes
from supervisor.config.load import load
from tests.support.command_line import Ringward

CRON = "/etc/cron.d/shop"
UNITS = " ".join(f"host/etc/systemd/system/report.{kind}" for kind in ("timer", "service"))
FILES = {
    "compose.yaml": "services: {}\n",
    "Procfile": "web: true\n",
    "package.json": json.dumps({"scripts": {"start": "node .", "build:all": "tsc"}}),
    f"host{CRON}": "* * * * * root true\n",
    "host/etc/cron.d/.placeholder": "",
    "host/etc/supervisor/supervisord.conf": "[supervisord]\n",
    "host/etc/systemd/system/report.timer": "[Timer]\n",
    "host/etc/systemd/system/report.service": "[Service]\n",
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with files of other programs, and a simulated host below it."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "host/etc/systemd/system/enabled.service").symlink_to("/lib/systemd/system/enabled.service")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_first_configuration(project: Path, ringward: Ringward) -> None:
    """The file is valid, names the command for each program that was found, and names its schema for editors."""
    done = ringward("init", "--root", "host")
    assert done.exit_code == 0, done
    path = project / "ringward.toml"
    text = path.read_text()
    assert text.startswith("#:schema ./ringward.schema.json\n")
    assert json.loads((project / "ringward.schema.json").read_text())["$id"].startswith("urn:ringward:configuration:")
    assert not load(str(path)).tasks
    for command in (
        "ringward import compose compose.yaml -o compose.toml",
        "ringward import procfile Procfile -o procfile.toml",
        f"ringward import cron host{CRON} -o cron.toml",
        "ringward import supervisord host/etc/supervisor/supervisord.conf -o supervisord.toml",
        f"ringward import systemd {UNITS} -o systemd.toml",
    ):
        assert f"#     {command}\n" in text
        assert command in done.stdout
    assert path.stat().st_mode & 0o777 == 0o600


def test_scripts_of_a_package(project: Path, ringward: Ringward) -> None:
    """The scripts of package.json become commented tasks and services, which are valid when uncommented."""
    assert ringward("init", "--root", "host").exit_code == 0
    text = (project / "ringward.toml").read_text()
    commented = text[text.index("# [services.start]") :].partition("# Found")[0]
    plain = tomli.loads("".join(line.removeprefix("# ") for line in commented.splitlines(keepends=True)))
    assert plain["services"]["start"]["run"] == ["npm", "run", "start"]
    assert plain["tasks"]["build-all"] == {"run": ["npm", "run", "build:all"], "working_dir": "."}


def test_existing_files_are_kept(project: Path, ringward: Ringward) -> None:
    """An existing configuration or schema is not changed; an existing configuration is an error with a remedy."""
    (project / "ringward.schema.json").write_text("mine")
    assert ringward("init", "--root", "host").exit_code == 0
    (project / "ringward.toml").write_text("mine")
    refused = ringward("init", "--root", "host")
    assert refused.exit_code == exit_codes.REFUSED
    assert "ringward.toml exists, and init overwrites nothing" in refused.stderr
    assert {(project / name).read_text() for name in ("ringward.toml", "ringward.schema.json")} == {"mine"}


def test_json(project: Path, ringward: Ringward) -> None:
    """With ``--json``, the command prints the files that it wrote and everything that it found."""
    document = json.loads(ringward("init", "--root", "host", "--json", "new.toml").stdout)
    assert document["written"] == [str(project / "new.toml"), str(project / "ringward.schema.json")]
    assert [starter["kind"] for starter in document["found"]] == [
        "compose",
        "procfile",
        "npm",
        "supervisord",
        "cron",
        "systemd",
    ]
    assert document["found"][2]["command"] is None


def test_import_names_the_schema(project: Path, ringward: Ringward) -> None:
    """A file that ``import`` writes names the schema, which is beside it."""
    assert ringward("import", "cron", f"host{CRON}", "-o", "cron.toml").exit_code == 0
    assert (project / "cron.toml").read_text().startswith("#:schema ./ringward.schema.json\n")
    assert json.loads((project / "ringward.schema.json").read_text())["properties"]
