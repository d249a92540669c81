"""Headers that show that a proxy or a browser sent a request for another client.

A peer of the Unix socket is trusted because of its user. A proxy that runs as that user would extend the trust to all
its clients, so a single header that only proxies add revokes it. The list has the names that servers, load balancers,
content delivery networks and login proxies document for the client's address, the original request, the client's
certificate and the user.
"""

from collections.abc import Iterable

import falcon

from api.auth import proxy_identity

_OF_PROXIES = frozenset(
    f"HTTP_{name.upper().replace('-', '_')}"
    for name in (
        "CDN-Loop",
        "Client-IP",
        "DO-Connecting-IP",
        "Forwarded",
        "Forwarded-For",
        "Incap-Client-IP",
        "Proxy-Client-IP",
        "Remote-Addr",
        "Remote-Groups",
        "Remote-User",
        "Surrogate-Capability",
        "True-Client-IP",
        "Via",
        "X-Amz-Cf-Id",
        "X-Amzn-Trace-Id",
        "X-BlueCoat-Via",
        "X-Client-Cert",
        "X-Client-IP",
        "X-Client-Verify",
        "X-Cloud-Trace-Context",
        "X-Cluster-Client-IP",
        "X-Connecting-IP",
        "X-Forwarder-For",
        "X-Host",
        "X-NF-Client-Connection-IP",
        "X-Nginx-Proxy",
        "X-Originating-IP",
        "X-Proxied-For",
        "X-ProxyUser-IP",
        "X-Real-IP",
        "X-Remote-Addr",
        "X-Remote-IP",
        "X-Remote-User",
        "X-Request-Start",
        "X-Rewrite-URL",
        "X-Scheme",
        "X-Sucuri-ClientIP",
        "X-Varnish",
    )
)
_PREFIXES_OF_PROXIES = tuple(
    f"HTTP_{prefix.upper().replace('-', '_')}"
    for prefix in (
        "Akamai-",
        "CF-",
        "CloudFront-",
        "Fastly-",
        "Fly-",
        "SSL-Client-",
        "Tailscale-",
        "WL-Proxy-",
        "X-Akamai-",
        "X-AppEngine-",
        "X-ARR-",
        "X-Auth-Request-",
        "X-Azure-",
        "X-Envoy-",
        "X-Forwarded",
        "X-Goog-",
        "X-Original-",
        "X-SSL-",
        "X-Vercel-",
    )
)
_OF_BROWSERS = ("HTTP_ORIGIN", "HTTP_COOKIE")
_PREFIX_OF_BROWSERS = "HTTP_SEC_FETCH_"


def from_browser(req: falcon.Request) -> bool:
    """Return whether the request has headers that only a browser sends for a page."""
    return any(name.startswith(_PREFIX_OF_BROWSERS) for name in req.env)


def through_proxy(names: Iterable[str]) -> bool:
    """Return whether one of these names of a WSGI environment is a header that only proxies add."""
    return any(name in _OF_PROXIES or name.startswith(_PREFIXES_OF_PROXIES) for name in names)


def speaks_for_others(req: falcon.Request) -> bool:
    """Return whether a header shows that a proxy or a browser acts for another client."""
    return (
        from_browser(req)
        or proxy_identity.were_sent(req.env)
        or through_proxy(req.env)
        or any(name in req.env for name in _OF_BROWSERS)
    )
