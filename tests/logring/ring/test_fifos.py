"""FIFOs at the paths of rings and files."""

import os
from pathlib import Path

import pytest

from logring.logfile.reopen import LogContent
from logring.reader import LogReader
from logring.redraw.history_format import read_frames


def test_reader_refuses_fifos(tmp_path: Path) -> None:
    """No reader waits for a writer of a FIFO."""
    path = str(tmp_path / "fifo")
    os.mkfifo(path)
    for read in (
        LogReader(path, None).head,
        LogReader(None, path).head,
        lambda: read_frames(path, 0),
        lambda: LogContent.read(path, "01"),
    ):
        with pytest.raises(OSError, match="Illegal seek"):
            read()
