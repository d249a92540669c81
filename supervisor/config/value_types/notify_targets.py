"""The types of values that define recipients of notifications, and the check of notifier names in them."""

import re
from collections.abc import Collection, Iterator, Mapping
from urllib.parse import urlsplit

from msgspec import Struct

from supervisor.config.problems import InvalidValue, nearest, quoted
from supervisor.config.value_records import Match, QuietHours
from supervisor.config.value_types.values import NAME, ListOf, Name, Text, ValueType, choice, parse_table
from supervisor.ipc.notification_kinds import KINDS, SEVERITIES

KEYS_WITH_NAMES = ("notify_on_failure", "notify_on_success", "notify_on_missed")
"""Keys of tasks and services that name notifiers."""
_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]{0,30}://[!-~]+")
_QUIET = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])-([01][0-9]|2[0-3]):([0-5][0-9])")
_MINUTES_PER_HOUR = 60


class NotifierUrl(Struct, frozen=True):
    """A URL for Apprise. No message quotes it, because it may contain a password."""

    expected = "the URL of a notification service, as Apprise writes it"

    def parse(self, value: object, directory: str) -> str:
        """Return the URL of the notifier."""
        text = value if isinstance(value, str) else ""
        if not _URL.fullmatch(text) or len(text) > 4000:
            remedy = "such as mailto://, slack://, ntfy:// or json://; percent-encode everything that is not ASCII"
            raise InvalidValue(f"must be {self.expected}", remedy, show=False)
        return Text().parse(value, directory)


class PingUrl(Struct, frozen=True):
    """A URL to request. No message quotes it, because anyone who knows it can use it."""

    expected = 'a URL such as "https://hc-ping.com/ID"'

    def parse(self, value: object, directory: str) -> str:  # noqa: ARG002 - the protocol's signature
        """Return the URL to request."""
        text = value if isinstance(value, str) else ""
        try:
            parts = urlsplit(text)
            sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # a port above 65535, or an unclosed bracket
            sound = False
        if not sound or parts.fragment or "@" in parts.netloc or not _URL.fullmatch(text) or len(text) > 2000:
            raise InvalidValue(f"must be {self.expected}", show=False)
        return str(text)


class QuietRange(Struct, frozen=True):
    """A range of times of day, such as "22:00-07:00"."""

    expected = 'hours such as "22:00-07:00"'

    def parse(self, value: object, directory: str) -> QuietHours:
        """Return the quiet hours."""
        text = Text(limit=100, empty=False, expected=self.expected).parse(value, directory)
        match = _QUIET.fullmatch(text)
        if match is None:
            raise InvalidValue(f"must be {self.expected}")
        hour, minute, last_hour, last_minute = map(int, match.groups())
        quiet = QuietHours(hour * _MINUTES_PER_HOUR + minute, last_hour * _MINUTES_PER_HOUR + last_minute)
        if quiet.start == quiet.end:
            raise InvalidValue("must not begin and end at the same time")
        return quiet


MATCHES: Mapping[str, ValueType] = {
    "kinds": ListOf(choice(*KINDS), len(KINDS), empty=False),
    "severity": choice(*SEVERITIES),
    "tasks": Text(limit=200, empty=False, expected='a glob such as "backup-*"'),
}


class MatchTable(Struct, frozen=True):
    """The conditions for notifications that take a route."""

    expected = 'a table such as { kinds = ["run.failed"], tasks = "backup-*" }'

    def parse(self, value: object, directory: str) -> Match:
        """Return the conditions of the route."""
        if not isinstance(value, dict):
            raise InvalidValue(f"must be {self.expected}")
        parsed, faults = parse_table(value, MATCHES, directory)
        faults.check()
        return Match(**parsed)


UNITS: Mapping[str, ValueType] = {
    name: ListOf(Text(limit=100, empty=False), 100, empty=False, single=True) for name in ("tasks", "groups", "tags")
}


class UnitConditions(Struct, frozen=True):
    """A choice of tasks and services: those that meet all of its conditions."""

    expected = 'a table such as { tasks = ["backup-*"], groups = ["shop"], tags = ["nightly"] }'

    def parse(self, value: object, directory: str) -> dict[str, tuple[str, ...]]:
        """Return globs for names as ``tasks``, groups and tags."""
        if not isinstance(value, dict):
            raise InvalidValue(f"must be {self.expected}")
        parsed, faults = parse_table(value, UNITS, directory)
        faults.check()
        return parsed


def notifiers(*, empty: bool = True) -> ListOf:
    """Return the type of a list of notifier names, or of a single name."""
    return ListOf(Name("the name of a notifier"), 100, empty=empty, single=True)


def unknown(names: Collection[str], configured: Collection[str]) -> Iterator[tuple[int, InvalidValue]]:
    """Yield the indexes of names that no notifier has, and the errors."""
    for index, name in enumerate(names):
        if name not in configured and NAME.fullmatch(name):  # an invalid name has its own error
            remedy = nearest(name, configured) or f"add [notifiers.{name}]"
            yield index, InvalidValue(f"no notifier named {quoted(name)}", remedy)
