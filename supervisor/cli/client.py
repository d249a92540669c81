"""The client of the daemon's HTTP API, over its Unix socket or at a URL."""

import base64
import http.client
import json
import os
import re
import socket
import ssl
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import quote, urlencode, urlsplit

from supervisor.cli import exit_codes
from supervisor.cli.daemon_answers import AnswerObject, UnexpectedAnswer, parse
from supervisor.cli.failure import Failure
from supervisor.ipc.messages import STARTING
from supervisor.version import VERSION

_TIMEOUT_S = 30.0
_START_S = 10.0
"""How long a call waits for a daemon that is starting."""
_POLL_S = 0.1
_STREAM_TIMEOUT_S = 60.0
"""Time without data after which a stream counts as broken; the daemon sends something at least every 15 s."""
_CHUNK_BYTES = 65536
_TIMEVAL = struct.Struct("@ll")
_URL = re.compile("[!-~]+")
_UNIX = "unix:"


_OPTIONS = {
    "task_name": "--task",
    "triggered_by": "--trigger",
    "created_after": "--after",
    "created_before": "--before",
    "status": "--status",
    "search": "--search",
    "limit": "--limit",
    "stream": "--stream",
    "since": "--since",
    "until": "--until",
    "grep": "--grep",
    "runId": "--run",
    "q": "PATTERN",
    "tasks": "--task",
    "role": "--role",
    "expiresInMs": "--expires",
    "forMs": "--for",
    "note": "--note",
}
"""The option of the command line for each parameter or field of the API that has another name."""


class Unreachable(Failure):
    """No daemon answers, or it stopped answering before the end."""

    def __init__(self, message: str) -> None:
        super().__init__(message, exit_codes.UNREACHABLE)


class ErrorResponse(Failure):
    """The daemon answered with an error."""

    def __init__(self, status: int, problem: AnswerObject, url: str) -> None:
        self.status = status
        self.detail = str(problem.get("detail") or problem.get("title") or f"status {status}")
        lines = [self.detail]
        self.errors: list[AnswerObject] = problem.get("errors", [])
        if self.errors:
            lines = [f"{_option(str(error.get('location', '')))}: {error.get('message', '')}" for error in self.errors]
        code = exit_codes.REFUSED
        if status in (http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN):
            code = exit_codes.NOT_PERMITTED
            lines = [f"permission denied by the daemon at {url}: {self.detail}"]
            if status == http.HTTPStatus.UNAUTHORIZED:
                lines.append(
                    'set RINGWARD_PASSWORD to the password, or to a token (see "ringward token create --help")'
                )
        elif status == http.HTTPStatus.SERVICE_UNAVAILABLE:
            code = exit_codes.UNREACHABLE
        elif status == http.HTTPStatus.UNPROCESSABLE_ENTITY:
            code = exit_codes.USAGE
        elif status == http.HTTPStatus.REQUEST_URI_TOO_LONG:
            code = exit_codes.USAGE
            lines = ["the arguments are too long"]
        super().__init__("\n".join(lines), code)


class NotFound(ErrorResponse):
    """The daemon answered that the object does not exist."""


def _option(location: str) -> str:
    """Return the option that set the parameter or field at `location`, such as ``body.filter.created_before``."""
    parent, _, name = location.rpartition(".")
    if parent.endswith("params"):
        return f"-p {name}"
    return _OPTIONS.get(name, name or location)


@dataclass(frozen=True)
class UnixEndpoint:
    """A Unix socket."""

    path: str
    prefix: str = ""
    authorization: str | None = None

    def connection(self, timeout_s: float) -> http.client.HTTPConnection:
        """Return a connection, not yet made."""
        return _UnixConnection(self.path, timeout_s)

    def __str__(self) -> str:
        return self.path


@dataclass(frozen=True)
class UrlEndpoint:
    """A TCP address, optionally with TLS and a path prefix."""

    scheme: str
    host: str
    port: int
    prefix: str
    authorization: str | None

    def connection(self, timeout_s: float) -> http.client.HTTPConnection:
        """Return a connection, not yet made."""
        if self.scheme == "https":
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(self.host, self.port, timeout=timeout_s, context=context)
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout_s)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.prefix}"


