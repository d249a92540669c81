"""Messages between the scheduler and its helper processes: one dataclass per operation.

::

    @dataclass(frozen=True)
    class StopProbe(HelperMessage, op="forget"):
        key: str

is the message ``{"op": "forget", "key": ...}`` of :mod:`supervisor.ipc.messages`. The two sides may be of different
releases: unknown fields are ignored, and missing ones have their defaults. The standard library encodes the messages,
because msgspec would add 2 MB to each helper.
"""

import socket
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields, is_dataclass
from typing import Any, ClassVar, TypeVar

from supervisor.ipc import messages
from supervisor.ipc.messages import Decoder, ProtocolError, parse


class HelperMessage:
    """A message. Its classes are dataclasses."""

    op: ClassVar[str]

    def __init_subclass__(cls, op: str) -> None:
        cls.op = op


T = TypeVar("T")
M = TypeVar("M", bound=HelperMessage)


def encode(message: HelperMessage) -> bytes:
    """Return a message as bytes."""
    return messages.encode({"op": message.op, **asdict(message)})  # type: ignore[call-overload]  # a dataclass


def decoder(*kinds: type[HelperMessage]) -> Decoder:
    """Return a decoder that yields messages of these classes."""
    return Decoder(_parser(kinds))


def receive(sock: socket.socket, kind: type[M]) -> M | None:
    """Wait for one message of the class `kind`; return None at end of stream.

    Raises:
        ProtocolError: the peer sent another message.
        OSError: the connection broke.
    """
    message: Any = messages.receive(sock, decoder(kind))
    return message if isinstance(message, kind) else None


def from_fields(kind: type[T], values: Mapping[str, Any]) -> T:
    """Create a dataclass from the JSON object of its fields."""
    known: dict[str, Any] = {}
    for field in fields(kind):  # type: ignore[arg-type]  # a dataclass
        if field.name in values:
            value, nested = values[field.name], field.type
            known[field.name] = from_fields(nested, value) if is_dataclass(nested) else value  # type: ignore[arg-type]
    return kind(**known)


def _parser(kinds: tuple[type[HelperMessage], ...]) -> Callable[[bytes | bytearray], HelperMessage]:
    kinds_by_op = {kind.op: kind for kind in kinds}

    def parse_one(body: bytes | bytearray) -> HelperMessage:
        message = parse(body)
        try:
            return from_fields(kinds_by_op[message["op"]], message)
        except (KeyError, TypeError) as err:
            raise ProtocolError("a message that is not one of the helper's") from err

    return parse_one
