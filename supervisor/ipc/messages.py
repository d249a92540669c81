"""The messages between the processes of one daemon, and their framing.

Three channels use the same format:

* between the root and the scheduler, over a socketpair that the scheduler inherits;
* from the root to the API server, over another socketpair; the API server ends when it closes;
* between API workers and the scheduler, over ``control.sock``.

A message is the length of its body (4 bytes, big-endian), followed by the body, a JSON object with an ``op``::

    +----------------+---------------------------+
    | length, u32 BE | {"op": "...", ...} UTF-8  |
    +----------------+---------------------------+

The first message on an inherited socketpair is the root's ``hello``. It contains the protocol version, Ringward's
version and the :class:`DaemonSettings` settings. `epoch` is the number of helpers of this kind that the root has
started. `worked` tells whether a helper of this kind has already reported that it is ready. Each new field or operation
increments the protocol version. ``SPOKEN`` lists the root protocols that helpers support. The API server receives the
listening sockets with the first byte.

Root -> scheduler
    ``hello``     {protocol, version, epoch, boot, worked}
    ``snapshot``  {instances: [instance], exits: [exited], cgroups, ending, sockets: [[service, name, identity]]}: the
                  active runs, the unacknowledged exits, the directory with the cgroups of runs, if any, whether the
                  daemon is shutting down, and the listening sockets that the root holds for services
    ``started``   {run, pid, at}
    ``exited``    the fields of :class:`Exited` without defaults, and without `origin`, which the receiver already has
    ``waiting``   {run, why}: the start of a run waits because descriptors or memory are short
    ``starts``    {waiting, why}: how many starts wait, and why; 0 and null when none waits any more
    ``left_running``  {runs: [{run, task, processes}]}: the processes that outlived their runs, which go on
    ``unknown``   {run}: the answer to a ``spawn`` without its request, which the root does not have
    ``stopping``  {run}: the stop ladder of a launcher's run has begun, for any cause
    ``notified``  {run, ...}: changes that a run reported by sd_notify: ``ready_at``, ``stopping_at``, ``triggered``,
                ``status``, ``alive``
    ``log``       {run, state, reason}: the state of the run's log: ``ok``, ``waiting`` (its file cannot be written,
                  so the output waits) or ``dropping`` (output is counted but not kept). For the run ``daemon``:
                  whether rings have no place in the runtime directory
    ``memory``    {short}: whether the root is out of memory, in which case it starts no runs
    ``shutdown``  {}: SIGTERM arrived; stop all runs, then answer ``ready_to_end``
    ``reload``    {}: SIGHUP arrived; read the configuration again, then answer ``reloaded``
    ``upgrade_refused``  {why}: the answer to ``upgrade``; a root that executes another version hangs up instead

Scheduler -> root
    ``snapshot``  {}: a request for the root's ``snapshot``, sent once per connection, before anything else
    ``prepare``   {spawn, digest}: a request that will probably follow once the run is stored
    ``spawn``     {spawn}: the fields of :class:`Spawn`; a run id that the root already knows has no effect
                  {run, digest}: the same, for a request that was announced with ``prepare``
    ``stop``      {run, cause, by, force, note}: `note` is a line for the run's log, or null
    ``note``      {run, text}: a line for the run's log, if the log is still open
    ``hold``      {service, name, identity}: hold the listening socket that comes with the first byte, instead of the
                  one that the service has under this name; `identity` is for the scheduler alone
    ``release``   {service, name}: close this socket
    ``ack``       {runs: [run id]}: these exits are stored, so the root can forget them
    ``ready``     {}: the control socket accepts requests
    ``ready_to_end``  {}: the scheduler has finished its part of the shutdown
    ``reloaded``  {}: a ``reload`` was carried out or refused
    ``upgrade``   {}: execute the installed version; sent by a scheduler of another version, before anything else
    ``settings``  {boot, api}: the new settings, and whether the API server must be replaced to apply them

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

PROTOCOL = 5
BY_DIGEST = 4
"""The first protocol in which ``spawn`` may refer to an announced request by its digest."""
HOLDS_SOCKETS = 5
"""The first protocol in which the root holds listening sockets."""
SPOKEN = range(3, PROTOCOL + 1)
"""The root protocols that this version's helpers support until the root has been upgraded to this version too."""
_SINCE: dict[str, int] = {"sockets": HOLDS_SOCKETS, "status_page": HOLDS_SOCKETS}
"""Fields of :class:`Spawn` and :class:`DaemonSettings` with the protocol that added them; all other fields are in the
first protocol that is spoken.
"""
MAX_FRAME_BYTES = 16 * 1024 * 1024
LOCK = "lock"
"""Name of the file in the data directory and in the runtime directory that the daemon holds locked."""
STARTING = "The daemon is starting; nothing was changed"
"""The detail of a 503 until the daemon has started; clients wait when they get it."""
DESCRIPTOR_PREFIX = "ringward-"
"""Begins the name of a run's descriptors in the service manager's store; the id of the run follows."""
ID = "id"
RUN_TOKEN_KEY = "run_token.key"  # noqa: S105 - the name of a file

