"""Routes from notifications to notifiers."""

from fnmatch import fnmatchcase
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from supervisor.config.daemon_tables import Route
from supervisor.config.value_records import Match, QuietHours
from supervisor.ipc.notification_kinds import FAILURES, KINDS, OF_KIND, RECOVERIES, SEVERITIES
from supervisor.scheduler.notifications.routes import RoutedEvent, Target, end_of_quiet, targets

NOON = 1_780_056_000_000  # 2026-05-29 12:00:00 UTC
NIGHT = QuietHours(22 * 60, 7 * 60)
LUNCH = QuietHours(11 * 60, 13 * 60)
NAMES = ("a", "b", "c")
TASKS = ("backup", "web", "x[y")
GLOBS = ("*", "b*", "web", "[bw]*", "?eb", "x[[]y")

kinds = st.sampled_from(
    ("run.failed", "run.timeout", "run.recovered", "run.succeeded", "run.skipped", "config.stale", "service.fatal")
)
routes = st.builds(
    Route,
    match=st.builds(
        Match,
        kinds=st.lists(kinds, max_size=2, unique=True).map(tuple),
        severity=st.none() | st.sampled_from(SEVERITIES),
        tasks=st.none() | st.sampled_from(GLOBS),
    ),
    notify=st.lists(st.sampled_from(NAMES), min_size=1, max_size=2, unique=True).map(tuple),
    after=st.integers(1, 3),
    final_attempt_only=st.booleans(),
    recovery=st.booleans(),
    quiet=st.sampled_from((None, NIGHT, LUNCH)),
)


@st.composite
def facts(draw: st.DrawFn) -> RoutedEvent:
    kind = draw(kinds)
    failures = draw(st.integers(1, 3))
    return RoutedEvent(
        kind=kind,
        severity=OF_KIND[kind],
        task=None if kind == "config.stale" else draw(st.sampled_from(TASKS)),
        final=draw(st.booleans()) if kind in FAILURES else True,
        failures=failures,
        attempts=failures + draw(st.integers(0, 2)),
        named=tuple(draw(st.lists(st.sampled_from(NAMES), max_size=2, unique=True))),
        without=draw(st.none() | st.sampled_from(NAMES)),
    )


ENDS = {"run.recovered": {"run.failed", "run.timeout", "run.crashed"}, "service.recovered": {"service.fatal"}}
RANKS = {"info": 0, "warn": 1, "error": 2}


def counts(rule: Route, fact: RoutedEvent) -> bool:
    """Return whether a failure satisfies the conditions about consecutive failures."""
    if fact.kind not in ENDS["run.recovered"]:
        return True
    if rule.final_attempt_only:
        return fact.final and fact.failures >= rule.after
    return fact.attempts >= rule.after


def winner(rule: Route, fact: RoutedEvent) -> str:
    """Return "no", "yes", or "told" for a recovery that goes only to notifiers that sent the failure."""
    if rule.match.tasks is not None and not (fact.task and fnmatchcase(fact.task, rule.match.tasks)):
        return "no"
    named = fact.kind in rule.match.kinds
    if fact.kind in ENDS and not named:
        hears = not rule.match.kinds or set(rule.match.kinds) & ENDS[fact.kind]
        return "told" if rule.recovery and hears else "no"
    if not named and (rule.match.kinds or fact.kind in ("run.succeeded", "run.skipped")):
        return "no"
    severe = rule.match.severity is None or RANKS[fact.severity] >= RANKS[rule.match.severity]
    return "yes" if severe and counts(rule, fact) else "no"


def oracle(fact: RoutedEvent, name: str, rules: list[Route]) -> Target | None:
    """Apply the rules of docs/notifications.rst literally to one notifier."""
    if name == fact.without:
        return None
    ways: dict[str, list[int | None]] = {"yes": [], "told": [], "no": []}
    if name in fact.named and fact.final:
        ways["told" if fact.kind in ENDS else "yes"].append(None)
    for rule in rules:
        if name in rule.notify:
            ways[winner(rule, fact)].append(end_of_quiet(rule.quiet, "UTC", NOON))
    chosen = ways["yes"] or ways["told"]
    if not chosen:
        return None
    earliest = None if None in chosen else min(way for way in chosen if way is not None)
    return Target(name, only_if_notified=not ways["yes"], until=earliest)


@given(facts(), st.lists(routes, max_size=4))
def test_documented_rules(fact: RoutedEvent, rules: list[Route]) -> None:
    """Each notifier gets one message by the documented rules, however many routes lead to it."""
    expected = [target for name in NAMES if (target := oracle(fact, name, rules)) is not None]
    assert targets(fact, rules, "UTC", NOON) == expected


def test_every_kind_has_a_severity() -> None:
    """Every kind has a known severity, and every kind that a recovery ends exists."""
    assert set(OF_KIND.values()) <= set(SEVERITIES)
    assert all(kind in KINDS and over <= set(KINDS) for kind, over in RECOVERIES.items())


def test_quiet_hours_by_the_minute() -> None:
    """At every minute of a day, quiet hours include their first minute and exclude their last."""
    for quiet, minute in product((NIGHT, LUNCH, QuietHours(0, 1), QuietHours(23 * 60, 0)), range(24 * 60)):
        now = NOON - 12 * 3_600_000 + minute * 60_000
        length = (quiet.end - quiet.start) % (24 * 60)
        minutes_left = length - (minute - quiet.start) % (24 * 60)
        expected = now + minutes_left * 60_000 if minutes_left > 0 else None
        assert end_of_quiet(quiet, "UTC", now) == expected, (quiet, minute)


def test_quiet_hours_when_clocks_change() -> None:
    """When clocks change, quiet hours end at their time on the clock, or when it is skipped, and never in the past."""
    evening = 1_774_738_800_000  # 2026-03-28 23:00:00 UTC, a day before Prague's clocks go forward
    assert end_of_quiet(NIGHT, "Europe/Prague", evening) == evening + 6 * 3_600_000
    skipped = QuietHours(22 * 60, 2 * 60 + 30)
    assert end_of_quiet(skipped, "Europe/Prague", evening) == evening + 2 * 3_600_000  # clocks show 03:00 then
    autumn = 1_792_875_600_000  # 2026-10-24 21:00:00 UTC, 23:00 in Prague; clocks go back in that night
    assert end_of_quiet(NIGHT, "Europe/Prague", autumn) == autumn + 9 * 3_600_000
    repeated = QuietHours(2 * 60 + 30, 2 * 60 + 45)
    second = 1_792_892_100_000  # 2026-10-25 01:35:00 UTC: 02:35 in Prague for the second time
    assert end_of_quiet(repeated, "Europe/Prague", second) == second + 10 * 60_000
