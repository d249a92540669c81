r"""Searching a log for a text or a regular expression.

A block's text is searched as a whole and split into lines only around hits. So a search is as fast as ``bytes.find`` or
RE2, whatever the number of lines.

Regular expressions have RE2 syntax. RE2 takes time linear in the text, and bounded memory, so no pattern can hang the
searching process. Text and pattern are UTF-8: ``.`` is one character, and case is ignored beyond ASCII too.

A pattern is applied to one line as it is displayed, by :func:`displayed`: colours and other terminal escape sequences
do not hide what people see as plain text, and a byte that is not valid UTF-8 is a character, too. Only a pattern that
itself has an escape character, or ``\C`` (any byte), is applied to the bytes of the line. (RE2's Latin-1 mode would
treat an umlaut as two characters.)

Each line is searched without its newline: ``^`` and ``\A`` are its start, ``$`` and ``\z`` its end, and nothing matches
across lines. A carriage return before the newline belongs to the line end: no pattern sees it, but it stays in the text
of the hit. A line over 16 KiB is searched part by part, as it is stored, so a match that spans two parts is not found.
Unfinished lines are not searched.

``bytes.find`` is several times as fast as RE2. So the search first looks for the literal texts that every match of a
pattern contains, and runs RE2 only in blocks that have them.
"""

import math
import re
import time
from bisect import bisect_left
from collections.abc import Iterator
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple

from logring.block import Block, Entry
from logring.errors import Corrupt, LogError
from logring.layout import BLOCK_SIZE, ENTRY_SIZE, NO_NEWLINE
from logring.reader import LogReader
from logring.regex import BadPattern, Re2Missing, compile_re2, in_any_case

__all__ = ["BadPattern", "Hit", "Pattern", "SearchResult", "displayed", "search"]

_MEMORY_BYTES = 8 << 20
"""Memory limit of a compiled pattern, including its cache of states, which RE2 clears when it is full."""
_PROGRAM_BYTES = 1 << 18
"""Memory limit of a compiled pattern without its states.

The time to compile a repeated ``a?`` grows with the square of the repetitions, and blocks all other threads of the
process. With this limit, compiling takes at most a fifth of a second.
"""

_LEAST_BYTES = 1 << 12
_LOOK_S = 0.005
_EVER = 2**63
_STREAM_AT, _FLAGS_AT = 12, 13  # in an entry
_FINISHED = bytes(flags for flags in range(256) if not flags & NO_NEWLINE)
_TOKEN = re.compile(r"\\Q.*?(?:\\E|\Z)|\\.|\(\?[a-zA-Z]*-[a-zA-Z]*m", re.DOTALL)
_SEQUENCE = re.compile(
    rb"\x1b(?:\[[0-?]*+[ -/]*+(?:[@-~]|$)"  # CSI, such as colours and "erase to the end of the line"
    rb"|[\]PX^_][^\x07\x1b\n]*+(?:\x07|\x1b\\|$)"  # OSC, such as titles and links; DCS, SOS, PM, APC
    rb"|[ -/]*+[0-~]?)",  # others, such as "switch the character set"
    re.MULTILINE,
)
"""A terminal escape sequence. The dashboard removes the same ones (``escapes.js``), and their rare 8-bit forms."""
_BOM = re.compile(rb"^\xef\xbb\xbf", re.MULTILINE)
_OF_BYTES = re.compile(r"\x1b|(?<!\\)(?:\\\\)*\\(?:C|033|33(?![0-7])|x1[bB]|x\{0*1[bB]\})")
"""An escape character, or the escape sequence of one, or of any byte."""
_LINE_ANCHORS = {r"\A": "^", r"\z": "$"}


