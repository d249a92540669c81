"""Records that the root and the scheduler would store: rows of runs, and logs."""

import time
from typing import Any

from logring.layout import STDOUT, RingShape
from logring.log_paths import log_path, ring_path
from logring.logfile.log_file import LogFileWriter
from logring.ring.writer import RingWriter
from store.runs.ids import new_ulid
from store.runs.writes import Run
from supervisor.ipc.messages import DaemonSettings
from tests.api.support.bells import Bells
from tests.store import making


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def make_run(run_id: str | None = None, task: str = "job", **columns: Any) -> Run:
    """A pending run of a task, made now, with the given columns replaced."""
    return making.make_run(**{"id": run_id or new_ulid(), "task_name": task, "created_at": now_ms(), **columns})


class Log:
    """A log as the root writes it: the pump's part and the file thread's part."""

    def __init__(
        self, settings: DaemonSettings, bells: Bells, run: Run, file_blocks: int, block_size: int, blocks: int
    ) -> None:
        self._bells = bells
        self._run = run
        self.ring = RingWriter.new(
            ring_path(settings.runtime_dir, run.id),
            run.id,
            RingShape(file_blocks, blocks, block_size),
        )
        self.file = LogFileWriter(log_path(settings.data_dir, run.task_name, run.id), self.ring, file_blocks)

    def write(self, data: bytes, stream: int = STDOUT, at_ms: int | None = None) -> None:
        """Lines or parts of lines, then the bell."""
        self.ring.append(stream, data, now_ms() if at_ms is None else at_ms)
        while not self.ring.complete_waiting():
            self.file.write_closed()
        self.file.write_closed()
        self.ring.mirror_pending()
        self._bells.ring(self._run.id)

    def finish(self) -> None:
        self.ring.seal(now_ms())
        self.file.finish()
        self._bells.ring(self._run.id)
