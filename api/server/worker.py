"""One API worker: gevent and the application.

It differs from gunicorn's own gevent worker:

* It stops promptly: streams end, idle connections close, and only active requests get time to finish.
* SIGABRT ends a hanging worker at once. gunicorn's handler raises SystemExit in the running greenlet; such a worker
  would accept no more connections, but not be replaced while a stream is open.
* All phases of a connection have time limits, in both directions; gunicorn only limits the wait for headers.
* At the connection limit it closes one of these, in this order: the connection that has waited longest for a request
  or its rest; a connection whose client does not read; a stream. Otherwise a single host could lock out all others
  with thousands of silent connections.
* A client that sends as fast as the worker reads does not delay others: they run before each read of the socket and
  after each request. The unread rest of a body is skipped, within limits.
* It asks for the body of a request with ``Expect: 100-continue`` only once that is read.
* It does not load gevent's own web server, which gunicorn's gevent worker imports.
"""

import api.server.gevent_patches  # noqa: F401 - first, so that the other modules import what is patched

# isort: split

import contextlib
import errno
import faulthandler
import functools
import gc
import os
import re
import signal
import socket
import ssl
import sys
import time
from datetime import datetime
from types import FrameType
from typing import Any

import gevent
import gunicorn.sock
import gunicorn.util
from gevent import hub
from gevent.event import Event
from gevent.pool import Pool
from gevent.server import StreamServer
from gunicorn.arbiter import Arbiter
from gunicorn.http import wsgi
from gunicorn.http.body import Body, ChunkedReader
from gunicorn.http.errors import (
    ConfigurationProblem,
    ExpectationFailed,
    ForbiddenProxyRequest,
    InvalidResponseHeader,
    InvalidResponseHeaderName,
    LimitRequestHeaders,
    LimitRequestLine,
    NoMoreData,
    ParseException,
    UnsupportedTransferCoding,
)
from gunicorn.http.message import Request
from gunicorn.http.parser import RequestParser
from gunicorn.http.unreader import SocketUnreader
from gunicorn.workers import base
from gunicorn.workers.base_async import AsyncWorker

from api.app import open_context
from api.errors import ApiError, shown_path, write_error
from api.server.client_address import Exposure
from api.server.heartbeat import Heartbeat
from api.server.memory_watch import MemoryWatch
from api.server.paced_response import Response, give, taking
from api.worker_context import Context
from supervisor.host.osport import set_title, take_short_slices
from supervisor.host.shortage import REST_S, is_shortage, reason_of

TITLE = "ringward gunicorn worker"
ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGABRT)
Address = tuple[str, int] | tuple[str, int, int, int] | str
"""Address of a socket: of IPv4, IPv6 or a Unix socket."""
_LAG_INTERVAL_S = 2.0
_SOCKET_S = 30.0
_LINGER_S = 1.0
_HANDSHAKE_S = 10.0
_HEAD_BYTES = 64 << 10
"""Maximum size of a request's head. gunicorn allows 800 KiB, the sum over all fields, and each read scans all of it."""
_PASSED_OVER_BYTES = 1 << 20
_PASSED_OVER_S = 10.0
_STEP_BYTES = 65536
_CHUNKS = 32
"""Number of chunks to parse before other greenlets get a turn; a chunk takes about 10 µs, even if it is tiny."""
_STALLED_S = 5.0
"""At the connection limit, a client that has not read for this long is disconnected."""
_EXPECTS_CONTINUE = re.compile(rb"expect:[ \t]*100-continue[ \t]*", re.IGNORECASE)
_CLOSE_BELOW_S = 0.5
"""Time between the end of the worker's grace period for requests and the arbiter's SIGKILL."""


base.WorkerTmp = Heartbeat  # gunicorn has no setting for this class; see api.server.heartbeat


