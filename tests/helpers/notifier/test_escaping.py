"""Output of runs in messages to chat services."""

import subprocess
import sys
from pathlib import Path

import pytest

from logring.layout import STDOUT, RingShape
from logring.ring.writer import RingWriter
from supervisor.helpers.notifier.delivery import escaped
from supervisor.ipc.delivery_request import DeliveryRequest
from tests.helpers.notifier.test_requests import PATIENT, NotifierProcess, notifier
from tests.support.receivers import web_server

__all__ = ["notifier"]

SPACE = "\N{ZERO WIDTH SPACE}"
DISCORD = f"discord://{'1' * 18}/{'a' * 64}"
SLACK = "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#general"
MATTERMOST = f"mmost://127.0.0.1/{'a' * 24}"
URLS = {
    "Discord": DISCORD,
    "Google Chat": "gchat://workspace/key/token",
    "Guilded": f"guilded://{'1' * 18}/{'a' * 64}",
    "Mattermost": MATTERMOST,
    "Rocket.Chat": "rocket://user:password@127.0.0.1/#general",
    "Slack": SLACK,
    "Zulip": f"zulip://bot@organization/{'a' * 32}/stream",
}


def test_service_names() -> None:
    """Apprise gives each service the name that the escaping rules use."""
    code = "import apprise, sys\nfor url in sys.argv[1:]:\n print(apprise.Apprise.instantiate(url).service_name)"
    out = subprocess.run([sys.executable, "-I", "-c", code, *URLS.values()], capture_output=True, text=True, check=True)
    assert out.stdout.splitlines() == list(URLS)


@pytest.mark.parametrize("service", URLS)
def test_mentions(service: str) -> None:
    """Mentions are broken up for every service."""
    assert escaped("@everyone", service, URLS[service]) == f"@{SPACE}everyone"


@pytest.mark.parametrize("service", ["Discord", "Mattermost"])
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("@everyone <@123> <@&4> @ 5", rf"@{SPACE}everyone \<@{SPACE}123\> \<@{SPACE}&4\> @ 5"),
        ("[click](https://evil.example)", r"\[click\]\(https\://evil.example\)"),
        ("see www.evil.example or www.a.b", r"see www\.evil.example or www\.a.b"),
        ("*a* _b_ `c` ~~d~~ ||e|| \\f :100:", r"\*a\* \_b\_ \`c\` \~\~d\~\~ \|\|e\|\| \\f \:100\:"),
        ("# a\n- b\n+ c\n> d\n1. e\n===", "\\# a\n\\- b\n\\+ c\n\\> d\n1\\. e\n\\==="),
        ("a-b = 1.5", "a-b = 1.5"),
    ],
)
def test_markdown(service: str, text: str, shown: str) -> None:
    """Every special character of such a service is escaped with a backslash; mentions are broken up as well."""
    assert escaped(text, service, URLS[service]) == shown


def test_slack() -> None:
    """References, mentions and links are broken up; Apprise itself writes the characters as entities."""
    escaped_text = escaped("<!channel> <#C1> @here <https://evil.example|bank> a_b *c*", "Slack", SLACK)
    assert escaped_text == f"<{SPACE}!channel> <{SPACE}#C1> @{SPACE}here <https:{SPACE}//evil.example|bank> a_b *c*"


def test_own_links_stay_intact() -> None:
    """An address in the daemon's own text of a message is unchanged, so that it can be followed."""
    text = "job_a failed https://jobs.example/#/run/1_2"
    assert escaped(text, "Discord", DISCORD, links=True) == "job\\_a failed https://jobs.example/#/run/1_2"
    assert escaped(text, "Slack", SLACK, links=True) == text


def test_text_that_apprise_escapes() -> None:
    """With a format in the URL Apprise escapes Markdown itself; other services get plain text."""
    assert escaped("*a* @all", "Discord", f"{DISCORD}?format=markdown") == f"*a* @{SPACE}all"
    assert escaped("*a* @all <b>", "JSON", "json://127.0.0.1") == "*a* @all <b>"


def test_escaped_message(notifier: NotifierProcess, tmp_path: Path) -> None:
    """Title, text and last lines arrive escaped, and the link after them works."""
    ring, file = str(tmp_path / "ring"), str(tmp_path / "log")
    writer = RingWriter.new(ring, "D", RingShape(0))
    writer.append(STDOUT, b"@channel [x](https://evil.example)\n", 1)
    with web_server() as web:
        url = f"mmost://127.0.0.1:{web.port}/{'a' * 24}?{PATIENT}"
        request = DeliveryRequest(
            key="k",
            url=url,
            title="a_b failed",
            body="exit code 1",
            footer="https://jobs.example/#/run/1_2",
            type="failure",
            ring=ring,
            file=file,
        )
        (result,) = notifier.ask(request)
        (message,) = web.messages
    writer.seal(2)
    assert result["error"] is None, result
    assert message["text"].split("\n\n") == [
        "a\\_b failed\r\nexit code 1",
        rf"@{SPACE}channel \[x\]\(https\://evil.example\)",
        "https://jobs.example/#/run/1_2",
    ]
