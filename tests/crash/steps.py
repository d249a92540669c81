"""A replacement for the daemon's Python that kills its scheduler at labelled steps.

    steps.py PLAN -I -m ringward root ARGUMENTS      the root, which starts its helpers through steps.py, at once
    steps.py PLAN -I -m ringward scheduler ARGUMENTS the scheduler, with a count at each step
    steps.py PLAN -I -m ringward PROCESS ARGUMENTS             unchanged

PLAN is a file that may come and go. Each line has a label and a number. When the step of the first line is reached for
that many-th time since the line exists, the line is removed and the scheduler gets SIGKILL. The file is removed with
its last line. Without the file nothing happens. Production code knows nothing of this.
"""

import functools
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from ringward import run

STARTING = ("begin", "snapshot asked", "before settling", "settled", "before ready", "after ready")
"""Steps that each scheduler reaches once."""
WORKING = (
    "before storing",
    "stored",
    "before announcing",
    "announced",
    "before spawn",
    "after spawn",
    "before stop",
    "after stop",
    "before ack",
    "after ack",
    "before answering",
    "answered",
    "before started",
    "after started",
    "before exited",
    "after exited",
    "before retry",
    "after retry",
)


class Plan:
    """The steps at which to die."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._passed = 0

    def step(self, label: str) -> None:
        try:
            with open(self._path, encoding="utf-8") as file:
                first, *others = file.read().splitlines()
        except FileNotFoundError:
            return
        expected, _, number = first.rpartition(" ")
        self._passed += label == expected
        if self._passed < int(number):
            return
        write_plan(self._path, others)
        os.kill(os.getpid(), signal.SIGKILL)

    def around(self, owner: Any, name: str, before: Callable[..., str], after: Callable[..., str]) -> None:
        """Make the start and the end of a method steps; their labels are derived from its arguments."""
        method = getattr(owner, name)

        @functools.wraps(method)
        def wrapped(*arguments: Any, **options: Any) -> Any:
            self.step(before(*arguments))
            result = method(*arguments, **options)
            self.step(after(*arguments))
            return result

        setattr(owner, name, wrapped)


def write_plan(path: str, lines: list[str]) -> None:
    """Replace the plan atomically."""
    if not lines:
        os.unlink(path)
        return
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        file.write("\n".join(lines))
    os.replace(f"{path}.new", path)


def label_steps(plan: Plan) -> None:
    from supervisor.scheduler.control.control_socket import ControlServer
    from supervisor.scheduler.database.commits import Committer
    from supervisor.scheduler.loop.event_log import EventLog
    from supervisor.scheduler.loop.root_connection import RootConnection
    from supervisor.scheduler.runs.run_engine import RunEngine
    from supervisor.scheduler.startup_shutdown.take_over import TakeOver

    def always(label: str) -> Callable[..., str]:
        return lambda *_: label

    def by_op(word: str) -> Callable[..., str]:
        return lambda _link, frame: f"{word} {frame['op']}"

    plan.around(RootConnection, "hello", always("begin"), always("hello"))
    plan.around(RootConnection, "ask", always("before asking"), always("snapshot asked"))
    plan.around(RootConnection, "send", by_op("before"), always("queued"))
    after_sending(plan)
    plan.around(TakeOver, "reconcile", always("before settling"), always("settled"))
    plan.around(Committer, "_feed", always("before storing"), always("given to the store"))
    plan.around(Committer, "_done", always("stored"), always("told"))
    plan.around(EventLog, "announce", always("before announcing"), always("announced"))
    plan.around(ControlServer, "_send", always("before answering"), always("answer queued"))
    plan.around(ControlServer, "_flush", always("sending"), always("answered"))
    plan.around(RunEngine, "started", always("before started"), always("after started"))
    plan.around(RunEngine, "exited", always("before exited"), always("after exited"))
    plan.around(RunEngine, "_retry", always("before retry"), always("after retry"))


def after_sending(plan: Plan) -> None:
    """Make the end of each round that sent messages to the root a step, once for each message."""
    from supervisor.ipc.messages import Decoder
    from supervisor.scheduler.loop.root_connection import RootConnection

    flush = RootConnection._flush

    def flushed(link: RootConnection) -> None:
        frames = list(Decoder().feed(bytes(link._unsent)))
        flush(link)
        for frame in frames:
            plan.step(f"after {frame['op']}")

    RootConnection._flush = flushed  # type: ignore[assignment, method-assign]


def main() -> None:
    plan, _, _, _, process, *arguments = sys.argv[1:]
    if process == "root":
        from supervisor.root import helper_processes

        sys.executable = os.environ["STEPS_PYTHON"]
        helper_processes._DELAYS_S = (0.0,)  # type: ignore[assignment]
    elif process == "scheduler":
        label_steps(Plan(plan))
    sys.argv = [process, *arguments]
    sys.exit(run(process))


if __name__ == "__main__":
    main()
