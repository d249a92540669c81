"""Rate limits: actions per client and minute. The scheduler counts them, because API workers share the limits."""

import collections
from collections.abc import Callable

from supervisor.config.model import Config

_WINDOW_S = 60.0
_MAX_CLIENTS = 10_000


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
    sent the account's right password is exempt from the second limit. Otherwise strangers on many hosts could keep a
    person from logging in.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` gives monotonic seconds."""
        self._of_client = RateLimit(clock, 10)
        self._of_account = RateLimit(clock, 100)
        self._familiar: collections.OrderedDict[tuple[str, str], None] = collections.OrderedDict()
        """Pairs of an account and a client that has sent its right password."""

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
        return bool(account) and (account, client) not in self._familiar

    def succeeded(self, client: str, account: str) -> None:
        """Remember that the client sent the right password of the account."""
        self._familiar[account, client] = None
        self._familiar.move_to_end((account, client))
        if len(self._familiar) > _MAX_CLIENTS:
            self._familiar.popitem(last=False)


class TriggerLimit(RateLimit):
    """The limit of triggers per credential (``[http] trigger_rate``)."""

    def configure(self, config: Config) -> None:
        """Apply a new configuration."""
        self.rate = config.http.trigger_rate

    def refusal(self, who: str, wait_s: int) -> str:
        """Return the message for a client that exceeds the limit."""
        return f"{who} has triggered {self.rate} runs within a minute (trigger_rate): try again in {wait_s} s"
