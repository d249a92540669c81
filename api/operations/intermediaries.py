"""Signs that a proxy or a browser sent a request for another client.

A peer of the Unix socket is trusted because of its user. A proxy that runs as that user would extend the trust to all
its clients. So a request is trusted only if it looks like one that a program sends for itself: HTTP/1.1, without a
foreign host, and with no header except those that curl, this project's clients, and HTTP libraries add by default.
Headers that only proxies add are too many to list.
"""

from collections.abc import Iterator

import falcon

from api.auth import proxy_identity


def _variables(*names: str) -> frozenset[str]:
    return frozenset(f"HTTP_{name.upper().replace('-', '_')}" for name in names)


_OF_PROGRAMS = _variables(
    "Accept",
    "Accept-Encoding",
    "Authorization",
    "Connection",
    "Content-Encoding",
    "Expect",
    "Host",
    "HTTP2-Settings",
    "Idempotency-Key",
    "If-Modified-Since",
    "If-None-Match",
    "If-Range",
    "Last-Event-ID",
    "Range",
    "Ringward-Deadline",
    "TE",
    "Transfer-Encoding",
    "Upgrade",
    "User-Agent",
)
_OF_BROWSERS = _variables(
    "Accept-Language",
    "Cache-Control",
    "Cookie",
    "DNT",
    "Origin",
    "Pragma",
    "Priority",
    "Referer",
    "Upgrade-Insecure-Requests",
)


def from_browser(req: falcon.Request) -> bool:
    """Return whether the request has headers that only a browser sends for a page."""
    return any(name.startswith("HTTP_SEC_FETCH_") for name in req.env)


def through_proxy(req: falcon.Request) -> bool:
    """Return whether the request has a header that neither programs nor browsers add."""
    return proxy_identity.were_sent(req.env) or any(
        name not in _OF_BROWSERS and not name.startswith("HTTP_SEC_") for name in _unusual_headers(req)
    )


def sign_of_another_client(req: falcon.Request) -> str:
    """Return what shows that a proxy or a browser may act for another client; empty if nothing does."""
    for name in _unusual_headers(req):
        return f"the header {name.removeprefix('HTTP_').replace('_', '-').title()}"
    if proxy_identity.were_sent(req.env):
        return "a header that names a person"
    if req.env.get("HTTP_HOST", "").lower() not in ("", "localhost"):
        return "a Host other than localhost"
    # By default, most versions of nginx forward requests as HTTP/1.0 with Host localhost, and add no header.
    return "" if req.env["SERVER_PROTOCOL"] == "HTTP/1.1" else "an HTTP version other than 1.1"


def _unusual_headers(req: falcon.Request) -> Iterator[str]:
    return (name for name in req.env if name.startswith("HTTP_") and name not in _OF_PROGRAMS)
