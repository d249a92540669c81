"""How often a client may guess the password. Kept here because all API workers share it."""

import collections
from collections.abc import Callable

_LOGIN_WINDOW_S = 60.0
_LOGINS_PER_WINDOW = 10
_MAX_CLIENTS = 10_000


class LoginLimit:
    """Wrong passwords per client: ten a minute, kept for the 10,000 clients that failed last."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` gives monotonic seconds."""
        self._clock = clock
        self._failures: collections.OrderedDict[str, collections.deque[float]] = collections.OrderedDict()

    def blocked_s(self, client: str) -> int:
        """Seconds until this client may try again, rounded up; 0: now."""
        times = self._failures.get(client)
        if times is None:
            return 0
        now_s = self._clock()
        while times and now_s - times[0] >= _LOGIN_WINDOW_S:
            times.popleft()
        if len(times) < _LOGINS_PER_WINDOW:
            return 0
        return int(times[0] + _LOGIN_WINDOW_S - now_s) + 1

    def failed(self, client: str) -> None:
        """Count a wrong password."""
        times = self._failures.setdefault(client, collections.deque(maxlen=_LOGINS_PER_WINDOW))
        times.append(self._clock())
        self._failures.move_to_end(client)
        while len(self._failures) > _MAX_CLIENTS:
            self._failures.popitem(last=False)
