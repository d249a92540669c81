"""End with status 5 on SIGTERM, after a last line."""

import os
import signal
import sys

# Not by a handler: a signal in the moment before pause(2) would wait for the next one to wake us.
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
os.write(1, b"ready\n")
signal.sigwait({signal.SIGTERM})
os.write(1, b"bye\n")
sys.exit(5)
