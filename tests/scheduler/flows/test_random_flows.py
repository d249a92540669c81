"""Random flows on the bench, compared with the model, while schedulers are replaced at any moment."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from store.runs.flows import get_flow, runs_of
from supervisor.scheduler.runs.run_transitions import State
from tests.schedule.flow_model import FlowModel
from tests.scheduler.flows.playing import FlowBench, flow

FLOWS = 40
_ENDS = {"succeeded": (0, None), "failed": (1 << 8, None), "stopped": (15, "stop"), "crashed": None}


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, tuple[tuple[str, ...], str, bool, int]]:
    """Predecessors, when, optional and number of retries by step."""
    names = [f"s{number}" for number in range(draw(st.integers(1, 6)))]
    return {
        name: (
            tuple(draw(st.lists(st.sampled_from(names[:number]), unique=True, max_size=3))) if number else (),
            draw(st.sampled_from(("success", "success", "failure", "end"))),
            draw(st.booleans()),
            draw(st.integers(0, 1)),
        )
        for number, name in enumerate(names)
    }


@settings(max_examples=FLOWS, deadline=None)
@given(graphs(), st.data())
def test_every_flow_is_as_the_model_has_it(
    graph: dict[str, tuple[tuple[str, ...], str, bool, int]], data: st.DataObject
) -> None:
    """Decisions, runs and end are the model's, whatever order, retries, crashes, stops and restarts there are."""
    tables = [
        f"{name}: after = {list(after)}; when = '{when}'; optional = {str(optional).lower()};"
        f" retry_attempts = {retries}; retry_delay = '0s'"
        for name, (after, when, optional, retries) in graph.items()
    ]
    with tempfile.TemporaryDirectory() as directory:
        harness = FlowBench(Path(directory), flow(*tables))
        try:
            _play(harness, graph, data)
        finally:
            harness.close()


def _play(harness: FlowBench, graph: dict[str, tuple[tuple[str, ...], str, bool, int]], data: st.DataObject) -> None:
    run = harness.begin()
    own: dict[str, str | None] = dict.fromkeys(harness.going())
    state = "going"
    attempts = dict.fromkeys(graph, 0)
    while harness.stored(run.id).status != "ended":
        step = data.draw(st.sampled_from(sorted(harness.going())))
        how = data.draw(st.sampled_from(sorted(_ENDS)))
        if data.draw(st.integers(0, 7)) == 0 and state == "going":
            state = "stopped"
            harness.stop(harness.engine.live[run.id])
        if data.draw(st.booleans()):
            harness.settle()
        end = _ENDS[how]
        inner = harness.run_of(step)
        if end is None:
            harness.store.work_all()
            harness.next_scheduler([one for one in harness.engine.at_root() if one.id != inner.id])
        else:
            harness.exited(inner.id, status=end[0], cause=end[1])
            if data.draw(st.booleans()):
                harness.store.work_all()
                harness.next_scheduler()
        harness.pass_ms(0)
        _after, _when, optional, retries = graph[step]
        if how in ("failed", "crashed") and attempts[step] < retries and state == "going":
            attempts[step] += 1
        elif own[step] is None:
            result = "failed" if how == "crashed" else how
            own[step] = "succeeded" if optional and result == "failed" else result
        own |= {name: None for name in harness.going() if name not in own}
    model = FlowModel({name: step[:2] for name, step in graph.items()}, own, state)
    found = get_flow(harness.store.database, run.id)
    assert found is not None
    assert {step.step: step.decision for step in found[1]} == model.results()
    assert harness.end_of(run)[0] == model.end()
    runs = runs_of(harness.store.database, [run.id])
    assert {one.step for one in runs} == {name for name, result in own.items() if result is not None}
    assert len({(one.step, one.retry_attempt) for one in runs}) == len(runs)
    assert not any(one.state is not State.ENDED for one in harness.engine.live.values())
