"""The arbiter of the API server: an embedded gunicorn on listening sockets of the root process.

It forks workers, which share the imported modules, and does little else.
"""

import api.server.gevent_patches  # noqa: F401 - first, so that the other modules import what is patched

# isort: split

import contextlib
import fcntl
import gc
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Sequence
from typing import Any

from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.sock import close_sockets, create_sockets

from api.app import Application
from api.server.log_format import ApiLogger
from api.server.tls import CertificateFromScheduler, CertificateOnDisk, CurrentContext
from api.server.worker import ENDING, Worker
from supervisor.host.osport import become, release_free_memory, set_title
from supervisor.ipc.messages import PROTOCOL, SPOKEN, DaemonSettings, Decoder, Message

TITLE = "ringward gunicorn"
_HELLO_BYTES = 65536
_MAX_LISTENERS = 64
_CONNECTIONS = 8000
_NOFILE = 65536
_KEEPALIVE_S = 75
_GRACE_S = 5
_HURRY_S = 2
_HANG_S = 30
_SIGNALS = 4096
"""Maximum number of signals to receive at once."""
_POLL_S = 1.0
"""How long to wait for the end of a worker that hangs."""


class Server(BaseApplication):  # type: ignore[misc]  # gunicorn has no types
    """gunicorn's application object: its configuration, and the settings of the workers."""

    def __init__(
        self, application: Application, settings: DaemonSettings, hello: socket.socket, listeners: list[int]
    ) -> None:
        self._application = application
        self.settings = settings
        self.hello = hello
        self.listeners = listeners
        self.daemon_pid = os.getppid()
        self._tls_context: CurrentContext | None = None
        super().__init__()

    def load_config(self) -> None:
        """Load only these settings, and nothing from files, the environment or the command line."""
        settings = {
            "workers": self.settings.workers,
            "worker_class": Worker,
            "worker_connections": _CONNECTIONS,
            "timeout": _HANG_S,
            "graceful_timeout": _GRACE_S,
            "keepalive": _KEEPALIVE_S,
            "limit_request_line": 8190,
            "logger_class": ApiLogger,
            "loglevel": self.settings.log_level,
            "control_socket_disable": True,
            "umask": 0o077,
            # gunicorn must trust no proxy: over a Unix socket it would trust every client. api.server.client_address
            # evaluates the headers instead.
            "forwarded_allow_ips": "",
            "forwarder_headers": "",
            "secure_scheme_headers": {},
            # gunicorn requires that these files exist. The real ones may be unreadable for it, or just being renewed.
            "certfile": os.devnull if self.settings.tls_cert else None,
            "keyfile": os.devnull if self.settings.tls_key else None,
            "do_handshake_on_connect": True,
            "ssl_context": self._context,
        }
        for name, value in settings.items():
            self.cfg.set(name, value)

    def _context(self, config: object, make: object) -> object:
        """Return the current TLS context. Workers call this for each connection."""
        if self._tls_context is None:
            settings = self.settings
            own = settings.api_account is None
            self._tls_context = CurrentContext(
                CertificateOnDisk(str(settings.tls_cert), str(settings.tls_key))
                if own
                else CertificateFromScheduler(settings)
            )
        return self._tls_context.get(config, make)

    def load(self) -> Application:
        """Return the application, which each worker connects to its context."""
        return self._application

    def root_is_gone(self, flags: int = 0) -> bool:
        """Return whether the root has closed its socket. Received bytes are ignored."""
        try:
            return not self.hello.recv(4096, flags)
        except BlockingIOError:
            return False
        except OSError:  # ECONNRESET
            return True


