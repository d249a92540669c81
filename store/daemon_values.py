"""Named JSON values of the daemon."""

import json
from typing import Any

from store.database import Database
from store.models import MetaModel


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