_LENGTH = struct.Struct(">I")
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode

Message = dict[str, Any]


class ProtocolError(Exception):
    """The peer sent an invalid message."""


def encode(message: Message) -> bytes:
    """Return one message as bytes."""
    body = _encode(message).encode("utf-8", "surrogateescape")
    return _LENGTH.pack(len(body)) + body


def parse(body: bytes | bytearray) -> Message:
    """Return the object in the body of a message.

    Raises:
        ProtocolError: the body is not a JSON object.
    """
    try:
        message = json.loads(body.decode("utf-8", "surrogateescape"))
    except ValueError as err:
        raise ProtocolError("a message that is not JSON") from err
    except RecursionError as err:
        raise ProtocolError("a message that is nested too deeply") from err
    if not isinstance(message, dict):
        raise ProtocolError("a message that is not an object")
    return message


class Decoder:
    """Splits a byte stream into messages and keeps an incomplete message until the rest arrives."""

    def __init__(self, parse: Callable[[bytearray], Any] = parse) -> None:
        """Decode each body with `parse`."""
        self._parse = parse
        self._buffer = bytearray()

    def feed(self, data: bytes | memoryview) -> Iterator[Any]:
        """Yield the messages that `data` completes.

        Raises:
            ProtocolError: a message exceeds 16 MiB, or a body is not a JSON object.
        """
        buffer = self._buffer
        buffer += data
        start = 0
        try:
            while len(buffer) - start >= _LENGTH.size:
                (size,) = _LENGTH.unpack_from(buffer, start)
                if size > MAX_FRAME_BYTES:
                    raise ProtocolError(f"a message of {size} bytes")
                end = start + _LENGTH.size + size
                if len(buffer) < end:
                    return
                body = buffer[start + _LENGTH.size : end]
                start = end
                yield self._parse(body)
        finally:
            del buffer[:start]


def receive_all(sock: socket.socket, decoder: Decoder) -> list[Message]:
    """Wait for at least one message and return all messages that have arrived; empty at end of stream.

    Raises:
        ProtocolError: the peer sent an invalid message.
        OSError: the connection broke or timed out.
    """
    while True:
        data = sock.recv(65536)
        if not data:
            return []
        messages = list(decoder.feed(data))
        if messages:
            return messages


def receive(sock: socket.socket, decoder: Decoder) -> Message | None:
    """Wait for one message, the answer to a client's request; return None at end of stream.

    Raises:
        ProtocolError: the peer sent an invalid message or more than one.
        OSError: the connection broke or timed out.
    """
    messages = receive_all(sock, decoder)
    if len(messages) > 1:
        raise ProtocolError("more than the expected message")
    return messages[0] if messages else None


