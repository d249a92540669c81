"""The texts of messages."""

from store.deliveries import Delivery
from supervisor.scheduler.notifications.wording import body_of, message, title_of, trial_message

AT = 1_780_056_000_000  # 2026-05-29 12:00:00 UTC
ONE = Delivery(1, "n", "run.failed", "error", "t failed", "The run ended.", "t", "R", AT, AT, False, 0)
SITE = "https://jobs.example.com"


def test_single_notification() -> None:
    """A message has the title and text of its notification, a link to the run, and the type of news."""
    letter = message([ONE], site=SITE, host="h", zone="UTC")
    assert (letter.title, letter.body, letter.type) == ("t failed", "The run ended.", "failure")
    assert letter.footer == f"{SITE}/#/run/R\nRingward on h"
    assert message([ONE], site=None, host="h", zone="UTC").footer == "Ringward on h"
    stale = ONE._replace(kind="config.stale", severity="info", run_id=None)
    assert message([stale], site=SITE, host="h", zone="UTC").footer.startswith(f"{SITE}/#/notifications\n")
    assert message([stale], site=SITE, host="h", zone="UTC").type == "info"
    good = ONE._replace(kind="run.recovered", severity="info")
    assert message([good], site=SITE, host="h", zone="UTC").type == "success"


def test_several_notifications() -> None:
    """A message about several has a line with time and link for each, and the type of the worst."""
    held_delivery = ONE._replace(held=True, severity="warn")
    letter = message(
        [held_delivery, ONE._replace(held=True, title="u failed")], site=SITE, host="h", zone="Europe/Prague"
    )
    assert (letter.title, letter.type) == ("2 notifications", "failure")
    assert letter.items[1] == f"2026-05-29 14:00:00 u failed {SITE}/#/run/R"
    assert message([held_delivery], site=None, host="h", zone="UTC").title == "1 notification"
    assert len(message([held_delivery] * 60, site=None, host="h", zone="UTC").items) == 60


def test_length_limits() -> None:
    """A title is one line of at most 200 characters, and a text has at most 2000."""
    assert title_of("a\n b\t\r\nc") == "a b c"
    assert len(title_of("x" * 1000)) == 200
    assert len(body_of("x" * 5000)) == 2000
    assert trial_message("n", "h").body == "The notifier n can deliver messages."
    assert trial_message("n", "h").output == []
    assert [len(line) for line in trial_message("n", "h", long=True).output] == [300] * 20
