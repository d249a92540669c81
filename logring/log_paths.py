"""Paths of rings and log files."""

DAEMON_RING = "daemon"
"""Name of the ring of the daemon's own log."""


def ring_path(runtime_dir: str, name: str) -> str:
    """Return the path of a ring in shared memory. `name` is a run id or a log of the daemon ("daemon", "events")."""
    return f"{runtime_dir}/{name}.ring"


def log_path(data_dir: str, task: str, run_id: str) -> str:
    """Return the path of a run's log file on disk.

    The intermediate folder holds the runs of about 12 days, so no folder grows without bound: the first 6 characters
    of a ULID count units of 2^20 s.
    """
    return f"{data_dir}/logs/{task}/{run_id[:6]}/{run_id}.log"


def frames_path(log_path: str) -> str:
    """Return the path of a log file's sidecar, the history of its redrawn lines. Many logs have none.

    The code that removes the log file also removes this file.
    """
    return f"{log_path}.frames"
