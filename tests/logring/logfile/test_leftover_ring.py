"""The ring of a dead writer is saved, whatever the writer was doing when it died."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from logring.errors import ForeignFile
from logring.layout import PENDING_AT, PENDING_TEXT_AT, PUBLICATION_AT, STDERR, STDOUT
from logring.logfile.leftover_ring import save_leftover_ring
from logring.reader import LogReader
from tests.logring.support.rings import T0, Log, read_all, texts

MakeLog = Callable[..., Log]


def saved(log: Log) -> LogReader:
    """Save the ring, and return a reader of the file, which must be sealed."""
    lines = save_leftover_ring(log.ring_path, log.log_path)
    assert not os.path.exists(log.ring_path)
    reader = log.open_reader()
    head = reader.head()
    assert head.sealed
    assert head.lines == lines
    return reader


@pytest.mark.parametrize("written", ["nothing", "closed", "unfinished"])
@pytest.mark.parametrize("count", [1, 150, 1000])
def test_leftover_ring(make_log: MakeLog, written: str, count: int) -> None:
    """Blocks, the unfinished block and unfinished lines are saved, with or without an existing file."""
    log = make_log(blocks=4, block_size=4096)
    assert log.file is not None
    lines = [b"line %d" % number for number in range(count)]
    for number, line in enumerate(lines):
        log.feed(STDOUT, line + b"\n", T0 + number)
    if written == "closed":
        log.file.write_closed()
    elif written == "unfinished":
        log.file.write_unfinished()
    log.feed(STDERR, b"half a line", T0 + count)
    log.feed(STDOUT, b"another", T0 + count + 1)
    log.writer.mirror_pending()
    assert log.reader.head().lines == count
    reader = saved(log)
    lines_read = read_all(reader)
    assert texts(lines_read) == [*lines, b"another", b"half a line"]
    assert [line.stream for line in lines_read[-2:]] == [STDOUT, STDERR]
    assert lines_read[-1].ts == T0 + count + 1
    assert texts(log.lines()) == texts(lines_read)  # a reader that had mapped the ring finds the file
    reader.close()


def test_finished_line_is_not_saved_twice(make_log: MakeLog) -> None:
    """The mirror of an unfinished line is ignored after the line was finished."""
    log = make_log()
    log.feed(STDOUT, b"half")
    log.writer.mirror_pending()
    log.feed(STDOUT, b" and half\n")
    reader = saved(log)
    assert texts(read_all(reader)) == [b"half and half"]
    reader.close()


def test_continued_line_stays_continued(make_log: MakeLog) -> None:
    """The unfinished rest of a split line is saved as its continuation."""
    log = make_log(block_size=65536)
    log.feed(STDOUT, b"x" * 20000)
    log.writer.mirror_pending()
    reader = saved(log)
    assert [(len(line.text), line.continued) for line in read_all(reader)] == [(16384, False), (3616, True)]
    reader.close()


def test_unpublished_read(make_log: MakeLog) -> None:
    """In a ring of one slot, lines read before the death do not damage the previous block, which is in the file."""
    log = make_log(blocks=1, block_size=4096)
    lines = [b"x" * 699] * 5 + [b"y" * 297]
    log.feed(STDOUT, b"".join(line + b"\n" for line in lines))
    assert log.writer.blocks.head_block == 1
    log.writer.blocks.ring.mm[65536 + 64 : 65536 + 164] = b"?" * 100
    reader = saved(log)
    assert texts(read_all(reader)) == lines
    reader.close()


def test_full_ring_and_unfinished_lines(make_log: MakeLog) -> None:
    """Unfinished lines that do not fit into the last block get another one."""
    log = make_log(blocks=1, block_size=4096)
    lines = log.fill_ring()
    count = log.writer.blocks.lines
    log.feed(STDERR, b"e" * 900)
    log.writer.mirror_pending()
    log.writer.complete_waiting()
    reader = saved(log)
    assert texts(read_all(reader))[:count] == lines[:count]
    assert b"e" * 900 in texts(read_all(reader))
    reader.close()


def test_death_while_publishing(make_log: MakeLog) -> None:
    """If a writer dies during a publication, the previous one counts for readers and the rescue."""
    log = make_log()
    for number in range(9):
        log.feed(STDOUT, b"line %d\n" % number, T0 + number)
    ring = log.writer.blocks.ring
    newest = max(PUBLICATION_AT, key=lambda at: int.from_bytes(ring.mm[at : at + 4], "little"))
    ring.mm[newest + 20 : newest + 60] = bytes(40)
    assert texts(log.lines()) == [b"line %d" % number for number in range(8)]
    reader = saved(log)
    assert texts(read_all(reader)) == [b"line %d" % number for number in range(8)]
    reader.close()


def test_death_while_mirroring(make_log: MakeLog) -> None:
    """If a writer dies while it mirrors an unfinished line, the previously mirrored part is kept."""
    log = make_log()
    log.feed(STDOUT, b"first")
    log.writer.mirror_pending()
    mm = log.writer.blocks.ring.mm
    mm[PENDING_TEXT_AT[0] : PENDING_TEXT_AT[0] + 12] = b"first second"
    assert [pending.text for pending in log.reader.pending()] == [b"first"]
    mm[PENDING_AT[0][0] : PENDING_AT[0][0] + 30] = bytes(30)
    assert [pending.text for pending in log.reader.pending()] == [b"first"]
    reader = saved(log)
    assert texts(read_all(reader)) == [b"first"]
    reader.close()


def test_death_during_the_creation(tmp_path: Path) -> None:
    """A ring whose creation did not finish is empty, and is removed."""
    ring = tmp_path / "run.ring"
    log = str(tmp_path / "run.log")
    for content in (b"", bytes(65536 + 4096)):
        ring.write_bytes(content)
        assert LogReader(str(ring), log).head().lines == 0
        assert save_leftover_ring(str(ring), log) == 0
        assert not ring.exists()
    assert save_leftover_ring(str(ring), log) is None
    ring.write_bytes(b"something else" * 1000)
    with pytest.raises(ForeignFile):
        save_leftover_ring(str(ring), log)
    assert ring.exists()


@pytest.mark.parametrize("damage", ["", "no state", "no header", "short", "ends in the state"])
def test_file_in_any_state(make_log: MakeLog, damage: str) -> None:
    """Whatever state the file was left in, the rescue stores the ring's lines in it."""
    log = make_log()
    assert log.file is not None
    log.feed(STDOUT, b"one\ntwo\n")
    log.file.write_unfinished()
    with open(log.log_path, "r+b") as file:
        if damage == "no state":
            file.seek(PUBLICATION_AT[0])
            file.write(bytes(256))
        elif damage == "no header":
            file.truncate(0)
        elif damage == "short":
            file.truncate(100)
        elif damage == "ends in the state":
            file.truncate(PUBLICATION_AT[0] + 72)
    reader = saved(log)
    assert texts(read_all(reader)) == [b"one", b"two"]
    reader.close()


