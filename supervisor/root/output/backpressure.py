"""Which logs cannot keep what their runs print, or make them wait for it."""

from supervisor.root.output.run_log import RunLog

OK, WAITING, DROPPING = "ok", "waiting", "dropping"

_SLOW_AFTER_S = 5.0


class Backpressure:
    """Watches the logs that stall; belongs to the pump thread."""

    def __init__(self) -> None:
        self._stalled: dict[RunLog, float] = {}

    def stalled(self, log: RunLog, now_s: float) -> None:
        """Record that the run's output waits from now on."""
        self._stalled[log] = now_s

    def resumed(self, log: RunLog) -> None:
        """Record that it no longer waits."""
        self._stalled.pop(log, None)

    @property
    def since_s(self) -> dict[RunLog, float]:
        """Return the logs whose runs wait, and since when (monotonic seconds)."""
        return self._stalled

    def due_s(self) -> float | None:
        """Return when to check again, monotonic seconds; None: after an event."""
        if not self._stalled:
            return None
        return min((since_s + _SLOW_AFTER_S for log, since_s in self._stalled.items() if log.state == OK), default=None)

    def slow(self, now_s: float) -> list[RunLog]:
        """Return the logs that have made their runs wait for 5 s."""
        return [log for log, since_s in self._stalled.items() if log.state == OK and now_s - since_s >= _SLOW_AFTER_S]

    def judge(self, log: RunLog, now_s: float) -> tuple[str, str | None] | None:
        """Return a log's state and its reason, if that has changed."""
        since_s = self._stalled.get(log)
        gap = log.writer.gap
        if gap is not None:
            state, reason = DROPPING, gap.reason
        elif since_s is not None and now_s - since_s >= _SLOW_AFTER_S:
            state, reason = WAITING, "its log file accepts no data"
        else:
            state, reason = OK, None
        if state == log.state:
            return None
        log.state = state
        return state, reason
