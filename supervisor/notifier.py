"""The notifier's entry: running daemons of other versions start ``python -I -m supervisor.notifier``."""

import sys

from supervisor.helpers.notifier.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
