"""The tasks of the demo, and the parameters of their made-up history."""

from dataclasses import dataclass


@dataclass(frozen=True)
class DemoTask:
    """A task and how its runs went.

    Attributes:
        took_s: The duration of a run today.
        growth: The duration of a run today as a multiple of that a year ago.
        failing: The proportion of runs that fail.
        retries: The number of retries.
        timeout_s: The time limit of a run; None: no limit.
        lines: The approximate number of lines in the log of a run.
        more: Other keys of the configuration, about days and deadlines.
    """

    name: str
    group: str
    description: str
    cron: str
    took_s: float
    growth: float = 1.2
    failing: float = 0.01
    retries: int = 0
    timeout_s: int | None = None
    lines: int = 40
    more: str = ""


BACKUP = "backup"
INDEX = "search-index"
CRM = "sync-crm"
FINISH_BY_MS = 7_200_000
"""The time in which the CRM is to have the changes."""
DEMO_TASKS = (
    DemoTask(
        BACKUP, "Databases", "Nightly dump of the shop's database", "30 2 * * *", 740, growth=2.1, retries=2, lines=27
    ),
    DemoTask("vacuum", "Databases", "Reclaims room in the database", "15 4 * * 0", 310, lines=18),
    DemoTask(
        "replicate",
        "Databases",
        "Sends new rows to the reporting database",
        "10 1,5,9,13,17,21 * * *",
        38,
        failing=0.004,
    ),
    DemoTask(
        "import-orders",
        "Shop",
        "Fetches orders from the marketplaces",
        "0 0,3,6,9,12,15,18,21 * * *",
        21,
        failing=0.02,
        retries=1,
    ),
    DemoTask(
        CRM,
        "Shop",
        "Sends changed customers to the CRM",
        "15 2,8,14,20 * * *",
        55,
        failing=0.03,
        timeout_s=300,
        more=f'failure_rate = "2 in 10"\nfinish_by = "+{FINISH_BY_MS // 3_600_000}h"',
    ),
    DemoTask(INDEX, "Shop", "Builds the search index anew", "40 5 * * *", 410, growth=1.7, lines=1500),
    DemoTask("thumbnails", "Shop", "Makes thumbnails of new pictures", "20 6,18 * * *", 96, failing=0.008),
    DemoTask(
        "check-links", "Website", "Looks for links that lead nowhere", "50 9 * * *", 130, failing=0.09, timeout_s=600
    ),
    DemoTask("renew-certificates", "Website", "Renews TLS certificates that expire soon", "5 3 * * *", 4, lines=9),
    DemoTask(
        "sales-report",
        "Reports",
        "Sales of yesterday, as a PDF by mail",
        "0 7 * * *",
        33,
        failing=0.012,
        retries=1,
        more='skip_on = ["holidays"]',
    ),
    DemoTask(
        "invoices",
        "Reports",
        "Invoices of the month",
        "30 8 1 * *",
        1250,
        growth=1.9,
        lines=120,
        more='skip_on = ["holidays", "weekend"]\nshift = "next"',
    ),
)
