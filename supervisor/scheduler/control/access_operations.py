"""Operations on access: sessions, tokens, accounts, failed logins, the audit log, and the certificate of the API.

API workers of another user cannot read the private key, so the scheduler reads it for them.
"""

import os
import time
from collections.abc import Callable
from typing import Any

from store import accounts, audit, sessions, tokens
from store.accounts import Account
from store.audit import Entry
from store.database import Database
from store.tokens import Token
from supervisor.config.model import Config
from supervisor.scheduler.control.control_socket import Operation, Reply, done, refused, unavailable
from supervisor.scheduler.control.rate_limit import LoginLimit
from supervisor.scheduler.database.commits import Committer
from supervisor.scheduler.reload.config_files import ConfigFiles

Arguments = dict[str, Any]

_TOKEN_REFUSALS = {
    "taken": "A token with this name exists; revoke it first",
    "full": f"The limit of {tokens.MAX_TOKENS} tokens is reached; revoke some first",
}
_ACCOUNT_REFUSALS = {
    "taken": "An account with this name exists; remove it first, or change its password",
    "full": f"The limit of {accounts.MAX_ACCOUNTS} accounts is reached; remove some first",
}


class AccessOperations:
    """Carries out operations, and answers after they are stored."""

    def __init__(self, committer: Committer) -> None:
        self._committer = committer
        self._logins = LoginLimit(time.monotonic)

    def operations(self) -> dict[str, Operation]:
        """By name."""
        return {
            "session_create": self.session_create,
            "session_delete": self.session_delete,
            "session_touch": self.session_touch,
            "token_create": self.token_create,
            "token_delete": self.token_delete,
            "token_touch": self.token_touch,
            "account_create": self.account_create,
            "account_password": self.account_password,
            "account_delete": self.account_delete,
            "login_attempt": self.login_attempt,
            "login_failed": self.login_failed,
            "login_succeeded": self.login_succeeded,
            "audit": self.audit,
        }

    def _store(
        self,
        write: Callable[[Database, int], Any],
        reply: Reply,
        answer: Callable[[Any], dict[str, Any]] = lambda _result: done(),
    ) -> None:
        """Call `write(db, now_ms)`, then answer with `answer(result)`."""
        change = self._committer.change(unavailable(reply))
        change.read(lambda db: write(db, change.now_ms)).then(lambda result: reply(answer(result)))
        self._committer.commit(change)

    def session_create(self, arguments: Arguments, reply: Reply) -> None:
        """Store a web session. One of the account `admin` ends the sessions of its former passwords."""
        tag, of_account = arguments["password_tag"], arguments.get("account", False)

        def write(db: Database, now_ms: int) -> bool:
            if not of_account:
                sessions.delete_of_former_passwords(db, tag)
            elif accounts.by_tag(db, tag) is None:
                return False
            sessions.create(db, arguments["hash"], tag, now_ms)
            return True

        def answer(stored: bool) -> dict[str, Any]:
            return done() if stored else refused(401, "The account was removed, or its password has changed")

        self._store(write, reply, answer)

    def session_delete(self, arguments: Arguments, reply: Reply) -> None:
        """End a web session."""
        self._store(lambda db, _now_ms: sessions.delete(db, arguments["hash"]), reply)

    def session_touch(self, arguments: Arguments, reply: Reply) -> None:
        """Update the time of last use of a web session."""
        self._store(lambda db, now_ms: sessions.touch(db, arguments["hash"], now_ms), reply)

    def token_create(self, arguments: Arguments, reply: Reply) -> None:
        """Store a token."""
        token = Token(**arguments)

        def answer(refusal: str | None) -> dict[str, Any]:
            return done() if refusal is None else refused(409, _TOKEN_REFUSALS[refusal])

        self._store(lambda db, _now_ms: tokens.create(db, token), reply, answer)

    def token_delete(self, arguments: Arguments, reply: Reply) -> None:
        """Revoke a token."""
        self._store(lambda db, _now_ms: tokens.delete(db, arguments["name"]), reply, lambda found: done(found=found))

    def token_touch(self, arguments: Arguments, reply: Reply) -> None:
        """Update the time of last use of a token."""
        self._store(lambda db, now_ms: tokens.touch(db, arguments["hash"], now_ms), reply)

    def account_create(self, arguments: Arguments, reply: Reply) -> None:
        """Store an account."""
        account = Account(**arguments)

        def answer(refusal: str | None) -> dict[str, Any]:
            return done() if refusal is None else refused(409, _ACCOUNT_REFUSALS[refusal])

        self._store(lambda db, _now_ms: accounts.create(db, account), reply, answer)

    def account_password(self, arguments: Arguments, reply: Reply) -> None:
        """Replace the password of an account."""
        values = (arguments["name"], arguments["password_hash"], arguments["tag"])
        self._store(
            lambda db, now_ms: accounts.set_password(db, *values, now_ms), reply, lambda found: done(found=found)
        )

    def account_delete(self, arguments: Arguments, reply: Reply) -> None:
        """Remove an account."""
        self._store(lambda db, _now_ms: accounts.delete(db, arguments["name"]), reply, lambda found: done(found=found))

    def login_attempt(self, arguments: Arguments, reply: Reply) -> None:
        """Answer whether a client may try a password now."""
        retry_after_s = self._logins.blocked_s(*_client_and_account(arguments))
        reply(done(allowed=not retry_after_s, retry_after_s=retry_after_s))

    def login_failed(self, arguments: Arguments, reply: Reply) -> None:
        """Count a wrong password of a client."""
        self._logins.failed(*_client_and_account(arguments))
        reply(done())

    def login_succeeded(self, arguments: Arguments, reply: Reply) -> None:
        """Remember that a client sent the right password of an account."""
        self._logins.succeeded(*_client_and_account(arguments))
        reply(done())

    def audit(self, arguments: Arguments, reply: Reply) -> None:
        """Store entries of the audit log."""
        entries = {key: Entry(*entry) for key, entry in arguments["entries"].items()}
        self._store(lambda db, _now_ms: audit.append(db, entries), reply)


