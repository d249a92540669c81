"""The tasks of the demo, and the parameters of their made-up history."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime
from zoneinfo import ZoneInfo


@dataclass(frozen=True)
class DemoTask:
    """A task whose schedule consists of hours, so that its times need no cron parser.

    Attributes:
        hours: The hours of the day at which it runs.
        weekday: The only day of the week on which it runs, with 1 for Monday; None: every day.
        day: The only day of the month on which it runs; None: every day.
        took_s: The duration of a run today.
        growth: The duration of a run today as a multiple of that a year ago.
        failing: The proportion of runs that fail.
        retries: The number of retries.
        timeout_s: The time limit of a run; None: no limit.
        lines: The approximate number of lines in the log of a run.
    """

    name: str
    group: str
    description: str
    minute: int
    hours: tuple[int, ...]
    took_s: float
    weekday: int | None = None
    day: int | None = None
    growth: float = 1.2
    failing: float = 0.01
    retries: int = 0
    timeout_s: int | None = None
    lines: int = 40

    @property
    def cron(self) -> str:
        """Return the schedule as a cron expression."""
        hours = ",".join(map(str, self.hours)) if len(self.hours) < 24 else "*"
        weekday = "*" if self.weekday is None else self.weekday % 7
        return f"{self.minute} {hours} {self.day or '*'} * {weekday}"

    def instants(self, days: list[date], zone: ZoneInfo, now_ms: int) -> Iterator[int]:
        """Yield the times on these days before `now_ms`, in ms since the epoch, without duplicates."""
        last = 0
        for each in days:
            if self.weekday not in (None, each.isoweekday()) or self.day not in (None, each.day):
                continue
            for hour in self.hours:
                at = datetime(each.year, each.month, each.day, hour, self.minute, tzinfo=zone)
                ms = int(at.timestamp()) * 1000
                if last < ms < now_ms:
                    last = ms
                    yield ms


BACKUP = "backup"
INDEX = "search-index"
DEMO_TASKS = (
    DemoTask(
        BACKUP, "Databases", "Nightly dump of the shop's database", 30, (2,), 740, growth=2.1, retries=2, lines=27
    ),
    DemoTask("vacuum", "Databases", "Reclaims room in the database", 15, (4,), 310, weekday=7, lines=18),
    DemoTask(
        "replicate",
        "Databases",
        "Sends new rows to the reporting database",
        10,
        tuple(range(1, 24, 4)),
        38,
        failing=0.004,
    ),
    DemoTask(
        "import-orders",
        "Shop",
        "Fetches orders from the marketplaces",
        0,
        tuple(range(0, 24, 3)),
        21,
        failing=0.02,
        retries=1,
    ),
    DemoTask(
        "sync-crm",
        "Shop",
        "Sends changed customers to the CRM",
        15,
        tuple(range(2, 24, 6)),
        55,
        failing=0.03,
        timeout_s=300,
    ),
    DemoTask(INDEX, "Shop", "Builds the search index anew", 40, (5,), 410, growth=1.7, lines=1500),
    DemoTask("thumbnails", "Shop", "Makes thumbnails of new pictures", 20, (6, 18), 96, failing=0.008),
    DemoTask("check-links", "Website", "Looks for links that lead nowhere", 50, (9,), 130, failing=0.09, timeout_s=600),
    DemoTask("renew-certificates", "Website", "Renews TLS certificates that expire soon", 5, (3,), 4, lines=9),
    DemoTask("sales-report", "Reports", "Sales of yesterday, as a PDF by mail", 0, (7,), 33, failing=0.012, retries=1),
    DemoTask("invoices", "Reports", "Invoices of the month", 30, (8,), 1250, day=1, growth=1.9, lines=120),
)