class Pattern:
    """The pattern to search for.

    Args:
        text: a plain text, or with `regex` a regular expression in RE2 syntax.
        regex: whether `text` is a regular expression.
        ignore_case: whether upper and lower case are equal.
        raw: whether lines match by their bytes, not as they are displayed.

    Raises:
        BadPattern: the pattern is invalid, too large, or cannot match any line.
    """

    def __init__(self, text: str, *, regex: bool = False, ignore_case: bool = False, raw: bool = False) -> None:
        try:
            plain = text.encode()
        except UnicodeEncodeError as err:
            raise BadPattern("is not UTF-8") from err
        if b"\n" in plain:
            raise BadPattern("contains a newline, which no line does")
        self._plain = plain
        self._raw = raw or (_OF_BYTES.search(text) is not None if regex else b"\x1b" in plain)
        self._regexp = None
        self._required = required(text) if regex and not ignore_case else ()
        if regex:
            # The error message then quotes the pattern as typed.
            _compile(text, ignore_case=ignore_case, memory_bytes=_PROGRAM_BYTES)
            self._regexp = _compile(f"(?m){_line_anchors(text)}", ignore_case=ignore_case)
        elif ignore_case:
            try:
                self._regexp = _compile(text, ignore_case=True, literal=True)
            except Re2Missing:
                self._regexp = in_any_case(text)

    def seen(self, text: bytes) -> bytes:
        """Return lines as this pattern sees them, and as many; `text` itself if that is the same."""
        return text if self._raw else displayed(text)

    def may_match(self, text: bytes, start: int, end: int) -> bool:
        """Return whether a match in `text[start:end]` is possible: a cheap test that may return True in vain."""
        return present(self._required, text, start, end)

    def find(self, text: bytes, start: int = 0, end: int | None = None) -> tuple[int, int] | None:
        """Return start and end of the first match from `start` on, before `end`; None if there is none."""
        if self._regexp is None:
            at = text.find(self._plain, start, end)
            return None if at < 0 else (at, at + len(self._plain))
        match = self._regexp.search(memoryview(text)[:end], start)  # RE2 treats its end as the end of a line
        return (match.start(), match.end()) if match else None

    def spans(self, line: bytes) -> Iterator[tuple[int, int]]:
        """Yield start and end of each match in one line; empty matches are left out."""
        pos = 0
        while pos <= len(line) and (span := self.find(line, pos)):
            if span[1] > span[0]:
                yield span
            pos = max(span[1], span[0] + 1)


def displayed(text: bytes) -> bytes:
    """Return lines without escape sequences and byte order marks, and with U+FFFD for bytes that are not valid UTF-8.

    The result has as many lines; it is `text` itself if it is the same.
    """
    if b"\x1b" in text:
        text = _SEQUENCE.sub(b"", text)
    if text.isascii():
        return text
    try:
        text.decode()
    except UnicodeDecodeError:
        text = text.decode(errors="replace").encode()
    return _BOM.sub(b"", text) if b"\xef\xbb\xbf" in text else text


def _compile(text: str, *, ignore_case: bool, literal: bool = False, memory_bytes: int = _MEMORY_BYTES) -> Any:
    return compile_re2(text, memory_bytes, ignore_case=ignore_case, literal=literal, lines=True)


def _line_anchors(text: str) -> str:
    """Return the pattern with text anchors replaced by line anchors.

    Raises:
        BadPattern: it changes the meaning of ``^`` and ``$``.
    """

    def replaced(token: re.Match[str]) -> str:
        if token[0].startswith("(?"):
            raise BadPattern(f"{token[0]}: ^ and $ always mean a line")
        return _LINE_ANCHORS.get(token[0], token[0])

    return _TOKEN.sub(replaced, text)


class Hit(NamedTuple):
    """A line that matches."""

    n: int
    """Its number."""
    ts: int
    """When it was read, ms since the epoch."""
    stream: int
    text: bytes
    """Without its newline."""


class SearchResult(NamedTuple):
    """The result of one call of `search`."""

    hits: list[Hit]
    next: int
    """The line to continue with."""
    exhausted: bool
    """Whether the log was searched up to its current end."""
    scanned: int
    """Bytes of text that were searched or skipped."""
    damaged: int
    """Number of unreadable blocks, which were skipped."""


