"""The parser of event streams."""

import json

from hypothesis import given
from hypothesis import strategies as st

from supervisor.cli.sse import Event, EventParser
from tests.support.fake_daemon import event

STREAM = b"retry: 1000\n:\n:\nevent: line\nid: 7\ndata: {}\n\nid: 8\r\ndata: a\r\ndata:b\r\n\r\ndata\n\nevent: x\n\n"
EVENTS = [Event("line", "{}", "7"), Event("message", "a\nb", "8"), Event("message", "")]


@given(st.lists(st.integers(1, 20)))
def test_events_do_not_depend_on_how_the_bytes_arrive(sizes: list[int]) -> None:
    """Cut anywhere, the same events come out; comments, retry and events without data do not."""
    parser, found, rest = EventParser(), [], STREAM
    for size in [*sizes, len(STREAM)]:
        found += list(parser.feed(rest[:size]))
        rest = rest[size:]
    assert found == EVENTS


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_any_text_arrives_as_it_was(text: str) -> None:
    """Line ends and everything else in the text survive."""
    (found,) = EventParser().feed(event("line", {"text": text}, 1))
    assert json.loads(found.data) == {"text": text}


@given(st.binary())
def test_any_bytes_can_be_read(data: bytes) -> None:
    """Nonsense gives nonsense, not an error."""
    list(EventParser().feed(data))
