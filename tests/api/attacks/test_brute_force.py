"""Guessing the password: ten tries a minute for each client, however the guesses come."""

import http.client

from tests.api.support.credentials import basic, cookie, login
from tests.api.support.harness import PASSWORD, Daemon


def test_wrong_passwords_are_limited(own: Daemon) -> None:
    """After ten wrong passwords in a minute, even the right one gets 429; the Unix socket has no limit."""
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


def test_workers_share_the_limit(daemon: Daemon) -> None:
    """A worker counts the failures at other workers, and answers with the scheduler's waiting time."""
    daemon.scheduler.failures["127.0.0.1"] = 10
    answer = login(daemon)
    assert (answer.status, answer.headers["Retry-After"]) == (429, "42")


def test_limit_without_a_scheduler(own: Daemon) -> None:
    """Without a scheduler, each worker counts by itself, so guesses stay limited; the right password works."""
    own.scheduler.operations["login_attempt"] = lambda _args: {"allowed": True, "retry_after_s": 0}
    assert own.get("/api/runs", basic(PASSWORD), unix=False).status == 200
    statuses = [own.get("/api/runs", basic("wrong"), unix=False).status for _ in range(11)]
    assert statuses == [401] * 10 + [429]


def test_loopback_addresses_share_one_limit(own: Daemon) -> None:
    """Guesses from all loopback addresses count together, because a local process can use any of them."""
    statuses = []
    for number in range(1, 13):
        connection = http.client.HTTPConnection("127.0.0.1", own.port, source_address=(f"127.0.0.{number}", 0))
        connection.request("GET", "/api/runs", headers=basic("wrong"))
        statuses.append(connection.getresponse().status)
        connection.close()
    assert statuses == [401] * 10 + [429] * 2
