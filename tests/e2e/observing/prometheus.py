"""A real Prometheus for tests, which scrapes one daemon every second."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tests.support.host_features import require
from tests.support.waiting import until

_CONFIG = """
global:
  scrape_interval: 1s
scrape_configs:
  - job_name: ringward
    authorization:
      credentials: {token}
    static_configs:
      - targets: ["{target}"]
"""


class Prometheus:
    """A running Prometheus."""

    def __init__(self, port: int) -> None:
        self._port = port

    def get(self, path: str) -> tuple[int, bytes]:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=60)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def query(self, expression: str) -> list[dict[str, str]]:
        """Return the labels of the series that an expression yields now.

        Raises:
            AssertionError: the expression is invalid.
        """
        status, body = self.get(f"/api/v1/query?{urlencode({'query': expression})}")
        answer: dict[str, Any] = json.loads(body)
        assert status == 200, f"{expression}: {answer['error']}"
        return [series["metric"] for series in answer["data"]["result"]]

    def ready(self) -> bool:
        try:
            return self.get("/-/ready")[0] == 200
        except OSError:
            return False


@contextmanager
def prometheus(directory: Path, port: int, target: str, token: str) -> Iterator[Prometheus]:
    """Run a Prometheus on a loopback port for the duration of the context."""
    config, log = directory / "prometheus.yml", directory / "prometheus.log"
    config.write_text(_CONFIG.format(target=target, token=token))
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                require("prometheus"),
                f"--config.file={config}",
                f"--storage.tsdb.path={directory / 'prometheus'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--log.level=warn",
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=directory,
            env={**os.environ, "GOMAXPROCS": "1"},
        )
    try:
        server = Prometheus(port)
        until(lambda: server.ready() or process.poll() is not None, "Prometheus to be ready")
        assert process.poll() is None, log.read_text()
        yield server
    finally:
        process.kill()
        process.wait()
