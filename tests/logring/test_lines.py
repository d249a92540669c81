"""Cuts of long lines, and counts of lines."""

import mmap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logring.lines import harmless, has_long_line, newlines, utf8_cut


@pytest.mark.parametrize("character", ["a", "ä", "€", "😀"])
@pytest.mark.parametrize("shift", range(4))
def test_cut_respects_characters(character: str, shift: int) -> None:
    """A cut is never within a character, and drops at most three bytes."""
    data = b"x" * shift + character.encode() * 40
    cut = utf8_cut(data, 0, 30)
    assert 27 <= cut <= 30
    data[:cut].decode()
    data[cut:].decode()


@pytest.mark.parametrize("data", [b"\x80" * 40, b"\xff" * 40, b"a" * 29 + b"\x80" * 11, b"\xc3" + b"\x80" * 39])
def test_invalid_utf8_is_cut_at_the_limit(data: bytes) -> None:
    """Bytes that are not UTF-8 are cut exactly at the limit."""
    assert utf8_cut(data, 0, 30) == 30


def test_long_lines_are_found() -> None:
    """A line is too long if it exceeds the limit without its newline, finished or not."""

    def check(data: bytes) -> bool:
        with mmap.mmap(-1, 4096) as mm:
            mm[: len(data)] = data
            return has_long_line(mm, 0, data.rfind(b"\n") + 1, len(data), 10)

    assert not check((b"x" * 10 + b"\n") * 20)
    assert not check(b"\n" * 50 + b"x" * 10)
    assert check((b"x" * 10 + b"\n") * 20 + b"x" * 11)
    assert check((b"x" * 10 + b"\n") * 20 + b"x" * 11 + b"\n")
    assert check(b"x" * 11 + b"\n" + b"\n" * 30)


def test_line_ends_are_escaped() -> None:
    """Line ends and control characters are escaped, and everything else is unchanged."""
    assert harmless("a\nb\r\x1b[31m\x9b ä\udc80\t") == b"a\\nb\\r\\x1b[31m\\x9b \xc3\xa4\\udc80\t"


@given(st.binary(max_size=300), st.booleans())
def test_newline_count(text: bytes, long_lines: bool) -> None:
    """Both ways of counting return the number of newlines."""
    assert newlines(text, long_lines) == text.count(b"\n")
