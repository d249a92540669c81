"""The daemon that is compared with the tables, and its runs."""

import http.client
import json
import os
import re
import time
from functools import cached_property
from typing import Any
from urllib.parse import urlencode

import pytest

from store.database import open_writer
from store.runs.ids import new_ulid
from store.runs.writes import Run, insert_run
from tests.contract.tables import REASONS, TRIGGERS
from tests.support.client import Answer, event_fields
from tests.support.daemon import RINGWARD, WITH_EXTRAS, Daemon, program
from tests.support.waiting import until

on_one_database = pytest.mark.parametrize("daemon", ["sqlite"], indirect=True)
"""For behaviour that is the same with any database."""
LINES = 6000
PARAMS = 'params = [{ name = "of", kind = "option" }, { name = "empty", kind = "arg" }]'
TASKS = f"""
[tasks.kinds]
run = "true"
{PARAMS}
[tasks.bulk]
run = "true"
{PARAMS}
[tasks.twice]
run = "true"
[tasks.other]
run = "true"
[tasks.prints]
run = "seq 0 {LINES - 1}"
[tasks.fails]
run = "exit 3"
retry_attempts = 1
retry_delay = "0s"
[tasks.waits]
run = {program("obeys_term")}
[tasks.lives]
run = {program("obeys_term")}
[tasks.shut]
run = "true"
api_trigger = false
[services.web]
run = "exec sleep 600"
"""


class Contract(Daemon):
    """A real daemon with a run of every kind.

    Tasks ``kinds`` and ``bulk`` each have an ended run for each pair of end reason and trigger, one minute after the
    other; every second one has all optional fields, the others none of them. Of ``waits`` one runs, one is pending.
    """

    database: str | None = None
    """URL of a PostgreSQL database; None: SQLite."""

    @property
    def stored_in(self) -> str:
        return self.database or str(self.data / "ringward.db")

    def environment(self) -> dict[str, str]:
        return {name: value for name, value in os.environ.items() if name != "RINGWARD_PASSWORD"}

    def prepare(self) -> None:
        self.executable = WITH_EXTRAS if self.database else RINGWARD
        storage = f"[storage]\ndatabase = {json.dumps(self.database)}\n" if self.database else ""
        self.write(storage + TASKS)
        self.data.mkdir(mode=0o700)
        writer = open_writer(self.stored_in)
        with writer.transaction():
            for task in ("kinds", "bulk"):
                for run in kinds(task):
                    insert_run(writer, run)
        writer.close()
        self.start()
        self.running, self.pending = self.trigger("waits"), self.trigger("waits")
        self.printed, self.failed = self.trigger("prints"), self.trigger("fails")
        until(lambda: self.texts(self.running), "the run of waits to print")
        self.ended(self.printed)
        until(lambda: [run["status"] for run in self.runs("fails")] == ["ended"] * 2, "the retry of fails to end")
        until(lambda: self.get("/api/notifications").json()["items"], "the notification of the failure")

    @property
    def port(self) -> int:
        match = re.search(r"127\.0\.0\.1:(\d+)", self.config.read_text())
        assert match is not None
        return int(match[1])

    def ok(self, path: str, **query: Any) -> Any:
        """The body of an answer to GET that is a success."""
        answer = self.get(f"{path}?{urlencode(query)}")
        assert answer.status == 200, answer.body
        return answer.json()

    @cached_property
    def admin(self) -> dict[str, str]:
        """Credentials that open everything."""
        made = self.post("/api/tokens", {"name": "contract", "role": "admin"})
        return {"Authorization": f"Bearer {made['token']}"}

    def over_tcp(
        self, method: str, path: str, body: str | None = None, headers: dict[str, str] | None = None
    ) -> Answer:
        """A request as it stands, from a client that is trusted no more than any other."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body, headers or {})
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def post(self, path: str, body: Any = None) -> Any:
        answer = self.request("POST", path, body)
        assert answer.status in (200, 201), answer.body
        return answer.json()


def kinds(task: str) -> list[Run]:
    """An ended run for each pair of end reason and trigger."""
    first_ms = time.time_ns() // 1_000_000 - 7_200_000
    runs: list[Run] = []
    pairs = [(reason, trigger) for reason in REASONS for trigger in TRIGGERS]
    for number, (reason, trigger) in enumerate(pairs):
        at_ms = first_ms + 60_000 * number
        run = Run(
            new_ulid(at_ms), task, "task", "ended", reason, number % 7 - 2, 0, number % 2, None, trigger, at_ms
        )  # fmt: skip
        if number % 2:
            run = run._replace(
                instance_index=1,
                retry_of_run_id=runs[-1].id,
                started_at=at_ms + 100,
                ended_at=at_ms + 1000 + (number * 37) % 60 * 100,
                execution_id=f"outside-{number}",
                params={"of": task, "empty": ""},
            )
        runs.append(run)
    return runs


def header(answer: Answer, name: str) -> str:
    value: str = answer.headers[name]
    return value


def events_of(body: bytes) -> list[dict[str, str]]:
    """The events of a stream that has ended, each as its fields."""
    return [fields for fields in event_fields(body.splitlines()) if "" not in fields]
