"""Carries out requests concurrently, messages apart from pings, each with a time limit.

A request that exceeds its limit fails. Its thread cannot be ended. So when too many threads are stuck, the process
exits and the scheduler starts a new one.
"""

import asyncio
import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from http.client import HTTPMessage
from typing import IO

from supervisor.helpers.notifier.delivery import deliver
from supervisor.helpers.notifier.masking import masked
from supervisor.helpers.notifier.redirects import refusal_of_redirect
from supervisor.ipc.delivery_request import DeliveryRequest, DeliveryResult, NotifierAnswer, PingRequest

_TIMEOUT_S = 10.0
_TRIES = 3
_PAUSE_S = 1.0
_MAX_ERROR = 300


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to the same host and scheme only."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        """Return the redirected request.

        Raises:
            URLError: the redirect must not be followed.
        """
        refusal = refusal_of_redirect(req.full_url, newurl)
        if refusal is not None:
            fp.close()
            raise urllib.error.URLError(f"status {code} {refusal}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


_opener = urllib.request.build_opener(_Redirects)


def ping(request: PingRequest) -> DeliveryResult:
    """Request a heartbeat URL, at most three times; the body of the answer is ignored."""
    result = _ping_once(request)
    for number in range(1, _TRIES):
        if result.error is None:
            break
        time.sleep(number * _PAUSE_S)
        result = _ping_once(request)
    return result


def _ping_once(ping_request: PingRequest) -> DeliveryResult:
    request = urllib.request.Request(ping_request.url, headers={"User-Agent": "Ringward"})  # noqa: S310 - http or https: checked with the configuration
    try:
        with _opener.open(request, timeout=_TIMEOUT_S):
            return DeliveryResult()
    except urllib.error.HTTPError as err:
        err.close()
        return DeliveryResult(f"the server answered with status {err.code}")
    except urllib.error.URLError as err:
        return DeliveryResult(masked(str(err.reason), ping_request.url)[:_MAX_ERROR])
    except (OSError, http.client.HTTPException, ValueError) as err:
        return DeliveryResult(masked(str(err), ping_request.url)[:_MAX_ERROR])


_AT_ONCE = 4
_LIMIT_S = 60.0
_MOST_STUCK = 2

Send = Callable[[NotifierAnswer], None]


class _WorkerPool:
    """The threads for one kind of request."""

    def __init__(self) -> None:
        self.slots = asyncio.Semaphore(_AT_ONCE)
        self.pool = ThreadPoolExecutor(_AT_ONCE + _MOST_STUCK)
        self.stuck = 0


class RequestRunner:
    """Carries out all requests.

    Args:
        send: Sends a message to the scheduler.
        end: Ends the process; called when too many threads are stuck.
        limit_s: The time limit of a request.
    """

    def __init__(self, send: Send, end: Callable[[], None], limit_s: float = _LIMIT_S) -> None:
        self._send = send
        self._end = end
        self._limit_s = limit_s
        self._deliveries, self._pings = _WorkerPool(), _WorkerPool()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, request: DeliveryRequest | PingRequest) -> None:
        """Begin to carry out a request of the scheduler."""
        if isinstance(request, DeliveryRequest):
            work = self._carry_out(request.key, self._deliveries, partial(deliver, request))
        else:
            work = self._carry_out(request.key, self._pings, partial(ping, request))
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry_out(self, key: str, workers: _WorkerPool, function: Callable[[], DeliveryResult]) -> None:
        async with workers.slots:
            future = asyncio.get_running_loop().run_in_executor(workers.pool, function)
            done, _ = await asyncio.wait([future], timeout=self._limit_s)
            if done:
                self._answer(key, future.result())
                return
            workers.stuck += 1
            future.add_done_callback(lambda _: self._note_late_end(workers))
            self._answer(key, DeliveryResult(f"no answer within {self._limit_s:.0f} s"))
            if workers.stuck > _MOST_STUCK:
                self._end()

    def _answer(self, key: str, result: DeliveryResult) -> None:
        self._send(NotifierAnswer(**asdict(result), key=key))

    @staticmethod
    def _note_late_end(workers: _WorkerPool) -> None:
        workers.stuck -= 1
