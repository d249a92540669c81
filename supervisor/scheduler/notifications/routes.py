"""Routes: which notifiers receive a notification, and when. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase

from supervisor.config.model import Route
from supervisor.config.notification_kinds import FAILURES, ONLY_NAMED, RECOVERIES, SEVERITIES
from supervisor.config.records import QuietHours
from supervisor.host.zones import zone_named

_MINUTES_PER_HOUR = 60


def end_of_quiet(quiet: QuietHours | None, zone: str, now_ms: int) -> int | None:
    """Return when the present quiet hours end, in milliseconds since the epoch; None outside of quiet hours.

    Args:
        quiet: minutes of the day; a range that ends before it begins spans midnight.
        zone: the time zone of the quiet hours.
        now_ms: the present, in milliseconds since the epoch.
    """
    if quiet is None:
        return None
    local = datetime.fromtimestamp(now_ms / 1000, zone_named(zone))
    minute = local.hour * _MINUTES_PER_HOUR + local.minute
    over_midnight = quiet.begin > quiet.end
    if over_midnight:
        if quiet.end <= minute < quiet.begin:
            return None
    elif not quiet.begin <= minute < quiet.end:
        return None
    day = local.date() + timedelta(days=int(over_midnight and minute >= quiet.begin))
    hour, rest = divmod(quiet.end, _MINUTES_PER_HOUR)
    end = datetime(day.year, day.month, day.day, hour, rest, tzinfo=zone_named(zone))
    # When clocks are set back, the end can occur a second time.
    at = end.astimezone(UTC)
    if at.timestamp() * 1000 <= now_ms:
        at = end.replace(fold=1).astimezone(UTC)
    return max(now_ms, round(at.timestamp() * 1000))


@dataclass(frozen=True, kw_only=True)
class Fact:
    """A fact that may be worth a notification."""

    kind: str
    severity: str
    task: str | None = None
    """The task or service."""
    final: bool = True
    """Of a failure: whether no retry follows."""
    failures: int = 1
    """Of a failure: consecutive failures; a run and its retries count as one."""
    attempts: int = 1
    """Of a failure: consecutive failures; each retry counts."""
    named: tuple[str, ...] = ()
    """Notifiers that the definition of the task names for this."""
    without: str | None = None
    """A notifier to leave out."""


@dataclass(frozen=True)
class Target:
    """A notifier that receives a notification."""

    notifier: str
    only_if_notified: bool = False
    """Whether it receives a recovery only if it received the failure."""
    until: int | None = None
    """End of the quiet hours in milliseconds since the epoch; None: send at once."""


def targets(fact: Fact, routes: Iterable[Route], zone: str, now_ms: int) -> list[Target]:
    """Return the notifiers that receive a fact, each once, sorted by name.

    If several routes lead to a notifier, the earliest time and the weakest condition apply.

    Args:
        fact: the fact.
        routes: the routes of the configuration.
        zone: the time zone of quiet hours.
        now_ms: the time of the fact.
    """
    found: dict[str, list[Target]] = {}
    ways: list[tuple[Sequence[str], bool, QuietHours | None]] = []
    over = fact.kind in RECOVERIES
    if fact.named and (fact.final or over):
        ways.append((fact.named, over, None))
    for route in routes:
        only_if_notified = _leads(route, fact)
        if only_if_notified is not None:
            ways.append((route.notify, only_if_notified, route.quiet))
    for names, only_if_notified, quiet in ways:
        until = end_of_quiet(quiet, zone, now_ms)
        for name in names:
            if name != fact.without:
                found.setdefault(name, []).append(Target(name, only_if_notified, until))
    return [_together(several) for _, several in sorted(found.items())]


def _together(several: list[Target]) -> Target:
    sure = [one for one in several if not one.only_if_notified] or several
    untils = [one.until for one in sure if one.until is not None]
    return Target(sure[0].notifier, sure[0].only_if_notified, min(untils) if len(untils) == len(sure) else None)


def _leads(route: Route, fact: Fact) -> bool | None:
    """Return whether a route takes a fact: None: no; False: always; True: only after a reported failure."""
    match = route.match
    if match.tasks is not None and (fact.task is None or not fnmatchcase(fact.task, match.tasks)):
        return None
    if fact.kind in match.kinds:
        return False if _severe(fact.severity, match.severity) and _counts(route, fact) else None
    if fact.kind in RECOVERIES:
        notified = not match.kinds or not RECOVERIES[fact.kind].isdisjoint(match.kinds)
        return True if route.recovery and notified else None
    if match.kinds or fact.kind in ONLY_NAMED:
        return None
    return False if _severe(fact.severity, match.severity) and _counts(route, fact) else None


def _severe(severity: str, least: str | None) -> bool:
    return least is None or SEVERITIES.index(severity) >= SEVERITIES.index(least)


def _counts(route: Route, fact: Fact) -> bool:
    """Return whether the number of consecutive failures reaches ``after``."""
    if fact.kind not in FAILURES:
        return True
    if route.final_attempt_only:
        return fact.final and fact.failures >= route.after
    return fact.attempts >= route.after
