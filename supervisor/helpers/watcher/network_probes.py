"""Single HTTP and TCP probes, and checks of the host."""

import asyncio
import contextlib
import os
import socket
import ssl
from functools import partial
from urllib.parse import SplitResult, urlsplit

from supervisor.helpers.watcher.name_lookup import NameLookup
from supervisor.host.detached_thread import DetachedThread
from supervisor.ipc.probe_request import ProbeRequest

_DEFAULT_PORTS = {"http": 80, "https": 443}
_SUCCESS = range(200, 400)
_INTERIM = frozenset({b"100", b"102", b"103"})
NOT_MET = 1
"""The exit code of a condition that is not met."""
_WORDS = 2
"""Number of words that a status line must have: the version and the status code."""


class ProbeFailed(Exception):
    """The probe failed; the text says why, and `status` is the exit code of a condition."""

    def __init__(self, text: str, status: int | None = None) -> None:
        super().__init__(text)
        self.status = status


async def http(names: NameLookup, request: ProbeRequest) -> None:
    """Send a GET request, which must be answered with a status from 200 to 399.

    Redirects are not followed, and certificates are not verified.

    Raises:
        ProbeFailed: the status is another one, the answer is not HTTP, or the connection failed.
    """
    url = urlsplit(request.target)
    context = _unchecked() if url.scheme == "https" else None
    status = await _status(names, url, request.target, context)
    if status not in _SUCCESS:
        raise ProbeFailed(f"GET {request.target}: status {status}")


async def _status(names: NameLookup, url: SplitResult, shown: str, context: ssl.SSLContext | None) -> int:
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    request = f"GET {path} HTTP/1.1\r\nHost: {url.netloc}\r\nUser-Agent: ringward\r\nConnection: close\r\n\r\n"
    try:
        port = url.port or _DEFAULT_PORTS[url.scheme]
        reader, writer = await _connection(names, url.hostname, port, context)
    except (OSError, ValueError) as err:  # ValueError: the port or the host name is invalid
        raise ProbeFailed(f"GET {shown}: {_reason(err)}") from err
    try:
        writer.write(request.encode())
        words = await _status_line(reader)
    except (OSError, ValueError) as err:  # ValueError: a line is longer than 64 KiB
        raise ProbeFailed(f"GET {shown}: {_reason(err)}") from err
    finally:
        writer.transport.abort()
    if len(words) < _WORDS or not words[0].startswith(b"HTTP/") or not words[1].isdigit():
        raise ProbeFailed(f"GET {shown}: the answer is not HTTP")
    return int(words[1])


async def _connection(
    names: NameLookup, host: str | None, port: int, context: ssl.SSLContext | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    sock = await names.connect(host, port)
    try:
        return await asyncio.open_connection(sock=sock, ssl=context, server_hostname=host if context else None)
    except BaseException:
        sock.close()
        raise


async def _status_line(reader: asyncio.StreamReader) -> list[bytes]:
    """Return the words of the final status line, skipping interim responses (RFC 9110, 15.2)."""
    while True:
        words = (await reader.readline()).split(None, 2)
        if len(words) < _WORDS or words[1] not in _INTERIM:
            return words
        while (await reader.readline()).strip():
            pass


def _unchecked() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def tcp(names: NameLookup, request: ProbeRequest) -> None:
    """Connect to an address and close the connection again.

    Raises:
        ProbeFailed: the connection failed.
    """
    address = urlsplit(f"//{request.target}")
    try:
        sock = await names.connect(address.hostname, address.port)
    except (OSError, ValueError) as err:  # ValueError: the port or the host name is invalid
        raise ProbeFailed(f"connecting to {request.target}: {_reason(err)}") from err
    sock.close()


def _reason(err: Exception) -> str:
    if isinstance(err, ssl.SSLError):  # its errno is a code of OpenSSL, not of the kernel
        if err.reason == "WRONG_VERSION_NUMBER":
            return "the server does not use TLS; use a URL that begins with http://"
        return f"TLS failed: {err.reason or err.strerror}"
    if isinstance(err, socket.gaierror):  # its errno is a code of getaddrinfo(3)
        return str(err.strerror)
    if isinstance(err, OSError) and err.errno is not None:
        return os.strerror(err.errno)
    return (str(err) or type(err).__name__).partition("\n")[0]


class HostChecks:
    """Checks conditions about the host for one event loop.

    A path can be on a disk that hangs. Looking at it takes a thread; all conditions about the same path share it.
    """

    def __init__(self) -> None:
        self._open: dict[str, asyncio.Future[OSError | None]] = {}

    async def check(self, request: ProbeRequest) -> str:
        """Check that the path `target` exists, if one is given, and that the load is below `load_below`; return "".

        Raises:
            ProbeFailed: a condition is not met (`status` 1), or cannot be checked.
        """
        if request.target and (error := await self._look(request.target)) is not None:
            if isinstance(error, FileNotFoundError | NotADirectoryError):
                raise ProbeFailed(f"there is no {request.target}", NOT_MET)
            raise ProbeFailed(f"{request.target}: {error.strerror}")
        load = os.getloadavg()[0]
        if request.load_below is not None and load >= request.load_below:
            raise ProbeFailed(f"the load is {load:.2f}, not below {request.load_below:g}", NOT_MET)
        return ""

    async def _look(self, path: str) -> OSError | None:
        future = self._open.get(path)
        if future is None:
            loop = asyncio.get_running_loop()
            future = self._open[path] = loop.create_future()
            future.add_done_callback(lambda _: self._open.pop(path))
            try:
                DetachedThread(partial(_stat, path, loop, future))
            except RuntimeError as err:  # the limit of threads is reached
                future.set_result(OSError(0, str(err)))
        return await asyncio.shield(future)


def _stat(path: str, loop: asyncio.AbstractEventLoop, future: asyncio.Future[OSError | None]) -> None:
    error = None
    try:
        os.stat(path)
    except OSError as err:
        error = err
    with contextlib.suppress(RuntimeError):  # the event loop is closed
        loop.call_soon_threadsafe(future.set_result, error)
