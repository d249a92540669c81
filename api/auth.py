"""Who is asking.

A request is authenticated by one of: a session cookie, HTTP Basic with the password (any user name), or its peer on
the Unix socket. A trusted peer is root or the daemon's own user by SO_PEERCRED (unix(7)); never the overflow uid,
which stands for everybody that a user namespace cannot name; and never when a header shows that a proxy or a browser
speaks for somebody else.

Passwords are compared in constant time. Failed ones are counted by the scheduler, which all workers share; a
worker counts its own as well, for while the scheduler is away.
"""

import base64
import binascii
import contextlib
import hashlib
import hmac
import ipaddress
import logging
import os
import socket
import struct
import time
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import falcon
import gevent
from gevent.lock import BoundedSemaphore

from api.context import Files, Reads
from api.errors import ApiError, unavailable
from api.schemas import ErrorDetail
from store import sessions
from supervisor.client import ControlClient, Refused, Unavailable
from supervisor.messages import Boot

log = logging.getLogger("gunicorn.error")
T = TypeVar("T")

_FAILURES = 10
_WINDOW_S = 60.0
_TOUCH_MS = 10 * 60 * 1000
_COOKIES = 4
_ASK_S = 1.0
"""How long a log-in waits for a scheduler that does not answer, and how long it is not asked then."""
_TAG_ROUNDS = 200_000
_SPEAKS_FOR_OTHERS = ("HTTP_FORWARDED", "HTTP_VIA", "HTTP_ORIGIN", "HTTP_COOKIE")
_SPEAKS_FOR_OTHERS_PREFIXES = ("HTTP_X_FORWARDED_", "HTTP_SEC_FETCH_")


@dataclass(frozen=True)
class Identity:
    """Who an authenticated request comes from."""

    method: str
    """session, password or peer."""
    name: str
    """For records of who did something."""
    session: str | None = None
    """Hash of the session."""


def hash_token(token: str) -> str:
    """What is stored of a session's token: a digest is enough, the token has 256 random bits."""
    return hashlib.sha256(token.encode()).hexdigest()


