"""The screen compared with an independent one."""

import re

import pyte
from hypothesis import assume, given
from hypothesis import strategies as st

from logring.redraw.sampling import Samples
from logring.redraw.screen import Screen
from logring.redraw.text_style import NO_PEN, pen_after, pen_with, sgr
from logring.redraw.unsettled_rows import COLUMNS, LINES, Rows

# Sequences that both interpret alike: pyte lets margins stop a cursor that is outside of them.
# fmt: off
PARTS = [
    b"ab", b"hello world ", b"x" * 50, "█é".encode(), b"\r", b"\b", b"\n", b"\x1b[A", b"\x1b[2A", b"\x1b[B", b"\x1b[3C",
    b"\x1b[2D", b"\x1b[K", b"\x1b[1K", b"\x1b[2K", b"\x1b[J", b"\x1b[5G", b"\x1b[H", b"\x1b[3;4H", b"\x1b[2P",
    b"\x1b[2@", b"\x1b[2X", b"\x1b[31m", b"\x1b[F", b"\x1b[E", b"\x1b[2d", b"\x1bM",
]
# fmt: on


@given(st.lists(st.sampled_from(PARTS), max_size=40).map(b"".join))
def test_screen_matches_another_terminal(data: bytes) -> None:
    """The screen matches an independent terminal row by row, for all movements and erasures."""
    other = pyte.Screen(COLUMNS, LINES)
    other.set_mode(pyte.modes.LNM)
    pyte.ByteStream(other).feed(data)
    screen = Screen(NO_PEN, Rows(b"", Samples()))
    screen._rows._block = True
    screen._rows._bottom = 1000  # nothing settles
    assume(screen.feed(data, 0, last=True) == len(data))  # otherwise the block settled before its end
    rows = [re.sub(rb"\x1b\[[0-9;]*m", b"", row.render()).decode() for row in screen.rows()]
    assert rows + [""] * (LINES - len(rows)) == [row.rstrip() for row in other.display]


@given(st.lists(st.sampled_from([0, 1, 2, 4, 7, 22, 24, 27, 31, 39, 44, 49, 97, 100, 38, 5, 48]), max_size=12))
def test_pen_round_trip(codes: list[int]) -> None:
    """The stored parameters of a pen set the same pen again, whatever was set before."""
    pen = pen_with(NO_PEN, b";".join(b"%d" % code for code in codes))
    assert pen_with(NO_PEN, pen) == pen
    assert pen_after(b"1;33", sgr(pen)) == pen


def test_pens() -> None:
    """Later colours replace earlier ones, attributes end when they are reset, and extended colours stay whole."""
    for sequences, expected in (
        (b"\x1b[31m\x1b[1m", b"1;31"),
        (b"\x1b[31m\x1b[32m", b"32"),
        (b"\x1b[1;4;31m\x1b[22;39m", b"4"),
        (b"\x1b[38;5;200;1m", b"1;38;5;200"),
        (b"\x1b[48;2;1;2;3m", b"48;2;1;2;3"),
        (b"\x1b[38:2::1:2:3m", b"38:2::1:2:3"),
        (b"\x1b[4:3m\x1b[4:0m", b""),
        (b"\x1b[38m\x1b[38;5m\x1b[1m", b"1"),
        (b"\x1b[31m\x1b[m", b""),
        (b"\x1b[31m text \x1b[0;1m", b"1"),
    ):
        assert pen_after(NO_PEN, sequences) == expected, sequences
