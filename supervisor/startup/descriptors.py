"""The limit of open files. Below the need of its own processes, a daemon would never become ready."""

import resource

from supervisor.host.shortage import LEAST
from supervisor.startup.refusal import NotStarted, RefusalCause


def require() -> None:
    """Check that the limit is high enough for the daemon itself.

    Raises:
        NotStarted: the hard limit is too low.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < LEAST:
        raise NotStarted(
            f"at most {hard} files may be open (the hard limit RLIMIT_NOFILE), and a daemon needs {LEAST}; "
            f"raise it: LimitNOFILE= of the unit, ulimit -Hn, or --ulimit nofile= of a container",
            RefusalCause.HOST,
        )
