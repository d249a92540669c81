"""Lookup of users in threads, because a name service (nsswitch.conf(5)) may use the network and may never answer."""

import errno
import os
from collections.abc import Callable
from functools import partial

from msgspec import Struct, field

from supervisor.config.model import Service, Task
from supervisor.config.value_types.durations import format_duration
from supervisor.host.detached_thread import DetachedThread
from supervisor.host.unix_accounts import NoSuchAccount, UnixAccount, own_variables, resolve
from supervisor.scheduler.loop.loop import Loop, Timer
from supervisor.scheduler.loop.procedures import Wait

_PATIENCE_MS = 30_000

_Key = tuple[str | None, bool]


class UserIdentity(Struct, frozen=True):
    """The user of a run, or the reason why it cannot be determined."""

    account: UnixAccount | None = None
    """None means the daemon's user."""
    refusal: str | None = None
    """Why the lookup failed; None if it succeeded."""
    variables: dict[str, str] = field(default_factory=dict)
    """Environment variables of a login, such as HOME, if the run needs them."""


DAEMON_USER = UserIdentity()
"""The daemon's user, which needs no lookup."""
Then = Callable[[UserIdentity], None]


def look_up(user: str | None, clean_env: bool) -> UserIdentity:
    """Ask the name service; may block forever. A failure becomes the ``refusal`` of the result."""
    try:
        account = None if user is None else resolve(user)
        variables = {} if account is None else account.variables
        return UserIdentity(account, None, own_variables() if clean_env and not variables else variables)
    except (NoSuchAccount, OSError, MemoryError) as err:
        return UserIdentity(refusal=str(err) or os.strerror(errno.ENOMEM))


class _LookupCaller:
    def __init__(self, then: Then) -> None:
        self.then: Then | None = then
        self.timer: Timer | None = None

    def answer(self, identity: UserIdentity) -> None:
        """Pass on the first answer; ignore later ones."""
        then, self.then = self.then, None
        if self.timer is not None:
            self.timer.cancel()
        if then is not None:
            then(identity)


class _OpenLookup:
    """A lookup that has not been answered."""

    def __init__(self) -> None:
        self.callers: list[_LookupCaller] = []
        self.thread: DetachedThread | None = None


class UserLookup:
    """Looks up users in threads. Equal lookups share a thread, so a hung name service costs one thread per user."""

    def __init__(
        self,
        loop: Loop,
        patience_ms: int = _PATIENCE_MS,
        ask: Callable[[str | None, bool], UserIdentity] = look_up,
    ) -> None:
        self._loop = loop
        self._patience_ms = patience_ms
        self._ask = ask
        self._open: dict[_Key, _OpenLookup] = {}

    def identity_of(self, definition: Task | Service) -> Wait:
        """Look up the user of a run of `definition`; the result of the wait is an :class:`UserIdentity`."""
        return lambda waiter: self.ask(definition, waiter.resume)

    def ask(self, definition: Task | Service, then: Then) -> None:
        """Call `then` once with the user of a run of `definition`.

        The call happens at once if no lookup is needed, otherwise from the loop.
        """
        key = definition.user, definition.clean_env
        if key == (None, False):
            then(DAEMON_USER)
            return
        caller = _LookupCaller(then)
        late = f"{_described(key)} could not be looked up within {format_duration(self._patience_ms)}"
        caller.timer = self._loop.after(self._patience_ms, self._give_up, key, caller, UserIdentity(refusal=late))
        lookup = self._open.setdefault(key, _OpenLookup())
        lookup.callers.append(caller)
        if lookup.thread is not None and lookup.thread.running:
            return
        try:  # no thread yet, or it ran out of memory
            lookup.thread = DetachedThread(partial(self._look_up, key))
        except RuntimeError:  # Python's only sign that pthread_create(3) failed: EAGAIN, too many threads
            self._answered(
                key, UserIdentity(refusal=f"{_described(key)} could not be looked up: the limit of threads is reached")
            )

    def _look_up(self, key: _Key) -> None:
        self._loop.call_from_thread(partial(self._answered, key, self._ask(*key)))

    def _give_up(self, key: _Key, caller: _LookupCaller, identity: UserIdentity) -> None:
        """Stop waiting for a thread that may never end; it stays registered, so that the next lookup shares it."""
        self._open[key].callers.remove(caller)
        caller.answer(identity)

    def _answered(self, key: _Key, identity: UserIdentity) -> None:
        if key in self._open:
            for caller in self._open.pop(key).callers:
                caller.answer(identity)


def _described(key: _Key) -> str:
    return "the daemon's user" if key[0] is None else f"the user {key[0]}"
