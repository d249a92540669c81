"""``python -m logring`` shows and checks rings and files."""

from collections.abc import Callable
from pathlib import Path

import pytest

from logring.__main__ import main
from logring.layout import FILE_BLOCKS_AT, STDERR, STDOUT
from tests.logring.support.rings import T0, Log

MakeLog = Callable[..., Log]


@pytest.fixture
def log(make_log: MakeLog) -> Log:
    log = make_log()
    for number in range(20):
        log.feed(STDERR if number % 2 else STDOUT, b"line %d\n" % number, T0 + number)
    log.feed(STDOUT, b"half", T0 + 20)
    log.writer.mirror_pending()
    return log


def test_dump(log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    """`dump` shows the state, blocks, entries and unfinished lines of a ring or a file."""
    assert main(["dump", log.ring_path]) == 0
    out = capsys.readouterr().out
    assert "ring of 01ARZ3NDEKTSV4RRFFQ69G5FAV" in out
    assert "lines 0 to 20, 0 dropped, live" in out
    assert "2023-11-14T22:13:20.003Z stderr 1 lines, 7 bytes" in out
    assert "unfinished: stdout b'half'" in out
    log.finish(T0 + 30)
    assert main(["dump", log.log_path]) == 0
    out = capsys.readouterr().out
    assert "lines 0 to 21, 0 dropped, sealed" in out
    assert "stdout 1 lines, 4 bytes no_newline" in out


def test_tail(log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    """`tail` prints the last lines with time and stream."""
    assert main(["tail", "-n", "2", log.ring_path]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "2023-11-14T22:13:20.018Z stdout line 18",
        "2023-11-14T22:13:20.019Z stderr line 19",
    ]


def test_tail_follow(log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    """`tail -f` ends with the log."""
    log.finish(T0 + 30)
    assert main(["tail", "-f", "-n", "1", log.log_path]) == 0
    assert capsys.readouterr().out == "2023-11-14T22:13:20.030Z stdout half\n"


def test_tail_of_no_lines(log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    """`tail -n 0` prints nothing and does not wait."""
    assert main(["tail", "-n", "0", log.ring_path]) == 0
    assert capsys.readouterr().out == ""


def test_check(log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    """`check` succeeds for whole files, and names the damage in others."""
    assert main(["check", log.ring_path]) == 0
    assert "not sealed" in capsys.readouterr().out
    log.finish(T0 + 30)
    assert main(["check", log.log_path]) == 0
    assert capsys.readouterr().out == "lines 0 to 21: whole\n"
    with open(log.log_path, "r+b") as file:
        file.seek(FILE_BLOCKS_AT + 100)
        file.write(b"\n")
    assert main(["check", log.log_path]) == 1
    assert "block 0 is damaged" in capsys.readouterr().out
    assert main(["dump", log.log_path]) == 1


def test_no_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A missing, empty or foreign file gets an error of one line."""
    path = tmp_path / "x"
    assert main(["dump", str(path)]) == 2
    assert capsys.readouterr().err == f"{path}: No such file or directory\n"
    path.write_bytes(b"")
    assert main(["check", str(path)]) == 1
    path.write_bytes(b"text" * 1000)
    assert main(["tail", str(path)]) == 1
    assert "neither a ring nor a log file" in capsys.readouterr().err
