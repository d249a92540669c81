"""Where rings and log files stand."""

DAEMON_RING = "daemon"
"""Name of the ring of the daemon's own log."""


def ring_path(runtime_dir: str, name: str) -> str:
    """Return the ring of a run (its id) or of one of our own logs ("daemon", "events"), in shared memory."""
    return f"{runtime_dir}/{name}.ring"


def log_path(data_dir: str, task: str, run_id: str) -> str:
    """Return the log file of a run, on disk.

    The folder between holds the runs of about 12 days (the first 6 characters of a ULID count units of 2^20 s),
    so that no folder grows without bound.
    """
    return f"{data_dir}/logs/{task}/{run_id[:6]}/{run_id}.log"


def frames_path(log_path: str) -> str:
    """Return the sidecar of a log file: how its redrawn lines came to be. Often there is none.

    The code that removes the log file also removes this file.
    """
    return f"{log_path}.frames"
