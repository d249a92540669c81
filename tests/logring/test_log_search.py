"""A search finds the same as a loop over all lines, and any input is safe."""

import gc
import math
import re
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from logring.block import Block
from logring.layout import FILE_BLOCKS_AT, STDERR, STDOUT, SYSTEM
from logring.log_search import BadPattern, Hit, LineSelection, Pattern, SearchLimits, search
from logring.reader import Line, LogReader
from tests.logring.support.rings import T0, Log, read_all, texts

re2 = pytest.importorskip("re2", reason="needs google-re2")

BLOCK = 4096
TEXTS = [
    b"a",
    b"b",
    b"ab",
    b"A",
    b"1",
    b" ",
    b"\n",
    b"\n",
    b"\n\n",
    b"\r\n",
    b"\r",
    "ä€".encode(),
    "Ä".encode(),
    b"\xff",
    b"\xe2\x82",
    b"\x1b[1;31m",
    b"\x1b[m",
    b"\x1b[2J",
    b"\xef\xbb\xbf",
]
CHUNKS = st.one_of(
    st.lists(st.sampled_from(TEXTS), max_size=30).map(b"".join),
    st.lists(st.sampled_from([*TEXTS, b"x" * 700, b"x" * 1023, b"x" * 1500]), max_size=9).map(b"".join),
    st.integers(0, 1500).map(lambda n: b"ab%d\n" % n * n),
)
STEPS = st.tuples(
    st.sampled_from(["out", "out", "err", "system", "closed", "unfinished", "search"]),
    CHUNKS,
    st.sampled_from([0, 0, 1, 7, -3]),
)
ATOMS = st.sampled_from(
    ["a", "b", "A", "1", "x", "ä", "Ä", "€", "\ufffd", ".", "[^a]", "[0-9]", r"\s", "^", "$", r"\b", r"\A"]
)
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=4).map("".join),
        st.tuples(inner, inner).map("(?:{0[0]}|{0[1]})".format),
        inner.map("({})*".format),
        inner.map("(?:{}){{1,3}}".format),
    ),
    max_leaves=6,
)


def oracle(text: str, *, regex: bool, ignore_case: bool) -> re.Pattern[str]:
    """Return Python's equivalent pattern: RE2's classes are ASCII."""
    pattern_text = text if regex else re.escape(text)
    if regex:
        for ours, theirs in (
            (r"\b", r"(?a:\b)"),
            (r"\s", "[ \t\r\f\n]"),
            (r"\z", r"\Z"),
        ):
            pattern_text = pattern_text.replace(ours, theirs)
    return re.compile(pattern_text, re.IGNORECASE if ignore_case else 0)


def displayed(text: bytes) -> str:
    shown = re.sub("\x1b\\[[0-9;:]*m", "", text.decode(errors="replace"))
    return shown.removeprefix("\ufeff")


def without_line_end(line: Line, following: list[Line]) -> bytes:
    """Return the text that patterns see: a carriage return stays only if the line continues after it."""
    same_stream = next((following_line for following_line in following if following_line.stream == line.stream), None)
    return line.text if same_stream is not None and same_stream.continued else line.text.removesuffix(b"\r")


def hit(line: Line) -> Hit:
    return Hit(line.n, line.ts, line.stream, line.text)


