"""Rotate a log file: FILE becomes FILE.1.gz, FILE.1.gz becomes FILE.2.gz, and so on.

The rename happens under the lock that writers take for each line, so no line is lost or written into an old file. The
compression happens afterwards, without the lock.

    rotate_log.py FILE [--min-size BYTES] [--keep N]
"""

import argparse
import fcntl
import gzip
import os
import shutil
from pathlib import Path


def rotate(log: Path, min_size: int, keep: int) -> None:
    """Rotate `log` if it has at least `min_size` bytes, and keep `keep` old files."""
    old = Path(f"{log}.old")
    if old.exists():
        print(f"{old} is left from an interrupted rotation")
    else:
        if not log.exists():
            print(f"{log} does not exist yet")
            return
        size = log.stat().st_size
        if size < min_size:
            print(f"{log} has {size} bytes, less than {min_size}")
            return
        with open(f"{log}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            os.rename(log, old)
        print(f"rotated {log}, {size} bytes")
    for number in range(keep, 0, -1):
        packed = Path(f"{log}.{number}.gz")
        if packed.exists():
            if number == keep:
                packed.unlink()
                print(f"removed {packed}")
            else:
                os.rename(packed, f"{log}.{number + 1}.gz")
    temporary = Path(f"{log}.1.gz.new")
    with open(old, "rb") as source, gzip.open(temporary, "wb") as target:
        shutil.copyfileobj(source, target)
    os.rename(temporary, f"{log}.1.gz")
    old.unlink()
    print(f"compressed to {Path(f'{log}.1.gz').stat().st_size} bytes")


def main() -> None:
    """Parse the command line and rotate the file."""
    parser = argparse.ArgumentParser(description="Rotate and compress a log file.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--min-size", type=int, default=1)
    parser.add_argument("--keep", type=int, default=5)
    arguments = parser.parse_args()
    rotate(arguments.file, arguments.min_size, arguments.keep)


if __name__ == "__main__":
    main()
