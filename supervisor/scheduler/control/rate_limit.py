"""Rate limits: actions per client and minute. The scheduler counts them, because API workers share the limits."""

import collections
import hmac
from collections.abc import Callable, Mapping

from supervisor.config.model import Config
from supervisor.scheduler.loop.loop import Loop

_WINDOW_S = 60.0
_MAX_CLIENTS = 10_000
_DAY_MS = 86_400_000
_FAMILIAR_MS = 30 * _DAY_MS
_MAX_FAMILIAR = 1000


class RateLimit:
    """Counts the actions of each client within the last minute.

    Only the 10,000 most recent clients are remembered, which limits the memory that strangers can use.

    Attributes:
        rate: allowed actions per minute; 0 for no limit.
    """

    def __init__(self, clock: Callable[[], float], rate: int) -> None:
        """`clock` gives monotonic seconds."""
        self.rate = rate
        self._clock = clock
        self._times: collections.OrderedDict[str, collections.deque[float]] = collections.OrderedDict()

    def blocked_s(self, client: str) -> int:
        """Return the seconds until a client may act again, rounded up; 0 if it may act now."""
        times = self._times.get(client)
        if times is None or not self.rate:
            return 0
        now_s = self._clock()
        while times and now_s - times[0] >= _WINDOW_S:
            times.popleft()
        if len(times) < self.rate:
            return 0
        return int(times[-self.rate] + _WINDOW_S - now_s) + 1

    def count(self, client: str, times: int = 1) -> None:
        """Count `times` actions of a client."""
        if not self.rate:
            return
        attempt_times = self._times.setdefault(client, collections.deque())
        attempt_times.extend([self._clock()] * min(times, self.rate))
        while len(attempt_times) > self.rate:
            attempt_times.popleft()
        self._times.move_to_end(client)
        while len(self._times) > _MAX_CLIENTS:
            self._times.popitem(last=False)


class LoginLimit:
    """The limits of wrong passwords.

    A client may send 10 per minute. All clients together may send 100 per minute for one account. A client that has
    sent the account's right password within 30 days is exempt from the second limit. Otherwise strangers on many hosts
    could keep a person from logging in.
    """

    def __init__(self, loop: Loop, key: str, familiar: Mapping[str, int]) -> None:
        """Create the limits.

        Args:
            loop: gives the time.
            key: secret for the MACs, which keep addresses and account names out of the database.
            familiar: the stored familiar clients.
        """
        self._loop = loop
        self._key = key.encode()
        self._of_client = RateLimit(loop.now_s, 10)
        self._of_account = RateLimit(loop.now_s, 100)
        self.familiar = dict(familiar)
        """Last time in ms at which a client sent the right password, by the MAC of account and client."""

    def blocked_s(self, client: str, account: str) -> int:
        """Return the seconds until the client may try a password of the account, rounded up; 0 if it may try now.

        An empty account means another secret, to which only the client's own limit applies.
        """
        of_account_s = self._of_account.blocked_s(account) if self._counts(client, account) else 0
        return max(self._of_client.blocked_s(client), of_account_s)

    def failed(self, client: str, account: str) -> None:
        """Count a wrong password of `client` for `account`."""
        self._of_client.count(client)
        if self._counts(client, account):
            self._of_account.count(account)

    def _counts(self, client: str, account: str) -> bool:
        return bool(account) and self._age_ms(self._mac(client, account)) >= _FAMILIAR_MS

    def succeeded(self, client: str, account: str) -> bool:
        """Remember that the client sent the right password of the account; return whether `familiar` changed.

        A client that is already familiar is stored at most once a day.
        """
        mac = self._mac(client, account)
        if self._age_ms(mac) < _DAY_MS:
            return False
        self.familiar[mac] = self._loop.now_ms()
        newest = sorted(self.familiar, key=self._age_ms)[:_MAX_FAMILIAR]
        self.familiar = {mac: self.familiar[mac] for mac in newest if self._age_ms(mac) < _FAMILIAR_MS}
        return True

    def _age_ms(self, mac: str) -> int:
        return self._loop.now_ms() - self.familiar.get(mac, -_FAMILIAR_MS)

    def _mac(self, client: str, account: str) -> str:
        return hmac.digest(self._key, f"login\n{account}\n{client}".encode(), "sha256").hex()


class TriggerLimit(RateLimit):
    """The limit of triggers per credential (``[http] trigger_rate``)."""

    def configure(self, config: Config) -> None:
        """Apply a new configuration."""
        self.rate = config.http.trigger_rate

    def refusal(self, who: str, wait_s: int) -> str:
        """Return the message for a client that exceeds the limit."""
        return f"{who} has triggered {self.rate} runs within a minute (trigger_rate): try again in {wait_s} s"
