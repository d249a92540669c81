"""Lines to deliver, for tests of sinks."""

from typing import Any

from logring.block import Batch
from logring.layout import STDOUT
from supervisor.helpers.exporter.cursors import FollowedRun
from supervisor.helpers.exporter.log_records import Piece
from supervisor.ipc.log_jobs import ExportJob

RUN = FollowedRun("01K0000000000000000000000A", "web", 2)
TS = 1_764_144_000_123


def piece(text: bytes, n: int = 0, *, stream: int = STDOUT, continued: bool = False, ts: int = TS) -> Piece:
    """Return neighbouring lines of a run."""
    return Piece(RUN, Batch(n, ts, stream, text, continued, 0, text.count(b"\n") + 1))


def job(kind: str, **keys: Any) -> ExportJob:
    """Return the job of an export to a receiver."""
    texts = ("data_dir", "runtime_dir", "database", "root_bell", "scheduler_bell", "token")
    return ExportJob(name="x", type=kind, log_level="info", host="db1", **{**dict.fromkeys(texts, ""), **keys})
