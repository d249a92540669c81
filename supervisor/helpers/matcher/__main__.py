"""``python -m ringward matcher --fd N``: a process that needs matches starts it, and sends requests over descriptor N.

The matching process exits when the descriptor closes. The kernel kills it if a match takes too much processor time,
because Python checks for signals too rarely to end a match by itself.
"""

import os
import signal
import sys

from supervisor.helpers.matcher.matching import TextMatcher
from supervisor.host.osport import set_title
from supervisor.ipc.match_request import RequestReader, encode_answer

_NICE = 5


def main() -> int:
    """Answer requests until the descriptor closes; return the exit status."""
    os.nice(_NICE)
    set_title("ringward matcher")
    fd = int(sys.argv[2])
    os.set_blocking(fd, True)
    # A process that handles signals by signalfd(2) blocks them, and its children inherit that.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGPROF])
    matcher = TextMatcher()
    for request in RequestReader(fd):
        signal.setitimer(signal.ITIMER_PROF, request.limit_s)
        span = matcher.answer(request)
        signal.setitimer(signal.ITIMER_PROF, 0)
        os.write(fd, encode_answer(span))
    return 0
