"""Commands to many units, up to the scheduler."""

import json
import os
from typing import Any

import pytest

from tests.api.support.client import Answer
from tests.api.support.credentials import bearer, make_token
from tests.api.support.fake_scheduler import Refusal
from tests.api.support.harness import Daemon
from tests.support.waiting import until

VERBS = ("start", "stop", "restart", "pause", "resume", "enable")
JSON = {"Content-Type": "application/json"}


def ask(daemon: Daemon, verb: str, body: Any, headers: dict[str, str] | None = None, **more: Any) -> Answer:
    return daemon.ask("POST", f"/api/units/{verb}", json.dumps(body), JSON | (headers or {}), **more)


@pytest.mark.parametrize("verb", VERBS)
def test_scheduler_gets_the_selector(daemon: Daemon, verb: str) -> None:
    """The scheduler resolves the selector, and its results are the answer."""
    units = [["web", "unchanged", []], ["worker", "restarted", ["01ARZ3NDEKTSV4RRFFQ69G5FAV"]], ["busy", "busy", []]]
    daemon.scheduler.operations["units"] = lambda _args: {"units": units}
    answer = ask(daemon, verb, {"names": ["web", "w*"], "group": "shop", "tag": "eu"})
    assert answer.status == 200
    assert answer.json["affected"] == 1
    assert [(unit["name"], unit["result"]) for unit in answer.json["units"]] == [(name, how) for name, how, _ in units]
    assert ("runIds" in answer.json["units"][1]) == (verb in ("stop", "restart"))
    operation, arguments = daemon.scheduler.calls[-1]
    assert len(arguments.pop("command")) == 32
    assert operation == "units"
    assert arguments == {
        "verb": verb,
        "names": ["web", "w*"],
        "group": "shop",
        "tag": "eu",
        "reach": None,
        "by": f"uid {os.getuid()}",
        "rolling": False,
        "force": False,
    }


def test_disabled_services(daemon: Daemon) -> None:
    """A stop may disable services, with a note, and a start may enable them; a note alone is an error."""
    assert ask(daemon, "stop", {"names": ["web"], "disable": True, "note": "a disk"}).status == 200
    arguments = daemon.scheduler.calls[-1][1]
    assert (arguments["disable"], arguments["note"]) == (True, "a disk")
    assert ask(daemon, "start", {"names": ["web"], "enable": True}).status == 200
    assert daemon.scheduler.calls[-1][1]["enable"] is True
    answer = ask(daemon, "stop", {"names": ["web"], "note": "a disk"})
    assert answer.status == 422
    assert answer.json["errors"][0]["location"] == "body.note"


def test_flags(daemon: Daemon) -> None:
    """A restart may be rolling, a stop may be forced; other commands take no such parameter."""
    for path, flag in (("restart?rolling=true", "rolling"), ("stop?force=1", "force")):
        assert ask(daemon, path, {"all": True}).status == 200
        assert daemon.scheduler.calls[-1][1][flag] is True
    assert ask(daemon, "start?force=true", {"all": True}).status == 422
    assert ask(daemon, "stop?rolling=true", {"all": True}).status == 422


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("body", "location"),
    [
        ({}, "body"),
        ({"all": False}, "body"),
        ({"names": None, "group": None}, "body"),
        ({"names": []}, "body.names"),
        ({"names": [""]}, "body.names[0]"),
        ({"names": ["a b"]}, "body.names[0]"),
        ({"names": ["web", "x" * 101]}, "body.names[1]"),
        ({"names": ["*"] * 33}, "body.names"),
        ({"names": "web"}, "body.names"),
        ({"group": ""}, "body.group"),
        ({"all": True, "group": "shop"}, "body.all"),
        ({"all": True, "names": ["web"]}, "body.all"),
        ({"name": "web"}, "body.name"),
    ],
)
def test_empty_selectors(daemon: Daemon, verb: str, body: Any, location: str) -> None:
    """An empty or contradictory selector never means all: it gets 422, and the scheduler is not asked."""
    answer = ask(daemon, verb, body)
    assert (answer.status, [error["location"] for error in answer.json["errors"]]) == (422, [location])
    assert daemon.scheduler.calls == []


def test_without_a_body(daemon: Daemon) -> None:
    """A request without a body selects nothing."""
    assert daemon.ask("POST", "/api/units/stop").status in (400, 422)
    assert daemon.scheduler.calls == []


@pytest.mark.parametrize("status", [404, 409])
def test_refusals(daemon: Daemon, status: int) -> None:
    """The scheduler's refusal is the answer, with one element in ``errors`` for each wrong name."""
    errors = [{"location": "body.names[0]", "message": 'no service named "wbe" (did you mean "web"?)'}]

    def refuse(_args: dict[str, Any]) -> dict[str, Any]:
        raise Refusal(status, "No", errors)

    daemon.scheduler.operations["units"] = refuse
    answer = ask(daemon, "start", {"names": ["wbe"]})
    assert (answer.status, answer.json["errors"]) == (status, errors)


@pytest.mark.parametrize("verb", VERBS)
def test_required_role(daemon: Daemon, verb: str) -> None:
    """A viewer gets 403, and an operator succeeds."""
    for role, status in (("viewer", 403), ("operator", 200)):
        secret = make_token(daemon, f"{role}-{verb}-units", role)
        assert ask(daemon, verb, {"all": True}, bearer(secret), unix=False).status == status


def test_audit(own: Daemon) -> None:
    """An entry names the selected units, or the selector if it was refused."""
    assert ask(own, "stop", {"names": ["web", "worker"]}).status == 200

    def refuse(_args: dict[str, Any]) -> dict[str, Any]:
        raise Refusal(404, "No")

    own.scheduler.operations["units"] = refuse
    assert ask(own, "start", {"names": ["w*"], "group": "shop"}).status == 404
    entries = until(lambda: own.scheduler.audit[1:] and own.scheduler.audit, "the entries")
    assert [(entry.operation, entry.target, entry.status) for entry in entries] == [
        ("stopUnits", "web, worker", 200),
        ("startUnits", "w*, group shop", 404),
    ]