def test_sealed_but_not_unlinked(make_log: MakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """If only the removal of the ring was missing, the file is not changed."""
    log = make_log()
    log.feed(STDOUT, b"one\ntwo")
    monkeypatch.setattr(os, "unlink", lambda _path: None)
    log.finish()
    monkeypatch.undo()
    assert os.path.exists(log.ring_path)
    before = Path(log.log_path).read_bytes()
    reader = saved(log)
    assert Path(log.log_path).read_bytes() == before
    reader.close()


def test_sealed_but_not_written(make_log: MakeLog) -> None:
    """A ring that was sealed but not written out is saved."""
    log = make_log()
    log.feed(STDOUT, b"one\ntwo")
    log.writer.seal(T0)
    reader = saved(log)
    assert texts(read_all(reader)) == [b"one", b"two"]
    reader.close()


def test_log_without_a_file(make_log: MakeLog) -> None:
    """The ring of a log without a file, such as the daemon's own, can be saved too."""
    log = make_log(blocks=2, block_size=4096, file_blocks=0)
    log.log_path = log.ring_path + ".log"
    for number in range(1000):
        log.feed(STDOUT, b"line %d\n" % number, T0 + number)
    before = log.lines()
    assert save_leftover_ring(log.ring_path, log.log_path) == 1000
    reader = LogReader(None, log.log_path)
    assert read_all(reader) == before
    reader.close()


def test_rescue_of_a_full_log(make_log: MakeLog) -> None:
    """After the rescue of a full log, the file says which lines are left."""
    log = make_log(blocks=2, block_size=4096, file_blocks=3)
    lines = [b"line %d" % number for number in range(3000)]
    for number, line in enumerate(lines):
        log.feed(STDOUT, line + b"\n", T0 + number)
    reader = saved(log)
    first = reader.head().first_available
    assert 0 < first < 3000
    assert texts(read_all(reader)) == lines[first:]
    reader.close()
