from collections.abc import Iterator
from typing import Any

import pytest

from tests.contract.daemon import Contract


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def daemon(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Contract]:
    """One daemon for all of it; a test that changes runs has runs of its own, or puts them back."""
    contract = Contract(tmp_path_factory.mktemp("contract"))
    if request.param == "postgresql":
        contract.database = request.getfixturevalue("postgres").create()
    try:
        contract.prepare()
        yield contract
    finally:
        contract.clean()


@pytest.fixture(scope="session")
def document(daemon: Contract) -> dict[str, Any]:
    """The OpenAPI document as it is served."""
    openapi: dict[str, Any] = daemon.ok("/openapi.json")
    return openapi


@pytest.fixture(scope="session")
def kinds(daemon: Contract) -> list[dict[str, Any]]:
    """All runs of the task ``kinds`` in convention A, newest first."""
    items: list[dict[str, Any]] = daemon.ok("/api/tasks/kinds/runs", limit=1000)["items"]
    return items