def _overflow_uid() -> int:
    try:
        with open("/proc/sys/kernel/overflowuid", encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 65534


def is_unix(req: falcon.Request) -> bool:
    """Whether the request came over the Unix socket."""
    return bool(req.env["gunicorn.socket"].family == socket.AF_UNIX)


def from_browser(req: falcon.Request) -> bool:
    """Whether the request carries the marks that only a browser's pages send."""
    return any(name.startswith("HTTP_SEC_FETCH_") for name in req.env)


def client_key(address: str) -> str:
    """What failed log-ins are counted by: an IPv4 address, or an IPv6 network of 64 bits.

    All of 127.0.0.0/8 is this host: who is on it can use each of these addresses.
    """
    try:
        ip = ipaddress.ip_address(address.split("%", maxsplit=1)[0])
    except ValueError:
        return address
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is None:
            return str(ipaddress.ip_network((ip, 64), strict=False))
        ip = ip.ipv4_mapped
    return "127.0.0.1" if ip.is_loopback else str(ip)


class Authenticator:
    """Checks credentials; one per worker."""

    def __init__(self, boot: Boot, reads: Reads, files: Files, control: ControlClient) -> None:
        self._boot = boot
        self._reads = reads
        self._files = files
        self._control = control
        self._digest = hashlib.sha256(boot.password.encode()).digest()
        self._tag: str | None = None
        self._overflow_uid = _overflow_uid()
        self._failures: dict[str, deque[float]] = {}
        self._locks: defaultdict[str, BoundedSemaphore] = defaultdict(BoundedSemaphore)
        self._away_until_s = 0.0
        self._proven: WeakKeyDictionary[Any, str] = WeakKeyDictionary()
        self.cookie = f"ringward_{boot.daemon_id.lower()}"

    def identify(self, req: falcon.Request) -> Identity | None:
        """Who asks; None: nobody that we know.

        Raises:
            ApiError: 401 a wrong password; 429 too many of them.
        """
        if self.trusted_peer(req):
            return Identity("peer", f"uid {self._peer_uid(req)}")
        for digest in self._cookies(req):
            if self.session_valid(digest):
                return Identity("session", "web", digest)
        password = _basic_password(req)
        if password is None:
            return None
        sock = req.env["gunicorn.socket"]
        if self._proven.get(sock) != req.auth:
            self.check_password(req, password)
            # A connection that has proven it once need not ask the scheduler each time.
            self._proven[sock] = req.auth or ""
        return Identity("password", f"password from {req.remote_addr or 'the Unix socket'}")

    def _cookies(self, req: falcon.Request) -> list[str]:
        """Hashes of the sessions that the request names: one, or a few, never as many as somebody cares to send."""
        return [hash_token(token) for token in (req.get_cookie_values(self.cookie) or ())[:_COOKIES]]

    def trusted_peer(self, req: falcon.Request) -> bool:
        """Whether the peer's uid alone is proof enough."""
        if not is_unix(req):
            return False
        if any(name in _SPEAKS_FOR_OTHERS or name.startswith(_SPEAKS_FOR_OTHERS_PREFIXES) for name in req.env):
            return False
        uid = self._peer_uid(req)
        return uid != self._overflow_uid and uid in (0, os.geteuid())

    def _peer_uid(self, req: falcon.Request) -> int:
        raw = req.env["gunicorn.socket"].getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        _pid, uid, _gid = struct.unpack("3i", raw)
        return int(uid)

    def check_password(self, req: falcon.Request, password: str) -> None:
        """Return when it is the password.

        Raises:
            ApiError: 401 it is not; 429 this client was wrong too often in the last minute.
        """
        # Over the Unix socket nobody is counted: there is no address to count by.
        client = None if is_unix(req) else client_key(req.remote_addr)
        if client is None:
            if not self._matches(password):
                raise self.refusal(req, "The password is wrong")
            return
        # One at a time per client, so that guesses sent at once are counted one after another.
        with self._locks[client]:
            self._check_limit(client)
            if self._matches(password):
                return
            self._count_failure(client)
        raise self.refusal(req, "The password is wrong")

    def _matches(self, password: str) -> bool:
        return hmac.compare_digest(hashlib.sha256(password.encode("utf-8", "surrogateescape")).digest(), self._digest)

    def _check_limit(self, client: str) -> None:
        failures = self._failures.get(client, deque())
        now = time.monotonic()
        while failures and failures[0] <= now - _WINDOW_S:
            failures.popleft()
        if len(failures) >= _FAILURES:
            wait_s = int(failures[0] + _WINDOW_S - now) + 1
        else:
            result = self._ask_scheduler("login_attempt", client)
            if result is None or result["allowed"]:
                return
            wait_s = max(1, int(result["retry_after_s"]))
        raise ApiError(429, "Too many wrong passwords; try again later", headers={"Retry-After": str(wait_s)})

    def _count_failure(self, client: str) -> None:
        if len(self._failures) > 10_000:
            self._failures.clear()
            self._locks.clear()
        self._failures.setdefault(client, deque(maxlen=_FAILURES)).append(time.monotonic())
        if self._ask_scheduler("login_failed", client) is None:
            log.debug("a wrong password from %s could not be reported", client)

    def _ask_scheduler(self, op: str, client: str) -> dict[str, Any] | None:
        """Its answer; None when it is away, after a second at most: nobody who logs in waits in line for that."""
        if time.monotonic() < self._away_until_s:
            return None
        with contextlib.suppress(Unavailable, Refused), gevent.Timeout(_ASK_S, False):
            return self._control.call(op, client=client)
        self._away_until_s = time.monotonic() + _ASK_S
        return None

    def refusal(self, req: falcon.Request, detail: str) -> ApiError:
        """The 401; it invites a client that is no browser page to send the password."""
        headers = {} if from_browser(req) else {"WWW-Authenticate": 'Basic realm="ringward", charset="UTF-8"'}
        return ApiError(401, detail, headers=headers)

    # Sessions

    def password_tag(self) -> str:
        """Ties a session to the password: another password, another tag. Slow on purpose, so made only once."""
        if self._tag is None:
            digest = self._files(
                hashlib.pbkdf2_hmac, "sha256", self._boot.password.encode(), self._boot.daemon_id.encode(), _TAG_ROUNDS
            )
            self._tag = digest.hex()[:32]
        return self._tag

    def open_session(self) -> str:
        """Make a session and return its token.

        Raises:
            ApiError: 503 the scheduler, which stores it, is away.
        """
        token = base64.urlsafe_b64encode(os.urandom(32)).rstrip(b"=").decode()
        arguments = {"hash": hash_token(token), "password_tag": self.password_tag()}
        asked(lambda: self._control.call("session_create", **arguments))
        return token

    def close_sessions(self, req: falcon.Request) -> None:
        """End the sessions whose cookies the request has.

        Raises:
            ApiError: 503 the scheduler is away.
        """
        for digest in self._cookies(req):
            if self.session_valid(digest):
                asked(lambda digest=digest: self._control.call("session_delete", hash=digest))  # type: ignore[misc]

    def session_valid(self, digest: str) -> bool:
        """Whether the session is alive; notes that it was used."""
        now_ms = time.time_ns() // 1_000_000
        session = self._reads(sessions.get, digest, now_ms)
        if session is None or not hmac.compare_digest(session.password_tag, self.password_tag()):
            return False
        if now_ms - session.last_used_at > _TOUCH_MS:
            gevent.spawn(self._touch, digest)
        return True

    def _touch(self, digest: str) -> None:
        try:
            self._control.call("session_touch", hash=digest)
        except (Unavailable, Refused) as err:
            log.debug("a session could not be touched: %s", err)


def asked(command: Callable[[], T]) -> T:
    """Carry out a command of the scheduler.

    Raises:
        ApiError: what the scheduler refuses, with its status; 503 when it is away and nothing was done.
    """
    try:
        return command()
    except Refused as err:
        details = [ErrorDetail(item["location"], item["message"]) for item in err.errors]
        raise ApiError(err.status, err.detail, details) from err
    except Unavailable as err:
        raise unavailable("The scheduler is away; nothing was done") from err


def _basic_password(req: falcon.Request) -> str | None:
    scheme, _, encoded = (req.auth or "").partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        text = base64.b64decode(encoded.strip(), validate=True).decode("utf-8", "surrogateescape")
    except (binascii.Error, ValueError):
        return None
    _, colon, password = text.partition(":")
    return password if colon else None
