"""A second account of flows, written from the rules and not from the code, to compare with."""

from collections.abc import Mapping

Steps = Mapping[str, tuple[tuple[str, ...], str]]
"""Predecessors and ``when`` by step."""


class FlowModel:
    """What is known about a flow: the results of steps that ended, and what follows from them."""

    def __init__(self, steps: Steps, begun: Mapping[str, str | None], state: str) -> None:
        """`begun` has the results of the steps that began, None if they go on; `state` is that of the flow."""
        self.steps, self.begun, self.state = steps, begun, state
        self.known: dict[str, str] = {}

    def result(self, step: str) -> str:
        """Return a result, ``goes on``, ``begins`` or ``waits``."""
        if step not in self.known:
            self.known[step] = self.begun.get(step) or self._without_a_result(step)
        return self.known[step]

    def _without_a_result(self, step: str) -> str:
        after, when = self.steps[step]
        if self.state == "over" or (self.state == "timed_out" and when == "success"):
            return "failed"
        if step in self.begun:
            return "goes on"
        before = {self.result(name) for name in after}
        if before & {"goes on", "begins", "waits"}:
            return "waits"
        begins = "stopped" if self.state == "stopped" else "begins"
        if when == "end":
            return begins
        if when == "failure":
            return begins if "failed" in before else "passed_over"
        if "failed" in before:
            return "failed"
        if before & {"stopped", "interrupted"}:
            return "stopped"
        return "passed_over" if "passed_over" in before else begins

    def results(self) -> dict[str, str]:
        """Return the results of all steps."""
        return {step: self.result(step) for step in self.steps}

    def end(self) -> str | None:
        """Return the end reason of the flow; None while it goes on."""
        results = set(self.results().values())
        if results & {"goes on", "begins", "waits"}:
            return None
        if self.state == "stopped":
            return "stopped"
        if "interrupted" in results:
            return "daemon_stopped"
        if self.state in ("timed_out", "over"):
            return "timeout"
        return next((reason for reason in ("failed", "stopped") if reason in results), "succeeded")
