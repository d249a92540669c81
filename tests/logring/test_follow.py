"""Readers that follow a growing log."""

from collections.abc import Callable
from pathlib import Path

from logring.layout import STDOUT
from logring.reader import LogReader, follow
from tests.logring.support.rings import T0, Joiner, Log, child_writer, texts

MakeLog = Callable[..., Log]


def test_follow_until_the_seal(make_log: MakeLog) -> None:
    """Each line arrives once, from before the log exists to its end; the follower decides how to wait."""
    log = make_log(file_blocks=1000)
    printed = [b"%06d" % number for number in range(9000)]
    steps = iter(range(0, 10_000, 1000))

    def go_on() -> None:
        start = next(steps)
        if start == 9000:
            log.finish(T0 + start)
        else:
            log.feed(STDOUT, b"".join(line + b"\n" for line in printed[start : start + 1000]), T0 + start)

    all_texts: list[bytes] = []
    for page in follow(log.reader, 0, go_on, limit=300):
        assert page.skipped == 0
        assert 0 < len(page.lines) <= 300
        all_texts += texts(page.lines)
    assert all_texts == printed


def test_dropped_lines(make_log: MakeLog) -> None:
    """A follower that is too slow gets the number of lines it missed."""
    log = make_log(file_blocks=2, blocks=2)
    log.feed(STDOUT, b"".join(b"%06d\n" % number for number in range(9000)))
    log.finish()
    missed = seen = 0
    for page in follow(log.reader, 0):
        missed += page.skipped
        seen += len(page.lines)
    assert missed > 0
    assert missed + seen == 9000


def test_damaged_block_is_skipped(make_log: MakeLog) -> None:
    """A damaged block costs its own lines, not those after it."""
    log = make_log()
    log.feed(STDOUT, b"".join(b"%06d\n" % number for number in range(9000)))
    log.finish()
    with open(log.log_path, "r+b") as file:
        file.seek(4096 + 8192 + 1000)
        file.write(b"X")
    log.reader = log.open_reader()
    pages = list(follow(log.reader, 0))
    seen = [line.n for page in pages for line in page.lines]
    assert sum(page.skipped for page in pages) + len(seen) == 9000
    assert 1000 < 9000 - len(seen) < 1200
    assert seen[-1] == 8999


def test_follow_another_process(tmp_path: Path) -> None:
    """A follower that only polls gets all lines of another process until its seal."""
    ring, path = str(tmp_path / "r"), str(tmp_path / "l")
    joiner = Joiner()
    reader = LogReader(ring, path)
    with child_writer(ring, path, 5000, 1, 4, 8192, 1000) as child:
        for page in follow(reader, 0):
            assert page.skipped == 0
            joiner.add(page.lines)
        assert child.wait() == 0
    joiner.end()
    reader.close()
