"""Headers of answers that mean something to whoever asks, as the OpenAPI document describes them.

What any answer may have (RFC 9110: Date, Content-Length, Vary and the like; what browsers heed) is not among them.
"""

from typing import Any

_TEXT = {"type": "string"}
_SECONDS = {"type": "integer", "minimum": 0}

HEADERS: dict[str, tuple[dict[str, Any], str]] = {
    "Accept-Encoding": (_TEXT, "Codings that a body may have."),
    "Accept-Ranges": (_TEXT, "Parts may be asked for, as `bytes`: the run has ended."),
    "Content-Disposition": (_TEXT, "A name for the file."),
    "Content-Range": (_TEXT, "Which bytes these are, and how many there are."),
    "ETag": (_TEXT, "Changes when what is answered does; for If-None-Match."),
    "Location": (_TEXT, "Where what was made is."),
    "Retry-After": (_SECONDS, "When to try again, in seconds."),
    "Set-Cookie": (_TEXT, "The session; or its end."),
    "WWW-Authenticate": (_TEXT, "How to authenticate; pages of the dashboard are not told."),
}
"""By their names: schema and meaning."""

OF_REFUSALS: dict[int, tuple[str, ...]] = {
    401: ("WWW-Authenticate",),
    415: ("Accept-Encoding",),
    416: ("Content-Range",),
    429: ("Retry-After",),
    503: ("Retry-After",),
}
"""Names by status."""


def components() -> dict[str, Any]:
    """For ``components.headers``."""
    return {name: {"schema": schema, "description": text} for name, (schema, text) in HEADERS.items()}


def described(names: tuple[str, ...]) -> dict[str, Any]:
    """For the ``headers`` of an answer: none of them is in each."""
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}
