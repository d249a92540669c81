"""The token of a run opens the operations that its definition permits, on the named units only."""

import contextlib
import json
from collections.abc import Iterator

import pytest

from api.operation_table import OPERATIONS
from api.operations.operation import Access, Operation
from store.database import open_writer
from store.tasks import upsert_task
from supervisor.ipc import run_token
from tests.api.attacks.test_privilege_escalation import ask, required_query
from tests.api.support.credentials import bearer
from tests.api.support.harness import Daemon
from tests.api.support.records import make_run

KEY = "k" * 64
PRIVATE = [operation for operation in OPERATIONS if operation.access in (Access.PRIVATE, Access.METRICS)]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A server whose daemon has a key, and a task `asker`, whose runs may run `job`."""
    new_daemon = Daemon(tmp_path_factory.mktemp("d"), run_token_key=KEY)
    with contextlib.closing(open_writer(new_daemon.settings.database)) as db:
        upsert_task(db, "asker", "task", json.dumps({"may": ["run:job"]}))
        upsert_task(db, "job", "task", "{}")
    yield new_daemon
    new_daemon.close()


def token_of(daemon: Daemon, *, ended: bool = False) -> dict[str, str]:
    run = daemon.insert(make_run(task="asker"))
    if ended:
        daemon.end(run.id)
    return bearer(run_token.make(KEY, run.id))


@pytest.mark.parametrize("operation", PRIVATE, ids=lambda operation: operation.id)
def test_token_of_a_run_at_every_operation(daemon: Daemon, operation: Operation) -> None:
    """A run's token reads and runs only the permitted task; lists, the daemon and all other changes are refused."""
    status = ask(daemon, operation, token_of(daemon), required_query(operation))
    about_the_task = "{taskName}" in operation.path
    if operation.id == "runTask" or (about_the_task and operation.method == "GET"):
        assert status not in (401, 403), status
    elif "{runId}" in operation.path:
        assert status == 404
    elif operation.path.startswith("/api/units/"):
        assert status == 400  # its body says which units, and the definition must permit the verb for each
    else:
        assert status == 403


def test_token_of_an_ended_run(daemon: Daemon) -> None:
    """The token of an ended run is refused like an unknown one."""
    assert daemon.get("/api/tasks/job", token_of(daemon, ended=True), unix=False).status == 401
