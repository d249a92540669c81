"""Random output of programs, for property tests."""

from hypothesis import strategies as st

from logring.layout import STDERR, STDOUT
from tests.logring.support.rings import T0, Log

CHUNKS = st.one_of(
    st.binary(max_size=40),
    st.lists(
        st.sampled_from([b"line\n", b"\n", b"half", b"x" * 300, "€😀".encode(), b"\xff", b"y" * 1023]), max_size=9
    ).map(b"".join),
    st.integers(0, 6000).map(lambda n: b"z" * n),
    st.integers(0, 2500).map(lambda n: "ä€😀".encode() * n),
    st.integers(0, 3000).map(lambda n: b"%d\n" % n * n),
)
STREAMS = st.sampled_from([STDOUT, STDOUT, STDERR])
Step = tuple[str, int, bytes, int]
STEPS = st.tuples(
    st.sampled_from(["pipe", "pipe", "pipe", "append", "system", "unfinished"]),
    STREAMS,
    CHUNKS,
    st.sampled_from([0, 0, 0, 1, 7, -3]),
)


def play(log: Log, steps: list[Step]) -> None:
    """Apply the steps to a log, and finish it."""
    now_ms = T0
    for step, stream, data, later in steps:
        now_ms += later
        if step == "pipe":
            log.feed(stream, data, now_ms)
        elif step == "append":
            log.writer.append(stream, data, now_ms)
        elif step == "system":
            log.writer.system_line(f"at {now_ms}", now_ms)
        elif log.file is not None:
            log.file.write_unfinished()
    log.finish(now_ms)
