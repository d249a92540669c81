"""The types of permissions: of runs towards the daemon, and of people to approve runs."""

import re

from msgspec import Struct

from supervisor.config.problems import InvalidValue, nearest
from supervisor.config.value_types.values import ListOf, Text
from supervisor.ipc.run_token import SEPARATOR, VERBS

_GLOB = re.compile(r"[a-zA-Z0-9._:*?\[\]!-]{1,200}")


class Permission(Struct, frozen=True):
    """A verb, and a name or a glob for names."""

    expected = 'a permission such as "restart:web" or "run:report-*"'

    def parse(self, value: object, directory: str) -> str:  # noqa: ARG002 - the protocol's signature
        """Return the permission unchanged."""
        if not isinstance(value, str) or SEPARATOR not in value:
            raise InvalidValue(f"must be {self.expected}")
        verb, _, glob = value.partition(SEPARATOR)
        if verb not in VERBS:
            raise InvalidValue(f"must begin with a verb ({', '.join(VERBS)})", nearest(verb, VERBS))
        if not _GLOB.fullmatch(glob):
            raise InvalidValue("must end with a name or a glob of names")
        return value


APPROVERS = ListOf(Text(), 100, empty=False)


class Approvers(Struct, frozen=True):
    """Whether a run needs an approval, or who may give it."""

    expected = 'true, false, or a list of names such as ["alice", "bob"]'

    def parse(self, value: object, directory: str) -> bool | tuple[str, ...]:
        """Return the truth value, or the names."""
        if isinstance(value, bool):
            return value
        if not isinstance(value, list):
            raise InvalidValue(f"must be {self.expected}")
        return APPROVERS.parse(value, directory)
