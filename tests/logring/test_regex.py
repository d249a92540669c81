"""Plain texts in any case, and regular expressions where google-re2 is missing."""

import sys
from pathlib import Path

import pytest

from logring.layout import STDOUT
from logring.log_search import BadPattern, Pattern, SearchLimits, search
from logring.regex import Re2Missing, in_any_case
from tests.logring.support.rings import Log

# Blocks whose cases no release of Unicode changes: Latin, Greek, Cyrillic, Armenian, and letters such as the Kelvin.
LETTERS = [chr(code) for code in (*range(0x20, 0x588), *range(0x1E00, 0x2000), *range(0x2126, 0x212C))]


@pytest.fixture
def without_re2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "re2", None)


def test_same_letters_as_re2() -> None:
    """A letter in any case is the same set of letters as for RE2."""
    pytest.importorskip("re2", reason="needs google-re2, the other engine")
    lines = "\n".join(LETTERS).encode()
    for letter in LETTERS:
        ours = {match[0] for match in in_any_case(letter).finditer(lines)}
        assert ours == {lines[start:end] for start, end in Pattern(letter, ignore_case=True).spans(lines)}, letter


@pytest.mark.usefixtures("without_re2")
def test_plain_text_without_re2(tmp_path: Path) -> None:
    """A plain text is found without google-re2, in any case if case is ignored, with offsets in bytes."""
    log = Log(tmp_path, block_size=4096)
    log.writer.append(STDOUT, "Äb 1.\nÄB 12\näb 13\n".encode() + b"\xc4b 1\n", 1000)

    def found(pattern: Pattern) -> list[int]:
        return [hit.n for hit in search(log.reader, pattern, limits=SearchLimits(10, 1 << 20)).hits]

    assert found(Pattern("äb 1", ignore_case=True)) == [0, 1, 2]
    assert found(Pattern("äb 1.", ignore_case=True)) == [0]
    assert found(Pattern("äb")) == [2]
    assert [*Pattern("b", ignore_case=True).spans("ÄBäb".encode())] == [(2, 3), (5, 6)]


@pytest.mark.usefixtures("without_re2")
def test_regular_expression_without_re2() -> None:
    """Without google-re2 a regular expression is an error, which names the package and how to build it."""
    with pytest.raises(BadPattern, match=r"^needs the Python package google-re2, .*: pip install google-re2$"):
        Pattern("a", regex=True)
    assert issubclass(Re2Missing, BadPattern)
