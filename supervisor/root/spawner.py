"""The zygote's entry in checkouts: daemons of earlier versions start ``python -I -m supervisor.root.spawner``."""

import sys

from supervisor.root.spawn.zygote import main

if __name__ == "__main__":
    sys.exit(main())
