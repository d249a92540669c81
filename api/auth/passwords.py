"""Checks of account passwords and other secrets, in constant time and at a limited rate.

The account `admin` has the daemon's password; the other accounts are in the database. The check of an unknown name
takes the same time as that of a wrong password.

For all workers, the scheduler counts wrong secrets by client, and wrong passwords also by account. Each worker counts
by client too, for times when the scheduler is down. Clients of the Unix socket are not counted, because they have no
address.
"""

import base64
import contextlib
import hashlib
import hmac
import ipaddress
import logging
import os
import re
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

import gevent
from gevent.lock import BoundedSemaphore

from api.errors import ApiError
from api.server.client_address import parse_address
from api.server.thread_pool import Threads
from store.accounts import Account
from supervisor.ipc.control_client import ControlClient, RequestRefused, Unavailable

log = logging.getLogger("gunicorn.error")

P = ParamSpec("P")
T = TypeVar("T")

ADMIN = "admin"
"""The account with the daemon's password. An empty user name means this account."""

_NAME = re.compile(r"[a-zA-Z0-9._@-]{1,100}")
_FAILURES = 10
_WINDOW_S = 60.0
_CLIENTS = 10_000
_ASK_S = 1.0
"""Time that a login waits for an unresponsive scheduler, and for which the scheduler is not asked afterwards."""
_MAX_HASHING = 32
"""Maximum number of logins that wait for the one hashing thread; a hash takes a fraction of a second."""

_N, _R, _P = 1 << 14, 8, 5
"""Parameters of scrypt (RFC 7914): 16 MiB and five passes, one of the equivalent settings that OWASP recommends."""
_SALT_BYTES = 16
_HASH_BYTES = 32
_MAX_MEMORY_BYTES = 64 << 20


def hash_password(password: str) -> str:
    """Return ``scrypt$N$r$p$salt$hash`` with a new salt. Later versions can raise the included parameters."""
    salt = os.urandom(_SALT_BYTES)
    return "$".join(("scrypt", str(_N), str(_R), str(_P), _text(salt), _text(_scrypt(password, salt, _N, _R, _P))))


def verify(password: str, stored: str) -> bool:
    """Return whether `stored` is a hash of the password."""
    _, n, r, p, salt, digest = stored.split("$")
    computed = _scrypt(password, base64.b64decode(salt), int(n), int(r), int(p))
    return hmac.compare_digest(computed, base64.b64decode(digest))


def _scrypt(password: str, salt: bytes, n: int, r: int, p: int) -> bytes:
    data = password.encode("utf-8", "surrogateescape")
    return hashlib.scrypt(data, salt=salt, n=n, r=r, p=p, maxmem=_MAX_MEMORY_BYTES, dklen=_HASH_BYTES)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


class WrongSecret(Exception):
    """The password, or another secret, is wrong."""


class WrongPassword(WrongSecret):
    """The password is wrong, or there is no such account.

    Attributes:
        account: Name of the account; empty if there is no account of that name.
    """

    def __init__(self, account: str) -> None:
        super().__init__(account)
        self.account = account


def account_name(user: str) -> str:
    """Return the name of the account that a user name means; empty if it cannot be an account."""
    if not user:
        return ADMIN
    return user if _NAME.fullmatch(user) else ""


def client_key(address: str) -> str:
    """Return the key under which failed logins are counted: an IPv4 address, or an IPv6 network of 64 bits.

    All of 127.0.0.0/8 shares one key, because a local user can use any of its addresses.
    """
    ip = parse_address(address)
    if ip is None:
        return address
    if ip.is_loopback:
        return "127.0.0.1"
    if isinstance(ip, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((ip, 64), strict=False))
    return str(ip)


class _LoginLock:
    """Lock for the logins of one client, and the number of logins that use it."""

    def __init__(self) -> None:
        self.lock = BoundedSemaphore()
        self.users = 0


