"""Output without room is counted and reported in the log, and no other output is affected."""

import errno
import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logring.layout import STDERR, STDOUT, SYSTEM
from logring.logfile import log_file
from logring.logfile.leftover_ring import save_leftover_ring
from logring.reader import Line
from tests.logring.support.rings import T0, Log, texts

MakeLog = Callable[..., Log]


def available(log: Log) -> tuple[list[Line], list[range]]:
    """Return all readable lines, and the ranges of skipped numbers."""
    lines: list[Line] = []
    holes = []
    position = 0
    while position < log.reader.head().lines:
        page = log.reader.read(position, 100)
        if page.skipped:
            holes.append(range(position, position + page.skipped))
        assert page.next > position
        lines += page.lines
        position = page.next
    return lines, holes


@pytest.mark.parametrize("policy", ["drop_new", "kill"])
def test_full_log_keeps_its_oldest_lines(make_log: MakeLog, policy: str) -> None:
    """A full log counts later lines and ends with a notice. Their numbers are a hole, live and sealed alike."""
    log = make_log(file_blocks=4, policy=policy)
    printed = [b"%06d" % number for number in range(9000)]
    for number in range(0, 9000, 100):
        log.feed(STDOUT, b"".join(line + b"\n" for line in printed[number : number + 100]), T0 + number)
        log.writer.mirror_pending()
    log.feed(STDOUT, b"unfinished", T0 + 9000)
    log.writer.system_line("of our own", T0 + 9001)
    log.writer.mirror_pending()
    live = log.reader.head()
    assert (live.lines, live.first_available) == (9000, 0)
    kept_count = 9000 - live.dropped
    assert 3 * 1000 < kept_count < 3 * 1200
    assert texts(available(log)[0]) == printed[:kept_count]
    assert available(log)[1] == [range(kept_count, 9000)]
    assert log.writer.overflowed == (policy == "kill")
    log.finish(T0 + 9002)
    size = 7 * (9000 - kept_count) + len("unfinished")
    notice = b"%d lines (%d bytes) dropped: the log is full" % (9001 - kept_count, size)
    for reader in (log.reader, log.open_reader()):
        log.reader = reader
        lines, holes = available(log)
        assert texts(lines) == [*printed[:kept_count], b"of our own", notice]
        assert [(line.n, line.stream, line.ts) for line in lines[kept_count:]] == [
            (9001, SYSTEM, T0 + 9001),
            (9002, SYSTEM, T0 + 9002),
        ]
        assert holes == [range(kept_count, 9001)]
        assert reader.head().lines == log.writer.blocks.lines == 9003
        assert b"".join(reader.raw()) == b"".join(line + b"\n" for line in printed[:kept_count])


@pytest.mark.parametrize("policy", ["drop_new", "kill"])
def test_full_log_with_waiting_output(make_log: MakeLog, policy: str) -> None:
    """Output that waits for a slot when a log is sealed leaves the last block of the file to the notice."""
    log = make_log(blocks=3, file_blocks=4, policy=policy)
    assert log.file is not None
    log.fill_ring()
    log.writer.append(STDOUT, b"x" * 99 + b"\n" + b"yes\n" * 10_000, T0)
    assert not log.writer.overflowed
    log.finish()
    lines, holes = available(log)
    assert lines[-1].stream == SYSTEM
    assert lines[-1].text.endswith(b"dropped: the log is full")
    assert sum(map(len, holes)) == log.writer.blocks.dropped > 0
    assert log.writer.overflowed == (policy == "kill")


