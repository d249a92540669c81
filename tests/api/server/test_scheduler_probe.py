"""How often the scheduler is asked for its report."""

from typing import Any, cast

from api.worker_context import Context, SchedulerProbe
from supervisor.ipc.control_client import Unavailable


class Control:
    """A scheduler that answers with its reports in order. None: it does not answer."""

    def __init__(self, *reports: dict[str, Any] | None) -> None:
        self._reports = list(reports)
        self.control = self

    def call(self, _operation: str) -> dict[str, Any]:
        report = self._reports.pop(0)
        if report is None:
            raise Unavailable("not yet")
        return report


def test_unready_scheduler_is_asked_again_soon() -> None:
    """A report is kept for a second, but only for 50 ms if the scheduler does not answer or cannot store yet."""
    now_s = 100.0
    probe = SchedulerProbe(lambda: now_s)
    starting, failing = {"storing": True, "ready": False}, {"storing": False}
    context = cast(Context, Control(None, starting, failing, {"storing": True, "pid": 1}, {"storing": True, "pid": 2}))
    for report in (None, starting, failing):
        assert probe.info(context) == report
        now_s += 0.04
        assert probe.info(context) == report
        now_s += 0.02
    first = probe.info(context)
    assert first == {"storing": True, "pid": 1}
    now_s += 0.9
    assert probe.info(context) == first
    now_s += 0.2
    assert probe.info(context) == {"storing": True, "pid": 2}
