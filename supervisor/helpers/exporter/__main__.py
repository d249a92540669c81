"""``python -m ringward exporter --fd N``: the scheduler starts it and sends a job over the descriptor.

The exporter exits when the descriptor closes, because the scheduler is gone or the export has changed. It first
finishes a batch in progress, if that does not take long. Each export has one exporter at a time; the next one waits
until the previous one has ended.
"""

import contextlib
import fcntl
import os
import socket
import sys
from collections.abc import Callable

from supervisor.helpers.exporter.cursors import Cursors, UnreadableJournal
from supervisor.helpers.exporter.log_delivery import Exporter
from supervisor.helpers.exporter.log_records import EndSink, Sink
from supervisor.helpers.exporter.status_reports import StatusReporter
from supervisor.helpers.process_setup import exit_with_the_scheduler, set_up_helper
from supervisor.host.osport import forbid_new_privileges, set_title
from supervisor.ipc.helper_messages import encode, receive
from supervisor.ipc.log_jobs import ExportJob, ExportRequest
from supervisor.ipc.log_line import Log

_GRACE_S = 3.0
_FOLDER_MODE = 0o700


def _opener(job: ExportJob) -> Callable[[Cursors], tuple[Sink, EndSink | None]]:
    """Return a function that opens the receiver of lines and, if there is one, the receiver of the ends of runs."""
    # Each type imports only its own libraries: HTTP and TLS take 20 ms, the OpenTelemetry SDK takes 30 MB.
    if job.type == "otlp":
        from supervisor.helpers.exporter.otlp_sink import OtlpSink

        def otlp(_: Cursors) -> tuple[Sink, EndSink | None]:
            sink = OtlpSink(job)
            return sink, sink if job.spans else None

        return otlp
    if job.type == "loki":
        from supervisor.helpers.exporter.loki_sink import LokiSink

        return lambda _: (LokiSink(job), None)
    if job.type == "file":
        from supervisor.helpers.exporter.file_sink import FileSink

        return lambda cursors: (FileSink(job, cursors), None)
    from supervisor.helpers.exporter.socket_sinks import JournaldSink, SyslogSink

    return lambda _: (SyslogSink(job) if job.type == "syslog" else JournaldSink(), None)


def _export(job: ExportJob, sock: socket.socket) -> int:
    log = Log("exporter", job.log_level)
    open_sinks = _opener(job)  # before waiting for the lock, because an upgrade may replace the modules meanwhile
    folder = f"{job.data_dir}/exports"
    os.makedirs(folder, _FOLDER_MODE, exist_ok=True)
    lock = os.open(f"{folder}/{job.name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    path = f"{folder}/{job.name}.cursors"
    try:
        cursors = Cursors(path)
    except UnreadableJournal as err:
        log.error(f"exports.{job.name}: {err}; the export starts over with the active runs")
        os.replace(path, f"{path}.damaged")
        cursors = Cursors(path)
    reporter = StatusReporter(job, log, lambda report: sock.sendall(encode(report)))
    sink, ends = open_sinks(cursors)
    with contextlib.closing(sink):
        Exporter(job, cursors, sink, ends, sock.fileno(), reporter).run()
    return 0


def main() -> int:
    """Deliver until the scheduler closes the connection; return the exit status, which is 1 after a failure."""
    os.chdir("/")
    set_up_helper("exporter", umask=0o027)
    forbid_new_privileges()
    sock = socket.socket(fileno=int(sys.argv[2]))
    request = receive(sock, ExportRequest)
    if request is None:
        return 0
    job = request.job
    set_title(f"ringward exporter {job.name}")
    exit_with_the_scheduler(sock.fileno(), _GRACE_S)
    try:
        return _export(job, sock)
    except ConnectionError:  # the scheduler was killed
        return 0
    except OSError as err:
        Log("exporter", job.log_level).error(f"exports.{job.name}: cannot work: {err}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
