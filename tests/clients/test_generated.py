"""Clients that generators make of the OpenAPI document, which list, trigger and read runs of the real daemon."""

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.daemon import Daemon
from tests.support.host_features import require

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
BUILD = HERE.parents[1] / "build/clients"
NODE_BIN = BUILD / "node_modules/.bin"
"""The directory in which ``.ci/run`` installs npm packages."""
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""A generator runs for seconds, so optimising it costs more than it saves."""
GO_PACKAGES = Path("/usr/share/gocode")
"""The directory of Debian's Go packages."""
EXPECTED = {
    "before": 0,
    "triggered": "success",
    "exact": "succeeded",
    "folded": "success",
    "started": True,
    "listed": ["success", "succeeded", "succeeded"],
}
PYTHON = """
import json, sys
from generated import AuthenticatedClient
from generated.api.runs import get_run, list_runs, list_task_runs, run_task
from generated.models import ListRunsNaming

client = AuthenticatedClient(sys.argv[1], sys.argv[2])

def parsed(function, *arguments, **more):
    answer = function.sync_detailed(*arguments, client=client, **more)
    assert answer.status_code in (200, 201), answer
    return answer.parsed

before = parsed(list_runs)
triggered = parsed(run_task, "job", wait=60)
run = parsed(get_run, triggered.id)
camel = parsed(list_runs, naming=ListRunsNaming.CAMEL)
lists = [parsed(list_runs).runs, camel.runs, parsed(list_task_runs, "job").items]
print(json.dumps({
    "before": before.total,
    "triggered": triggered.end_reason,
    "exact": run.end_reason,
    "folded": run["end_reason"],
    "started": run.started_at >= run.created_at,
    "listed": [runs[0].end_reason for runs in lists],
}))
"""


@dataclass
class Served:
    """Address, token and document of a daemon with one task."""

    address: str
    token: str
    document: Path


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """A newly started daemon without runs."""
    daemon = Daemon(tmp_path / "daemon")
    daemon.directory.mkdir()
    daemon.write('[tasks.job]\nrun = "echo done"\n')
    daemon.start()
    try:
        document = tmp_path / "openapi.json"
        document.write_bytes(daemon.get("/openapi.json").body)
        address = tomllib.loads(daemon.config.read_text())["http"]["listen"][0]
        token = daemon.cli("token", "create", "client", "--role", "operator").stdout.strip()
        yield Served(f"http://{address}", token, document)
    finally:
        daemon.clean()


def called(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Return the standard output of a program, which must succeed."""
    done = subprocess.run(
        command, cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def generated(served: Served, generator: str, target: Path, *options: str) -> None:
    """Generate a client with openapi-generator."""
    require("java")
    command = require(BIN / "openapi-generator-cli")
    arguments: list[str | Path] = ["generate", "-i", served.document, "-g", generator, "-o", target, *options]
    called(command, *arguments, cwd=target.parent, JAVA_TOOL_OPTIONS=JAVA_OPTIONS)


def test_python_client(served: Served, tmp_path: Path) -> None:
    """The generator openapi-python-client omits nothing, and its client gets every value as its type."""
    command = require(BIN / "openapi-python-client")
    target = tmp_path / "generated"
    options = ["--path", str(served.document), "--meta", "none", "--output-path", str(target), "--fail-on-warning"]
    config = tmp_path / "config.yaml"
    config.write_text('post_hooks: []\ncontent_type_overrides: {"image/svg+xml": "text/plain"}\n')
    called(command, "generate", *options, "--config", config, cwd=tmp_path)
    out = called(sys.executable, "-c", PYTHON, served.address, served.token, cwd=tmp_path)
    assert json.loads(out) == EXPECTED


def test_go_client(served: Served, tmp_path: Path) -> None:
    """The client compiles, `go vet` reports nothing, and every value arrives."""
    go = require("go")
    if not (GO_PACKAGES / "src/gopkg.in/validator.v2").is_dir():
        pytest.skip("golang-gopkg-validator.v2-dev, which generated clients import, is not installed")
    target = tmp_path / "src/ringward"
    target.parent.mkdir()
    generated(served, "go", target, "--additional-properties=packageName=ringward")
    main = tmp_path / "src/client"
    main.mkdir()
    shutil.copy(HERE / "client.go", main)
    environment = {
        "GO111MODULE": "off",
        "GOPATH": f"{tmp_path}:{GO_PACKAGES}",
        "GOCACHE": str(BUILD / "go-cache"),  # compiles only what has changed since the last test run
        "GOFLAGS": "-trimpath",  # so that another temporary directory is no change
    }
    called(go, "vet", "ringward", "client", cwd=tmp_path, **environment)
    out = called(go, "run", "client", served.address, served.token, cwd=tmp_path, **environment)
    assert json.loads(out) == EXPECTED


def compiled(script: str, directory: Path) -> str:
    """Compile a script in TypeScript, with strict checks."""
    options = ["--strict", "--target", "es2022", "--module", "commonjs", "--lib", "es2022,dom", "--outDir", "built"]
    options.append("--skipDefaultLibCheck")  # TypeScript's own declarations are not the test's subject
    shutil.copy(HERE / script, directory)
    called(require(NODE_BIN / "tsc"), *options, script, cwd=directory)
    return f"built/{Path(script).with_suffix('.js')}"


def test_typescript_client(served: Served, tmp_path: Path) -> None:
    """openapi-generator's client for fetch compiles under --strict, and every value arrives."""
    node = require("node")
    generated(served, "typescript-fetch", tmp_path / "generated")
    out = called(node, compiled("fetch.ts", tmp_path), served.address, served.token, cwd=tmp_path)
    assert json.loads(out) == EXPECTED


def test_typescript_types(served: Served, tmp_path: Path) -> None:
    """The types that openapi-typescript generates fit the answers."""
    node = require("node")
    called(require(NODE_BIN / "openapi-typescript"), served.document, "-o", "schema.d.ts", cwd=tmp_path)
    out = called(node, compiled("types.ts", tmp_path), served.address, served.token, cwd=tmp_path)
    assert json.loads(out) == EXPECTED
