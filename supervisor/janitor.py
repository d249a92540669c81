"""The janitor's entry in checkouts: daemons of earlier versions start ``python -I -m supervisor.janitor``."""

import sys

from supervisor.helpers.janitor.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
