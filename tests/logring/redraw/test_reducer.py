"""The rules by which redrawn output becomes lines."""

from itertools import pairwise

import pytest

from logring.redraw.reducer import Redraw, RedrawnLine, needs
from tests.logring.support.reducing import drawn_of, pieces, reduced, text_of

PIPE, TERMINAL = False, True
BOTH = pytest.mark.parametrize("full", [PIPE, TERMINAL], ids=["pipe", "terminal"])


def text(data: bytes, *, full: bool) -> bytes:
    """Return the log, and check that it is the same for one chunk and byte by byte."""
    whole = text_of(reduced([data], full=full))
    assert text_of(reduced(pieces(data, 1), full=full)) == whole
    return whole


@BOTH
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"10%\r50%\r100%\n", b"100%\n"),
        (b"\r 1%\r 2%", b" 2%\n"),
        (b"1%\r2%\r\n", b"2%\n"),
        (b"1%\r2%\r\r\n", b"2%\n"),
        (b"long text\rshort\n", b"shorttext\n"),
        (b"long text\rshort\x1b[K\n", b"short\n"),
        (b"long text\r\x1b[Kshort\n", b"short\n"),
        (b"long text\r\x1b[2Kshort\n", b"short\n"),
        (b"long text\rshort    \n", b"short\n"),
        (b"text\r\n", b"text\r\n"),
        (b"text\r", b"text\n"),
        (b"  0%\r  9%  \r      \r", b""),
        (b"a\n1\r2\nb\n3\r4\nc", b"a\n2\nb\n4\nc"),
        ("日本語\rab\n".encode(), "ab本語\n".encode()),
        ("日本語\ra\n".encode(), "a 本語\n".encode()),
        ("e\u0301te\u0301\rE\n".encode(), "Ete\u0301\n".encode()),
        (b"\xff\xfe\xfd\rA\n", b"A\xfe\xfd\n"),
        ("█".encode()[:2] + b"\rA\n", b"A" + "█".encode()[1:2] + b"\n"),
        (b"\x1b[31mred\rRE\x1b[0m\n", b"\x1b[31mREd\x1b[0m\n"),
        (b"\x1b[31mred\x1b[0m text\rX\n", b"X\x1b[31med\x1b[0m text\n"),
        (b"\x1b[1;44mblue  \x1b[0m\rBLUE\n", b"BLUE\x1b[44;1m  \x1b[0m\n"),
        (b"col\tumn\rC\n", b"Col\tumn\n"),
    ],
)
def test_carriage_returns(full: bool, data: bytes, expected: bytes) -> None:
    """Text after a carriage return overwrites the line cell by cell; erased cells vanish; cells keep their colours."""
    assert text(data, full=full) == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"|\b/\b-\bdone\n", b"done\n"),
        (b"abc\x1b[2Dx\n", b"axc\n"),
        (b"abc\x1b[1Gx\x1b[2Cy\n", b"xbcy\n"),
        (b"abcdef\x1b[3G\x1b[1K\n", b"   def\n"),
        (b"abcdef\x1b[3G\x1b[2P\n", b"abef\n"),
        (b"abcdef\x1b[3G\x1b[2@\n", b"ab  cdef\n"),
        (b"abcdef\x1b[3G\x1b[2X\n", b"ab  ef\n"),
        (b"ab\x1b7cd\x1b8X\n", b"abXd\n"),
        (b"ab\x1b[scd\x1b[uX\n", b"abXd\n"),
        (b"\x1b[?25lab\x1b[?25h\x1b[?2004h\n", b"ab\n"),
        (b"\x1b]0;a title\x07ab\x1b]8;;http://a/\x1b\\c\n", b"abc\n"),
        (b"\x1b]0;a title that never ends\nab\n", b"\nab\n"),
        (b"\x1b(Bab\x1b(0\n", b"ab\n"),
        (b"x" * 130 + b"\rab\n", b"x" * 120 + b"ab" + b"x" * 8 + b"\n"),
        (b"x" * 120 + b"\rab\n", b"ab" + b"x" * 118 + b"\n"),
        (b"\x1b[32mgreen\r\x1b[Kstill\nand this\n", b"\x1b[32mstill\x1b[0m\n\x1b[0;32mand this\n"),
    ],
)
def test_terminal_sequences(data: bytes, expected: bytes) -> None:
    """On a terminal, the cursor moves, lines wrap, titles and modes are dropped, and colours last until changed."""
    assert text(data, full=TERMINAL) == expected


