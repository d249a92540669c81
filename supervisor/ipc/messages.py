"""Messages between the processes of one daemon, and their framing.

Three channels use the same frames:

* root and scheduler, over a socketpair that the scheduler inherits;
* root and the API server, over another (the API only listens there, and ends when it closes);
* API workers and scheduler, over ``control.sock``.

A frame is a length (4 bytes, big-endian, the body only) and a JSON object with an ``op``::

    +----------------+---------------------------+
    | length, u32 BE | {"op": "...", ...} UTF-8  |
    +----------------+---------------------------+

The first frame on an inherited socketpair is ``hello``, from the root: the versions of the protocol and of Ringward,
the epoch (how many helpers of this kind the root has started), the :class:`Boot` settings, and whether a helper of this
kind has already said that it is ready. A new field or operation brings a new number of the protocol. Helpers also work
under a root that speaks an older one, as ``SPOKEN`` lists them. The API server gets the listeners with the first byte.

Root -> scheduler
    ``hello``     {protocol, version, epoch, boot, worked}
    ``snapshot``  {instances: [instance], exits: [exited], cgroups, ending}: live runs, unacknowledged exits, the
                  directory with the cgroups of runs, if there is one, and whether the daemon is being shut down
    ``started``   {run, pid, at}
    ``exited``    the fields of :class:`Exited`, without `origin`, which the receiver has
    ``stopping``  {run}: of a run of a launcher: its stop ladder has begun, for whatever cause
    ``notified``  {run, ...}: changes that a run reported by sd_notify: ``ready_at``, ``status``, ``alive``
    ``log``       {run, state, reason}: state of its log: ``ok``, ``waiting`` (its file takes nothing, the run's
                  output waits) or ``dropping`` (output is counted and not kept)
    ``memory``    {short}: whether the root gets no more memory, and starts nothing
    ``shutdown``  {}: SIGTERM arrived; stop all runs, then answer ``ready_to_end``
    ``reload``    {}: SIGHUP arrived; read the configuration again, then answer ``reloaded``
    ``upgrade_refused``  {why}: the answer to ``upgrade``; a root that becomes another version hangs up instead

Scheduler -> root
    ``snapshot``  {}: asked once per connection, before anything else
    ``prepare``   {spawn}: a ``spawn`` of this is likely to follow, as soon as it is stored; or none does
    ``spawn``     {spawn}: the fields of :class:`Spawn`; repeating a run id that the root knows changes nothing
    ``stop``      {run, cause, by, force, note}: `note` is a line for its log, or null
    ``note``      {run, text}: a line for its log, if that is still open
    ``ack``       {runs: [run id]}: these exits are stored, forget them
    ``ready``     {}: the control socket answers
    ``ready_to_end``  {}: shutdown is complete as far as the scheduler is concerned
    ``reloaded``  {}: a ``reload`` has been carried out, or refused
    ``upgrade``   {}: from a scheduler of another version, before anything else: execute the installed version
    ``settings``  {boot, api}: the new boot settings, and whether the API server has to be replaced for them

All times are integer milliseconds since the Unix epoch, all intervals integer milliseconds.
"""

import json
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import MISSING, asdict, dataclass, field, fields
from functools import cache
from typing import Any

from supervisor.version import VERSION

PROTOCOL = 3
SPOKEN = range(1, PROTOCOL + 1)
"""The protocols of roots under which the helpers of this version work until the root has become this version, too."""
_SINCE = {
    "stdin_open": 2,
    "stdin_file": 2,
    "stop_target": 2,
    "proxy_socket": 2,
    "run_token_key": 2,
    "runtime_bases": 2,
    "identity": 3,
    "public": 3,
}
"""The first protocol that has a field of :class:`Spawn` or :class:`Boot`; the others are in all of them."""
MAX_FRAME_BYTES = 16 * 1024 * 1024
LOCK = "lock"
"""Name of the file in the runtime directory that the daemon holds locked."""

_LENGTH = struct.Struct(">I")
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode

Frame = dict[str, Any]


class ProtocolError(Exception):
    """The peer sent something that is no frame."""


def encode(frame: Frame) -> bytes:
    """Return one frame as bytes."""
    body = _encode(frame).encode("utf-8", "surrogateescape")
    return _LENGTH.pack(len(body)) + body


