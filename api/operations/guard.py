"""Checks and headers of every request and response: Host, origin, method, and security headers.

A page of another site can make a browser send requests to this server, for example by pointing its own name at this
host (DNS rebinding). So requests with an unknown Host are rejected. Unsafe requests with a browser's credentials must
come from the server's own pages.
"""

import re
import time
from urllib.parse import unquote, urlsplit

import falcon
from falcon.routing import CompiledRouter

from api.errors import HOST, ApiError, invalid, origin_of
from api.operations.encoding import finish
from api.schemas.records import ErrorDetail
from api.schemas.wire_times import RFC3339, parse_rfc3339, rfc3339
from api.server.client_address import Exposure, is_local_socket

PROBES = ("/healthz", "/readyz")
HTML_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "manifest-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
_OTHER_POLICY = "default-src 'none'; frame-ancestors 'none'; sandbox"
_METHODS = frozenset(falcon.COMBINED_METHODS)
_ABSOLUTE = re.compile("[a-z][a-z0-9+.-]*://([^/?#]*)", re.IGNORECASE)
_ENCODED_SLASH = re.compile("%2f", re.IGNORECASE)
_END_OF_PATH = re.compile("[?#]")


DEADLINE: tuple[str, dict[str, object], str] = (
    "Ringward-Deadline",
    # Not as the format date-time: openapi-python-client omits operations that have it in a header.
    {"type": "string", "pattern": f"^{RFC3339.pattern}$"},
    "An RFC 3339 time. A request that arrives later, by the clock of the server, is refused. Events `ping` have it.",
)


def check_deadline(req: falcon.Request) -> None:
    """Reject a request that arrives after the time at which its client stopped waiting.

    Raises:
        ApiError: 409 the time has passed; 422 it is not a time.
    """
    name = DEADLINE[0]
    text = req.get_header(name)
    if text is None:
        return
    try:
        deadline_ms = parse_rfc3339(text, up=True)
    except ValueError as err:
        raise invalid([ErrorDetail(f"header.{name}", str(err), text)]) from err
    now_ms = time.time_ns() // 1_000_000
    if now_ms > deadline_ms:
        raise ApiError(409, f"The request arrived at {rfc3339(now_ms)}, after its deadline. Nothing was done.")


def check_origin(req: falcon.Request) -> None:
    """Reject requests that a browser sends for a foreign page.

    Raises:
        ApiError: 403 the page has another origin.
    """
    site = req.get_header("Sec-Fetch-Site")
    origin = req.get_header("Origin")
    ours = {origin_of(req.env).lower()}
    external = req.env.get("ringward.external_url")
    if external:
        parts = urlsplit(external)
        ours.add(f"{parts.scheme}://{parts.netloc}".lower())
    ours = {_without_default_port(own) for own in ours}
    if site not in (None, "same-origin", "none") or (origin is not None and origin.lower() not in ours):
        raise ApiError(403, "Cross-origin request rejected")


def _without_default_port(origin: str) -> str:
    """Return the origin as browsers write it (RFC 6454, 6.2): without the default port of its scheme."""
    return origin.removesuffix(":443" if origin.startswith("https:") else ":80")


class Guard:
    """Falcon middleware that applies the checks and headers of this module."""

    def __init__(self, hosts: list[str], exposure: Exposure, router: CompiledRouter) -> None:
        self._hosts = frozenset(("localhost", *(host.lower() for host in hosts)))
        self._exposure = exposure
        self._router = router

    def process_request(self, req: falcon.Request, resp: falcon.Response) -> None:
        """Resolve the client's address; check the Host, and methods that Falcon does not know.

        Raises:
            ApiError: 400; 405; 421; 501 the body has a transfer coding other than chunked.
            falcon.HTTPPermanentRedirect: the base path lacks its final slash, and links of the page are relative.
            falcon.HTTPNotFound: an unknown method at an unknown path; ``//api``, which proxies treat as another path.
        """
        if req.env.get("HTTP_TRANSFER_ENCODING", "chunked").strip().lower() != "chunked":
            # gunicorn would pass on the encoded body as if it were decoded (RFC 9112, 6.1).
            raise ApiError(501, "The only supported transfer coding is chunked")
        uri = req.env["RAW_URI"]
        target = _ABSOLUTE.match(uri)
        if target is not None:
            # RFC 9112, 3.2.2: an absolute request target overrides the Host header.
            req.env["HTTP_HOST"] = target.group(1)
            uri = uri[target.end() :]
        if _ENCODED_SLASH.search(uri):
            # An encoded slash is part of a name (RFC 3986, 2.2). Decoding it would yield another path; some proxies do
            # that.
            req.path = unquote(_ENCODED_SLASH.sub("%252F", _END_OF_PATH.split(uri, maxsplit=1)[0]))
        self._exposure.resolve_client(req.env)
        path = self._exposure.below_base(req.path)
        req.path = path or "/"
        if not is_local_socket(req.env):
            self._check_host(req)
        if not path:
            plain = {"Content-Type": "text/plain; charset=utf-8"}
            raise falcon.HTTPPermanentRedirect(f"{req.env['SCRIPT_NAME']}/", headers=plain)
        if req.path.startswith("//"):
            raise falcon.HTTPNotFound
        if req.method == "OPTIONS" and uri == "*":  # about the server as a whole (RFC 9110, 9.3.7)
            resp.status = 204
            resp.complete = True
            return
        if req.method not in _METHODS:
            route = self._router.find(req.path, req=req)
            if route is None:
                raise falcon.HTTPNotFound
            raise falcon.HTTPMethodNotAllowed(route[0].allow)  # type: ignore[attr-defined]  # api.app.PathRoute

    def _check_host(self, req: falcon.Request) -> None:
        host = req.env.get("HTTP_HOST", "")
        match = HOST.fullmatch(host)
        # Browsers and curl keep the dot that ends an absolute name (RFC 9110, 4.2.4), as nginx and Apache expect.
        name = match.group(1).strip("[]").removesuffix(".").lower() if match else ""
        if name in self._hosts or f"*.{name.partition('.')[2]}" in self._hosts:
            return
        here = req.env["gunicorn.socket"].getsockname()
        if isinstance(here, tuple):
            address, port = here[:2]
            if name == address:
                return
            # Links in the response must point to this server, not to the host that the client sent.
            req.env["HTTP_HOST"] = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        else:
            req.env["HTTP_HOST"] = "localhost"
        if req.path in PROBES:
            return
        if match is None:
            raise ApiError(400, "The Host header is invalid" if host else "The Host header is missing")
        raise ApiError(421, "Unknown host name; add it to hosts in [http]")

    def process_response(self, req: falcon.Request, resp: falcon.Response, _resource: object, _ok: bool) -> None:
        """Finish the response, and add the headers that every response has."""
        if req.method == "HEAD":
            # Falcon sends no stream for HEAD, and does not close it.
            getattr(resp.stream, "close", lambda: None)()
        finish(req, resp)
        resp.set_header("X-Content-Type-Options", "nosniff")
        resp.set_header("Referrer-Policy", "same-origin")
        if resp.get_header("Cross-Origin-Resource-Policy") is None:
            resp.set_header("Cross-Origin-Resource-Policy", "same-origin")
        if resp.get_header("Content-Security-Policy") is None:
            resp.set_header("Content-Security-Policy", _OTHER_POLICY)
        if resp.get_header("Cache-Control") is None:
            resp.set_header("Cache-Control", "no-store")
