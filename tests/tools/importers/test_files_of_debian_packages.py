"""Files of Debian packages, which ``.ci/run`` fetches and unpacks into ``build/debian``."""

import json
import re
from pathlib import Path

import pytest

from supervisor.cli import exit_codes
from tests.support.command_line import Ringward
from tests.support.paths import ROOT

PACKAGES = ROOT / "build" / "debian"
SAMPLE = PACKAGES / "usr/share/doc/supervisor/examples/sample.conf"

pytestmark = pytest.mark.skipif(not PACKAGES.is_dir(), reason=f"{PACKAGES} is not there: .ci/run makes it")


def test_cron(ringward: Ringward) -> None:
    """Each job of each file becomes a valid task."""
    for file in sorted((PACKAGES / "etc/cron.d").iterdir()):
        jobs = [line for line in file.read_text().splitlines() if re.match(r"[\d*@]", line)]
        result = ringward("import", "cron", "--system", "--json", str(file), plain=True)
        document = json.loads(result.stdout)
        assert jobs
        assert (result.exit_code, document["problems"]) == (exit_codes.OK, [])
        assert document["toml"].count("[tasks.") == len(jobs)


def test_systemd(ringward: Ringward) -> None:
    """Each service that starts a program is converted or reported as impossible."""
    files = [path for path in (PACKAGES / "lib/systemd/system").iterdir() if path.suffix in (".service", ".timer")]
    result = ringward("import", "systemd", "--json", *map(str, files), plain=True)
    document = json.loads(result.stdout)
    assert all("env_file" in problem for problem in document["problems"])  # of packages that are not installed here
    services = [path for path in files if path.suffix == ".service"]
    assert services
    for path in services:
        noted = any(
            str(path) in re.split(", |: ", note) and ("template" in note or "ExecStart" in note)
            for note in document["notes"]
        )
        assert noted == (re.search(rf"^\[\w+\.{re.escape(path.stem)}\]$", document["toml"], re.MULTILINE) is None)


def test_supervisord(ringward: Ringward, tmp_path: Path) -> None:
    """Each line of the sample configuration, where all lines are comments, is converted or reported."""
    config = tmp_path / "supervisord.conf"
    config.write_text(re.sub(r"^;(\[|[a-z_]+=)", r"\1", SAMPLE.read_text(), flags=re.MULTILINE))
    result = ringward("import", "supervisord", "--json", str(config), plain=True)
    document = json.loads(result.stdout)
    assert (result.exit_code, document["problems"]) == (exit_codes.REFUSED, [])  # for the files of its logs
    assert "[services.theprogramname]" in document["toml"]
    reported = [note.rpartition(": ")[0].partition(" ")[2] for note in document["notes"]]
    assert {"[program:theprogramname]: stdout_logfile = /a/path", "[eventlistener:theeventlistenername]"} <= set(
        reported
    )
