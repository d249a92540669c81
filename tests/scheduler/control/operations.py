"""Requests to operations, as the scheduler gets them from API workers."""

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from supervisor.scheduler.control.control_socket import Hello, Operations
from supervisor.scheduler.loop.procedures import Procedures


def operations_of(*subjects: object) -> dict[str, Callable[..., None]]:
    """Return a function for each operation that decodes and carries out a request for it.

    It gets the arguments, the function that sends the answer, and an audit entry with its key, if there is one.
    """
    operations = Operations(Procedures(), *subjects)

    def ask(name: str, arguments: dict[str, Any], send: Callable[[Any], None], entry: object = None) -> None:
        message = {"id": "id", "deadline": 0, "op": name, "args": arguments, "audit": entry}
        request = operations.decode(msgspec.json.encode(message))
        assert not isinstance(request, Hello)
        operations.carry_out(request, send)

    return {name: partial(ask, name) for subject in subjects for name in vars(type(subject)) if name[0] != "_"}
