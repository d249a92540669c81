"""Values of parameters: validation, passing to the command, and storage of secrets."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given as hypothesis_given
from hypothesis import strategies as st

from store.errors import DiskFull
from store.runs.ids import new_ulid
from supervisor.config.load import load
from supervisor.config.model import Task
from supervisor.config.value_records import Param
from supervisor.scheduler.control.run_operations import RunOperations
from supervisor.scheduler.loop.root_connection import RootConnection
from supervisor.scheduler.runs.private_data import PrivateData
from supervisor.scheduler.runs.run_parameters import (
    NOTHING,
    InvalidParameter,
    InvalidParameters,
    ParameterValues,
    accept_again,
    command_parameters,
    complete_values,
    stored_values,
)
from supervisor.scheduler.runs.spawn_requests import spawn_of
from supervisor.scheduler.startup_shutdown.known_runs import read
from supervisor.scheduler.startup_shutdown.take_over import TakeOver
from tests.scheduler.bench import Bench
from tests.scheduler.control.operations import operations_of

pytest.importorskip("re2", reason="needs google-re2")
SECRET = "correct-horse"
PARAMS = """
[tasks.t]
run = "x"
params = [
  { name = "A", kind = "env", default = "a" },
  { name = "n", kind = "arg", type = "integer" },
  { name = "x", kind = "arg", type = "number" },
  { name = "b", kind = "option", type = "boolean" },
  { name = "f", kind = "flag" },
  { name = "p", kind = "option", pattern = "(a+)+b" },
  { name = "TOKEN", kind = "env", secret = true },
]
"""
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=50)


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Task:
    path = tmp_path_factory.mktemp("config") / "ringward.toml"
    path.write_text(PARAMS)
    path.chmod(0o600)
    return load(str(path)).tasks["t"]


def wrong_of(call: Callable[[], Any]) -> dict[str, str]:
    with pytest.raises(InvalidParameters) as caught:
        call()
    return dict(caught.value.wrong)


def test_valid_values(task: Task) -> None:
    """Values are normalized for the command and completed with defaults; secrets are separate from shown values."""
    accepted = complete_values(task, {"n": "-007", "x": "1.50", "b": "1", "f": "true", "p": "aab", "TOKEN": SECRET})
    assert accepted.shown == {"A": "a", "n": "-7", "x": "1.50", "b": "true", "f": "true", "p": "aab"}
    assert accepted.secret == {"TOKEN": SECRET}
    assert accepted.record == {**accepted.shown, "TOKEN": None}
    assert SECRET not in repr(accepted)
    passed = command_parameters(task, accepted)
    assert passed.arguments == ["-7", "1.50", "--b=true", "--f", "--p=aab"]
    assert (passed.env, passed.secrets) == ({"A": "a", "TOKEN": SECRET}, ["TOKEN"])


def test_argument_positions(task: Task) -> None:
    """An argument without a value is empty before another one, and omitted at the end."""
    assert command_parameters(task, complete_values(task, {"x": "1"})).arguments == ["", "1"]
    assert command_parameters(task, complete_values(task, {"n": "1", "f": "false"})).arguments == ["1"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", "1.0"), ("n", "\u0661"), ("n", "1\n"), ("n", ""), ("n", "9" * 19), ("x", "nan"), ("x", "1e5"), ("x", "."),
        ("b", "yes"), ("f", ""), ("p", "aab\n"), ("p", "xaab"), ("p", "a" * 60_000), ("A", "\0"), ("A", "x" * 65_537),
        ("A", "é" * 40_000), ("TOKEN", "short"), ("TOKEN", ""), ("TOKEN", "x" * 9000), ("a", "x"), ("", "x"),
    ],
)  # fmt: skip
def test_invalid_values(task: Task, name: str, value: str) -> None:
    """An invalid value is reported by name, a secret is not repeated, and matching a pattern takes linear time."""
    wrong = wrong_of(lambda: complete_values(task, {name: value}))
    assert list(wrong) == [name]
    assert len(wrong[name]) < 200


def test_refusal_is_short(task: Task) -> None:
    """Errors about unknown parameters are short, however many values a request has."""
    choices = tuple(f"one of very many choices, number {n}" for n in range(1000))
    large = replace(task, params=tuple(Param(name=f"p{n}", kind="option", choices=choices) for n in range(100)))
    values = {f"{kind}{n}": "one of very many choices" for kind in "pq" for n in range(50)}
    wrong = wrong_of(lambda: complete_values(large, values))
    assert (wrong.keys(), max(map(len, wrong.values())) < 200) == (values.keys(), True)


def test_total_size_limit(task: Task) -> None:
    """The values of a run have at most 64 KiB together."""
    assert complete_values(task, {"A": "x" * 65_000})
    assert set(wrong_of(lambda: complete_values(task, {"A": "x" * 65_000, "TOKEN": "secret 1\n" * 100}))) == {
        "A",
        "TOKEN",
    }


@hypothesis_given(
    values=st.fixed_dictionaries({}, optional={"A": TEXT, "p": TEXT, "f": TEXT, "n": TEXT, "other": TEXT})
)
def test_any_values(task: Task, values: dict[str, str]) -> None:
    """A value is rejected by name or reaches the command unchanged; stored values are accepted again unchanged."""
    refused: Sequence[InvalidParameter] = ()
    try:
        accepted = complete_values(task, values)
    except InvalidParameters as err:
        refused = err.wrong
    if refused:
        assert {param.name for param in refused} <= values.keys()
        return
    passed = command_parameters(task, accepted)
    assert passed.env["A"] == values.get("A", "a")
    assert len(passed.arguments) == sum(name in values for name in ("p", "n")) + (accepted.shown.get("f") == "true")
    assert accept_again(task, stored_values(json.loads(json.dumps(accepted.record)), {})) == accepted


def test_lost_secrets(task: Task) -> None:
    """A lost secret is never replaced, even if its parameter no longer exists."""
    stored = {"A": "x", "TOKEN": None, "old": None}
    assert stored_values(None, {}) is NOTHING
    assert stored_values(stored, {"TOKEN": SECRET}) == ParameterValues(
        {"A": "x"}, {"TOKEN": SECRET}, frozenset({"old"})
    )
    assert set(wrong_of(lambda: accept_again(task, stored_values(stored, {})))) == {"TOKEN", "old"}
    assert set(wrong_of(lambda: command_parameters(task, stored_values(stored, {})))) == {"TOKEN", "old"}


# In the scheduler.


def kept_secrets(harness: Bench) -> dict[str, Any]:
    folder = Path(harness.settings.data_dir, "secrets")
    return {path.name: json.loads(path.read_text()) for path in folder.iterdir()} if folder.exists() else {}


def triggered(harness: Bench, **params: str) -> tuple[str, dict[str, Any]]:
    """Trigger by a command; return the run's id and the answer."""
    answers: list[dict[str, Any]] = []
    run_id = new_ulid()
    arguments = {"task": "t", "run": run_id, "triggered_by": "api", "by": "me", "params": params}
    operations_of(RunOperations(harness.core, harness.engine, harness.units, {}))["trigger"](arguments, answers.append)
    harness.loop.round(0)
    harness.store.work_all()
    return run_id, answers[-1] if answers else {}


