"""The next writer continues a dead writer's log."""

import os
from collections.abc import Callable

import pytest

from logring.errors import ForeignFile
from logring.layout import STDERR, STDOUT
from logring.logfile.log_file import LogFileWriter
from logring.logfile.reopen import LogContent, reopen
from tests.logring.support.rings import T0, Log, read_all, texts

MakeLog = Callable[..., Log]
RUN = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


def replace_writer(log: Log) -> None:
    """Let the writer die, and replace it by another one."""
    if log.file is not None:
        log.file.close()
    log.writer.close()
    written = LogContent.read(log.log_path, RUN)
    writer = reopen(log.ring_path, RUN, written)
    assert writer is not None
    log.writer = writer
    log.file = LogFileWriter(log.log_path, writer, writer.blocks.file_blocks)
    if written is not None:
        log.file.progress = written.progress


@pytest.mark.parametrize("written", ["nothing", "closed", "unfinished"])
@pytest.mark.parametrize(("blocks", "block_size", "file_blocks"), [(3, 8192, 1000), (1, 4096, 1000), (4, 16384, 2)])
@pytest.mark.parametrize("step", [1, 97])
def test_numbers_continue(
    make_log: MakeLog, written: str, blocks: int, block_size: int, file_blocks: int, step: int
) -> None:
    """After any number of reopens and with any file, each line is stored once and in order, in ring and file."""
    log = make_log(blocks=blocks, block_size=block_size, file_blocks=file_blocks)
    expected: list[bytes] = []
    for turn in range(12):
        for _ in range(step):
            for stream in (STDOUT, STDERR):
                expected.append(b"%d:%d" % (turn, len(expected)) + b"x" * (len(expected) % 80))
                log.feed(stream, expected[-1] + b"\n", T0 + len(expected))
        log.feed(STDOUT, b"half of ")
        log.writer.mirror_pending()
        assert log.file is not None
        if written == "closed":
            log.file.write_closed()
        elif written == "unfinished":
            log.file.write_unfinished()
        replace_writer(log)
        expected.append(b"half of %d" % turn)
        log.feed(STDOUT, b"%d\n" % turn, T0 + len(expected))
    head = log.reader.head()
    assert head.lines == len(expected)
    assert texts(log.lines()) == expected[head.first_available :]
    log.finish(T0 + len(expected))
    assert not os.path.exists(log.ring_path)
    reader = log.open_reader()
    head = reader.head()
    assert (head.sealed, head.lines) == (True, len(expected))
    assert texts(read_all(reader)) == expected[head.first_available :]
    assert head.first_available == 0 or file_blocks == 2
    reader.close()


def test_open_reader_follows_the_next_writer(make_log: MakeLog) -> None:
    """A reader that had mapped the ring sees the next writer's lines and unfinished line."""
    log = make_log()
    log.feed(STDOUT, b"one\ntwo\nhalf")
    log.writer.mirror_pending()
    assert texts(log.lines()) == [b"one", b"two"]
    replace_writer(log)
    log.feed(STDERR, b"un")
    log.writer.mirror_pending()
    assert [pending.text for pending in log.reader.pending()] == [b"half", b"un"]
    log.feed(STDOUT, b" and half\n")
    log.feed(STDERR, b"finished\n")
    assert texts(log.lines()) == [b"one", b"two", b"half and half", b"unfinished"]


def test_secrets_stay_hidden(make_log: MakeLog) -> None:
    """The next writer also holds back half of a secret, and continues the count."""
    log = make_log()
    log.writer.mask([b"correct-horse"])
    log.feed(STDOUT, b"correct-horse\nit is correct-")
    withheld = log.writer.withheld
    assert withheld == (b"correct-", b"", 1)
    log.writer.mirror_pending()
    replace_writer(log)
    log.writer.mask([b"correct-horse"])
    log.writer.hold(*withheld)
    log.feed(STDOUT, b"horse!\n")
    assert texts(log.lines()) == [b"***", b"it is ***!"]
    assert log.writer.masked == 2


def test_sealed_log(make_log: MakeLog) -> None:
    """A log whose writer died between sealing and writing the file is finished by the next writer."""
    log = make_log()
    log.feed(STDOUT, b"one\ntwo\n")
    log.writer.seal(T0)
    replace_writer(log)
    assert log.writer.blocks.sealed
    log.finish()
    data = LogContent.read(log.log_path, RUN)
    assert data is not None
    assert (data.sealed, data.lines) == (True, 2)
    assert reopen(log.ring_path, RUN, data) is None


def test_foreign_ring(make_log: MakeLog) -> None:
    """Another run's ring and file are refused; a ring without a publication counts as missing."""
    log = make_log()
    log.feed(STDOUT, b"one\n")
    assert log.file is not None
    log.file.write_unfinished()
    with pytest.raises(ForeignFile):
        reopen(log.ring_path, "another", None)
    with pytest.raises(ForeignFile):
        LogContent.read(log.log_path, "another")
    unborn = f"{log.ring_path}.unborn"
    with open(unborn, "wb") as file:
        file.truncate(65536)
    assert reopen(unborn, RUN, None) is None
    assert not os.path.exists(unborn)
