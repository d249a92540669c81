"""The report of repeated runs of the tests."""

from pathlib import Path

import pytest

from tests.repeat import NO_REPORT, main

FLAKY = """
from pathlib import Path

def test_passes() -> None:
    pass

def test_fails_the_first_time() -> None:
    seen = Path(__file__).with_suffix(".seen")
    first = not seen.exists()
    seen.touch()
    assert not first
"""
ALONE = ["-c", "/dev/null", "--rootdir=/", "-p", "no:cacheprovider"]
"""Neither the settings nor the fixtures of these tests."""


@pytest.fixture(autouse=True)
def _no_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load no plug-ins, which take seconds."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def test_failed_tests_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each failed test is listed once, with the numbers of its failed runs, and the status is 1."""
    flaky = tmp_path / "test_flaky.py"
    flaky.write_text(FLAKY)
    assert main(2, [*ALONE, str(flaky)], tmp_path / "logs") == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["run 1 of 2: 1 failed", "run 2 of 2 beside busy loops: 0 failed"]
    assert [line for line in lines if line.endswith("test_fails_the_first_time: failed in run 1")]
    assert not [line for line in lines if "test_passes" in line]
    assert "1 failed, 1 passed" in (tmp_path / "logs" / "01.log").read_text()


def test_run_without_a_report_counts_as_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run that pytest ends before its first test is listed as failed."""
    assert main(1, [*ALONE, "--no-such-option"], tmp_path / "logs") == 1
    assert f"{NO_REPORT}: failed in run 1" in capsys.readouterr().out
