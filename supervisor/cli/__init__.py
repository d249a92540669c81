"""The command line: ``ringward up`` starts the daemon, the other commands talk to it."""

import os
import sys

from supervisor.later import import_later, load


def _cleandoc(text: str) -> str:
    """As the one of :mod:`inspect`, which is loaded for texts of several lines."""
    if "\n" not in text:
        return text.expandtabs().lstrip()
    load("inspect")
    cleaned: str = sys.modules["inspect"].cleandoc(text)
    return cleaned


# click has a type for UUIDs, for which the whole platform is found out: 5 ms of each command. It cleans up the help of
# each option: 7 ms for loading what does that.
import_later("platform", system=lambda: os.uname().sysname)
import_later("inspect", {"cleandoc": _cleandoc})
