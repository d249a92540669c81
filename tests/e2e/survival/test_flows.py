"""Random flows in the real daemon, while its processes are killed, upgraded and restarted."""

import contextlib
import os
import random
import signal
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from store.database import open_reader
from store.runs.flows import get_flow, runs_of
from store.runs.phases import FAILURES
from store.runs.writes import get_run
from tests.schedule.flow_model import FlowModel
from tests.support.daemon import Daemon
from tests.support.waiting import until

SEED, FLOWS, STEPS = 5, 4, 7
Graph = Mapping[str, tuple[tuple[str, ...], str, bool]]
"""Predecessors, when and optional by step."""


def graph_of(chance: random.Random) -> Graph:
    """Return a random graph, whose chains are long enough to be disturbed."""
    names = [f"s{number}" for number in range(STEPS)]
    return {
        name: (
            tuple(chance.sample(names[max(0, number - 3) : number], min(number, chance.choice((1, 1, 2))))),
            chance.choice(("success", "success", "success", "failure", "end")),
            chance.random() < 0.2,
        )
        for number, name in enumerate(names)
    }


def configuration(graphs: Mapping[str, Graph], sides: Path, chance: random.Random) -> str:
    """Return flows whose steps note each start."""
    tables = []
    for name, graph in graphs.items():
        tables.append(f"[flows.{name}]\nmax_concurrent = 10")
        for step, (after, when, optional) in graph.items():
            note = f"echo $RINGWARD_RUN_ID >> {sides}/$RINGWARD_FLOW_ID.{step}.$RINGWARD_ATTEMPT"
            code = int(chance.random() < 0.15)
            tables.append(
                f"[flows.{name}.steps.{step}]\nafter = {list(after)}\nwhen = '{when}'\n"
                f"optional = {str(optional).lower()}\nretry_attempts = {chance.choice((0, 1))}\nretry_delay = '0s'\n"
                f"run = '{note}; echo at=$RINGWARD_STEP >> $RINGWARD_OUTPUT; sleep 0.3; exit {code}'"
            )
    return "\n".join(tables)


def upgrade(daemon: Daemon) -> None:
    before = daemon.output.read_text().count("upgraded from")
    os.kill(daemon.pid, signal.SIGUSR2)
    until(lambda: daemon.output.read_text().count("upgraded from") > before, "the upgrade")
    until(daemon.ready, "the daemon to be ready after the upgrade")


def kill_scheduler(daemon: Daemon) -> None:
    daemon.kill_helper("ringward scheduler")


def kill_api(daemon: Daemon) -> None:
    daemon.kill_helper("ringward gunicorn")


def kill_root(daemon: Daemon) -> None:
    assert daemon.process is not None
    daemon.process.kill()
    daemon.process.wait()
    daemon.start()


def restart(daemon: Daemon) -> None:
    assert daemon.stop() == 0
    daemon.start()


def test_flows_survive(tmp_path: Path) -> None:
    """No step is lost and none begun twice, and each flow's record is the model's, whatever dies in the middle."""
    chance = random.Random(SEED)
    sides = tmp_path / "sides"
    sides.mkdir()
    graphs = {f"f{number}": graph_of(chance) for number in range(FLOWS)}
    daemon = Daemon(tmp_path)
    daemon.write(configuration(graphs, sides, chance))
    started: dict[str, str] = {}
    try:
        daemon.start()
        for disturb in (kill_scheduler, upgrade, kill_api, kill_root, kill_scheduler, restart):
            started |= {daemon.trigger(name): name for name in graphs}
            disturb(daemon)
        for run_id in started:
            daemon.ended(run_id)
        daemon.stop()
        compare(daemon, sides, {run_id: graphs[name] for run_id, name in started.items()})
    finally:
        daemon.clean()


def compare(daemon: Daemon, sides: Path, flows: Mapping[str, Graph]) -> None:
    """Compare the records of all flows with the model, and with what the steps noted."""
    ends: Counter[str] = Counter()
    with contextlib.closing(open_reader(str(daemon.data / "ringward.db"))) as database:
        for run_id, graph in flows.items():
            own: dict[str, str | None] = {}
            for run in runs_of(database, [run_id]):
                assert run.step is not None
                result = {"daemon_stopped": "interrupted"}.get(run.end_reason or "", run.end_reason)
                if result in FAILURES:
                    result = "succeeded" if graph[run.step][2] else "failed"
                own[run.step] = result
                note = sides / f"{run_id}.{run.step}.{run.retry_attempt}"
                noted = note.read_text().split() if note.exists() else []
                assert len(noted) <= 1, f"{run.step} of {run_id} began twice"
                assert noted == [run.id] or run.end_reason in ("crashed", "daemon_stopped"), (run, noted)
            model = FlowModel({name: step[:2] for name, step in graph.items()}, own, "going")
            found, flow_run = get_flow(database, run_id), get_run(database, run_id)
            assert found is not None
            assert flow_run is not None
            assert {step.step: step.decision for step in found[1]} == model.results(), run_id
            assert flow_run.end_reason == model.end()
            ends[flow_run.end_reason or ""] += 1
    assert ends["succeeded"] >= 1
    assert len(ends) >= 2
