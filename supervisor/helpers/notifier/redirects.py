"""Restricts the redirects of messages and heartbeats to the same host and scheme.

Any other redirect would let a server forward the message and its credentials to an arbitrary third party.
"""

from urllib.parse import urljoin, urlsplit


def refusal_of_redirect(url: str, location: str) -> str | None:
    """Return why the redirect from `url` to `location` must not be followed; None if it may be."""
    try:
        here, there = urlsplit(url), urlsplit(urljoin(url, location))
        host = there.hostname
    except ValueError:
        return "redirects to an invalid address: correct the URL"
    if host != here.hostname:
        return f"redirects to another host ({host}), which is not followed: correct the URL"
    if there.scheme != here.scheme:
        return f"redirects from {here.scheme} to {there.scheme}, which is not followed: correct the URL"
    return None
