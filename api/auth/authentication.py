"""Authentication of requests.

A request authenticates with one of:

* a session cookie,
* a token, as ``Authorization: Bearer`` or in place of the password of HTTP Basic, with any user name,
* the password of an account, by HTTP Basic; an empty user name means the account `admin`,
* headers in which a trusted proxy names the person, if the request has no ``Authorization`` header,
* the peer's user id on the Unix socket, if the request has no ``Authorization`` header.

A run whose definition has ``may`` gets a token of its own, which is valid until the run ends.

A peer of the Unix socket is trusted if SO_PEERCRED (unix(7)) reports root or the daemon's own user. The overflow uid is
never trusted, because it stands for every user that a user namespace cannot map. A peer is not trusted on the socket
for proxies, nor if the request may be for a client of a proxy or a browser.

Every request looks up its session, token or account, so a revocation takes effect at once.
"""

import base64
import binascii
import hashlib
import hmac
import json
import logging
import os
import re
import time
from collections.abc import Callable
from typing import TypeVar
from weakref import WeakKeyDictionary

import falcon
import gevent

from api.auth import proxy_identity
from api.auth.auditor import RECEIVE_HOOK, Auditor
from api.auth.identity import ROLES, Credential, Identity, Role, hash_secret
from api.auth.passwords import ADMIN, Passwords, WrongPassword, WrongSecret, client_key
from api.errors import ApiError, unavailable
from api.operations.intermediaries import from_browser, sign_of_another_client
from api.read_threads import DatabaseReads
from api.schemas.records import ErrorDetail
from api.server.client_address import is_local_socket
from api.server.thread_pool import Threads
from store import accounts, sessions, tokens
from store.accounts import Account
from store.runs.writes import Run, get_run
from store.tasks import get_task
from store.tokens import Token
from supervisor.host.osport import peer
from supervisor.ipc import run_token
from supervisor.ipc.control_client import (
    CommandEntry,
    ControlClient,
    NotSent,
    RequestRefused,
    TemporarilyUnavailable,
    Unavailable,
)
from supervisor.ipc.messages import DaemonSettings

log = logging.getLogger("gunicorn.error")
T = TypeVar("T")

TOKEN_PREFIX = "rw_"  # noqa: S105 - what makes a token known as one
_TOKEN = re.compile(r"rw_[A-Za-z0-9_-]{43}")
_TOUCH_MS = 10 * 60 * 1000
_COOKIES = 4
_TAG_ROUNDS = 200_000
_REMEMBERED = 10_000


def new_secret() -> str:
    """Return 256 random bits as text."""
    return base64.urlsafe_b64encode(os.urandom(32)).rstrip(b"=").decode()