class LineSelection(NamedTuple):
    """The lines to consider, by stream and time."""

    stream: int | None = None
    since_ms: int = -_EVER
    until_ms: int = _EVER
    """Latest time, inclusive."""

    def rules_out(self, block: Block) -> bool:
        """Return True if the header and table show that no line of a block is wanted."""
        header = block.header
        if self.stream is not None and self.stream != header.last_stream:
            streams = block.table[_STREAM_AT::ENTRY_SIZE]
            if self.stream not in streams:
                return True
        # Times never decrease within a block.
        return header.base_ms > self.until_ms or header.base_ms + header.last_delta < self.since_ms

    def takes(self, entry: Entry) -> bool:
        """Return whether the lines of an entry are wanted."""
        return (self.stream is None or self.stream == entry.stream) and self.since_ms <= entry.ts <= self.until_ms


ALL = LineSelection()


class SearchLimits(NamedTuple):
    """When a call of `search` stops."""

    hits: int
    """Maximum number of hits, at least 1."""
    max_bytes: int
    """Stop after the block that reaches this amount of text; damaged blocks count."""
    until_s: float = math.inf
    """Stop after this time (of `time.monotonic`) once some text was searched.

    The slowest patterns search 50 KB/s, so the time is also checked within blocks.
    """


def search(
    reader: LogReader,
    pattern: Pattern,
    start: int = 0,
    *,
    limits: SearchLimits,
    selection: LineSelection = ALL,
) -> SearchResult:
    """Search lines from number `start` on.

    Args:
        reader: reader of the log.
        pattern: the pattern to search for.
        start: the first line; to continue a search, `next` of the previous result.
        limits: when to stop.
        selection: the lines to consider.

    Raises:
        LogError: the log cannot be read at all. (Single unreadable blocks are only counted.)
        OSError: the disk failed.
    """
    hits: list[Hit] = []
    scanned = damaged = spent = 0
    following = start
    pace = _Pace(limits.until_s)
    for block in reader.blocks(start):
        if scanned + spent >= limits.max_bytes or len(hits) >= limits.hits or (scanned and pace.is_over()):
            return SearchResult(hits, following, exhausted=False, scanned=scanned, damaged=damaged)
        if isinstance(block, LogError):
            damaged += 1
            # Count a block only if the search moves past it: each call must make progress.
            if isinstance(block, Corrupt) and block.next is not None and block.next > following:
                following = block.next
                spent += BLOCK_SIZE
            continue
        if block.header.end_line <= start:
            continue
        try:
            finder = _InBlock(block, pattern, selection, start, pace)
            finder.add_hits(hits, limits.hits)
        except Corrupt:
            damaged += 1
            spent += BLOCK_SIZE
            following = max(following, block.header.end_line)
            continue
        scanned += finder.passed
        following = max(following, finder.next)
        if finder.next < block.header.end_line:
            return SearchResult(hits, following, exhausted=False, scanned=scanned, damaged=damaged)
    return SearchResult(hits, following, exhausted=True, scanned=scanned, damaged=damaged)