class Passwords:
    """The password check of one worker.

    Args:
        password: The password of the account `admin`.
        control: Client of the scheduler.
        find: Returns the account of a name other than `admin`; None if there is none.
    """

    def __init__(self, password: str, control: ControlClient, find: Callable[[str], Account | None]) -> None:
        self._digest = hashlib.sha256(password.encode()).digest()
        self._control = control
        self._find = find
        self._hashing = Threads(1)
        self._waiting = 0
        self._nobodys_hash: str | None = None
        self._failures: dict[str, deque[float]] = {}
        self._turns: dict[str, _LoginLock] = {}
        """Logins in progress, by client."""
        self._away_until_s = 0.0

    def check(self, user: str, password: str, client: str | None) -> Account | None:
        """Return the account if the password is correct; None is the account `admin`.

        Args:
            user: Name of the account; empty for `admin`.
            password: The password to check.
            client: Key under which to count failures; None to count none.

        Raises:
            WrongPassword: the password is wrong, or there is no such account.
            ApiError: 429 too many wrong passwords of this client, or for this account, in the last minute; 503 too many
                logins at once.
        """
        name = account_name(user)
        account = None if name in ("", ADMIN) else self._find(name)
        account_exists = name == ADMIN or account is not None

        def matches() -> bool:
            return self._is_password_of_admin(password) if name == ADMIN else self._is_password_of(account, password)

        try:
            self.check_by(matches, client, "passwords", name)
        except WrongSecret as err:
            raise WrongPassword(name if account_exists else "") from err
        if client is not None:
            gevent.spawn(self._answer, "login_succeeded", client, name)
        return account

    def hash(self, password: str) -> str:
        """Return the hash to store for the password of an account.

        Raises:
            ApiError: 503 too many logins at once.
        """
        return self._hashed(hash_password, password)

    def check_by(self, matches: Callable[[], bool], client: str | None, noun: str, account: str = "") -> None:
        """Call `matches` and return if it returns True; count a failure.

        Args:
            matches: Checks a secret.
            client: Key under which to count failures; None to count none.
            noun: Plural of the checked secret, for the message.
            account: Name of the account, if the secret is its password.

        Raises:
            WrongSecret: `matches` returned False.
            ApiError: 429 too many failures of this client, or for this account, in the last minute.
        """
        if client is None:
            if not matches():
                raise WrongSecret
            return
        # Check one secret of a client at a time. Otherwise concurrent guesses could pass the limit together.
        with self._one_at_a_time(client):
            self._check_limit(client, noun, account)
            if matches():
                return
            self._count_failure(client, account)
        raise WrongSecret

    @contextlib.contextmanager
    def _one_at_a_time(self, client: str) -> Iterator[None]:
        turns = self._turns.setdefault(client, _LoginLock())
        turns.users += 1
        try:
            with turns.lock:
                yield
        finally:
            turns.users -= 1
            if not turns.users:
                del self._turns[client]

    def _is_password_of_admin(self, password: str) -> bool:
        return hmac.compare_digest(hashlib.sha256(password.encode("utf-8", "surrogateescape")).digest(), self._digest)

    def _is_password_of(self, account: Account | None, password: str) -> bool:
        """Return whether this is the password of an account. Without an account, take the same time."""
        if self._nobodys_hash is None:
            self._nobodys_hash = self._hashed(hash_password, "")
        correct = self._hashed(verify, password, self._nobodys_hash if account is None else account.password_hash)
        return correct and account is not None

    def _hashed(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a slow function in the hashing thread.

        Raises:
            ApiError: 503 too many logins at once.
        """
        if self._waiting >= _MAX_HASHING:
            raise ApiError(503, "Too many logins at once; try again in a moment", headers={"Retry-After": "1"})
        self._waiting += 1
        try:
            return self._hashing(function, *args, **kwargs)
        finally:
            self._waiting -= 1

    def _check_limit(self, client: str, noun: str, account: str) -> None:
        failures = self._failures.get(client, deque())
        now = time.monotonic()
        while failures and failures[0] <= now - _WINDOW_S:
            failures.popleft()
        if len(failures) >= _FAILURES:
            wait_s = int(failures[0] + _WINDOW_S - now) + 1
        else:
            result = self._ask_scheduler("login_attempt", client, account)
            if result is None or result["allowed"]:
                return
            wait_s = max(1, int(result["retry_after_s"]))
        raise ApiError(429, f"Too many wrong {noun}; try again in {wait_s} s", headers={"Retry-After": str(wait_s)})

    def _count_failure(self, client: str, account: str) -> None:
        if len(self._failures) > _CLIENTS:
            self._failures.clear()
        self._failures.setdefault(client, deque(maxlen=_FAILURES)).append(time.monotonic())
        if self._ask_scheduler("login_failed", client, account) is None:
            log.debug("cannot report a wrong password from %s to the scheduler", client)

    def _ask_scheduler(self, op: str, client: str, account: str) -> dict[str, Any] | None:
        """Return the scheduler's answer; None if it takes over a second, so that logins do not queue up."""
        if time.monotonic() < self._away_until_s:
            return None
        # Use a separate greenlet: that of a stream would otherwise keep the stack memory of these calls as long as the
        # stream is open.
        asking = gevent.spawn(self._answer, op, client, account)
        try:
            answer: dict[str, object] | None = asking.get(timeout=_ASK_S)
        except gevent.Timeout:
            answer = None
        finally:
            asking.kill(block=False)
        if answer is None:
            self._away_until_s = time.monotonic() + _ASK_S
        return answer

    def _answer(self, op: str, client: str, account: str) -> dict[str, object] | None:
        with contextlib.suppress(Unavailable, RequestRefused):
            return self._control.call(op, client=client, account=account)
        return None
