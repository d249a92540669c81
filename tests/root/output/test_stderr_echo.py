import errno
import os
from pathlib import Path

import pytest

from supervisor.root.output.file_thread import StderrEcho


def test_stalled_reader_delays_nothing() -> None:
    """Lines for a full pipe wait, up to a megabyte, and arrive in order once it is read again."""
    read_end, write_end = os.pipe()
    echo = StderrEcho(write_end)
    lines = [f"{number:099d}\n".encode() for number in range(20_000)]
    shown_lines = [line for line in lines if echo.add(line)]
    echo.flush()
    assert 10_000 < len(shown_lines) < 11_000
    expected = b"".join(shown_lines)
    data = b""
    while len(data) < len(expected):
        data += os.read(read_end, 65536)
        echo.flush()
    assert data == expected
    assert echo.add(b"again\n")
    os.close(read_end)
    echo.flush()
    assert echo.add(b"x" * 2_000_000)
    echo.flush()
    assert echo.add(b"no reader: dropped, not kept\n")
    os.close(write_end)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_lines_for_a_full_disk_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    """If standard error is a file, its lines wait for the disk, up to a megabyte; further ones are counted."""
    path = tmp_path / "log"
    with path.open("wb") as file:
        echo = StderrEcho(file.fileno())

        def refuse(*_: object) -> int:
            raise OSError(error, os.strerror(error))

        with monkeypatch.context() as patch:
            patch.setattr(os, "write", refuse)
            assert echo.add(b"one\n")
            echo.flush()
            assert echo.waiting
            assert echo.add(b"x" * 1_000_000 + b"\n" * 100_000)
            assert not echo.add(b"two\nthree\n")
        while echo.is_waiting:
            echo.flush()
        assert (echo.newly_missing(), echo.newly_missing()) == (2, 0)
    assert path.read_bytes() == b"one\n" + b"x" * 1_000_000 + b"\n" * 100_000
