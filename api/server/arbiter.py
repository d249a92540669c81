"""The arbiter of the API server: gunicorn, embedded, on listening sockets that the root process made.

It forks workers and does little else. It stays small: gevent and the application are loaded by the worker
(:mod:`api.server.worker`), or here, once for all, when there are several that can share them.
"""

import fcntl
import gc
import importlib
import os
import resource
import signal
import socket
import sys
import time
from typing import Any, cast

import gunicorn.workers.base
from gunicorn.app.base import BaseApplication
from gunicorn.arbiter import Arbiter
from gunicorn.sock import close_sockets, create_sockets

from api.server.heartbeat import Pulse
from api.server.log_format import ApiLogger
from api.server.tls import Contexts, Files, OnDisk
from supervisor.host.osport import become, set_title
from supervisor.ipc.messages import PROTOCOL, SPOKEN, Boot, Decoder, Frame

TITLE = "ringward gunicorn"
_WORKER = "api.server.worker"
_LENT_KEY = "api.server.lent_key"
_HELLO_BYTES = 65536
_MAX_LISTENERS = 64
_CONNECTIONS = 8000
_NOFILE = 65536
_KEEPALIVE_S = 75
_GRACE_S = 5
_HURRY_S = 2
_HANG_S = 30
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT, signal.SIGABRT)


class Seed:
    """A worker as the arbiter sees it: the part of gunicorn's worker that it uses. The child makes the rest."""

    def __init__(self, age: int, ppid: int, sockets: list[Any], app: "Server", timeout: float, cfg: Any, log: Any):
        self.age = age
        self.pid: int | str = "[booting]"
        self.sockets = sockets
        self.aborted = False
        self.tmp = Pulse()
        self._arguments = (age, ppid, sockets, app, timeout, cfg, log)
        self._worker: Any = None

    @property
    def booted(self) -> bool:
        """Whether the worker serves; a worker that ends before that ends the server."""
        return self._worker is not None and self._worker.booted

    def init_process(self) -> None:
        """In the child: become the worker, which serves until the end."""
        set_title(f"{TITLE} worker")
        # Until the worker has handlers of its own, a signal ends it: the arbiter's handlers would swallow it.
        for number in _ENDING:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDING)
        gc.disable()  # until all is loaded, which stays
        module = importlib.import_module(_WORKER)
        importlib.import_module(_LENT_KEY)  # now: when a client comes, its file may be that of another release
        # Gunicorn would make a file below /tmp, which may be read-only; it looks at this one.
        gunicorn.workers.base.WorkerTmp = lambda _cfg: self.tmp
        worker = module.Worker(*self._arguments)
        worker.pid = self.pid
        self._worker = worker
        worker.init_process()


def _files(boot: Boot) -> Files:
    if boot.api_account is None:
        return OnDisk(str(boot.tls_cert), str(boot.tls_key))
    return cast(Files, importlib.import_module(_LENT_KEY).FromScheduler(boot))  # with gevent, which we are without


class Server(BaseApplication):  # type: ignore[misc]  # gunicorn has no types
    """Gunicorn's configuration, and what its workers need of ours."""

    def __init__(self, boot: Boot, hello: socket.socket, listeners: list[int]) -> None:
        self.boot = boot
        self.hello = hello
        self.listeners = listeners
        self.daemon_pid = os.getppid()
        self._contexts: Contexts | None = None
        super().__init__()

    def load_config(self) -> None:
        """No file, no environment, no command line: these settings."""
        settings = {
            "workers": self.boot.workers,
            "worker_class": Seed,
            "worker_connections": _CONNECTIONS,
            "timeout": _HANG_S,
            "graceful_timeout": _GRACE_S,
            "keepalive": _KEEPALIVE_S,
            "limit_request_line": 8190,
            "logger_class": ApiLogger,
            "loglevel": self.boot.log_level,
            "control_socket_disable": True,
            "umask": 0o077,
            # Gunicorn believes no proxy, api.server.client_address does: over a Unix socket gunicorn would believe
            # everybody.
            "forwarded_allow_ips": "",
            "forwarder_headers": "",
            "secure_scheme_headers": {},
            # That there are any: gunicorn does not start without, and these may be out of reach, or just renewed.
            "certfile": os.devnull if self.boot.tls_cert else None,
            "keyfile": os.devnull if self.boot.tls_key else None,
            "do_handshake_on_connect": True,
            "ssl_context": self._context,
        }
        for name, value in settings.items():
            self.cfg.set(name, value)

    def _context(self, config: Any, make: Any) -> Any:
        """In a worker, which asks with each connection."""
        if self._contexts is None:
            self._contexts = Contexts(_files(self.boot))
        return self._contexts.get(config, make)

    def load(self) -> Any:
        """Not used: workers build the application themselves."""
        raise NotImplementedError

    def root_is_gone(self, flags: int = 0) -> bool:
        """Return whether the socket to the root has closed. Remaining bytes are read and ignored."""
        try:
            return not self.hello.recv(4096, socket.MSG_DONTWAIT | flags)
        except BlockingIOError:
            return False
        except OSError:  # ECONNRESET
            return True