class _Pace:
    """The amount of text to search between two looks at the clock; patterns' speeds differ by a factor of 10,000.

    Attributes:
        bytes: the amount, which is extended to the end of a line.
    """

    def __init__(self, until_s: float) -> None:
        self.bytes = _LEAST_BYTES
        self._until_s = until_s
        self._looked_s = time.monotonic()

    def is_over(self) -> bool:
        """Look at the clock, adapt `bytes`, and return whether it is time to stop."""
        now_s = time.monotonic()
        took_s, self._looked_s = now_s - self._looked_s, now_s
        if took_s < _LOOK_S:
            self.bytes *= 2
        elif took_s > 2 * _LOOK_S:
            self.bytes = max(_LEAST_BYTES, self.bytes // 2)
        return now_s >= self._until_s


class _InBlock:
    """The search of one block, from line `start` or the block's first line on.

    Attributes:
        next: the line to continue with.
        passed: bytes of text that were searched or skipped.

    Raises:
        Corrupt: the entries do not match the text.
    """

    def __init__(self, block: Block, pattern: Pattern, selection: LineSelection, start: int, pace: _Pace) -> None:
        self._pace = pace
        self._block = block
        self._pattern = pattern
        self._selection = selection
        self._start = start
        self._start_offset = block.offset(start) if start > block.header.first_line else 0
        self._entry = Entry(0, 0, 0, 0, 0, 0, 0, 0)
        self._mark = self._mark_line = 0
        self.next = block.header.end_line
        self.passed = len(block.text) - self._start_offset

    def add_hits(self, hits: list[Hit], limit: int) -> None:
        """Add the lines that match to `hits`, until it has `limit`."""
        if not self._block.header.lines or self._selection.rules_out(self._block):
            return
        for start, end in self._stretches():
            if end <= self._start_offset:
                continue
            if not self._search(hits, _Stretch(self._pattern, self._block.text, start, end), limit):
                break

    def _stretches(self) -> Iterator[tuple[int, int]]:
        """Yield the parts of the text that must be searched separately.

        The part of a split line has no newline at its end: the next line follows immediately.
        """
        block = self._block
        start = 0
        if block.table[_FLAGS_AT::ENTRY_SIZE].translate(None, _FINISHED):
            for entry in block.entries():
                if entry.flags & NO_NEWLINE:
                    yield start, entry.end
                    start = entry.end
        if start < len(block.text):
            yield start, len(block.text)

    def _search(self, hits: list[Hit], stretch: "_Stretch", limit: int) -> bool:
        """Search one stretch, which ends at the end of a line; return whether to continue with the next."""
        stored, pattern, text, last = self._block.text, self._pattern, stretch.seen, stretch.last
        pos = stretch.to_seen(self._start_offset)
        if not pattern.may_match(text, pos, last):
            return True
        looked_at = pos
        while pos <= last:
            if pos - looked_at >= self._pace.bytes:
                looked_at = pos
                if self._pace.is_over():
                    begin = stretch.to_stored(pos)
                    self._entry_at(begin)
                    self.next, self.passed = self._number(begin), begin - self._start_offset
                    return False
            cut = _line_end(text, pos + self._pace.bytes, last)
            span = pattern.find(text, pos, cut)
            if span is None:
                pos = cut + 1
                continue
            line_begin = text.rfind(b"\n", 0, span[0]) + 1
            line_end = _line_end(text, span[0], last)
            pos = line_end + 1
            begin = stretch.to_stored(line_begin)
            if line_begin and stored[begin - 1 : begin + 1] == b"\r\n":  # the two newlines of a CRLF enclose no line
                continue
            entry = self._entry_at(begin)
            if not self._selection.takes(entry):
                pos = max(stretch.to_seen(entry.end), pos)
                continue
            # \C can match a newline. In that case the line must match on its own.
            if span[1] > line_end and pattern.find(text[line_begin:line_end]) is None:
                continue
            number = self._number(begin)
            stored_end = _line_end(stored, begin, entry.end)
            hits.append(Hit(number, entry.ts, entry.stream, stored[begin:stored_end]))
            if len(hits) >= limit:
                self.next = number + 1
                self.passed = min(stored_end + 1, len(stored)) - self._start_offset
                return False
        return True

    def _entry_at(self, offset: int) -> Entry:
        """Return the entry with the text at `offset`, which must not decrease between calls."""
        if offset >= self._entry.end:
            self._entry = self._block.entry(self._block.index_at(offset))
            if not self._entry.start <= offset < self._entry.end:
                raise Corrupt(f"{self._block.where}: the entries are damaged")
            self._mark, self._mark_line = self._entry.start, self._entry.before
        return self._entry

    def _number(self, line_begin: int) -> int:
        """Return the number of the line that begins at this offset in the current entry."""
        self._mark_line += self._block.text.count(b"\n", self._mark, line_begin)
        self._mark = line_begin
        number = self._block.header.first_line + self._mark_line
        if number < self._start or self._mark_line >= self._entry.upto:
            raise Corrupt(f"{self._block.where}: the entries are damaged")
        return number


class _Stretch:
    """A part of a block's text that is searched separately.

    Attributes:
        seen: the part as the pattern sees it, with as many lines.
        last: the end of the last line in `seen`; a newline at the end of the part is not included.
    """

    def __init__(self, pattern: Pattern, text: bytes, start: int, end: int) -> None:
        self._start = start
        self._stored = text[start:end]
        if b"\r" in self._stored:  # a hundred times as fast as a search for two bytes
            self._stored = self._stored.replace(b"\r\n", b"\n\n")  # keeps the offsets
        self.seen = pattern.seen(self._stored)
        self.last = len(self.seen) - self._stored.endswith(b"\n")

    def to_seen(self, offset: int) -> int:
        """Return where a line begins in `seen` that begins at this offset in the block, or where the part begins."""
        offset = min(offset - self._start, len(self._stored))
        if offset <= 0 or self.seen is self._stored:
            return max(offset, 0)
        return self._seen_begins[bisect_left(self._stored_begins, offset)]

    def to_stored(self, begin: int) -> int:
        """Return the offset in the block where a line begins that begins at this offset in `seen`."""
        if self.seen is not self._stored:
            begin = self._stored_begins[bisect_left(self._seen_begins, begin)]
        return self._start + begin

    @cached_property
    def _seen_begins(self) -> list[int]:
        return _line_begins(self.seen)

    @cached_property
    def _stored_begins(self) -> list[int]:
        return _line_begins(self._stored)


def _line_begins(text: bytes) -> list[int]:
    """Return where the lines begin, and an offset behind the text."""
    return [0, *accumulate(len(line) + 1 for line in text.split(b"\n"))]


def _line_end(text: bytes, at: int, end: int) -> int:
    """Return the end of the line that contains byte `at`; `end` if no newline comes before it."""
    newline = text.find(b"\n", at, end)
    return end if newline < 0 else newline


_SHORTEST = 3
"""Shorter texts occur almost everywhere."""
_MOST_TEXTS = 3
_MOST_ALTERNATIVES = 2
"""Maximum number of alternatives: searching for three texts takes as long as RE2."""

_UNUSUAL = re.compile(r"\(\?(?!:|P?<[A-Za-z_])|\\[^dDwWsSbBAzntrfva\W_]")
_REQUIRED_TOKEN = re.compile(
    r"""
      (?P<literal>[^\\\[(|)*+?{.^$] | \\[^A-Za-z0-9])
    | (?P<repeat>[*+?] | \{[0-9]*,?[0-9]*\})
    | (?P<open>\( (?:\?:|\?P?<[A-Za-z_][A-Za-z0-9_]*>)?)
    | (?P<close>\))
    | (?P<or>\|)
    | \[\^?\]?(?:\\.|\[:\^?[a-z]+:\]|[^\]\\])*\]
    | \\. | .
    """,
    re.VERBOSE | re.DOTALL,
)
_AT_LEAST_ONCE = re.compile(r"\+|\{0*[1-9]")

Texts = tuple[bytes, ...]


def required(pattern: str) -> tuple[Texts, ...]:
    """Return, for each alternative of a valid RE2 pattern, the texts that every match contains.

    The result is empty if one of the alternatives has no such text.
    """
    if _UNUSUAL.search(pattern):
        return ()
    alternatives: list[Texts] = []
    runs = [""]
    depth = 0
    before = None  # kind of the previous token
    for token in _REQUIRED_TOKEN.finditer(pattern):
        kind = token.lastgroup
        depth += (kind == "open") - (kind == "close")
        if depth or kind == "close":
            runs.append("")
        elif kind == "literal":
            runs[-1] += token[0][-1]
        elif kind == "or":
            alternatives.append(_longest(runs))
            runs = [""]
        else:
            if kind == "repeat" and before == "literal" and not _AT_LEAST_ONCE.match(token[0]):
                runs[-1] = runs[-1][:-1]
            runs.append("")
        before = kind
    alternatives.append(_longest(runs))
    if len(alternatives) > _MOST_ALTERNATIVES or not all(alternatives):
        return ()
    return tuple(alternatives)


def _longest(runs: list[str]) -> Texts:
    texts = dict.fromkeys(run.encode() for run in runs if len(run) >= _SHORTEST)
    return tuple(sorted(texts, key=len, reverse=True)[:_MOST_TEXTS])


def present(alternatives: tuple[Texts, ...], text: bytes, start: int, end: int) -> bool:
    """Return whether `text[begin:end]` contains all texts of one alternative; True without alternatives."""
    return not alternatives or any(
        all(text.find(required_text, start, end) >= 0 for required_text in texts) for texts in alternatives
    )
