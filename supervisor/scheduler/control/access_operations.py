"""Operations on access: sessions, tokens, accounts, failed logins, the audit log, webhooks, and the certificate.

API workers may run as another user, who cannot read the private key. The scheduler reads it for them.
"""

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

import msgspec

from store import accounts, audit, sessions, tokens
from store.accounts import Account
from store.audit import AuditEntry
from store.daemon_values import set_meta
from store.database import Database
from store.tokens import Token
from supervisor.config.model import Config
from supervisor.scheduler.control.control_socket import (
    Answer,
    Arguments,
    EntryValues,
    Number,
    RequestEntry,
    done,
    operation,
    refused,
)
from supervisor.scheduler.control.rate_limit import LoginLimit
from supervisor.scheduler.database.commits import Committer
from supervisor.scheduler.loop.loop import Loop
from supervisor.scheduler.loop.procedures import Procedure
from supervisor.scheduler.reload.config_files import ConfigFiles

_TOKEN_REFUSALS = {
    "taken": "A token with this name already exists; revoke it first",
    "full": f"The limit of {tokens.MAX_TOKENS} tokens is reached; revoke some first",
}
_ACCOUNT_REFUSALS = {
    "taken": "An account with this name already exists; remove it first, or change its password",
    "full": f"The limit of {accounts.MAX_ACCOUNTS} accounts is reached; remove some first",
}


FAMILIAR = "familiar_clients"
"""Key of the stored clients that have sent an account's right password (:mod:`store.daemon_values`)."""

T = TypeVar("T")


class _Name(Arguments):
    name: str


class _Hash(Arguments):
    hash: str


class _Session(_Hash):
    password_tag: str
    account: bool = False
    """Whether the tag belongs to an account in the database; otherwise to the account `admin` of the configuration."""


class _Token(_Hash):
    name: str
    role: str
    tasks: str | None
    created_at: Number
    created_by: str
    expires_at: Number | None
    last_used_at: Number | None


class _AccountPassword(Arguments):
    name: str
    password_hash: str
    tag: str


class _Account(_AccountPassword):
    role: str
    tasks: str | None
    created_at: Number
    created_by: str
    password_changed_at: Number


class _Client(Arguments):
    client: str
    account: str = ""
    """The account that the client tries; empty for another secret, or if the API worker has an older version."""


class _Audit(Arguments):
    entries: dict[str, EntryValues]


class _Version(Arguments):
    version: str | None


class AccessOperations:
    """Operations on sessions, tokens, accounts and the audit log; each answers after it is stored."""

    def __init__(self, loop: Loop, committer: Committer, key: str, familiar: Mapping[str, int]) -> None:
        """`key` and `familiar` are those of :class:`LoginLimit`; `familiar` is the stored value of `FAMILIAR`."""
        self._committer = committer
        self._logins = LoginLimit(loop, key, familiar)

    def _store(
        self,
        entry: RequestEntry,
        write: Callable[[Database, int], T],
        answer: Callable[[T], Answer] = lambda _result: done(),
    ) -> Procedure[Answer]:
        """Call `write(db, now_ms)` in a change; answer with `answer(result)`."""
        change = self._committer.change()
        stored = change.read(write, change.now_ms)
        entry.record(change, lambda: _effect(answer(stored.result)))
        yield self._committer.stored_or_refused(change)
        return answer(stored.result)

    @operation(_Session)
    def session_create(self, request: _Session, entry: RequestEntry) -> Procedure[Answer]:
        """Store a web session; a session of `admin` also ends the sessions of that account's former passwords."""
        return self._store(entry, partial(_create_session, request), _session_created)

    @operation(_Hash)
    def session_delete(self, request: _Hash, entry: RequestEntry) -> Procedure[Answer]:
        """End a web session."""
        return self._store(entry, lambda db, _now_ms: sessions.delete(db, request.hash))

    @operation(_Hash)
    def session_touch(self, request: _Hash, entry: RequestEntry) -> Procedure[Answer]:
        """Record that a web session was used now."""
        return self._store(entry, lambda db, now_ms: sessions.touch(db, request.hash, now_ms))

    @operation(_Token)
    def token_create(self, request: _Token, entry: RequestEntry) -> Procedure[Answer]:
        """Store a token; refuse a name that exists, and a number above the limit."""
        token = Token(**msgspec.structs.asdict(request))
        return self._store(entry, lambda db, _now_ms: tokens.create(db, token), partial(_created, _TOKEN_REFUSALS))

    @operation(_Name)
    def token_delete(self, request: _Name, entry: RequestEntry) -> Procedure[Answer]:
        """Revoke a token."""
        return self._store(entry, lambda db, _now_ms: tokens.delete(db, request.name), _found)

    @operation(_Hash)
    def token_touch(self, request: _Hash, entry: RequestEntry) -> Procedure[Answer]:
        """Record that a token was used now."""
        return self._store(entry, lambda db, now_ms: tokens.touch(db, request.hash, now_ms))

    @operation(_Account)
    def account_create(self, request: _Account, entry: RequestEntry) -> Procedure[Answer]:
        """Store an account; refuse a name that exists, and a number above the limit."""
        new = Account(**msgspec.structs.asdict(request))
        return self._store(entry, lambda db, _now_ms: accounts.create(db, new), partial(_created, _ACCOUNT_REFUSALS))

    @operation(_AccountPassword)
    def account_password(self, request: _AccountPassword, entry: RequestEntry) -> Procedure[Answer]:
        """Replace an account's password."""
        values = (request.name, request.password_hash, request.tag)
        return self._store(entry, lambda db, now_ms: accounts.set_password(db, *values, now_ms), _found)

    @operation(_Name)
    def account_delete(self, request: _Name, entry: RequestEntry) -> Procedure[Answer]:
        """Remove an account."""
        return self._store(entry, lambda db, _now_ms: accounts.delete(db, request.name), _found)

    @operation(_Client)
    def login_attempt(self, request: _Client, _entry: RequestEntry) -> Answer:
        """Answer whether a client may try a password now."""
        retry_after_s = self._logins.blocked_s(request.client, request.account)
        return done(allowed=not retry_after_s, retry_after_s=retry_after_s)

    @operation(_Client)
    def login_failed(self, request: _Client, _entry: RequestEntry) -> Answer:
        """Count a wrong password that a client sent."""
        self._logins.failed(request.client, request.account)
        return done()

    @operation(_Client)
    def login_succeeded(self, request: _Client, entry: RequestEntry) -> Answer | Procedure[Answer]:
        """Remember that a client sent an account's right password."""
        if not self._logins.succeeded(request.client, request.account):
            return done()
        familiar = self._logins.familiar
        return self._store(entry, lambda db, _now_ms: set_meta(db, FAMILIAR, familiar))

    @operation(_Audit)
    def audit(self, request: _Audit, entry: RequestEntry) -> Procedure[Answer]:
        """Store entries of the audit log."""
        entries = {key: AuditEntry(*values) for key, values in request.entries.items()}
        return self._store(entry, lambda db, _now_ms: audit.append(db, entries))


