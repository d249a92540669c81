"""The API server uses libraries as they are."""

import json
from pathlib import Path

from tests.api.support.harness import Daemon
from tests.test_libraries import FIND, assert_untouched


def test_a_worker_that_serves_has_replaced_nothing(tmp_path: Path) -> None:
    """No module of a library contains an object of ours when a worker begins to serve."""
    place = tmp_path / "report.json"
    daemon = Watched(tmp_path, place)
    try:
        assert daemon.get("/healthz").status == 200
        assert_untouched(json.loads(place.read_text()))
    finally:
        daemon.close()


class Watched(Daemon):
    """An API server whose worker writes a report immediately before it serves."""

    def __init__(self, path: Path, place: Path) -> None:
        self.code = f"""
{FIND}
import json, os, api.serve
fd = api.serve.prepare()
from api.server import arbiter

class Watched(arbiter.Worker):
    def run(self):
        with open({str(place)!r}, "w") as file:
            json.dump(report(), file)
        super().run()

arbiter.Worker = Watched
arbiter.run(fd)
"""
        super().__init__(path)

    def program(self) -> tuple[str, ...]:
        return "-c", self.code