class Worker(AsyncWorker):  # type: ignore[misc]  # gunicorn has no types
    """A gunicorn worker with the differences that the module describes."""

    sockets: list[Any]

    def init_process(self) -> None:
        """Initialise the worker, and serve until it stops."""
        set_title(TITLE)
        # The arbiter's handlers would swallow signals. Until the worker has handlers of its own, signals end it.
        for number in ENDING:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
        take_short_slices()  # a client that is sent a line gets the processor sooner
        self.sockets = [  # as gevent's sockets
            socket.socket(listener.FAMILY, socket.SOCK_STREAM, fileno=listener.sock.detach())
            for listener in self.sockets
        ]
        hub.reinit()
        super().init_process()

    def load_wsgi(self) -> None:
        """Connect the application. Each worker has its own database connections and sockets to other processes."""
        self.stopping = Event()
        self._busy: set[gevent.Greenlet] = set()
        self._idle: set[gevent.Greenlet] = set()
        self._waiting: dict[gevent.Greenlet, None] = {}
        self._pools: list[Pool] = []
        self.context: Context = open_context(self.app.settings, self.app.daemon_pid)
        self.context.stopping = self.stopping
        self._ends_server = False
        self.exposure = Exposure(self.app.settings)
        self.wsgi = self.app.wsgi().connect(self.context, MemoryWatch(self._stop_server))
        self.context.start()
        # Exclude existing objects from garbage collection, which would delay streams by milliseconds.
        gc.freeze()

    def init_signals(self) -> None:
        """Handle SIGTERM in a greenlet, so that it can wake others."""
        super().init_signals()
        gevent.signal_handler(signal.SIGTERM, self._stop)

    def _stop(self) -> None:
        self.alive = False
        self.context.stop()

    def _stop_server(self) -> None:
        """Stop the worker and make the arbiter stop too, so that the root starts a new server with fresh memory."""
        if not self._ends_server:
            self._ends_server = True
            self.log.error("requests fail for lack of memory; a new API server starts")
            self._stop()

    def handle_quit(self, sig: int, frame: FrameType | None) -> None:
        """Handle SIGQUIT as gunicorn does, but in a greenlet, because it waits."""
        gevent.spawn(super().handle_quit, sig, frame)

    def handle_usr1(self, sig: int, frame: FrameType | None) -> None:
        """Handle SIGUSR1 as gunicorn does, but in a greenlet, because it opens files."""
        gevent.spawn(super().handle_usr1, sig, frame)

    def handle_abort(self, _sig: int, _frame: FrameType | None) -> None:
        """Handle the SIGABRT that the arbiter sends after a missing heartbeat: log where the worker hangs, and exit.

        If the worker hung during startup or for lack of memory, the next one would hang too, so the server exits.
        """
        faulthandler.dump_traceback(all_threads=False)
        os._exit(1 if self.booted and not self._ends_server else Arbiter.WORKER_BOOT_ERROR)

    def run(self) -> None:
        """Accept connections until the worker stops, then finish active requests."""
        self.context.auditor.take_over()
        gevent.get_hub().no_memory_status = Arbiter.WORKER_BOOT_ERROR
        hello = gevent.get_hub().loop.io(self.app.hello.fileno(), 1)
        hello.start(self._root_may_be_gone)
        pools, servers = self._pools, []
        for sock in self.sockets:
            sock.setblocking(True)
            # Each listener has its own pool, so a flood over TCP does not block the Unix socket.
            pool = Pool(self.worker_connections)
            server = _Server(sock, handle=functools.partial(self.handle, _Listener(sock, pool)), spawn=pool)
            server.log = self.log
            # Accept one connection at a time, so simultaneous connections are shared between workers.
            server.max_accept = 1
            server.start()
            pools.append(pool)
            servers.append(server)
        while self.alive:
            self.notify()
            began_s = time.monotonic()
            self.stopping.wait(_LAG_INTERVAL_S)
            self.context.lag_s = max(0.0, time.monotonic() - began_s - _LAG_INTERVAL_S)
            for pool in pools:
                self._make_room(pool)  # a client may have become slow meanwhile
        for server in servers:
            server.close()
        self._drain(pools)
        if self._ends_server:
            sys.exit(Arbiter.WORKER_BOOT_ERROR)

    def _root_may_be_gone(self) -> None:
        if self.app.root_is_gone(socket.MSG_PEEK):
            os._exit(0)

    def _drain(self, pools: list[Pool]) -> None:
        """Close idle connections now, connections without a complete request shortly after; wait for the rest."""
        start_s = time.monotonic()
        while any(pools) and time.monotonic() - start_s < self.cfg.graceful_timeout - 2 * _CLOSE_BELOW_S:
            self.notify()
            fresh_too = time.monotonic() - start_s > _CLOSE_BELOW_S
            for pool in pools:
                for greenlet in list(pool):
                    if greenlet in self._idle or (fresh_too and greenlet not in self._busy):
                        greenlet.kill(block=False)
                pool.join(timeout=0.05)
        for pool in pools:
            pool.kill(timeout=_CLOSE_BELOW_S)
        self.context.auditor.flush()

    def notify(self) -> None:
        """Send the arbiter a heartbeat; exit if the arbiter is gone."""
        super().notify()
        if self.ppid != os.getppid():
            self.log.info("Parent changed, shutting down: %s", self)
            sys.exit(0)

    def _serve(self, listener: "_Listener", client: socket.socket, addr: Address) -> None:
        """Serve the requests of a connection one after another, as gunicorn does, but with HTTP/1.1 only."""
        req = None
        try:
            requests = FairParser(self.cfg, client, addr, self._waiting)
            name = listener.getsockname()
            while True:
                req = None
                with self.timeout_ctx():
                    req = next(requests)
                if req is None:  # no further request came in time
                    break
                self.handle_request(name, req, client, addr)
        except NoMoreData:  # the exception's text is the received data, which may contain a credential
            self.log.debug("a client disconnected within a request")
        except StopIteration:
            self.log.debug("a connection closes")
        except ssl.SSLError as err:
            if err.errno == ssl.SSL_ERROR_EOF:
                self.log.debug("a client closed its TLS connection")
            else:
                self.handle_error(req, client, addr, err)
        except OSError as err:
            if err.errno in (errno.EPIPE, errno.ECONNRESET, errno.ENOTCONN):
                self.log.debug("a client disconnected: %s", err)
            elif is_shortage(err):
                self.log.error("a response ended early: %s", reason_of(err))
            else:
                self.log.exception("Socket error processing request.")
        except BaseException as err:  # noqa: BLE001 - GreenletExit is one
            self.handle_error(req, client, addr, err)
        finally:
            gunicorn.util.close(client)

    def _answer(self, listener_name: Address, req: Any, sock: socket.socket, addr: Address) -> None:
        """Pass one request to the application, send the response, and log the request.

        Raises:
            StopIteration: the connection must close after this response.
            OSError: the client disconnected, or was too slow.
        """
        started = datetime.now()  # noqa: DTZ005 - only for a difference; gunicorn's log expects a timedelta
        response, environ = wsgi.create(req, sock, addr, listener_name, self.cfg, response_class=Response)
        environ["wsgi.multithread"] = True
        environ["ringward.awaits_continue"] = req.unreader.awaits_continue
        environ["ringward.headers"] = req.headers  # WSGI joins the values of a repeated header
        if not self.alive:
            response.force_close()
        try:
            body = self.wsgi(environ, response.start_response)
            try:
                for piece in body:
                    response.write(piece)
                response.close()
            finally:
                self.log.access(response, req, environ, datetime.now() - started)  # noqa: DTZ005
                if hasattr(body, "close"):
                    body.close()
        except (OSError, StopIteration):
            raise
        except Exception as err:
            if not response.headers_sent:
                raise
            # The client would take an error response in the middle of a response as part of the body.
            if isinstance(err, ApiError):  # the log of a run cannot be read
                self.log.error("a response ended early: %s", err.detail)
            else:
                self.log.exception("Error handling request")
            with contextlib.suppress(OSError):  # ENOTCONN: the client has disconnected
                sock.shutdown(socket.SHUT_RDWR)
                sock.close()
            raise StopIteration from None
        if response.should_close():
            raise StopIteration

    def timeout_ctx(self) -> gevent.Timeout:
        """Return the time limit for the next request of a connection."""
        return gevent.Timeout(self.cfg.keepalive, False)

    def handle_request(self, listener_name: Address, req: Any, sock: socket.socket, addr: Address) -> bool:
        """Handle one request, with the socket's timeout for the client."""
        greenlet = gevent.getcurrent()
        self._busy.add(greenlet)
        self._idle.discard(greenlet)
        self._waiting.pop(greenlet, None)
        sock.settimeout(_SOCKET_S)
        # The response has the request's version, but this server supports at most 1.1.
        req.version = min(req.version, (1, 1))
        if _is_last(req.headers):
            req.force_close()
        try:
            self._answer(listener_name, req, sock, addr)
            if _pass_over(req.body):
                self._idle.add(greenlet)
                if req.unreader.buf.tell():
                    # Another request, or part of it, has already been received. Let other greenlets run first.
                    gevent.sleep(0)
            for pool in self._pools:
                if greenlet in pool:  # this connection was not closed at the connection limit
                    self._make_room(pool)
            return True
        except StopIteration:
            _pass_over(req.body)
            raise
        finally:
            if req.body.failed and sock.fileno() >= 0:
                # Closing with unread data would reset the connection and lose the response.
                gunicorn.util.close_graceful(sock, timeout=_LINGER_S)
            self._busy.discard(greenlet)
            self._waiting[greenlet] = None
            if sock.fileno() >= 0:
                sock.settimeout(None)

    def handle(self, listener: "_Listener", client: socket.socket, addr: Address) -> None:
        """Serve one connection."""
        if client.family == socket.AF_UNIX:
            # The client's address on a Unix socket is meaningless and may not even be text.
            addr = ""
        elif not self.exposure.admits(addr[0]):
            client.close()
            return
        greenlet = gevent.getcurrent()
        self._waiting[greenlet] = None
        self._make_room(listener.pool, greenlet)
        try:
            encrypted = client.family != socket.AF_UNIX and self.cfg.is_ssl
            connection = self._with_tls(client) if encrypted else client
            if connection is not None:
                self._serve(listener, connection, addr)
        finally:
            self._idle.discard(greenlet)
            self._waiting.pop(greenlet, None)

    def _make_room(self, pool: Pool, newcomer: gevent.Greenlet | None = None) -> None:
        """Close the connection of a slow client if the listener is at its connection limit."""
        if pool.full():
            gevent.get_hub().loop.run_callback(self._let_go, pool, newcomer)

    def _let_go(self, pool: Pool, newcomer: gevent.Greenlet | None) -> None:
        """Choose and close a connection. This runs on the loop, so no request can begin between the two steps."""
        victim = next((greenlet for greenlet in self._waiting if greenlet in pool), newcomer)
        if not pool.full():
            return
        if victim is None or victim is newcomer:
            # A closed stream can resume.
            victim = self._stalled(pool) or self.context.feeds.stream_to_close(pool)
        if victim is not None:
            self._waiting.pop(victim, None)
            victim.throw(gevent.GreenletExit)

    @staticmethod
    def _stalled(pool: Pool) -> gevent.Greenlet | None:
        """Return the connection whose client has read nothing for the longest time, if that exceeds the limit."""
        before_s = time.monotonic() - _STALLED_S
        return next((greenlet for greenlet, since_s in taking.items() if since_s < before_s and greenlet in pool), None)

    def _with_tls(self, client: socket.socket) -> socket.socket | None:
        """Return the connection after the TLS handshake; None if it failed. A plain HTTP client gets a plain 400."""
        try:
            with gevent.Timeout(_HANDSHAKE_S):
                if not client.recv(1, socket.MSG_PEEK).isalpha():
                    encrypted: ssl.SSLSocket = gunicorn.sock.ssl_wrap_socket(client, self.cfg)
                    return encrypted
                write_error(client, 400, "This address accepts HTTPS only; use https://")
                # Closing with unread data would reset the connection and lose the response.
                gunicorn.util.close_graceful(client, timeout=_LINGER_S)
        except OSError as err:  # ssl.SSLError or ECONNRESET; certificate errors are logged where the context is made
            self.log.debug("a TLS handshake failed: %s", err)
        except gevent.Timeout:
            self.log.debug("a TLS handshake took too long")
        client.close()
        return None

    def handle_error(self, req: object, client: socket.socket, addr: Address, exc: BaseException) -> None:
        """Reject an unparsable request so that the client receives the response; gunicorn would send an HTML page."""
        if isinstance(exc, gevent.GreenletExit):
            return
        if isinstance(exc, ParseException | ssl.SSLError) and not isinstance(exc, _FROM_APPLICATION):
            status = next((status for kind, status in _STATUSES.items() if isinstance(exc, kind)), 400)
            # The log must not contain text from the client: it may be a stray body, with a password in it.
            self.log.warning("Invalid request from ip=%s: %s", addr[0] if addr else "", type(exc).__name__)
            detail = str(exc)
        else:
            self.log.exception("Error handling request %s", shown_path(getattr(req, "uri", "(no URI read)")))  # noqa: LOG004 - the caller handles exc
            status, detail = 500, ""
        with contextlib.suppress(OSError):
            write_error(client, status, detail)
        # Closing with unread data would reset the connection and lose the response.
        gunicorn.util.close_graceful(client, timeout=_LINGER_S)