def _create_session(request: _Session, db: Database, now_ms: int) -> bool:
    if not request.account:
        sessions.delete_of_former_passwords(db, request.password_tag)
    elif accounts.by_tag(db, request.password_tag) is None:
        return False
    sessions.create(db, request.hash, request.password_tag, now_ms)
    return True


def _session_created(stored: bool) -> Answer:
    return done() if stored else refused(401, "The account was removed, or its password has changed")


def _created(refusals: Mapping[str, str], refusal: str | None) -> Answer:
    return done() if refusal is None else refused(409, refusals[refusal])


def _found(found: bool) -> Answer:
    return done(found=found)


def _effect(answer: Answer) -> str | None:
    """Return the effect for :meth:`RequestEntry.record` of a request with this answer."""
    return "" if answer["ok"] and answer["result"].get("found", True) else None


class HookOperations:
    """Answers with the definitions of incoming webhooks.

    A worker asks for each request, so a reload applies to the next one. It does not read the configuration, which may
    be readable only for the scheduler's user. It learns a hook's secret only when a request names the hook.
    """

    def __init__(self, config: Config) -> None:
        self.configure(config)

    def configure(self, config: Config) -> None:
        """Apply a new configuration."""
        self._hooks = config.hooks

    @operation(_Name)
    def hook(self, request: _Name, _entry: RequestEntry) -> Answer:
        """Answer with the definition of a hook; None if no hook has that name."""
        hook = self._hooks.get(request.name)
        names = ("task", "kind", "secret", "events", "when", "params")
        return done(hook=None if hook is None else {name: getattr(hook, name) for name in names})


_MAX_BYTES = 1 << 20
_Found = tuple[str, str | None]


class CertificateReader:
    """Reads the TLS certificate and its key for API workers.

    Args:
        files: provides the thread that reads files.
        config: the active configuration.
    """

    def __init__(self, files: ConfigFiles, config: Config) -> None:
        self._files = files
        self.configure(config)

    def configure(self, config: Config) -> None:
        """Apply a new configuration."""
        self._paths = [path for path in (config.http.tls_cert, config.http.tls_key) if path is not None]

    @operation(_Version)
    def certificate(self, request: _Version, _entry: RequestEntry) -> Procedure[Answer]:
        """Answer with the version of certificate and key, and, unless the worker has that version, both as PEM."""
        paths = self._paths
        found: _Found | BaseException = yield self._files.work(lambda: _read_certificate(paths, request.version))
        if isinstance(found, BaseException):
            return refused(409, f"cannot read the certificate: {found}")
        return done(version=found[0], pem=found[1])


def _read_certificate(paths: list[str], known_version: str | None) -> _Found:
    version = " ".join(map(_version, paths))
    return version, None if version == known_version else "".join(map(_read, paths))


def _version(path: str) -> str:
    status = os.stat(path)
    return f"{status.st_ino}-{status.st_size}-{status.st_mtime_ns}"


def _read(path: str) -> str:
    with open(path, encoding="ascii", errors="replace") as file:
        return file.read(_MAX_BYTES) + "\n"
