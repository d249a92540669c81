"""Triggers that carry a key: the same key stands for the same run for a day, however often and to whom it is sent."""

from collections.abc import Callable
from typing import Any

from store import idempotency
from store.idempotency import Claim
from supervisor.scheduler.control.control_socket import Reply, done, refused
from supervisor.scheduler.database.commits import Change
from supervisor.scheduler.runs.run_engine import Engine

_OTHER = "The key was used for another request"


class TriggerKeys:
    """One request at a time for each key: the others wait until its run is stored, or was refused."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: dict[str, list[Callable[[], None]]] = {}

    def trigger(self, arguments: dict[str, Any], reply: Reply, create: Callable[[Reply], None]) -> None:
        """Answer with the run that the key of the request stands for, or `create` one and answer."""
        key: str | None = arguments.get("key")
        if key is None:
            create(reply)
            return
        if key in self._waiting:
            self._waiting[key].append(lambda: self.trigger(arguments, reply, create))
            return
        self._waiting[key] = []

        def finish(answer: dict[str, Any]) -> None:
            reply(answer)
            for again in self._waiting.pop(key):
                again()

        def on_failed(_error: BaseException) -> bool:
            finish(refused(503, "the database cannot be read"))
            return True

        found: list[Claim | None] = []
        change = self._engine.change(on_failed)
        change.write(lambda db: found.append(idempotency.find(db, key, change.now_ms)))
        change.then(lambda: self._answer(found[-1], arguments["request"], finish, create))
        self._engine.commit(change)

    @staticmethod
    def _answer(found: Claim | None, request: str, finish: Reply, create: Callable[[Reply], None]) -> None:
        if found is None:
            create(finish)
        elif found.request == request:
            finish(done(run=found.run_id))
        else:
            error = {"location": "header.Idempotency-Key", "message": "was used for another request"}
            finish(refused(422, _OTHER, [error]))

    @staticmethod
    def claim(arguments: dict[str, Any], change: Change) -> None:
        """Let the key of the request, if it has one, stand for its run as soon as that is stored."""
        key: str | None = arguments.get("key")
        if key is not None:
            run_id, request = arguments["run"], arguments["request"]
            change.write(lambda db: idempotency.claim(db, key, run_id, request, change.now_ms))
