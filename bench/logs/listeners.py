"""``python -m bench.logs.listeners MODE PORT AUTHORIZATION COUNT TARGET``: many clients of streams in one process.

It does little work for each event, so that the daemon dominates the figures: all sockets are in one epoll, regular
expressions find the events, and there is no HTTP library. It prints one JSON object a line:

* ``follow``: opens COUNT streams of TARGET, prints ``{"ready": ns}`` when all have begun, and reads them to their end.
  A line that is a number is the time of printing on the monotonic clock (ns). Lines that were printed after all streams
  were ready give the latencies.
* ``herd``: triggers the task TARGET, opens COUNT streams of the run at the answer, on existing connections, and reads
  them to their end. It does so once for each line of standard input.
* ``hold``: like ``follow``, but waits for the end of standard input.

The result is ``{"complete": streams with all lines and done, "lines": most, "p50": s, "p99": s, "max": s, "took": s,
"cpu": s}``; ``cpu`` is the processor time of the clients.
"""

import json
import re
import select
import socket
import sys
import time
from array import array
from dataclasses import dataclass, field

_LINE = re.compile(rb'^id: (\d+)\nevent: line\ndata: .*"text":"(\d*)', re.MULTILINE)
_RUN = re.compile(rb'"id":"(\w{26})"')
_DROPPED = b"event: dropped\n"
_DONE = b"event: done\n"
_END = b"0\r\n\r\n"
_READ_BYTES = 262144
_AT_A_TIME = 50


@dataclass
class Stream:
    """The data that one client has received."""

    sock: socket.socket
    rest: bytes = b""
    lines: int = 0
    whole: bool = True
    """Whether every line arrived once and in order."""
    done: bool = False


@dataclass
class Listeners:
    """All clients."""

    port: int
    authorization: str
    count: int
    streams: dict[int, Stream] = field(default_factory=dict)
    latencies: "array[float]" = field(default_factory=lambda: array("d"))
    ready_ns: int = 0

    def connect(self) -> None:
        """Open the connections without a request."""
        for _ in range(self.count):
            sock = socket.create_connection(("127.0.0.1", self.port))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.streams[sock.fileno()] = Stream(sock)

    def request(self, method: str, target: str) -> bytes:
        """Return the bytes of a request."""
        head = f"{method} {target} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nAuthorization: {self.authorization}\r\n"
        return (head + ("Content-Length: 0\r\n" if method == "POST" else "") + "\r\n").encode()

    def ask(self, target: str) -> None:
        """Request a stream on every connection at once."""
        asked = self.request("GET", target)
        for stream in self.streams.values():
            stream.sock.send(asked)

    def begin(self, target: str) -> None:
        """Request a stream on every connection, some at a time, and wait until each has sent data."""
        asked = self.request("GET", target)
        every = list(self.streams.values())
        for begin in range(0, len(every), _AT_A_TIME):
            for stream in every[begin : begin + _AT_A_TIME]:
                stream.sock.send(asked)
            self._begun(every[begin : begin + _AT_A_TIME])
        self.ready_ns = time.monotonic_ns()

    def _begun(self, streams: list[Stream]) -> None:
        for stream in streams:
            while b"retry: 1000\n" not in stream.rest:
                data = stream.sock.recv(_READ_BYTES)
                if not data:
                    raise SystemExit(f"a stream was refused: {stream.rest[:200]!r}")
                stream.rest += data

    def read(self) -> None:
        """Read all streams to their end."""
        poll = select.epoll()
        for fd in self.streams:
            poll.register(fd, select.EPOLLIN)
        # Data that arrived before the last stream was ready.
        left = sum(not self._take(stream, b"", 0) for stream in self.streams.values())
        while left:
            for fd, _events in poll.poll():
                stream = self.streams[fd]
                data = stream.sock.recv(_READ_BYTES)
                if not data:
                    stream.whole = False
                if not data or self._take(stream, data, time.monotonic_ns()):
                    poll.unregister(fd)
                    left -= 1
        poll.close()

    def _take(self, stream: Stream, data: bytes, now_ns: int) -> bool:
        """Record received data; return whether the stream has ended."""
        text = stream.rest + data
        whole = text.rfind(b"\n\n") + 2
        stream.rest = text[whole:] if whole > 1 else text
        found = _LINE.findall(text, 0, max(whole, 0) if whole > 1 else 0)
        if found:
            if int(found[0][0]) != stream.lines or int(found[-1][0]) != stream.lines + len(found) - 1:
                stream.whole = False
            stream.lines += len(found)
            if self.ready_ns and now_ns:
                self.latencies.extend(
                    (now_ns - at_ns) / 1e9 for _, text_ns in found if (at_ns := int(text_ns or 0)) > self.ready_ns
                )
        if _DROPPED in text:
            stream.whole = False
        stream.done = stream.done or _DONE in text
        return stream.rest.endswith(_END)

    def close(self) -> None:
        """Close all connections."""
        for stream in self.streams.values():
            stream.sock.close()
        self.streams.clear()

    def result(self, took_s: float) -> dict[str, float]:
        """Return the result."""
        most = max(stream.lines for stream in self.streams.values())
        complete = sum(stream.whole and stream.done and stream.lines == most for stream in self.streams.values())
        ordered = sorted(self.latencies) or [0.0]
        middle, high = ordered[len(ordered) // 2], ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
        return {
            "complete": complete,
            "lines": most,
            "p50": middle,
            "p99": high,
            "max": ordered[-1],
            "took": took_s,
            "cpu": time.process_time(),
        }


def say(what: dict[str, float]) -> None:
    """Print one JSON object."""
    print(json.dumps(what), flush=True)


def herd(listeners: Listeners, task: str) -> None:
    """Carry out one round of the mode ``herd``."""
    listeners.connect()
    trigger = socket.create_connection(("127.0.0.1", listeners.port))
    trigger.sendall(listeners.request("POST", f"/api/tasks/{task}/run"))
    answer, found = b"", None
    while found is None:
        data = trigger.recv(_READ_BYTES)
        if not data or b" 201 " not in answer + data:
            raise SystemExit(f"the task was not triggered: {answer + data!r}")
        answer += data
        found = _RUN.search(answer)
    start_s = time.monotonic()
    listeners.ask(f"/api/runs/{found[1].decode()}/log/stream")
    listeners.read()
    say(listeners.result(time.monotonic() - start_s))
    trigger.close()
    listeners.close()


def main() -> None:
    """Parse the command line and run the mode."""
    mode, port, authorization, count, target = sys.argv[1:]
    listeners = Listeners(int(port), authorization, int(count))
    if mode == "herd":
        for _ in sys.stdin:
            herd(listeners, target)
        return
    listeners.connect()
    start_s = time.monotonic()
    listeners.begin(target)
    say({"ready": listeners.ready_ns})
    if mode == "hold":
        sys.stdin.read()
    else:
        listeners.read()
        say(listeners.result(time.monotonic() - start_s))


if __name__ == "__main__":
    main()
