"""Add jobs to the spool directory of a queue.

A job is a JSON file. It is written under a temporary name and then renamed, so that no worker sees an incomplete one.

    producer.py DIRECTORY [--jobs N]
"""

import argparse
import json
import os
import secrets
import time
from pathlib import Path


def main() -> None:
    """Write the jobs."""
    parser = argparse.ArgumentParser(description="Add jobs to a spool directory.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--jobs", type=int, default=10)
    arguments = parser.parse_args()
    spool = arguments.directory / "spool"
    spool.mkdir(parents=True, exist_ok=True)
    for number in range(arguments.jobs):
        name = f"{time.time_ns()}-{secrets.token_hex(4)}.json"
        rounds = 20_000 + secrets.randbelow(80_000)
        temporary = spool / f".{name}.new"
        temporary.write_text(json.dumps({"seed": secrets.token_hex(8), "rounds": rounds}))
        os.rename(temporary, spool / name)
        print(f"job {number + 1} of {arguments.jobs}: {name}, {rounds} rounds")
    print(f"{len(list(spool.glob('*.json')))} jobs are waiting")


if __name__ == "__main__":
    main()