def url_endpoint(url: str, password: str | None, token: str | None = None) -> UrlEndpoint | UnixEndpoint:
    """Return the endpoint at `url`: an HTTP URL, or ``unix:`` and the path of a socket.

    A user name in the URL is the account to which the password belongs. A `token` is sent instead of the password.

    Raises:
        Failure: the URL is invalid.
    """
    if url.startswith(_UNIX):
        path = url.removeprefix(_UNIX)
        if not path:
            raise Failure(f"{url}: has no path of a socket; use unix:PATH", exit_codes.USAGE)
        if token is None:
            return unix_endpoint(path, password)
        return UnixEndpoint(path, authorization=f"Bearer {token}")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as err:
        raise Failure(f"{url}: not a URL: {err}", exit_codes.USAGE) from err
    valid = parts.scheme in ("http", "https") and port != 0 and _URL.fullmatch(url)
    if not valid or not parts.hostname or not _can_be_looked_up(parts.hostname):
        raise Failure(f"{url}: not the URL of a daemon; use a URL such as http://127.0.0.1:7464", exit_codes.USAGE)
    port = port or (443 if parts.scheme == "https" else 80)
    authorization = f"Bearer {token}" if token else _basic(password, parts.username or "")
    return UrlEndpoint(parts.scheme, parts.hostname, port, parts.path.rstrip("/"), authorization)


def _can_be_looked_up(host: str) -> bool:
    try:
        host.encode("idna")  # as the lookup does
    except UnicodeError:  # a label is empty, or has more than 63 characters
        return False
    return True


def is_token(text: str) -> bool:
    """Return whether `text` can be a token: a word of printable ASCII characters."""
    return text.isascii() and text.isprintable() and " " not in text and text != ""


def unix_endpoint(path: str, password: str | None) -> UnixEndpoint:
    """Return the endpoint on a Unix socket. The daemon trusts root and its own user there; others need credentials."""
    try:
        trusted = os.geteuid() in (0, os.stat(path).st_uid)
    except OSError:  # no daemon; connect(2) reports that
        trusted = True
    return UnixEndpoint(path, authorization=None if trusted else _basic(password))


def _basic(password: str | None, user: str = "") -> str | None:
    return "Basic " + base64.b64encode(os.fsencode(f"{user}:{password}")).decode() if password else None


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path
        self._timeout_s = timeout_s

    def connect(self) -> None:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        end_s = time.monotonic() + self._timeout_s
        try:
            self._wait_for_the_backlog(sock, self._timeout_s)
            # A signal such as SIGCONT interrupts the wait (EINTR), which Python takes for a connection under way.
            while not _is_connected(sock):
                self._wait_for_the_backlog(sock, end_s - time.monotonic())
            sock.settimeout(self._timeout_s)
        except BaseException:  # no other code closes the socket
            sock.close()
            raise
        self.sock = sock

    def _wait_for_the_backlog(self, sock: socket.socket, limit_s: float) -> None:
        """Connect, unless a signal arrives first.

        A non-blocking connect to a full backlog fails at once (EAGAIN, unix(7)), so this one waits in the kernel.
        """
        limit_us = max(int(limit_s * 1_000_000), 1)  # zero would mean no time limit
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _TIMEVAL.pack(*divmod(limit_us, 1_000_000)))
        sock.connect(self._path)


def _is_connected(sock: socket.socket) -> bool:
    try:
        sock.getpeername()
    except OSError:  # ENOTCONN
        return False
    return True


Query = Mapping[str, str | int | None]


