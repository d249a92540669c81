"""python-ulid, loaded without what it imports for others.

It asks for the version of its own package; what reads such metadata is most of what it would bring.
"""

import importlib

from supervisor.later import import_later, settle, unused


def load() -> None:
    """Load it now: who makes the first id finds it."""
    import_later("importlib.metadata", version=unused)
    importlib.import_module("ulid")
    settle()
