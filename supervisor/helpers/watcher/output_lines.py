"""Searches the output of a run for a matching line, and waits for new output."""

import asyncio
import contextlib

from logring.errors import LogError
from logring.layout import SYSTEM
from logring.reader import LogReader
from logring.search import Limits, Pattern, search
from supervisor.helpers.watcher.network_probes import ProbeFailed
from supervisor.ipc.doorbell import DoorbellClient
from supervisor.ipc.probe_request import ProbeRequest

_POLL_S = 0.25
_SHOWN = 200
_MAX_BYTES = 4 << 20
"""Number of bytes to search before other probes get a turn."""


class RingWatcher:
    """Sets events when rings have new lines, by the doorbell. :func:`line` also polls every 250 ms."""

    def __init__(self, path: str, token: str) -> None:
        self._path = path
        self._token = token
        self._client: DoorbellClient | None = None
        self._waiting: dict[str, set[asyncio.Event]] = {}

    def add(self, name: str, event: asyncio.Event) -> None:
        """Set `event` whenever the ring `name` has new lines."""
        self._waiting.setdefault(name, set()).add(event)
        with contextlib.suppress(OSError):
            self._connected().subscribe(name)

    def remove(self, name: str, event: asyncio.Event) -> None:
        """Stop setting `event` for this ring."""
        waiting = self._waiting.get(name, set())
        waiting.discard(event)
        if not waiting and self._waiting.pop(name, None) is not None and self._client is not None:
            with contextlib.suppress(OSError):
                self._client.unsubscribe(name)

    def _connected(self) -> DoorbellClient:
        """Return the connected client.

        Raises:
            OSError: no process serves the doorbell.
        """
        if self._client is None:
            self._client = DoorbellClient(self._path, self._token)
            asyncio.get_running_loop().add_reader(self._client.fileno(), self._rings)
        return self._client

    def _rings(self) -> None:
        if self._client is None:
            return
        names = self._client.receive()
        if names is None:
            asyncio.get_running_loop().remove_reader(self._client.fileno())
            self._client.close()
            self._client = None
            return
        for name in names:
            for event in self._waiting.get(name, ()):
                event.set()


async def line(request: ProbeRequest, run: str, bell: RingWatcher) -> tuple[int, str]:
    """Wait for the first matching line in a run's output; return its number and its text for display.

    Raises:
        ProbeFailed: the log ended without a match or cannot be read.
    """
    pattern = Pattern(request.target, regex=True)
    reader = LogReader(request.ring, request.file)
    news = asyncio.Event()
    bell.add(run, news)
    position = 0
    try:
        while True:
            news.clear()
            sealed = reader.head().sealed
            found = search(reader, pattern, position, limits=Limits(1, _MAX_BYTES))
            for hit in found.hits:
                if hit.stream != SYSTEM:
                    return hit.n, shown(hit.text.removesuffix(b"\r"))
            position = found.next
            if not found.exhausted:
                await asyncio.sleep(0)
            elif sealed:
                raise ProbeFailed("its log ended without a matching line")
            else:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(news.wait(), _POLL_S)
    except (LogError, OSError) as err:
        raise ProbeFailed(f"cannot read its log: {err}") from err
    finally:
        bell.remove(run, news)
        reader.close()


def shown(text: bytes) -> str:
    """Return output for display: at most 200 characters, without control characters."""
    return "".join(char if char.isprintable() else " " for char in text.decode(errors="replace"))[:_SHOWN]