@dataclass(frozen=True, kw_only=True)
class IdentityHeaders:
    """The headers of a proxy that authenticates people, and the roles of their groups."""

    user: str
    groups: str
    secret: str
    expected: str = field(repr=False)
    """The value of the header `secret`, which only the proxy and the daemon know."""
    roles: dict[str, str]
    """The role of each group; ``*``: of everybody else."""


@dataclass(frozen=True, kw_only=True)
class StatusPage:
    """What the public status page shows besides the present states."""

    title: str
    text: str = ""
    sections: dict[str, list[str]] = field(default_factory=dict)
    """Headings, each with the names of its tasks and services."""
    embed: list[str] = field(default_factory=list)
    """Origins of the sites that may show the page in a frame; ``*``: any site."""


@dataclass(frozen=True, kw_only=True)
class DaemonSettings:
    """Settings that are determined before the root process starts. A reload can change some of them.

    ``ringward up`` derives them from the configuration and passes them to the root through an inherited descriptor. The
    root passes them to its helpers in ``hello``. They contain secrets, so they are never passed in the environment or
    in arguments.
    """

    daemon_id: str
    """ULID of the data directory."""
    data_dir: str
    runtime_dir: str
    """The daemon's directory on tmpfs for rings and internal sockets. Its mode is 0700, or 1750 if API workers have
    another user."""
    runtime_bases: list[str] = field(default_factory=list)
    """Directories in which a lost runtime directory can be created again, the best first."""
    config_path: str
    listen: list[tuple[str, int]]
    """TCP addresses. Addresses other than loopback require TLS or a trusted proxy."""
    http_socket: str
    """Path of the Unix socket of the HTTP API."""
    socket_gid: int | None = None
    """Group that may connect to the Unix sockets; None: only their owner."""
    proxy_socket: str | None = None
    """Path of the Unix socket on which proxies forward clients' requests; None: there is none."""
    hosts: list[str] = field(default_factory=list)
    """Host names under which clients reach the API, in addition to the addresses."""
    external_url: str | None = None
    """URL under which clients reach the API, with the base path but without a trailing slash."""
    base_path: str = ""
    """Empty, or a path with a leading and without a trailing slash."""
    behind_proxy: list[str] = field(default_factory=list)
    """Networks of trusted proxies."""
    identity: "IdentityHeaders | None" = None
    """Headers in which a trusted proxy sends the authenticated user; None: no proxy authenticates users."""
    tls_cert: str | None = None
    """Path of the certificate chain, which enables TLS on all TCP addresses; None: no TLS."""
    tls_key: str | None = None
    api_user: str | None = None
    """Configured user of the API workers; None: the default user, if it exists."""
    api_account: tuple[int, int] | None = None
    """User id and group id of the API workers; None: they run as the daemon's user."""
    api_groups: list[int] = field(default_factory=list)
    """Ids of all groups of that user."""
    workers: int
    metrics_open: bool = False
    """``/metrics`` needs no authentication."""
    public: list[str] = field(default_factory=list)
    """Names of the tasks and services whose state can be read without authentication."""
    status_page: StatusPage | None = None
    """Title, sections, history and incidents of the status page; None: it only shows the present states."""
    min_free_bytes: int | None = None
    """Log files do not grow while their file system has less free space; None: the smaller of 256 MiB and 5 % of it."""
    shutdown_timeout_ms: int
    cgroups: bool = True
    """Whether runs get cgroups on hosts where the daemon can create them."""
    log_level: str
    """debug, info, warning or error."""
    database_url: str | None = field(default=None, repr=False)
    """URL of a PostgreSQL database; None: SQLite in the data directory."""
    private_variables: list[str] = field(default_factory=list)
    """Variables of the daemon's environment that runs do not inherit, because the database URL refers to them."""
    password: str = field(repr=False)
    password_ephemeral: bool
    """Whether the password was generated for this start, because none is configured."""
    token: str = field(repr=False)
    """Proves to internal sockets that the caller is a process of this daemon."""
    run_token_key: str = field(default="", repr=False)
    """Key for creating and checking run tokens; empty: runs get no tokens."""
    started_at: int
    overridden: list[str] = field(default_factory=list)
    """Keys that the command line (data_dir, listen) or the environment (password_file) overrides."""

    @property
    def identity_files(self) -> dict[str, str]:
        """Return the content of the files in the data directory by which the next daemon knows this one's runs."""
        return {ID: self.daemon_id} | ({RUN_TOKEN_KEY: self.run_token_key} if self.run_token_key else {})

    @property
    def control_socket(self) -> str:
        """Return the path of the socket on which the scheduler accepts requests from API workers."""
        return f"{self.runtime_dir}/control.sock"

    @property
    def root_bell(self) -> str:
        """Return the path of the root's doorbell, for the rings of runs and of the daemon log."""
        return f"{self.runtime_dir}/root.bell"

    @property
    def scheduler_bell(self) -> str:
        """Return the path of the scheduler's doorbell, for the ring of events."""
        return f"{self.runtime_dir}/scheduler.bell"

    @property
    def audit_dir(self) -> str:
        """Return the directory for audit entries that API workers cannot store yet."""
        return f"{self.runtime_dir}/audit"

    @property
    def database_problem(self) -> str:
        """Return the path of the file in which the scheduler reports a damaged database; normally there is none."""
        return f"{self.runtime_dir}/database.problem"

    @property
    def starting(self) -> str:
        """Return the path of the file that exists from ``ringward up`` until the first scheduler is ready."""
        return f"{self.runtime_dir}/starting"

    @property
    def database(self) -> str:
        """Return the argument for `store.database`: the path of the SQLite database or a PostgreSQL URL."""
        return self.database_url or f"{self.data_dir}/ringward.db"

    def to_dict(self, protocol: int = PROTOCOL) -> dict[str, object]:
        """Return the settings for a message, without defaults and without fields that `protocol` lacks."""
        values = without_defaults(self)
        if self.identity is not None:
            values["identity"] = asdict(self.identity)
        if self.status_page is not None:
            values["status_page"] = asdict(self.status_page)
        return {name: value for name, value in values.items() if _SINCE.get(name, 0) <= protocol}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "DaemonSettings":
        """Parse the settings of a message."""
        account, identity, page = (data.get(name) for name in ("api_account", "identity", "status_page"))
        lists = {"listen": [(host, port) for host, port in data["listen"]], "api_account": account and tuple(account)}
        tables = {"identity": identity and IdentityHeaders(**identity), "status_page": page and StatusPage(**page)}
        return cls(**{**data, **lists, **tables})


