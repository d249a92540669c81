"""The notifier's entry in checkouts: daemons of earlier versions start ``python -I -m supervisor.notifier``."""

import sys

from supervisor.helpers.notifier.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
