"""``python -m ringward janitor``: the scheduler starts it with a job on standard input, which stays open.

The janitor does the job, writes a report to standard output and exits. If standard input closes, the scheduler is gone,
and the janitor exits at once. Only one janitor works in a data directory; a second one exits without doing anything.
"""

import fcntl
import os
import sys
import threading

from supervisor.helpers.janitor.upkeep import maintain
from supervisor.host.osport import set_title
from supervisor.ipc.janitor_job import Job, Report
from supervisor.ipc.log_line import Log

_BUSY_REST_MS = 60_000


def _end_with_the_scheduler() -> None:
    while os.read(0, 4096):
        pass
    os._exit(0)


def main() -> int:
    """Do one job; return the exit status, which is 1 if the job failed."""
    os.nice(19)
    os.umask(0o077)
    set_title("ringward janitor")
    job = Job.from_line(_first_line())
    threading.Thread(target=_end_with_the_scheduler, daemon=True).start()
    log = Log("janitor", job.log_level)
    try:
        lock = os.open(f"{job.data_dir}/janitor.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report = Report(next_ms=0, rest_ms=_BUSY_REST_MS)
        else:
            report = maintain(job, log)
    except OSError as err:
        log.error(f"cannot maintain the logs: {err}")
        return 1
    sys.stdout.write(report.to_line())
    return 0


def _first_line() -> str:
    """Read the line with the job, unbuffered, since a thread reads standard input afterwards."""
    line = b""
    while not line.endswith(b"\n"):
        more = os.read(0, 65536)
        if not more:
            sys.exit(0)
        line += more
    return line.decode()
