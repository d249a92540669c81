"""Messages between the matching process and the process that started it, over a socketpair.

    request = header | expression, UTF-8 | text
    answer  = found u8 | start u64 | end u64

A request without a text is about the text of the request before. The answer has the offsets in the text.
"""

import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

_HEADER = struct.Struct("<dBBIQQQQ")
_ANSWER = struct.Struct("<BQQ")
ANSWER_BYTES = _ANSWER.size
_PIECE_BYTES = 1 << 20


class MatchRequest(NamedTuple):
    """A request for the first match of an expression in a text."""

    expression: str
    """In the syntax of Python's ``re``."""
    text: bytes
    pos: int = 0
    """The first byte at which a match may begin."""
    start: int = 0
    end: int = 0
    """The part of the text to search: no match sees anything else."""
    whole: bool = False
    """Whether the expression must match the whole text; `pos`, `start` and `end` are then ignored."""
    limit_s: float = 1.0
    """Limit of processor time."""


def encode_request(request: MatchRequest, *, with_text: bool) -> bytes:
    """Return a request as bytes."""
    expression = request.expression.encode()
    text = request.text if with_text else b""
    header = _HEADER.pack(
        request.limit_s,
        request.whole,
        with_text,
        len(expression),
        len(text),
        request.pos,
        request.start,
        request.end,
    )
    return b"".join((header, expression, text))


class RequestReader:
    """Reads requests from a descriptor until it closes."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def __iter__(self) -> Iterator[MatchRequest]:
        text = b""
        while header := self._read(_HEADER.size):
            limit_s, whole, with_text, expression_bytes, text_bytes, pos, start, end = _HEADER.unpack(header)
            expression = self._read(expression_bytes)
            if with_text:
                text = self._read(text_bytes)
            yield MatchRequest(expression.decode(), text, pos, start, end, bool(whole), limit_s)

    def _read(self, size: int) -> bytes:
        """Return this number of bytes; nothing if the descriptor closes first."""
        parts = []
        while size and (part := os.read(self._fd, min(size, _PIECE_BYTES))):
            parts.append(part)
            size -= len(part)
        return b"" if size else b"".join(parts)


def encode_answer(span: tuple[int, int] | None) -> bytes:
    """Return an answer as bytes."""
    return _ANSWER.pack(0, 0, 0) if span is None else _ANSWER.pack(1, *span)


def decode_answer(data: bytes) -> tuple[int, int] | None:
    """Return the start and end of a match, or None if there is none."""
    is_match, start, end = _ANSWER.unpack(data)
    return (start, end) if is_match else None
