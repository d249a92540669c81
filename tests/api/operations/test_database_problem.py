"""The database problem that the scheduler publishes in a file."""

import dataclasses
import json
from pathlib import Path

import pytest

from api.resources.daemon import database_problem
from tests.root.loop.test_shortage import BOOT

BOOT_MS = BOOT.started_at
PROBLEM = {"daemon": BOOT_MS, "summary": "damaged", "detail": "page 3"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (json.dumps(PROBLEM), {"summary": "damaged", "detail": "page 3"}),
        (json.dumps({**PROBLEM, "daemon": BOOT_MS + 1}), None),
        (json.dumps({"daemon": BOOT_MS}), None),
        ("{}", None),
        ("[]", None),
        ("{", None),
        pytest.param("[" * 100_000, None, id="nested"),
    ],
)
def test_published_problem(tmp_path: Path, text: str, expected: dict[str, str] | None) -> None:
    """The problem of this daemon is shown; a file of another daemon, and a damaged one, mean that there is none."""
    settings = dataclasses.replace(BOOT, runtime_dir=str(tmp_path))
    Path(settings.database_problem).write_text(text)
    assert database_problem(settings) == expected
