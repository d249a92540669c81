"""The scheduler's connection to the root: a socketpair that the root created."""

import functools
import select
import socket
from collections.abc import Callable

from supervisor.ipc.child_process import rights
from supervisor.ipc.messages import PROTOCOL, SPOKEN, DaemonSettings, Message, ProtocolError, receive_all
from supervisor.ipc.msgspec_messages import decoder, encode
from supervisor.scheduler.loop.loop import Loop
from supervisor.version import VERSION

_READ_BYTES = 262144


class RootGone(Exception):
    """The root closed the connection; its scheduler must exit."""


class RootConnection:
    """Exchanges messages with the root; never blocks once the loop runs."""

    def __init__(self, fd: int) -> None:
        self._sock = socket.socket(fileno=fd)
        self.epoch = 0
        """Number of schedulers that this root has started, including this one."""
        self.protocol = PROTOCOL
        """Protocol version of the root."""
        self.worked = False
        """Whether an earlier scheduler of this daemon became ready."""
        self.refusal: str | None = None
        """Why a root of another version could not be upgraded; None if it has our version."""
        self._decoder = decoder()
        self._early: list[Message] = []
        self._unsent = bytearray()
        self._unsent_sockets: list[tuple[int, socket.socket]] = []
        """Sockets to send, each with the place of its message in the unsent data."""
        self._watching_room = False
        self._loop: Loop | None = None

    def hello(self) -> DaemonSettings:
        """Wait for the first message; ask a root of another version to upgrade.

        A root that upgrades replaces its program and closes the socket. A root that cannot answers with the reason, and
        is used as it is if we know its protocol.

        Raises:
            RootGone: the socket closed, perhaps because the root upgrades.
            ProtocolError: the root was not upgraded and speaks an unknown protocol.
        """
        message = self.wait("hello")
        if (message["protocol"], message["version"]) != (PROTOCOL, VERSION):
            self.ask({"op": "upgrade"})
            self.refusal = str(self.wait("upgrade_refused")["why"])
        if message["protocol"] not in SPOKEN:
            spoken = f"the supervisor, {message['version']}, speaks protocol {message['protocol']}"
            raise ProtocolError(f"{spoken}, this scheduler, {VERSION}, {PROTOCOL}; no upgrade: {self.refusal}")
        self.protocol = message["protocol"]
        self.epoch = message["epoch"]
        self.worked = message.get("worked", self.epoch > 1)  # absent in protocol 1
        return DaemonSettings.from_dict(message["boot"])

    def wait(self, op: str) -> Message:
        """Block until a message of kind `op` arrives; keep other messages for the loop. Only before :meth:`attach`.

        Raises:
            RootGone: the socket closed.
        """
        answer: Message | None = None
        while answer is None:
            messages = receive_all(self._sock, self._decoder)
            if not messages:
                raise RootGone
            for message in messages:
                if answer is None and message["op"] == op:
                    answer = message
                else:
                    self._early.append(message)
        return answer

    def wait_for_any(self, timeout_s: float) -> None:
        """Block for `timeout_s` or until a message arrives; keep it for the loop. Only before :meth:`attach`.

        Raises:
            RootGone: the socket closed.
        """
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        if poll.poll(timeout_s * 1000):
            messages = receive_all(self._sock, self._decoder)
            if not messages:
                raise RootGone
            self._early += messages

    @property
    def must_shut_down(self) -> bool:
        """Return whether a request to shut down waits for the loop."""
        return any(message["op"] == "shutdown" for message in self._early)

    def ask(self, message: Message) -> None:
        """Send a message and block until it is sent. Only before :meth:`attach`."""
        self._sock.sendall(encode(message))

    def attach(self, loop: Loop, on_message: Callable[[Message], None]) -> None:
        """Pass messages to `on_message` from the loop, and end the loop when the root exits."""
        self._loop = loop
        self._sock.setblocking(False)
        loop.watch(self._sock.fileno(), functools.partial(self._ready, loop, on_message))
        for message in self._early:
            on_message(message)
        self._early.clear()

    def send(self, message: Message, passed: socket.socket | None = None) -> None:
        """Send a message without blocking, together with the others of this round.

        A socket is passed to the root with the first byte of its message, and closed here.
        """
        if passed is not None:
            self._unsent_sockets.append((len(self._unsent), passed))
        self._unsent += encode(message)
        if self._loop is None:
            self._flush()
        else:
            self._loop.at_round_end(self._flush, first=True)

    def _flush(self) -> None:
        try:
            while self._unsent:
                self._send_part()
        except BlockingIOError:  # EAGAIN: the root is busy
            pass
        except (BrokenPipeError, ConnectionResetError):  # the next recv(2) reports the end
            self._unsent.clear()
        if self._loop is not None and bool(self._unsent) != self._watching_room:
            self._watching_room = bool(self._unsent)
            mask = select.EPOLLIN | (select.EPOLLOUT if self._watching_room else 0)
            self._loop.change(self._sock.fileno(), mask)

    def _send_part(self) -> None:
        """Send up to the next message with a socket, which begins a part of its own."""
        starts = [at for at, _passed in self._unsent_sockets]
        passed = [self._unsent_sockets.pop(0)[1]] if starts[:1] == [0] else []
        end = next((at for at in starts if at), len(self._unsent))
        try:
            sent = self._sock.sendmsg([self._unsent[:end]], rights([each.fileno() for each in passed]))
        except BlockingIOError:
            self._unsent_sockets[:0] = [(0, each) for each in passed]
            raise
        for each in passed:
            each.close()
        del self._unsent[:sent]
        self._unsent_sockets = [(at - sent, each) for at, each in self._unsent_sockets]

    def _ready(self, loop: Loop, on_message: Callable[[Message], None], mask: int) -> None:
        if mask & select.EPOLLOUT:
            self._flush()
        if not mask & (select.EPOLLIN | select.EPOLLHUP):
            return
        try:
            data = self._sock.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except ConnectionResetError:
            data = b""
        if not data:
            loop.end()
            return
        for message in self._decoder.feed(data):
            on_message(message)


class Acknowledgements:
    """Tells the root which ends of runs are stored; it then forgets the runs."""

    def __init__(self, loop: Loop, root: RootConnection) -> None:
        self._loop = loop
        self._root = root
        self._stored: list[str] = []
        """Runs whose ends were stored in this round of the loop."""
        self._held_back: list[str] | None = None
        """Ended runs whose acknowledgement is withheld; None: none is withheld."""

    def add(self, run_id: str) -> None:
        """Acknowledge an end at the end of this round."""
        self._stored.append(run_id)
        self._loop.at_round_end(self.send, first=True)

    def send(self) -> None:
        """Acknowledge the ends stored in this round."""
        ends, self._stored = self._stored, []
        if self._held_back is not None:
            self._held_back += ends
        elif ends:
            self._root.send({"op": "ack", "runs": ends})

    def hold(self, hold: bool) -> None:
        """Withhold acknowledgements, or send the withheld ones.

        While the database may be damaged, the root must keep the ends: a restored copy may lack them.
        """
        run_ids, self._held_back = self._held_back, [] if hold else None
        if run_ids:
            self._root.send({"op": "ack", "runs": run_ids})
