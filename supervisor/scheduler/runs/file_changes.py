"""The client of the file watcher: starts tasks for bursts of changed files.

Each burst gets one run. The watcher forgets the burst only once its run is stored, and then reports the next one. So
neither a killed process nor a full queue loses a file. While a task cannot take a run, its burst waits, and later
changes form the next burst. A watcher that restarts reports the burst again with the same id. For a day, the store
rejects a second run for that id.
"""

from collections.abc import Callable

from store import idempotency
from store.errors import Conflict
from store.runs.ids import new_ulid
from supervisor.config.model import Config, Task
from supervisor.ipc.file_bursts import BurstStored, FileBurst, FileWatcherLine, InotifyProblems, WatchFiles
from supervisor.ipc.log_line import Log
from supervisor.ipc.plural import counted
from supervisor.schedule import overlap
from supervisor.schedule.windows import opening_at
from supervisor.scheduler.core import Core
from supervisor.scheduler.loop.helper_process import HelperClient, HelperProcess
from supervisor.scheduler.loop.loop import Loop
from supervisor.scheduler.loop.procedures import Procedure, Refused
from supervisor.scheduler.runs.live_units import RunRequest, Unit
from supervisor.scheduler.runs.run_observer import CreateTaskRun

_RETRY_MS = 250
_FOLDER = "on_change"


class FileChanges(HelperClient):
    """Runs the file watcher while tasks have ``on_change``."""

    answers = (FileBurst, FileWatcherLine, InotifyProblems)

    def __init__(
        self,
        core: Core,
        create_task_run: CreateTaskRun,
        units: dict[str, Unit],
        config: Config,
        make_process: Callable[[Loop, Log, str, HelperClient], HelperProcess] = HelperProcess,
    ) -> None:
        self._loop = core.loop
        self._committer = core.committer
        self._procedures = core.procedures
        self._daemon = core.daemon
        self._log = core.log
        self._create_task_run = create_task_run
        self._units = units
        self._tasks = _watched(config)
        self._waiting: dict[str, FileBurst] = {}
        """The burst of each task that has no run yet."""
        self._retries = False
        """Whether a timer will retry them."""
        self._problems: list[str] = []
        """Reasons why inotify(7) cannot watch some directories, from the latest report of the watcher."""
        self._process = make_process(core.loop, core.log, "filewatcher", self)

    def start(self) -> None:
        """Start the watcher if a task has ``on_change``."""
        if self._tasks:
            folder = f"{self._daemon.settings.data_dir}/{_FOLDER}"
            self._process.request("watch", WatchFiles(folder, self._tasks))

    def configure(self, config: Config) -> None:
        """Apply a new configuration: a new watcher continues from the state that the old one stored."""
        tasks = _watched(config)
        if tasks == self._tasks:
            return
        self._tasks = tasks
        self._process.close()
        self.start()

    def close(self) -> None:
        """Close the connection, which makes the watcher exit."""
        self._process.close()

    def report(self) -> dict[str, object]:
        """Return the watcher's problems for the ``info`` operation."""
        return {"inotify_problems": self._problems if self._process.running else []}

    def helper_started(self) -> None:
        """Forget the bursts and problems of the previous watcher, which the new one reports again."""
        self._waiting.clear()
        self._problems = []

    def helper_sent(self, message: FileBurst | InotifyProblems | FileWatcherLine) -> None:
        """Create the run of a burst, note problems, or log a message."""
        if isinstance(message, FileBurst):
            self._waiting[message.task] = message
            self._try(message)
        elif isinstance(message, InotifyProblems):
            self._problems = message.problems
        elif message.level == "warning":
            self._log.warning(message.text)
        else:
            self._log.info(message.text)

    def _try(self, burst: FileBurst) -> None:
        """Create the run of a burst, or schedule a retry."""
        unit = self._units.get(burst.task)
        task = None if unit is None else unit.task
        if unit is None or task is None or not task.on_change:  # a reload removed the task or its on_change
            self._waiting.pop(burst.task, None)
        elif self._has_room(unit, task):
            self._procedures.start(self._create(unit, task, burst))
        else:
            self._try_later()

    def _try_later(self) -> None:
        if not self._retries:
            self._retries = True
            self._loop.after(_RETRY_MS, self._try_all)

    def _try_all(self) -> None:
        self._retries = False
        for burst in list(self._waiting.values()):
            self._try(burst)

    def _has_room(self, unit: Unit, task: Task) -> bool:
        """Return whether a run would start or queue, and no other run with files is queued.

        Until then the burst waits in the watcher, where later changes gather in a single next burst.
        """
        if unit.paused or self._daemon.paused or self._daemon.ending or not self._committer.storing:
            return False
        if opening_at(unit.schedule.windows, self._loop.now_ms()) is not None or any(run.files for run in unit.queue):
            return False
        admission = overlap.decide(
            task.on_overlap,
            running=len(unit.active),
            queued=len(unit.queue),
            max_concurrent=task.max_concurrent,
            queue_max=task.queue_max,
        )
        return admission not in (overlap.Admission.SKIP, overlap.Admission.FULL)

    def _create(self, unit: Unit, task: Task, burst: FileBurst) -> Procedure[None]:
        del self._waiting[task.name]
        change = self._committer.change()
        run_id = new_ulid(change.now_ms)
        request = RunRequest(trigger="cron", run_id=run_id, files=tuple(burst.files))
        self._create_task_run(unit, task, change, request)
        change.write(idempotency.claim, f"files {burst.id}", run_id, "", change.now_ms)
        self._log.info(f"{task.name} {run_id}: {counted(len(burst.files), 'file')} changed")
        try:
            yield self._committer.stored_or_refused(change)
        except Refused as refusal:
            # A conflict: the run is stored, but the previous watcher exited before the reply.
            if not isinstance(refusal.error, Conflict):
                self._log.warning(f"cannot store a run of {task.name} for changed files, trying again: {refusal.error}")
                self._waiting[task.name] = burst
                self._try_later()
                return
        self._process.send(BurstStored(burst.task, burst.id))


def _watched(config: Config) -> dict[str, tuple[list[str], int]]:
    return {name: (list(task.on_change), task.settle_ms) for name, task in config.tasks.items() if task.on_change}
