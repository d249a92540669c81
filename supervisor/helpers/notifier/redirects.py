"""Which redirects a message or a heartbeat follows: those to the same host and scheme.

Any other would let a server that is asked hand on the message, and what identifies us to it, to whom it likes.
"""

from urllib.parse import urljoin, urlsplit


def refusal_of_redirect(url: str, location: str) -> str | None:
    """Say why `location`, to which the server at `url` redirects, is not followed; None: it is."""
    try:
        here, there = urlsplit(url), urlsplit(urljoin(url, location))
        host = there.hostname
    except ValueError:
        return "redirects to an address that cannot be read: correct the URL"
    if host != here.hostname:
        return f"redirects to another host ({host}), which is not followed: correct the URL"
    if there.scheme != here.scheme:
        return f"redirects from {here.scheme} to {there.scheme}, which is not followed: correct the URL"
    return None
