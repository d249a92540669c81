"""The watcher's entry in checkouts: daemons of earlier versions start ``python -I -m supervisor.watcher``."""

import sys

from supervisor.helpers.watcher.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
