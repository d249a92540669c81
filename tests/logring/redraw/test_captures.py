"""Output of real programs that redraw, and the resulting logs; see captures/README.rst."""

import re
from pathlib import Path

import pyte
import pytest

from logring.redraw.reducer import Redraw, needs
from logring.redraw.unsettled_rows import COLUMNS, LINES
from tests.logring.support.reducing import drawn_of, pieces, reduced, text_of

CAPTURES = sorted(path for path in (Path(__file__).parent / "captures").iterdir() if path.suffix in (".tty", ".pipe"))
TERMINALS = [path for path in CAPTURES if path.suffix == ".tty"]
COLOURS = re.compile(r"\x1b\[[0-9;]*m")

# Lines that were complete before the program moved up and drew over them: the log has them, the screen does not.
DRAWN_OVER = {"docker-compose.tty": 2, "rich.tty": 1, "tqdm-nested.tty": 1}


def named(path: Path) -> str:
    return path.name


def shown(data: bytes) -> list[str]:
    """Return the final and scrolled-off rows of an independent terminal, without blank ones."""
    screen = pyte.HistoryScreen(COLUMNS, LINES, history=10_000)
    screen.set_mode(pyte.modes.LNM)
    pyte.ByteStream(screen).feed(data)
    gone = ["".join(line[column].data for column in range(COLUMNS)) for line in screen.history.top]
    return [row.rstrip() for row in (*gone, *screen.display) if row.strip()]


@pytest.mark.parametrize("path", CAPTURES, ids=named)
@pytest.mark.parametrize("size", [1, 7, 4096, 1 << 20])
def test_log_of_a_capture(path: Path, size: int) -> None:
    """The log of each capture is the checked one, whatever the sizes of its chunks."""
    settled = reduced(pieces(path.read_bytes(), size), full=path.suffix == ".tty")
    assert text_of(settled) == (path.parent / "settled" / path.name).read_bytes()


@pytest.mark.parametrize("path", TERMINALS, ids=named)
def test_log_has_the_final_screen(path: Path) -> None:
    """The log has the final screen of a terminal, and otherwise only lines that had to stay."""
    data = path.read_bytes()
    lines = COLOURS.sub("", text_of(reduced([data], full=True)).decode()).splitlines()
    rows = [line[at : at + COLUMNS].rstrip() for line in lines for at in range(0, len(line), COLUMNS) if line.strip()]
    expected = shown(data)
    first = DRAWN_OVER.get(path.name, 0)
    assert [row for row in rows if row][first:] == expected


@pytest.mark.parametrize("path", CAPTURES, ids=named)
def test_history_of_a_capture(path: Path) -> None:
    """If a drawing is watched, some of its overwritten states are remembered."""
    data = path.read_bytes()
    histories = [drawn.frames for drawn in drawn_of(reduced(pieces(data, 64), full=path.suffix == ".tty"))]
    if path.name == "pip.pipe":  # prints only the final state
        assert not needs(data, full=False)
    else:
        assert max(map(len, histories)) >= 3


def test_block_does_not_flicker() -> None:
    """The rows shown of a block are whole frames between its updates."""
    data = (Path(__file__).parent / "captures" / "docker-compose.tty").read_bytes()
    reducer = Redraw(full=True)
    regions = []
    for frame in data.split(b"\x1b[?25h"):
        reducer.feed(frame + b"\x1b[?25h")
        regions.append(reducer.region())
    assert [len(region) for region in regions[1:4]] == [3, 4, 4]
    assert all(region[0].startswith(b"[+] Running") for region in regions[1:])
