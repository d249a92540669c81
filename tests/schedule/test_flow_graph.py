import os
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from supervisor.schedule.flow_graph import TABLE, Decision, Phase, advance, circle, in_order, layers, reachable
from tests.schedule.flow_model import FlowModel

GRAPHS = int(os.environ.get("RANDOM_FLOWS", "300"))
"""Number of random flows; 100,000 take about ten minutes, and need ``-o faulthandler_timeout=0``."""
_D = Decision


class Step(Struct, frozen=True):
    name: str
    after: tuple[str, ...] = ()
    when: str = "success"


class Flow:
    """Plays a flow without runs: steps that begin have the results that a test gives them."""

    def __init__(self, *steps: Step) -> None:
        self.graph = in_order(steps)
        self.decisions: dict[str, Decision | None] = {}
        self.phase = Phase.GOING
        self.end: str | None = None
        self.causes: dict[str, str] = {}
        self.began: list[str] = []
        self.go_on()

    def go_on(self) -> None:
        coming = advance(self.graph, self.decisions, self.phase)
        self.decisions |= dict.fromkeys(coming.begin) | {name: one.decision for name, one in coming.decide.items()}
        self.causes |= {name: decided.cause for name, decided in coming.decide.items()}
        self.began += coming.begin
        self.end = coming.end

    def ends(self, step: str, decision: Decision) -> None:
        assert self.decisions[step] is None
        self.decisions[step] = decision
        self.go_on()


ROWS = {
    _D.FAILED: (_D.FAILED, None, None),
    _D.STOPPED: (_D.STOPPED, _D.PASSED_OVER, None),
    _D.INTERRUPTED: (_D.STOPPED, _D.PASSED_OVER, None),
    _D.PASSED_OVER: (_D.PASSED_OVER, _D.PASSED_OVER, None),
    _D.SUCCEEDED: (None, _D.PASSED_OVER, None),
}


@pytest.mark.parametrize(("before", "when"), list(product(Decision, ("success", "failure", "end"))))
def test_each_cell(before: Decision, when: str) -> None:
    """A step begins, or is decided, as the table says for its only predecessor; one that succeeded changes nothing."""
    expected = ROWS[before][("success", "failure", "end").index(when)]
    flow = Flow(Step("a"), Step("b"), Step("c", ("a", "b"), when))
    flow.ends("b", _D.SUCCEEDED)
    assert "c" not in flow.decisions
    flow.ends("a", before)
    assert flow.decisions["c"] is expected
    assert flow.causes.get("c") == (None if expected is None else "upstream")
    assert TABLE[before, when] is expected


def test_the_table_is_total() -> None:
    """The table has each decision with each value of when."""
    assert set(TABLE) == set(product(Decision, ("success", "failure", "end")))


def test_first_row_that_applies() -> None:
    """Of different predecessors, the one that failed counts first, then a stop, then one that was passed over."""
    for worst, better in (
        (_D.FAILED, _D.STOPPED),
        (_D.STOPPED, _D.PASSED_OVER),
        (_D.INTERRUPTED, _D.PASSED_OVER),
        (_D.PASSED_OVER, _D.SUCCEEDED),
    ):
        flow = Flow(Step("a"), Step("b"), Step("c", ("a", "b")))
        flow.ends("a", better)
        flow.ends("b", worst)
        assert flow.decisions["c"] is ROWS[worst][0]


def test_alarm_behind_a_failed_chain() -> None:
    """A failure passes down the chain, and the alarm behind its end begins; the flow has failed even if it succeeds."""
    flow = Flow(Step("a"), Step("b", ("a",)), Step("c", ("b",)), Step("alarm", ("c",), "failure"))
    flow.ends("a", _D.FAILED)
    assert flow.decisions == {"a": _D.FAILED, "b": _D.FAILED, "c": _D.FAILED, "alarm": None}
    flow.ends("alarm", _D.SUCCEEDED)
    assert flow.end == "failed"


def test_stopped_flow_begins_nothing() -> None:
    """What the table lets begin after the flow was stopped is decided as stopped, also handlers."""
    flow = Flow(Step("a"), Step("b", ("a",), "failure"), Step("c", ("a",), "end"))
    flow.phase = Phase.STOPPED
    flow.ends("a", _D.FAILED)
    assert flow.began == ["a"]
    assert flow.causes == {"b": "flow_stopped", "c": "flow_stopped"}
    assert flow.end == "stopped"


