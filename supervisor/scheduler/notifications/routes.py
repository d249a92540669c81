"""Routes decide which notifiers receive a notification, and when. Pure."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase

from msgspec import Struct
from msgspec.structs import replace

from store.deliveries import Delivery
from supervisor.config.daemon_tables import Route
from supervisor.config.value_records import QuietHours
from supervisor.host.zones import zone_named
from supervisor.ipc.notification_kinds import ENDED_WITH, FAILURES, ONLY_NAMED, RECOVERIES, SEVERITIES
from supervisor.schedule.clock_changes import span_at

_MINUTES_PER_HOUR = 60
_MANY = 1_000_000
"""A number of failures that reaches every ``after``: the first message was sent."""


def end_of_quiet(quiet: QuietHours | None, zone: str, now_ms: int) -> int | None:
    """Return when the current quiet hours end, in milliseconds since the epoch; None outside quiet hours.

    Args:
        quiet: the quiet hours in minutes of the day; a range that ends before it begins spans midnight.
        zone: the time zone of the quiet hours.
        now_ms: the present, in milliseconds since the epoch.
    """
    if quiet is None:
        return None
    local = datetime.fromtimestamp(now_ms / 1000, zone_named(zone))
    minute = local.hour * _MINUTES_PER_HOUR + local.minute
    over_midnight = quiet.start > quiet.end
    if over_midnight:
        if quiet.end <= minute < quiet.start:
            return None
    elif not quiet.start <= minute < quiet.end:
        return None
    day = local.date() + timedelta(days=int(over_midnight and minute >= quiet.start))
    hour, minute_of_hour = divmod(quiet.end, _MINUTES_PER_HOUR)
    in_zone = zone_named(zone)
    end = datetime(day.year, day.month, day.day, hour, minute_of_hour, tzinfo=in_zone)
    # In the night when clocks are set back, the local time of the end can occur twice. If the first one is past, take
    # the second.
    at = end.astimezone(UTC)
    if at.timestamp() * 1000 <= now_ms:
        at = end.replace(fold=1).astimezone(UTC)
    elif at.astimezone(in_zone).replace(tzinfo=None) != end.replace(tzinfo=None):
        # Clocks skip the time of the end. With the offset after the change, it is an instant before the change.
        at = datetime.fromtimestamp(span_at(in_zone, int(end.replace(fold=1).timestamp())).end, UTC)
    return max(now_ms, round(at.timestamp() * 1000))


class RoutedEvent(Struct, frozen=True, kw_only=True):
    """An occurrence that routes may turn into a notification."""

    kind: str
    severity: str
    task: str | None = None
    """Name of the task or service; None if it is about the daemon."""
    final: bool = True
    """For failures: whether no retry follows."""
    failures: int = 1
    """For failures: number of consecutive failed runs; a run and its retries count as one."""
    attempts: int = 1
    """For failures: number of consecutive failed attempts; each retry counts."""
    named: tuple[str, ...] = ()
    """Notifiers that the definition of the task names for this kind."""
    day_began_ms: int | None = None
    """If given, the list counts repeats since then as one, which need not be read again."""
    without: str | None = None
    """A notifier that must not receive it, because it reports a failure of this notifier."""


class Target(Struct, frozen=True):
    """A notifier that receives a notification."""

    notifier: str
    only_if_notified: bool = False
    """Whether it receives a recovery only if it received the failure."""
    until: int | None = None
    """When the window or the quiet hours end, in milliseconds since the epoch; None to send at once."""
    unacked: bool = False
    """Whether it is only told at `until`, if nobody has acknowledged the problem by then."""


def targets(
    fact: RoutedEvent, routes: Iterable[Route], zone: str, now_ms: int, held_until: int | None = None
) -> list[Target]:
    """Return the notifiers that receive a fact, each once, sorted by name.

    If several routes lead to a notifier, the weakest condition applies, then the earliest time.

    Args:
        fact: the occurrence.
        routes: the routes of the configuration.
        zone: the time zone of quiet hours.
        now_ms: the time of the fact.
        held_until: when the window ends that holds it; None: none does.
    """
    by_notifier: dict[str, list[Target]] = {}
    ways: list[tuple[Sequence[str], bool, QuietHours | None, int]] = []
    over = fact.kind in RECOVERIES
    if fact.named and (fact.final or over):
        ways.append((fact.named, over, None, 0))
    for route in routes:
        only_if_notified = _leads(route, fact)
        if only_if_notified is not None:
            wait_ms = 0 if over else route.unacked_for_ms or 0
            ways.append((route.notify, only_if_notified, route.quiet, wait_ms))
    for names, only_if_notified, quiet, wait_ms in ways:
        at = (now_ms if held_until is None else held_until) + wait_ms
        until = end_of_quiet(quiet, zone, at) or (at if wait_ms else held_until)
        for name in names:
            if name != fact.without:
                by_notifier.setdefault(name, []).append(Target(name, only_if_notified, until, wait_ms > 0))
    return [_together(several) for _, several in sorted(by_notifier.items())]


def _together(several: list[Target]) -> Target:
    sure = [target for target in several if not target.only_if_notified] or several
    sure = [target for target in sure if not target.unacked] or sure
    untils = [target.until for target in sure if target.until is not None]
    return replace(sure[0], until=min(untils) if len(untils) == len(sure) else None)


def repeat_ms(delivery: Delivery, routes: Iterable[Route]) -> int | None:
    """Return after which time a delivered message is sent again if its problem lasts; None: it is not."""
    if delivery.kind not in ENDED_WITH:
        return None
    fact = RoutedEvent(
        kind=delivery.kind, severity=delivery.severity, task=delivery.task_name, failures=_MANY, attempts=_MANY
    )
    reached = [route for route in routes if delivery.notifier in route.notify and _leads(route, fact) is False]
    return min((route.repeat_ms for route in reached if route.repeat_ms is not None), default=None)


def _leads(route: Route, fact: RoutedEvent) -> bool | None:
    """Return None if a route ignores a fact, else whether only notifiers that were told of the failure receive it."""
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


def _counts(route: Route, fact: RoutedEvent) -> bool:
    """Return whether a failure is at least the ``after``-th in a row; other facts always count."""
    if fact.kind not in FAILURES:
        return True
    if route.final_attempt_only:
        return fact.final and fact.failures >= route.after
    return fact.attempts >= route.after
