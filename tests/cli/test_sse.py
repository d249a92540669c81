"""The parser of event streams."""

import json

from hypothesis import given
from hypothesis import strategies as st

from supervisor.cli.sse import EventParser, ServerSentEvent
from tests.support.fake_daemon import event

STREAM = b"retry: 1000\n:\n:\nevent: line\nid: 7\ndata: {}\n\nid: 8\r\ndata: a\r\ndata:b\r\n\r\ndata\n\nevent: x\n\n"
EVENTS = [ServerSentEvent("line", "{}", "7"), ServerSentEvent("message", "a\nb", "8"), ServerSentEvent("message", "")]


@given(st.lists(st.integers(1, 20)))
def test_split_bytes(sizes: list[int]) -> None:
    """The events are the same however the bytes are split; comments, retry and events without data are ignored."""
    parser, events, remaining = EventParser(), [], STREAM
    for size in [*sizes, len(STREAM)]:
        events += list(parser.feed(remaining[:size]))
        remaining = remaining[size:]
    assert events == EVENTS


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_text_round_trip(text: str) -> None:
    """Every text arrives unchanged, including its line ends."""
    (parsed,) = EventParser().feed(event("line", {"text": text}, 1))
    assert json.loads(parsed.data) == {"text": text}


@given(st.binary())
def test_arbitrary_bytes(data: bytes) -> None:
    """Arbitrary bytes cause no error."""
    list(EventParser().feed(data))
