"""The client that sends audit entries to the scheduler, which stores them.

A command carries its entry, and the scheduler stores it with the effect. All other entries are sent from here: above
all those of requests that were refused. They wait in a queue that one greenlet empties in batches, so no response waits
for the scheduler. Before the response is sent, each entry is also written to a file, so a killed worker loses none.
Each entry has a unique key, so an entry that is sent twice is stored only once. A worker that stops sends its queue
first.

No part of an entry is unchecked input: names and ids have passed their patterns, addresses were parsed, and reasons are
the server's own text. Unprintable characters are replaced, so an entry is always a single line.
"""

import itertools
import logging
import time

import gevent
from gevent.event import Event

from api.auth.audit_spool import Entries, Spool
from api.errors import ApiError
from store.runs.ids import new_ulid
from supervisor.ipc.control_client import CommandEntry, ControlClient, RequestRefused, Unavailable

log = logging.getLogger("gunicorn.error")

RECEIVE_HOOK = "receiveHook"
"""The operation that receives webhooks."""

_MAX_WAITING = 10_000
_TOGETHER = 500
_LONGEST = 300
_GATHER_S = 0.05
_RETRY_S = 1.0
_FLUSH_S = 0.4


def _harmless(text: str) -> str:
    text = text[:_LONGEST]
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)


def reason_of(error: ApiError) -> str:
    """Return why a request was refused. Errors of single fields are omitted: even a field name could be a secret."""
    return "invalid parameters" if error.status == 422 else error.detail


class Auditor:
    """The queue of one worker's audit entries.

    Args:
        control: Client of the scheduler.
        directory: Directory of the files of all workers; it contains nothing else.
    """

    def __init__(self, control: ControlClient, directory: str) -> None:
        self._control = control
        self._name = new_ulid()
        self._numbers = itertools.count()
        self._spool = Spool(directory, self._name)
        self._waiting: Entries = {}
        self._lost = 0
        self._news = Event()
        self._hurry = Event()
        self._empty = Event()
        self._empty.set()
        self._started = False

    def entry(
        self, operation: str, *, who: str, address: str, status: int, target: str = "", reason: str = ""
    ) -> CommandEntry:
        """Return an entry with a new key."""
        failed_login = operation in ("login", RECEIVE_HOOK) and status == 401
        at = time.time_ns() // 1_000_000
        values = [at, _harmless(who), _harmless(address), operation, _harmless(target), status, _harmless(reason)]
        return CommandEntry(f"{self._name}-{next(self._numbers)}", [*values, failed_login])

    def record(self, entry: CommandEntry) -> None:
        """Queue an entry and write it to the file. If the queue is full, the oldest entry is dropped."""
        if len(self._waiting) >= _MAX_WAITING:
            del self._waiting[next(iter(self._waiting))]
            self._lost += 1
        new: Entries = {entry.key: entry.values}
        self._spool.add(new)
        self._wait(new)

    def take_over(self) -> None:
        """Queue the entries that dead workers left behind."""
        leftover = self._spool.take_over()
        if leftover:
            self._wait(leftover)

    def flush(self) -> None:
        """Wait up to `_FLUSH_S` for the queue to empty, before the worker stops. The next worker sends the rest."""
        self._hurry.set()
        self._empty.wait(_FLUSH_S)

    def _wait(self, entries: Entries) -> None:
        self._waiting |= entries
        self._empty.clear()
        self._news.set()
        if not self._started:
            self._started = True
            gevent.spawn(self._send)

    def _send(self) -> None:
        while True:
            self._news.wait()
            self._hurry.wait(_GATHER_S)
            entries = dict(itertools.islice(self._waiting.items(), _TOGETHER))
            try:
                self._control.call("audit", entries=entries)
            except Unavailable:
                gevent.sleep(_RETRY_S)
                continue
            except RequestRefused as err:
                log.error("the scheduler rejected %d audit entries: %s", len(entries), err)
            for key in entries:
                self._waiting.pop(key, None)
            self._spool.keep(self._waiting)
            if self._lost:
                log.error("%d audit entries were lost while the scheduler was down", self._lost)
                self._lost = 0
            if not self._waiting:
                self._news.clear()
                self._empty.set()
