"""Carries out probe requests, each as a series of attempts."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial

from supervisor.helpers.watcher.command_probe import CommandProbes
from supervisor.helpers.watcher.name_lookup import NameLookup
from supervisor.helpers.watcher.network_probes import HostChecks, ProbeFailed, http, tcp
from supervisor.helpers.watcher.output_lines import RingWatcher, find_line
from supervisor.ipc.probe_request import (
    AttemptFailed,
    AttemptPassed,
    CommandAnswered,
    LineMatched,
    NothingMatched,
    ProbeAnswer,
    ProbeRequest,
    RequestFailed,
)

_AT_ONCE = 64
"""Limit of concurrent attempts. The wait for a free place does not count towards the time limit of an attempt."""
_COMMANDS_AT_ONCE = 32

Send = Callable[[ProbeAnswer], None]


class ProbeRunner:
    """Runs all probes.

    Args:
        send: Sends a message to the scheduler.
        bell: Reports new lines in rings.
        alone: As for :class:`CommandProbes`.
    """

    def __init__(self, send: Send, bell: RingWatcher, *, alone: bool = False) -> None:
        self._send = send
        self._bell = bell
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._network_slots = asyncio.Semaphore(_AT_ONCE)
        self._names = NameLookup()
        self._exec = CommandProbes(alone=alone)
        self._host = HostChecks()
        self._command_slots = asyncio.Semaphore(_COMMANDS_AT_ONCE)
        self._ask_slots = asyncio.Semaphore(_COMMANDS_AT_ONCE)

    def start(self, request: ProbeRequest) -> None:
        """Begin a request, which replaces an earlier one with the same key."""
        self.forget(request.key)
        task = self._tasks[request.key] = asyncio.get_running_loop().create_task(self._carry_out(request))
        task.add_done_callback(lambda _: self._discard(request.key, task))

    def _discard(self, key: str, task: asyncio.Task[None]) -> None:
        """Forget a finished request, unless another one with the same key has replaced it."""
        if self._tasks.get(key) is task:
            del self._tasks[key]

    def forget(self, key: str) -> None:
        """Cancel a request, if it has not finished."""
        task = self._tasks.pop(key, None)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """Cancel all requests and wait for their commands to end."""
        tasks = list(self._tasks.values())
        for key in list(self._tasks):
            self.forget(key)
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._exec.ended()

    async def _carry_out(self, request: ProbeRequest) -> None:
        if request.kind == "log":
            await self._await_line(request)
        elif request.kind == "output":
            await self._search_output(request)
        elif request.kind in ("ask", "condition"):
            await self._ask_once(request)
        elif request.times:
            await self._probe_liveness(request)
        else:
            await self._probe_readiness(request)

    async def _await_line(self, request: ProbeRequest) -> None:
        run = request.key.partition("/")[0]
        try:
            await find_line(request, run, self._bell)
        except ProbeFailed as err:
            self._send(AttemptFailed(request.key, str(err)))
        else:
            self._send(AttemptPassed(request.key))

    async def _search_output(self, request: ProbeRequest) -> None:
        try:
            number, text = await find_line(request, request.key.partition("/")[0], self._bell)
        except ProbeFailed:
            self._send(NothingMatched(request.key))
        else:
            self._send(LineMatched(request.key, number, text))

    async def _ask_once(self, request: ProbeRequest) -> None:
        async with self._ask_slots:
            status = None
            try:
                async with asyncio.timeout(request.timeout_ms / 1000):
                    text = await (self._exec.run(request) if request.argv else self._host.check(request))
            except TimeoutError:
                subject = request.argv[0] if request.argv else request.target
                error = f"{subject}: timed out after {request.timeout_ms} ms"
            except ProbeFailed as err:
                error, status = str(err), err.status
            except OSError as err:  # the watcher lacks a resource, as with EMFILE
                error = str(err)
            else:
                self._send(CommandAnswered(request.key, text))
                return
        self._send(RequestFailed(request.key, error, status))

    async def _probe_readiness(self, request: ProbeRequest) -> None:
        """Probe until an attempt succeeds."""
        reported = None
        while True:
            began_s = time.monotonic()
            error = await self._attempt(request)
            if error is None:
                self._send(AttemptPassed(request.key))
                return
            if error != reported:
                reported = error
                self._send(AttemptFailed(request.key, error))
            await _sleep_until_due(request, began_s)

    async def _probe_liveness(self, request: ProbeRequest) -> None:
        """Probe until `times` attempts in a row fail."""
        failures, reported = 0, None
        await asyncio.sleep(request.every_ms / 1000)
        while True:
            began_s = time.monotonic()
            error = await self._attempt(request)
            failures = 0 if error is None else failures + 1
            if error is not None and failures >= request.times:
                times = f" ({failures} times in a row)" if failures > 1 else ""
                self._send(RequestFailed(request.key, error + times))
                return
            if error != reported:
                reported = error
                self._send(AttemptPassed(request.key) if error is None else AttemptFailed(request.key, error))
            await _sleep_until_due(request, began_s)

    async def _attempt(self, request: ProbeRequest) -> str | None:
        """Carry out one attempt; return why it failed, or None if it succeeded."""
        attempts: dict[str, Callable[[ProbeRequest], Awaitable[object]]] = {
            "http": partial(http, self._names),
            "tcp": partial(tcp, self._names),
            "exec": self._exec.run,
        }
        async with self._command_slots if request.kind == "exec" else self._network_slots:
            try:
                async with asyncio.timeout(request.timeout_ms / 1000):
                    await attempts[request.kind](request)
            except TimeoutError:
                subject = request.argv[0] if request.kind == "exec" else request.target
                return f"{subject}: no answer within {request.timeout_ms} ms"
            except (ProbeFailed, OSError) as err:  # OSError: the watcher lacks a resource, as with EMFILE
                return str(err)
        return None


async def _sleep_until_due(request: ProbeRequest, began_s: float) -> None:
    """Wait until `every_ms` after the beginning of the last attempt."""
    await asyncio.sleep(max(0.0, began_s + request.every_ms / 1000 - time.monotonic()))
