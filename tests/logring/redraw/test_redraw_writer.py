"""The writer with programs that redraw: settled lines are logged, drawn lines are shown and saved."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logring.layout import STDERR, STDOUT, SYSTEM, max_line
from logring.logfile.leftover_ring import save_leftover_ring
from logring.mask import Mask
from logring.reader import Line
from logring.redraw.redraw_writer import MAX_HISTORY, MAX_WAITING, Drawing, FrameQueue, LineEnd, history_size
from logring.redraw.reducer import Redraw, RedrawnLine
from tests.logring.support.rings import T0, Log, read_all, texts

MakeLog = Callable[..., Log]


def reduced(data: bytes, *, full: bool) -> bytes:
    """Return the text to which the reducer alone settles a whole stream."""
    redraw = Redraw(full=full)
    settled = redraw.feed(data)
    text = b"".join(piece.text + b"\n" if isinstance(piece, RedrawnLine) else piece for piece in settled)
    ending_text = b"".join(piece.text + b"\n" if isinstance(piece, RedrawnLine) else piece for piece in redraw.finish())
    return text + (ending_text if data.endswith(b"\n") else ending_text.removesuffix(b"\n"))


def joined(lines: list[Line], stream: int) -> list[bytes]:
    """Return the lines of a stream, with split ones joined."""
    all_texts: list[bytes] = []
    for line in lines:
        if line.stream == stream:
            if line.continued:
                all_texts[-1] += line.text
            else:
                all_texts.append(line.text)
    return all_texts


OUTPUT = st.lists(
    st.one_of(
        st.sampled_from(
            [b"line\n", b"\n", b"half", b"\r", b"\r\n", b"10%\r", b"20%\r", b"done\n", b"x" * 300, b"\x1b[K"]
        ),
        st.sampled_from(["\x1b[1A", "\x1b[2A\r", "€😀", "\b", "\x1b[31mred\x1b[0m"]).map(str.encode),
        st.binary(max_size=20),
        st.integers(0, 5000).map(lambda n: b"z" * n),
        st.integers(0, 400).map(lambda n: b"%d of 400\r" % n * n),
        st.integers(0, 400).map(lambda n: b"%d\n" % n * n),
    ),
    max_size=8,
).map(b"".join)
STEPS = st.tuples(
    st.sampled_from(["pipe", "pipe", "append", "system", "mirror", "unfinished"]),
    st.sampled_from([STDOUT, STDERR]),
    OUTPUT,
)


@settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    steps=st.lists(STEPS, max_size=25),
    blocks=st.integers(1, 3),
    block_size=st.sampled_from([4096, 8192, 65536]),
    full=st.booleans(),
)
def test_log_equals_the_reducer(
    steps: list[tuple[str, int, bytes]], blocks: int, block_size: int, *, full: bool
) -> None:
    """For any output in any chunks of both streams, the log has the reducer's bytes, lines and counted frames."""
    with tempfile.TemporaryDirectory() as directory:
        log = Log(Path(directory), blocks=blocks, block_size=block_size)
        try:
            run(log, steps, full=full)
        finally:
            log.close()


def run(log: Log, steps: list[tuple[str, int, bytes]], *, full: bool) -> None:
    output = {STDOUT: b"", STDERR: b""}
    for stream in output:
        log.writer.redraw(stream, full=full)
    for now_ms, (step, stream, data) in enumerate(steps, T0):
        if step == "pipe":
            log.feed(stream, data, now_ms)
        elif step == "append":
            log.writer.append(stream, data, now_ms)
        elif step == "system":
            log.writer.system_line("ours", now_ms)
        elif step == "mirror":
            log.writer.mirror_pending()
            for region in log.reader.region():
                assert region.rows
        elif log.file:
            log.file.write_unfinished()
        if step in ("pipe", "append"):
            output[stream] += data
    log.finish(T0 + len(steps))
    lines = read_all(log.reader)
    longest = max_line(log.writer.blocks.block_size)
    assert all(len(line.text) <= longest for line in lines)
    for stream, data in output.items():
        if max(map(len, data.split(b"\n"))) > longest:
            continue  # its first parts became lines, which never change, before the reducer was needed
        expected = reduced(data, full=full)
        assert b"".join(log.reader.raw([stream])) == expected
        assert joined(lines, stream) == expected.removesuffix(b"\n").split(b"\n") if expected else True
    frames_by_line = dict(log.writer.blocks.frames.take())
    assert {line.n: line.frames for line in lines if line.frames} == {
        n: len(frames) for n, frames in frames_by_line.items()
    }