class ApiArbiter(Arbiter):  # type: ignore[misc]  # gunicorn has no types
    """Gunicorn's arbiter, which ends when the root is gone."""

    def start(self) -> None:
        """Listen where the root does, as if systemd had bound the sockets: they are not ours to remove."""
        self.systemd = True
        self.LISTENERS = create_sockets(self.cfg, self.log, self.app.listeners)
        super().start()

    def init_signals(self) -> None:
        """SIGIO tells that the hello socket has something to say: only its end can be that."""
        super().init_signals()
        signal.signal(signal.SIGIO, lambda _sig, _frame: self.wakeup())
        fd = self.app.hello.fileno()
        fcntl.fcntl(fd, fcntl.F_SETOWN, os.getpid())
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC)

    def spawn_worker(self) -> Any:
        """Fork. Signals for the child wait meanwhile, until our handlers are gone from it."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
        try:
            return super().spawn_worker()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def stop(self, graceful: bool = True) -> None:
        """End the workers as gunicorn does, which looks every 100 ms whether they have: here their ends are heard."""
        close_sockets(self.LISTENERS, unlink=False)
        self.LISTENERS = []
        self.kill_workers(signal.SIGTERM if graceful else signal.SIGQUIT)
        limit_s = time.monotonic() + self.cfg.graceful_timeout
        while self.WORKERS and (left_s := limit_s - time.monotonic()) > 0:
            for number in self.wait_for_signals(left_s):
                if graceful and number in (signal.SIGINT, signal.SIGQUIT):
                    graceful = False
                    self.kill_workers(signal.SIGQUIT)
                    limit_s = time.monotonic() + _HURRY_S
            self.reap_workers()
        self.kill_workers(signal.SIGKILL)
        self.reap_workers()

    def manage_workers(self) -> None:
        """Called in each turn, at least once a second."""
        if self.app.root_is_gone():
            self.log.warning("the root process is gone")
            for pid in list(self.WORKERS):
                self.kill_worker(pid, signal.SIGKILL)
            os._exit(0)
        super().manage_workers()


def _told(hello: socket.socket) -> tuple[Boot, list[int]]:
    """The settings, and the descriptors of the listeners."""
    decoder = Decoder()
    data, listeners, _, _ = socket.recv_fds(hello, _HELLO_BYTES, _MAX_LISTENERS)
    frame: Frame | None = next(decoder.feed(data), None)
    while frame is None and (data := hello.recv(_HELLO_BYTES)):
        frame = next(decoder.feed(data), None)
    if frame is None or frame.get("op") != "hello":
        raise SystemExit("api: the root process said no hello")
    if frame["protocol"] not in SPOKEN:
        raise SystemExit(f"api: the root process speaks protocol {frame['protocol']}, this is {PROTOCOL}")
    if not listeners:  # gunicorn would listen somewhere by itself
        raise SystemExit("api: the root process sent no listeners")
    for fd in listeners:
        os.set_inheritable(fd, False)
    return Boot.from_dict(frame["boot"]), listeners


def run(fd: int) -> None:
    """Run the server until it is stopped.

    Args:
        fd: of the socket to the root process.
    """
    set_title(TITLE)
    hello = socket.socket(fileno=fd)
    hello.set_inheritable(False)
    boot, listeners = _told(hello)
    if boot.api_account is not None:
        become(*boot.api_account, boot.api_groups)
        os.environ.pop("HOME", None)  # of another user: libpq would look for files there, and fail
    # systemd's notification is the root's business, and gunicorn would take the base path from the environment.
    for name in ("NOTIFY_SOCKET", "SCRIPT_NAME"):
        os.environ.pop(name, None)
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (min(hard, _NOFILE) if hard != resource.RLIM_INFINITY else _NOFILE, hard)
    )
    sys.argv[1:] = []
    if boot.workers > 1:
        importlib.import_module(_WORKER)
    # Workers share the loaded objects: the collector must not touch them, which would copy their pages.
    gc.freeze()
    gc.enable()
    ApiArbiter(Server(boot, hello, listeners)).run()
