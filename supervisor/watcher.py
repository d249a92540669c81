"""The watcher's entry: running daemons of other versions start ``python -I -m supervisor.watcher``."""

import sys

from supervisor.helpers.watcher.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
