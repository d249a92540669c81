"""POST /api/hooks/{hookName}."""

import base64
import hmac
import json
import time
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.api.support.client import Answer
from tests.api.support.credentials import JSON, basic, bearer, make_token
from tests.api.support.fake_scheduler import Refusal
from tests.api.support.harness import PASSWORD, Daemon
from tests.api.support.records import make_run
from tests.support.waiting import until

SECRET = "a secret of the sender"
BODY: dict[str, Any] = {
    "ref": "refs/heads/main",
    "after": None,
    "forced": True,
    "size": 3,
    "share": 0.5,
    "commits": [{"id": "4f2a", "added": ["x"]}],
    "repository": {"full_name": "shop/web"},
}


def define(daemon: Daemon, kind: str = "github", **fields: Any) -> None:
    events = {"github": ["push"], "gitlab": ["Push Hook"], "generic": []}[kind]
    plain = {"task": "job", "kind": kind, "secret": SECRET, "events": events, "when": [], "params": {}}
    daemon.scheduler.hooks["ci"] = {**plain, **fields}


def signature(body: bytes, secret: str = SECRET) -> dict[str, str]:
    return {"X-Hub-Signature-256": f"sha256={hmac.digest(secret.encode(), body, 'sha256').hex()}"}


def github(daemon: Daemon, document: Any = BODY, event: str = "push", **headers: str) -> Answer:
    body = json.dumps(document).encode()
    return daemon.ask(
        "POST", "/api/hooks/ci", body, {**JSON, "X-GitHub-Event": event, **signature(body), **headers}, unix=False
    )


def triggers(daemon: Daemon) -> list[dict[str, Any]]:
    return [args for op, args in daemon.scheduler.calls if op == "trigger"]


def test_github_push(daemon: Daemon) -> None:
    """A signed push gets 202 with the run, which records the hook's name."""
    define(daemon)
    answer = github(daemon)
    assert answer.status == 202
    (trigger,) = triggers(daemon)
    run_id = answer.json["id"]
    assert (trigger["run"], trigger["task"], trigger["triggered_by"], trigger["by"]) == (
        run_id,
        "job",
        "api",
        "hook:ci",
    )
    assert answer.headers["Location"] == f"/api/runs/{run_id}"
    assert answer.json["triggered_by"] == "api"
    entry = until(
        lambda: [audited for audited in daemon.scheduler.audit if run_id in audited.reason], "the audit entry"
    )[0]
    assert (entry.who, entry.operation, entry.target, entry.status) == ("hook:ci", "receiveHook", "job", 202)


def test_form_encoded_push(daemon: Daemon) -> None:
    """GitHub may send the document as the field ``payload`` of a form; other kinds may not."""
    define(daemon, params={"ref": ["ref"]})
    body = urlencode({"payload": json.dumps({"ref": "refs/heads/ü&+ %"})}).encode()
    form = {"Content-Type": "application/x-www-form-urlencoded", "X-GitHub-Event": "push"}
    answer = daemon.ask("POST", "/api/hooks/ci", body, {**form, **signature(body)})
    assert answer.status == 202
    assert triggers(daemon)[-1]["params"] == {"ref": "refs/heads/ü&+ %"}
    other = b"load=%7B%7D"
    answer = daemon.ask("POST", "/api/hooks/ci", other, {**form, **signature(other)})
    assert (answer.status, answer.json["errors"][0]["location"]) == (422, "body.payload")
    define(daemon, "generic")
    assert daemon.ask("POST", "/api/hooks/ci", body, {**form, **signature(body)}).status == 415


def test_gitlab(daemon: Daemon) -> None:
    """GitLab sends the secret, and a key that is the same in repeated deliveries."""
    define(daemon, "gitlab")
    sent = {**JSON, "X-Gitlab-Event": "Push Hook", "X-Gitlab-Token": SECRET}
    assert daemon.ask("POST", "/api/hooks/ci", b"{}", sent).status == 202
    assert "key" not in triggers(daemon)[-1]
    for key in ("one", "one", "two"):
        assert daemon.ask("POST", "/api/hooks/ci", b"{}", {**sent, "Idempotency-Key": key}).status == 202
    first, again, other = (args["key"] for args in triggers(daemon)[1:])
    assert (first == again, first == other) == (True, False)
    assert daemon.ask("POST", "/api/hooks/ci", b"{}", {**sent, "X-Gitlab-Event": "Tag Push Hook"}).status == 204


def test_bearer_token_without_a_body(daemon: Daemon) -> None:
    """A generic hook accepts its secret as a bearer token, and needs no body."""
    define(daemon, "generic")
    assert daemon.ask("POST", "/api/hooks/ci", headers=bearer(SECRET)).status == 202