def _client_and_account(arguments: Arguments) -> tuple[str, str]:
    """Return whose login it is; the account is empty for other secrets, and from an API worker of an older version."""
    return arguments["client"], arguments.get("account", "")


_MAX_BYTES = 1 << 20
_Found = tuple[str, str | None]


class CertificateReader:
    """Reads the certificate and its key at the request of a worker.

    Args:
        files: provides the thread that reads.
        config: the active configuration.
    """

    def __init__(self, files: ConfigFiles, config: Config) -> None:
        self._files = files
        self.configure(config)

    def configure(self, config: Config) -> None:
        """Apply a new configuration."""
        self._paths = [path for path in (config.http.tls_cert, config.http.tls_key) if path is not None]

    def operations(self) -> dict[str, Operation]:
        """By name."""
        return {"certificate": self.command}

    def command(self, arguments: dict[str, Any], reply: Reply) -> None:
        """Answer with the version of certificate and key, and with both as PEM unless the worker has that version."""
        paths, known = self._paths, arguments["version"]

        def found(result: _Found | BaseException) -> None:
            if isinstance(result, BaseException):
                reply(refused(409, f"cannot read the certificate: {result}"))
            else:
                reply(done(version=result[0], pem=result[1]))

        self._files.submit(lambda: _look(paths, known), found)


def _look(paths: list[str], known: str | None) -> _Found:
    version = " ".join(map(_version, paths))
    return version, None if version == known else "".join(map(_read, paths))


def _version(path: str) -> str:
    status = os.stat(path)
    return f"{status.st_ino}-{status.st_size}-{status.st_mtime_ns}"


def _read(path: str) -> str:
    with open(path, encoding="ascii", errors="replace") as file:
        return file.read(_MAX_BYTES) + "\n"
