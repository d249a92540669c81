import os
import select
import socket
from collections.abc import Iterator

import pytest

from supervisor.scheduler.loop.loop import Loop, RoundLog


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield both ends of a socket that preserves the bounds of writes."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    yield ours, theirs
    ours.close()
    theirs.close()


def writes(end: socket.socket) -> list[list[str]]:
    """Return the lines of each write, without their prefixes."""
    lines_read = []
    while select.select([end], [], [], 0)[0]:
        lines_read.append([line.partition(": ")[2] for line in os.read(end.fileno(), 65536).decode().splitlines()])
    return lines_read


def test_lines_of_a_round_are_one_write(ends: tuple[socket.socket, socket.socket]) -> None:
    """Lines logged in one round are written at its end, in order; outside a round, at once."""
    log, loop = RoundLog("info", ends[1].fileno()), Loop()
    log.info("before there is a loop")
    log.attach(loop)
    log.info("outside")
    assert writes(ends[0]) == [["before there is a loop"], ["outside"]]

    def say() -> None:
        log.info("one")
        log.debug("not wanted at this level")
        log.warning("two")
        assert writes(ends[0]) == []

    loop.after(0, say)
    loop.after(0, lambda: log.error("three"))
    loop.round(0)
    assert writes(ends[0]) == [["one", "two", "three"]]
    loop.round(0)
    assert writes(ends[0]) == []


def test_writes_are_atomic(ends: tuple[socket.socket, socket.socket]) -> None:
    """Many lines are split into writes that are atomic on a pipe, except for a single line beyond that size."""
    log, loop = RoundLog("info", ends[1].fileno()), Loop()
    log.attach(loop)
    texts = [f"{n} {'x' * 300}" for n in range(40)] + ["y" * 5000, "z"]

    def say() -> None:
        for text in texts:
            log.info(text)

    loop.after(0, say)
    loop.round(0)
    written = writes(ends[0])
    assert [text for lines in written for text in lines] == texts
    assert len(written) < len(texts) / 5
    assert [lines for lines in written if len("".join(lines)) > select.PIPE_BUF] == [["y" * 5000]]


def test_lines_before_a_crash(ends: tuple[socket.socket, socket.socket]) -> None:
    """A scheduler that crashes writes its waiting lines first."""
    log, loop = RoundLog("info", ends[1].fileno()), Loop()
    log.attach(loop)

    def fail() -> None:
        log.info("last words")
        raise KeyError

    loop.after(0, fail)
    with pytest.raises(KeyError):
        loop.round(0)
    log.flush()
    assert writes(ends[0]) == [["last words"]]
