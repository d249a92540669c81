"""Processes of the daemon that get no more memory (RLIMIT_AS).

Active runs continue, nothing is lost, and all processes recover.
"""

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.client import Answer
from tests.support.daemon import Daemon, program
from tests.support.waiting import until

pytestmark = pytest.mark.lent
LARGE = ", ".join(f'V{number} = "{"x" * 100_000}"' for number in range(16))
GONE = (ConnectionError, FileNotFoundError, TimeoutError)
"""A worker that hangs without memory answers nothing until its arbiter replaces it, after 30 s."""
_REPLACED_S = 150.0
_SPARE_BYTES = 2 << 20
"""Enough for a connection, but not for the stack of a thread."""


@contextlib.contextmanager
def short(process: psutil.Process, spare_bytes: int = 0) -> Iterator[None]:
    """Limit a process to the memory that it already has, and `spare_bytes`."""
    _, hard = resource.prlimit(process.pid, resource.RLIMIT_AS)
    resource.prlimit(process.pid, resource.RLIMIT_AS, (process.memory_info().vms + spare_bytes, hard))
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            resource.prlimit(process.pid, resource.RLIMIT_AS, (hard, hard))


def start(daemon: Daemon, side: Path) -> str:
    """Start the daemon with an active run; return the run."""
    daemon.write(
        f"[tasks.long]\nrun = {program('numbered', 1_000_000, 0.01, side)}\n"
        f'[tasks.t]\nrun = "echo hello"\nmax_concurrent = 10\n[tasks.large]\nrun = "true"\nenv = {{ {LARGE} }}\n'
    )
    daemon.start()
    run = daemon.trigger("long")
    until(lambda: daemon.texts(run), "the run")
    return run


def answer_to(daemon: Daemon, method: str, path: str) -> Answer | None:
    """Return the response; None if no server answered."""
    try:
        answer = daemon.request(method, path)
    except GONE:
        return None
    assert answer.status in (200, 201, 204, 503), answer.body
    assert answer.status != 503 or answer.headers["Retry-After"]
    return answer


def kinds(daemon: Daemon) -> list[str]:
    """Return the kinds of the notifications, newest first."""
    return [item["kind"] for item in daemon.get("/api/notifications").json()["items"]]


def all_is_well(daemon: Daemon, long: str, side: Path) -> None:
    """Check that the run still prints, can be stopped and has every line, and that other runs start."""
    until(daemon.ready, "the daemon to be ready")
    seen = len(daemon.texts(long))
    until(lambda: len(daemon.texts(long)) > seen, "another line")
    assert daemon.request("POST", f"/api/runs/{long}/stop").status == 204
    assert daemon.ended(long)["endReason"] == "stopped"
    printed = [f"line {number}" for number in side.read_text().split()]
    assert daemon.texts(long) in (printed, printed[:-1])
    again = daemon.ended(daemon.trigger("t"))
    assert (again["endReason"], daemon.texts(again["id"])) == ("succeeded", ["hello"])


def test_supervisor_short_of_memory_starts_nothing(daemon: Daemon, tmp_path: Path) -> None:
    """Without memory, the supervisor starts nothing, logs the cause, and keeps supervising; later it starts again."""
    side = tmp_path / "side"
    long, root = start(daemon, side), psutil.Process(daemon.pid)
    with short(root):
        waiting = daemon.trigger("t")
        notice = "out of memory: new runs wait until memory is available"
        until(lambda: notice in daemon.own_output(), "a word about it")
        until(lambda: daemon.get("/readyz").json()["status"] == "degraded", "/readyz to say so")
        until(lambda: "memory.short" in kinds(daemon), "the notification")
        assert daemon.run(waiting)["status"] == "pending"
        large = [answer_to(daemon, "POST", "/api/tasks/large/run") for _ in range(5)]
    until(daemon.ready, "the daemon to be ready")
    assert daemon.ended(waiting)["endReason"] == "succeeded"
    for answer in large:
        if answer is not None and answer.status == 201:
            assert daemon.ended(answer.json()["id"])["endReason"] in ("start_failed", "succeeded")
    all_is_well(daemon, long, side)
    assert root.is_running()
    until(lambda: "memory.recovered" in kinds(daemon), "the other notification")
    until(lambda: daemon.get("/readyz").json()["status"] == "ok", "/readyz to say so")


def test_scheduler_short_of_memory(daemon: Daemon, tmp_path: Path) -> None:
    """The scheduler continues or is replaced, and every accepted command is executed."""
    side = tmp_path / "side"
    long = start(daemon, side)
    scheduler = daemon.helper("ringward scheduler")
    with short(scheduler):
        answers = [answer_to(daemon, "POST", "/api/tasks/t/run") for _ in range(10)]
        answer_to(daemon, "POST", "/api/daemon/reload")
        until(daemon.ready, "the daemon to be ready")
        for answer in answers:
            if answer is not None and answer.status == 201:
                run = daemon.ended(answer.json()["id"])
                assert (run["endReason"], daemon.texts(run["id"])) == ("succeeded", ["hello"])
    all_is_well(daemon, long, side)


@pytest.mark.parametrize("which", ["worker", "gunicorn"])
def test_api_server_short_of_memory(daemon: Daemon, tmp_path: Path, which: str) -> None:
    """An API server that is short of memory recovers or is replaced: it answers reads, even of large responses."""
    side = tmp_path / "side"
    long = start(daemon, side)
    gunicorn = daemon.helper("ringward gunicorn")
    worker = gunicorn.children()[0]
    with short(worker if which == "worker" else gunicorn):
        if which == "gunicorn":
            worker.kill()
        log = f"/api/runs/{long}/log"
        for path in ("/api/runs?limit=1000", f"{log}?from=0", f"{log}/raw", "/api/system"):
            until(
                lambda path=path: (answer := answer_to(daemon, "GET", path)) and answer.status == 200,  # type: ignore[misc]
                path,
                _REPLACED_S,
            )
        all_is_well(daemon, long, side)


def test_refusing_worker_is_replaced(daemon: Daemon, tmp_path: Path) -> None:
    """A worker without the memory for an operation rejects it, and a new server soon answers it."""
    side = tmp_path / "side"
    long = start(daemon, side)
    gunicorn = daemon.helper("ringward gunicorn")
    before = gunicorn.children()[0]
    before.kill()  # the next one has not started the thread that /api/system needs
    until(lambda: before not in gunicorn.children() and daemon.ready(), "a fresh worker")
    worker = gunicorn.children()[0]
    with short(gunicorn), short(worker, _SPARE_BYTES):
        answer = answer_to(daemon, "GET", "/api/system")  # reads in a thread of its own
        assert answer is not None
        assert answer.status == 503
        assert worker.is_running()
        until(
            lambda: (reply := answer_to(daemon, "GET", "/api/system")) and reply.status == 200,
            "a new server",
            _REPLACED_S,
        )
        assert not gunicorn.is_running()
        assert "requests fail for lack of memory; a new API server starts" in daemon.own_output()
        all_is_well(daemon, long, side)