def _overflow_uid() -> int:
    try:
        with open("/proc/sys/kernel/overflowuid", encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 65534


def address_of(req: falcon.Request) -> str:
    """Return the client's address for records: "unix" for the Unix socket."""
    return "unix" if is_local_socket(req.env) else str(req.remote_addr)


class Authenticator:
    """Checks the credentials of requests. Each worker has one."""

    def __init__(
        self,
        settings: DaemonSettings,
        reads: DatabaseReads,
        in_thread: Threads,
        control: ControlClient,
        auditor: Auditor,
    ) -> None:
        self._settings = settings
        self._reads = reads
        self._in_thread = in_thread
        self._control = control
        self._auditor = auditor
        self._passwords = Passwords(settings.password, control, lambda name: reads(accounts.find, name))
        self._tag: str | None = None
        self._overflow_uid = _overflow_uid()
        # If the API server runs as another user than the daemon, the daemon runs as root.
        self._trusted_uids = {0} if settings.api_account else {0, os.geteuid()}
        self._proven: WeakKeyDictionary[object, tuple[str | None, str, str | None]] = WeakKeyDictionary()
        """Verified passwords by connection: the header, the client's address, and the tag of the account (None for
        `admin`). Later requests of the same connection need no new check."""
        self._touched_ms: dict[str, int] = {}
        self.cookie = f"ringward_{settings.daemon_id.lower()}"

    def identify(self, req: falcon.Request) -> Identity | None:
        """Return the identity of the client; None if it is not authenticated.

        Raises:
            ApiError: 400 headers of a proxy are ambiguous; 401 the password is wrong; 403 the proxy names a person
                without a role; 429 too many wrong passwords.
        """
        if req.auth is None and self.trusted_peer(req):
            return Identity("peer", f"uid {self._peer_uid(req)}")
        if req.auth is None:
            person = proxy_identity.identify(req.env, self._settings.identity)
            if person is not None:
                return person
        for digest in self._cookies(req):
            if (requester := self._by_session(digest)) is not None:
                return requester
        for secret in (req.get_cookie_values(self.cookie) or ())[:_COOKIES]:
            requester = self.by_token(secret, by_browser=True)
            if requester is not None:
                return requester
        bearer = _bearer(req)
        if bearer is not None:
            return self.by_token(bearer, by_browser=False)
        basic = _basic(req)
        return None if basic is None else self._by_basic(req, *basic)

    def _by_basic(self, req: falcon.Request, user: str, password: str) -> Identity | None:
        sock = req.env["gunicorn.socket"]
        proven = self._proven.get(sock)
        if proven is not None and proven[:2] == (req.auth, req.remote_addr):
            tag = proven[2]
            if tag is None:
                return _identity("password", None)
            if (account := self._reads(accounts.by_tag, tag)) is not None:
                return _identity("password", account)
        requester = self.by_token(password, by_browser=True)
        if requester is not None:
            return requester
        account = self.check_password(req, user, password)
        self._proven[sock] = (req.auth, req.remote_addr, None if account is None else account.tag)
        return _identity("password", account)

    def identity_of(self, account: Account | None) -> Identity:
        """Return the identity of a person who has just logged in; `account` is None for `admin`."""
        return _identity("session", account)

    def _cookies(self, req: falcon.Request) -> list[str]:
        """Return the hashes of the request's session cookies, at most `_COOKIES`."""
        return [hash_secret(secret) for secret in (req.get_cookie_values(self.cookie) or ())[:_COOKIES]]

    def trusted_peer(self, req: falcon.Request) -> bool:
        """Return whether the peer's uid alone authenticates the request."""
        if not is_local_socket(req.env) or sign_of_another_client(req):
            return False
        uid = self._peer_uid(req)
        return uid != self._overflow_uid and uid in self._trusted_uids

    def distrust(self, req: falcon.Request) -> str:
        """Return why a client is not authenticated, as the end of a sentence; empty for TCP without a credential."""
        if req.auth is not None:
            return ": the Authorization header has no valid credential"
        if not is_local_socket(req.env):
            return ""
        if sign := sign_of_another_client(req):
            return (
                f": the request may be for a client of a proxy or browser, because it has {sign}. Send a token or a "
                "password; a proxy must connect to proxy_socket in [http]"
            )
        uid = self._peer_uid(req)
        if uid == self._overflow_uid:
            return f": user {uid} is never trusted, because it stands for all users that a user namespace cannot map"
        return f": the Unix socket trusts only root and the daemon's user, and the client is user {uid}"

    @staticmethod
    def _peer_uid(req: falcon.Request) -> int:
        return peer(req.env["gunicorn.socket"])[1]

    @staticmethod
    def peer_pid(req: falcon.Request) -> int | None:
        """Return the pid that connected to the Unix socket; None if it is unknown or acts for another client."""
        if not is_local_socket(req.env) or sign_of_another_client(req):
            return None
        return peer(req.env["gunicorn.socket"])[0] or None  # 0: the process is not visible in this PID namespace

    def check_password(self, req: falcon.Request, user: str, password: str) -> Account | None:
        """Return the account if the password is correct; None is the account `admin`.

        Raises:
            ApiError: 401 the password is wrong, or there is no such account; 429 too many wrong passwords of this
                client, or for this account, in the last minute; 503 too many logins at once.
        """
        try:
            return self._passwords.check(
                user, password, None if is_local_socket(req.env) else client_key(req.remote_addr)
            )
        except WrongPassword as err:
            refusal = self.refusal(req, "The user name or the password is wrong")
            # An unknown name is not recorded: it may be a password in the wrong field.
            entry = {"who": "", "address": address_of(req), "target": err.account, "reason": refusal.detail}
            self._auditor.record(self._auditor.entry("login", status=401, **entry))
            raise refusal from err

    def hash_password(self, password: str) -> str:
        """Return the hash to store for the password of an account.

        Raises:
            ApiError: 503 too many logins at once.
        """
        return self._passwords.hash(password)

    def check_hook(self, req: falcon.Request, name: str, matches: Callable[[], bool]) -> None:
        """Check with `matches` that the sender of a webhook has the secret; return if so.

        Failures are counted separately from wrong passwords, so neither can lock out the other. The limit does not
        apply to a sender that has the secret: hosts such as GitHub's send the hooks of many people from one address,
        and do not repeat a refused delivery. It need not protect the secret, which is too long to be guessed.

        Raises:
            ApiError: 401 the check fails; 429 too many failures of this client in the last minute.
        """
        if matches():
            return
        client = None if is_local_socket(req.env) else f"hooks {client_key(req.remote_addr)}"
        try:
            self._passwords.check_by(lambda: False, client, "signatures or tokens")
        except WrongSecret as err:
            refusal = ApiError(
                401,
                "There is no such hook, or the signature or token is wrong",
                headers={"WWW-Authenticate": 'Bearer realm="ringward"'},
            )
            entry = {"who": "", "address": address_of(req), "target": name, "reason": refusal.detail}
            self._auditor.record(self._auditor.entry(RECEIVE_HOOK, status=401, **entry))
            raise refusal from err

    def refusal(self, req: falcon.Request, detail: str) -> ApiError:
        """Return a 401 response. It asks for a password, except for requests from the dashboard's pages."""
        headers = {} if from_browser(req) else {"WWW-Authenticate": 'Basic realm="ringward", charset="UTF-8"'}
        return ApiError(401, detail, headers=headers)

    def valid(self, credential: Credential) -> bool:
        """Return whether the credential of an open stream is still valid.

        Raises:
            StoreError: the database cannot be read.
        """
        if credential.kind == "session":
            return self._by_session(credential.hash) is not None
        if credential.kind == "account":
            return self._reads(accounts.by_tag, credential.hash) is not None
        if credential.kind == "run":
            return self._active_run(credential.hash) is not None
        return self._token(credential.hash) is not None

    # Tokens

    def by_token(self, secret: str, *, by_browser: bool) -> Identity | None:
        """Return the identity of a token; None if it is not valid. `by_browser`: a browser may have sent it unasked."""
        if run_id := run_token.run_of(self._settings.run_token_key, secret):
            return self._by_run(run_id, by_browser=by_browser)
        if not _TOKEN.fullmatch(secret):
            return None
        digest = hash_secret(secret)
        token = self._token(digest)
        if token is None or token.role not in ROLES:
            return None
        self._touch_token(token)
        return Identity(
            "token",
            f"token {token.name}",
            role=ROLES[token.role],
            role_name=token.role,
            tasks=token.tasks,
            credential=Credential("token", digest),
            by_browser=by_browser,
            key=digest,
        )

    def _by_run(self, run_id: str, *, by_browser: bool) -> Identity | None:
        """Return the identity of a run's token; None if the run has ended."""
        run = self._active_run(run_id)
        unit = None if run is None else self._reads(get_task, run.task_name)
        if run is None or unit is None:
            return None
        return Identity(
            "run",
            f"run {run_id} of {run.task_name}",
            role=Role.OPERATOR,
            role_name="run",
            tasks="",
            may=tuple(json.loads(unit.definition).get("may", ())) if unit.configured else (),
            credential=Credential("run", run_id),
            by_browser=by_browser,
            key=run_id,
        )

    def _active_run(self, run_id: str) -> Run | None:
        run = self._reads(get_run, run_id)
        return None if run is None or run.status == "ended" else run

    def _token(self, digest: str) -> Token | None:
        token = self._reads(tokens.find, digest, time.time_ns() // 1_000_000)
        return token if token is not None and hmac.compare_digest(token.hash, digest) else None

    def _touch_token(self, token: Token) -> None:
        """Record the use of a token, unless a use was recorded within `tokens.TOUCH_MS`."""
        now_ms = time.time_ns() // 1_000_000
        noted = (token.last_used_at or 0, self._touched_ms.get(token.hash, 0))
        if any(0 <= now_ms - noted_ms < tokens.TOUCH_MS for noted_ms in noted):
            return
        if len(self._touched_ms) >= _REMEMBERED:
            self._touched_ms.clear()
        self._touched_ms[token.hash] = now_ms
        gevent.spawn(self._touch, "token_touch", token.hash)

    # Sessions

    def password_tag(self) -> str:
        """Return the tag that ties sessions to the daemon's password: a new password has a new tag.

        The derivation is slow on purpose, so it is done only once.
        """
        if self._tag is None:
            digest = self._in_thread(
                hashlib.pbkdf2_hmac,
                "sha256",
                self._settings.password.encode(),
                self._settings.daemon_id.encode(),
                _TAG_ROUNDS,
            )
            self._tag = digest.hex()[:32]
        return self._tag

    def open_session(self, account: Account | None, entry: CommandEntry | None) -> str:
        """Create a session of an account (None for `admin`), together with `entry`, and return its secret.

        Raises:
            ApiError: 401 the account was removed meanwhile; 503 the scheduler, which stores sessions, is down.
        """
        secret = new_secret()
        tag = self.password_tag() if account is None else account.tag
        arguments = {"hash": hash_secret(secret), "password_tag": tag, "account": account is not None}
        execute_command(lambda: self._control.call("session_create", entry, **arguments))
        return secret

    def sessions_of(self, req: falcon.Request) -> dict[str, Identity]:
        """Return the identities of the sessions of the request's cookies by hash."""
        found = {digest: self._by_session(digest) for digest in self._cookies(req)}
        return {digest: identity for digest, identity in found.items() if identity is not None}

    def _by_session(self, digest: str) -> Identity | None:
        """Return the identity of a session, and record its use; None if it has ended."""
        now_ms = time.time_ns() // 1_000_000
        session = self._reads(sessions.get, digest, now_ms)
        if session is None:
            return None
        account = None
        if not hmac.compare_digest(session.password_tag, self.password_tag()):
            account = self._reads(accounts.by_tag, session.password_tag)
            if account is None:
                return None
        if now_ms - session.last_used_at > _TOUCH_MS:
            gevent.spawn(self._touch, "session_touch", digest)
        return _identity("session", account, Credential("session", digest))

    def _touch(self, op: str, digest: str) -> None:
        try:
            self._control.call(op, hash=digest)
        except (Unavailable, RequestRefused) as err:
            log.debug("cannot execute %s: %s", op, err)


def execute_command(command: Callable[[], T]) -> T:
    """Execute a command of the scheduler.

    Raises:
        ApiError: the scheduler's refusal with its status; 503 if it does not answer.
    """
    try:
        return command()
    except RequestRefused as err:
        details = [ErrorDetail(**item) for item in err.errors]
        headers = {} if err.retry_after_s is None else {"Retry-After": str(err.retry_after_s)}
        raise ApiError(err.status, err.detail, details, headers) from err
    except TemporarilyUnavailable as err:
        reason = str(err).partition(":")[0]  # the rest contains paths
        raise unavailable(f"{reason[:1].upper()}{reason[1:]}; nothing was changed") from err
    except NotSent as err:
        raise unavailable("The scheduler is down; nothing was changed") from err
    except Unavailable as err:
        raise unavailable("The scheduler did not answer; check what has changed before you repeat this") from err


def _bearer(req: falcon.Request) -> str | None:
    scheme, _, secret = (req.auth or "").partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else None


def _basic(req: falcon.Request) -> tuple[str, str] | None:
    """Return the user name and password of HTTP Basic; None if the header has none."""
    scheme, _, encoded = (req.auth or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        text = base64.b64decode(encoded.strip(), validate=True).decode("utf-8", "surrogateescape")
    except (binascii.Error, ValueError):
        return None
    user, colon, password = text.partition(":")
    return (user, password) if colon else None


def _identity(method: str, account: Account | None, credential: Credential | None = None) -> Identity:
    """Return the identity of a person; `account` is None for `admin`."""
    if account is None:
        return Identity(method, f"user {ADMIN}", user=ADMIN, credential=credential, by_browser=True)
    return Identity(
        method,
        f"user {account.name}",
        user=account.name,
        role=ROLES.get(account.role, Role.ANYBODY),
        role_name=account.role,
        tasks=account.tasks,
        credential=credential or Credential("account", account.tag),
        by_browser=True,
        key=f"user {account.name}",
    )
