"""Guessing the password: ten tries a minute for each client, however the guesses come."""

import http.client

from tests.api.support.credentials import basic, cookie, login
from tests.api.support.harness import PASSWORD, Daemon


def test_wrong_passwords_are_limited(own: Daemon) -> None:
    """After ten in a minute 429 with Retry-After, also for the right one; the Unix socket goes on."""
    session = cookie(login(own))
    for number in range(10):
        answer = own.get("/api/runs", basic("wrong"), unix=False) if number % 2 else login(own, "wrong")
        assert answer.status == 401
    for answer in (own.get("/api/runs", basic(PASSWORD), unix=False), login(own)):
        assert answer.status == 429
        assert int(answer.headers["Retry-After"]) > 0
    assert own.scheduler.failures == {"127.0.0.1": 10}
    assert own.get("/api/runs", session, unix=False).status == 200
    assert own.get("/api/runs").status == 200


def test_shared_limit(daemon: Daemon) -> None:
    """Failures counted by other workers count, and the answer has the scheduler's waiting time."""
    daemon.scheduler.failures["127.0.0.1"] = 10
    answer = login(daemon)
    assert (answer.status, answer.headers["Retry-After"]) == (429, "42")


def test_limit_while_the_scheduler_is_away(own: Daemon) -> None:
    """A worker counts by itself, so that guessing is not free in the meantime; the right password works."""
    own.scheduler.operations["login_attempt"] = lambda _args: {"allowed": True, "retry_after_s": 0}
    assert own.get("/api/runs", basic(PASSWORD), unix=False).status == 200
    statuses = [own.get("/api/runs", basic("wrong"), unix=False).status for _ in range(11)]
    assert statuses == [401] * 10 + [429]


def test_all_of_loopback_is_one_client(own: Daemon) -> None:
    """Who is on this host can use each of its addresses: guesses from all of them count together."""
    statuses = []
    for number in range(1, 13):
        connection = http.client.HTTPConnection("127.0.0.1", own.port, source_address=(f"127.0.0.{number}", 0))
        connection.request("GET", "/api/runs", headers=basic("wrong"))
        statuses.append(connection.getresponse().status)
        connection.close()
    assert statuses == [401] * 10 + [429] * 2
