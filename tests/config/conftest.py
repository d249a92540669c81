"""Configuration files for tests."""

from collections.abc import Callable
from pathlib import Path

import pytest

from supervisor.config.load import load
from supervisor.config.model import Config
from supervisor.config.problems import ConfigError, Problem

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write_file(text: str, name: str = "ringward.toml") -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o644)
        return path

    return write_file


@pytest.fixture
def config(write: Write) -> Callable[..., Config]:
    def load_text(text: str, **environ: str) -> Config:
        return load(str(write(text)), environ)

    return load_text


@pytest.fixture
def problems(write: Write) -> Callable[..., list[Problem]]:
    def load_broken(text: str, **environ: str) -> list[Problem]:
        with pytest.raises(ConfigError) as caught:
            load(str(write(text)), environ)
        return caught.value.problems

    return load_broken