def test_just_full_log_drops_nothing(make_log: MakeLog) -> None:
    """Nothing is dropped or reported before a line finds no room."""
    log = make_log(file_blocks=3, policy="kill")
    fed = b""
    while log.writer.blocks.closed_blocks < 2:
        log.feed(STDOUT, b"x" * 99 + b"\n")
        fed += b"x" * 99 + b"\n"
    assert not log.writer.overflowed
    assert log.writer.gap is None
    log.finish()
    assert b"".join(log.reader.raw()) == fed
    assert (log.writer.blocks.dropped, log.writer.blocks.lines) == (0, len(fed) // 100)


def test_oldest_lines_are_dropped_by_default(make_log: MakeLog) -> None:
    """The policy drop_old never drops new lines."""
    log = make_log(file_blocks=4)
    log.feed(STDOUT, b"x" * 1_000_000)
    log.finish()
    assert log.writer.blocks.dropped == 0
    assert log.reader.head().first_available > 0


def test_full_disk(make_log: MakeLog) -> None:
    """A full ring drops lines until the log file can grow again; then the log continues at the start of a line."""
    log = make_log(blocks=4)
    assert log.file is not None
    log.writer.blocks.shortage = "the disk is full"
    reading, writing = log.pipes[STDOUT]
    printed: list[bytes] = []

    def print_lines(count: int) -> None:
        for _ in range(count):
            printed.append(b"%06d" % len(printed))
            os.write(writing, printed[-1] + b"\n")
            with suppress(BlockingIOError):
                log.writer.readv(reading, STDOUT, T0)
            assert log.writer.writable

    print_lines(9000)
    log.feed(STDERR, b"never seen")
    log.feed(STDOUT, b"begun")
    log.writer.mirror_pending()
    assert log.reader.pending() == []
    dropped = log.writer.blocks.dropped
    assert 9000 - 4 * 1200 < dropped < 9000 - 3 * 1000
    log.writer.blocks.shortage = None
    assert log.file.write_closed() == 3
    log.feed(STDOUT, b" and ended\nnext\n", T0 + 5)
    log.feed(STDERR, b" and ended\nerror\n", T0 + 5)
    log.finish(T0 + 6)
    lines, holes = available(log)
    kept_count = 9000 - dropped
    size = 7 * dropped + len(b"never seenbegun")
    notice = b"%d lines (%d bytes) dropped: the disk is full" % (dropped + 2, size)
    assert texts(lines) == [*printed[:kept_count], notice, b"next", b"error"]
    assert [line.n for line in lines[kept_count:]] == [9002, 9003, 9004]
    assert holes == [range(kept_count, 9002)]
    assert [line.stream for line in lines[kept_count:]] == [SYSTEM, STDOUT, STDERR]


def test_seal_on_a_full_disk(make_log: MakeLog) -> None:
    """The log can be sealed while the disk is full, because the ring has room for the notice."""
    log = make_log(blocks=3)
    log.writer.blocks.shortage = "the disk is full"
    for _ in range(300):
        log.feed(STDOUT, b"x" * 99 + b"\n")
    log.writer.system_line("timed out", T0)
    assert log.writer.seal(T0)
    assert [line.text for line in available(log)[0][-2:]] == [
        b"timed out",
        b"%d lines (%d bytes) dropped: the disk is full" % (log.writer.blocks.dropped, 100 * log.writer.blocks.dropped),
    ]
    assert log.file is not None
    log.file.finish()
    assert log.open_reader().head().lines == 302


def test_ring_full_before_the_disk(make_log: MakeLog) -> None:
    """Room for the notice is reserved from the start, because a full disk gives no warning."""
    log = make_log(blocks=3)
    log.fill_ring()
    log.writer.blocks.shortage = "the disk is full"
    log.feed(STDOUT, b"one more\n")
    assert log.writer.seal(T0)
    assert available(log)[0][-1].text == b"1 line (9 bytes) dropped: the disk is full"


def test_one_block_ring_on_full_disk(make_log: MakeLog) -> None:
    """Without room for the notice, the log can still be sealed, and its count has the missing lines."""
    log = make_log(blocks=1)
    log.writer.blocks.shortage = "the disk is full"
    for _ in range(300):
        log.feed(STDOUT, b"x" * 99 + b"\n")
    assert log.writer.seal(T0)
    assert log.file is not None
    log.file.finish()
    head = log.open_reader().head()
    assert (head.lines, head.dropped, head.sealed) == (300, log.writer.blocks.dropped, True)
    assert head.dropped > 200


def test_system_lines_in_a_gap_are_bounded(make_log: MakeLog) -> None:
    """During a gap, system lines are kept as long as one block has room for them."""
    log = make_log(file_blocks=2, policy="drop_new")
    log.feed(STDOUT, b"x" * 20_000 + b"\n")
    for number in range(2000):
        log.writer.system_line(f"note {number}", T0)
    log.finish()
    lines = texts(available(log)[0])
    notes = [line for line in lines if line.startswith(b"note")]
    assert notes == [b"note %d" % number for number in range(len(notes))]
    assert 100 < len(notes) < 1000
    assert lines[-1].endswith(b"dropped: the log is full")


def test_output_cannot_forge_the_notice(make_log: MakeLog) -> None:
    """Output of a program is never in the system stream."""
    log = make_log()
    log.feed(STDOUT, b"9 lines (9 bytes) dropped: the log is full\n")
    log.finish()
    assert [line.stream for line in log.lines()] == [STDOUT]


def test_ring_created_later(make_log: MakeLog, tmp_path: Path) -> None:
    """If a log without a file had no place only at first, it begins with the number of missing lines."""
    log = make_log(file_blocks=0)
    log.writer.blocks.path = str(tmp_path / "missing" / "run.ring")
    log.feed(STDOUT, b"lost\nhalf", T0)
    assert log.writer.blocks.place_error is not None
    log.feed(STDOUT, b"-lost\nlost\n", T0 + 500)
    (tmp_path / "missing").mkdir()
    log.reader = type(log.reader)(log.writer.blocks.path, None)
    log.feed(STDOUT, b"lost too\n", T0 + 999)
    log.feed(STDOUT, b"kept\n", T0 + 1000)
    log.finish(T0 + 1000)
    lines, holes = available(log)
    assert holes == [range(4)]
    assert [(line.n, line.stream) for line in lines] == [(4, SYSTEM), (5, STDOUT)]
    assert lines[0].text.startswith(b"4 lines (29 bytes) dropped: there is no place for the log: ")
    assert lines[0].text.endswith(b"No such file or directory")
    assert lines[1].text == b"kept"


def test_dead_writer_of_a_full_log(make_log: MakeLog) -> None:
    """After a kill within a gap, the count, the hole and the kept lines are saved."""
    log = make_log(file_blocks=3, policy="drop_new")
    log.feed(STDOUT, b"".join(b"%06d\n" % number for number in range(9000)))
    log.feed(STDOUT, b"unfinished")
    log.writer.mirror_pending()
    dropped = log.writer.blocks.dropped
    log.writer.close()
    assert save_leftover_ring(log.ring_path, log.log_path) == 9000
    log.reader = log.open_reader()
    lines, holes = available(log)
    assert texts(lines) == [b"%06d" % number for number in range(9000 - dropped)]
    assert holes == [range(9000 - dropped, 9000)]
    log.writer.blocks.created = False  # unmapped above


WRITE = log_file.pwritev
Step = str | tuple[int, int, bytes, bool]
STEPS = st.one_of(
    st.tuples(
        st.sampled_from([STDOUT, STDOUT, STDERR]),
        st.integers(0, 60),
        st.sampled_from([b"", b"x" * 30, b"y" * 900]),
        st.booleans(),
    ),
    st.sampled_from(["short", "long", "write", "fail", "mirror", "system"]),
)


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    steps=st.lists(STEPS, max_size=60),
    blocks=st.integers(1, 4),
    file_blocks=st.sampled_from([2, 3, 5, 1000]),
    policy=st.sampled_from(["drop_old", "drop_new", "kill"]),
)
def test_every_lost_line_is_counted(steps: list[Step], blocks: int, file_blocks: int, policy: str) -> None:
    """Through any failures and recoveries, kept lines are unchanged and in order, and all others are counted."""
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        log = Log(Path(directory), blocks=blocks, block_size=4096, file_blocks=file_blocks, policy=policy)
        try:
            run(log, steps, patch)
        finally:
            log.close()


