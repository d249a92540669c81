"""Properties of the redraw reducer for any input."""

from hypothesis import example, given
from hypothesis import strategies as st

from logring.redraw.reducer import MAX_REGION, Redraw, RedrawnLine, needs
from logring.redraw.row_cells import MAX_ROW
from logring.redraw.sampling import MAX_FRAMES, MAX_FRAMES_BYTES
from tests.logring.support.reducing import drawn_of, pieces, reduced, text_of

# fmt: off
PARTS = [
    b"\n", b"\r", b"\r\n", b"\b", b"\t", b"\x07", b"\0", b"\x1b", b"\x1b[", b"\x1b[3", b"a", b"text ", b"   ",
    b"x" * 119, b"y" * 250, "é█日本🎉e\u0301".encode(), b"\xff\xe2\x96", b"\x1b[K", b"\x1b[1K", b"\x1b[2K", b"\x1b[J",
    b"\x1b[2J", b"\x1b[1J", b"\x1b[A", b"\x1b[3A", b"\x1b[99A", b"\x1b[2B", b"\x1b[5C", b"\x1b[D", b"\x1b[2F",
    b"\x1b[E", b"\x1b[7G", b"\x1b[H", b"\x1b[3;5H", b"\x1b[2;20r", b"\x1b[r", b"\x1b[s", b"\x1b[u", b"\x1b7",
    b"\x1b8", b"\x1bM", b"\x1bD", b"\x1b[31m", b"\x1b[0m", b"\x1b[1;38;5;200m", b"\x1b[7m", b"\x1b[m", b"\x1b[?25l",
    b"\x1b[?2004h", b"\x1b(B", b"\x1b]0;title\x07", b"\x1b]8;;x\x1b\\", b"\x1b]never ending", b"\x1b[4P", b"\x1b[2@",
    b"\x1b[3X", b"\x1b[9999999999A", b"\x1b[" + b"1;" * 60 + b"m", b"\x1bP" + b"q" * 1500, b"\x1b[1:2A", b"\x1b[>1K",
    b"\x1b[4:3m", b"\x1b[38m", b"\x1b[1 q",
]
# fmt: on
hostile = st.lists(st.one_of(st.sampled_from(PARTS), st.binary(max_size=6)), max_size=60).map(b"".join)
plain = st.binary(max_size=400).map(lambda data: data.translate(None, b"\r\x08\x1b"))


def joined(settled: list[bytes | RedrawnLine]) -> list[bytes]:
    """Return settled output with the plain text between redrawn lines joined."""
    texts = [b""]
    for item in settled:
        if isinstance(item, RedrawnLine):
            texts += [item.text, b""]
        else:
            texts[-1] += item
    return texts


@given(hostile, st.integers(1, 40), st.booleans())
@example(b"\x1b[A" + b"a\n" * 50 + b"\x1b[9Ax", 1, True)
@example(b"first\r" + b"12345\r" * 20 + b"1\r\n", 3, False)
@example(b"x" * 16390 + b"\rAB\n", 1000, False)
@example("█".encode() * 6000 + b"\rAB\n", 999, False)
@example("█".encode() * 6000 + b"\x1b]0;t\x07\rAB\n", 999, True)
def test_chunks_do_not_matter(data: bytes, size: int, full: bool) -> None:
    """Output settles as the same text, whatever its chunks."""
    assert joined(reduced(pieces(data, size), full=full)) == joined(reduced([data], full=full))


@given(plain, st.booleans(), st.integers(1, 400))
def test_plain_text_is_untouched(data: bytes, full: bool, size: int) -> None:
    """Text without carriage returns, backspaces and escape sequences is stored byte for byte."""
    assert b"".join(item for item in reduced(pieces(data, size), full=full) if isinstance(item, bytes)) == data
    assert not needs(data, full)


@given(plain, st.booleans(), st.integers(1, 400))
def test_line_ends_with_carriage_returns_are_untouched(data: bytes, full: bool, size: int) -> None:
    """CRLF is a line end and is stored unchanged."""
    data = data.replace(b"\n", b"\r\n")
    assert text_of(reduced(pieces(data, size), full=full)) == data
    assert not needs(data, full)


@given(hostile, st.integers(1, 400), st.booleans())
def test_everything_is_bounded(data: bytes, size: int, full: bool) -> None:
    """Histories, regions and settled lines never exceed their limits."""
    reducer = Redraw(full=full)
    settled: list[bytes | RedrawnLine] = []
    for part in pieces(data, size):
        settled += reducer.feed(part)
        assert sum(map(len, reducer.region())) <= MAX_REGION
    for drawn in drawn_of(settled + reducer.finish()):
        assert len(drawn.text) <= MAX_ROW
        assert b"\n" not in drawn.text
        assert len(drawn.frames) <= MAX_FRAMES
        assert sum(len(row) for frame in drawn.frames for row in frame) <= MAX_FRAMES_BYTES
        assert len(drawn.frames) != 1
        if drawn.frames:
            assert drawn.frames[-1][0] == drawn.text


@given(hostile, st.booleans())
def test_quick_check_agrees_with_the_reducer(data: bytes, full: bool) -> None:
    """Output that the quick check passes is not changed by the reducer either."""
    if not needs(data, full):
        assert text_of(reduced([data], full=full)) == data