def collect(
    reader: LogReader,
    pattern: Pattern,
    start: int,
    limit: int,
    max_bytes: int,
    selection: LineSelection,
    until_s: float,
) -> tuple[list[Hit], int]:
    """Return all hits of consecutive calls, and the bytes passed."""
    hits: list[Hit] = []
    scanned = 0
    for _ in range(100_000):
        part = search(reader, pattern, start, limits=SearchLimits(limit, max_bytes, until_s), selection=selection)
        assert len(part.hits) <= limit
        assert not part.damaged
        hits += part.hits
        scanned += part.scanned
        if part.exhausted:
            return hits, scanned
        assert part.next > start, "a call gets somewhere"
        start = part.next
    raise AssertionError("no end")


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    steps=st.lists(STEPS, max_size=25),
    blocks=st.integers(1, 3),
    block_size=st.sampled_from([BLOCK, 2 * BLOCK]),
    file_blocks=st.sampled_from([1, 2, 1000]),
    text=st.one_of(st.sampled_from(["a", "ab1", "€", "ba", "aB", "  ", ""]), EXPRESSIONS),
    regex=st.booleans(),
    ignore_case=st.booleans(),
    limit=st.sampled_from([1, 3, 100_000]),
    max_bytes=st.sampled_from([1, 5000, 1 << 30]),
    stream=st.sampled_from([None, None, STDOUT, STDERR, SYSTEM]),
    since_ms=st.sampled_from([-(2**63), T0 + 3]),
    until_ms=st.sampled_from([2**63, T0 + 10]),
    start=st.integers(0, 40),
    least_bytes=st.sampled_from([None, None, 1, 50]),
)
@example(
    steps=[("out", b"a\n\nb\n", 0), ("err", b"x" * 1500, 0), ("out", b"a\n", 0)],
    blocks=1,
    block_size=BLOCK,
    file_blocks=1000,
    text="^$",
    regex=True,
    ignore_case=False,
    limit=1,
    max_bytes=1,
    stream=None,
    since_ms=-(2**63),
    until_ms=2**63,
    start=0,
    least_bytes=None,
)
def test_search_equals_a_loop(
    steps: list[tuple[str, bytes, int]],
    blocks: int,
    block_size: int,
    file_blocks: int,
    text: str,
    regex: bool,
    ignore_case: bool,
    limit: int,
    max_bytes: int,
    stream: int | None,
    since_ms: int,
    until_ms: int,
    start: int,
    least_bytes: int | None,
) -> None:
    """For any log, pattern, filter and budget, live or sealed, a search and its byte count equal a loop over all lines.

    With `least_bytes`, each call ends at its first look at the clock, after that many bytes.
    """
    try:
        compiled = oracle(text, regex=regex, ignore_case=ignore_case)
        pattern = Pattern(text, regex=regex, ignore_case=ignore_case)
    except (re.error, BadPattern):
        return  # the two accept different invalid patterns
    needed = LineSelection(stream, since_ms, until_ms)

    def check(log: Log) -> None:
        lines = [line for line in read_all(log.reader) if line.n >= start]
        hits = [
            hit(line)
            for at, line in enumerate(lines)
            if stream in (None, line.stream)
            and since_ms <= line.ts <= until_ms
            and compiled.search(displayed(without_line_end(line, lines[at + 1 :])))
        ]
        until_s = math.inf if least_bytes is None else -math.inf
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("logring.log_search._LEAST_BYTES", least_bytes or 1 << 12)
            hits_found, scanned = collect(log.reader, pattern, start, limit, max_bytes, needed, until_s)
        assert hits_found == hits
        total = sum(len(line.text) for line in lines)
        assert total <= scanned <= total + len(lines)

    with tempfile.TemporaryDirectory() as directory:
        log = Log(Path(directory), blocks=blocks, block_size=block_size, file_blocks=file_blocks)
        try:
            now_ms = T0
            for step, data, later in steps:
                now_ms += later
                if step in ("out", "err"):
                    log.feed(STDOUT if step == "out" else STDERR, data, now_ms)
                elif step == "system":
                    log.writer.system_line(f"ab {now_ms}", now_ms)
                elif step == "closed" and log.file:
                    log.file.write_closed()
                elif step == "unfinished" and log.file:
                    log.file.write_unfinished()
                elif step == "search":
                    settle(log)
                    check(log)
            settle(log)
            check(log)
            log.finish(now_ms)
            check(log)
            log.reader.close()
            log.reader = log.open_reader()
            check(log)
        finally:
            log.close()


def settle(log: Log) -> None:
    """Let the file thread free slots until nothing waits."""
    while not log.writer.complete_waiting():
        assert log.file
        assert log.file.write_closed()


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path, block_size=BLOCK)


def matching_lines(log: Log, text: str, *, regex: bool = False, ignore_case: bool = False) -> list[bytes]:
    pattern = Pattern(text, regex=regex, ignore_case=ignore_case)
    return [hit.text for hit in search(log.reader, pattern, limits=SearchLimits(1000, 1 << 30)).hits]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"b\nc", []),
        (r"b\sc", []),
        (r"b[^x]c", [b"b\xffc"]),
        (r"(?s)b.c", [b"b\xffc"]),
        (r"b\Cc", [b"b\xffc"]),
        (r"b\C", [b"b\xffc"]),  # it also reaches from the first line into the second, which does not count
        (r"\C$", [b"ab", b"cd", b"b\xffc", "é".encode()]),
        (r"b\C?$", [b"ab"]),
        (r"b(?s:.*)d", []),
        (r"\Ac", [b"cd"]),
        (r"b\z", [b"ab"]),
        (r"\\z|\\A", []),
        (r"\Q\A\E", []),
        (r"^.$", ["é".encode()]),
        (r"b.c|^.{2}$", [b"ab", b"cd", b"b\xffc"]),
        (r"^$", [b""]),
    ],
)
def test_patterns_match_within_a_line(log: Log, text: str, expected: list[bytes]) -> None:
    """Any pattern matches only within one line; a byte that is not UTF-8 is the character U+FFFD."""
    log.feed(STDOUT, b"ab\ncd\n\nb\xffc\n\xc3\xa9\n")
    assert matching_lines(log, text, regex=True) == expected
    log.close()