def run(log: Log, steps: list[Step], patch: pytest.MonkeyPatch) -> None:
    assert log.file is not None
    printed: dict[int, bytes] = {STDOUT: b"", STDERR: b""}
    own = 0
    for count, step in enumerate(steps):
        if isinstance(step, tuple):
            stream, some, filler, finished = step
            text = b"".join(b"%d:%d%s\n" % (count, number, filler) for number in range(some))
            text += b"" if finished else b"%d" % count
            feed(log, stream, text, T0 + count, recovers=log.writer.blocks.shortage is None)
            printed[stream] += text
        elif step == "system":
            log.writer.system_line("own", T0 + count)
            own += 1
        else:
            disturb(log, step, patch)
    disturb(log, "works", patch)
    if not log.writer.seal(T0 + 1000):
        log.writer.blocks.shortage = None
    log.file.finish()
    compare(log, {stream: text.splitlines() for stream, text in printed.items()}, own)


def disturb(log: Log, step: str, patch: pytest.MonkeyPatch) -> None:
    """Let the file thread or the disk take a step."""
    assert log.file is not None
    if step in ("short", "fail"):
        log.writer.blocks.shortage = "the disk is full"
    elif step == "long":
        log.writer.blocks.shortage = None
    elif step == "mirror":
        log.writer.mirror_pending()
    elif step == "write":
        with suppress(OSError):
            log.file.write_closed()
    if step in ("fail", "long", "works"):
        patch.setattr(log_file, "pwritev", full if step == "fail" else WRITE)


def compare(log: Log, printed: dict[int, list[bytes]], own: int) -> None:
    """Compare the readable lines with the printed ones and the number of our `own` lines."""
    lines, holes = available(log)
    head = log.reader.head()
    assert head.lines == log.writer.blocks.lines
    kept_by_stream = {stream: [line.text for line in lines if line.stream == stream] for stream in (STDOUT, STDERR)}
    for stream in (STDOUT, STDERR):
        remaining = iter(printed[stream])
        assert all(text in remaining for text in kept_by_stream[stream]), (
            "kept lines that were not printed, or in another order"
        )
    notes = [line.text for line in lines if line.stream == SYSTEM]
    notices = len([text for text in notes if b" dropped: " in text])
    if not head.first_available:
        missing = sum(map(len, printed.values())) - sum(map(len, kept_by_stream.values()))
        assert head.dropped == missing + own - (len(notes) - notices)
        assert sum(map(len, holes)) == head.dropped
        assert len(lines) + head.dropped == head.lines


def feed(log: Log, stream: int, data: bytes, now_ms: int, *, recovers: bool) -> None:
    reading, writing = log.pipes[stream]
    assert log.file is not None
    while data:
        data = data[os.write(writing, data[:3000]) :]
        while True:
            if not log.writer.writable:
                assert recovers
                log.file.write_closed()
            try:
                log.writer.readv(reading, stream, now_ms)
            except BlockingIOError:
                if log.writer.writable:
                    break


def full(*_: object) -> int:
    raise OSError(errno.ENOSPC, "No space left on device")
