"""The command line: ``ringward up`` starts the daemon, the other commands talk to it."""

import os

from supervisor.later import import_later

# click has a type for UUIDs, for which the whole platform is found out: 5 ms of each command.
import_later("platform", system=lambda: os.uname().sysname)