RED = b"\x1b[31mERROR\x1b[0m: disk"
LATIN = b"caf\xe9 ERROR disk"
MARKED = b"\xef\xbb\xbfERROR: begin"
READY = b"ready in \x1b[1m129\x1b[22m ms"
PLAIN = b"ERROR: \xef\xbf\xbd"
SEQUENCES = [
    b"\x1b[01m\x1b[Kfile.c:\x1b[m\x1b[K \x1b[01;31m\x1b[Kerror: \x1b[m\x1b[Kno type",  # gcc
    b"\x1b(Bfile.c:\x1b[m error: no type",  # tput sgr0
    b"\x1b]8;;file:///a\x1b\\file.c\x1b]8;;\x1b\\: error: no type",
    b"\x1b]0;title\x07file.c: error: no type",
    b"\x1b[?25lfile.c: error: no type\x1b[?25h",
    b"\x1bP+q544e\x1b\\file.c: error: no type\x1b7",
    b"file.c: error: no type\x1b]0;unfinished",
    b"file.c: error: no type\x1b[3",
]
"""Lines that look like ``file.c: error: no type`` on a terminal."""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("^ERROR", [RED, MARKED, PLAIN]),
        ("^caf.*ERROR", [LATIN]),
        ("^caf[^a-z] ", [LATIN]),
        (r"ready in \d+ ms$", [READY]),
        ("\ufffd", [LATIN, PLAIN]),
        (r"\x{FFFD}", [LATIN, PLAIN]),
        (r"^ERROR: \w+$", [RED, MARKED]),
        (r"\x1b\[31mERROR", [RED]),
        ("\x1b\\[31mERROR", [RED]),
        (r"\x{1B}\[31mERROR", [RED]),
        (r"\033\[31mERROR", [RED]),
        (r"\33\[1m1", [READY]),
        (r"\C\[1m1", [READY]),
        (r"caf\C ", [LATIN]),
        (r"^\C{3}ERROR: b", [MARKED]),
        (r"\\x1b|\331m|\x{1b0}", []),
    ],
)
def test_lines_match_as_displayed(log: Log, text: str, expected: list[bytes]) -> None:
    """A line matches without colours and byte order mark, and with U+FFFD for invalid bytes; a hit has all bytes.

    A pattern with an escape character, or for any byte, matches the bytes.
    """
    log.feed(STDOUT, b"\n".join([RED, LATIN, MARKED, READY, PLAIN, b"nothing \x1b[7m"]) + b"\n")
    assert matching_lines(log, text, regex=True) == expected
    log.close()


def test_escape_sequences_hide_no_text_from_a_pattern(log: Log) -> None:
    """Terminal escape sequences of any kind are not part of a line as it is displayed, as on the dashboard."""
    log.feed(STDOUT, b"\n".join(SEQUENCES) + b"\n")
    assert matching_lines(log, "^file.c: error: no type$", regex=True) == SEQUENCES
    assert matching_lines(log, "file.c: error: no type") == SEQUENCES
    log.close()


def test_plain_text_matches_as_displayed(log: Log) -> None:
    """A plain text is found across colours; one with an escape character is found among the bytes."""
    log.feed(STDOUT, b"\n".join([RED, LATIN, MARKED]) + b"\r\n")
    assert matching_lines(log, "ERROR: ") == [RED, MARKED + b"\r"]
    assert matching_lines(log, "error: DISK", ignore_case=True) == [RED]
    assert matching_lines(log, "\x1b[31m") == [RED]
    assert matching_lines(log, "\ufffd") == [LATIN]
    log.close()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x$", [b"ax\r", b"bx"]),
        (r"x\z", [b"ax\r", b"bx"]),
        ("^$", [b"\r", b"", b"\r"]),
        ("^cr.y$", [b"cr\ry\r"]),
        (r"\s$", [b"d\r\r", b"e\r"]),
        (r"\r", [b"cr\ry\r", b"d\r\r", b"e\r"]),
        (r"e\C?$", [b"e\r"]),
        (r"x\C", []),
    ],
)
def test_carriage_returns_before_newlines(log: Log, text: str, expected: list[bytes]) -> None:
    """A carriage return before a newline belongs to the line end for matching; the hit keeps its bytes."""
    log.feed(STDOUT, b"ax\r\nbx\n\r\n\ncr\ry\r\nd\r\r\n\r\ne\r")
    log.finish()
    assert matching_lines(log, text, regex=True) == expected
    log.close()


def test_both_sides_of_a_split_line(log: Log) -> None:
    """Parts of a long line are separate lines: ^ and $ match at the border, and nothing matches across it."""
    log.feed(STDOUT, b"x" * 1023 + b"abc\n" + b"a\n")
    first, second, third = texts(log.lines())
    assert (first[-1:], second) == (b"a", b"bc")
    assert matching_lines(log, "ab") == matching_lines(log, "(?s)a.?b", regex=True) == []
    assert matching_lines(log, "a$", regex=True) == [first, third]
    assert matching_lines(log, "^b", regex=True) == [second]
    log.close()