def parse(body: bytes | bytearray) -> Frame:
    """Return the object in the body of a frame.

    Raises:
        ProtocolError: it is no JSON object.
    """
    try:
        frame = json.loads(body.decode("utf-8", "surrogateescape"))
    except ValueError as err:
        raise ProtocolError("a message that is not JSON") from err
    except RecursionError as err:
        raise ProtocolError("a message that is nested too deeply") from err
    if not isinstance(frame, dict):
        raise ProtocolError("a message that is not an object")
    return frame


class Decoder:
    """Cuts a byte stream into frames; keeps an incomplete one until the rest arrives."""

    def __init__(self, parse: Callable[[bytearray], Frame] = parse) -> None:
        """`parse`: makes a frame of a body, as the function of that name does."""
        self._parse = parse
        self._buffer = bytearray()

    def feed(self, data: bytes | memoryview) -> Iterator[Frame]:
        """Yield the frames that `data` completes.

        Raises:
            ProtocolError: a frame over 16 MiB, or a body that is no JSON object.
        """
        buffer = self._buffer
        buffer += data
        begin = 0
        try:
            while len(buffer) - begin >= _LENGTH.size:
                (size,) = _LENGTH.unpack_from(buffer, begin)
                if size > MAX_FRAME_BYTES:
                    raise ProtocolError(f"a message of {size} bytes")
                end = begin + _LENGTH.size + size
                if len(buffer) < end:
                    return
                body = buffer[begin + _LENGTH.size : end]
                begin = end
                yield self._parse(body)
        finally:
            del buffer[:begin]


def receive_all(sock: socket.socket, decoder: Decoder) -> list[Frame]:
    """Block until at least one frame has arrived, and return all that have; empty at end of stream.

    Raises:
        ProtocolError: what arrived is no frame.
        OSError: the connection broke or its time-out passed.
    """
    while True:
        data = sock.recv(65536)
        if not data:
            return []
        frames = list(decoder.feed(data))
        if frames:
            return frames


def receive(sock: socket.socket, decoder: Decoder) -> Frame | None:
    """Block until the one frame that is due has arrived; None at end of stream. For clients that ask and wait.

    Raises:
        ProtocolError: what arrived is no frame, or more than one.
        OSError: the connection broke or its time-out passed.
    """
    frames = receive_all(sock, decoder)
    if len(frames) > 1:
        raise ProtocolError("more than the expected message")
    return frames[0] if frames else None


@dataclass(frozen=True, kw_only=True)
class IdentityHeaders:
    """Names of headers of a proxy that authenticates people, and the roles of their groups."""

    user: str
    groups: str
    secret: str
    expected: str = field(repr=False)
    """The value of the header `secret`, which only the proxy knows."""
    roles: dict[str, str]
    """Groups with their roles; ``*``: everybody else."""


