"""Runs for bursts of changed files, with a file watcher that reports on the test's command."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from store.errors import DiskFull
from supervisor.config.load import load
from supervisor.ipc.file_bursts import BurstStored, FileBurst, InotifyProblems, WatchFiles
from supervisor.ipc.helper_messages import HelperMessage
from supervisor.ipc.log_line import Log
from supervisor.scheduler.loop.helper_process import HelperClient, HelperProcess
from supervisor.scheduler.loop.loop import Loop
from supervisor.scheduler.runs.file_changes import FileChanges
from supervisor.scheduler.runs.live_units import Unit
from tests.scheduler.bench import Bench
from tests.scheduler.fake_clock import FakeClock

WATCHED = '[tasks.load]\nrun = "true"\non_change = "/in/*"\n'
OTHER = '[tasks.other]\nrun = "true"\n'


class Watcher(HelperProcess):
    """A file watcher without a process: keeps the messages to it."""

    def __init__(self, loop: Loop, log: Log, name: str, client: HelperClient) -> None:
        super().__init__(loop, log, name, client)
        self.client = client
        self.requests: dict[str, HelperMessage] = {}
        self.sent: list[HelperMessage] = []
        self.up = False

    @property
    def running(self) -> bool:
        return self.up

    def request(self, key: str, message: HelperMessage) -> None:
        self.requests[key] = message
        self.starts()

    def starts(self) -> None:
        """Start a new process for the requests."""
        self.up = bool(self.requests)
        if self.up:
            self.client.helper_started()
            self.sent += self.requests.values()

    def send(self, message: HelperMessage) -> None:
        if self.up:
            self.sent.append(message)

    def replace(self) -> None:
        self.up = False

    def close(self) -> None:
        self.requests.clear()
        self.up = False

    def reports(self, burst: str, *files: str, task: str = "load") -> None:
        """Report a burst."""
        self.client.helper_sent(FileBurst(task, burst, list(files)))

    def stored(self) -> list[str]:
        """Return the bursts that need not be reported again."""
        return [message.id for message in self.sent if isinstance(message, BurstStored)]


class Files(Bench):
    """A bench whose tasks are started for changed files."""

    def __init__(self, directory: Path, text: str) -> None:
        self.clock = FakeClock()
        super().__init__(directory, text, self.clock)
        self.begin()

    def begin(self) -> None:
        """Start the client of the file watcher in the present scheduler."""
        self.made: list[Watcher] = []

        def make(loop: Loop, log: Log, name: str, client: HelperClient) -> Watcher:
            self.made.append(Watcher(loop, log, name, client))
            return self.made[-1]

        self.changes = FileChanges(self.core, self.engine.create_task_run, self.units, self.config, make)
        self.changes.start()
        (self.files,) = self.made

    @property
    def load(self) -> Unit:
        return self.units["load"]

    def passes(self, seconds: float) -> None:
        """Let time pass and store all changes."""
        self.clock.advance(seconds)
        self.loop.round(0)
        self.store.work_all()

    def spawned(self) -> list[str]:
        """Return the ids of runs that the root was asked to start since the last call."""
        self.store.work_all()
        return self.root.take("spawn")

    def count(self) -> int:
        """Return the number of stored runs."""
        return len(self.store.database.rows("SELECT id FROM runs", []))

    def watches(self) -> bool:
        """Return whether the file watcher runs."""
        return self.files.running


Make = Callable[[str], Files]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    made: list[Files] = []

    def new(text: str) -> Files:
        made.append(Files(tmp_path, text))
        return made[-1]

    yield new
    for made_bench in made:
        made_bench.close()


def test_watcher_gets_the_files_of_all_tasks(make: Make) -> None:
    """The first message names the directory for its state, and the globs and the settle time of each task."""
    harness = make(WATCHED + OTHER + '[tasks.more]\nrun = "true"\non_change = ["/a", "/b/*"]\nsettle = "1s"\n')
    settle = harness.config.tasks["load"].settle_ms
    tasks = {"load": (["/in/*"], settle), "more": (["/a", "/b/*"], 1000)}
    assert harness.files.sent == [WatchFiles(f"{harness.settings.data_dir}/on_change", tasks)]


def test_no_watcher_without_on_change(make: Make) -> None:
    """The file watcher does not run if no task has on_change."""
    assert not make(OTHER).watches()


def test_burst_is_acknowledged_once_stored(make: Make) -> None:
    """A burst is acknowledged only once its run is stored, so it is reported again after a crash before that."""
    harness = make(WATCHED)
    harness.files.reports("1", "/in/a", "/in/b")
    (run,) = harness.engine.live.values()
    assert (run.files, run.trigger) == (("/in/a", "/in/b"), "cron")
    assert (harness.files.stored(), harness.count()) == ([], 0)
    assert harness.spawned() == [run.id]
    assert (harness.files.stored(), harness.count()) == (["1"], 1)


def test_repeated_burst_has_one_run(make: Make) -> None:
    """A burst that is reported again is acknowledged again, and has no second run, not even in memory."""
    harness = make(WATCHED + "max_concurrent = 2\n")
    harness.files.reports("1", "/in/a")
    (run,) = harness.spawned()
    harness.files.starts()
    harness.files.reports("1", "/in/a")
    assert harness.spawned() == []
    assert harness.files.stored() == ["1", "1"]
    assert (harness.count(), list(harness.engine.live)) == (1, [run])


def test_watcher_death_before_the_run_is_stored(make: Make) -> None:
    """A burst that the next watcher reports while its run is being stored still has one run."""
    harness = make(WATCHED + "max_concurrent = 2\n")
    harness.files.reports("1", "/in/a")
    harness.files.starts()
    harness.files.reports("1", "/in/a")
    assert len(harness.spawned()) == 1
    harness.passes(0.25)
    assert harness.count() == len(harness.engine.live) == 1
    assert set(harness.files.stored()) == {"1"}


def test_scheduler_death_after_storing_the_run(make: Make) -> None:
    """The next scheduler knows the burst by its id, and acknowledges it without another run."""
    harness = make(WATCHED + "max_concurrent = 2\n")
    harness.files.reports("1", "/in/a")
    harness.store.work_all()
    harness.take_up(first=False)
    harness.begin()
    harness.files.reports("1", "/in/a")
    harness.store.work_all()
    assert (harness.count(), harness.files.stored()) == (1, ["1"])


@pytest.mark.parametrize("policy", ["max_concurrent = 1\nqueue_max = 0", 'on_overlap = "skip"'])
def test_burst_waits_while_its_run_would_be_refused(make: Make, policy: str) -> None:
    """No refused run is stored; the burst is tried every 250 ms and gets its run when another ends."""
    harness = make(f"{WATCHED}{policy}\n")
    harness.files.reports("1", "/in/a")
    (first,) = harness.spawned()
    harness.started(first)
    harness.files.reports("2", "/in/b")
    for _ in range(8):
        harness.passes(0.25)
    assert (harness.count(), harness.files.stored(), harness.spawned()) == (1, ["1"], [])
    harness.exited(first)
    harness.store.work_all()
    harness.passes(0.2)
    assert harness.spawned() == []
    harness.passes(0.05)
    (second,) = harness.spawned()
    assert harness.engine.live[second].files == ("/in/b",)
    assert harness.files.stored() == ["1", "2"]


def test_queue_takes_one_run_with_files(make: Make) -> None:
    """The queue takes one run with files, and the next burst waits outside, although the queue has room."""
    harness = make(WATCHED)
    harness.files.reports("1", "/in/a")
    (first,) = harness.spawned()
    harness.started(first)
    harness.files.reports("2", "/in/b")
    harness.store.work_all()
    harness.files.reports("3", "/in/c")
    harness.passes(0.25)
    assert [run.files for run in harness.load.queue] == [("/in/b",)]
    assert harness.files.stored() == ["1", "2"]
    harness.exited(first)
    (second,) = harness.spawned()
    harness.passes(0.25)
    assert [run.files for run in harness.load.queue] == [("/in/c",)]
    assert harness.engine.live[second].files == ("/in/b",)
    assert harness.files.stored() == ["1", "2", "3"]


def test_paused_task_keeps_its_burst(make: Make) -> None:
    """The run for a burst during a pause starts after the pause."""
    harness = make(WATCHED)
    harness.load.paused = True
    harness.files.reports("1", "/in/a")
    harness.passes(0.25)
    assert (harness.count(), harness.files.stored()) == (0, [])
    harness.load.paused = False
    harness.passes(0.25)
    assert (harness.count(), harness.files.stored()) == (1, ["1"])


def test_shutdown_keeps_the_burst(make: Make) -> None:
    """A burst during a shutdown stays with the watcher for the next daemon."""
    harness = make(WATCHED)
    harness.daemon.ending = True
    harness.files.reports("1", "/in/a")
    harness.passes(0.25)
    assert (harness.count(), harness.files.stored()) == (0, [])


def test_unstored_run_is_retried(make: Make) -> None:
    """The burst is not acknowledged until a later attempt stores its run."""
    harness = make(WATCHED)
    harness.files.reports("1", "/in/a")
    harness.store.fail(DiskFull())
    assert (harness.files.stored(), list(harness.engine.live)) == ([], [])
    harness.passes(0.25)
    assert (harness.count(), harness.files.stored()) == (1, ["1"])


def test_bursts_of_other_tasks_do_not_wait(make: Make) -> None:
    """Each task has its own waiting burst, so the bursts of other tasks do not wait."""
    harness = make(WATCHED + '[tasks.more]\nrun = "true"\non_change = "/more"\n')
    harness.load.paused = True
    harness.files.reports("1", "/in/a")
    harness.files.reports("2", "/more", task="more")
    assert len(harness.spawned()) == 1
    assert harness.files.stored() == ["2"]


def test_burst_of_a_removed_task(make: Make) -> None:
    """A waiting burst is dropped if a reload removes its task."""
    harness = make(WATCHED)
    harness.load.paused = True
    harness.files.reports("1", "/in/a")
    harness.files.reports("2", "/x", task="gone")
    del harness.units["load"]
    for _ in range(3):
        harness.passes(0.25)
    assert (harness.count(), harness.files.stored()) == (0, [])


def test_reload_replaces_the_watcher(make: Make) -> None:
    """A reload replaces the watcher only if the globs change, and ends it if no task has on_change."""
    harness = make(WATCHED)
    harness.changes.configure(harness.config)
    assert harness.watches()
    assert len(harness.files.sent) == 1
    path = Path(harness.config.path)
    path.write_text(WATCHED.replace("/in/", "/other/"))
    harness.changes.configure(load(str(path)))
    latest = harness.files.sent[-1]
    assert isinstance(latest, WatchFiles)
    assert latest.tasks["load"][0] == ["/other/*"]
    path.write_text(OTHER)
    harness.changes.configure(load(str(path)))
    harness.files.starts()
    assert not harness.watches()
    path.write_text(WATCHED)
    harness.changes.configure(load(str(path)))
    assert harness.watches()


def test_problems_of_the_running_watcher(make: Make) -> None:
    """Only the problems of the running watcher are shown: a watcher that has ended has none."""
    harness = make(WATCHED)
    assert harness.changes.report() == {"inotify_problems": []}
    harness.files.client.helper_sent(InotifyProblems(["no watches"]))
    assert harness.changes.report() == {"inotify_problems": ["no watches"]}
    harness.files.replace()
    assert harness.changes.report() == {"inotify_problems": []}
    harness.files.starts()
    assert harness.changes.report() == {"inotify_problems": []}
