"""Services under random commands, exits and scheduler deaths: the last command wins."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from store.runs.writes import get_run, unfinished_runs
from store.tasks import get_task, update_task
from supervisor.config.model import Service
from supervisor.ipc.messages import Exited
from supervisor.scheduler.loop.root_connection import RootConnection
from supervisor.scheduler.runs.live_units import Unit
from supervisor.scheduler.services.instance_transitions import State
from supervisor.scheduler.services.rolling_restart import stored_text
from supervisor.scheduler.startup_shutdown.known_runs import KnownRuns
from supervisor.scheduler.startup_shutdown.take_over import TakeOver
from tests.scheduler.bench import Bench
from tests.scheduler.service_bench import send
from tests.support.waiting import until

Make = Callable[[str], Bench]
SERVICE = (
    '[services.s]\nrun = "true"\ninstances = 3\nhealthy_after = "0s"\nrestart_delay = "1ms"\n'
    'restart_max_delay = "1ms"\nrestart_attempts = 1\nfatal_retry = "1ms"\n'
)
STEPS = 120
TERM = 15


class World:
    """A scheduler on the bench, a root that carries out its requests, and clients that send commands."""

    def __init__(self, bench: Bench, seed: int) -> None:
        self.bench = bench
        self.random = random.Random(seed)
        self.lives: dict[str, dict[str, Any]] = {}
        """The root's processes, each with the number of its instance and the cause of its stop."""
        self.exits: dict[str, Exited] = {}
        self.service = cast(Service, bench.units["s"].service)
        self.commands = 0
        self.begin()

    @property
    def unit(self) -> Unit:
        return self.bench.units["s"]

    # The scheduler.

    def begin(self) -> None:
        change = self.bench.committer.change()
        self.bench.controller.take_over(self.unit, change)
        self.bench.committer.commit(change)

    def killed(self) -> None:
        """Drop unstored changes and start the next scheduler from the store and the root."""
        bench = self.bench
        self.hear()
        bench.store.jobs.clear()
        bench.take_up(first=False)
        unit = self.unit
        unit.redefine(self.service)
        count = self.service.instances
        fresh = Unit(self.service).instances[len(unit.instances) :]
        unit.instances = [*unit.instances[:count], *fresh]
        columns = {"stopped": unit.stopped, "rolling": stored_text(unit.rolling)}
        change = bench.committer.change()
        change.write(lambda db: update_task(db, "s", **columns))
        running = {
            run_id: {"run": run_id, "started_at": 1, "cause": life["cause"], "recipe": life["recipe"]}
            for run_id, life in self.lives.items()
        }
        known_runs = KnownRuns(unfinished_runs(bench.store.database), running, list(self.exits.values()), ending=False)
        TakeOver(bench.core, bench.engine, bench.controller, cast(RootConnection, bench.root), bench.units).reconcile(
            known_runs, change
        )
        bench.controller.take_over(unit, change)
        bench.committer.commit(change)

    # The root.

    def hear(self) -> None:
        """Let the root carry out its requests."""
        sent, self.bench.root.sent = self.bench.root.sent, []
        for frame in sent:
            if frame["op"] == "spawn":
                self.spawn(self.bench.root.request(frame))
            elif frame["op"] == "stop" and frame["run"] in self.lives:
                life = self.lives[frame["run"]]
                life["cause"] = life["cause"] or frame["cause"]
            elif frame["op"] == "ack":
                for run_id in frame["runs"]:
                    self.exits.pop(run_id, None)

    def spawn(self, spawn: dict[str, Any]) -> None:
        run_id, index = spawn["run"], int(spawn["env"]["RINGWARD_INSTANCE"])
        if run_id in self.lives or run_id in self.exits:
            return
        assert index not in {life["index"] for life in self.lives.values()}, "two processes of one instance"
        self.lives[run_id] = {"index": index, "cause": None, "recipe": spawn.get("recipe", "")}
        self.bench.started(run_id)

    def end(self, run_id: str) -> None:
        life = self.lives.pop(run_id)
        status = TERM if life["cause"] else self.random.choice((0, 256))
        exited = Exited(run=run_id, status=status, cause=life["cause"], started_at=2, ended_at=1)
        self.exits[run_id] = exited
        change = self.bench.committer.change()
        self.bench.engine.exited(exited, change)
        self.bench.committer.commit(change)

    # Clients and chance.

    def ask(self) -> None:
        operation = self.random.choice(("service_start", "service_stop", "service_restart"))
        self.commands += 1
        send(self.bench, operation, "s", command=str(self.commands), rolling=self.random.random() < 0.5)

    def define(self) -> None:
        """Change the definition, also for the next scheduler."""
        self.service = replace(
            self.service, instances=self.random.randint(1, 4), run=self.random.choice(("true", "false"))
        )
        change = self.bench.committer.change()
        self.bench.controller.replace(self.unit, self.service, change)
        self.bench.committer.commit(change)

    def step(self) -> None:
        chance = self.random.random()
        if chance < 0.3:
            self.hear()
        elif chance < 0.55:
            if self.bench.store.jobs:
                self.bench.store.work()
        elif chance < 0.75:
            if self.lives:
                self.end(self.random.choice(list(self.lives)))
        elif chance < 0.85:
            self.bench.loop.round(0)
        elif chance < 0.93:
            self.ask()
        elif chance < 0.97:
            self.define()
        else:
            self.killed()

    def settle(self) -> bool:
        """Carry out everything that is due; processes end only if they are stopped."""
        self.hear()
        self.bench.store.work_all()
        self.bench.loop.round(0)
        for run_id in [run_id for run_id, life in self.lives.items() if life["cause"]]:
            self.end(run_id)
        expected = State.STOPPED if self.unit.stopped else State.RUNNING
        quiet = not self.bench.store.jobs and not self.bench.root.sent and not self.exits
        return (
            quiet and self.unit.rolling is None and {instance.state for instance in self.unit.instances} == {expected}
        )


@pytest.mark.parametrize("seed", range(40))
def test_last_command_wins(bench: Make, seed: int) -> None:
    """In the end all instances run, or none, as last requested, and no two processes of one instance ever overlap."""
    world = World(bench(SERVICE), seed)
    for _ in range(STEPS):
        world.step()
    until(world.settle, f"quiet: {[instance.state for instance in world.unit.instances]}")
    database = world.bench.store.database
    record = get_task(database, "s")
    assert record is not None
    assert record.stopped == world.unit.stopped
    indexes = sorted(life["index"] for life in world.lives.values())
    assert indexes == ([] if world.unit.stopped else list(range(world.service.instances)))
    assert {run.id for run in unfinished_runs(database)} == set(world.lives)
    for run_id in world.lives:
        assert get_run(database, run_id) is not None
