"""The limit on open files: below the need of our own processes, no daemon would ever be ready."""

import resource

from supervisor.host.shortage import LEAST
from supervisor.startup.refusal import Cause, NotStarted


def require() -> None:
    """Do not start without as many as the daemon itself needs.

    Raises:
        NotStarted: the hard limit is lower.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < LEAST:
        raise NotStarted(
            f"at most {hard} files may be open (the hard limit RLIMIT_NOFILE), and a daemon needs {LEAST}; "
            f"raise it: LimitNOFILE= of the unit, ulimit -Hn, or --ulimit nofile= of a container",
            Cause.HOST,
        )
