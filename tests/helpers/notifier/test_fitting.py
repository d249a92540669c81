"""Texts of messages within the limits of their services."""

import io
import json
import warnings
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs

import apprise
import pytest
import requests
from apprise import Apprise, AppriseAsset, NotifyFormat
from apprise.conversion import convert_between
from apprise.manager_plugins import NotificationManager
from apprise.plugins import NotifyBase

from supervisor.helpers.notifier.delivery import deliver
from supervisor.helpers.notifier.fitting import MOST_BYTES, FittedText, Output, fits_in, fitted
from supervisor.ipc.delivery_request import DeliveryRequest

RUN = "01M7ZTZMQXWKWZBXVWRNHC071G"
LINK = f"https://jobs.example.com/#/run/{RUN}"
RESULT = f"Run {RUN}: exited with code 1."
LINES = [f"{number:03d} " + "<é> & *x* " * 24 for number in range(20)]
LONG = Output(LINES, 212)


def request(url: str = "", title: str = "backup failed", body: str = RESULT, **more: Any) -> DeliveryRequest:
    footer = f"{LINK}\nRingward on db1"
    return DeliveryRequest(key="k", url=url, title=title, body=body, footer=footer, type="failure", **more)


def plain(text: str, _links: bool) -> str:
    return text


def limited(most: int, title: int = 250) -> Callable[[str, str], bool]:
    """Return the limits of a service with a title of its own."""
    return lambda own_title, body: len(own_title) <= title and len(body) <= most


def fit(message: DeliveryRequest, most: int, output: Output = LONG, **limits: int) -> FittedText:
    return fitted(message, output, limited(most, **limits), plain)


@pytest.fixture(scope="module")
def plugins() -> dict[str, type[NotifyBase]]:
    """Return the plug-in of each schema that Apprise loads."""
    manager: Any = NotificationManager()  # type: ignore[no-untyped-call]
    with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # of modules that Apprise imports
        manager.load_modules()
    return {schema: plugin for schema in manager.schemas() if (plugin := manager[schema]) is not None}


URLS = {
    "GitHub": f"github://ghp_{'a' * 36}@owner/repo/issues/7",
    "Mastodon": "mastodon://token@mastodon.example.com",
    "Matrix": "matrix://user:password@matrix.example.com/#room",
    "Mobile Message": "mobilemessage://user:password@15551232000/15551233000",
    "Notifyre": "notifyre://token/+15551233000",
    "AWS Simple Notification Service (SNS)": f"sns://AHIAJGNT76XIMXDBIJYA/{'b' * 40}/us-east-2/topic",
    "Telegram": f"tgram://123456789:{'A' * 35}/12345",
    "Twilio": f"twilio://AC{'a' * 32}:{'b' * 32}@15551232000/15551233000",
    "Twitter": "twitter://user@key/secret/token/secret2?mode=tweet",
    "Cisco Webex Teams": f"wxteams://{'a' * 80}",
    "XMPP": "xmpps://user:password@xmpp.example.com",
}
"""URLs of the services whose limits depend on the URL."""


def recording(schema: str, plugin: Any) -> tuple[NotifyBase, list[tuple[str, str]]]:
    """Return an object of a plug-in that records titles and bodies instead of sending them, and its record."""
    sent: list[tuple[str, str]] = []
    url = URLS.get(str(plugin.service_name))

    class Recording(plugin):  # type: ignore[misc]
        enabled = True

        def __init__(self, **options: Any) -> None:
            (NotifyBase if url is None else plugin).__init__(self, **options)

        def __del__(self) -> None:
            """Do not log out, as the object has not logged in."""

        def send(self, body: str, title: str = "", **_: Any) -> bool:
            sent.append((title, body))
            return True

    options = {"schema": schema} if url is None else plugin.parse_url(url)
    return Recording(asset=AppriseAsset(async_mode=False), **options), sent


def test_text_for_every_schema_of_apprise(plugins: dict[str, type[NotifyBase]]) -> None:
    """The text that a plug-in receives is within the plug-in's limits and ours, even with output full of markup."""
    assert len(plugins) > 100
    for schema, plugin in plugins.items():
        service, sent = recording(schema, plugin)
        text = fitted(request(), LONG, fits_in(service, convert_between, NotifyFormat.TEXT), plain)
        collection = Apprise(asset=service.asset)
        collection.add(service)
        assert collection.notify(title=text.title, body=text.body, body_format=NotifyFormat.TEXT), schema
        ((title, body),) = sent
        whole = f"{title}\r\n{body}" if getattr(service, "overflow_amalgamate_title", False) else body
        assert len(whole.encode("utf-16-le")) // 2 <= service.body_maxlen, schema
        assert len(whole.encode()) <= MOST_BYTES.get(str(service.service_name), 1 << 20), schema
        assert len(title) <= max(0, service.title_maxlen or 0), schema
        assert "backup" in title + body, schema
        if service.body_maxlen >= 160 and not service.body_max_line_count:
            assert "exited with code 1" in body.replace("&nbsp;", " "), schema
            assert RUN in body.partition("jobs")[2], schema
            assert LINES[-1][:3] in body or service.body_maxlen < 300, schema


@pytest.mark.skipif(apprise.__version__ < "2.3", reason="earlier releases know fewer services")
def test_stricter_limits_name_services(plugins: dict[str, type[NotifyBase]]) -> None:
    """Each limit that is stricter than Apprise's belongs to a service that Apprise knows."""
    assert set(MOST_BYTES) <= {str(plugin.service_name) for plugin in plugins.values()}