@pytest.mark.parametrize("data", [b"a\bb\n", b"\x1b[A\x1b[2Kx\n", b"\x1b]0;t\x07a\n", b"a\x1b[Kb\n", b"\x1b[31mred\n"])
def test_pipes_reduce_only_carriage_returns(data: bytes) -> None:
    """On a pipe, a line without a carriage return is stored unchanged."""
    assert text(data, full=PIPE) == data
    assert not needs(data, PIPE)


@BOTH
def test_plain_text_stays_in_one_piece(full: bool) -> None:
    """Plain text passes unchanged, many lines at once, up to the unfinished line."""
    reducer = Redraw(full=full)
    assert reducer.feed(b"one\ntwo\r\n\x1b[1mthree\x1b[0m\nfo") == [b"one\ntwo\r\n\x1b[1mthree\x1b[0m\n"]
    assert reducer.region() == (b"fo",)
    assert reducer.feed(b"ur\n") == [b"four\n"]
    assert reducer.region() == ()
    assert reducer.feed(b"end") == []
    assert reducer.finish() == [b"end"]


def test_pipe_is_not_busy_between_lines() -> None:
    """Between lines of a pipe, plain output may bypass the reducer."""
    reducer = Redraw(full=PIPE)
    for data, busy in ((b"a\n", False), (b"b", True), (b"\r", True), (b"c", True), (b"\n", False), (b"d\r", True)):
        reducer.feed(data)
        assert reducer.busy is busy, data
    reducer.finish()
    assert not reducer.busy


def test_region_matches_a_terminal() -> None:
    """While a line is drawn, the region shows the same as a terminal."""
    reducer = Redraw(full=PIPE)
    reducer.feed(b"downloading\r 10%")
    assert reducer.region() == (b" 10%loading",)
    reducer.feed(b"\x1b[K")
    assert reducer.region() == (b" 10%",)


@BOTH
def test_history_of_a_line(full: bool) -> None:
    """A short history has all drawings; a long one has a sample that includes the first and the last."""
    assert reduced([b"1%\r2%\r3%\n"], full=full) == [RedrawnLine(b"3%", ((b"1%",), (b"2%",), (b"3%",)))]
    (drawn,) = drawn_of(reduced([b"\r%05d" % number for number in range(10_000)], full=full))
    numbers = [int(row) for (row,) in drawn.frames]
    assert (numbers[0], numbers[-1]) == (0, 9999)
    assert numbers == sorted(numbers)
    assert 16 <= len(numbers) <= 64
    gaps = [after - before for before, after in pairwise(numbers[:-1])]
    assert max(gaps) < 1000  # over the whole drawing


@BOTH
def test_undrawn_line_has_no_history(full: bool) -> None:
    """A lone carriage return at the end of a line makes no history."""
    assert drawn_of(reduced([b"text\r\r\n"], full=full)) == [RedrawnLine(b"text", ())]


@BOTH
def test_endless_lines_are_released(full: bool) -> None:
    """The reducer keeps at most a row of text without line ends."""
    reducer = Redraw(full=full)
    got = b""
    for _ in range(160):
        got += text_of(reducer.feed(b"0123456789abcdef" * 4096))
        assert sum(map(len, reducer.region())) <= 16384
    got += text_of(reducer.finish())
    assert got == b"0123456789abcdef" * 4096 * 160


@pytest.mark.parametrize(
    "data",
    [
        b"\x1b[99999999999999999999A",
        b"\x1b[" + b"9" * 100_000 + b"B",
        b"\x1b]0;" + b"endless " * 100_000,
        b"\x1b[" * 100_000,
        b"x\x1b[9999C\x1b[9999B" * 20_000,
        b"x\b" * 200_000,
        b"\x1b[H" * 50_000,
        b"e" + "\u0301".encode() * 200_000,
        b"\x1b[A\n" * 50_000,
    ],
)
def test_hostile_output_is_bounded(data: bytes) -> None:
    """Neither time nor memory grows with the numbers in a sequence."""
    reducer = Redraw(full=TERMINAL)
    for piece in pieces(data, 4096):
        for item in reducer.feed(piece):
            assert len(item.text if isinstance(item, RedrawnLine) else item) <= 16384
        assert sum(map(len, reducer.region())) <= 28672
    settled = reducer.feed(b"\nand on" * 100) + reducer.finish()
    assert text_of(settled).splitlines()[-1] == b"and on"


THREE = b"A\nB\nC\n\x1b[3A\x1b[2Ka1\n\x1b[2Kb1\n\x1b[2Kc1\n\x1b[3A\x1b[2Ka2\n\x1b[2Kb2\n\x1b[2Kc2\n"


