"""Messages between the scheduler and its helpers."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest

from supervisor.ipc import messages
from supervisor.ipc.helper_messages import HelperMessage, decoder, encode
from supervisor.ipc.messages import Message, ProtocolError


@dataclass(frozen=True)
class Inner:
    """A part of a message."""

    paths: list[str]
    limit: int = 7


@dataclass(frozen=True)
class Outer(HelperMessage, op="outer"):
    """A message with a part."""

    inner: Inner
    names: dict[str, str] = field(default_factory=dict)


def sent(message: Message) -> Iterable[object]:
    return decoder(Outer).feed(messages.encode(message))


def test_message_arrives_as_it_was_sent() -> None:
    """A message is the same after the way to the other side, even with a path that is not UTF-8."""
    message = Outer(Inner(["/a\udcff"], 3), {"a": "b"})
    assert list(decoder(Outer).feed(encode(message))) == [message]


def test_messages_of_other_releases() -> None:
    """Unknown fields are ignored, at every depth, and missing ones have their defaults."""
    assert list(sent({"op": "outer", "inner": {"paths": [], "new": 1}, "new": 2})) == [Outer(Inner([]))]


@pytest.mark.parametrize("message", [{}, {"op": "other"}, {"op": "outer"}, {"op": "outer", "inner": None}])
def test_other_messages_are_refused(message: Message) -> None:
    """A message without a known operation or a required field is an error of the protocol."""
    with pytest.raises(ProtocolError):
        list(sent(message))
