"""A matcher for tests without google-re2; the product has one in a process of its own."""

from supervisor.helpers.matcher.matching import Span, TextMatcher
from supervisor.ipc.match_request import MatchRequest


class DirectMatcher:
    """Matches in this process. Only for expressions that take no time."""

    def __init__(self) -> None:
        self._matcher = TextMatcher()

    def find(self, expression: str, text: bytes, pos: int, start: int, end: int) -> Span | None:
        """Return start and end of the first match, or None."""
        return self._matcher.answer(MatchRequest(expression, text, pos, start, end))
