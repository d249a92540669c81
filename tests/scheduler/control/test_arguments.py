"""Arguments of the operations of ``control.sock``."""

import ast
from typing import Any

import pytest

from supervisor.scheduler.control.access_operations import AccessOperations
from supervisor.scheduler.control.bulk_operations import BulkOperations
from supervisor.scheduler.control.run_operations import RunOperations
from supervisor.scheduler.control.unit_operations import UnitOperations
from tests.scheduler.control.operations import operations_of
from tests.support.paths import ROOT

SCHEDULER = ROOT / "supervisor" / "scheduler"


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
def test_invalid_arguments(operation: str, arguments: dict[str, Any]) -> None:
    """Arguments of a wrong type or form get 400 with the operation, before they reach file names or the database."""
    kinds = (AccessOperations, BulkOperations, RunOperations, UnitOperations)
    answers: list[dict[str, Any]] = []
    operations_of(*(object.__new__(kind) for kind in kinds))[operation](arguments, answers.append)
    (answer,) = answers
    assert answer["status"] == 400
    assert answer["detail"].startswith(f"{operation}: ")


def test_operations_declare_arguments() -> None:
    """Every method that answers a request declares its arguments, which are checked."""
    methods = [
        (node.name, node.args.args, [ast.unparse(decorator) for decorator in node.decorator_list])
        for path in SCHEDULER.rglob("*.py")
        for tree in ast.walk(ast.parse(path.read_text()))
        if isinstance(tree, ast.ClassDef)
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    ]
    answering = {
        name: marks for name, args, marks in methods if [argument.arg.strip("_") for argument in args[2:]] == ["entry"]
    }
    assert len(answering) > 30
    assert [name for name, marks in answering.items() if not any(mark.startswith("operation(") for mark in marks)] == []