def finish(harness: Bench) -> None:
    """Run the loop and the store until nothing is left to do."""
    harness.loop.round(0)
    while harness.store.jobs:
        harness.store.work_all()
        harness.loop.round(0)


def test_lifetime_of_secrets(bench: Callable[[str], Bench]) -> None:
    """A secret is kept from before the run is stored until it has ended; a retry has its own copy."""
    harness = bench(PARAMS.replace('run = "x"', 'run = "x"\nretry_attempts = 1\nretry_delay = "0s"'))
    run_id, answer = triggered(harness, TOKEN=SECRET)
    assert (answer["ok"], kept_secrets(harness)) == (True, {run_id: {"TOKEN": SECRET}})
    assert SECRET not in json.dumps(answer)
    harness.started(run_id)
    harness.exited(run_id, status=256)
    finish(harness)
    (again,) = kept_secrets(harness)
    assert again != run_id
    assert harness.engine.live[again].params.secret == {"TOKEN": SECRET}
    harness.stop(harness.engine.live[again])
    finish(harness)
    harness.exited(again, cause="stop")
    finish(harness)
    assert kept_secrets(harness) == {}


def test_unstored_run_leaves_no_secret(bench: Callable[[str], Bench]) -> None:
    """If the run cannot be stored, the request fails and no secret stays."""
    harness = bench(PARAMS)
    answers: list[dict[str, Any]] = []
    run_id = new_ulid()
    arguments = {"task": "t", "run": run_id, "triggered_by": "api", "by": "me", "params": {"TOKEN": SECRET}}
    operations_of(RunOperations(harness.core, harness.engine, harness.units, {}))["trigger"](arguments, answers.append)
    harness.loop.round(0)
    PrivateData(harness.settings).secrets.keep(run_id, {"TOKEN": SECRET})  # the store had written this before it failed
    harness.store.fail(DiskFull("full"))
    finish(harness)
    assert (answers[0]["status"], kept_secrets(harness)) == (503, {})