class Api:
    """Calls the API, with one connection per call."""

    def __init__(self, endpoint: UnixEndpoint | UrlEndpoint) -> None:
        self.endpoint = endpoint

    def get(self, path: str, query: Query | None = None, timeout_s: float = _TIMEOUT_S) -> AnswerObject:
        """Return the answer to a GET request.

        Raises:
            Unreachable: there is no answer.
            ErrorResponse: the answer is an error.
            UnexpectedAnswer: the answer is not a JSON object.
        """
        return self._call("GET", path, query, timeout_s=timeout_s)

    def send(self, path: str, query: Query | None = None, body: Mapping[str, object] | None = None) -> None:
        """Send a POST request whose answer has no content.

        Raises:
            Unreachable: there is no answer; the command may have been carried out or not.
            ErrorResponse: the answer is an error.
            UnexpectedAnswer: the answer is not 204, with which the daemon confirms a command.
        """
        self._call("POST", path, query, body, confirms=True)

    def post(
        self,
        path: str,
        query: Query | None = None,
        body: Mapping[str, object] | None = None,
        timeout_s: float = _TIMEOUT_S,
    ) -> AnswerObject:
        """Return the answer to a POST request; an empty record if it has no content.

        Raises:
            Unreachable: there is no answer; the command may have been carried out or not.
            ErrorResponse: the answer is an error.
            UnexpectedAnswer: the answer is not a JSON object.
        """
        return self._call("POST", path, query, body, timeout_s)

    def send_text(self, path: str, text: bytes, timeout_s: float = _TIMEOUT_S) -> None:
        """Send a POST request with a text, whose answer has no content.

        Raises:
            Unreachable: there is no answer; the daemon may have the text or not.
            ErrorResponse: the answer is an error.
            UnexpectedAnswer: the answer is not 204, with which the daemon confirms it.
        """
        headers = {"Accept": "application/json", "Content-Type": "text/plain"}
        with self._answer("POST", path, None, headers, timeout_s, text) as response:
            if response.status != http.HTTPStatus.NO_CONTENT:
                raise UnexpectedAnswer("unexpected response to a report")

    def delete(self, path: str) -> None:
        """Send a DELETE request.

        Raises:
            Unreachable: there is no answer; the command may have been carried out or not.
            ErrorResponse: the answer is an error.
            UnexpectedAnswer: the answer is not 204, with which the daemon confirms a command.
        """
        self._call("DELETE", path, None, confirms=True)

    @contextmanager
    def stream(
        self, path: str, query: Query | None = None, headers: Mapping[str, str] | None = None
    ) -> Iterator[Iterator[bytes]]:
        """Provide the body of the answer to a GET request, in pieces as they arrive.

        Raises:
            Unreachable: there is no answer, or it broke off.
            ErrorResponse: the answer is an error.
        """
        with self._answer("GET", path, query, headers or {}, _STREAM_TIMEOUT_S) as response:
            yield self._chunks(response)

    def _call(
        self,
        method: str,
        path: str,
        query: Query | None,
        sent: Mapping[str, object] | None = None,
        timeout_s: float = _TIMEOUT_S,
        *,
        confirms: bool = False,
    ) -> AnswerObject:
        """Return the answer; `confirms`: it must be 204, so that no other server confirms a command."""
        headers = {"Accept": "application/json"}
        data = None
        if sent is not None:
            headers["Content-Type"] = "application/json"
            data = json.dumps(sent).encode()
        with self._answer(method, path, query, headers, timeout_s, data) as response:
            body = b"".join(self._chunks(response))
            if confirms and response.status != http.HTTPStatus.NO_CONTENT:
                raise UnexpectedAnswer("unexpected response to a command")
        return parse(body) if body else AnswerObject()

    @contextmanager
    def _answer(
        self,
        method: str,
        path: str,
        query: Query | None,
        headers: Mapping[str, str],
        timeout_s: float,
        data: bytes | None = None,
    ) -> Iterator[http.client.HTTPResponse]:
        until_s = time.monotonic() + _START_S
        while True:
            connection = self.endpoint.connection(timeout_s)
            try:
                # The connection does not close its socket before the response is closed.
                with self._request(connection, method, path, query, headers, data) as response:
                    # A redirect is also an error: the password must not go to another server.
                    if response.status < http.HTTPStatus.MULTIPLE_CHOICES:
                        yield response
                        return
                    refusal = self._refusal(response.status, b"".join(self._chunks(response)))
            finally:
                connection.close()
            starting = isinstance(refusal, ErrorResponse) and refusal.detail == STARTING
            if not starting or time.monotonic() >= until_s:
                raise refusal
            time.sleep(_POLL_S)

    def _request(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        query: Query | None,
        headers: Mapping[str, str],
        data: bytes | None,
    ) -> http.client.HTTPResponse:
        parameters = {name: value for name, value in (query or {}).items() if value is not None}
        query_text = urlencode(parameters, errors="surrogateescape")
        target = self.endpoint.prefix + path + (f"?{query_text}" if query_text else "")
        sent = {"Connection": "close", "User-Agent": f"ringward/{VERSION}", **headers}
        if self.endpoint.authorization:
            sent["Authorization"] = self.endpoint.authorization
        try:
            connection.request(method, target, data, sent)
            return connection.getresponse()
        except PermissionError as err:
            message = f"permission denied for the daemon at {self.endpoint}; run this as its user or as root"
            raise Failure(message, exit_codes.NOT_PERMITTED) from err
        except (FileNotFoundError, ConnectionRefusedError) as err:
            raise Unreachable(f"no daemon answers at {self.endpoint}; start one with: ringward up") from err
        except socket.gaierror as err:
            if err.errno == socket.EAI_NONAME:
                raise Unreachable(f'host name not found: "{connection.host}"') from err
            raise Unreachable(f'cannot look up the host name "{connection.host}": {err.strerror}') from err
        except ssl.SSLError as err:
            raise self._no_tls(err) from err
        except (OSError, http.client.HTTPException) as err:
            raise self._lost(err) from err

    def _chunks(self, response: http.client.HTTPResponse) -> Iterator[bytes]:
        try:
            while data := response.read1(_CHUNK_BYTES):
                yield data
            if response.length:  # read1() does not report a body that ended early
                raise http.client.IncompleteRead(b"", response.length)
        except (OSError, http.client.HTTPException) as err:
            raise self._lost(err) from err

    def _no_tls(self, err: ssl.SSLError) -> Unreachable:
        """Return the error for a TLS connection that could not be established."""
        if isinstance(err, ssl.SSLCertVerificationError):
            return Unreachable(f"the certificate of the daemon at {self.endpoint} is not valid: {err.verify_message}")
        if err.reason == "WRONG_VERSION_NUMBER":
            return Unreachable(f"the server at {self.endpoint} does not use TLS; use a URL that begins with http://")
        return Unreachable(f"cannot establish TLS with the daemon at {self.endpoint}: {err.reason or err}")

    def _lost(self, err: Exception) -> Unreachable:
        if isinstance(err, TimeoutError | BlockingIOError):
            return Unreachable(f"the daemon at {self.endpoint} does not answer")
        reason = (err.strerror if isinstance(err, OSError) else None) or str(err) or type(err).__name__
        return Unreachable(f"lost the connection to the daemon at {self.endpoint}: {reason}")

    def _refusal(self, status: int, body: bytes) -> Failure:
        kind = NotFound if status == http.HTTPStatus.NOT_FOUND else ErrorResponse
        try:
            return kind(status, parse(body), str(self.endpoint))
        except UnexpectedAnswer:  # a proxy in front of the daemon sends its own text
            if status in (http.HTTPStatus.UNAUTHORIZED, http.HTTPStatus.FORBIDDEN):
                return ErrorResponse(status, AnswerObject(), str(self.endpoint))
            if status >= http.HTTPStatus.INTERNAL_SERVER_ERROR:
                return Unreachable(
                    f"{self.endpoint}: status {status} from something other than the daemon, such as a proxy"
                )
            return UnexpectedAnswer(f"status {status}")


def segment(name: str) -> str:
    """Return a name, escaped as one segment of a URL path."""
    return quote(name, safe="", errors="surrogateescape")  # bytes that are not UTF-8 arrive as lone surrogates