def test_block_settles_at_the_end() -> None:
    """Earlier lines stay; the block follows, and its first line has the history of all its rows."""
    settled = reduced(pieces(THREE, 4), full=TERMINAL)
    assert text_of(settled) == b"A\nB\nC\na2\nb2\nc2\n"
    first, *others = drawn_of(settled)
    assert first.frames[0] == (b"A", b"B", b"C")
    assert (b"a1", b"b1", b"c1") in first.frames
    assert first.frames[-1] == (b"a2", b"b2", b"c2")
    assert [drawn.frames for drawn in others] == [(), ()]


def test_block_is_shown_while_drawn() -> None:
    """The region has the present rows of a block and the rows after it."""
    reducer = Redraw(full=TERMINAL)
    assert text_of(reducer.feed(THREE)) == b"A\nB\nC\n"
    assert reducer.region() == (b"a2", b"b2", b"c2")
    reducer.feed(b"\x1b[2A\x1b[2Kb3\r\x1b[2Bmore")
    assert reducer.region() == (b"a2", b"b3", b"c2", b"more")


def test_block_settles_before_plain_lines() -> None:
    """A block settles after more plain lines than it has rows, and later lines are plain again."""
    reducer = Redraw(full=TERMINAL)
    reducer.feed(THREE)
    settled = [item for number in range(6) for item in reducer.feed(b"line %d\n" % number)]
    assert text_of(settled) == b"a2\nb2\nc2\nline 0\nline 1\nline 2\nline 3\nline 4\nline 5\n"
    assert settled[-1] == b"line 5\n"
    assert reducer.region() == ()


def test_block_grows_with_its_frames() -> None:
    """A frame may have more rows than the previous one."""
    frames = [
        b"\x1b[%dA" % rows + b"".join(b"\x1b[2K%d.%d\n" % (rows, row) for row in range(rows + 1)) for rows in (1, 2, 3)
    ]
    assert text(b"one\n" + b"".join(frames), full=TERMINAL) == b"one\n3.0\n3.1\n3.2\n3.3\n"


def test_lines_above_a_bar_settle() -> None:
    """A row that redraws have long passed over settles, even though the block below continues."""
    reducer = Redraw(full=TERMINAL)
    bars = b"\x1b[2Kbar 1\n\x1b[2Kbar 2\n\x1b[2A"
    reducer.feed(bars)
    settled = reducer.feed(b"\x1b[2Kmessage\n" + bars)
    assert settled == []
    for _ in range(100):
        settled += reducer.feed(bars)
    assert text_of(settled) == b"message\n"


def test_rows_that_leave_the_screen_settle() -> None:
    """Rows that scroll off the screen settle at once, because the cursor cannot reach them any more."""
    reducer = Redraw(full=TERMINAL)
    settled = reducer.feed(b"start\n")
    for number in range(60):
        settled += reducer.feed(b"\x1b[A\x1b[Krow %d\n\x1b[Kstatus %d\n" % (number, number))
    rows = [b"row %d\n" % number for number in range(60)]
    assert text_of(settled) == b"start\n" + b"".join(rows[:22])
    assert len(reducer.region()) == 39
    settled += reducer.finish()
    assert text_of(settled) == b"start\n" + b"".join(rows) + b"status 59\n"


def test_status_line_at_the_bottom() -> None:
    """Rows that scroll above a status line at the bottom of the screen are the log, as with apt."""
    start = b"before\n\n\x1b7\x1b[1;39r\x1b8\x1b[1A"
    body = b"".join(b"package %d\n\x1b7\x1b[40;0f[%d%%]\x1b8" % (number, number) for number in range(100))
    end = b"\x1b7\x1b[1;40r\x1b8\x1b[J"
    lines = text(start + body + end, full=TERMINAL).splitlines()
    assert [line for line in lines if line] == [b"before", *(b"package %d" % number for number in range(100))]


def test_long_line_in_a_block() -> None:
    """A long line in a block wraps at the last column, and is joined again when it settles."""
    assert text(b"a\n\x1b[A" + b"x" * 300 + b"\n", full=TERMINAL) == b"a\n" + b"x" * 300 + b"\n"


def test_cleared_screen() -> None:
    """Lines printed before and after the screen is cleared are in the log."""
    assert text(b"old\n" * 3 + b"\x1b[H\x1b[2J\x1b[3Jnew\nnewer\n", full=TERMINAL) == b"old\n" * 3 + b"new\nnewer\n"
