"""Requests handled by the notifier process."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from logring.layout import STDERR, STDOUT, SYSTEM, RingShape
from logring.ring.writer import RingWriter
from supervisor.helpers.notifier.delivery import last_lines
from supervisor.helpers.notifier.fitting import Output
from supervisor.ipc.child_process import RINGWARD
from supervisor.ipc.delivery_request import DeliveryRequest, PingRequest
from supervisor.ipc.helper_messages import encode
from supervisor.ipc.messages import Decoder, receive_all
from tests.support.ports import free_port
from tests.support.receivers import mail_server, web_server


class NotifierProcess:
    """A notifier process in a removed directory, as the daemon's may be, and the scheduler's end of its socket."""

    def __init__(self) -> None:
        self.sock, theirs = socket.socketpair()
        with theirs:
            argv = ["sh", "-c", 'cd "$(mktemp -d)" && rmdir "$PWD" && exec "$@"', "sh"]
            argv += [sys.executable, *RINGWARD, "notifier", "--fd", str(theirs.fileno())]
            self.process = subprocess.Popen(argv, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE, text=True)
        self.sock.settimeout(60)
        self._decoder = Decoder()
        self._frames: list[dict[str, Any]] = []

    def ask(self, *orders: DeliveryRequest | PingRequest) -> list[dict[str, Any]]:
        """Return the results of requests in the order of their keys."""
        for request in orders:
            self.sock.sendall(encode(request))
        results: list[dict[str, Any]] = []
        while len(results) < len(orders):
            results += receive_all(self.sock, self._decoder)
        return sorted(results, key=lambda frame: str(frame["key"]))

    def close(self) -> str:
        """End the process, and return its log."""
        self.sock.close()
        _, messages = self.process.communicate(timeout=60)
        assert self.process.returncode == 0
        return messages


@pytest.fixture
def notifier() -> Iterator[NotifierProcess]:
    process = NotifierProcess()
    yield process
    process.close()


PATIENT = "cto=600&rto=600"
"""Parameters of an Apprise URL: long time limits for connecting and answering."""


def request(url: str, key: str = "k", **more: Any) -> DeliveryRequest:
    return DeliveryRequest(key=key, url=url, title="title", body="body", footer="footer", type="failure", **more)


def test_concurrent_results(notifier: NotifierProcess) -> None:
    """Delivery, refusal (with status and Retry-After), no listener and an unknown service are reported concurrently."""
    dead = free_port()
    with web_server() as web, web_server() as busy:
        busy.respond = lambda _number: (429, {"Retry-After": "17"})
        good, rests, gone, odd = notifier.ask(
            request(f"json://127.0.0.1:{web.port}/token-1?{PATIENT}", "1"),
            request(f"json://127.0.0.1:{busy.port}/token-2?{PATIENT}", "2"),
            request(f"json://127.0.0.1:{dead}/token-3", "3"),
            request("nonsense://token-4", "4"),
        )
    assert (good["error"] is None, good["error"], good["retry_after_ms"]) == (True, None, None)
    assert web.messages[0]["message"] == "body\n\nfooter"
    assert (rests["error"] is None, rests["retry_after_ms"]) == (False, 17_000)
    assert "429" in rests["error"] or "Many" in rests["error"]
    assert (gone["error"] is None, gone["retry_after_ms"]) == (False, None)
    assert odd["error"] == "Apprise does not support the URL"
    assert not any("token" in frame["error"] for frame in (rests, gone, odd))


@pytest.mark.parametrize(("status", "refused"), [(400, True), (413, True), (422, True), (403, False), (500, False)])
def test_refusal_of_one_message(notifier: NotifierProcess, status: int, refused: bool) -> None:
    """Statuses that refuse the contents of a message are told from those that concern all messages."""
    with web_server() as web:
        web.respond = lambda _number: (status, {})
        (result,) = notifier.ask(request(f"json://127.0.0.1:{web.port}/x?{PATIENT}"))
    assert (result["error"] is None, result["refused"]) == (False, refused)


@pytest.mark.parametrize(("reply", "refused"), [("552 too big", True), ("554 spam", True), ("451 try later", False)])
def test_refusal_by_a_mail_server(notifier: NotifierProcess, reply: str, refused: bool) -> None:
    """The answer of a mail server is the reason, and tells a refused message from a server that cannot take any."""
    with mail_server() as mail:
        mail.reply = reply
        (result,) = notifier.ask(request(f"mailto://127.0.0.1:{mail.port}?from=a@example.com&to=b@example.com"))
    assert result["error"] is not None
    assert reply in result["error"]
    assert result["refused"] == refused


def test_redirect_that_loses_the_message(notifier: NotifierProcess) -> None:
    """A redirect that only a GET without the message can follow is a failure, unless it is a form's own thanks."""
    with web_server() as web, web_server() as other:
        answer = []
        for status, place in (
            (301, "/moved"),
            (302, f"http://127.0.0.1:{other.port}/login"),
            (302, "/thanks"),
            (308, f"http://127.0.0.1:{other.port}/moved"),
        ):
            answers = {len(web.requests): (status, {"Location": place})}
            web.respond = partial(lambda answers, number: answers.get(number, (200, {})), answers)
            answer += notifier.ask(request(f"json://127.0.0.1:{web.port}/token-1?{PATIENT}"))
        assert [frame["error"] is None for frame in answer] == [False, False, True, True]
        assert "301" in answer[0]["error"]
        assert "token" not in answer[0]["error"]
        assert other.messages[0]["message"] == "body\n\nfooter"


