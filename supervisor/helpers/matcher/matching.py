"""Matches of Python's regular expressions in bytes, with offsets in bytes."""

import re

from supervisor.ipc.match_request import MatchRequest

Span = tuple[int, int]


class TextMatcher:
    """Answers requests, which often have the same text and expression as the one before."""

    def __init__(self) -> None:
        self._expression: str | None = None
        self._compiled = re.compile("")
        self._source: tuple[bytes, int, int] = b"", 0, 0
        self._text = ""

    def answer(self, request: MatchRequest) -> Span | None:
        """Return start and end of the first match, or None."""
        if request.expression != self._expression:
            self._compiled = re.compile(request.expression)
            self._expression = request.expression
        if request.whole:
            matches = self._compiled.fullmatch(_decoded(request.text)) is not None
            return (0, len(request.text)) if matches else None
        return self._find(request)

    def _find(self, request: MatchRequest) -> Span | None:
        text_start = request.start
        source = request.text, text_start, request.end
        if source != self._source:
            self._source = source
            self._text = _decoded(request.text[text_start : request.end])
        text = self._text
        if len(text) == request.end - text_start:  # each character is one byte
            match = self._compiled.search(text, request.pos - text_start)
            return None if match is None else (match.start() + text_start, match.end() + text_start)
        match = self._compiled.search(text, len(_decoded(request.text[text_start : request.pos])))
        if match is None:
            return None
        start = len(_encoded(text[: match.start()]))
        return text_start + start, text_start + start + len(_encoded(match[0]))


def _decoded(text: bytes) -> str:
    return text.decode(errors="surrogateescape")


def _encoded(text: str) -> bytes:
    return text.encode(errors="surrogateescape")
