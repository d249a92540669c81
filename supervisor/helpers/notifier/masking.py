"""Keeping what is secret in a URL out of what is said about it."""

import re
from urllib.parse import unquote, urlsplit

_MIN_CHARS = 4
_MASK = "***"
_PARTS = re.compile(r"[/&=?:@+;,#]")


def masked(text: str, url: str) -> str:
    """`text` without the URL, and without any part of it but the scheme and, if it has a path or a user, the host.

    Host names help to see what is wrong; in a URL that is nothing but `scheme://token`, the token stands in the place
    of the host.
    """
    hidden = {url}
    parts = urlsplit(url)
    rest = url.partition("://")[2]
    host = (parts.hostname or "").lower() if "." in (parts.hostname or "") or parts.hostname == "localhost" else ""
    for part in _PARTS.split(rest):
        for form in (part, unquote(part)):
            if len(form) >= _MIN_CHARS and form.lower() != host:
                hidden.add(form)
    for part in sorted(hidden, key=len, reverse=True):
        text = re.sub(re.escape(part), _MASK, text, flags=re.IGNORECASE)
    return text
