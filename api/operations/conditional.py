"""Conditional requests and byte ranges (RFC 9110, 13 and 14)."""

import hashlib
import re
from typing import NamedTuple

import falcon

from api.errors import ApiError

_TAG = re.compile(r'(?:W/)?("[\x21\x23-\x7e\x80-\xff]*")')
_RANGE = re.compile(r"bytes=[ \t]*([0-9]*)-([0-9]*)[ \t]*", re.IGNORECASE)
CONDITION: tuple[str, dict[str, object], str] = (
    "If-None-Match",
    {"type": "string"},
    "Entity tags that the client has; the response is 304 if one is still current.",
)
RANGE: tuple[tuple[str, dict[str, object], str], ...] = (
    ("Range", {"type": "string"}, "One range of bytes; only for ended runs."),
    ("If-Range", {"type": "string"}, "Entity tag; if it is no longer current, the whole log is sent."),
    CONDITION,
)
_DIGITS = 18
"""Longer numbers count as larger than any size: Python converts at most 4300 digits."""


def tag_of(data: bytes) -> str:
    """Return the entity tag of a body."""
    return f'"{hashlib.blake2b(data, digest_size=16).hexdigest()}"'


def is_known(req: falcon.Request, tag: str) -> bool:
    """Return whether If-None-Match contains the strong entity tag `tag`."""
    header = req.get_header("If-None-Match") or ""
    return header.strip() == "*" or tag in _TAG.findall(header)


class ByteRange(NamedTuple):
    """A range of a body: from byte `start` up to, but excluding, `end`."""

    start: int
    end: int


def span(req: falcon.Request, size: int, tag: str) -> ByteRange | None:
    """Return the part of a body that the request asks for; None for the whole body.

    The range is ignored if it is invalid, if there are several, if it refers to another version of the body (If-Range),
    and in a HEAD request.

    Raises:
        ApiError: 416 the range is beyond the end.
    """
    header = req.get_header("Range") if req.method == "GET" else None
    match = _RANGE.fullmatch(header.strip()) if header else None
    first, last = match.groups() if match else ("", "")
    if not first and not last:
        return None
    if_range = req.get_header("If-Range")
    if if_range is not None and if_range.strip() != tag:
        return None
    if not first:
        start, end = max(0, size - _number(last)), size
    else:
        start, end = _number(first), min(size, _number(last) + 1) if last else size
        if last and _number(last) < start:
            return None
    if start >= end:
        raise ApiError(416, f"The log has {size} bytes", headers={"Content-Range": f"bytes */{size}"})
    return ByteRange(start, end)


def _number(digits: str) -> int:
    return int(digits) if len(digits) <= _DIGITS else 10**_DIGITS
