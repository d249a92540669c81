"""Texts of the messages that notifiers send. Pure."""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from store.deliveries import Delivery
from supervisor.host.zones import zone_named
from supervisor.ipc.notification_kinds import RECOVERIES
from supervisor.ipc.plural import counted

_MAX_TITLE = 200
_MAX_BODY = 2000
_LONG_LINES = 20
_LONG_LINE = 300
_OF_SEVERITY = {"info": "info", "warn": "warning", "error": "failure"}


class Message(Struct, frozen=True):
    """The parts of a message, as plain text."""

    title: str
    body: str
    footer: str
    """Text that follows the last output lines of the run."""
    type: str
    """info, success, warning or failure."""
    items: list[str] = []
    """The lines of a list, which may need several messages."""
    output: list[str] = []
    """Output that no run has printed."""


def shortened(text: str, most: int) -> str:
    """Return a text, shortened to `most` characters; "…" marks a cut."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def title_of(text: str) -> str:
    """Return a text as a title: in one line, with at most 200 characters."""
    return shortened(" ".join(text.split()), _MAX_TITLE)


def body_of(text: str) -> str:
    """Return a text as a body, with at most 2000 characters."""
    return shortened(text, _MAX_BODY)


def message(deliveries: Sequence[Delivery], *, site: str | None, host: str, zone: str) -> Message:
    """Return the message for one delivery, or a list of several.

    Args:
        deliveries: one or more deliveries; those held during quiet hours are always listed, with their times.
        site: URL of the dashboard; None for no links.
        host: name of the host.
        zone: time zone for times.
    """
    if len(deliveries) == 1 and not deliveries[0].held:
        delivery = deliveries[0]
        success = delivery.kind in RECOVERIES or delivery.kind == "run.succeeded"
        return Message(
            delivery.title,
            delivery.body,
            _footer(_link(delivery, site), host),
            "success" if success else _OF_SEVERITY[delivery.severity],
        )
    worst = max((delivery.severity for delivery in deliveries), key=list(_OF_SEVERITY).index)
    items = [_listed(delivery, site, zone) for delivery in deliveries]
    return Message(counted(len(items), "notification"), "", _footer(None, host), _OF_SEVERITY[worst], items)


def trial_message(notifier: str, host: str, *, long: bool = False) -> Message:
    """Return the message with which users test a notifier; `long`: with as much output as the message of a run."""
    text = f"The notifier {notifier} can deliver messages."
    output = [f"Line {number} of {_LONG_LINES}: ".ljust(_LONG_LINE, "x") for number in range(1, _LONG_LINES + 1)]
    return Message("Ringward: this is a test", text, _footer(None, host), "info", output=output if long else [])


def _listed(delivery: Delivery, site: str | None, zone: str) -> str:
    at = datetime.fromtimestamp(delivery.created_at / 1000, zone_named(zone))
    link = _link(delivery, site)
    return f"{at:%Y-%m-%d %H:%M:%S} {delivery.title}" + (f" {link}" if link else "")


def _link(delivery: Delivery, site: str | None) -> str | None:
    if site is None:
        return None
    return f"{site}/#/run/{delivery.run_id}" if delivery.run_id else f"{site}/#/notifications"


def _footer(link: str | None, host: str) -> str:
    return f"{link}\nRingward on {host}" if link else f"Ringward on {host}"
