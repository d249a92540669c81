"""The distribution on the package index that has a top-level package of the same name as one of ours."""

import contextlib
import os
import re
import sys

from supervisor.startup.refusal import Cause, NotStarted

_RIVAL = re.compile(r"supervisor-(?P<version>[^-]+)(-.+)?\.(dist-info|egg-info|egg)", re.IGNORECASE)
"""Its metadata."""


def refuse_rival() -> None:
    """Do not start beside a distribution that puts modules of its own into our package.

    Raises:
        NotStarted: it is installed.
    """
    for directory in sys.path:  # importlib.metadata does the same in 20 ms
        with contextlib.suppress(OSError):  # ENOENT, ENOTDIR: a zip file
            for name in os.listdir(directory):
                found = _RIVAL.fullmatch(name)
                if found is not None:
                    raise NotStarted(
                        f'the distribution "supervisor" {found["version"]} is installed in this environment '
                        f"({sys.prefix}), and its modules mix with Ringward's package of the same name; "
                        f"uninstall it, or install Ringward into an environment of its own",
                        Cause.CONFIGURATION,
                    )