def standard(body: bytes, at_s: float, message: str = "msg_1") -> dict[str, str]:
    signed = f"{message}.{at_s:.0f}.".encode() + body
    digest = base64.b64encode(hmac.digest(SECRET.encode(), signed, "sha256")).decode()
    return {
        **JSON,
        "webhook-id": message,
        "webhook-timestamp": f"{at_s:.0f}",
        "webhook-signature": f"v1,{digest}",
    }


def test_standard_webhooks(daemon: Daemon) -> None:
    """The id of a signed message is its key, and an old message is refused."""
    define(daemon, "generic")
    now_s = time.time()
    for at_s, message in ((now_s, "msg_1"), (now_s + 60, "msg_1"), (now_s, "msg_2")):
        assert daemon.ask("POST", "/api/hooks/ci", b"{}", standard(b"{}", at_s, message)).status == 202
    first, again, other = (args["key"] for args in triggers(daemon))
    assert (first == again, first == other) == (True, False)
    for at_s in (now_s - 400, now_s + 400):
        answer = daemon.ask("POST", "/api/hooks/ci", b"{}", standard(b"{}", at_s), unix=False)
        assert answer.status == 401
        assert "5 minutes" in answer.json["detail"]
    assert len(triggers(daemon)) == 3
    assert daemon.scheduler.failures == {}


@pytest.mark.parametrize("name", ["ci", "unknown"])
def test_wrong_secrets(own: Daemon, name: str) -> None:
    """An unknown hook and a wrong secret get the same answer, and after ten failures 429, unlike the right secret."""
    for kind in ("github", "gitlab", "generic"):
        define(own, kind)
        for body, headers in (
            (b"no JSON", {"Content-Type": "text/plain"}),
            (b"{}", {**JSON, **signature(b"{}", "another secret")}),
            (b"{}", {**JSON, "X-Gitlab-Token": "x", **bearer("x"), "X-GitHub-Event": "ping"}),
        ):
            answer = own.ask("POST", f"/api/hooks/{name}", body, headers, unix=False)
            assert answer.status == 401
            assert answer.json["detail"] == "There is no such hook, or the signature or token is wrong"
            assert answer.headers["WWW-Authenticate"] == 'Bearer realm="ringward"'
    assert triggers(own) == []
    assert own.scheduler.failures == {"hooks 127.0.0.1": 9}
    assert own.ask("POST", "/api/hooks/ci", b"", bearer("x"), unix=False).status == 401
    limited = own.ask("POST", f"/api/hooks/{name}", b"", bearer("x"), unix=False)
    assert (limited.status, int(limited.headers["Retry-After"]) <= 60) == (429, True)
    assert own.ask("POST", "/api/hooks/ci", b"", bearer(SECRET), unix=False).status == 202
    assert own.get("/api/tasks", basic(PASSWORD), unix=False).status == 200


def test_refusals_are_audited(daemon: Daemon) -> None:
    """The audit has the requested name and the client."""
    assert daemon.ask("POST", "/api/hooks/unlisted", b"", bearer("x"), unix=False).status == 401
    entry = until(
        lambda: [audited for audited in daemon.scheduler.audit if audited.target == "unlisted"], "the audit entry"
    )[0]
    assert (entry.who, entry.address, entry.operation, entry.status) == ("", "127.0.0.1", "receiveHook", 401)
    assert entry.failed_login


def test_no_other_credential_counts(daemon: Daemon) -> None:
    """A password, a token or the trusted peer does not replace the secret of a hook."""
    define(daemon, "generic")
    for headers in ({}, basic(PASSWORD), bearer(make_token(daemon, "hooks", "admin"))):
        assert daemon.ask("POST", "/api/hooks/ci", b"", headers).status == 401
    assert triggers(daemon) == []


def test_secret_is_not_a_token(daemon: Daemon) -> None:
    """The secret of a hook is not accepted as a token."""
    define(daemon, "generic")
    assert daemon.ask("POST", "/api/tasks/job/run", headers=bearer(SECRET), unix=False).status == 401


def test_host_is_checked(daemon: Daemon) -> None:
    """A request with a foreign Host is refused first; an origin does not matter."""
    define(daemon, "generic")
    foreign = {**bearer(SECRET), "Host": "evil.example"}
    assert daemon.ask("POST", "/api/hooks/ci", b"", foreign, unix=False).status == 421
    other_page = {**bearer(SECRET), "Origin": "https://gitlab.example", "Sec-Fetch-Site": "cross-site"}
    assert daemon.ask("POST", "/api/hooks/ci", b"", other_page, unix=False).status == 202


def test_events(daemon: Daemon) -> None:
    """A ping and unlisted events get 204 and start nothing; a request without an event gets 422."""
    define(daemon)
    for event in ("ping", "issues", "pushed"):
        answer = github(daemon, event=event)
        assert (answer.status, answer.body) == (204, b"")
    body = b"{}"
    answer = daemon.ask("POST", "/api/hooks/ci", body, {**JSON, **signature(body)})
    assert (answer.status, answer.json["errors"][0]["location"]) == (422, "header.X-GitHub-Event")
    assert triggers(daemon) == []


