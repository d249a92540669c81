"""Carrying out orders side by side: some messages, some pings, each with a limit of time.

What takes longer is answered as a failure. Its thread cannot be ended; when too many are stuck so, the process ends,
and the scheduler starts another one.
"""

import asyncio
import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.client import HTTPMessage
from typing import IO, Any

from supervisor.helpers.notifier.delivery import deliver
from supervisor.helpers.notifier.masking import masked
from supervisor.helpers.notifier.redirects import why_not
from supervisor.ipc.delivery_request import DeliveryRequest, DeliveryResult, PingRequest

_TIMEOUT_S = 10.0
_TRIES = 3
_PAUSE_S = 1.0
_MAX_ERROR = 300


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows those to the same host and scheme."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        """See :meth:`urllib.request.HTTPRedirectHandler.redirect_request`."""
        why = why_not(req.full_url, newurl)
        if why is not None:
            fp.close()
            raise urllib.error.URLError(f"status {code} {why}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


_opener = urllib.request.build_opener(_Redirects)


def ping(order: PingRequest) -> DeliveryResult:
    """Ask for it, up to three times; what it answers is not read."""
    result = _once(order)
    for number in range(1, _TRIES):
        if result.error is None:
            break
        time.sleep(number * _PAUSE_S)
        result = _once(order)
    return result


def _once(order: PingRequest) -> DeliveryResult:
    request = urllib.request.Request(order.url, headers={"User-Agent": "Ringward"})  # noqa: S310 - http or https: checked with the configuration
    try:
        with _opener.open(request, timeout=_TIMEOUT_S):
            return DeliveryResult()
    except urllib.error.HTTPError as err:
        err.close()
        return DeliveryResult(f"the server answered with status {err.code}")
    except urllib.error.URLError as err:
        return DeliveryResult(masked(str(err.reason), order.url)[:_MAX_ERROR])
    except (OSError, http.client.HTTPException, ValueError) as err:
        return DeliveryResult(masked(str(err), order.url)[:_MAX_ERROR])


_AT_ONCE = 4
_LIMIT_S = 60.0
_MOST_STUCK = 2

Say = Callable[[dict[str, Any]], None]


class _Line:
    """Some threads for one kind of order."""

    def __init__(self) -> None:
        self.places = asyncio.Semaphore(_AT_ONCE)
        self.pool = ThreadPoolExecutor(_AT_ONCE + _MOST_STUCK)
        self.stuck = 0


class Work:
    """All orders.

    Args:
        say: takes what the scheduler is to hear.
        end: called when too many threads are stuck.
        limit_s: how long an order may take.
    """

    def __init__(self, say: Say, end: Callable[[], None], limit_s: float = _LIMIT_S) -> None:
        self._say = say
        self._end = end
        self._limit_s = limit_s
        self._letters, self._pings = _Line(), _Line()
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, frame: dict[str, Any]) -> None:
        """Begin with what the scheduler asks."""
        op = frame.pop("op")
        if op == "deliver":
            letter = DeliveryRequest(**frame)
            self._begin(letter.key, self._letters, partial(deliver, letter))
        else:
            order = PingRequest(**frame)
            self._begin(order.key, self._pings, partial(ping, order))

    def _begin(self, key: str, line: _Line, function: Callable[[], DeliveryResult]) -> None:
        task = asyncio.get_running_loop().create_task(self._carry_out(key, line, function))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _carry_out(self, key: str, line: _Line, function: Callable[[], DeliveryResult]) -> None:
        async with line.places:
            future = asyncio.get_running_loop().run_in_executor(line.pool, function)
            done, _ = await asyncio.wait([future], timeout=self._limit_s)
            if done:
                self._say(future.result().to_frame(key))
                return
            line.stuck += 1
            future.add_done_callback(lambda _: self._came_back(line))
            self._say(DeliveryResult(f"no answer within {self._limit_s:.0f} s").to_frame(key))
            if line.stuck > _MOST_STUCK:
                self._end()

    @staticmethod
    def _came_back(line: _Line) -> None:
        line.stuck -= 1
