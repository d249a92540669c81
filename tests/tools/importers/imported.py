"""Checks of the result of an import."""

from pathlib import Path
from typing import Any

import tomli

from supervisor.config.load import load
from supervisor.tools.importers.import_result import Outcome


def checked(outcome: Outcome, tmp_path: Path) -> dict[str, Any]:
    """Return the tasks and services of the file, which the loader must accept."""
    file = tmp_path / "imported.toml"
    file.write_text(outcome.toml("a test"))
    file.chmod(0o600)
    load(str(file))
    document = tomli.loads(file.read_text())
    return {**document.get("tasks", {}), **document.get("services", {})}


def mentions(outcome: Outcome, *words: str) -> bool:
    """Return whether one note has all the words."""
    return any(all(word in note for word in words) for note in outcome.notes)
