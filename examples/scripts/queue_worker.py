"""Takes jobs out of a spool directory and does them, until it is asked to stop.

A job is claimed by renaming it into a directory of the worker's own: of several workers exactly one succeeds. On
SIGTERM the worker finishes the job it is at and ends. What a worker that was killed had claimed, its successor of the
same number puts back.

    queue_worker.py DIRECTORY [--once]

RINGWARD_INSTANCE is the worker's number.
"""

import argparse
import fcntl
import hashlib
import json
import os
import signal
import time
from pathlib import Path

POLL_S = 0.5
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
"""Blocked, and looked for between jobs: a handler could interrupt a job at any line."""


class Worker:
    """One worker of the queue in `directory`."""

    def __init__(self, directory: Path, number: str) -> None:
        self.number = number
        self.spool = directory / "spool"
        self.claimed = directory / f"claimed-{number}"
        self.done = directory / "done"
        self.log = directory / "queue.log"
        for path in (self.spool, self.claimed, self.done):
            path.mkdir(parents=True, exist_ok=True)

    def recover(self) -> None:
        """Put back what a predecessor had claimed and not finished."""
        for job in sorted(self.claimed.glob("*.json")):
            os.rename(job, self.spool / job.name)
            print(f"put back {job.name}, which was not finished")

    def claim(self) -> Path | None:
        """The oldest job, now ours; None when there is none."""
        for job in sorted(self.spool.glob("*.json")):
            try:
                os.rename(job, self.claimed / job.name)
            except FileNotFoundError:  # another worker was faster
                continue
            return self.claimed / job.name
        return None

    def work(self, path: Path) -> None:
        """Do one job: a chain of hashes, as long as the job says."""
        started = time.monotonic()
        job = json.loads(path.read_text())
        digest = str(job["seed"]).encode()
        for _ in range(int(job["rounds"])):
            digest = hashlib.sha256(digest).digest()
        path.write_text(json.dumps({**job, "result": digest.hex(), "worker": self.number}))
        os.rename(path, self.done / path.name)
        text = f"{path.name} done in {time.monotonic() - started:.3f} s: {digest.hex()[:16]}"
        print(text)
        self.note(text)

    def note(self, text: str) -> None:
        """Add a line to the log file that the workers share; the lock keeps it from being rotated meanwhile."""
        with open(f"{self.log}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with open(self.log, "a") as log:
                log.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} worker {self.number}: {text}\n")

    def run(self, once: bool) -> None:
        """Work until asked to stop, or with `once` until no job is left."""
        self.recover()
        print(f"worker {self.number} waits for jobs in {self.spool}")
        wait_s = 0.0
        while signal.sigtimedwait(STOP_SIGNALS, wait_s) is None:
            wait_s = 0.0
            if job := self.claim():
                self.work(job)
            elif once:
                break
            else:
                wait_s = POLL_S
        print(f"worker {self.number} ends")


def main() -> None:
    """Start a worker."""
    parser = argparse.ArgumentParser(description="Do the jobs in a spool directory.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--once", action="store_true", help="end when no job is left")
    arguments = parser.parse_args()
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    worker = Worker(arguments.directory, os.environ.get("RINGWARD_INSTANCE", "0"))
    worker.run(arguments.once)


if __name__ == "__main__":
    main()