@pytest.mark.parametrize(
    ("path", "accepted", "status"),
    [
        (["ref"], ["refs/heads/main"], 202),
        (["ref"], ["refs/heads/other", "refs/heads/main"], 202),
        (["ref"], ["main"], 204),
        (["forced"], ["true"], 202),
        (["forced"], ["false"], 204),
        (["size"], ["3"], 202),
        (["commits", 0, "id"], ["4f2a"], 202),
        (["commits", 1, "id"], ["4f2a"], 204),
        (["commits", "id"], ["4f2a"], 204),
        (["ref", 0], ["r"], 204),
        (["after"], ["null"], 204),
        (["repository"], ["{}"], 204),
        (["gone", "deeper"], [""], 204),
    ],
)
def test_conditions(daemon: Daemon, path: list[str | int], accepted: list[str], status: int) -> None:
    """A run starts only if the value at each path is one of the accepted values."""
    define(daemon, when=[[path, accepted]])
    assert github(daemon).status == status
    define(daemon, when=[[path, accepted], [["size"], ["4"]]])
    assert github(daemon).status == 204


def test_parameters(daemon: Daemon) -> None:
    """Strings become parameters unchanged, numbers and booleans as JSON; a missing field gives no value."""
    paths = {"ref": ["ref"], "forced": ["forced"], "size": ["size"], "share": ["share"], "id": ["commits", 0, "id"]}
    define(daemon, params={**paths, "after": ["after"], "gone": ["gone", 3]})
    assert github(daemon).status == 202
    assert triggers(daemon)[-1]["params"] == {
        "ref": "refs/heads/main",
        "forced": "true",
        "size": "3",
        "share": "0.5",
        "id": "4f2a",
    }


def test_unusable_parameter_values(daemon: Daemon) -> None:
    """Objects, arrays and values that the task refuses are refused, and each is named."""
    define(daemon, params={"a": ["commits"], "b": ["repository"], "c": ["ref"]})
    answer = github(daemon)
    assert answer.status == 422
    assert {error["location"] for error in answer.json["errors"]} == {"params.a", "params.b"}

    def refuse(_args: dict[str, Any]) -> dict[str, Any]:
        raise Refusal(422, "Invalid parameters for job", [{"location": "body.params.c", "message": "is required"}])

    daemon.scheduler.operations["trigger"] = refuse
    define(daemon, params={"c": ["ref"]})
    answer = github(daemon)
    assert (answer.status, answer.json["errors"]) == (422, [{"location": "params.c", "message": "is required"}])


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", {}, 400),
        (b"[" * 100_000, {}, 400),
        (b'{"a": "\\ud800"}', {}, 422),
        (b"{}", {"Content-Type": "text/plain"}, 415),
        (b"{}", {"Content-Encoding": "gzip"}, 415),
        (b'"' + b"x" * (1 << 20) + b'"', {}, 413),
    ],
)
def test_invalid_bodies(daemon: Daemon, body: bytes, headers: dict[str, str], status: int) -> None:
    """An invalid body is refused as in other operations."""
    define(daemon)
    sent = {**JSON, "X-GitHub-Event": "push", **signature(body), **headers}
    answer = daemon.ask("POST", "/api/hooks/ci", body, sent)
    assert (answer.status, answer.media_type) == (status, "application/problem+json")
    assert triggers(daemon) == []


def test_large_push(daemon: Daemon) -> None:
    """A body of a megabyte with many thousand objects is accepted, because a push may list that many files."""
    define(daemon, params={"last": ["commits", 9999, "id"]})
    commits = [{"id": f"{number:040x}", "added": [], "by": {"name": "x"}} for number in range(10_000)]
    assert github(daemon, {"commits": commits}).status == 202
    assert triggers(daemon)[-1]["params"] == {"last": f"{9999:040x}"}


def test_repeated_signature(daemon: Daemon) -> None:
    """The scheduler gets the signature as the run's key, by which it recognises a repeated delivery."""
    define(daemon)
    run = daemon.insert(make_run(task="job"))
    seen: list[dict[str, Any]] = []

    def answer_again(args: dict[str, Any]) -> dict[str, Any]:
        seen.append(args)
        return {"run": run.id}

    daemon.scheduler.operations["trigger"] = answer_again
    for document in (BODY, BODY, {}):
        answer = github(daemon, document)
        assert (answer.status, answer.json["id"]) == (202, run.id)
    assert [args["key"] == seen[0]["key"] for args in seen] == [True, True, False]
    assert {args["request"] for args in seen} == {"github"}
    assert SECRET not in str(seen)


def test_without_a_scheduler(own: Daemon) -> None:
    """Without a scheduler, the answer is 503, so that the sender tries again."""
    define(own)
    own.scheduler.stop()
    assert github(own).status == 503
    own.scheduler.start()
    assert github(own).status == 202
