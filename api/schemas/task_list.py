"""The list of all tasks and services. An item is only encoded again if its contents changed.

Each call reads everything that an item depends on from the database and compares it. So changes need not be announced,
and none can be missed. This happens in a database thread, because there may be ten thousand tasks.
"""

import hashlib
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from api.schemas.task_view import TaskViewInput, bases, shown
from store import tasks as store_tasks
from store.connection import Connection
from store.database import Database
from store.runs.writes import Run

_SINGLY = 50
"""Up to this many last runs are read one by one; more are read with a single query."""
_DIGEST_BYTES = 16


class _Item(NamedTuple):
    basis: TaskViewInput
    body: bytes
    """The encoded JSON."""
    digest: bytes


class TaskList:
    """The items that earlier calls encoded. Each worker has one object, which its threads share."""

    def __init__(self) -> None:
        self._items: dict[str, _Item] = {}

    def read(self, db: Database) -> dict[str, _Item]:
        """Return all items, sorted by name."""
        with db.snapshot() as view:
            return view.remember(TaskList, lambda: self._read(view))

    def _read(self, view: Connection) -> dict[str, _Item]:
        old_items, inputs = self._items, bases(view)
        changed = [basis for basis in inputs if _differs(old_items.get(basis.standing.name), basis)]
        if len(changed) > _SINGLY:
            last = store_tasks.last_runs(view)
        else:
            names = [basis.standing.name for basis in changed]
            last = {name: run for task_name in names for name, run in store_tasks.last_runs(view, task_name).items()}
        made = {basis.standing.name: _item(basis, last) for basis in changed}
        names = [basis.standing.name for basis in inputs]
        items = self._items = {name: made[name] if name in made else old_items[name] for name in names}
        return items


def listed(db: Database, tasks: TaskList, sees: Callable[[str], bool]) -> tuple[bytes, bytes]:
    """Return the items of the tasks that a client sees, as the inside of a JSON array, and their digest."""
    items = [item for name, item in tasks.read(db).items() if sees(name)]
    return b",".join([item.body for item in items]), b"".join([item.digest for item in items])


def _differs(item: _Item | None, basis: TaskViewInput) -> bool:
    return item is None or item.basis != basis


def _item(basis: TaskViewInput, last: dict[str, Run]) -> _Item:
    body = msgspec.json.encode(shown(basis, last.get(basis.standing.name)))
    return _Item(basis, body, hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest())