def test_output_loses_its_first_lines() -> None:
    """The last lines stay, below the number of those before them; title, result and link are whole."""
    text = fit(request(), 1024)
    parts = text.body.split("\n\n")
    assert (text.title, parts[0], parts[2]) == ("backup failed", RESULT, f"{LINK}\nRingward on db1")
    assert parts[1].split("\n") == ["… 229 lines more", *LINES[-3:]]
    assert fit(request(), 16_000).body.split("\n\n")[1].split("\n") == ["… 212 lines more", *LINES]
    assert fit(request(), 16_000, Output(["one"])).body == f"{RESULT}\n\none\n\n{LINK}\nRingward on db1"


def test_last_line_that_does_not_fit() -> None:
    """If not even the last line fits, its beginning stays, or else only the number of lines."""
    assert fit(request(), 260).body.split("\n\n")[1].split("\n")[1][:10] == LINES[-1][:10]
    assert fit(request(), 150).body.split("\n\n")[1:2] == ["… 232 lines more"]
    assert fit(request(), 130).body == f"{RESULT}\n\n{LINK}\nRingward on db1"


def test_cut_body() -> None:
    """A body is cut at its end; the link is omitted only if it would take the result's place."""
    text = fit(request(body=f"{RESULT} {'x' * 2000}"), 400).body
    assert text.startswith(RESULT)
    assert "x…\n\n" in text
    assert text.endswith(f"{LINK}\nRingward on db1")
    assert fit(request(), 115).body == f"{RESULT}\n\n{LINK}"
    assert fit(request(), 67).body == RESULT


def test_cut_title() -> None:
    """A title that is too long for its field stands whole in the body."""
    text = fit(request(title="the nightly backup of the customers failed"), 1024, title=20)
    assert text.title == "the nightly backup…"
    assert text.body.startswith(f"the nightly backup of the customers failed\n{RESULT}")


def test_list_in_several_messages() -> None:
    """A list has as many items as fit, at least one, and says how many follow."""
    items = [f"2026-11-28 12:00:{number:02d} t{number} failed {LINK}" for number in range(50)]
    listed = request(title="50 notifications", body="", items=items)
    text = fit(listed, 4096)
    assert text.items == 45
    assert text.body.split("\n\n")[0].split("\n") == [*items[:45], "… 5 more follow"]
    assert fit(listed, 16_000).items == 50
    tiny = fit(listed, 40)
    assert tiny.items == 1
    assert tiny.body.startswith("2026-11-28 12:00:00")


SENT = {
    f"discord://{'1' * 18}/{'a' * 64}": 2000,
    "gchat://workspace/key/token": 4000,
    "line://token-of-the-bot/user": 5000,
    f"mmost://chat.example.com/{'a' * 24}": 4000,
    "ntfy://ntfy.example.com/topic": 4096,
    f"pover://{'u' * 30}@{'a' * 30}": 1024,
    "rocket://user:password@chat.example.com/#general": 1000,
    f"tgram://123456789:{'A' * 35}/12345": 4096,
    f"twilio://AC{'a' * 32}:{'b' * 32}@15551232000/15551233000": 160,
    f"workflows://flow.example.com/{'A' * 33}/{'B' * 29}/": 1000,
}
"""Ten services, and how long the text in their requests may be."""


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[requests.PreparedRequest]:
    """Answer all requests without sending them, and return them."""
    prepared_requests: list[requests.PreparedRequest] = []

    def send(_: object, prepared: requests.PreparedRequest, **_options: object) -> requests.Response:
        prepared_requests.append(prepared)
        response = requests.Response()
        response.status_code, response.request = 200, prepared
        response.raw = io.BytesIO(b'{"status": "success", "data": {"authToken": "t", "userId": "u"}, "ok": true}')
        return response

    monkeypatch.setattr("requests.adapters.HTTPAdapter.send", send)
    return prepared_requests


def texts(value: object) -> Iterator[str]:
    """Yield all texts in a JSON document."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from texts(inner)


@pytest.mark.usefixtures("plugins")
def test_ntfy_gets_a_message_in_any_script(sent: list[requests.PreparedRequest]) -> None:
    """Long output beyond ASCII is sent to ntfy as a message, not as an attachment, which servers refuse by default."""
    assert deliver(request("ntfy://ntfy.example.com/topic", output=["äöü€😀" * 50] * 60)).error is None
    assert [sending.path_url for sending in sent] == ["/"]
    assert "exited with code 1" in json.loads(str(sent[0].body))["message"]


@pytest.mark.usefixtures("plugins")
@pytest.mark.parametrize("url", SENT)
def test_requests_of_ten_services(sent: list[requests.PreparedRequest], url: str) -> None:
    """The request to a service has result, link and, if there is room, the last line of long output."""
    assert deliver(request(url, output=LINES)).error is None
    bodies = [body.decode() if isinstance(body, bytes) else str(body) for body in (sending.body for sending in sent)]
    values = [json.loads(body) if body.startswith("{") else parse_qs(body) for body in bodies]
    text = max(texts(values), key=len)
    assert len(text.encode()) <= SENT[url] or (len(text) <= SENT[url] and "ntfy" not in url)
    assert "exited with code 1" in text
    assert LINK in text.replace("\\", "")
    assert LINES[-1][:3] in text or SENT[url] < 300
