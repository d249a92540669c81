"""Steps with ``each``: a run for each item."""

import json
from pathlib import Path

import pytest

from tests.scheduler.flows.playing import FAILED, FlowBench, Make, flow


def items(harness: FlowBench) -> set[str | None]:
    """Return the items that have unfinished runs."""
    return {run.place.item for run in harness.engine.live.values() if run.place is not None}


def split(harness: FlowBench, files: list[str]) -> None:
    """Let the step `split` write a list."""
    Path(harness.run_of("split").output_file or "").write_text(f"files:={json.dumps(files)}\n")
    harness.ends("split")


FILES = (
    "split:",
    'work: after = ["split"]; each = { file = "${step:split.files}" }; run = ["work", "${each:file}"]',
    'join: after = ["work"]; run = ["join", "${step:work.sum}"]',
)


def test_a_run_for_each_combination(bench: Make) -> None:
    """A step has a run for each combination; the step behind gets their values as a list, in the order of the items."""
    harness = bench(
        flow(
            'clean: each = { region = ["eu", "us"], size = ["s", "l"] };'
            ' run = ["clean", "${each:region}", "${each:size}"]',
            'sum: after = ["clean"]; run = ["sum", "${step:clean.n}"]',
        )
    )
    run = harness.begin()
    assert items(harness) == {"eu,s", "eu,l", "us,s", "us,l"}
    assert harness.root.requests[harness.run_of("clean", "us,s").id]["argv"] == ["clean", "us", "s"]
    for number, item in enumerate(("us,l", "eu,s", "eu,l", "us,s")):
        Path(harness.run_of("clean", item).output_file or "").write_text(f"n:={number}\n")
        harness.ends("clean", item=item)
    request = harness.root.requests[harness.run_of("sum").id]
    assert request["argv"] == ["sum", "[1, 2, 3, 0]"]
    inputs = json.loads(Path(request["env"]["RINGWARD_INPUTS"]).read_text())
    assert inputs["clean"][0] == {"item": "eu,s", "outputs": {"n": 1}}
    harness.ends("sum")
    assert harness.end_of(run) == ("succeeded", 0)


def test_items_that_a_step_wrote(bench: Make) -> None:
    """The list can come from an earlier step; the items are fixed when the step begins, also over a restart."""
    harness = bench(flow(*FILES))
    run = harness.begin()
    split(harness, ["a.csv", "b.csv", "a.csv"])
    assert items(harness) == {"a.csv", "b.csv", "a.csv#2"}
    harness.ends("work", item="b.csv")
    harness.next_scheduler()
    assert items(harness) == {"a.csv", "a.csv#2"}
    Path(harness.run_of("work", "a.csv").output_file or "").write_text("sum=7\n")
    harness.ends("work", item="a.csv")
    harness.ends("work", item="a.csv#2")
    assert harness.root.requests[harness.run_of("join").id]["argv"] == ["join", '["7", null, null]']
    harness.ends("join")
    assert harness.end_of(run) == ("succeeded", 0)


def test_empty_list(bench: Make) -> None:
    """A step with an empty list has succeeded without a run."""
    harness = bench(flow("split:", FILES[1], 'next: after = ["work"]'))
    run = harness.begin()
    split(harness, [])
    assert harness.going() == {"next"}
    harness.ends("next")
    assert harness.decisions(run)["work"] == "succeeded"
    assert harness.end_of(run) == ("succeeded", 0)


@pytest.mark.parametrize(
    "text", ["", 'files:="a"\n', "files:=[1]\n", f"files:={json.dumps(list(map(str, range(257))))}\n"]
)
def test_wrong_list(bench: Make, text: str) -> None:
    """A missing list, one that is no list of texts, and one of more than 256 make the step fail."""
    harness = bench(flow(*FILES))
    run = harness.begin()
    Path(harness.run_of("split").output_file or "").write_text(text)
    harness.ends("split")
    assert harness.decisions(run)["work"] == "failed (missing_value)"
    assert harness.end_of(run) == ("failed", 1)


def test_255_of_256_items(bench: Make) -> None:
    """One failed item of 256 fails the step."""
    harness = bench(flow(*FILES))
    run = harness.begin()
    split(harness, list(map(str, range(256))))
    for number in range(256):
        harness.exited(harness.run_of("work", str(number)).id, status=FAILED if number == 9 else 0)
    harness.settle()
    assert harness.end_of(run) == ("failed", 1)


def test_some_at_a_time(bench: Make) -> None:
    """each_max limits the runs at a time, also over a restart, and while one is tried again."""
    harness = bench(
        flow(
            'a: each = { x = ["1", "2", "3"] }; each_max = 2; run = ["a", "${each:x}"];'
            ' retry_attempts = 1; retry_delay = "1s"'
        )
    )
    run = harness.begin()
    assert items(harness) == {"1", "2"}
    harness.ends("a", FAILED, item="1")
    harness.next_scheduler()
    assert items(harness) == {"1", "2"}
    harness.ends("a", item="2")
    assert items(harness) == {"1", "3"}
    harness.pass_ms(1000)
    harness.ends("a", item="1")
    harness.ends("a", item="3")
    assert harness.end_of(run) == ("succeeded", 0)


def test_fail_fast(bench: Make) -> None:
    """With fail_fast, the first failure stops the others, and begins no more."""
    harness = bench(flow('a: each = { x = ["1", "2", "3"] }; each_max = 2; fail_fast = true; run = ["a", "${each:x}"]'))
    run = harness.begin()
    other = harness.run_of("a", "2")
    harness.ends("a", FAILED, item="1")
    assert harness.root.take("stop") == [other.id]
    harness.ends("a", 15, "stop", item="2")
    assert harness.end_of(run) == ("failed", 1)
    assert not harness.engine.live


def test_attempt_repeats_items_that_did_not_succeed(bench: Make) -> None:
    """Another attempt of the flow repeats only the items that did not succeed, and keeps the values of the others."""
    harness = bench(flow(*FILES, keys='retry_attempts = 1\nretry_delay = "1s"'))
    harness.begin()
    split(harness, ["a", "b"])
    Path(harness.run_of("work", "a").output_file or "").write_text("sum=1\n")
    harness.ends("work", item="a")
    harness.ends("work", FAILED, item="b")
    harness.pass_ms(1000)
    (second,) = harness.units["f"].active.values()
    assert items(harness) == {"b"}
    harness.next_scheduler()
    Path(harness.run_of("work", "b").output_file or "").write_text("sum=2\n")
    harness.ends("work", item="b")
    assert harness.root.requests[harness.run_of("join").id]["argv"] == ["join", '["1", "2"]']
    harness.ends("join")
    assert harness.end_of(second) == ("succeeded", 0)


def test_stop_of_a_flow_with_items(bench: Make) -> None:
    """A stop of the flow ends the step once its runs have; no more items begin."""
    harness = bench(flow('a: each = { x = ["1", "2"] }; each_max = 1; run = ["a", "${each:x}"]'))
    run = harness.begin()
    harness.stop(run)
    harness.ends("a", item="1")
    assert harness.decisions(run) == {"a": "stopped"}
    assert harness.end_of(run)[0] == "stopped"
