"""What the runs of the demonstration printed."""

from collections.abc import Iterator
from typing import NamedTuple

from store.runs.writes import Run
from supervisor.tools.demo.history import moment
from supervisor.tools.demo.jobs import BACKUP, INDEX

STDOUT, STDERR = 0, 1
_AT_ONCE = 500
_TABLES = ("customers", "orders", "order_items", "products", "prices", "stock")
_GREEN, _RED, _YELLOW, _PLAIN = "\x1b[32m", "\x1b[31m", "\x1b[33m", "\x1b[0m"


class Part(NamedTuple):
    """What was printed at once.

    Attributes:
        share: When, as a share of the time that the run took.
    """

    share: float
    stream: int
    text: str


def printed(run: Run) -> Iterator[Part]:
    """All that a run printed, in order."""
    failed = run.end_reason != "succeeded"
    if run.task_name == BACKUP:
        yield from _backup(run, failed)
    elif run.task_name == "thumbnails":
        yield from _drawn(failed)
    elif run.task_name == INDEX:
        yield from _long(run, failed)
    else:
        yield from _plain(run, failed)


def _backup(run: Run, failed: bool) -> Iterator[Part]:
    started = run.started_at or run.created_at
    file = f"/var/backups/shop-{moment(started)[:10]}.sql.gz"
    yield Part(0, STDOUT, f"{moment(started)} dumping database shop to {file}\n")
    free = "1.9 GB" if failed else "212 GB"
    yield Part(0.01, STDOUT, f"free on /var/backups: {free}, the last dump took 38.4 GB\n")
    if failed:
        yield Part(0.012, STDOUT, f"{_YELLOW}warning: that may not be enough{_PLAIN}\n")
    for number, table in enumerate(_TABLES):
        share = 0.05 + number * 0.14
        yield Part(share, STDOUT, f"table {table}\n")
        for percent in range(25, 101, 25):
            if failed and number == 2 and percent > 50:
                yield Part(0.97, STDERR, f"gzip: {file}: No space left on device\n")
                yield Part(0.975, STDERR, "pg_dump: error: query failed: COPY order_items: broken pipe\n")
                text = "backup: /dev/sdb1 on /var/backups is full: 200 GB of 200 GB used\n"
                yield Part(0.98, STDERR, f"{_RED}{text[:-1]}{_PLAIN}\n")
                yield Part(0.99, STDOUT, f"removing the unfinished {file}\n")
                yield Part(1, STDERR, f"{_RED}backup failed{_PLAIN}\n")
                return
            yield Part(share + percent / 1000, STDOUT, f"  {table:<12} {percent:>3} %\n")
    yield Part(0.97, STDOUT, f"{_GREEN}ok{_PLAIN}  the dump is complete and can be restored\n")


def _drawn(failed: bool) -> Iterator[Part]:
    """A progress bar for each folder."""
    yield Part(0, STDOUT, "thumbnails of pictures since yesterday\n")
    folders = ("summer", "shoes", "kitchen", "garden")
    for number, folder in enumerate(folders):
        for step in range(41):
            share = (number + step / 41) / len(folders)
            bar = "#" * (step * 3 // 4)
            text = f"\r{folder:<8} [{bar:<30}] {step * 100 // 40:>3} %  {step * 31 + number * 17} pictures"
            yield Part(share, STDOUT, text + ("\n" if step == 40 else ""))
            if failed and number == 2 and step == 17:
                yield Part(share, STDOUT, "\n")
                yield Part(1, STDERR, f"{_RED}kitchen/IMG_2417.tif: not a picture{_PLAIN}\n")
                return
    yield Part(1, STDOUT, f"{_GREEN}done{_PLAIN}\n")


def _long(run: Run, failed: bool) -> Iterator[Part]:
    """Some hundred lines at once, up to as many as the run has."""
    started, took = run.started_at or 0, (run.ended_at or 0) - (run.started_at or 0)
    lines = run.lines - 1
    for first in range(0, lines, _AT_ONCE):
        share = first / lines
        at = moment(started + int(took * share))
        text = "".join(
            f"{at} product {number:06d} indexed: {number * 7919 % 97 + 3} words, {number * 31 % 19 + 1} ms"
            + (f" {_YELLOW}no description{_PLAIN}\n" if number % 983 == 0 else "\n")
            for number in range(first, min(first + _AT_ONCE, lines))
        )
        yield Part(share, STDOUT, text)
    end = f"{_RED}the index is broken{_PLAIN}\n" if failed else f"{_GREEN}{lines} products{_PLAIN}\n"
    yield Part(1, STDERR if failed else STDOUT, end)


def _plain(run: Run, failed: bool) -> Iterator[Part]:
    name, lines = run.task_name, max(2, run.lines)
    yield Part(0, STDOUT, f"{moment(run.started_at or run.created_at)} {name}: started\n")
    for number in range(1, lines - 1):
        yield Part(number / lines, STDOUT, f"{name}: {number} of {lines - 2}, {number * 137 % 900 + 12} records\n")
    if run.end_reason == "timeout":
        return
    why = "401 Unauthorized: the token has expired" if name == "sync-crm" else "no answer within 30 s"
    end = f"{_RED}{name}: {why}{_PLAIN}\n" if failed else f"{_GREEN}{name}: done{_PLAIN}\n"
    yield Part(1, STDERR if failed else STDOUT, end)
