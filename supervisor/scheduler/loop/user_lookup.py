"""Lookup of users in threads, because a name service (nsswitch.conf(5)) may use the network and may never answer."""

import errno
import os
import threading
from collections.abc import Callable
from functools import partial

from msgspec import Struct, field

from supervisor.config.model import Service, Task
from supervisor.config.value_types.durations import format_duration
from supervisor.host.unix_accounts import Account, NoSuchAccount, own_variables, resolve
from supervisor.scheduler.loop.loop import Loop, Timer

_PATIENCE_MS = 30_000

_Key = tuple[str | None, bool]


class Identity(Struct, frozen=True):
    """The user of a run, or the reason why it cannot be determined."""

    account: Account | None = None
    """None means the daemon's user."""
    refusal: str | None = None
    """Why the lookup failed; None if it succeeded."""
    variables: dict[str, str] = field(default_factory=dict)
    """Environment variables of a login, such as HOME, if the run needs them."""


DAEMON_USER = Identity()
"""The daemon's user, which needs no lookup."""
Then = Callable[[Identity], None]


def look_up(user: str | None, clean_env: bool) -> Identity:
    """Ask the name service; may block forever. A failure becomes the ``refusal`` of the result."""
    try:
        account = None if user is None else resolve(user)
        variables = {} if account is None else account.variables
        return Identity(account, None, own_variables() if clean_env and not variables else variables)
    except (NoSuchAccount, OSError, MemoryError) as err:
        return Identity(refusal=str(err) or os.strerror(errno.ENOMEM))


class _LookupCaller:
    def __init__(self, then: Then) -> None:
        self.then: Then | None = then
        self.timer: Timer | None = None

    def answer(self, identity: Identity) -> None:
        """Pass on the first answer; ignore later ones."""
        then, self.then = self.then, None
        if self.timer is not None:
            self.timer.cancel()
        if then is not None:
            then(identity)


class UserLookup:
    """Looks up users in threads. Equal lookups share a thread, so a hung name service costs one thread per user."""

    def __init__(
        self,
        loop: Loop,
        patience_ms: int = _PATIENCE_MS,
        ask: Callable[[str | None, bool], Identity] = look_up,
    ) -> None:
        self._loop = loop
        self._patience_ms = patience_ms
        self._ask = ask
        self._open: dict[_Key, list[_LookupCaller]] = {}

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
        caller.timer = self._loop.after(self._patience_ms, lambda: self._give_up(key, caller, Identity(refusal=late)))
        if key in self._open:
            self._open[key].append(caller)
            return
        self._open[key] = [caller]
        try:
            threading.Thread(target=self._look_up, args=(key,), daemon=True).start()
        except RuntimeError:  # Python's only sign that pthread_create(3) failed: EAGAIN, too many threads
            self._answered(
                key, Identity(refusal=f"{_described(key)} could not be looked up: the limit of threads is reached")
            )

    def _look_up(self, key: _Key) -> None:
        self._loop.call_from_thread(partial(self._answered, key, self._ask(*key)))

    def _give_up(self, key: _Key, caller: _LookupCaller, identity: Identity) -> None:
        """Stop waiting for a thread that may never end; it stays registered, so that the next lookup shares it."""
        self._open[key].remove(caller)
        caller.answer(identity)

    def _answered(self, key: _Key, identity: Identity) -> None:
        for caller in self._open.pop(key, []):
            caller.answer(identity)


def _described(key: _Key) -> str:
    return "the daemon's user" if key[0] is None else f"the user {key[0]}"