@dataclass(frozen=True, kw_only=True)
class Boot:
    """Settings that are fixed before the root process starts. A reload changes some of them in a running daemon.

    ``ringward up`` makes them from the configuration, and passes them to the root over an inherited descriptor. The
    root passes them to its helpers in ``hello``. They have secrets, so no environment or argument list carries them.
    """

    daemon_id: str
    """ULID of the data directory."""
    data_dir: str
    runtime_dir: str
    """Per-daemon directory on tmpfs, 0700, or 1750 for API workers of another user: rings and internal sockets."""
    runtime_bases: list[str] = field(default_factory=list)
    """Directories below which the runtime directory may be made when its shared memory is gone, the best first."""
    config_path: str
    listen: list[tuple[str, int]]
    """TCP addresses: loopback, or others when there is TLS or a trusted proxy."""
    http_socket: str
    """Path of the Unix socket of the HTTP API."""
    socket_gid: int | None = None
    """Group that may connect to the Unix sockets; None: only their owner."""
    proxy_socket: str | None = None
    """Path of the Unix socket on which proxies pass on the requests of others; None: there is none."""
    hosts: list[str] = field(default_factory=list)
    """Names besides the addresses under which the API is reached."""
    external_url: str | None = None
    """Under which clients reach the API, base path included, without a slash at the end."""
    base_path: str = ""
    """Empty, or with a slash in front and none at the end."""
    behind_proxy: list[str] = field(default_factory=list)
    """Networks of trusted proxies."""
    identity: "IdentityHeaders | None" = None
    """Headers with which a trusted proxy names the person of a request; None: no proxy does."""
    tls_cert: str | None = None
    """Path of the certificate chain, with which all TCP addresses speak TLS."""
    tls_key: str | None = None
    api_user: str | None = None
    """User of the API workers as configured; None: the usual one, if there is one."""
    api_account: tuple[int, int] | None = None
    """Numbers of that user and its group; None: the workers are the daemon's user."""
    api_groups: list[int] = field(default_factory=list)
    """All groups of that user."""
    workers: int
    metrics_open: bool = False
    """``/metrics`` needs no authentication."""
    public: list[str] = field(default_factory=list)
    """Names of the tasks and services whose state needs no authentication."""
    min_free_bytes: int | None = None
    """Log files do not grow while less is free on their file system; None: the smaller of 256 MiB and 5 % of it."""
    shutdown_timeout_ms: int
    cgroups: bool = True
    """Runs have cgroups where there are some to be had."""
    log_level: str
    """debug, info, warning or error."""
    database_url: str | None = field(default=None, repr=False)
    """Of a PostgreSQL server; None: SQLite, in the data directory."""
    private_variables: list[str] = field(default_factory=list)
    """Variables of the daemon's environment that no run inherits: the database URL was made with them."""
    password: str = field(repr=False)
    password_ephemeral: bool
    """True when the password was made for this start and stands in no configuration."""
    token: str = field(repr=False)
    """Proves to our own sockets that the caller is one of our processes."""
    run_token_key: str = field(default="", repr=False)
    """With which tokens of runs are made and checked; empty: an older version started this daemon, runs get none."""
    started_at: int
    overridden: list[str] = field(default_factory=list)
    """Keys whose values are not the configuration's: data_dir, listen (command line), password_file (environment)."""

    @property
    def control_socket(self) -> str:
        """Return the path of the socket on which the scheduler takes commands from API workers."""
        return f"{self.runtime_dir}/control.sock"

    @property
    def root_bell(self) -> str:
        """Return the doorbell of the rings that the root writes: runs and the daemon log."""
        return f"{self.runtime_dir}/root.bell"

    @property
    def scheduler_bell(self) -> str:
        """Return the doorbell of the ring that the scheduler writes: events."""
        return f"{self.runtime_dir}/scheduler.bell"

    @property
    def audit_dir(self) -> str:
        """Return the directory for audit entries that API workers cannot store yet."""
        return f"{self.runtime_dir}/audit"

    @property
    def database_problem(self) -> str:
        """Return the file in which the scheduler reports a store that needs repair; usually it does not exist."""
        return f"{self.runtime_dir}/database.problem"

    @property
    def database(self) -> str:
        """Return the path of the SQLite database, or the URL of another one: the argument of `store.database`."""
        return self.database_url or f"{self.data_dir}/ringward.db"

    def to_dict(self, protocol: int = PROTOCOL) -> dict[str, Any]:
        """Return the settings for a frame, without defaults and without fields that a root of `protocol` lacks."""
        found = without_defaults(self)
        if self.identity is not None:
            found["identity"] = asdict(self.identity)
        return {name: value for name, value in found.items() if _SINCE.get(name, 1) <= protocol}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Boot":
        """Parse a frame."""
        account, identity = data.get("api_account"), data.get("identity")
        lists = {"listen": [(host, port) for host, port in data["listen"]], "api_account": account and tuple(account)}
        return cls(**{**data, **lists, "identity": identity and IdentityHeaders(**identity)})


def hello(boot: Boot, epoch: int, *, worked: bool = False) -> bytes:
    """Return the first frame to a helper of that epoch; `worked`: one of its kind has reported that it is ready."""
    frame = {"op": "hello", "protocol": PROTOCOL, "version": VERSION, "epoch": epoch, "worked": worked}
    return encode({**frame, "boot": boot.to_dict()})