_FROM_APPLICATION = (InvalidResponseHeader, InvalidResponseHeaderName)
_STATUSES: dict[type[Exception], int] = {
    ConfigurationProblem: 500,
    ExpectationFailed: 417,
    ForbiddenProxyRequest: 403,
    LimitRequestHeaders: 431,
    LimitRequestLine: 414,
    UnsupportedTransferCoding: 501,
}
"""Statuses for requests that cannot be parsed; all other exceptions give 400."""


class _Listener:
    """The properties of a listener that gunicorn reads; they stay available after the listener was closed."""

    def __init__(self, sock: socket.socket, pool: Pool) -> None:
        self._name: Address = sock.getsockname()
        self.pool = pool

    def getsockname(self) -> Address:
        """Return the address of the listener."""
        return self._name


class _Server(StreamServer):  # type: ignore[misc]  # gevent has no types
    """A server that pauses while it has no descriptor for a connection; gevent would log a traceback each time."""

    log: Any

    def do_read(self) -> tuple[socket.socket, Address] | None:
        """Accept a connection; return None if none is waiting."""
        try:
            accepted: tuple[socket.socket, Address] | None = super().do_read()
        except OSError as err:
            if not is_shortage(err):
                raise
            self.log.error("cannot accept connections: %s", reason_of(err))
            self.stop_accepting()
            gevent.spawn_later(REST_S, self._go_on)
            return None
        return accepted

    def _go_on(self) -> None:
        if not self.closed:
            self.start_accepting()


