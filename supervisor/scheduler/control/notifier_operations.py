"""What API workers may ask of notifiers: more operations of ``control.sock``."""

from typing import Any

from store.deliveries import Standing
from supervisor.ipc.delivery_request import Result
from supervisor.scheduler.control.control_socket import Operation, Reply, done, refused
from supervisor.scheduler.notifications.outbox import Outbox
from supervisor.scheduler.runs.run_engine import Engine

Arguments = dict[str, Any]


class Notifying:
    """Carries out what is asked."""

    def __init__(self, engine: Engine, outbox: Outbox) -> None:
        self._engine = engine
        self._outbox = outbox

    def operations(self) -> dict[str, Operation]:
        """By name."""
        return {"notifiers": self.show, "notifier_test": self.try_out}

    def show(self, _arguments: Arguments, reply: Reply) -> None:
        """How each notifier does; never its URL."""

        def on_failed(_error: BaseException) -> bool:
            reply(refused(503, "the database cannot be written"))
            return True

        change = self._engine.change(on_failed)
        names = self._outbox.names()

        def answer(found: dict[str, Standing]) -> None:
            nothing = Standing("", None, None, None, 0, 0)
            reply(done(items=[found.get(name, nothing)._replace(name=name)._asdict() for name in names]))

        self._outbox.standings(change, answer)
        self._engine.commit(change)

    def try_out(self, arguments: Arguments, reply: Reply) -> None:
        """Send a message by a notifier, and answer when that is done."""
        name: str = arguments["name"]

        def answer(result: Result) -> None:
            reply(done(error=result.error))

        if not self._outbox.try_out(name, answer):
            reply(refused(404, f"There is no notifier {name}"))
