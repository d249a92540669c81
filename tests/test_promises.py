"""The list of promises about survival, upgrades and formats."""

from tests.promises import LIST, each_test, listed, promise
from tests.support.paths import ROOT


def test_each_test_has_a_docstring() -> None:
    """Each test has a docstring."""
    silent = [f"{path.relative_to(ROOT)}::{test.name}" for path, test in each_test((".",)) if not promise(test)]
    assert silent == []


def test_list_of_promises_is_complete() -> None:
    """The list has each promise about survival, upgrades and formats; python -m tests.promises writes it."""
    assert LIST.read_text().splitlines() == listed()
