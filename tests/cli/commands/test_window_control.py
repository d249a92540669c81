"""``ringward window``."""

import json

from supervisor.cli import exit_codes
from tests.cli.commands.test_control import posted
from tests.support.command_line import Ringward
from tests.support.fake_daemon import Answer, FakeDaemon

WINDOWS = {
    "items": [
        {
            "name": "release",
            "match": {"groups": ["shop"]},
            "open": {
                "since": "2026-11-26T19:00:00.000Z",
                "until": "2026-11-26T21:00:00.000Z",
                "by": "anna",
                "note": "5",
            },
        },
        {"name": "night", "match": {}, "next": {"since": "2026-11-26T19:00:00.000Z"}},
    ]
}


def test_list(ringward: Ringward, daemon: FakeDaemon) -> None:
    """The list says when each window is open now or next, who opened it, and what it matches."""
    daemon.on("GET", "/api/windows", WINDOWS)
    first, second = ringward("window").output.splitlines()[1:]
    assert first.startswith("release\t")
    assert ", by anna\t-\tshop\t5" in first
    assert second.startswith("night\t-\t")
    assert second.endswith("until someone ends it\tall\t-")
    assert json.loads(ringward("window", "--json").output) == WINDOWS["items"]


def test_start_and_end(ringward: Ringward, daemon: FakeDaemon) -> None:
    """A window opens until a time, and closes."""
    for verb in ("start", "end"):
        daemon.on("POST", f"/api/windows/release/{verb}", Answer(204))
    assert ringward("window", "start", "release", "--until", "2099-11-20T22:00Z", "--note", "5").exit_code == 0
    assert ringward("window", "start", "release").exit_code == 0
    assert ringward("window", "end", "release").exit_code == 0
    assert posted(daemon) == [
        ("/api/windows/release/start", {}, {"until": "2099-11-20T22:00:00.000Z", "note": "5"}),
        ("/api/windows/release/start", {}, None),
        ("/api/windows/release/end", {}, None),
    ]
    assert ringward("window", "start", "release", "--for", "1h", "--until", "22:00").exit_code == exit_codes.USAGE