def test_failing_secret_storage(bench: Callable[[str], Bench]) -> None:
    """If secrets cannot be stored, a trigger fails, and a retry continues with the values in memory."""
    harness = bench(PARAMS.replace('run = "x"', 'run = "x"\nretry_attempts = 1\nretry_delay = "0s"'))
    run_id, _ = triggered(harness, TOKEN=SECRET)
    harness.started(run_id)
    folder = Path(harness.settings.data_dir, "secrets")
    folder.rename(folder.with_name("away"))
    folder.write_text("")  # not a directory, so nothing can be created or removed in it
    harness.exited(run_id, status=256)
    finish(harness)
    (again,) = harness.engine.live.values()
    assert (again.retry_of, again.params.secret) == (run_id, {"TOKEN": SECRET})
    assert harness.row(again).params == {"A": "a", "TOKEN": None}
    answers: list[dict[str, Any]] = []
    arguments = {"task": "t", "run": new_ulid(), "triggered_by": "api", "by": "me", "params": {"TOKEN": SECRET}}
    operations_of(RunOperations(harness.core, harness.engine, harness.units, {}))["trigger"](arguments, answers.append)
    harness.loop.round(0)
    finish(harness)
    assert (answers[0]["status"], list(harness.engine.live)) == (503, [again.id])


def test_scheduler_restart(bench: Callable[[str], Bench]) -> None:
    """A waiting run keeps its secrets, files without a run are removed, and a run without its secret fails."""
    harness = bench(PARAMS + "max_concurrent = 1\n")
    _first, second, third = (triggered(harness, TOKEN=SECRET, A=name)[0] for name in "xyz")
    PrivateData(harness.settings).secrets.forget(third)
    PrivateData(harness.settings).secrets.keep(new_ulid(), {"TOKEN": SECRET})
    Path(harness.settings.data_dir, "secrets", f"{second}.new").write_text("half")
    harness.take_up(first=False)
    known_runs = read(harness.store.database, {"instances": [], "exits": [], "ending": False, "cgroups": None})
    change = harness.committer.change()
    TakeOver(
        harness.core, harness.engine, harness.controller, cast(RootConnection, harness.root), harness.units
    ).reconcile(known_runs, change)
    harness.committer.commit(change)
    finish(harness)
    assert second in kept_secrets(harness)
    assert not {third, f"{second}.new"} & kept_secrets(harness).keys()
    assert harness.engine.live[second].params == ParameterValues({"A": "y"}, {"TOKEN": SECRET})
    refusal = spawn_of(harness.engine.live[third], "D", "log").refusal
    assert refusal == "invalid parameters: TOKEN is secret, and its value is no longer kept"


def test_changed_definition(bench: Callable[[str], Bench]) -> None:
    """A waiting run is checked against the new definition when it starts, and takes its new defaults."""
    harness = bench(PARAMS)
    unit = harness.units["t"]
    assert unit.task is not None
    run_id, _ = triggered(harness, n="1")
    run = harness.engine.live[run_id]
    spawn = spawn_of(run, "D", "log")
    assert (spawn.argv, spawn.refusal) == (["/bin/sh", "-e", "-c", "x", "/bin/sh", "1"], None)
    other = load_task(harness, 'params = [{ name = "A", kind = "env" }, { name = "n", kind = "arg", choices = ["2"] }]')
    run.definition = other
    assert spawn_of(run, "D", "log").refusal == 'invalid parameters: n must be "2"'
    run.definition = load_task(
        harness,
        'params = [{ name = "A", kind = "option" }, { name = "n", kind = "env" }, '
        '{ name = "N", kind = "env", default = 3 }]',
    )
    spawn = spawn_of(run, "D", "log")
    assert (spawn.argv[-1], spawn.env["n"], spawn.env["N"]) == ("--A=a", "1", "3")


def load_task(harness: Bench, keys: str) -> Task:
    path = Path(harness.settings.data_dir, "other.toml")
    path.write_text(f'[tasks.t]\nrun = "x"\n{keys}\n')
    path.chmod(0o600)
    return load(str(path)).tasks["t"]
