"""Large bodies, which are looked at beside the loop."""

from typing import Any

import falcon.testing
import gevent
import pytest

from api.errors import ApiError
from api.operations import body
from api.operations.body import BodyBudget
from api.schemas.access import NewToken
from tests.support.waiting import until


def request_of(fields: int) -> falcon.Request:
    text = ",".join(f'"a{number}":1' for number in range(fields))
    headers = {"Content-Type": "application/json"}
    request = falcon.testing.create_req(method="POST", body="{" + text + "}", headers=headers)
    request.env["ringward.awaits_continue"] = False
    return request


def decode(request: falcon.Request, budget: BodyBudget) -> None:
    with budget.holding() as take:
        body.decode(request, NewToken, required=True, limit_bytes=1 << 24, take=take, thread=budget.thread)


def test_checking_a_large_body_does_not_block_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A million errors in a body are found while the loop serves others, and only some are listed."""
    request = request_of(300_000)
    turns: list[int] = []
    decoded = body._decoded

    def waiting(*args: Any) -> Any:
        try:
            return decoded(*args)
        finally:
            until(lambda: len(turns) > 5, "turns of the loop")

    def beat() -> None:
        while True:
            turns.append(1)
            gevent.sleep(0.001)

    monkeypatch.setattr(body, "_decoded", waiting)
    heart = gevent.spawn(beat)
    try:
        with pytest.raises(ApiError) as caught:
            decode(request, BodyBudget(1 << 24))
    finally:
        heart.kill()
    assert caught.value.status == 422
    assert len(caught.value.errors or ()) == 10_000


def test_large_bodies_are_checked_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large bodies are checked one at a time, because each check shares the interpreter with the loop."""
    budget, inside, most = BodyBudget(1 << 24), [], []
    decoded = body._decoded

    def watched(*args: Any) -> Any:
        inside.append(1)
        most.append(len(inside))
        try:
            return decoded(*args)
        finally:
            inside.pop()

    def ask() -> None:
        with pytest.raises(ApiError):
            decode(request_of(100_000), budget)

    monkeypatch.setattr(body, "_decoded", watched)
    gevent.joinall([gevent.spawn(ask) for _ in range(8)], raise_error=True)
    assert most == [1] * 8
