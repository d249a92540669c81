"""The public status page: HTML that needs no script, from the states and the history of published units.

It shows names, states, shares of each day, and the notes of public acknowledgements. Nothing else of the daemon is in
it: no runs, times of runs, descriptions or logs. Its size is bounded by the limits of the configuration: 100 units with
90 days each, and `MOST_INCIDENTS` notes.
"""

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import NamedTuple

from gevent.lock import RLock

from store.notifications import PublicIncident
from store.runs.daily_outcomes import DAY_MS
from supervisor.ipc.messages import StatusPage

DAYS = 90
MOST_INCIDENTS = 50
_GOOD_SHARE = 0.9995
_POOR_SHARE = 0.95
_KEPT_S = 2.0
"""How long a page is kept."""


class KeptPage:
    """The page as text, and when it was made. Concurrent requests wait for the one that makes it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = RLock()
        self._text = ""
        self._made_at = clock() - _KEPT_S

    def get(self, make: Callable[[], str]) -> str:
        """Return the text; make it again if it is older than two seconds."""
        with self._lock:
            if self._clock() >= self._made_at + _KEPT_S:
                self._text = make()
                self._made_at = self._clock()
            return self._text


class PublicUnit(NamedTuple):
    """A published unit.

    Attributes:
        word: its state.
        tone: good, bad, warn, busy or mute.
        days: the share of success or of time up (0 to 1) of each of the last `DAYS` days; None: nothing to tell.
        whole: the same for all of these days together.
    """

    name: str
    kind: str
    word: str
    tone: str
    days: Sequence[float | None] = ()
    whole: float | None = None


def page_html(
    units: Sequence[PublicUnit], page: StatusPage | None, incidents: Sequence[PublicIncident], now_ms: int
) -> str:
    """Return the page as HTML."""
    bad = sum(unit.tone == "bad" for unit in units)
    summary = f"{bad} of {len(units)} failing" if bad else "No failures"
    title = escape("Status" if page is None else page.title)
    about = f'<p class="about">{escape(page.text)}</p>\n' if page is not None and page.text else ""
    sheets = "\n".join(
        f'<link rel="stylesheet" href="static/status/css/{name}.css">'
        for name in ("tokens", "base", "parts", "charts", "forced")
    )
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}: {summary}</title>
<link rel="icon" href="static/status/icon.svg">
{sheets}
<script type="module" src="static/status/js/status.js"></script>
</head>
<body>
<main class="public">
<h1>{title}</h1>
{about}<p class="overall {"bad" if bad else "good"}">{summary}</p>
{_current(incidents)}{_sections(units, page, now_ms)}{_past(incidents) if page is not None else ""}</main>
</body>
</html>
"""


def _sections(units: Sequence[PublicUnit], page: StatusPage | None, now_ms: int) -> str:
    """Return the units by section; those in none come first."""
    by_name = {unit.name: unit for unit in units}
    sections = {} if page is None else page.sections
    placed = {name for names in sections.values() for name in names}
    parts = [("", [unit for unit in units if unit.name not in placed])]
    parts += [(heading, [by_name[name] for name in names if name in by_name]) for heading, names in sections.items()]
    return "".join(_section(heading, shown, page, now_ms) for heading, shown in parts if shown)


def _section(heading: str, units: Sequence[PublicUnit], page: StatusPage | None, now_ms: int) -> str:
    label = escape(heading or "Tasks and services")
    above = f"<header><h2>{label}</h2></header>\n" if heading else ""
    rows = "\n".join(_unit(unit, page, now_ms) for unit in units)
    return f'<section class="card" aria-label="{label}">\n{above}<ul class="lines">\n{rows}\n</ul>\n</section>\n'


def _unit(unit: PublicUnit, page: StatusPage | None, now_ms: int) -> str:
    state = f'<span class="spring"></span><span class="badge {unit.tone}">{escape(unit.word)}</span>'
    if page is None:
        return f"<li><b>{escape(unit.name)}</b>{state}</li>"
    what = "up" if unit.kind == "service" else "succeeded"
    total = f"{_percent(unit.whole)} {what} in {DAYS} days" if unit.whole is not None else f"no data of {DAYS} days"
    bars = "".join(_bar(part, now_ms - (DAYS - 1 - index) * DAY_MS, what) for index, part in enumerate(unit.days))
    return (
        f'<li class="with-days"><b>{escape(unit.name)}</b>{state}'
        f'<div class="uptime" role="img" aria-label="{total}">{bars}</div><p class="small soft">{total}</p></li>'
    )


def _bar(part: float | None, at: int, what: str) -> str:
    day = _day(at)
    if part is None:
        return f'<i title="{day}: no data"></i>'
    tone = "good" if part >= _GOOD_SHARE else "warn" if part >= _POOR_SHARE else "bad"
    return f'<i class="{tone}" title="{day}: {_percent(part)} {what}"></i>'


def _percent(part: float) -> str:
    """Return a share in percent, rounded down: only a time without any failure shows 100 %."""
    return f"{int(part * 10_000) / 100:g} %"


def _current(incidents: Sequence[PublicIncident]) -> str:
    rows = "\n".join(
        f"<li><p><b>{escape(one.task_name)}</b> since {_time(one.started_at)}</p>{_text(one)}</li>"
        for one in incidents
        if one.ended_at is None
    )
    return _list("Current incidents", rows) if rows else ""


def _past(incidents: Sequence[PublicIncident]) -> str:
    rows = "\n".join(
        f"<li><p><b>{escape(one.task_name)}</b> {_time(one.started_at)} to {_time(one.ended_at)}</p>{_text(one)}</li>"
        for one in incidents
        if one.ended_at is not None
    )
    return _list("Past incidents", rows or f'<li class="soft">None in the last {DAYS} days.</li>')


def _list(heading: str, rows: str) -> str:
    return (
        f'<section class="card incidents" aria-label="{heading}">\n<header><h2>{heading}</h2></header>\n'
        f'<ul class="lines">\n{rows}\n</ul>\n</section>\n'
    )


def _text(incident: PublicIncident) -> str:
    return f'<p class="about">{escape(incident.text)}</p>'


def _time(at: int) -> str:
    moment = datetime.fromtimestamp(at / 1000, UTC)
    return f'<time datetime="{moment:%Y-%m-%dT%H:%MZ}">{moment.day} {moment:%b %Y, %H:%M} UTC</time>'


def _day(at: int) -> str:
    moment = datetime.fromtimestamp(at / 1000, UTC)
    return f"{moment.day} {moment:%b}"
