"""Environments, for which these tests need a package index."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.packages.environment import Environment

SUPERVISORD = "supervisor==4.3.0"


@pytest.fixture(scope="session")
def index(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skip tests where pip reaches no package index."""
    target = tmp_path_factory.mktemp("index")
    command = [sys.executable, "-m", "pip", "download", "--retries=1", "--no-deps", f"--dest={target}", SUPERVISORD]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"pip reaches no package index: {done.stderr.strip()}")


@pytest.fixture
def environment(index: None, tmp_path: Path) -> Environment:  # noqa: ARG001 - it skips
    return Environment(tmp_path / "environment")
