"""Commands and files of the documentation, carried out as a reader would."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import blocks
from tests.docs.matching import Ids
from tests.docs.pages import PAGES, PROGRAMS, is_run, read_by
from tests.docs.session import Shown

NOT_RUN = {
    "a message": 2,
    "a query": 1,
    "another program's configuration": 1,
    "changes the host": 20,
    "installs": 3,
    "needs a client of the protocol": 1,
    "needs a collector": 2,
    "needs a container engine": 2,
    "needs a failure": 1,
    "needs a run that waits": 2,
    "needs another environment": 1,
    "no task of this page fails": 1,
    "other people's programs": 1,
    "reads what this host may not have": 5,
    "sends to others": 4,
    "starts another daemon": 3,
    "takes minutes": 1,
    "the commands above show another run": 1,
    "the commands below show the newest run": 1,
    "the daemon has its history": 1,
    "works on files of its own": 1,
    "works on the clone": 2,
}
"""Reasons for not running blocks of commands, with the number of blocks."""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shown]:
    shown_text = Shown(tmp_path_factory.mktemp("shown"))
    yield shown_text
    shown_text.clean()


@pytest.mark.parametrize(
    "page", [page for page in PAGES if ":: console" in page.read_text()], ids=lambda page: page.name
)
def test_commands_match_the_page(page: Path, daemon: Shown) -> None:
    """Each command ends as shown and prints the shown lines, except for times, ids and the like."""
    with read_by(daemon, page) as (session, shown):
        wrong = [text for block in shown for text in session.wrong(block)]
        log_tail = daemon.output.read_text()[-5000:]
    assert not wrong, "\n".join((*wrong, "the daemon says:", log_tail))


def test_skipped_blocks_are_counted() -> None:
    """A block of commands either runs or states why not, and the number of skipped blocks is fixed here."""
    counter = Counter(block.not_run for page in PAGES for block in blocks(page) if block.not_run is not None)
    assert counter == NOT_RUN


def test_executed_commands_are_harmless() -> None:
    """Executed commands begin with one of a few programs and never change the host."""
    for page in PAGES:
        for block in filter(is_run, blocks(page)):
            for command in block.commands():
                first = command.text.split()[0]
                assert first in PROGRAMS or "=$(" in first, f"{page.name}: {command.text}"


SHOWN = (
    "NAME  RESULT  STARTED",
    "web  failed (1)  6s ago  01M7Y4S5W8ZZEFJCB1RHHNKRSN",
    "...",
    "at 2026-11-21T02:30:00Z …",
)


@pytest.mark.parametrize(
    ("output", "same"),
    [
        (
            "NAME\tRESULT STARTED\r\nweb failed (1) now 01M80000000000000000000000\nat 2030-01-01T00:00:00.001Z x\n",
            True,
        ),
        (
            "NAME RESULT STARTED\nweb failed (1) 2h 5m ago 01M80000000000000000000000\n\n1\nat 2030-01-01T00:00:00Z x",
            True,
        ),
        ("NAME RESULT STARTED\nweb failed (2) now 01M80000000000000000000000\nat 2030-01-01T00:00:00Z x\n", False),
        ("NAME RESULT STARTED\nweb failed (1) now 01M80000000000000000000000\n", False),
        ("NAME RESULT STARTED\nweb failed (1) today 01M80000000000000000000000\nat 2030-01-01T00:00:00Z x\n", False),
    ],
)
def test_output_comparison(output: str, *, same: bool) -> None:
    """Times, ids and column widths may differ, and dots stand for any text; everything else must match."""
    ids = Ids()
    assert ids.matches(SHOWN, output) == same
    assert ids.real == ({"01M7Y4S5W8ZZEFJCB1RHHNKRSN": "01M80000000000000000000000"} if same else {})


def test_id_stands_for_one_run() -> None:
    """An id from one output stands for the same run in later outputs."""
    ids = Ids()
    assert ids.matches(("01M7Y4S5W8ZZEFJCB1RHHNKRSN",), "01M80000000000000000000000\n")
    assert not ids.matches(("01M7Y4S5W8ZZEFJCB1RHHNKRSN",), "01M80000000000000000000001\n")