class ApiArbiter(Arbiter):  # type: ignore[misc]  # gunicorn has no types
    """A gunicorn arbiter that exits when the root process has died."""

    def start(self) -> None:
        """Use the root's listeners as if systemd had bound them, so that gunicorn does not remove them."""
        self.systemd = True
        self.LISTENERS = create_sockets(self.cfg, self.log, self.app.listeners)
        super().start()

    def init_signals(self) -> None:
        """Also handle SIGIO, which reports that the hello socket is readable: the root has closed it."""
        super().init_signals()
        self._arrivals, arrived = socket.socketpair()
        arrived.setblocking(False)
        signal.set_wakeup_fd(arrived.detach(), warn_on_full_buffer=False)
        signal.signal(signal.SIGIO, lambda _sig, _frame: self.wakeup())
        fd = self.app.hello.fileno()
        fcntl.fcntl(fd, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)

    def spawn_worker(self) -> object:
        """Fork with signals blocked; the worker unblocks them after it has removed the arbiter's handlers."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        try:
            return super().spawn_worker()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def wait_for_signals(self, timeout: float = _POLL_S) -> list[int]:
        """Wait for signals until a worker can have missed its heartbeats; gunicorn would wake up every second.

        Everything else that the main loop does follows a signal: of a worker's end, the root's end, or a command.
        """
        due_s = next_check_s(list(self.WORKERS.values()), self.num_workers, self.timeout)
        return self._signals_within(max(timeout, due_s - time.monotonic()))

    def _signals_within(self, limit_s: float) -> list[int]:
        """Return the signals that arrived; wait for the first one for at most `limit_s`.

        gevent calls Python's handlers only between two waits. Without the socket, it would not notice a signal that
        arrives just before a wait begins.
        """
        self._arrivals.settimeout(limit_s)
        with contextlib.suppress(TimeoutError):
            self._arrivals.recv(_SIGNALS)
        received: list[int] = super().wait_for_signals(0)
        return received

    def stop(self, graceful: bool = True) -> None:
        """Stop the workers as gunicorn does, but wait for SIGCHLD instead of polling every 100 ms."""
        close_sockets(self.LISTENERS, unlink=False)
        self.LISTENERS = []
        self.kill_workers(signal.SIGTERM if graceful else signal.SIGQUIT)
        limit_s = time.monotonic() + self.cfg.graceful_timeout
        while self.WORKERS and (left_s := limit_s - time.monotonic()) > 0:
            for number in self._signals_within(left_s):
                if graceful and number in (signal.SIGINT, signal.SIGQUIT):
                    graceful = False
                    self.kill_workers(signal.SIGQUIT)
                    limit_s = time.monotonic() + _HURRY_S
            self.reap_workers()
        self.kill_workers(signal.SIGKILL)
        self.reap_workers()

    def manage_workers(self) -> None:
        """Manage the workers; gunicorn calls this in each iteration."""
        if self.app.root_is_gone():
            self.log.warning("the root process is gone")
            for pid in list(self.WORKERS):
                self.kill_worker(pid, signal.SIGKILL)
            os._exit(0)
        super().manage_workers()


def next_check_s(workers: Sequence[Any], wanted: int, hang_s: float) -> float:
    """Return when the first worker may be hanging, in monotonic seconds; 0 if one already hangs or is missing."""
    if len(workers) < wanted or any(worker.aborted for worker in workers):
        return 0.0
    return min((worker.tmp.last_update() + hang_s for worker in workers), default=0.0)


def _receive_hello(hello: socket.socket) -> tuple[DaemonSettings, list[int]]:
    """Receive the settings and the descriptors of the listeners."""
    decoder = Decoder()
    data, listeners, _, _ = socket.recv_fds(hello, _HELLO_BYTES, _MAX_LISTENERS)
    message: Message | None = next(decoder.feed(data), None)
    while message is None and (data := hello.recv(_HELLO_BYTES)):
        message = next(decoder.feed(data), None)
    if message is None or message.get("op") != "hello":
        raise SystemExit("api: the root process sent no settings")
    if message["protocol"] not in SPOKEN:
        raise SystemExit(f"api: the root process uses protocol {message['protocol']}, the API server {PROTOCOL}")
    if not listeners:  # otherwise gunicorn would open a listener of its own
        raise SystemExit("api: the root process sent no listeners")
    hello.setblocking(False)
    for fd in listeners:
        os.set_inheritable(fd, False)
    return DaemonSettings.from_dict(message["boot"]), listeners


def run(fd: int) -> None:
    """Run the server until it is stopped.

    Args:
        fd: Descriptor of the socket to the root process.
    """
    set_title(TITLE)
    hello = socket.socket(fileno=fd)
    hello.set_inheritable(False)
    application = Application()
    settings, listeners = _receive_hello(hello)
    if settings.api_account is not None:
        become(*settings.api_account, settings.api_groups)
        os.environ.pop("HOME", None)  # it belongs to another user: libpq would look for files there and fail
    # Only the root notifies systemd. gunicorn would take the base path from SCRIPT_NAME.
    for name in ("NOTIFY_SOCKET", "SCRIPT_NAME"):
        os.environ.pop(name, None)
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (min(hard, _NOFILE) if hard != resource.RLIM_INFINITY else _NOFILE, hard)
    )
    sys.argv[1:] = []
    # Compiling the routes takes two megabytes for a moment. Workers would inherit these pages.
    release_free_memory()
    # Workers share the imported objects. Garbage collection would write to them and so copy their pages.
    gc.freeze()
    gc.enable()
    ApiArbiter(Server(application, settings, hello, listeners)).run()
