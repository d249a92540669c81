"""Operations on access: sessions, tokens, accounts, failed logins, the audit log, webhooks, and the certificate.

API workers may run as another user, who cannot read the private key. The scheduler reads it for them.
"""

import os
from collections.abc import Callable
from typing import Any

import msgspec

from store import accounts, audit, sessions, tokens
from store.accounts import Account
from store.audit import Entry
from store.database import Database
from store.tokens import Token
from supervisor.config.model import Config
from supervisor.scheduler.control.rate_limit import LoginLimit
from supervisor.scheduler.control.socket_operation import (
    Arguments,
    Number,
    Reply,
    done,
    operation,
    refused,
    unavailable,
)
from supervisor.scheduler.database.commits import Committer
from supervisor.scheduler.loop.loop import Loop
from supervisor.scheduler.reload.config_files import ConfigFiles

_TOKEN_REFUSALS = {
    "taken": "A token with this name already exists; revoke it first",
    "full": f"The limit of {tokens.MAX_TOKENS} tokens is reached; revoke some first",
}
_ACCOUNT_REFUSALS = {
    "taken": "An account with this name already exists; remove it first, or change its password",
    "full": f"The limit of {accounts.MAX_ACCOUNTS} accounts is reached; remove some first",
}


_Entry = tuple[Number, str, str, str, str, Number, str, bool]


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
    entries: dict[str, _Entry]


class _Version(Arguments):
    version: str | None


class AccessOperations:
    """Operations on sessions, tokens, accounts and the audit log; each answers after it is stored."""

    def __init__(self, loop: Loop, committer: Committer) -> None:
        self._committer = committer
        self._logins = LoginLimit(loop.now_s)

    def _store(
        self,
        write: Callable[[Database, int], object],
        reply: Reply,
        answer: Callable[[Any], dict[str, Any]] = lambda _result: done(),
    ) -> None:
        """Call `write(db, now_ms)` in a change, then reply with `answer(result)`."""
        with self._committer.changing(unavailable(reply)) as change:
            change.read(lambda db: write(db, change.now_ms)).then(lambda result: reply(answer(result)))

    @operation(_Session)
    def session_create(self, request: _Session, reply: Reply) -> None:
        """Store a web session; a session of `admin` also ends the sessions of that account's former passwords."""
        tag, of_account = request.password_tag, request.account

        def write(db: Database, now_ms: int) -> bool:
            if not of_account:
                sessions.delete_of_former_passwords(db, tag)
            elif accounts.by_tag(db, tag) is None:
                return False
            sessions.create(db, request.hash, tag, now_ms)
            return True

        def answer(stored: bool) -> dict[str, object]:
            return done() if stored else refused(401, "The account was removed, or its password has changed")

        self._store(write, reply, answer)

    @operation(_Hash)
    def session_delete(self, request: _Hash, reply: Reply) -> None:
        """End a web session."""
        self._store(lambda db, _now_ms: sessions.delete(db, request.hash), reply)

    @operation(_Hash)
    def session_touch(self, request: _Hash, reply: Reply) -> None:
        """Record that a web session was used now."""
        self._store(lambda db, now_ms: sessions.touch(db, request.hash, now_ms), reply)

    @operation(_Token)
    def token_create(self, request: _Token, reply: Reply) -> None:
        """Store a token; refuse a name that exists, and a number above the limit."""
        token = Token(**msgspec.structs.asdict(request))

        def answer(refusal: str | None) -> dict[str, object]:
            return done() if refusal is None else refused(409, _TOKEN_REFUSALS[refusal])

        self._store(lambda db, _now_ms: tokens.create(db, token), reply, answer)

    @operation(_Name)
    def token_delete(self, request: _Name, reply: Reply) -> None:
        """Revoke a token."""
        self._store(lambda db, _now_ms: tokens.delete(db, request.name), reply, lambda deleted: done(found=deleted))

    @operation(_Hash)
    def token_touch(self, request: _Hash, reply: Reply) -> None:
        """Record that a token was used now."""
        self._store(lambda db, now_ms: tokens.touch(db, request.hash, now_ms), reply)

    @operation(_Account)
    def account_create(self, request: _Account, reply: Reply) -> None:
        """Store an account; refuse a name that exists, and a number above the limit."""
        account = Account(**msgspec.structs.asdict(request))

        def answer(refusal: str | None) -> dict[str, object]:
            return done() if refusal is None else refused(409, _ACCOUNT_REFUSALS[refusal])

        self._store(lambda db, _now_ms: accounts.create(db, account), reply, answer)

    @operation(_AccountPassword)
    def account_password(self, request: _AccountPassword, reply: Reply) -> None:
        """Replace an account's password."""
        values = (request.name, request.password_hash, request.tag)
        self._store(
            lambda db, now_ms: accounts.set_password(db, *values, now_ms), reply, lambda changed: done(found=changed)
        )

    @operation(_Name)
    def account_delete(self, request: _Name, reply: Reply) -> None:
        """Remove an account."""
        self._store(lambda db, _now_ms: accounts.delete(db, request.name), reply, lambda deleted: done(found=deleted))

    @operation(_Client)
    def login_attempt(self, request: _Client, reply: Reply) -> None:
        """Answer whether a client may try a password now."""
        retry_after_s = self._logins.blocked_s(request.client, request.account)
        reply(done(allowed=not retry_after_s, retry_after_s=retry_after_s))

    @operation(_Client)
    def login_failed(self, request: _Client, reply: Reply) -> None:
        """Count a wrong password that a client sent."""
        self._logins.failed(request.client, request.account)
        reply(done())

    @operation(_Client)
    def login_succeeded(self, request: _Client, reply: Reply) -> None:
        """Remember that a client sent an account's right password."""
        self._logins.succeeded(request.client, request.account)
        reply(done())

    @operation(_Audit)
    def audit(self, request: _Audit, reply: Reply) -> None:
        """Store entries of the audit log."""
        entries = {key: Entry(*entry) for key, entry in request.entries.items()}
        self._store(lambda db, _now_ms: audit.append(db, entries), reply)


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
    def hook(self, request: _Name, reply: Reply) -> None:
        """Answer with the definition of a hook; None if no hook has that name."""
        hook = self._hooks.get(request.name)
        if hook is None:
            reply(done(hook=None))
            return
        reply(
            done(
                hook={
                    "task": hook.task,
                    "kind": hook.kind,
                    "secret": hook.secret,
                    "events": hook.events,
                    "when": hook.when,
                    "params": hook.params,
                }
            )
        )


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
    def certificate(self, request: _Version, reply: Reply) -> None:
        """Answer with the version of certificate and key, and, unless the worker has that version, both as PEM."""
        paths, version = self._paths, request.version

        def deliver(result: _Found | BaseException) -> None:
            if isinstance(result, BaseException):
                reply(refused(409, f"cannot read the certificate: {result}"))
            else:
                reply(done(version=result[0], pem=result[1]))

        self._files.submit(lambda: _read_certificate(paths, version), deliver)


def _read_certificate(paths: list[str], known_version: str | None) -> _Found:
    version = " ".join(map(_version, paths))
    return version, None if version == known_version else "".join(map(_read, paths))


def _version(path: str) -> str:
    status = os.stat(path)
    return f"{status.st_ino}-{status.st_size}-{status.st_mtime_ns}"


def _read(path: str) -> str:
    with open(path, encoding="ascii", errors="replace") as file:
        return file.read(_MAX_BYTES) + "\n"