@dataclass(frozen=True, kw_only=True)
class Spawn:
    """One instance to start. The scheduler decides all of it; the root adds nothing but the markers."""

    run: str
    task: str
    argv: list[str]
    env: dict[str, str]
    """Added to the daemon's own environment, from which our own variables were removed."""
    secrets: list[str] = field(default_factory=list)
    """Names of the variables in `env` with masked values."""
    recipe: str = ""
    """Hash of the definition, for a later scheduler, which may have another definition."""
    origin: dict[str, Any] = field(default_factory=dict)
    """Row of the run before its start, for a later scheduler whose database has lost it."""
    cwd: str | None = None
    log: str
    """Path of the log file."""
    log_max_bytes: int
    log_on_full: str = "drop_old"
    """drop_old, drop_new or kill."""
    timeout_ms: int | None = None
    refusal: str | None = None
    """Why it cannot be started, found out by the scheduler: its user is unknown."""
    clean_env: bool = False
    """`env` is the whole environment."""
    uid: int | None = None
    """User that runs it, with its group `gid` and its further `groups`; None: the daemon's."""
    gid: int | None = None
    groups: list[int] = field(default_factory=list)
    umask: int | None = None
    limits: dict[str, float] = field(default_factory=dict)
    """Sizes in bytes, times in seconds; -1: unlimited."""
    stop_signal: int
    """0: none yet."""
    grace_ms: int
    stop_target: str = "tree"
    """Who gets the signals before SIGKILL: tree (all processes) or main (the main process)."""
    stop_then: list[list[int]] = field(default_factory=list)
    """What follows when `stop_signal` has not ended it within `grace_ms`, before SIGKILL: signals and how long each has
    to end it."""
    leave: bool = False
    """What outlives the main process is left alone."""
    notify: str | None = None
    """Abstract address, with a leading @, on which the root receives sd_notify messages of the run."""
    tty: bool = False
    """Standard output and standard error are one pseudo-terminal, not pipes."""
    stdin_open: bool = False
    """Standard input is a pipe that stays open and empty; else it is `stdin_file`, or empty."""
    stdin_file: str | None = None
    merge_stderr: bool = False
    redraw: bool = False
    """Keep the final state of redrawn lines; otherwise every byte."""
    launched: bool = False
    """The client of another engine, which ends the job; the scheduler is informed when the ladder begins."""
    own_failures: dict[str, str] = field(default_factory=dict)
    """Exit statuses that mean a failure of the client itself, each with the text for the end of the log."""


def spawn_message(spawn: Spawn, protocol: int) -> Frame:
    """Return the fields of a request to start an instance, for a root that speaks `protocol`; defaults are left out.

    A request that needs more than such a root knows becomes a refusal, whose reason the log of the run shows.
    """
    found = without_defaults(spawn)
    unknown = sorted(name for name in found if _SINCE.get(name, 1) > protocol)
    if unknown:
        found = {name: value for name, value in found.items() if name not in unknown}
        found["refusal"] = f"the running supervisor is too old for {', '.join(unknown)}: run ringward upgrade"
    return found


def without_defaults(one: Boot | Spawn) -> dict[str, Any]:
    """Return the fields of a message that differ from their defaults."""
    defaults = _defaults(type(one))  # type: ignore[arg-type]  # a class is hashable
    values = ((field.name, getattr(one, field.name)) for field in fields(type(one)))
    return {name: value for name, value in values if value != defaults.get(name, MISSING)}


@cache
def _defaults(kind: Any) -> dict[str, Any]:
    known = fields(kind)
    found = {one.name: one.default for one in known if one.default is not MISSING}
    return found | {one.name: one.default_factory() for one in known if one.default_factory is not MISSING}


@dataclass(frozen=True, kw_only=True)
class Exited:
    """How an instance ended; kept by the root until the scheduler has acknowledged it."""

    run: str
    status: int | None
    """Wait status as wait4(2) gives it; None when nothing was ever started, or it is `unknown`."""
    unknown: bool = False
    """The root that started it was killed, and the next one could not find out how it ended."""
    cause: str | None = None
    """Why we ended it: stop, timeout, overflow, shutdown, unfit (not ready in time, not alive); start_failed; None: it
    ended by itself."""
    by: str | None = None
    """Who asked for the stop."""
    reason: str | None = None
    """What prevented the start, in words."""
    started_at: int | None = None
    ended_at: int
    user_us: int = 0
    system_us: int = 0
    max_rss_bytes: int = 0
    read_bytes: int | None = None
    """From disks; None: not counted."""
    write_bytes: int | None = None
    oom_kills: int = 0
    """How many of its processes the kernel killed because the memory of its cgroup was used up."""
    lines: int = 0
    """Lines in its log, numbered 0 to lines - 1."""
    leftovers: list[str] = field(default_factory=list)
    """Processes that outlived the main process and were killed."""
    origin: dict[str, Any] = field(default_factory=dict)
    """See :class:`Spawn`; empty when nothing was ever started."""