class FairUnreader(SocketUnreader):  # type: ignore[misc]  # gunicorn has no types
    """A reader that gives other greenlets a turn: if a client sends fast enough, no read ever blocks."""

    def __init__(self, client: socket.socket, waiting: dict[gevent.Greenlet, None]) -> None:
        super().__init__(client)
        self.waiting = waiting
        """Greenlets that wait for their clients, longest wait first."""
        self.awaits_continue = False
        """Whether the client sends the body only after a response with 100 (RFC 9110, 10.1.1)."""

    def chunk(self, size_hint: int | None = None) -> bytes:
        """Give the other greenlets a turn, then return received bytes; first ask for the body if the client waits."""
        if self.awaits_continue:
            self.awaits_continue = False
            give(self.sock, b"HTTP/1.1 100 Continue\r\n\r\n")
        gevent.sleep(0)
        greenlet = gevent.getcurrent()
        answering = greenlet not in self.waiting
        self.waiting.setdefault(greenlet)
        try:
            data: bytes = super().chunk(size_hint)
        finally:
            if answering:
                self.waiting.pop(greenlet, None)
        return data


class BoundedRequest(Request):  # type: ignore[misc]  # gunicorn has no types
    """A request whose head and trailers have a bounded size, because an incomplete one is kept in memory.

    A body that the client announces with ``Expect: 100-continue`` is asked for when it is read. gunicorn would ask for
    each, even if the request is then refused because of its length or its credentials.
    """

    body: Any
    expects_continue = False

    def parse(self, unreader: SocketUnreader) -> bytes:
        """Parse the head; return the bytes after it."""
        self.max_buffer_headers = _HEAD_BYTES
        after: bytes = super().parse(unreader)
        return after

    def parse_headers(self, data: bytes, from_trailer: bool = False) -> list[tuple[str, str]]:
        """Parse header lines; take the expectation of a 100 out, which gunicorn would fulfil at once."""
        lines = data.split(b"\r\n")
        others = lines if from_trailer else [line for line in lines if not _EXPECTS_CONTINUE.fullmatch(line)]
        self.expects_continue |= len(others) < len(lines) and self.version >= (1, 1)
        headers: list[tuple[str, str]] = super().parse_headers(b"\r\n".join(others), from_trailer) if others else []
        return headers

    def set_body_reader(self) -> None:
        """Choose the reader of the body; chunked bodies get a fair reader."""
        super().set_body_reader()
        if isinstance(self.body.reader, ChunkedReader):
            self.body = Body(FairChunkedReader(self, self.unreader))
        begun = self.unreader.buf.tell()
        self.unreader.awaits_continue = self.expects_continue and not begun and _has_rest(self.body)


