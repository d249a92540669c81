"""Check of the password and of other secrets, in constant time and at a limited rate.

The scheduler counts wrong secrets for all workers. Each worker also counts, for times when the scheduler is down.
Clients of the Unix socket are not counted, because they have no address.
"""

import contextlib
import hashlib
import hmac
import ipaddress
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import gevent
from gevent.lock import BoundedSemaphore

from api.errors import ApiError
from api.server.client_address import parse_address
from supervisor.ipc.control_client import ControlClient, Refused, Unavailable

log = logging.getLogger("gunicorn.error")

_FAILURES = 10
_WINDOW_S = 60.0
_CLIENTS = 10_000
_ASK_S = 1.0
"""How long a login waits for an unresponsive scheduler, and how long the scheduler is not asked afterwards."""


class WrongSecret(Exception):
    """The password, or another secret, is wrong."""


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


class _Turns:
    """Waiting logins of one client."""

    def __init__(self) -> None:
        self.lock = BoundedSemaphore()
        self.wanted = 0


class Passwords:
    """The password check of one worker."""

    def __init__(self, password: str, control: ControlClient) -> None:
        self._digest = hashlib.sha256(password.encode()).digest()
        self._control = control
        self._failures: dict[str, deque[float]] = {}
        self._turns: dict[str, _Turns] = {}
        """Logins in progress, by client."""
        self._away_until_s = 0.0

    def check(self, password: str, client: str | None) -> None:
        """Return if the password is correct; otherwise as :meth:`check_by`."""
        self.check_by(lambda: self._matches(password), client, "passwords")

    def check_by(self, matches: Callable[[], bool], client: str | None, noun: str) -> None:
        """Return if `matches` does.

        Args:
            matches: Checks a secret.
            client: Key under which to count failures; None: do not count.
            noun: Plural of the checked secret, for the message.

        Raises:
            WrongSecret: it does not match.
            ApiError: 429 too many failures of this client in the last minute.
        """
        if client is None:
            if not matches():
                raise WrongSecret
            return
        # One at a time per client, so that concurrent guesses are counted one after another.
        with self._turn(client):
            self._check_limit(client, noun)
            if matches():
                return
            self._count_failure(client)
        raise WrongSecret

    @contextlib.contextmanager
    def _turn(self, client: str) -> Iterator[None]:
        turns = self._turns.setdefault(client, _Turns())
        turns.wanted += 1
        try:
            with turns.lock:
                yield
        finally:
            turns.wanted -= 1
            if not turns.wanted:
                del self._turns[client]

    def _matches(self, password: str) -> bool:
        return hmac.compare_digest(hashlib.sha256(password.encode("utf-8", "surrogateescape")).digest(), self._digest)

    def _check_limit(self, client: str, noun: str) -> None:
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
        raise ApiError(429, f"Too many wrong {noun}; try again in a minute", headers={"Retry-After": str(wait_s)})

    def _count_failure(self, client: str) -> None:
        if len(self._failures) > _CLIENTS:
            self._failures.clear()
        self._failures.setdefault(client, deque(maxlen=_FAILURES)).append(time.monotonic())
        if self._ask_scheduler("login_failed", client) is None:
            log.debug("cannot report a wrong password from %s to the scheduler", client)

    def _ask_scheduler(self, op: str, client: str) -> dict[str, Any] | None:
        """Return the scheduler's answer. None after a second without one, so that logins do not queue."""
        if time.monotonic() < self._away_until_s:
            return None
        # In a separate greenlet: the greenlet of a stream would otherwise keep the stack memory of these calls as long
        # as the stream is open.
        asking = gevent.spawn(self._answer, op, client)
        try:
            answer: dict[str, Any] | None = asking.get(timeout=_ASK_S)
        except gevent.Timeout:
            answer = None
        finally:
            asking.kill(block=False)
        if answer is None:
            self._away_until_s = time.monotonic() + _ASK_S
        return answer

    def _answer(self, op: str, client: str) -> dict[str, Any] | None:
        with contextlib.suppress(Unavailable, Refused):
            return self._control.call(op, client=client)
        return None
