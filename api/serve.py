"""The API server, started by the root process as ``python -I -m api.serve --fd N``.

LISTEN_FDS is in the environment (sd_listen_fds(3): descriptors from 3 on). On descriptor N comes the ``hello`` frame
with the settings; when that socket closes, the root is gone, and so are we, at once: the next root wants the addresses.

Here is only what has to come before everything else is loaded; :mod:`api.arbiter` is what it becomes.
"""

import gc
import os
import sys

from api.postponed import postpone


def main() -> None:
    """Run the server until it is told to end."""
    fd = int(sys.argv[sys.argv.index("--fd") + 1])
    gc.disable()  # until all is loaded, which stays
    os.chdir("/")  # gunicorn does not start where the daemon's directory has been removed meanwhile
    postpone()
    from api.arbiter import run

    run(fd)


if __name__ == "__main__":
    main()
