"""Any sequence of output gives what a plain list of lines would."""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from logring.layout import STDERR, STDOUT, SYSTEM, max_line
from logring.reader import Line
from tests.logring.support import T0, Log, read_all


@dataclass
class Model:
    """The lines as they should be; knows nothing of blocks and entries."""

    longest: int
    lines: list[Line] = field(default_factory=list)
    raw: dict[int, bytes] = field(default_factory=lambda: {STDOUT: b"", STDERR: b"", SYSTEM: b""})
    unfinished: dict[int, bytes] = field(default_factory=lambda: {STDOUT: b"", STDERR: b"", SYSTEM: b""})
    continued: dict[int, bool] = field(default_factory=lambda: {STDOUT: False, STDERR: False, SYSTEM: False})

    def add(self, stream: int, data: bytes, now_ms: int) -> None:
        self.raw[stream] += data
        rest = self.unfinished[stream] + data
        while rest:
            text, newline, behind = rest.partition(b"\n")
            if len(text) > self.longest:
                cut = self._cut(text)
                self._line(stream, text[:cut], now_ms, unfinished=True)
                rest = rest[cut:]
            elif newline:
                self._line(stream, text, now_ms, unfinished=False)
                rest = behind
            else:
                break
        self.unfinished[stream] = rest

    def _cut(self, text: bytes) -> int:
        """Where to split: before a character that does not fit, if it is one."""
        for back in range(1, 4):
            lead = self.longest - back
            width = {0xC: 2, 0xD: 2, 0xE: 3, 0xF: 4 if text[lead] < 0xF8 else 1}.get(text[lead] >> 4, 1)
            inside = text[lead + 1 : self.longest + 1]
            if all(0x80 <= byte < 0xC0 for byte in inside) and width > back:
                return lead
        return self.longest

    def _line(self, stream: int, text: bytes, now_ms: int, *, unfinished: bool) -> None:
        self.lines.append(Line(len(self.lines), now_ms, stream, text, self.continued[stream], frames=False))
        self.continued[stream] = unfinished

    def end(self, now_ms: int) -> None:
        for stream in (STDOUT, STDERR, SYSTEM):
            if self.unfinished[stream]:
                self._line(stream, self.unfinished[stream], now_ms, unfinished=True)
                self.unfinished[stream] = b""


CHUNKS = st.one_of(
    st.binary(max_size=40),
    st.lists(
        st.sampled_from([b"line\n", b"\n", b"half", b"x" * 300, "€😀".encode(), b"\xff", b"y" * 1023]), max_size=9
    ).map(b"".join),
    st.integers(0, 6000).map(lambda n: b"z" * n),
    st.integers(0, 2500).map(lambda n: "ä€😀".encode() * n),
    st.integers(0, 3000).map(lambda n: b"%d\n" % n * n),
)
STEPS = st.tuples(
    st.sampled_from(["pipe", "pipe", "pipe", "append", "system", "mirror", "closed", "unfinished", "read"]),
    st.sampled_from([STDOUT, STDOUT, STDERR]),
    CHUNKS,
    st.sampled_from([0, 0, 0, 1, 7, -3]),
)


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    steps=st.lists(STEPS, max_size=40),
    blocks=st.integers(1, 3),
    block_size=st.sampled_from([4096, 8192, 12288]),
    file_blocks=st.sampled_from([0, 1, 2, 5, 1000]),
)
def test_like_a_list(steps: list[tuple[str, int, bytes, int]], blocks: int, block_size: int, file_blocks: int) -> None:
    """Numbers, times, streams, texts, raw bytes and unfinished lines, from the ring and from the sealed file."""
    with tempfile.TemporaryDirectory() as directory:
        log = Log(Path(directory), blocks=blocks, block_size=block_size, file_blocks=file_blocks)
        try:
            run(log, Model(max_line(block_size)), steps)
        finally:
            log.close()


def run(log: Log, model: Model, steps: list[tuple[str, int, bytes, int]]) -> None:
    now_ms = T0
    for step, stream, data, later in steps:
        now_ms += later
        if step == "pipe":
            log.feed(stream, data, now_ms)
            model.add(stream, data, now_ms)
        elif step == "append":
            log.writer.append(stream, data, now_ms)
            model.add(stream, data, now_ms)
        elif step == "system":
            log.writer.system_line(f"at {now_ms}", now_ms)
            model.add(SYSTEM, b"at %d\n" % now_ms, now_ms)
        elif step == "mirror":
            log.writer.mirror_pending()
        elif step == "closed" and log.file:
            log.file.write_closed()
        elif step == "unfinished" and log.file:
            log.file.write_unfinished()
        elif step == "read":
            settle(log)
            check(log, model)
            log.writer.mirror_pending()
            assert {p.stream: p.text for p in log.reader.pending()} == {
                stream: text for stream, text in model.unfinished.items() if text and stream != SYSTEM
            }
    log.finish(now_ms)
    model.end(now_ms)
    if model.lines:
        assert log.reader.head().sealed
    check(log, model)
    if log.file:
        log.reader.close()
        log.reader = log.open_reader()
        check(log, model)


def settle(log: Log) -> None:
    """Let the file thread free slots until nothing waits."""
    while not log.writer.settle():
        assert log.file is not None
        assert log.file.write_closed()


def check(log: Log, model: Model) -> None:
    first = log.reader.head().first_available
    assert log.reader.head().lines == len(model.lines)
    assert read_all(log.reader) == model.lines[first:]
    page = log.reader.read(0, 3)
    assert (page.lines, page.skipped) == (model.lines[first : first + 3], first)
    for stream in (STDOUT, STDERR, SYSTEM):
        whole = model.raw[stream]
        unfinished = len(model.unfinished[stream])
        raw = b"".join(log.reader.raw([stream]))
        assert whole[: len(whole) - unfinished].endswith(raw)
        assert first or raw == whole[: len(whole) - unfinished]
