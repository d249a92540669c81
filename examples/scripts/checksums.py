"""Compare checksums of all files of a directory with the previous run, and draw a progress bar.

    checksums.py MANIFEST [--directory DIR]

DIR defaults to Python's standard library. The bar redraws itself with carriage returns, as many programs do: a log
should contain its final state, not every step.
"""

import argparse
import hashlib
import os
import signal
import sys
import sysconfig
from pathlib import Path
from types import FrameType

BAR_CHARS = 40


def files_of(directory: Path) -> list[Path]:
    """Return all regular files below `directory` except compiled modules, sorted."""
    found = [
        Path(parent) / name
        for parent, directories, names in os.walk(directory)
        if "__pycache__" not in parent and "site-packages" not in parent and "dist-packages" not in parent
        for name in names
    ]
    return sorted(path for path in found if path.is_file() and not path.is_symlink())


def draw(done: int, total: int) -> None:
    """Redraw the bar."""
    filled = BAR_CHARS * done // total if total else BAR_CHARS
    percent = 100 * done // total if total else 100
    sys.stdout.write(f"\r[{'#' * filled}{'.' * (BAR_CHARS - filled)}] {percent:3} %  {done}/{total} files")
    sys.stdout.flush()


def checksums(directory: Path) -> dict[str, str]:
    """Return the SHA-256 of each file, by its path below `directory`."""
    paths = files_of(directory)
    sums = {}
    step = max(len(paths) // 100, 1)
    for number, path in enumerate(paths):
        if number % step == 0:
            draw(number, len(paths))
        with open(path, "rb") as file:
            sums[str(path.relative_to(directory))] = hashlib.file_digest(file, "sha256").hexdigest()
    draw(len(paths), len(paths))
    print()
    return sums


def read_manifest(manifest: Path) -> dict[str, str] | None:
    """Return the checksums of the previous run, or None without one."""
    if not manifest.exists():
        return None
    lines = (line.split("  ", 1) for line in manifest.read_text().splitlines())
    return {name: digest for digest, name in lines}


def compare(before: dict[str, str], now: dict[str, str]) -> None:
    """Print the differences."""
    for name in sorted(before.keys() | now.keys()):
        if before.get(name) != now.get(name):
            print(f"{'added' if name not in before else 'removed' if name not in now else 'changed'}: {name}")


def main() -> None:
    """Compute, compare and store the checksums."""
    parser = argparse.ArgumentParser(description="Checksums of a directory.")
    parser.add_argument("manifest", type=Path)
    parser.add_argument("--directory", type=Path, default=Path(sysconfig.get_path("stdlib")))
    arguments = parser.parse_args()

    def end(number: int, _frame: FrameType | None) -> None:
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, end)
    print(f"reading {arguments.directory}")
    try:
        now = checksums(arguments.directory)
    except SystemExit:
        print("\ninterrupted; the previous manifest stays")
        raise
    before = read_manifest(arguments.manifest)
    if before is None:
        print(f"{len(now)} files; this is the first run, so there is nothing to compare")
    else:
        compare(before, now)
        print(f"{len(now)} files, compared with {len(before)}")
    arguments.manifest.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(f"{arguments.manifest}.new")
    temporary.write_text("".join(f"{digest}  {name}\n" for name, digest in now.items()))
    os.rename(temporary, arguments.manifest)


if __name__ == "__main__":
    main()