def test_redirect_of_a_put(notifier: NotifierProcess) -> None:
    """A redirected PUT loses its message, even if it stays a PUT, and is a failure."""
    with web_server() as web, web_server() as other:
        answer = []
        for status in (302, 301):
            place = {"Location": f"http://127.0.0.1:{other.port}/moved"}
            web.respond = partial(lambda status, place, _number: (status, place), status, place)
            answer += notifier.ask(request(f"json://127.0.0.1:{web.port}/token-1?method=put&{PATIENT}"))
        assert [(method, body is not None) for method, _, body in other.requests] == [("GET", False), ("PUT", False)]
    assert [frame["error"] is None for frame in answer] == [False, False]


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirect_to_another_host(notifier: NotifierProcess, status: int) -> None:
    """Neither a message nor a ping follows such a redirect; the error names the host and no part of the URL."""
    with web_server() as web, web_server() as other:
        web.respond = lambda _number: (status, {"Location": f"http://localhost:{other.port}/moved"})
        answer = notifier.ask(
            request(f"json://127.0.0.1:{web.port}/token-1?+X-Key=token-2&{PATIENT}", "1"),
            PingRequest(key="2", url=f"http://127.0.0.1:{web.port}/token-1"),
        )
        assert other.requests == []
    for frame in answer:
        assert frame["error"] is not None
        assert f"status {status} redirects to another host (localhost)" in frame["error"]
        assert "token" not in frame["error"]


def test_redirect_to_another_scheme(notifier: NotifierProcess) -> None:
    """A redirect to another scheme is not followed, even on the same host."""
    with web_server() as web:
        web.respond = lambda _number: (308, {"Location": f"https://127.0.0.1:{web.port}/moved"})
        answer = notifier.ask(
            request(f"json://127.0.0.1:{web.port}/x?{PATIENT}", "1"),
            PingRequest(key="2", url=f"http://127.0.0.1:{web.port}/x"),
        )
        assert set(web.paths) == {"/x"}
    assert [frame["error"] is None for frame in answer] == [False, False]
    assert all("redirects from http to https" in frame["error"] for frame in answer)


def test_redirect_on_the_same_host(notifier: NotifierProcess) -> None:
    """Such a redirect is followed with the message, but without the URL's headers, user and password."""
    with web_server() as web:
        web.respond = lambda number: (308, {"Location": "/moved"}) if number % 2 == 0 else (200, {})
        (sent,) = notifier.ask(request(f"json://user:secret@127.0.0.1:{web.port}/x?+X-Key=token&{PATIENT}"))
        (pinged,) = notifier.ask(PingRequest(key="2", url=f"http://127.0.0.1:{web.port}/x"))
        assert (sent["error"] is None, pinged["error"] is None) == (True, True)
        assert web.paths == ["/x", "/moved"] * 2
        assert web.messages[1]["message"] == "body\n\nfooter"
        first, second = web.headers[:2]
        assert {"x-key", "authorization"} <= set(first)
        assert not {"x-key", "authorization"} & set(second)
        assert second["content-type"] == "application/json"


def test_retry_after_dates() -> None:
    """Dates of Retry-After are in UTC, whatever the host's time zone, even in old forms that do not say so."""
    dates = ["Mon, 23 Nov 2026 17:00:00 GMT", "Monday, 23-Nov-26 17:00:00 GMT", "Mon Nov 23 17:00:00 2026"]
    code = "import sys\nfrom supervisor.helpers.retry_after import retry_after_ms\n"
    code += "print(*(retry_after_ms(date, 1_795_449_600) for date in sys.argv[1:]))"
    argv = [sys.executable, "-I", "-c", code, *dates]
    out = subprocess.run(argv, env={"TZ": "America/New_York"}, capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["3600000"] * 3


def test_pings(notifier: NotifierProcess) -> None:
    """A failed ping is repeated, up to three attempts in all."""
    with web_server() as web:
        web.respond = lambda number: (200 if number in (0, 2) else 500, {})
        url = f"http://127.0.0.1:{web.port}/secret-x"
        (first,) = notifier.ask(PingRequest(key="a", url=url))
        (second,) = notifier.ask(PingRequest(key="b", url=url))
        web.respond = lambda _number: (404, {})
        (third,) = notifier.ask(PingRequest(key="c", url=url))
    assert [frame["error"] is None for frame in (first, second, third)] == [True, True, False]
    assert third["error"] == "the server answered with status 404"
    assert len(web.requests) == 1 + 2 + 3


def test_apprise_is_loaded_late() -> None:
    """Neither a notifier that only pings nor the scheduler loads Apprise."""
    code = "import supervisor.helpers.notifier.__main__, supervisor.scheduler.__main__, sys; print(*sys.modules)"
    out = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    assert "supervisor.helpers.notifier.request_runner" in out.stdout.split()
    assert not {"apprise", "requests", "yaml", "markdown"} & set(out.stdout.split())


def test_last_lines(tmp_path: Path) -> None:
    """A message has at most twenty lines of all streams, system lines in brackets, without control sequences."""
    ring, file = str(tmp_path / "ring"), str(tmp_path / "log")
    assert not last_lines(ring, file).lines
    assert last_lines(None, None) == Output()
    writer = RingWriter.new(ring, "D", RingShape(0))
    for number in range(30):
        writer.append(STDERR if number % 2 else STDOUT, f"line {number}\n".encode(), 1)
    writer.append(SYSTEM, b"stopping\n", 2)
    writer.append(STDOUT, b"\x1b[31mred\t" + b"x" * 1000 + b"\n", 3)
    output = last_lines(ring, file)
    words = output.lines
    assert output.before == 12
    assert len(words) == 20
    assert words[0] == "line 12"
    assert words[-2] == "[stopping]"
    assert words[-1].startswith("red ")
    assert len(words[-1]) == 300
    writer.seal(4)
