"""Schedules compared with a walk over every minute, in the time zones of the world.

Each test run chooses other zones, years and expressions; SCHEDULE_ZONES=all selects every zone.
"""

import os
import random
from datetime import UTC, datetime
from itertools import islice, pairwise, takewhile
from typing import get_args
from zoneinfo import ZoneInfo, available_timezones

import pytest

from supervisor.schedule.clock_changes import DstGap, DstOverlap
from supervisor.schedule.cron import Cron
from tests.schedule.oracle import Oracle, expression

ODD = ("Australia/Lord_Howe", "Africa/Casablanca", "Antarctica/Troll", "Pacific/Chatham", "Europe/Dublin", "Asia/Gaza")
"""Zones with shifts of half an hour or two hours, lunar rules, or negative summer time."""
ALL = sorted(available_timezones() - {"localtime", "Factory"})
WANTED = os.environ.get("SCHEDULE_ZONES", "1")
PLACES = ALL if WANTED == "all" else [*ODD[:2], *(f"somewhere, {number}" for number in range(int(WANTED)))]
LIMIT = 1500
YEARS = 10


@pytest.mark.parametrize("place", PLACES)
def test_ten_years(place: str) -> None:
    """Instants are complete, unique and in order, and match a walk over every minute."""
    choose = random.Random()
    zone = place if place in ALL else choose.choice(ALL)
    year = choose.choice((2026, 2026, choose.randrange(1973, 2036)))
    start, end = (int(datetime(when, 1, 1, tzinfo=UTC).timestamp()) // 60 for when in (year, year + YEARS))
    oracle = Oracle(ZoneInfo(zone), start, end)
    for _ in range(4):
        text = expression(choose)
        gap, overlap = choose.choice(get_args(DstGap)), choose.choice(get_args(DstOverlap))
        cron = Cron(text, ZoneInfo(zone), gap, overlap)
        within = takewhile(lambda instant: instant.at <= end * 60_000, cron.occurrences(start * 60_000))
        instants_found = list(islice(within, LIMIT))
        case = f"{text} in {zone} from {year}, {gap}, {overlap}"
        assert all(instant.at < other.at for instant, other in pairwise(instants_found)), case
        assert instants_found == oracle.walk(text, gap, overlap, LIMIT), case
        for earlier, other in choose.sample(list(pairwise(instants_found)), min(20, len(instants_found) - 1)):
            assert next(cron.occurrences(choose.randrange(earlier.at, other.at))) == other, case
