"""The interpreters that ``make test-pythons`` finds, and the versions that the metadata names."""

import configparser
import sys
from pathlib import Path

from deploy.release.lock import PYTHONS
from tests.pythons import SUITES, find
from tests.support.paths import ROOT

VERSION = ".".join(map(str, sys.version_info[:2]))


def program(directory: Path, name: str, script: str) -> Path:
    """Write an executable script."""
    directory.mkdir(exist_ok=True)
    path = directory / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def test_unusable_interpreters_are_skipped(tmp_path: Path) -> None:
    """Only a program that reports CPython of the requested version is used, whatever its name."""
    program(tmp_path / "broken", f"python{VERSION}", "exit 127")
    program(tmp_path / "other", f"python{VERSION}", f"echo pypy {VERSION}")
    good = program(tmp_path / "good", "python3", f'exec "{sys.executable}" "$@"')
    places = [tmp_path / name for name in ("missing", "broken", "other", "good")]
    assert find(VERSION, places) == good
    assert find(VERSION, places[:-1]) is None


def test_metadata_names_the_supported_versions() -> None:
    """The classifiers name the versions that the lock files support."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    prefix = "Programming Language :: Python :: 3."
    lines = setup["metadata"]["classifiers"].splitlines()
    assert tuple(f"3.{line.removeprefix(prefix)}" for line in lines if line.startswith(prefix)) == PYTHONS
    assert SUITES.keys() <= set(PYTHONS)