def hello(settings: DaemonSettings, epoch: int, *, worked: bool = False) -> bytes:
    """Return the first message for a helper; `worked`: a helper of its kind has already reported that it is ready."""
    message = {"op": "hello", "protocol": PROTOCOL, "version": VERSION, "epoch": epoch, "worked": worked}
    return encode({**message, "boot": settings.to_dict()})


@dataclass(frozen=True, kw_only=True)
class Spawn:
    """One run to start. The scheduler decides everything about it; the root only adds the markers."""

    run: str
    task: str
    argv: list[str]
    env: dict[str, str]
    """Variables to add to the daemon's environment, from which the daemon's own variables are removed."""
    secrets: list[str] = field(default_factory=list)
    """Names of the variables in `env` whose values are masked."""
    recipe: str = ""
    """Hash of the definition, by which a later scheduler notices that the definition has changed."""
    origin: dict[str, object] = field(default_factory=dict)
    """The run's row before it started, for a later scheduler whose database has lost the row."""
    cwd: str | None = None
    log: str
    """Path of the log file."""
    log_max_bytes: int
    log_on_full: str = "drop_old"
    """drop_old, drop_new or kill."""
    timeout_ms: int | None = None
    refusal: str | None = None
    """Why the scheduler found that it cannot be started, for example because its user does not exist."""
    clean_env: bool = False
    """`env` is the entire environment; nothing is inherited from the daemon."""
    uid: int | None = None
    """User id that it runs as, with the group `gid` and supplementary `groups`; None: the daemon's user."""
    gid: int | None = None
    groups: list[int] = field(default_factory=list)
    umask: int | None = None
    limits: dict[str, float] = field(default_factory=dict)
    """Sizes in bytes, times in seconds; -1: unlimited."""
    stop_signal: int
    """The first signal of the stop ladder; 0: none, only wait for `grace_ms`."""
    grace_ms: int
    stop_target: str = "tree"
    """Which processes get the signals before SIGKILL: tree (all processes) or main (the main process)."""
    stop_then: list[list[int]] = field(default_factory=list)
    """The steps between `stop_signal` and SIGKILL: pairs of a signal and the milliseconds to wait after it."""
    leave: bool = False
    """Processes that outlive the main process are left running."""
    notify: str | None = None
    """Abstract address, with a leading @, on which the root receives the run's sd_notify messages."""
    tty: bool = False
    """Standard output and standard error are a pseudo-terminal instead of pipes."""
    stdin_open: bool = False
    """Standard input is a pipe that stays open and empty; otherwise it is `stdin_file` or /dev/null."""
    stdin_file: str | None = None
    merge_stderr: bool = False
    redraw: bool = False
    """Keep only the final state of redrawn lines; otherwise every byte."""
    launched: bool = False
    """A launcher's client: another engine runs the job. The root tells the scheduler when the stop ladder begins."""
    own_failures: dict[str, str] = field(default_factory=dict)
    """Exit statuses that mean that the client itself failed, each with a text for the end of the log."""
    sockets: list[str] = field(default_factory=list)
    """Names of the held sockets that it gets as descriptors from 3 on (sd_listen_fds(3))."""


