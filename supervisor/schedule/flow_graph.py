"""The steps of a flow as a graph: which begin, which are decided without a run, and how the flow ends. Pure.

A step is looked at once all steps in its ``after`` are decided. :data:`TABLE` then lets it begin, or decides it.
"""

import enum
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol, TypeVar

from msgspec import Struct


class Decision(enum.Enum):
    """How a step ended, or why it never began."""

    FAILED = "failed"
    STOPPED = "stopped"
    INTERRUPTED = "interrupted"
    PASSED_OVER = "passed_over"
    SUCCEEDED = "succeeded"


class Phase(enum.Enum):
    """What a flow may still begin."""

    GOING = "going"
    STOPPED = "stopped"
    """Nothing."""
    TIMED_OUT = "timed_out"
    """Steps that handle the end of others, for a while."""
    OVER = "over"
    """Nothing: the time of those has passed, too."""


class Node(Protocol):
    """A step as part of a graph."""

    @property
    def name(self) -> str:
        """Its name in the flow."""

    @property
    def after(self) -> Sequence[str]:
        """The names of its predecessors."""

    @property
    def when(self) -> str:
        """``success``, ``failure`` or ``end``: the results of its predecessors with which it begins."""


NodeT = TypeVar("NodeT", bound=Node)
_D = Decision
_WORST_FIRST = (_D.FAILED, _D.STOPPED, _D.INTERRUPTED, _D.PASSED_OVER, _D.SUCCEEDED)
TABLE: dict[tuple[Decision, str], Decision | None] = {
    (_D.FAILED, "success"): _D.FAILED,
    (_D.FAILED, "failure"): None,
    (_D.FAILED, "end"): None,
    (_D.STOPPED, "success"): _D.STOPPED,
    (_D.STOPPED, "failure"): _D.PASSED_OVER,
    (_D.STOPPED, "end"): None,
    (_D.INTERRUPTED, "success"): _D.STOPPED,
    (_D.INTERRUPTED, "failure"): _D.PASSED_OVER,
    (_D.INTERRUPTED, "end"): None,
    (_D.PASSED_OVER, "success"): _D.PASSED_OVER,
    (_D.PASSED_OVER, "failure"): _D.PASSED_OVER,
    (_D.PASSED_OVER, "end"): None,
    (_D.SUCCEEDED, "success"): None,
    (_D.SUCCEEDED, "failure"): _D.PASSED_OVER,
    (_D.SUCCEEDED, "end"): None,
}
"""The decision about a step by the worst decision about its predecessors, and by ``when``; None: it begins."""
UPSTREAM, TIMEOUT, FLOW_STOPPED = "upstream", "timeout", "flow_stopped"
"""Causes of such decisions."""


class Decided(Struct, frozen=True):
    """A decision about a step, and its cause."""

    decision: Decision
    cause: str


class Next(Struct, frozen=True):
    """What follows in a flow."""

    begin: list[str]
    """The steps that begin now."""
    decide: dict[str, Decided]
    """The steps that are decided without a result of their own, by name. Those that had begun are out of time."""
    end: str | None
    """The end reason of the flow; None while a step is open."""


def worst(decisions: Iterable[Decision]) -> Decision:
    """Return the first decision, in the order of :class:`Decision`, that one has; SUCCEEDED if there is none."""
    return min(decisions, key=_WORST_FIRST.index, default=_D.SUCCEEDED)


def advance(graph: Sequence[Node], decisions: Mapping[str, Decision | None], phase: Phase = Phase.GOING) -> Next:
    """Return what follows from the present decisions.

    Args:
        graph: the steps, each behind its predecessors (:func:`in_order`).
        decisions: the decisions by step; None for a step that has begun and is not decided yet.
        phase: what the flow may still begin.
    """
    begin: list[str] = []
    decide: dict[str, Decided] = {}
    known = dict(decisions)
    for node in graph:
        if known.get(node.name) is not None:
            continue
        decided = _decided(node, known, phase)
        if decided is not None:
            decide[node.name] = decided
            known[node.name] = decided.decision
        elif node.name in known:
            continue
        elif all(known.get(name) for name in node.after):
            begin.append(node.name)
            known[node.name] = None
    open_steps = len(known) < len(graph) or None in known.values()
    return Next(begin, decide, None if open_steps else _end_reason(known.values(), phase))


