"""Carrying out orders: attempt after attempt, as long as the order says."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from supervisor.helpers.watcher.attempts import ProbeFailed, http, tcp
from supervisor.helpers.watcher.command_probe import Commands
from supervisor.helpers.watcher.name_lookup import Names
from supervisor.helpers.watcher.output_lines import Bell, line
from supervisor.ipc.probe_request import ProbeRequest

_AT_ONCE = 64
"""Attempts at the same time; the others wait for their turn, which does not count as time of theirs."""
_COMMANDS_AT_ONCE = 32

Say = Callable[[dict[str, Any]], None]


class Watch:
    """All orders. `say` takes what the scheduler is to hear; `alone`: see :class:`.command.Commands`."""

    def __init__(self, say: Say, bell: Bell, *, alone: bool = False) -> None:
        self._say = say
        self._bell = bell
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._connections = asyncio.Semaphore(_AT_ONCE)
        self._names = Names()
        self._exec = Commands(alone=alone)
        self._commands = asyncio.Semaphore(_COMMANDS_AT_ONCE)
        self._questions = asyncio.Semaphore(_COMMANDS_AT_ONCE)

    def begin(self, order: ProbeRequest) -> None:
        """Carry out an order; another one of the same key ends."""
        self.forget(order.key)
        task = self._tasks[order.key] = asyncio.get_running_loop().create_task(self._carry_out(order))
        task.add_done_callback(lambda _: self._done(order.key, task))

    def _done(self, key: str, task: asyncio.Task[None]) -> None:
        """The scheduler forgets no order that is done."""
        if self._tasks.get(key) is task:
            del self._tasks[key]

    def forget(self, key: str) -> None:
        """End an order, whatever it is doing."""
        task = self._tasks.pop(key, None)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """End all."""
        tasks = list(self._tasks.values())
        for key in list(self._tasks):
            self.forget(key)
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._exec.ended()

    async def _carry_out(self, order: ProbeRequest) -> None:
        if order.kind == "log":
            await self._line(order)
        elif order.kind == "output":
            await self._output(order)
        elif order.kind == "ask":
            await self._ask(order)
        elif order.times:
            await self._alive(order)
        else:
            await self._ready(order)

    async def _line(self, order: ProbeRequest) -> None:
        run = order.key.partition("/")[0]
        try:
            await line(order, run, self._bell)
        except ProbeFailed as err:
            self._say({"op": "failing", "key": order.key, "why": str(err)})
        else:
            self._say({"op": "passed", "key": order.key})

    async def _output(self, order: ProbeRequest) -> None:
        try:
            number, text = await line(order, order.key.partition("/")[0], self._bell)
        except ProbeFailed:
            self._say({"op": "clean", "key": order.key})
        else:
            self._say({"op": "matched", "key": order.key, "line": number, "why": text})

    async def _ask(self, order: ProbeRequest) -> None:
        async with self._questions:
            try:
                async with asyncio.timeout(order.timeout_ms / 1000):
                    text = await self._exec.run(order)
            except TimeoutError:
                why = f"{order.argv[0]}: not over within {order.timeout_ms} ms"
            except (ProbeFailed, OSError) as err:  # OSError: EMFILE and the like, of ours
                why = str(err)
            else:
                self._say({"op": "answered", "key": order.key, "text": text})
                return
        self._say({"op": "failed", "key": order.key, "why": why})

    async def _ready(self, order: ProbeRequest) -> None:
        """Until it succeeds."""
        told = None
        while True:
            began_s = time.monotonic()
            why = await self._attempt(order)
            if why is None:
                self._say({"op": "passed", "key": order.key})
                return
            if why != told:
                told = why
                self._say({"op": "failing", "key": order.key, "why": why})
            await _rest(order, began_s)

    async def _alive(self, order: ProbeRequest) -> None:
        """Until it has failed so many times in a row."""
        failures, told = 0, None
        await asyncio.sleep(order.every_ms / 1000)
        while True:
            began_s = time.monotonic()
            why = await self._attempt(order)
            failures = 0 if why is None else failures + 1
            if why is not None and failures >= order.times:
                self._say({"op": "failed", "key": order.key, "why": f"{why} ({failures} times in a row)"})
                return
            if why != told:
                told = why
                word = {"op": "passed"} if why is None else {"op": "failing", "why": why}
                self._say({**word, "key": order.key})
            await _rest(order, began_s)

    async def _attempt(self, order: ProbeRequest) -> str | None:
        """Why it did not succeed."""
        attempts: dict[str, Callable[[ProbeRequest], Awaitable[object]]] = {
            "http": partial(http, self._names),
            "tcp": partial(tcp, self._names),
            "exec": self._exec.run,
        }
        async with self._commands if order.kind == "exec" else self._connections:
            try:
                async with asyncio.timeout(order.timeout_ms / 1000):
                    await attempts[order.kind](order)
            except TimeoutError:
                what = order.argv[0] if order.kind == "exec" else order.target
                return f"{what}: no answer within {order.timeout_ms} ms"
            except (ProbeFailed, OSError) as err:  # OSError: EMFILE and the like, of ours
                return str(err)
        return None


async def _rest(order: ProbeRequest, began_s: float) -> None:
    """Until the next attempt is due."""
    await asyncio.sleep(max(0.0, began_s + order.every_ms / 1000 - time.monotonic()))
