"""A bench that can reload its configuration, with a root that carries out requests at once."""

from pathlib import Path
from typing import Any

from store.tasks import StoredInstance, TaskRecord, all_tasks, get_task, instances, update_task, upsert_task
from supervisor.config.public_definition import definition_text
from supervisor.ipc.messages import DaemonSettings
from supervisor.scheduler.notifications.notifications import Notifications
from supervisor.scheduler.reload.active_config import ActiveConfig, ResolvedConfig
from supervisor.scheduler.reload.config_files import ConfigFiles
from supervisor.scheduler.reload.config_reload import Reloader
from supervisor.scheduler.reload.daemon_settings import resolve
from supervisor.scheduler.reload.unit_changes import UnitChanges
from supervisor.scheduler.runs.live_units import LiveRun
from supervisor.scheduler.runs.scheduled_starts import ScheduledStarts
from tests.scheduler.bench import Bench
from tests.scheduler.control.operations import operations_of
from tests.scheduler.fake_clock import SteppedClock, Steps
from tests.support.waiting import until


class ReloadBench(Bench):
    """A bench that starts everything in its configuration."""

    def __init__(self, directory: Path, text: str) -> None:
        super().__init__(directory, text)
        self.path = directory / "ringward.toml"
        self.recipes: dict[str, str] = {}
        """The definition hashes of runs with a live process."""
        self.starts: list[str] = []
        """Names of started instances, in order."""
        settings = DaemonSettings(
            daemon_id="D",
            data_dir=str(directory),
            runtime_dir=str(directory),
            config_path=str(self.path),
            listen=[],
            http_socket="",
            workers=1,
            shutdown_timeout_ms=1,
            log_level="error",
            password="",
            password_ephemeral=True,
            token="token",
            started_at=1,
            overridden=["data_dir", "listen"],
        )
        self.settings = resolve(self.config, settings)
        self.scheduled_starts = ScheduledStarts(self.core, self.engine)
        self.applied: list[ResolvedConfig] = []
        self.info: dict[str, Any] = {}
        clock = SteppedClock()
        self.files = ConfigFiles(self.loop, self.config, stale=False, on_stale=self.files_changed, clock=clock)
        self.file_steps = Steps(clock, self.files.round)
        resolved = ResolvedConfig(self.config, self.settings)
        self.active = ActiveConfig(resolved, self.files, self.info, self.core, Notifications(self.config))
        changes = UnitChanges(self.core, self.engine, self.controller, self.scheduled_starts, self.units, {})
        self.reloader = Reloader(
            self.core, changes, self.active, lambda resolved, _difference: self.applied.append(resolved)
        )
        change = self.committer.change()
        for unit in self.units.values():
            text = definition_text(unit.definition)
            upsert_task(self.store.database, unit.name, unit.definition.kind, text)
            update_task(self.store.database, unit.name, stopped=unit.stopped)
            if unit.service is not None:
                self.controller.take_over(unit, change)
        self.committer.commit(change)
        self.scheduled_starts.start(self.units.values())
        self.drain()

    def files_changed(self) -> None:
        """Report that the files changed."""
        self.active.files_changed()

    def drain(self) -> None:
        """Store all changes and carry out all requests to the root until nothing remains."""
        while self.store.jobs or self.root.sent:
            self.store.work_all()
            for frame in self.root.sent[:]:
                self.root.sent.remove(frame)
                if frame["op"] == "spawn":
                    request = self.root.request(frame)
                    self.recipes[request["run"]] = request.get("recipe", "")
                    self.starts.append(request["task"])
                    self.started(request["run"])
                elif frame["op"] == "stop":
                    self.recipes.pop(frame["run"], None)
                    self.exited(frame["run"], status=15, cause="stop")
            self.loop.round(0)

    def write(self, text: str) -> None:
        """Edit the configuration."""
        self.path.write_text(text)

    def ask(self, *, dry_run: bool = False) -> list[dict[str, Any]]:
        """Begin a reload and return the list for its answer."""
        answers: list[dict[str, Any]] = []
        operations_of(self.reloader)["reload"]({"by": "me", "dry_run": dry_run}, answers.append)
        return answers

    def read(self) -> None:
        """Advance until the new configuration is about to be stored."""

        def reached() -> bool:
            self.file_steps.run()
            self.loop.round(0)
            return bool(self.store.jobs)

        until(reached, "the definitions to be stored")

    def stored(self, answers: list[dict[str, Any]]) -> dict[str, Any]:
        """Continue until the answer arrives, and return it."""

        def answered() -> bool:
            self.file_steps.run()
            self.loop.round(0)
            self.drain()
            return bool(answers)

        until(answered, "the answer")
        return answers[0]

    def reload(self, text: str, *, dry_run: bool = False) -> dict[str, Any]:
        """Edit and reload the configuration, and return the answer."""
        self.write(text)
        return self.stored(self.ask(dry_run=dry_run))

    def done(self, text: str, *, dry_run: bool = False) -> dict[str, Any]:
        """Edit and reload the configuration successfully, and return the report."""
        answer = self.reload(text, dry_run=dry_run)
        assert answer["ok"], answer
        result: dict[str, Any] = answer["result"]
        return result

    def task_row(self, name: str) -> TaskRecord:
        task = get_task(self.store.database, name)
        assert task is not None
        return task

    def tasks(self) -> list[TaskRecord]:
        return all_tasks(self.store.database)

    def instances(self) -> list[StoredInstance]:
        return instances(self.store.database)

    def alive(self, name: str) -> list[LiveRun]:
        return [run for run in self.engine.live.values() if run.unit.name == name]

    def fresh(self, directory: Path) -> "ReloadBench":
        """Start another bench with the same configuration."""
        directory.mkdir()
        return ReloadBench(directory, self.path.read_text())
