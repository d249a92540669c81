"""Commands that get invalid answers from another program in place of the daemon."""

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from supervisor.cli import exit_codes
from tests.support.command_line import Ringward
from tests.support.fake_daemon import RUN, Answer, FakeDaemon, Request, event, events, line, run

AT = "2026-11-21T03:00:00.000Z"
RECORD = run(retryAttempt=1)
TASK = {
    "name": "job",
    "kind": "task",
    "active": {"running": 1, "pending": 1},
    "lastRun": {"status": "ended", "endReason": "failed", "exitCode": 1, "startedAt": AT},
    "nextRunAt": AT,
    "state": "idle",
    "rolling": {"done": 1, "total": 2},
    "instances": [{"index": 0, "state": "running", "runId": RUN, "detail": "warm", "ready": False}],
    "definition": {"gracefulStopMs": 1, "dependsOn": [{"name": "job"}], "ready": {"timeoutMs": 1}},
}
SERVICE = {**TASK, "name": "web", "kind": "service"}
UNITS = {"affected": 1, "units": [{"name": "web", "result": "restarted", "runIds": [RUN]}]}
WAITS = {"kind": "slot", "name": "db", "heldBy": [{"taskName": "job"}]}
PAGE = {"items": [RECORD], "total": 1}
LINES = {"lines": [line(0, "one")], "totalLines": 1}
ENDING = {
    "reason": "failed",
    "exitCode": 1,
    "signal": "SIGTERM",
    "lastLines": LINES["lines"],
    "startedBy": "me",
    "requestedBy": "you",
    "scheduledFor": AT,
    "missedCount": 1,
    "failureLine": 7,
    "retryAt": AT,
    "killedLeftovers": ["sh"],
}
DAEMON = {
    "version": "1",
    "hostname": "h",
    "startedAt": AT,
    "configPath": "/c",
    "configStale": False,
    "schedulerActive": True,
    "configWarnings": ["w"],
    "configAdvice": ["w"],
}
TOKEN = {
    "name": "t",
    "role": "admin",
    "tasks": "*",
    "expired": False,
    "expiresAt": AT,
    "lastUsedAt": AT,
    "createdAt": AT,
    "createdBy": "me",
    "token": "secret",
}
ENTRY = {"at": AT, "who": "me", "from": "::1", "operation": "x", "target": "y", "status": 200, "reason": "z"}
STREAM = [
    ("region", {"stream": "stdout", "rows": ["50 %"]}),
    ("dropped", {"after": -1, "count": 1}),
    ("line", line(1, "two")),
]
UNIT_LOG = [
    ("run", {"r": 0, "runId": RUN, "taskName": "job", "instanceIndex": 0}),
    ("gap", {"r": 0, "after": -1, "count": 1}),
    ("lines", [{"r": 0, **line(1, "two")}]),
    ("end", {"r": 0}),
]
NOTHING = Answer(204)
ANSWERS: dict[tuple[str, str], Any] = {
    ("GET", "/readyz"): {"status": "ok"},
    ("GET", "/api/daemon"): DAEMON,
    ("GET", "/api/tasks"): {"items": [TASK, SERVICE]},
    ("GET", "/api/tasks/job"): TASK,
    ("GET", "/api/tasks/web"): SERVICE,
    ("GET", "/api/tasks/job/runs"): PAGE,
    ("GET", "/api/tasks/web/runs"): PAGE,
    ("GET", "/api/tasks/job/schedule"): {"items": [{"at": AT, "startsAt": AT, "local": AT, "note": "gap"}]},
    ("GET", "/api/tasks/job/log/search"): {"items": [{"runId": RUN, "n": 1, "text": "x"}]},
    ("POST", "/api/tasks/job/run"): RECORD,
    **{("POST", f"/api/units/{action}"): UNITS for action in ("start", "stop", "restart", "pause", "resume")},
    ("GET", "/api/runs"): {"runs": [RECORD], "total": 1, "details": {RUN: {"waitingFor": [WAITS]}}},
    ("GET", "/api/runs/summary"): {"total": 1, "failed": 1, "missed": 1},
    ("GET", f"/api/runs/{RUN}"): RECORD,
    ("GET", f"/api/runs/{RUN}/ending"): ENDING,
    ("GET", f"/api/runs/{RUN}/definition"): {"definition": {"run": "true", "timeoutMs": 1}},
    ("GET", f"/api/runs/{RUN}/log"): LINES,
    ("GET", f"/api/runs/{RUN}/log/stream"): STREAM,
    ("GET", "/api/logs/stream"): UNIT_LOG,
    ("GET", "/api/tasks/job/log/stream"): UNIT_LOG,
    ("GET", "/api/logs/search"): {"items": [{"taskName": "job", "runId": RUN, "n": 1, "text": "x"}]},
    ("POST", f"/api/runs/{RUN}/stop"): NOTHING,
    ("POST", "/api/runs/bulk/delete"): {"affected": 1},
    ("POST", "/api/runs/bulk/restore"): {"affected": 1},
    ("POST", "/api/runs/bulk/rerun"): {"triggered": [{"run_id": RUN, "task_name": "job"}]},
    ("GET", "/api/tokens"): {"items": [TOKEN]},
    ("POST", "/api/tokens"): TOKEN,
    ("DELETE", "/api/tokens/t"): NOTHING,
    ("DELETE", "/api/users/anna"): NOTHING,
    ("POST", "/api/daemon/trust-clock"): NOTHING,
    ("POST", "/api/tasks/job/unacknowledge"): NOTHING,
    ("GET", "/api/audit"): {"items": [ENTRY]},
    ("POST", "/api/notifiers/ops/test"): {"delivered": False, "error": "no"},
    ("POST", "/api/daemon/reload"): {
        "added": ["a"],
        "changed": [{"name": "b", "reasons": ["c"]}],
        "removed": ["d"],
        "warnings": ["e"],
    },
    ("GET", "/api/local/credentials"): {"password": "secret"},
}
COMMANDS = (
    "health",
    "status",
    "ps",
    "runs",
    "runs job",
    f"ending {RUN}",
    f"ending --definition {RUN}",
    "next",
    "next job",
    "search job x",
    "search x",
    "run job",
    "run -d job",
    "logs -f job",
    "logs -n 2 job",
    "logs -n 2 job web",
    f"logs -n 2 --timestamps {RUN}",
    f"stop --no-wait {RUN}",
    "stop --no-wait job",
    "stop --timeout 0 web",
    "start --no-wait --json web",
    "restart --timeout 0 web",
    "wait --timeout 0 web job",
    "pause job",
    "resume job",
    f"rm {RUN}",
    "rm -n --all",
    f"restore {RUN}",
    f"rerun {RUN}",
    "token list",
    "token create t --role admin",
    "token revoke t",
    "user rm anna",
    "trust-clock",
    "ack --undo job",
    "audit",
    "notify test ops",
    "reload",
    "password",
)
WRONG: tuple[Any, ...] = (5, "\ud800", -(1 << 70), [5], {})
BODIES = (b"", b'{"items": 5}', b"[]", b"<html>", b"[" * 100_000, b'{"items": [5], "id": ' + b"9" * 5000 + b"}")
DOCUMENTED = set(exit_codes.MEANINGS)


