"""Arguments of the operations of ``control.sock``."""

import re
from typing import Any

import pytest

from supervisor.scheduler.control.arguments import OF_OPERATIONS, wrong
from tests.support.paths import ROOT

SCHEDULER = ROOT / "supervisor" / "scheduler"
TABLE = re.compile(r"def operations\(self\).*?(?=\n    def |\Z)", re.DOTALL)


@pytest.mark.parametrize(
    ("operation", "arguments"),
    [
        ("trigger", {"task": "t", "run": "../../../../etc/x", "by": "x", "triggered_by": "api"}),
        ("bulk_rerun", {"command": "../../../.AAAAAAAAAAAAAAAA", "match_all": True, "filter": {}, "except_ids": ""}),
        ("stop", {"run": "x", "by": {}, "force": False}),
        ("service_restart", {"task": "s", "command": {}, "rolling": False, "by": "x"}),
        ("audit", {"entries": {"k": [1]}}),
        ("token_create", {"x": 1}),
    ],
)
def test_arguments_of_another_kind(operation: str, arguments: dict[str, Any]) -> None:
    """Files are named by ids, and a value that the database refuses would be retried without end."""
    assert wrong(operation, arguments) is not None


def test_no_operation_is_forgotten() -> None:
    """Every operation that declares arguments, and the reload, has them checked."""
    tables = [table for path in SCHEDULER.rglob("*.py") for table in TABLE.findall(path.read_text())]
    names = {name for table in tables for name in re.findall(r'"([a-z_]+)": ', table)}
    assert names | {"reload"} == OF_OPERATIONS.keys()
