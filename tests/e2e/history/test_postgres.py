"""The whole daemon on a real PostgreSQL server."""

import contextlib
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import psycopg
import pytest

from tests.support.daemon import WITH_EXTRAS, Daemon, command_lines
from tests.support.postgres import PASSWORD, PostgresServer
from tests.support.waiting import until

TASKS = """
[tasks.hello]
run = "echo hello; sleep 0.01"
[tasks.fails]
run = "exit 3"
[tasks.long]
run = "echo begun; exec sleep 600"
[tasks.env]
run = "env"
"""


class OnPostgres(Daemon):
    """A daemon whose database URL comes from the environment."""

    url = ""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.executable = WITH_EXTRAS

    def environment(self) -> dict[str, str]:
        return {**super().environment(), "DATABASE_URL": self.url, "PGPASSWORD": PASSWORD}

    def begin(self, text: str = TASKS) -> None:
        self.write(f'[storage]\ndatabase = "${{DATABASE_URL}}"\n{text}')
        self.start()


@contextlib.contextmanager
def on_postgres(directory: Path, postgres: PostgresServer) -> Iterator[OnPostgres]:
    cluster = OnPostgres(directory)
    cluster.url = postgres.create()
    try:
        yield cluster
    finally:
        cluster.clean()
        postgres.drop(cluster.url)


@pytest.fixture
def daemon(tmp_path: Path, postgres: PostgresServer) -> Iterator[OnPostgres]:
    with on_postgres(tmp_path, postgres) as made_one:
        yield made_one


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer) -> Iterator[OnPostgres]:
    """A running daemon, for tests that leave it without active runs."""
    with on_postgres(tmp_path_factory.mktemp("shared"), postgres) as made_one:
        made_one.begin()
        yield made_one


def page(daemon: Daemon, **query: str | int) -> tuple[list[str], int]:
    """Return the ids and the total of a list."""
    body = daemon.get(f"/api/tasks/hello/runs?{urlencode(query)}").json()
    return [run["id"] for run in body["items"] or []], body["total"]


def test_runs_lists_logs_and_deletion(shared: OnPostgres) -> None:
    """Triggered runs are listed, filtered, sorted, deleted and restored, with exact totals and whole logs."""
    assert shared.get("/api/daemon").json()["store"] == "postgresql"
    assert not (shared.data / "ringward.db").exists()
    assert shared.request("POST", "/api/runs/bulk/delete", {"match_all": True}).status == 200  # those of other tests
    ids = [shared.ended(shared.trigger("hello"))["id"] for _ in range(5)]
    failed = shared.ended(shared.trigger("fails"))
    assert (failed["endReason"], failed["exitCode"]) == ("failed", 3)
    assert shared.texts(ids[0]) == ["hello"]
    for field in ("taskName", "status", "startedAt", "exitCode", "createdAt"):
        assert page(shared, sortField=field, sortDirection="asc") == (ids, 5)
        assert page(shared, sortField=field, sortDirection="desc") == (ids[::-1], 5)
    assert sorted(page(shared, sortField="duration")[0]) == ids
    assert page(shared, limit=2, offset=3, sortField="createdAt", sortDirection="asc") == (ids[3:], 5)
    assert page(shared, status="failed") == ([], 0)
    assert page(shared, status="succeeded", exitCodeMin=0, triggeredBy="api", search="hel")[1] == 5
    assert page(shared, search=ids[2][-8:]) == ([ids[2]], 1)
    chosen = {"match_all": False, "ids": ids[:3]}
    assert shared.request("POST", "/api/runs/bulk/delete", chosen).json()["affected"] == 3
    assert page(shared) == (ids[:2:-1], 2)
    assert shared.get("/api/runs/summary").json()["total"] == 3
    assert shared.request("POST", "/api/runs/bulk/restore", chosen).json()["affected"] == 3
    assert page(shared) == (ids[::-1], 5)
    summary = shared.get("/api/runs/summary").json()
    assert (summary["total"], summary["failed"]) == (6, 1)


def test_password_is_never_shown(shared: OnPostgres) -> None:
    """The password is in no run's environment, no arguments, no log of the daemon, and no answer of the API."""
    run = shared.ended(shared.trigger("env"))
    texts = shared.texts(run["id"])
    assert any(line.startswith("PATH=") for line in texts)
    assert not [line for line in texts if line.startswith(("DATABASE_URL=", "PGPASSWORD="))]
    shown = "\n".join(
        [
            *texts,
            *command_lines(shared.family()).values(),
            shared.get("/api/daemon").body.decode(),
            shared.output.read_text(),
        ]
    )
    assert not [secret for secret in (PASSWORD, PASSWORD.replace(" ", "%20")) if secret in shown]


def test_killed_scheduler(shared: OnPostgres) -> None:
    """The next scheduler takes over: active runs continue, and stored rows remain."""
    long = shared.trigger("long")
    until(lambda: shared.texts(long), "its first line")
    done = shared.ended(shared.trigger("hello"))
    shared.kill_helper("ringward scheduler")
    assert shared.run(long)["status"] == "running"
    assert shared.run(done["id"]) == done
    shared.request("POST", f"/api/runs/{long}/stop")
    assert shared.ended(long)["endReason"] == "stopped"