def test_time_limit_leaves_time_for_handlers() -> None:
    """At the limit, success steps without a result fail at once; handlers begin, until their time is over, too."""
    flow = Flow(Step("a"), Step("b", ("a",)), Step("alarm", ("b",), "failure"), Step("last", ("alarm",), "end"))
    flow.phase = Phase.TIMED_OUT
    flow.go_on()
    assert flow.causes == {"a": "timeout", "b": "timeout"}
    assert flow.began == ["a", "alarm"]
    flow.phase = Phase.OVER
    flow.go_on()
    assert flow.causes == dict.fromkeys(("a", "b", "alarm", "last"), "timeout")
    assert flow.end == "timeout"


def test_end_reasons() -> None:
    """An interrupted step counts before one that failed, and that before one that was stopped."""
    for results, end in (
        ((_D.INTERRUPTED, _D.FAILED), "daemon_stopped"),
        ((_D.STOPPED, _D.FAILED), "failed"),
        ((_D.STOPPED, _D.PASSED_OVER), "stopped"),
        ((_D.PASSED_OVER, _D.SUCCEEDED), "succeeded"),
    ):
        flow = Flow(Step("a"), Step("b"))
        flow.ends("a", results[0])
        assert flow.end is None
        flow.ends("b", results[1])
        assert flow.end == end


def test_layers() -> None:
    """A step is one layer behind the last of its predecessors, in the order of the file."""
    steps = [Step("d", ("b", "a")), Step("a"), Step("b", ("a",)), Step("c")]
    assert [[step.name for step in layer] for layer in layers(steps)] == [["a", "c"], ["b"], ["d"]]
    assert reachable(steps, "d") == {"a", "b"}
    assert reachable(steps, "a") == set()


def test_circles() -> None:
    """A circle is shown in the order in which its steps wait; a graph without one has none."""
    assert circle([Step("a"), Step("b", ("a",)), Step("c", ("a", "b"))]) == []
    steps = [Step("x"), Step("a", ("x", "c")), Step("b", ("a",)), Step("c", ("b",)), Step("d", ("c",))]
    found = circle(steps)
    assert sorted(found) == ["a", "b", "c"]
    after = {step.name: step.after for step in steps}
    assert all(before in after[name] for before, name in zip(found, [*found[1:], found[0]], strict=True))
    assert circle([Step("a", ("a",))]) == ["a"]


@st.composite
def flows(draw: st.DrawFn) -> list[Step]:
    names = [f"s{number}" for number in range(draw(st.integers(1, 9)))]
    return [
        Step(
            name,
            tuple(draw(st.lists(st.sampled_from(names[:number]), unique=True, max_size=4))) if number else (),
            draw(st.sampled_from(("success", "success", "failure", "end"))),
        )
        for number, name in enumerate(names)
    ]


@settings(max_examples=GRAPHS, deadline=None)
@given(flows(), st.data())
def test_random_flows(steps: list[Step], data: st.DataObject) -> None:
    """Every random flow, with results in any order, retries, a stop or time limits, is as the model has it."""
    flow = Flow(*data.draw(st.permutations(steps)))
    own: dict[str, str | None] = dict.fromkeys(flow.began)
    retries = data.draw(st.integers(0, 3))
    while flow.end is None:
        _compare(steps, flow, own)
        going = sorted(name for name, decision in flow.decisions.items() if decision is None)
        if flow.phase is Phase.GOING and data.draw(st.integers(0, 9)) == 0:
            own |= {name: decision.value for name, decision in flow.decisions.items() if decision is not None}
            flow.phase = data.draw(st.sampled_from((Phase.STOPPED, Phase.TIMED_OUT, Phase.OVER)))
            flow.go_on()
        else:
            step = data.draw(st.sampled_from(going))
            decision = data.draw(st.sampled_from(Decision))
            if decision is _D.FAILED and retries:
                retries -= 1  # the step goes on with its next attempt
                continue
            own[step] = decision.value
            flow.ends(step, decision)
        own |= {name: None for name in flow.began if name not in own}
    _compare(steps, flow, own)
    assert len(flow.began) == len(set(flow.began))


def _compare(steps: list[Step], flow: Flow, own: dict[str, str | None]) -> None:
    model = FlowModel({step.name: (step.after, step.when) for step in steps}, own, flow.phase.value)
    expected = {name: result for name, result in model.results().items() if result != "waits"}
    got = {name: "goes on" if decision is None else decision.value for name, decision in flow.decisions.items()}
    assert got == expected
    assert flow.end == model.end()
