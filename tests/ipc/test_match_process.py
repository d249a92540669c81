"""Matches in a process of their own give the results of RE2, within a limit of processor time."""

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logring.common_syntax import translated
from logring.layout import STDOUT
from logring.log_search import Limits, Pattern, search
from logring.regex import MatchFailed
from supervisor.ipc import match_process
from supervisor.ipc.match_process import TOO_LONG, MatchProcess
from tests.logring.support.rings import Log

SLOW = translated("(a|a)*b", lines=True)
PATTERNS = ("^a", "b$", "^$", "a.b", "é", "[^a]b", r"\bb", "(?i)É", "a|é", r"\S+", "b\\z", "\\Aa")
TEXTS = st.lists(st.sampled_from([b"a", b"b", b"\n", "é".encode(), b"\xff", b"\xc3", b" "]), max_size=12).map(b"".join)


@pytest.fixture(scope="module")
def process() -> Iterator[MatchProcess]:
    with MatchProcess() as matcher_process:
        yield matcher_process


def without_re2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logring.log_search.re2_module", lambda: None)


def test_nothing_matches_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without google-re2, a pattern never matches in the process that has it, but always in another one."""
    without_re2(monkeypatch)
    for pattern in (Pattern("a+", regex=True), Pattern("a", ignore_case=True)):
        assert not pattern.is_local
        with pytest.raises(MatchFailed):
            pattern.find(b"a", 0, 0, 1)
    assert Pattern("a").is_local


@settings(max_examples=200, deadline=None)
@given(text=TEXTS, pattern=st.sampled_from(PATTERNS), data=st.data())
def test_same_offsets_as_re2(process: MatchProcess, text: bytes, pattern: str, data: st.DataObject) -> None:
    """Start and end of a match are offsets in bytes, whatever part of the text is searched from wherever."""
    pytest.importorskip("re2", reason="needs google-re2, the other engine")
    lines = [0, *(at + 1 for at, byte in enumerate(text) if byte == ord("\n"))]
    start = data.draw(st.sampled_from(lines))
    pos = data.draw(st.sampled_from([line for line in lines if line >= start]))
    theirs = Pattern(pattern, regex=True)
    with pytest.MonkeyPatch.context() as monkeypatch:
        without_re2(monkeypatch)
        ours = Pattern(pattern, regex=True, matcher=process)
    assert ours.find(text, pos, start, len(text)) == theirs.find(text, pos, start, len(text))
    assert [*ours.spans(text[start:].split(b"\n")[0])] == [*theirs.spans(text[start:].split(b"\n")[0])]


def test_whole_texts(process: MatchProcess) -> None:
    """A whole text matches or not; an empty one can match too."""
    assert process.matches(translated("a+", lines=False), "aa")
    assert not process.matches(translated("a+", lines=False), "aab")
    assert process.matches(translated("a*", lines=False), "")
    assert process.matches(translated("(?s).é.", lines=False), "\né€")


def test_slow_match_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A match that exceeds its limit of processor time is killed; the next request gets another process."""
    monkeypatch.setattr(match_process, "LIMIT_S", 0.05)
    with MatchProcess() as process:
        assert process.find("a", b"ba", 0, 0, 2) == (1, 2)
        before = process.pid
        with pytest.raises(MatchFailed, match=r"^matching took more than"):
            process.find(SLOW, b"a" * 40, 0, 0, 40)
        assert process.pid is None
        assert process.find("a", b"ba", 0, 0, 2) == (1, 2)
        assert process.pid != before


def test_limit_holds_where_signals_are_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit also holds if the parent blocks the signal, as processes with signalfd(2) do."""
    monkeypatch.setattr(match_process, "LIMIT_S", 0.05)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGPROF])
    try:
        with MatchProcess() as process, pytest.raises(MatchFailed, match=r"^matching took more than"):
            process.find(SLOW, b"a" * 40, 0, 0, 40)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_killed_process_is_replaced() -> None:
    """A request to a process that was killed gets its answer from another one, with the same text."""
    with MatchProcess() as process:
        text = b"xa"
        assert process.find("a", text, 0, 0, 2) == (1, 2)
        assert process.pid is not None
        killed = psutil.Process(process.pid)
        killed.kill()
        assert process.find("a", text, 0, 0, 2) == (1, 2)
        assert process.pid != killed.pid
        assert not killed.is_running()


def test_process_ends_with_its_client() -> None:
    """The process ends when its client closes the connection, and leaves no zombie."""
    with MatchProcess() as process:
        process.find("a", b"a", 0, 0, 1)
        assert process.pid is not None
        matcher_process = psutil.Process(process.pid)
    assert not matcher_process.is_running()
    assert process.pid is None


def test_process_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says that the process cannot be started, or that it dies."""
    with MatchProcess() as process:
        monkeypatch.setattr(sys, "executable", "/nonexistent/python")
        with pytest.raises(MatchFailed, match="cannot start the matching process: No such file"):
            process.find("a", b"a", 0, 0, 1)
        monkeypatch.setattr(sys, "executable", "/bin/false")
        with pytest.raises(MatchFailed, match="the matching process was killed"):
            process.find("a", b"a", 0, 0, 1)


def test_cut_search_keeps_its_hits(process: MatchProcess, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A search whose match takes too long returns the hits before, and the reason."""
    without_re2(monkeypatch)
    log = Log(tmp_path, block_size=4096)
    log.writer.append(STDOUT, b"aab\nx\n" + b"a" * 40 + b"\n", 1000)
    pattern = Pattern("(a|a)*b", regex=True, matcher=process)
    result = search(log.reader, pattern, limits=Limits(10, 1 << 20))
    assert ([hit.n for hit in result.hits], result.failure, result.exhausted) == ([0], TOO_LONG, False)
