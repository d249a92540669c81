import pytest

from store import idempotency
from store.database import Database
from store.errors import Conflict
from store.idempotency import KEPT_MS, KeyClaim
from tests.store.making import T0


def test_key_expires_after_a_day(writer: Database, reader: Database) -> None:
    """A key stands for its run for 24 hours; then it can be used again and is forgotten."""
    idempotency.claim(writer, "k", "RUN", "request", T0)
    assert idempotency.find(reader, "k", T0 + KEPT_MS - 1) == KeyClaim("RUN", "request")
    assert idempotency.find(reader, "k", T0 + KEPT_MS) is None
    assert idempotency.find(reader, "other", T0) is None
    idempotency.claim(writer, "k", "NEXT", "request", T0 + KEPT_MS)
    assert idempotency.find(reader, "k", T0 + KEPT_MS) == KeyClaim("NEXT", "request")
    idempotency.claim(writer, "l", "LAST", "request", T0 + 3 * KEPT_MS)
    idempotency.prune(writer, T0 + 3 * KEPT_MS)
    assert writer.rows("SELECT key FROM trigger_keys") == [("l",)]


def test_active_key_is_refused(writer: Database) -> None:
    """A key that stands for a run cannot be claimed for another."""
    idempotency.claim(writer, "k", "RUN", "request", T0)
    with pytest.raises(Conflict):
        idempotency.claim(writer, "k", "OTHER", "request", T0 + 1)