class FairParser(RequestParser):  # type: ignore[misc]  # gunicorn has no types
    """The parser of a connection's requests."""

    mesg_class = BoundedRequest

    def __init__(self, cfg: object, client: socket.socket, addr: Address, waiting: dict[gevent.Greenlet, None]) -> None:
        super().__init__(cfg, client, addr)
        self.unreader = FairUnreader(client, waiting)


class FairChunkedReader(ChunkedReader):  # type: ignore[misc]  # gunicorn has no types
    """A reader of chunked bodies that gives other greenlets a turn: one read can return over a thousand chunks."""

    chunks = 0

    def parse_chunk_size(self, unreader: SocketUnreader, data: bytes | None = None) -> tuple[int, bytes | None]:
        """Return the size of the next chunk and the bytes after it; every 32 chunks, give others a turn first."""
        self.chunks += 1
        if self.chunks % _CHUNKS == 0:
            gevent.sleep(0)
        parsed: tuple[int, bytes | None] = super().parse_chunk_size(unreader, data)
        return parsed


def _is_last(headers: list[tuple[str, str]]) -> bool:
    """Return whether the client closes the connection; gunicorn only recognises a lone ``close`` (RFC 9112, 9.6)."""
    return any(
        option.strip(" \t").lower() == "close"
        for name, value in headers
        if name == "CONNECTION"
        for option in value.split(",")
    )


def _has_rest(body: Any) -> bool:
    return bool(getattr(body.reader, "length", 0)) or getattr(body.reader, "parser", None) is not None


def _pass_over(body: Any) -> bool:
    """Skip the rest of a request's body; return False if it is too long, too slow or damaged."""
    if not body.failed and not _has_rest(body):
        return True
    remaining = 0 if body.failed else _PASSED_OVER_BYTES
    with contextlib.suppress(ParseException, NoMoreData, OSError), gevent.Timeout(_PASSED_OVER_S, False):
        while remaining > 0:
            data = body.read(_STEP_BYTES)
            if not data:
                return True
            remaining -= len(data)
    body.failed = True
    return False
