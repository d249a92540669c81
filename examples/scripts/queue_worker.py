"""Process the jobs of a spool directory until asked to stop.

A worker claims a job by renaming it into its own directory: of several workers, exactly one succeeds. On SIGTERM a
worker finishes its current job and exits. The successor of a killed worker, with the same number, puts its claimed jobs
back.

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
"""Blocked, and checked between jobs: a handler could interrupt a job at any line."""


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
        """Put back the unfinished jobs of a predecessor."""
        for job in sorted(self.claimed.glob("*.json")):
            os.rename(job, self.spool / job.name)
            print(f"put back the unfinished job {job.name}")

    def claim(self) -> Path | None:
        """Claim the oldest job; return None without one."""
        for job in sorted(self.spool.glob("*.json")):
            try:
                os.rename(job, self.claimed / job.name)
            except FileNotFoundError:  # another worker was faster
                continue
            return self.claimed / job.name
        return None

    def work(self, path: Path) -> None:
        """Process one job: a chain of hashes, as long as the job requires."""
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
        """Add a line to the shared log file; the lock prevents a rotation meanwhile."""
        with open(f"{self.log}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with open(self.log, "a") as log:
                log.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} worker {self.number}: {text}\n")

    def run(self, once: bool) -> None:
        """Work until asked to stop or, with `once`, until no job is left."""
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
        print(f"worker {self.number} stops")


def main() -> None:
    """Start a worker."""
    parser = argparse.ArgumentParser(description="Process the jobs of a spool directory.")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--once", action="store_true", help="exit when no job is left")
    arguments = parser.parse_args()
    signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    worker = Worker(arguments.directory, os.environ.get("RINGWARD_INSTANCE", "0"))
    worker.run(arguments.once)


if __name__ == "__main__":
    main()
