"""The setup that helper processes share."""

import os
import signal

from supervisor.host.osport import set_title

_NICE = 5


def set_up_helper(process: str, umask: int = 0o077) -> None:
    """Give a helper process its title, a lower priority and a umask, and let it ignore SIGINT.

    A terminal sends SIGINT to its whole process group, but only the daemon handles it.
    """
    os.umask(umask)
    os.nice(_NICE)
    set_title(f"ringward {process}")
    signal.signal(signal.SIGINT, signal.SIG_IGN)
