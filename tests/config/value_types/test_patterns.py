"""Keys that take a regular expression, where google-re2 is missing."""

import sys
from collections.abc import Callable

import pytest

from logring.regex import Re2Missing
from supervisor.config.problems import InvalidValue, Problem
from supervisor.config.value_records import Param
from supervisor.config.value_types.param_values import normal


def test_patterns_without_re2(problems: Callable[..., list[Problem]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each key with a regular expression is an error, with its line and the way to build google-re2."""
    monkeypatch.setitem(sys.modules, "re2", None)
    found = problems(
        """
        [tasks.t]
        run = "x"
        failure_output = "never seen before 1"
        params = [{ name = "A", kind = "env", pattern = "never seen before 2" }]
        [services.s]
        run = "x"
        ready = { log = "never seen before 3" }
        """
    )
    assert [problem.key for problem in found] == [
        "tasks.t.failure_output",
        "tasks.t.params[0].pattern",
        "services.s.ready.log",
    ]
    assert [problem.line for problem in found] == [4, 5, 8]
    assert {(problem.message, problem.remedy) for problem in found} == {(Re2Missing.message, Re2Missing.remedy)}
    with pytest.raises(InvalidValue, match="google-re2"):
        normal(Param(name="A", kind="env", pattern="never seen before 4"), "x")
