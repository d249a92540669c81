"""Values that steps write and refer to."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from store.runs.flows import outputs_of
from supervisor.scheduler.flows.step_outputs import MOST_BYTES, parsed
from supervisor.scheduler.runs.live_units import LiveRun
from tests.scheduler.flows.playing import FAILED, FlowBench, Make, flow


def write(harness: FlowBench, step: str, text: str, item: str | None = None) -> LiveRun:
    """Let a step write values."""
    run = harness.run_of(step, item)
    assert run.output_file is not None
    Path(run.output_file).write_text(text)
    return run


def request(harness: FlowBench, step: str) -> dict[str, Any]:
    """Return the spawn request of a step that runs."""
    return harness.root.requests[harness.run_of(step).id]


def test_values_of_earlier_steps(bench: Make) -> None:
    """References in the command and in env have what earlier steps wrote; RINGWARD_INPUTS has all of it."""
    harness = bench(
        flow(
            "a:",
            'b: after = ["a"]; run = ["./b", "${step:a.path}", "x=${step:a.n}", "${step:a.exit_code}", "${flow:id}",'
            ' "${step:a.none:-usual}"]; env = { DAY = "${param:day}" }',
            'c: after = ["b"]',
            keys='params = [{ name = "day", default = "today" }]',
        )
    )
    run = harness.begin()
    first = write(harness, "a", 'path=/tmp/a b\nn:={"k": [1, "é"]}\n')
    harness.ends("a")
    spawn = request(harness, "b")
    assert spawn["argv"] == ["./b", "/tmp/a b", 'x={"k": [1, "é"]}', "0", run.id, "usual"]
    assert spawn["env"]["DAY"] == "today"
    assert (spawn["env"]["RINGWARD_FLOW_ID"], spawn["env"]["RINGWARD_STEP"]) == (run.id, "b")
    inputs = json.loads(Path(spawn["env"]["RINGWARD_INPUTS"]).read_text())
    assert inputs == {"a": {"path": "/tmp/a b", "n": {"k": [1, "é"]}}}
    assert outputs_of(harness.store.database, [first.id]) == {first.id: inputs["a"]}
    harness.next_scheduler()
    write(harness, "b", "out=1\n")
    harness.ends("b")
    inputs = json.loads(Path(request(harness, "c")["env"]["RINGWARD_INPUTS"]).read_text())
    assert inputs == {"a": {"path": "/tmp/a b", "n": {"k": [1, "é"]}}, "b": {"out": "1"}}
    harness.ends("c")
    harness.loop.round(0)
    harness.settle()
    assert not list(Path(harness.settings.runtime_dir).glob(".files/*"))
    assert harness.end_of(run) == ("succeeded", 0)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "${step:a.path} has no value"),
        ("path=-rf\n", "word 2 of its command is a reference whose value begins with a hyphen"),
    ],
)
def test_values_that_do_not_fit(bench: Make, text: str, reason: str) -> None:
    """A missing value, and an option in place of a word, keep a step from starting."""
    harness = bench(flow("a:", 'b: after = ["a"]; run = ["rm", "${step:a.path}"]'))
    harness.begin()
    write(harness, "a", text)
    harness.ends("a")
    assert request(harness, "b")["refusal"] == reason


def test_hyphen_after_the_end_of_options(bench: Make) -> None:
    """After a word --, a value may begin with a hyphen; so may one that is part of a word."""
    harness = bench(flow("a:", 'b: after = ["a"]; run = ["rm", "--", "${step:a.path}", "x${step:a.path}"]'))
    harness.begin()
    write(harness, "a", "path=-rf\n")
    harness.ends("a")
    assert request(harness, "b")["argv"] == ["rm", "--", "-rf", "x-rf"]


def test_parameters_of_a_named_task(bench: Make) -> None:
    """Values go to the parameters of a named task; one that the task refuses is start_failed."""
    more = '[tasks.load]\nrun = "true"\nparams = [{ name = "n", kind = "arg", type = "integer" }]\n'
    harness = bench(flow("a:", 'b: after = ["a"]; task = "load"; params = { n = "${step:a.n}" }', more=more))
    harness.begin()
    write(harness, "a", "n=many\n")
    harness.ends("a")
    assert request(harness, "b")["refusal"].startswith("n must be")


def test_secret_parameter(bench: Make) -> None:
    """A secret parameter of the flow reaches env, masked in the output, and is neither stored nor written by a step."""
    harness = bench(
        flow(
            'a: env = { TOKEN = "${param:token}" }',
            keys='params = [{ name = "token", secret = true, default = "hunter2" }]',
        )
    )
    run = harness.begin()
    first = write(harness, "a", 'told=it is hunter2\nn:=["hunter2"]\nfine=1\n')
    harness.ends("a")
    assert harness.end_of(run) == ("succeeded", 0)
    assert outputs_of(harness.store.database, [first.id]) == {first.id: {"fine": "1"}}


def test_required_output(bench: Make) -> None:
    """A success without a required value has failed."""
    harness = bench(flow('a: output_required = ["path"]'))
    run = harness.begin()
    first = harness.run_of("a")
    harness.ends("a")
    row = harness.stored(first.id)
    assert (row.end_reason, row.cause) == ("failed", "no_output")
    assert harness.end_of(run) == ("failed", 1)


def test_outputs_of_a_task(bench: Make) -> None:
    """A task with outputs = true writes values outside flows, too; another one has no file."""
    harness = bench('[tasks.t]\nrun = "true"\noutputs = true\n[tasks.u]\nrun = "true"\n')
    runs = [harness.trigger(name) for name in ("t", "u")]
    harness.settle()
    assert [run.output_file is None for run in runs] == [False, True]
    Path(runs[0].output_file or "").write_text("a=1")
    harness.exited(runs[0].id)
    harness.settle()
    assert outputs_of(harness.store.database, [runs[0].id]) == {runs[0].id: {"a": "1"}}


@pytest.mark.parametrize("kind", ["link", "other file", "fifo", "gone"])
def test_another_file_in_place_of_the_output(bench: Make, kind: str, tmp_path: Path) -> None:
    """A link, another file or nothing in place of the output file is not read, and blocks nothing."""
    harness = bench(flow("a:"))
    run = harness.begin()
    first = harness.run_of("a")
    path = first.output_file or ""
    (tmp_path / "other").write_text("secret=1\n")
    os.unlink(path)
    if kind == "link":
        os.symlink(tmp_path / "other", path)
    elif kind == "other file":
        os.link(tmp_path / "other", path)
    elif kind == "fifo":
        os.mkfifo(path)
    harness.ends("a")
    assert outputs_of(harness.store.database, [first.id]) == {}
    assert harness.end_of(run) == ("succeeded", 0)


def test_lines_of_outputs() -> None:
    """Lines that are not values, repeated keys and too much text are reported without their content."""
    found = parsed(b'a=1\r\n\nnonsense\nb:={\na=2\nexit_code=3\nc:=NaN\nd:="x"\n\xff=1\n', [])
    assert found.values == {"a": "2", "d": "x"}
    assert len(found.problems) == 6
    assert parsed(b"", ["secret"]).problems == []
    long = parsed(b"a=1\n" + b"b=" + b"x" * MOST_BYTES + b"\nc=3\n", [])
    assert (long.values, len(long.problems)) == ({"a": "1"}, 1)


def test_outputs_of_a_failed_run(bench: Make) -> None:
    """What a failed run wrote is kept, and its exit code can be referred to."""
    harness = bench(
        flow("a:", 'b: after = ["a"]; when = "failure"; run = ["tell", "${step:a.exit_code}", "${step:a.why}"]')
    )
    harness.begin()
    write(harness, "a", "why=disk\n")
    harness.ends("a", FAILED)
    assert request(harness, "b")["argv"] == ["tell", "1", "disk"]


def test_secret_in_the_parameters_of_a_step(bench: Make) -> None:
    """A text for a secret parameter is not stored with the graph; the next scheduler has it from the configuration."""
    more = '[tasks.load]\nrun = "true"\nparams = [{ name = "KEY", kind = "env", secret = true, required = true }]\n'
    harness = bench(flow("a:", 'b: after = ["a"]; task = "load"; params = { KEY = "hunter2" }', more=more))
    harness.begin()
    assert not any("hunter2" in row[0] for row in harness.store.database.rows("SELECT definition FROM definitions"))
    harness.next_scheduler()
    harness.ends("a")
    assert request(harness, "b")["env"]["KEY"] == "hunter2"
    assert harness.stored(harness.run_of("b").id).params == {"KEY": None}