@pytest.mark.parametrize(
    ("text", "regex", "message"),
    [
        ("(", True, "missing )"),
        ("a)(b", True, "unexpected )"),
        ("*", True, "repetition"),
        (r"(a)\1", True, "invalid escape"),
        ("(?=a)", True, "invalid perl operator"),
        (r"[\z]", True, "invalid escape"),
        ("(?-m)^a", True, "always mean a line"),
        (r"(\pL{100}){10}", True, "too large"),
        ("a{0,1000}" * 110, True, "too large"),
        ("a\nb", False, "newline"),
        ("a\udcff", False, "UTF-8"),
    ],
)
def test_bad_patterns(text: str, regex: bool, message: str, capfd: pytest.CaptureFixture[str]) -> None:
    """The error quotes the typed pattern, and nothing else is printed."""
    with pytest.raises(BadPattern, match=re.escape(message)) as caught:
        Pattern(text, regex=regex)
    assert "(?m)" not in str(caught.value)
    assert capfd.readouterr().err == ""


def test_match_spans() -> None:
    """Spans are all matches of a line that are not empty."""
    assert list(Pattern("ab").spans(b"abcabab")) == [(0, 2), (3, 5), (5, 7)]
    assert list(Pattern("b*", regex=True).spans(b"abbcb")) == [(1, 3), (4, 5)]
    assert list(Pattern("^a", regex=True).spans(b"aa")) == [(0, 1)]
    assert list(Pattern("").spans(b"ab")) == []


def test_damaged_blocks_are_counted(log: Log) -> None:
    """Damaged blocks are counted and the others searched; a budget does not stop a search at damage."""
    for number in range(3000):
        log.feed(STDOUT, b"%05d\n" % number)
    log.finish()
    parts = [block.header for block in log.reader.blocks() if isinstance(block, Block)]
    expected = {
        n for header in parts if header.number not in (0, 2, 3) for n in range(header.first_line, header.end_line)
    }
    with open(log.log_path, "r+b") as file:
        for block, at in ((0, 100), (2, 20), (3, 2000)):  # text, header, text
            file.seek(FILE_BLOCKS_AT + block * BLOCK + at)
            file.write(b"\xee")
    for max_bytes in (1, 1 << 30):
        log.reader.close()
        log.reader = log.open_reader()
        hits: set[int] = set()
        damaged, start, exhausted = 0, 0, False
        while not exhausted:
            part = search(log.reader, Pattern("0"), start, limits=SearchLimits(500, max_bytes))
            assert part.exhausted or part.next > start
            hits |= {hit.n for hit in part.hits}
            damaged, start, exhausted = damaged + part.damaged, part.next, part.exhausted
        assert (damaged, hits) == (3, expected)
    log.close()


def test_missing_log_is_empty(log: Log) -> None:
    """A search of a missing log finds nothing and is complete, also from beyond its end."""
    for start in (0, 5):
        part = search(log.reader, Pattern("a"), start, limits=SearchLimits(1, 1))
        assert (part.hits, part.exhausted, part.next) == ([], True, start)
    log.close()


def test_search_of_a_live_log(log: Log) -> None:
    """A search that reached the end can resume later; the unfinished line counts once it is finished."""
    log.feed(STDOUT, b"a1\nb\na2")
    part = search(log.reader, Pattern("a"), limits=SearchLimits(9, 1 << 30))
    assert ([hit.n for hit in part.hits], part.next, part.exhausted) == ([0], 2, True)
    log.feed(STDOUT, b"\n")
    part = search(log.reader, Pattern("a"), part.next, limits=SearchLimits(9, 1 << 30))
    assert ([hit.n for hit in part.hits], part.next, part.exhausted) == ([2], 3, True)
    log.feed(STDOUT, b"a3\n" * 5000)  # the last block continues, and others follow
    part = search(log.reader, Pattern("a"), part.next, limits=SearchLimits(9999, 1 << 30))
    assert [hit.n for hit in part.hits] == list(range(3, 5003))
    log.close()


def test_catastrophic_patterns(log: Log) -> None:
    """A search ends even for patterns with which Python's engine would never finish."""
    log.feed(STDOUT, b"a" * 1000 + b"\n")
    for text in (r"(a*)*b", r"(a+)+$b", r"(a|aa)+b", r"(.*)(.*)(.*)(.*)x"):
        assert matching_lines(log, text, regex=True) == []
    log.close()


def test_patterns_are_not_cached() -> None:
    """Patterns are not cached; RE2's module would keep 128 of them, each with megabytes."""
    import re2

    Pattern("ab+c", regex=True)
    gc.collect()
    assert re2._Regexp._make.cache_info().currsize == 0
