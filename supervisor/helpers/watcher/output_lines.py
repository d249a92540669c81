"""Searches the output of a run for a matching line, and waits for new output."""

import asyncio
import contextlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from logring.errors import LogError
from logring.layout import SYSTEM
from logring.log_search import Limits, Pattern, SearchResult, search
from logring.reader import LogReader
from supervisor.helpers.watcher.network_probes import ProbeFailed
from supervisor.ipc.doorbell import DoorbellClient
from supervisor.ipc.match_process import MatchProcess
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


class SearchImpossible(Exception):
    """The output cannot be searched: a match took too long, or there is no process for it."""


class LineSearches:
    """Searches logs: at once with google-re2, otherwise in a thread that waits for a matching process.

    Attributes:
        process: the matching process of all searches.
    """

    def __init__(self) -> None:
        self.process = MatchProcess()
        self._thread = ThreadPoolExecutor(1, "searches")

    async def search(self, reader: LogReader, pattern: Pattern, position: int) -> SearchResult:
        """Search from a line on, until the first hit or the limit of bytes."""
        work = partial(search, reader, pattern, position, limits=Limits(1, _MAX_BYTES))
        if pattern.is_local:
            return work()
        result = asyncio.get_running_loop().run_in_executor(self._thread, work)
        try:
            return await asyncio.shield(result)
        except asyncio.CancelledError:
            await asyncio.wait([result])  # the thread uses the reader, which the caller closes
            raise

    def close(self) -> None:
        """End the matching process. No search may be under way."""
        self._thread.shutdown()
        self.process.close()


async def find_line(request: ProbeRequest, run: str, bell: RingWatcher, searches: LineSearches) -> tuple[int, str]:
    """Wait for the first matching line in a run's output; return its number and its text for display.

    Raises:
        ProbeFailed: the log ended without a match or cannot be read.
        SearchImpossible: a match took too long.
    """
    pattern = Pattern(request.target, regex=True, matcher=searches.process)
    reader = LogReader(request.ring, request.file)
    news = asyncio.Event()
    bell.add(run, news)
    position = 0
    try:
        while True:
            news.clear()
            sealed = reader.head().sealed
            result = await searches.search(reader, pattern, position)
            for hit in result.hits:
                if hit.stream != SYSTEM:
                    return hit.n, shown(hit.text.removesuffix(b"\r"))
            if result.failure is not None:
                raise SearchImpossible(result.failure)
            position = result.next
            if not result.exhausted:
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
