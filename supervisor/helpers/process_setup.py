"""The setup that helper processes share."""

import os
import select
import signal
import threading
import time

from supervisor.host.osport import set_title


def set_up_helper(process: str, umask: int = 0o077, nice: int = 5) -> None:
    """Give a helper process its title, a lower priority and a umask, and let it ignore SIGINT.

    A terminal sends SIGINT to its whole process group, but only the daemon handles it.
    """
    os.umask(umask)
    os.nice(nice)
    set_title(f"ringward {process}")
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def exit_with_the_scheduler(fd: int, grace_s: float = 0.0) -> None:
    """Exit a while after the scheduler has closed the connection `fd`, even if the main thread is blocked.

    The scheduler must send nothing more on it.
    """

    def wait() -> None:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        poll.poll()
        time.sleep(grace_s)
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()
