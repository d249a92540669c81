"""Notes of running helpers, by which the next daemon ends those that a killed root leaves behind."""

import os
import resource
import signal
import subprocess
from pathlib import Path

from supervisor.ipc import stale_helpers


def test_interrupted_note(tmp_path: Path) -> None:
    """A note that is written again, but not completely, does not lose the helper."""
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as helper:
        try:
            stale_helpers.note(str(tmp_path), "gunicorn", helper.pid)
            soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
            try:
                stale_helpers.note(str(tmp_path), "gunicorn", helper.pid)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            (killed,) = stale_helpers.end(str(tmp_path))
            assert killed.pid == helper.pid
            assert helper.wait() == -signal.SIGKILL
        finally:
            helper.kill()
    stale_helpers.clear(str(tmp_path))
    assert os.listdir(tmp_path) == []
