"""Redrawn lines in a flood settle like single ones."""

from hypothesis import given, settings
from hypothesis import strategies as st

from logring.redraw.pacing import BURST, PER_SECOND, Pace, settled
from logring.redraw.redraw_writer import Drawing, LineEnd
from logring.redraw.reducer import Redraw, RedrawnLine

TEXT = st.lists(
    st.one_of(
        st.sampled_from(
            [b"\r", b"\r", b"\n", b"\n", b"\r\n", b"\r\r\n", b"a", b"bc", b"  ", b"10%", "█▏".encode(), b"\x1b[K"]
        ),
        st.sampled_from([b"\x1b[31m", "日本".encode(), b"\t", b"\xff", b"\x08", "é".encode(), b"x" * 5000]),
        st.binary(max_size=3),
    ),
    max_size=40,
).map(lambda parts: b"".join(parts) + b"\n")


@settings(max_examples=300, deadline=None)
@given(text=TEXT)
def test_flood_equals_the_reducer(text: bytes) -> None:
    """Lines of a flood settle byte for byte as the reducer settles them."""
    expected = b"".join(
        part.text + b"\n" if isinstance(part, RedrawnLine) else part for part in Redraw(full=False).feed(text)
    )
    assert settled(text) == expected


def test_history_in_a_flood() -> None:
    """The first lines of a flood have a history, its others have none, and slow lines after it have one again."""
    drawing = Drawing.of(full=False)
    data = b"10%\r20%\r30%\n"

    def drawn(lines: int, now_ms: int) -> tuple[int, bytes]:
        pieces = drawing.feed(data * lines, now_ms)
        return sum(isinstance(piece, LineEnd) for piece in pieces), b"".join(pieces)

    assert drawn(BURST, 0) == (BURST, b"30%\n" * BURST)
    assert drawn(1000, 1) == (0, b"30%\n" * 1000)
    assert drawn(PER_SECOND, 1000) == (PER_SECOND, b"30%\n" * PER_SECOND)


def test_plain_lines_are_no_flood() -> None:
    """A progress bar among any number of plain lines has its history."""
    pieces = Drawing.of(full=False).feed(b"plain\n" * 5000 + b"10%\r" * 400 + b"20%\n" + b"plain\r\n" * 5000, 0)
    assert sum(isinstance(piece, LineEnd) for piece in pieces) == 1


def test_flood_within_a_line() -> None:
    """A line that was begun before a flood settles with its history."""
    drawing = Drawing.of(full=False)
    pieces = drawing.feed(b"1\r2\r", 0)
    pieces += drawing.feed(b"3\n" + b"a\rb\n" * 1000, 0)
    assert b"".join(pieces) == b"3\n" + b"b\n" * 1000
    assert sum(isinstance(piece, LineEnd) for piece in pieces) == 1


def test_clock_steps_back() -> None:
    """A clock that steps back gives no additional lines with a history."""
    pace = Pace()
    assert pace.room(5000) == BURST
    pace.take(BURST)
    assert pace.room(1000) == 0
    assert pace.room(1005) == 1
