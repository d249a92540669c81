"""Searches the output of a run for a matching line, and waits for new output."""

import asyncio
import contextlib
from functools import partial

from logring.errors import LogError
from logring.follower import POLL_S, LogFollower
from logring.layout import SYSTEM
from logring.log_search import Pattern, SearchLimits, displayed, search
from logring.reader import LogReader
from supervisor.helpers.watcher.network_probes import ProbeFailed
from supervisor.ipc.doorbell import DoorbellClient
from supervisor.ipc.probe_request import ProbeRequest

_SHOWN = 200
_MAX_BYTES = 4 << 20
"""Number of bytes to search before other probes get a turn."""


class RingWatcher:
    """Sets events when rings have new lines, by the doorbell. :func:`line` also polls every 250 ms."""

    def __init__(self, path: str, token: str) -> None:
        self._client = DoorbellClient(path, token)
        self._waiting: dict[str, set[asyncio.Event]] = {}

    def add(self, name: str, event: asyncio.Event) -> None:
        """Set `event` whenever the ring `name` has new lines."""
        self._waiting.setdefault(name, set()).add(event)
        self._client.subscribe(name)
        fd = self._client.connect()
        if fd is not None:
            asyncio.get_running_loop().add_reader(fd, self._rings, fd)

    def remove(self, name: str, event: asyncio.Event) -> None:
        """Stop setting `event` for this ring."""
        waiting = self._waiting.get(name, set())
        waiting.discard(event)
        if not waiting and self._waiting.pop(name, None) is not None:
            self._client.unsubscribe(name)

    def _rings(self, fd: int) -> None:
        names = self._client.receive()
        if names is None:
            asyncio.get_running_loop().remove_reader(fd)
            self._client.close()
            names = self._client.names
        for name in names:
            for event in self._waiting.get(name, ()):
                event.set()


async def find_line(request: ProbeRequest, run: str, bell: RingWatcher) -> tuple[int, str]:
    """Wait for the first matching line in a run's output; return its number and its text for display.

    Raises:
        ProbeFailed: the log ended without a match or cannot be read.
    """
    pattern = Pattern(request.target, regex=True)
    log = LogFollower(LogReader(request.ring, request.file))
    find = partial(search, log.reader, pattern, limits=SearchLimits(1, _MAX_BYTES))
    news = asyncio.Event()
    bell.add(run, news)
    try:
        while True:
            news.clear()
            result = log.read(find)
            for hit in result.hits if result else ():
                if hit.stream != SYSTEM:
                    return hit.n, shown(hit.text.removesuffix(b"\r"))
            if result and not result.exhausted:
                await asyncio.sleep(0)
            elif log.head.sealed:
                raise ProbeFailed("its log ended without a matching line")
            else:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(news.wait(), POLL_S)
    except (LogError, OSError) as err:
        raise ProbeFailed(f"cannot read its log: {err}") from err
    finally:
        bell.remove(run, news)
        log.reader.close()


def shown(text: bytes) -> str:
    """Return output for display: at most 200 characters, without escape sequences and control characters."""
    return "".join(char if char.isprintable() else " " for char in displayed(text).decode())[:_SHOWN]