def test_second_daemon_on_the_database_is_refused(shared: OnPostgres, tmp_path: Path) -> None:
    """A second daemon on the same database names the cause and does not start; the first continues."""
    other = OnPostgres(tmp_path / "other")
    other.directory.mkdir()
    other.url = shared.url
    try:
        other.write(f'[storage]\ndatabase = "${{DATABASE_URL}}"\n{TASKS}')
        other.launch()
        assert other.process is not None
        assert other.process.wait(60) == 73
        assert "belongs to another daemon" in other.output.read_text()
    finally:
        other.clean()
    assert shared.ended(shared.trigger("hello"))["endReason"] == "succeeded"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGQUIT], ids=["shutdown", "crash"])
def test_server_outage(daemon: OnPostgres, postgres: PostgresServer, number: signal.Signals) -> None:
    """During an outage, runs continue and triggers are refused. Afterwards, the ends of all runs are stored."""
    go = daemon.directory / "go"
    waits = f"echo begun; while [ ! -e '{go}' ]; do sleep 0.01; done; exit 7"
    daemon.begin(f'[tasks.t]\nrun = "{waits}"\nmax_concurrent = 9\n')
    before = daemon.trigger("t")
    until(lambda: daemon.texts(before), "its first line")
    postgres.stop(number)
    try:
        refused = daemon.request("POST", "/api/tasks/t/run")
        assert refused.status == 503, refused.body
        assert daemon.get("/api/runs").status == 503
        go.touch()
        until(lambda: "cannot write the database" in daemon.output.read_text(), "a message")
        assert daemon.process is not None
        assert daemon.process.poll() is None
    finally:
        postgres.start()
    until(daemon.ready, "the daemon to find its database again")
    run = daemon.ended(before)
    assert (run["endReason"], run["exitCode"]) == ("failed", 7)
    again = daemon.ended(daemon.trigger("t"))
    assert {run["id"] for run in daemon.runs("t") if run["status"] == "ended"} >= {before, again["id"]}


def test_server_starts_later(daemon: OnPostgres, postgres: PostgresServer) -> None:
    """A daemon that starts before its server reports that, waits and then continues; it can be stopped meanwhile."""
    postgres.stop()
    try:
        daemon.write(f'[storage]\ndatabase = "${{DATABASE_URL}}"\n{TASKS}')
        daemon.launch()
        until(lambda: "waiting for the database" in daemon.output.read_text(), "a message")
        assert daemon.stop() == 0
        daemon.launch()
        until(lambda: daemon.output.read_text().count("waiting for the database") == 2, "another message")
    finally:
        postgres.start()
    until(daemon.ready, "the daemon to begin")
    assert daemon.ended(daemon.trigger("hello"))["endReason"] == "succeeded"


def test_server_disconnects_during_the_start(daemon: OnPostgres, postgres: PostgresServer) -> None:
    """A daemon that loses its server during the start waits for it, as if the server had not been up yet."""
    daemon.begin()
    daemon.stop()
    name = daemon.url.rpartition("%3D")[2]
    waiting = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'ringward' AND wait_event_type = 'Lock'"
    with psycopg.connect(postgres.url("postgres")) as connection:
        connection.execute(f"LOCK TABLE {name}.meta")
        daemon.launch()
        until(lambda: postgres.ask(waiting), "the scheduler to read")
        postgres.hang_up()
    until(daemon.ready, "the daemon to begin")
    assert daemon.ended(daemon.trigger("hello"))["endReason"] == "succeeded"


def test_refused_login_ends_the_start(daemon: OnPostgres, postgres: PostgresServer) -> None:
    """If the server refuses the login, the daemon logs the cause without the password, and exits without waiting."""
    daemon.write(f"[storage]\ndatabase = {json.dumps(postgres.url('no_such_database'))}\n{TASKS}")
    daemon.launch()
    assert daemon.process is not None
    assert daemon.process.wait(60) == 73
    text = daemon.output.read_text()
    assert "refuses the connection" in text
    assert "no_such_database" in text
    assert PASSWORD not in text


def test_foreign_schema_is_refused(daemon: OnPostgres, postgres: PostgresServer) -> None:
    """A schema with tables of another application is refused by name and left unchanged."""
    name = daemon.url.rpartition("%3D")[2]
    postgres.ask(f"CREATE TABLE {name}.theirs (a int)")
    daemon.write(f"[storage]\ndatabase = {json.dumps(daemon.url)}\n{TASKS}")
    daemon.launch()
    assert daemon.process is not None
    assert daemon.process.wait(60) == 73
    assert "another application" in daemon.output.read_text()
    assert postgres.ask(f"SELECT tablename FROM pg_tables WHERE schemaname = '{name}'") == [("theirs",)]
