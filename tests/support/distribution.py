"""Distribution of tests among the processes of a parallel run: mostly file by file."""

from xdist.scheduler import LoadFileScheduling

_ALONE = "tests/crash/"
"""Each of these tests takes long and shares nothing with others."""
_BACKENDS = "tests/contract/"
"""All of these share one daemon per kind of database, because preparing it is slow."""


def unit(nodeid: str) -> str:
    """Return the unit of a test. One process runs all tests of a unit, one after another."""
    file, _, test = nodeid.partition("::")
    if nodeid.startswith(_ALONE):
        return nodeid
    if nodeid.startswith(_BACKENDS):
        return f"{_BACKENDS} on {'PostgreSQL' if 'postgresql' in test else 'SQLite'}"
    return file


class Units(LoadFileScheduling):  # type: ignore[misc]  # which publishes no types
    """A scheduler that distributes units instead of files."""

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)
