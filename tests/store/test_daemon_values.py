import pytest

from store.daemon_values import get_meta, set_meta
from store.database import Database


@pytest.mark.parametrize("value", [None, 0, "ü", [1, {"a": None}], {"x": [True, 1.5]}])
def test_json_values(writer: Database, reader: Database, value: object) -> None:
    """Any JSON value is read as it was stored; a missing key has the default."""
    assert get_meta(reader, "k", "default") == "default"
    set_meta(writer, "k", "before")
    set_meta(writer, "k", value)
    assert get_meta(reader, "k", "default") == value
    assert get_meta(reader, "other") is None