def spawn_message(spawn: Spawn, protocol: int) -> Message:
    """Return the fields of a start request, without defaults, for a root that speaks `protocol`.

    If the request needs a field that such a root does not know, it becomes a refusal. The run's log shows the reason.
    """
    values = without_defaults(spawn)
    unknown = sorted(name for name in values if _SINCE.get(name, 0) > protocol)
    if unknown:
        values = {name: value for name, value in values.items() if name not in unknown}
        values["refusal"] = f"the running supervisor is too old for {', '.join(unknown)}: run ringward upgrade"
    return values


def without_defaults(record: Any) -> dict[str, object]:
    """Return the fields of a message that differ from their defaults."""
    defaults = _defaults(type(record))  # type: ignore[arg-type]  # a class is hashable
    return {name: value for name, default in defaults.items() if (value := getattr(record, name)) != default}


@cache
def _defaults(kind: Any) -> dict[str, Any]:
    """Return the default of each field, or MISSING."""
    return {
        attribute.name: attribute.default if attribute.default_factory is MISSING else attribute.default_factory()
        for attribute in fields(kind)
    }


@dataclass(frozen=True, kw_only=True)
class Exited:
    """How an instance ended. The root keeps it until the scheduler acknowledges it."""

    run: str
    status: int | None
    """Wait status as in wait4(2); None if no process was started or the status is `unknown`."""
    unknown: bool = False
    """The root that started it was killed, and the next root could not determine how it ended."""
    cause: str | None = None
    """Why the daemon ended it: stop, timeout, overflow, shutdown or unfit (not ready in time, or not alive). Or
    start_failed. None: it ended by itself."""
    by: str | None = None
    """Who requested the stop."""
    reason: str | None = None
    """Why it could not be started, as a text."""
    started_at: int | None = None
    ended_at: int
    user_us: int = 0
    system_us: int = 0
    max_rss_bytes: int = 0
    read_bytes: int | None = None
    """Bytes read from disks; None: not counted."""
    write_bytes: int | None = None
    oom_kills: int = 0
    """How many of its processes the kernel killed because they were out of memory."""
    lines: int = 0
    """Number of lines in its log."""
    leftovers: list[str] = field(default_factory=list)
    """Processes that outlived the main process and were killed."""
    origin: dict[str, object] = field(default_factory=dict)
    """The field of :class:`Spawn`; empty if no process was started."""
