"""Plays flows on the bench: a store and a root that answer at once, as far as a test lets them."""

import re
from collections.abc import Callable, Collection
from pathlib import Path

from store.runs.flows import get_flow
from store.runs.writes import Run, get_run
from supervisor.config.load import load
from supervisor.scheduler.runs.live_units import LiveRun, Unit
from tests.scheduler.bench import Bench
from tests.scheduler.fake_clock import FakeClock

FAILED = 1 << 8


class FlowBench(Bench):
    """A bench with a clock that the test moves."""

    def __init__(self, directory: Path, text: str) -> None:
        self.clock = FakeClock()
        super().__init__(directory, text, self.clock)

    def begin(self, name: str = "f") -> LiveRun:
        """Start a flow, and the runs of its first steps."""
        run = self.trigger(name)
        self.settle()
        return run

    def settle(self) -> None:
        """Store all changes, and let the root start all runs that were requested."""
        while self.store.jobs or any(message["op"] == "spawn" for message in self.root.sent):
            self.store.work_all()
            for run_id in self.root.take("spawn"):
                self.started(run_id)
            self.root.sent = [message for message in self.root.sent if message["op"] == "stop"]
            self.loop.round(0)

    def run_of(self, step: str, item: str | None = None) -> LiveRun:
        """Return the unfinished run of a step."""
        (run,) = [
            run
            for run in self.engine.live.values()
            if run.place is not None and (run.place.step, run.place.item) == (step, item)
        ]
        return run

    def ends(self, step: str, status: int = 0, cause: str | None = None, item: str | None = None) -> None:
        """Let the process of a step end."""
        self.exited(self.run_of(step, item).id, status=status, cause=cause)
        self.settle()

    def going(self) -> set[str]:
        """Return the steps that have unfinished runs."""
        return {run.place.step for run in self.engine.live.values() if run.place is not None}

    def decisions(self, flow: LiveRun) -> dict[str, str | None]:
        """Return the stored decisions about steps, with their causes; None for one that goes on."""
        found = get_flow(self.store.database, flow.id)
        assert found is not None
        return {
            step.step: step.decision if step.cause is None else f"{step.decision} ({step.cause})" for step in found[1]
        }

    def stored(self, run_id: str) -> Run:
        row = get_run(self.store.database, run_id)
        assert row is not None
        return row

    def end_of(self, flow: LiveRun) -> tuple[str | None, int]:
        """Return end reason and exit code of a flow."""
        row = self.stored(flow.id)
        return row.end_reason, row.exit_code

    def next_scheduler(self, running: Collection[LiveRun] | None = None, *, again: bool = False) -> None:
        """Start the next scheduler; by default, the root has all runs that have started."""
        at_root = self.engine.at_root() if running is None else running
        self.restart(at_root, again=again)
        self.settle()

    def reload(self, text: str) -> None:
        """Apply another configuration, as far as it changes or adds tasks."""
        path = Path(self.settings.config_path)
        path.write_text(text)
        self.config = load(str(path))
        for task in self.config.tasks.values():
            self.units.setdefault(task.name, Unit(task)).redefine(task)

    def pass_ms(self, ms: int) -> None:
        """Let time pass."""
        self.clock.advance_ms(ms)
        self.loop.round(0)
        self.settle()


def flow(*steps: str, keys: str = "", name: str = "f", more: str = "") -> str:
    """Return a configuration with a flow; each step is its name and keys, such as ``b: after = ["a"]``."""
    tables = []
    for step in steps:
        step_name, _, step_keys = step.partition(":")
        lines = "\n".join(re.split("; ?", step_keys.strip()))
        run = "" if "task =" in step_keys or "run =" in step_keys else 'run = "true"\n'
        tables.append(f"[flows.{name}.steps.{step_name}]\n{run}{lines}\n")
    return f"[flows.{name}]\n{keys}\n{''.join(tables)}{more}"


Make = Callable[[str], FlowBench]
"""Makes a bench from the text of a configuration."""
