import os

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
