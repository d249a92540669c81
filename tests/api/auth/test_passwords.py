"""The memory of a worker about log-ins."""

from typing import Any, cast

import gevent
import pytest

from api.auth.passwords import Passwords, WrongPassword
from supervisor.ipc.control_client import ControlClient


class Scheduler:
    """Lets everybody try, after a moment."""

    def call(self, _op: str, **_: Any) -> dict[str, Any]:
        gevent.sleep(0)
        return {"allowed": True}


def test_successful_logins_leave_no_state() -> None:
    """Any number of successful logins leaves no state; guesses of one client still wait for each other."""
    passwords = Passwords("right", cast(ControlClient, Scheduler()), lambda _name: None)
    for number in range(100):
        passwords.check("", "right", f"10.0.0.{number}")
    together = [gevent.spawn(passwords.check, "", "right", "10.0.0.1") for _ in range(5)]
    gevent.joinall(together, raise_error=True)
    with pytest.raises(WrongPassword):
        passwords.check("", "wrong", "10.0.0.1")
    assert passwords._turns == {}
    assert list(passwords._failures) == ["10.0.0.1"]