def answer(body: Any) -> Answer:
    if isinstance(body, Answer):
        return body
    if isinstance(body, list):
        return events(*(event(name, data, number) for number, (name, data) in enumerate(body)), event("done", {}))
    return Answer(200, json.dumps(body).encode())


def mutations(value: Any, wrongs: Iterator[Any]) -> Iterator[Any]:
    """Yield the value with each part missing or replaced by the next wrong one."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield {name: member for name, member in value.items() if name != key}
            yield from ({**value, key: wrong} for wrong in (next(wrongs), *mutations(part, wrongs)))
    elif isinstance(value, list | tuple):
        for number, part in enumerate(value):
            parts = mutations(part, wrongs) if isinstance(value, tuple) or not isinstance(part, str) else ()
            yield from (type(value)((*value[:number], part, *value[number + 1 :])) for part in parts)


@pytest.mark.parametrize("command", COMMANDS)
def test_invalid_answers(ringward: Ringward, daemon: FakeDaemon, command: str) -> None:
    """Any invalid JSON or wrong part of an answer is either harmless or reported with exit code 69."""
    keys: list[tuple[str, str]] = []
    replaced: dict[tuple[str, str], Answer] = {}

    def handle(request: Request) -> Answer:
        key = request.method, request.path
        keys.append(key)
        return replaced[key] if key in replaced else answer(ANSWERS[key])

    daemon.handlers.update(dict.fromkeys(ANSWERS, handle))
    well = ringward(*command.split())
    assert well.exit_code in (exit_codes.OK, exit_codes.REFUSED), well.output
    for key in dict.fromkeys(keys):
        stream = isinstance(ANSWERS[key], list)
        for body in () if stream else BODIES:
            replaced[key] = Answer(200, body)
            result = ringward(*command.split())
            assert result.exit_code == exit_codes.UNREACHABLE, (key, body[:50], result.output, result.exception)
            assert "not a Ringward daemon" in result.output, (key, body[:50])
        for changed in () if isinstance(ANSWERS[key], Answer) else mutations(ANSWERS[key], itertools.cycle(WRONG)):
            replaced[key] = answer(changed)
            result = ringward(*command.split())
            assert isinstance(result.exception, SystemExit | None), (key, changed, result.exception)
            assert result.exit_code in DOCUMENTED or command.startswith("run "), (key, changed, result.output)
        del replaced[key]


@pytest.mark.parametrize("command", ["ps", f"logs --raw {RUN}"])
def test_incomplete_answer(ringward: Ringward, daemon: FakeDaemon, command: str) -> None:
    """An incomplete answer is an error, even if its part is valid or a log."""
    daemon.on("GET", f"/api/runs/{RUN}", RECORD)
    daemon.on("GET", f"/api/runs/{RUN}/log/raw", Answer(200, b"one\n", "text/plain", broken=True))
    daemon.on("GET", "/api/tasks", Answer(200, b'{"items": []}', broken=True))
    result = ringward(*command.split())
    assert result.exit_code == exit_codes.UNREACHABLE
    assert "the connection to the daemon at" in result.stderr
