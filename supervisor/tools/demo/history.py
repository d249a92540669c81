"""Makes up the runs of a year, which are always the same for the same present time."""

import math
import random
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from itertools import takewhile
from zoneinfo import ZoneInfo

from store.runs.ids import new_ulid
from store.runs.writes import Run
from supervisor.schedule.cron import Cron
from supervisor.tools.demo.sample_tasks import BACKUP, CRM, DEMO_TASKS, INDEX, DemoTask

OUTAGE_MS = 312_000
"""The time for which a service was down after a failure."""
DAYS = 365
LONG_LINES = 100_000
"""The number of lines in the newest log of the search index."""
_DAY_MS = 86_400_000
_RETRY_MS = 120_000
_NEVER_STARTED = ("missed", "skipped", "start_failed")
_SIGTERM = 15
_TUESDAY = 2
_OUTAGE_DAYS = range(118, 121)
"""How many days ago the marketplaces could not be reached."""
_ASLEEP_DAYS = range(203, 205)
"""How many days ago the host was switched off."""


def disk_full_day(now: datetime) -> date:
    """Return the day of the backup that failed, which is the last Tuesday before today."""
    return now.date() - timedelta(days=(now.isoweekday() - _TUESDAY - 1) % 7 + 1)


class DemoHistory:
    """Runs of tasks, and of services that were restarted from time to time.

    Args:
        now_ms: The present time in ms since the epoch, before which all runs have ended.
        zone: The time zone of the schedules.
    """

    def __init__(self, now_ms: int, zone: ZoneInfo) -> None:
        self._now_ms = now_ms
        self._now = datetime.fromtimestamp(now_ms / 1000, zone)
        self._zone = zone
        self._random = random.Random(2417)  # noqa: S311 - nothing secret
        self._full = disk_full_day(self._now)

    def runs(self) -> list[Run]:
        """Return all runs in the order of their creation, which is also the order of their ids."""
        made = [run for task in DEMO_TASKS for run in self._runs_of(task)]
        made += self._service_runs()
        made.sort(key=lambda run: run.created_at)
        long = max(at for at, run in enumerate(made) if run.task_name == INDEX and run.started_at)
        made[long] = made[long]._replace(lines=LONG_LINES)
        ids = {run.id: new_ulid(run.created_at) for run in made}
        return [
            run._replace(id=ids[run.id], retry_of_run_id=run.retry_of_run_id and ids[run.retry_of_run_id])
            for run in made
        ]

    def _runs_of(self, task: DemoTask) -> Iterator[Run]:
        first_day = datetime.combine(self._now.date() - timedelta(days=DAYS), time.min, self._zone)
        occurrences = Cron(task.cron, self._zone).occurrences(int(first_day.timestamp()) * 1000 - 1)
        instants = [
            each.at for each in takewhile(lambda each: each.at < self._now_ms - 60_000, occurrences) if each.runs
        ]
        last = 0
        for number, instant in enumerate(instants):
            ago = (self._now_ms - instant) / _DAY_MS
            day = datetime.fromtimestamp(instant / 1000, self._zone).date()
            reason = self._reason(task, int(ago), day, last=number >= len(instants) - 2)
            before = None
            attempts = range(task.retries + 1)
            for attempt in attempts:
                # Most retries succeed, but not while the disk is full.
                if attempt and day != self._full and self._random.random() < 0.8:
                    reason = "succeeded"
                run = self._run(task, instant if attempt == 0 else last + _RETRY_MS, instant, attempt, reason, ago)
                if run.ended_at is not None and run.ended_at >= self._now_ms:
                    break
                last = run.ended_at or run.created_at
                yield run._replace(retry_of_run_id=before)
                before = run.id
                if reason not in ("failed", "timeout"):
                    break

    def _reason(self, task: DemoTask, ago: int, day: date, *, last: bool) -> str:
        if task.name == BACKUP and day == self._full:
            return "failed"
        if task.name == CRM and last:
            return "failed"
        if ago in _ASLEEP_DAYS:
            return "missed"
        if task.name == "import-orders" and ago in _OUTAGE_DAYS:
            return "timeout" if self._random.random() < 0.3 else "failed"
        dice = self._random.random()
        if dice < task.failing:
            return "timeout" if task.timeout_s and dice < task.failing / 3 else "failed"
        if dice > 0.9985:
            return self._random.choice(("skipped", "stopped", "crashed", "start_failed"))
        # About two months ago, tasks failed more often, as if they had been repaired since.
        return "failed" if 60 < ago < 75 and self._random.random() < task.failing * 6 else "succeeded"

    def _run(self, task: DemoTask, created: int, instant: int, attempt: int, reason: str, ago: float) -> Run:
        rnd = self._random
        took = task.took_s * task.growth ** (-ago / DAYS) * math.exp(rnd.gauss(0, 0.13))
        lines = max(3, int(task.lines * rnd.uniform(0.9, 1.1)))
        code, signal = {"succeeded": (0, None), "failed": (1, None), "crashed": (-2, None)}.get(reason, (-1, None))
        if reason == "failed":
            took *= rnd.uniform(0.1, 0.9)
        if reason in ("timeout", "stopped"):
            took = float(task.timeout_s or 300) if reason == "timeout" else took * 0.4
            code, signal = 128 + _SIGTERM, _SIGTERM
        started = None if reason in _NEVER_STARTED else created + rnd.randrange(3, 40)
        cpu_us = int(took * rnd.uniform(0.2, 0.7) * 1_000_000)
        return Run(
            id=f"{task.name} {instant} {attempt}",
            task_name=task.name,
            kind="task",
            status="ended",
            end_reason=reason,
            exit_code=code,
            instance_index=0,
            retry_attempt=attempt,
            retry_of_run_id=None,
            triggered_by="cron",
            created_at=created,
            started_at=started,
            ended_at=None if started is None else started + int(took * 1000),
            scheduled_at=instant,
            signal=signal,
            stopped_by="user anna" if reason == "stopped" else None,
            lines=0 if started is None else lines,
            user_us=None if started is None else cpu_us,
            system_us=None if started is None else cpu_us // 6,
            max_rss_bytes=None if started is None else int(rnd.uniform(18, 240) * 1_048_576),
            missed_count=1 if reason == "missed" else None,
        )

    def _service_runs(self) -> Iterator[Run]:
        """Yield the runs of services, each several weeks long. A few failed, and the last ones ended just now."""
        for name, instances in (("web", 1), ("worker", 3), ("cache", 1)):
            for index in range(instances):
                at = self._now_ms - DAYS * _DAY_MS
                while at < self._now_ms - _DAY_MS:
                    end = min(at + int(self._random.uniform(9, 31) * _DAY_MS), self._now_ms - 60_000)
                    # The demo writes no logs for services, so a recent failure would have no visible cause.
                    failed = self._random.random() < 0.1 and end < self._now_ms - 10 * _DAY_MS
                    yield Run(
                        id=f"{name} {index} {at}",
                        task_name=name,
                        kind="service",
                        status="ended",
                        end_reason="failed" if failed else "daemon_stopped",
                        exit_code=1 if failed else 0,
                        instance_index=index,
                        retry_attempt=0,
                        retry_of_run_id=None,
                        triggered_by="service",
                        created_at=at,
                        started_at=at + 4,
                        ended_at=end,
                    )
                    at = end + (OUTAGE_MS if failed else 2000)


def moment(ms: int) -> str:
    """Format a time for a log line."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
