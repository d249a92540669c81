"""Masks the secret parts of a URL in messages about it."""

import re
from urllib.parse import unquote, urlsplit

_MIN_CHARS = 4
_MASK = "***"
_PARTS = re.compile(r"[/&=?:@+;,#]")


def masked(text: str, url: str) -> str:
    """Mask the URL in `text`, and all its parts except the scheme and the host name.

    The host name helps to find the error. In a URL like `scheme://token`, the token is in the place of the host and is
    masked, because it contains no dot.
    """
    hidden = {url}
    parts = urlsplit(url)
    remaining = url.partition("://")[2]
    host = (parts.hostname or "").lower() if "." in (parts.hostname or "") or parts.hostname == "localhost" else ""
    for part in _PARTS.split(remaining):
        for form in (part, unquote(part)):
            if len(form) >= _MIN_CHARS and form.lower() != host:
                hidden.add(form)
    for part in sorted(hidden, key=len, reverse=True):
        text = re.sub(re.escape(part), _MASK, text, flags=re.IGNORECASE)
    return text
