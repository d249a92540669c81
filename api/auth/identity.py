"""Who a request comes from, and what that one may do."""

import fnmatch
import hashlib
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, NamedTuple


class Role(IntEnum):
    """What one must at least be to call an operation; each may do what those before it may."""

    ANYBODY = 0
    """Not even authenticated."""
    VIEWER = 1
    """Reads."""
    OPERATOR = 2
    """Triggers, stops, starts, deletes, restores."""
    ADMIN = 3
    """Also tokens, audit, reload and the daemon's log."""


TOKEN_ROLES: dict[str, Role] = {
    "viewer": Role.VIEWER,
    "operator": Role.OPERATOR,
    "admin": Role.ADMIN,
    "cloud": Role.OPERATOR,
}
"""The roles of tokens, and what each may do. `cloud` is a remote control plane: its runs say so."""


class Credential(NamedTuple):
    """A credential that can be revoked while a stream is open."""

    kind: Literal["session", "token", "run"]
    hash: str
    """Of a run: its id."""


@dataclass(frozen=True)
class Identity:
    """Who an authenticated request comes from."""

    method: str
    """session, password, token, run or peer."""
    name: str
    """For records of who did something."""
    role: Role = Role.ADMIN
    role_name: str = "admin"
    tasks: str | None = None
    """Glob of the only tasks that there are for this one; None: all."""
    may: tuple[str, ...] | None = None
    """Of a run: all that it is permitted (:mod:`supervisor.ipc.run_token`); None: the permissions of the role."""
    credential: Credential | None = None
    by_browser: bool = False
    """Whether a browser may have added the proof on its own, for a page of anybody."""
    key: str = ""
    """Keeps apart what different clients name by themselves."""

    @property
    def trigger(self) -> str:
        """What started the runs that this one triggers."""
        return "cloud" if self.role_name == "cloud" else "api"

    @property
    def counted_as(self) -> str:
        """Under which name the triggers of this one are counted: each session and token has its own."""
        return self.name if self.credential is None else f"{self.credential.kind} {self.credential.hash}"

    def sees(self, task: str) -> bool:
        """Whether there is this task for this one."""
        return self.tasks is None or fnmatch.fnmatchcase(task, self.tasks)


def hash_secret(secret: str) -> str:
    """Return the stored form of a session's or token's secret: a digest is enough for 256 random bits."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()