def kept(graph: Sequence[Node], decisions: Mapping[str, Decision | None], repeated: Collection[str] = ()) -> set[str]:
    """Return the steps that another attempt does not repeat: they succeeded, and so did all that led to them.

    Handlers are decided anew, because what they handle may end in another way; so are `repeated` steps, and all behind
    them. For `graph` see :func:`advance`.
    """
    found: set[str] = set()
    for node in graph:
        succeeded = decisions.get(node.name) is _D.SUCCEEDED and node.name not in repeated
        if succeeded and node.when == "success" and found.issuperset(node.after):
            found.add(node.name)
    return found


def _decided(node: Node, known: Mapping[str, Decision | None], phase: Phase) -> Decided | None:
    """Return the decision about a step without a result; None if it goes on, begins or must wait."""
    if phase is Phase.OVER or (phase is Phase.TIMED_OUT and node.when == "success"):
        return Decided(_D.FAILED, TIMEOUT)
    if node.name in known:
        return None
    before = [decision for name in node.after if (decision := known.get(name)) is not None]
    if len(before) < len(node.after):
        return None
    decision = TABLE[worst(before), node.when]
    if decision is not None:
        return Decided(decision, UPSTREAM)
    return Decided(_D.STOPPED, FLOW_STOPPED) if phase is Phase.STOPPED else None


def _end_reason(decisions: Iterable[Decision | None], phase: Phase) -> str:
    """Return the end reason of a flow in which all steps are decided."""
    there = set(decisions)
    if phase is Phase.STOPPED:
        return "stopped"
    if _D.INTERRUPTED in there:
        return "daemon_stopped"
    if phase is not Phase.GOING:
        return "timeout"
    if _D.FAILED in there:
        return "failed"
    return "stopped" if _D.STOPPED in there else "succeeded"


def layers(graph: Iterable[NodeT]) -> list[list[NodeT]]:
    """Return the steps by layer: each is one layer behind the last of its predecessors.

    Steps of a circle (:func:`circle`), and those behind them, are left out.
    """
    found: list[list[NodeT]] = []
    placed: set[str] = set()
    rest = list(graph)
    while layer := [node for node in rest if placed.issuperset(node.after)]:
        found.append(layer)
        placed.update(node.name for node in layer)
        rest = [node for node in rest if node.name not in placed]
    return found


def in_order(graph: Iterable[NodeT]) -> list[NodeT]:
    """Return the steps in an order in which each stands behind its predecessors."""
    return [node for layer in layers(graph) for node in layer]


def circle(graph: Sequence[Node]) -> list[str]:
    """Return steps that wait for each other: each is in ``after`` of the one before, the first also of the last.

    The result is empty if there is no circle. Unknown names in ``after`` are ignored.
    """
    rest = {node.name: node.after for node in graph}
    while free := [name for name, after in rest.items() if rest.keys().isdisjoint(after)]:
        for name in free:
            del rest[name]
    if not rest:
        return []
    path = [next(iter(rest))]
    while (before := next(name for name in rest[path[-1]] if name in rest)) not in path:
        path.append(before)
    return path[path.index(before) :][::-1]


def reachable(graph: Sequence[Node], name: str) -> set[str]:
    """Return the names of all steps before a step, directly or through others."""
    after = {node.name: node.after for node in graph}
    found: set[str] = set()
    rest = [*after[name]]
    while rest:
        before = rest.pop()
        if before not in found:
            found.add(before)
            rest += after.get(before, ())
    return found
