"""The whole API of the real daemon, with generated requests that its description allows or forbids."""

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from api.operation_table import OPERATIONS
from tests.support.daemon import Daemon

SCHEMATHESIS = str(Path(sys.executable).parent / "schemathesis")
HERE = Path(__file__).parent
TOKEN = "fuzz"
MORE = os.environ.get("API_EXAMPLES")
"""The number of random examples of each operation; unset, a few fixed ones."""
PROXY = 'behind_proxy = ["127.0.0.1"]'
CONFIG = """
[tasks.job]
run = "echo one; echo two >&2"
[tasks.fails]
run = "exit 3"
[services.web]
run = "echo up; exec sleep 1000"
"""


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon with tasks, a service and a run of each task."""
    new_daemon = Daemon(tmp_path_factory.mktemp("fuzz"))
    new_daemon.write(CONFIG, http=PROXY)
    new_daemon.start()
    for task in ("job", "fails"):
        new_daemon.ended(new_daemon.trigger(task))
    yield new_daemon
    new_daemon.clean()


def check(daemon: Daemon, examples: int, *options: str) -> None:
    """Run Schemathesis on all operations over TCP, and fail with its report."""
    address = tomllib.loads(daemon.config.read_text())["http"]["listen"][0]
    document = daemon.directory / "openapi.json"
    document.write_bytes(daemon.get("/openapi.json").body)
    bounds = ["--max-examples", MORE] if MORE else ["--max-examples", str(examples), "--generation-deterministic"]
    command = [SCHEMATHESIS, "--config-file", str(HERE / "schemathesis.toml"), "run", str(document)]
    done = subprocess.run(
        [*command, "--url", f"http://{address}", "--checks", "all", *bounds, *options],
        env={**os.environ, "SCHEMATHESIS_HOOKS": str(HERE / "hooks.py"), "FUZZ_TOKEN": TOKEN},
        cwd=daemon.directory,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Tested: {len(OPERATIONS)}\n" in done.stdout, done.stdout
    assert "Traceback" not in daemon.output.read_text()


def test_without_authentication(daemon: Daemon) -> None:
    """Without credentials, operations give the documented refusals and change nothing."""
    before = [daemon.runs("job"), daemon.runs("fails")]
    check(daemon, 1, "--phases", "fuzzing", "--warnings", "off")
    assert [daemon.runs("job"), daemon.runs("fails")] == before


def test_with_a_token(daemon: Daemon) -> None:
    """With a token, the document holds: statuses, media types, bodies, refusals, and 404 for removed resources."""
    secret = daemon.cli("token", "create", TOKEN, "--role", "admin").stdout.strip()
    check(daemon, 1, "--header", f"Authorization: Bearer {secret}")
    assert daemon.request("GET", "/api/tokens", headers={"Authorization": f"Bearer {secret}", "Via": "x"}).status == 200
