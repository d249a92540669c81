"""Identities of clients, and their permissions."""

import fnmatch
import hashlib
from enum import IntEnum
from typing import Literal, NamedTuple

from msgspec import Struct

from supervisor.ipc import run_token


class Role(IntEnum):
    """Roles in ascending order; each role includes the permissions of the previous ones."""

    ANYBODY = 0
    """No authentication."""
    VIEWER = 1
    """Read access."""
    OPERATOR = 2
    """Also triggers, stops, starts, deletes and restores."""
    ADMIN = 3
    """Also manages tokens, reloads the configuration, and reads the audit log and the daemon's log."""


ROLES: dict[str, Role] = {
    "viewer": Role.VIEWER,
    "operator": Role.OPERATOR,
    "admin": Role.ADMIN,
    "cloud": Role.OPERATOR,
}
"""Permissions of each role of a token or account. Runs that `cloud`, a remote control plane, triggers record that."""


class Credential(NamedTuple):
    """A credential that can be revoked while a stream is open."""

    kind: Literal["session", "account", "token", "run"]
    hash: str
    """The hash of the secret; the run id for the token of a run; the tag of an account."""


class Identity(Struct, frozen=True):
    """An authenticated client."""

    method: str
    """One of session, password, token, run, proxy and peer."""
    name: str
    """The name in records of actions."""
    role: Role = Role.ADMIN
    role_name: str = "admin"
    tasks: str | None = None
    """Glob pattern of the tasks that the client may see; None for all tasks."""
    may: tuple[str, ...] | None = None
    """Permissions of a run, as in ``supervisor.ipc.run_token``; None if the role decides."""
    credential: Credential | None = None
    by_browser: bool = False
    """Whether a browser adds the credential automatically, possibly for a page of another site."""
    user: str = ""
    """The name of the person's account; empty if the client is not a person."""
    key: str = ""
    """Separates names that different clients choose, such as idempotency keys."""

    @property
    def trigger(self) -> str:
        """The trigger to record for runs that this client triggers."""
        return "cloud" if self.role_name == "cloud" else "api"

    @property
    def counted_as(self) -> str:
        """The name under which the client's triggers are counted; each session and token has its own."""
        return self.name if self.credential is None else f"{self.credential.kind} {self.credential.hash}"

    def reach(self, verb: str) -> list[str] | None:
        """Return glob patterns of the units on which the client may use `verb`; None for all units."""
        if self.may is not None:
            return run_token.globs(self.may, verb)
        return None if self.tasks is None else [self.tasks]

    def sees(self, task: str) -> bool:
        """Return whether the client may see the task."""
        return self.tasks is None or fnmatch.fnmatchcase(task, self.tasks)


def hash_secret(secret: str) -> str:
    """Return the stored form of a session's or token's secret: a plain digest suffices for 256 random bits."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
