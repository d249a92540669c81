"""``python -m ringward janitor --fd N``: the scheduler starts it and sends a job over the descriptor.

The janitor does the job, sends a report and exits. If the descriptor closes, the scheduler is gone, and the janitor
exits at once. Only one janitor works in a data directory; a second one exits without doing anything.

A scheduler of version 0.1.0 passes no descriptor: it sends the job as a line on standard input, and expects the report
as a line on standard output.
"""

import fcntl
import json
import os
import socket
import sys
from collections.abc import Callable
from dataclasses import asdict

from supervisor.helpers.janitor.upkeep import maintain
from supervisor.helpers.process_setup import exit_with_the_scheduler, set_up_helper
from supervisor.ipc.helper_messages import encode, from_fields, receive
from supervisor.ipc.log_jobs import JanitorAnswer, JanitorJob, JanitorReport, JanitorRequest
from supervisor.ipc.log_line import Log

_BUSY_REST_MS = 60_000


def _connect() -> tuple[int, JanitorJob | None, Callable[[JanitorReport], object]]:
    """Return the descriptor to the scheduler, the job, or None if the scheduler is gone, and how to send the report."""
    if not sys.argv[1:]:
        line = sys.stdin.readline()
        job = from_fields(JanitorJob, json.loads(line)) if line else None
        return 0, job, lambda report: print(json.dumps(asdict(report)))
    sock = socket.socket(fileno=int(sys.argv[2]))
    request = receive(sock, JanitorRequest)
    job = None if request is None else request.job
    return sock.fileno(), job, lambda report: sock.sendall(encode(JanitorAnswer(report)))


def main() -> int:
    """Do one job; return the exit status, which is 1 if the job failed."""
    set_up_helper("janitor", nice=19)
    fd, job, send = _connect()
    if job is None:
        return 0
    exit_with_the_scheduler(fd)
    log = Log("janitor", job.log_level)
    try:
        lock = os.open(f"{job.data_dir}/janitor.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report = JanitorReport(next_ms=0, rest_ms=_BUSY_REST_MS)
        else:
            report = maintain(job, log)
    except OSError as err:
        log.error(f"cannot maintain the logs: {err}")
        return 1
    send(report)
    return 0
