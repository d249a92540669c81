"""Named JSON values of the daemon."""

import json
from typing import Any, NamedTuple

from store.database import Database
from store.models import MetaModel

_FORMER_HOSTS = "former_hosts"
_MOST_HOSTS = 100
"""How many former hosts are known; runs of earlier ones name no host."""


class FormerHost(NamedTuple):
    """A daemon that used the database before this one. The logs of its runs are in its own data directory.

    Attributes:
        host: its host name.
        last: the number of the last run (``runs.seq``) when the next daemon took over; the clocks of two hosts differ.
    """

    host: str
    last: int


def get_meta(db: Database, key: str, default: Any = None) -> Any:
    """Return the value of a key; the default if it was never set."""
    rows = db.fetch(MetaModel.select(MetaModel.value).where(MetaModel.key == key).tuples())
    return json.loads(rows[0][0]) if rows else default


def set_meta(db: Database, key: str, value: object) -> None:
    """Set the value of a key.

    Raises:
        TypeError: The value cannot be converted to JSON.
    """
    query = MetaModel.insert(key=key, value=json.dumps(value, ensure_ascii=False)).on_conflict(
        conflict_target=[MetaModel.key], preserve=[MetaModel.value]
    )
    db.apply(query)


def add_former_host(db: Database, host: str) -> None:
    """Record that another daemon takes over from the daemon on `host`."""
    ((last,),) = db.rows("SELECT coalesce(max(seq), 0) FROM runs", [])
    known: list[list[object]] = get_meta(db, _FORMER_HOSTS, [])
    set_meta(db, _FORMER_HOSTS, [*known, [host, last]][-_MOST_HOSTS:])


def former_host_of(db: Database, run_id: str) -> str | None:
    """Return the host of the former daemon that had a run; None if it is a run of this daemon, or unknown."""
    known = [FormerHost(*entry) for entry in get_meta(db, _FORMER_HOSTS, [])]
    for (number,) in db.rows("SELECT seq FROM runs WHERE id = ?", [run_id]) if known else ():
        return next((one.host for one in known if number <= one.last), None)
    return None
