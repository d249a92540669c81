"""What the processes of a parallel run of the tests take from the heap: mostly one file after the other."""

from xdist.scheduler import LoadFileScheduling

_ALONE = "tests/crash/"
"""Each of these tests takes long and shares nothing."""
_BACKENDS = "tests/contract/"
"""All of these share one daemon for each kind of database, which is not cheap to prepare."""


def unit(nodeid: str) -> str:
    """The name of what a test belongs to; all tests of a unit are run by one process, one after the other."""
    file, _, test = nodeid.partition("::")
    if nodeid.startswith(_ALONE):
        return nodeid
    if nodeid.startswith(_BACKENDS):
        return f"{_BACKENDS} on {'PostgreSQL' if 'postgresql' in test else 'SQLite'}"
    return file


class Units(LoadFileScheduling):  # type: ignore[misc]  # which publishes no types
    """Gives out units instead of files."""

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)
