"""The log of one run as the pump and the file thread share it."""

from logring.logfile import LogFileWriter
from logring.writer import RingWriter


class Source:
    """One pipe of a run."""

    __slots__ = ("fd", "log", "stream")

    def __init__(self, fd: int, stream: int, log: "RunLog") -> None:
        self.fd = fd
        self.stream = stream
        self.log = log


class RunLog:
    """Ring and file of one run.

    The file thread owns `file` and `finished`, the pump everything else. Each reads of the other's only what is a
    single value.
    """

    __slots__ = (
        "cut_off",
        "file",
        "file_blocks",
        "finished",
        "name",
        "path",
        "sealed",
        "sealing",
        "sources",
        "stalled",
        "told_blocks",
        "writer",
    )

    def __init__(self, name: str, writer: RingWriter, path: str, file_blocks: int) -> None:
        self.name = name
        self.writer = writer
        self.path = path
        self.file_blocks = file_blocks
        """Capacity of the log file in blocks; 0: a ring alone, without a file."""
        self.sources: set[Source] = set()
        self.stalled = False
        """The ring is full: its pipes are not watched until the file thread has made room."""
        self.told_blocks = 0
        self.cut_off = False
        """Its pipes are to be closed as soon as what they hold is in the ring."""
        self.sealing = False
        """It is to be sealed as soon as its last lines are in the ring."""
        self.sealed = False
        self.file: LogFileWriter | None = None
        self.finished = False