def drawing_log(make_log: MakeLog, **arguments: int) -> Log:
    log = make_log(**arguments)
    log.writer.redraw(STDOUT, full=False)
    log.writer.redraw(STDERR, full=False)
    return log


def test_progress_bar_is_one_line(make_log: MakeLog) -> None:
    """Only the final state of a line is stored, with the time it settled and the number of its drawings."""
    log = drawing_log(make_log)
    log.feed(STDOUT, b"begin\n10%", T0)
    log.feed(STDOUT, b"\r20%", T0 + 1)
    log.feed(STDERR, b"a warning\n", T0 + 2)
    log.feed(STDOUT, b"\r30%\nend\n", T0 + 3)
    assert log.lines() == [
        Line(0, T0, STDOUT, b"begin", continued=False, frames=0),
        Line(1, T0 + 2, STDERR, b"a warning", continued=False, frames=0),
        Line(2, T0 + 3, STDOUT, b"30%", continued=False, frames=3),
        Line(3, T0 + 3, STDOUT, b"end", continued=False, frames=0),
    ]
    assert log.writer.blocks.frames.take() == [(2, ((b"10%",), (b"20%",), (b"30%",)))]


def test_plain_output_bypasses_the_reducer(make_log: MakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Output without a carriage return is not fed to the reducer, not even after a redrawn line."""
    log = drawing_log(make_log, blocks=3, block_size=65536)
    fed: list[bytes] = []
    feed = Drawing.feed

    def watched(self: Drawing, data: bytes, now_ms: int) -> list[bytes]:
        fed.append(data)
        return feed(self, data, now_ms)

    monkeypatch.setattr(Drawing, "feed", watched)
    log.feed(STDOUT, b"line\n" * 9000 + b"half")
    assert not fed
    log.feed(STDOUT, b"\rwhole")
    log.feed(STDOUT, b"\nnext")
    assert fed == [b"half\rwhole", b"\nnext"]
    log.feed(STDOUT, b" one\nlast")
    assert len(fed) == 2
    log.finish()
    assert texts(log.lines())[-3:] == [b"whole", b"next one", b"last"]


def test_unfinished_line_waiting_for_a_slot(make_log: MakeLog) -> None:
    """A line of which a part waits for a free slot is redrawn as a whole."""
    log = drawing_log(make_log, blocks=2, block_size=4096, file_blocks=100)
    before = [b"%0600d" % number for number in range(20)]
    log.writer.append(STDOUT, b"".join(line + b"\n" for line in before) + b"ha", T0)
    assert not log.writer.writable
    log.writer.append(STDERR, b"other\n", T0)
    log.writer.append(STDOUT, b"lf", T0)
    log.writer.append(STDOUT, b"\rwhole\n", T0)
    log.finish()
    assert joined(log.lines(), STDOUT) == [*before, b"whole"]
    assert b"".join(log.reader.raw([STDOUT])).endswith(b"\nwhole\n")
    assert [frames for _, frames in log.writer.blocks.frames.take()] == [((b"half",), (b"whole",))]


def test_long_settled_line_is_split(make_log: MakeLog) -> None:
    """A long settled line is split like any other; its last part has the frames, and later lines are intact."""
    log = drawing_log(make_log, block_size=8192)
    log.feed(STDOUT, b"draft\r" + b"x" * 5000 + b"\nnext\n")
    log.finish()
    lines = log.lines()
    assert joined(lines, STDOUT) == [b"x" * 5000, b"next"]
    assert [line.frames > 0 for line in lines] == [False, False, True, False]
    assert [line.continued for line in lines] == [False, True, True, False]


@pytest.mark.parametrize(("end", "stored"), [(b"", b"50%"), (b"\n", b"50%\n"), (b"\n\n", b"50%\n\n")])
def test_end_of_file(make_log: MakeLog, end: bytes, stored: bytes) -> None:
    """The line being drawn at the end of the stream is its last line, with a newline only if it had one."""
    log = drawing_log(make_log)
    log.feed(STDOUT, b"10%\r50%" + end)
    log.writer.finish_stream(STDOUT, T0 + 1)
    assert b"".join(log.reader.raw([STDOUT])) == stored
    assert log.lines()[0].frames == 2
    log.writer.mirror_pending()
    assert log.reader.region() == []
    assert log.reader.pending() == []


def test_redrawn_lines_without_a_ring(tmp_path: Path) -> None:
    """If no ring can be made, redrawn lines of a log without a file are dropped and counted like others."""
    log = Log(tmp_path, file_blocks=0)
    os.mkdir(log.ring_path)
    log.writer.blocks.path += "/none/none.ring"
    log.writer.redraw(STDOUT, full=False)
    log.feed(STDOUT, b"10%\r20%\nplain\n30%\r40%")
    log.writer.finish_stream(STDOUT, T0)
    assert (log.writer.blocks.lines, log.writer.blocks.dropped) == (3, 3)
    assert log.writer.blocks.frames.take() == []
    log.close()


def test_screen_of_a_dead_writer(make_log: MakeLog) -> None:
    """The drawings of both streams at the writer's death are saved after the settled lines."""
    log = drawing_log(make_log)
    log.feed(STDOUT, b"begin\n10%\r50%")
    log.feed(STDERR, b"first\rsecond", T0 + 1)
    log.writer.mirror_pending()
    assert save_leftover_ring(log.ring_path, log.log_path) == 3
    assert sorted(texts(log.lines())) == [b"50%", b"begin", b"second"]
    assert log.reader.region() == []


def test_rows_of_a_dead_writer(make_log: MakeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several rows of a dead writer are saved as one line each."""
    log = drawing_log(make_log)
    monkeypatch.setattr(Drawing, "rows", (b"", b"one", b"", b"two"))
    log.feed(STDOUT, b"begin\n10%\r50%", T0)
    log.writer.mirror_pending()
    assert save_leftover_ring(log.ring_path, log.log_path) == 5
    lines = log.lines()
    assert texts(lines) == [b"begin", b"", b"one", b"", b"two"]
    assert {line.ts for line in lines} == {T0}


def test_settled_part_of_an_unfinished_line(make_log: MakeLog) -> None:
    """Text that the reducer released before its line ended is not fed again, and is saved with the rest."""
    log = make_log()
    log.writer.redraw(STDOUT, full=True)
    up = b"\x1b[1A"
    log.feed(STDOUT, b"z" * 500 + up + b"z" * 300)
    log.feed(STDOUT, b"line\n")
    log.writer.mirror_pending()
    data = b"z" * 500 + up + b"z" * 300 + b"line\n"
    expected = reduced(data, full=True)
    save_leftover_ring(log.ring_path, log.log_path)
    assert b"".join(log.reader.raw()) == expected.removesuffix(b"\n")


def test_settled_line_is_not_saved_twice(make_log: MakeLog) -> None:
    """The mirror of a drawing is ignored after its line settled or was erased."""
    log = drawing_log(make_log)
    log.feed(STDOUT, b"10%\r50%")
    log.writer.mirror_pending()
    log.feed(STDOUT, b"\r90%\n")
    assert save_leftover_ring(log.ring_path, log.log_path) == 1
    assert texts(log.lines()) == [b"90%"]


def test_waiting_frames_are_bounded() -> None:
    """Entries that the file thread does not take in time are dropped; many waiting ones wake it once."""
    queue = FrameQueue()
    frames = ((b"x" * 1000,),) * 10
    size = sum(map(history_size, frames))
    pressing_count = 0
    for line in range(2 * MAX_WAITING // size):
        queue.add(line, frames)
        pressing_count += queue.pressing
    assert pressing_count == 1
    queued = queue.take()
    assert [line for line, _ in queued] == list(range(MAX_WAITING // size))
    queue.add(1_000_000, frames)
    assert queue.take() == [(1_000_000, frames)]


def test_frames_of_a_line_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line with a large history keeps its newest frames."""
    frames = tuple((b"%d" % number, b"x" * 1000) for number in range(100))
    monkeypatch.setattr(Redraw, "feed", lambda _self, _data: [RedrawnLine(b"end", frames)])
    text, end = Drawing.of(full=False).feed(b"any\r\n", T0)
    assert text == b"end"
    assert isinstance(end, LineEnd)
    assert frames[-len(end.frames) :] == end.frames
    assert 0 < sum(map(history_size, end.frames)) <= MAX_HISTORY


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("column", [100, 113])
def test_secret_across_settling_rows(column: int, *, apart: bool) -> None:
    """A secret is masked even if a row that leaves the terminal at its top settles before its line ends."""
    mask = Mask([b"hunter2pass"])
    drawing = Drawing.of(full=True, mask=mask.another())
    drawn = b"y" * column + b"hunter2\x1b[0Kpass" + b"z" * 30 + b"\n"
    tail = [b"m\n" * 36, b"\x1b[1A\r" + b"n\n" * 30]
    pieces = [b"l\n" * 30 + b"\x1b[30A", *([drawn, *tail] if apart else [drawn + tail[0], tail[1]])]
    shown = b"".join(part for piece in pieces for part in drawing.feed(mask.feed(piece), T0))
    assert b"hunter2pass" not in shown
    assert b"y" * column + b"***" + b"z" * 30 + b"\n" in shown


def test_system_lines_are_never_reduced(make_log: MakeLog) -> None:
    """System lines are stored unchanged between the rows of a progress bar."""
    log = drawing_log(make_log)
    log.feed(STDOUT, b"10%\r20%")
    log.writer.system_line("a\rb", T0)
    log.finish()
    assert [(line.stream, line.text) for line in log.lines()] == [(SYSTEM, b"a\\rb"), (STDOUT, b"20%")]


def kept_lines(log: Log) -> list[Line]:
    """Return all kept lines."""
    lines: list[Line] = []
    position, end = 0, log.reader.head().lines
    while position < end:
        page = log.reader.read(position, 1000)
        lines += page.lines
        position = page.next
    return lines


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(st.tuples(st.sampled_from([STDOUT, STDERR]), st.integers(1, 300)), max_size=60))
def test_full_log_drops_whole_lines(steps: list[tuple[int, int]]) -> None:
    """The beginning of each stream is kept, and all dropped lines are counted, drawn or not."""
    with tempfile.TemporaryDirectory() as directory:
        log = Log(Path(directory), blocks=2, block_size=4096, file_blocks=4, policy="drop_new")
        output = {STDOUT: b"", STDERR: b""}
        try:
            for stream in output:
                log.writer.redraw(stream, full=False)
            for now_ms, (stream, size) in enumerate(steps, T0):
                data = b"".join(b"%d \r%08d %%%s" % (n, n, b"\n" if n % 3 else b"\r") for n in range(size))
                log.feed(stream, data, now_ms)
                output[stream] += data
            log.finish(T0 + len(steps))
            lines = kept_lines(log)
            total = 0
            for stream, data in output.items():
                expected = reduced(data, full=False).splitlines()
                kept_texts = [line.text for line in lines if line.stream == stream]
                assert kept_texts == expected[: len(kept_texts)]
                total += len(expected)
            ours = [line for line in lines if line.stream == SYSTEM]
            head = log.reader.head()
            assert head.lines == total + len(ours)
            assert head.dropped == head.lines - len(lines)
            assert bool(ours) == bool(head.dropped)
        finally:
            log.close()
