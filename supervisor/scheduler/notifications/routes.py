"""To whom something is told: pure."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase

from supervisor.config.model import QuietHours, Route
from supervisor.config.notification_kinds import FAILURES, ONLY_NAMED, RECOVERIES, SEVERITIES
from supervisor.dataclass import dataclass
from supervisor.host.zones import zone_named

_MINUTES_PER_HOUR = 60


def end_of_quiet(quiet: QuietHours | None, zone: str, now_ms: int) -> int | None:
    """When the quiet hours end that it is now; None: it is not quiet.

    Args:
        quiet: minutes of the day; those that begin later than they end go over midnight.
        zone: on whose clocks.
        now_ms: milliseconds since the epoch, as is what is returned.
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
    # Clocks that are set back can show the end a second time, when it has passed.
    at = end.astimezone(UTC)
    if at.timestamp() * 1000 <= now_ms:
        at = end.replace(fold=1).astimezone(UTC)
    return max(now_ms, round(at.timestamp() * 1000))


@dataclass(frozen=True, kw_only=True)
class Fact:
    """Something that people may want to hear of."""

    kind: str
    severity: str
    task: str | None = None
    """Which task or service it is about."""
    final: bool = True
    """Of a failure: it is not tried again."""
    failures: int = 1
    """Of a failure: how many in a row, where a run and its retries are one."""
    attempts: int = 1
    """The same, with each retry by itself."""
    named: tuple[str, ...] = ()
    """Notifiers that the task itself names for this."""
    without: str | None = None
    """A notifier that is not told."""


@dataclass(frozen=True)
class Target:
    """One notifier that is told."""

    notifier: str
    only_if_told: bool = False
    """Only if it was told of what is over now."""
    until: int | None = None
    """It is held back until then, milliseconds since the epoch; None: it is sent at once."""


def targets(fact: Fact, routes: Iterable[Route], zone: str, now_ms: int) -> list[Target]:
    """Who is told, each once, in the order of their names.

    A notifier that several ways lead to is told at the earliest time of these, and under the least conditions.

    Args:
        fact: what happened.
        routes: the rules.
        zone: in which quiet hours are meant.
        now_ms: when it happened.
    """
    found: dict[str, list[Target]] = {}
    ways: list[tuple[Sequence[str], bool, QuietHours | None]] = []
    over = fact.kind in RECOVERIES
    if fact.named and (fact.final or over):
        ways.append((fact.named, over, None))
    for route in routes:
        only_if_told = _leads(route, fact)
        if only_if_told is not None:
            ways.append((route.notify, only_if_told, route.quiet))
    for names, only_if_told, quiet in ways:
        until = end_of_quiet(quiet, zone, now_ms)
        for name in names:
            if name != fact.without:
                found.setdefault(name, []).append(Target(name, only_if_told, until))
    return [_together(several) for _, several in sorted(found.items())]


def _together(several: list[Target]) -> Target:
    sure = [one for one in several if not one.only_if_told] or several
    untils = [one.until for one in sure if one.until is not None]
    return Target(sure[0].notifier, sure[0].only_if_told, min(untils) if len(untils) == len(sure) else None)


def _leads(route: Route, fact: Fact) -> bool | None:
    """Whether a fact takes this route: True, if it was told of what is over; False, in any case; None, not."""
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
    """Whether enough failures have come in a row."""
    if fact.kind not in FAILURES:
        return True
    if route.final_attempt_only:
        return fact.final and fact.failures >= route.after
    return fact.attempts >= route.after
