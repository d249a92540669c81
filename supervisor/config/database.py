"""Where the state of the daemon is kept."""

from urllib.parse import urlsplit

from supervisor.config.model import DatabaseServer
from supervisor.config.problems import Invalid
from supervisor.config.substitute import variables_in
from supervisor.dataclass import dataclass

SQLITE = "sqlite"
_SCHEMES = ("postgresql://", "postgres://")
_MAX_BYTES = 4096


@dataclass(frozen=True)
class DatabaseUrl:
    """``sqlite``, or the URL of a database of a PostgreSQL server. No message repeats it: it may have a password."""

    def parse(self, value: object, directory: str) -> DatabaseServer | None:  # noqa: ARG002 - the protocol's signature
        """See :class:`supervisor.config.values.ValueType`; None: SQLite, in the data directory."""
        if value == SQLITE:
            return None
        if not isinstance(value, str) or not value.startswith(_SCHEMES[0]):
            remedy = f"write {_SCHEMES[0]}…" if isinstance(value, str) and value.startswith(_SCHEMES[1]) else None
            raise Invalid(f"must be {self.describe()}", remedy, show=False)
        if not value.isprintable() or " " in value or len(value.encode()) > _MAX_BYTES or not _is_url(value):
            remedy = "write characters of a password that have a meaning in URLs as %XX"
            raise Invalid("cannot be read as a URL", remedy, show=False)
        return DatabaseServer(str(value), tuple(sorted(variables_in(value))))

    def describe(self) -> str:
        """See :class:`supervisor.config.values.ValueType`."""
        return '"sqlite" or a URL such as "postgresql://ringward@/ringward"'


def _is_url(text: str) -> bool:
    try:
        return not urlsplit(text).fragment
    except ValueError:  # brackets that are no IPv6 address
        return False
