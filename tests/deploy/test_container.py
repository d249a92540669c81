"""The Containerfile; ``tests/packages`` builds and runs the image."""

from tests.support.paths import ROOT

FILE = ROOT / "deploy/container/Containerfile"


def test_copied_files_exist_and_are_not_ignored() -> None:
    """Every file that the Containerfile copies or needs exists, and the ignore list lets it through."""
    copied = [line.split()[1] for line in FILE.read_text().splitlines() if line.startswith("COPY ")]
    assert [name for name in copied if not name.startswith("--from=")] == [".", "deploy/container/ringward.toml"]
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    shown = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    assert all((ROOT / name).exists() for name in shown)
    installed = {"api", "logring", "store", "supervisor", "ringward.py"}
    assert installed | {"setup.py", "setup.cfg", "pyproject.toml", "deploy/container", "deploy/locked"} <= shown
