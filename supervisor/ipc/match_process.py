"""The client of a matching process, for hosts without google-re2.

The matching process starts with the first request. If a match exceeds its limit of processor time, the kernel kills the
process, and the next request starts another one. Processor time is the measure because a busy host must not let good
patterns fail.
"""

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Self

from logring.regex import MatchFailed
from supervisor.ipc.child_process import RINGWARD, environment
from supervisor.ipc.match_request import ANSWER_BYTES, MatchRequest, decode_answer, encode_request

LIMIT_S = 1.0
"""Limit of the processor time for one match."""
_PATIENCE_S = 30
"""How long an answer may take on a busy host."""
_END_S = 5
"""How long a process may take to end after its socket has closed; a match ends at its limit."""
_TIMEVAL = struct.Struct("@ll")
TOO_LONG = f"matching took more than {LIMIT_S:g} s of processor time; use a simpler pattern, or install google-re2"


class MatchProcess:
    """A matching process, started when it is needed; only one thread at a time may use it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._changing = threading.Lock()
        """Held while the process starts or ends: it exists then, but `pid` is None."""
        self._fd = -1
        self._text: bytes | None = None
        """The text that the process has."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        """The id of the process, if it was started."""
        return None if self._process is None else self._process.pid

    @contextlib.contextmanager
    def unchanged(self) -> Iterator[bool]:
        """Keep the process from starting and ending, for a thread that looks at all children of this process.

        Yields:
            False if the process is starting or ending at this moment.
        """
        is_free = self._changing.acquire(blocking=False)
        try:
            yield is_free
        finally:
            if is_free:
                self._changing.release()

    def find(self, expression: str, text: bytes, pos: int, start: int, end: int) -> tuple[int, int] | None:
        """Return start and end of the first match from `pos` on, within `text[start:end]`; None if there is none.

        Raises:
            MatchFailed: it took too long, or is impossible.
        """
        return self._ask(MatchRequest(expression, text, pos, start, end, limit_s=LIMIT_S))

    def matches(self, expression: str, text: str) -> bool:
        """Return whether the expression matches the whole text.

        Raises:
            MatchFailed: it took too long, or is impossible.
        """
        return self._ask(MatchRequest(expression, text.encode(), whole=True, limit_s=LIMIT_S)) is not None

    def close(self) -> None:
        """End the process."""
        self._end()

    def _ask(self, request: MatchRequest) -> tuple[int, int] | None:
        answer = self._attempt(request)
        if answer is None:  # another process killed it, such as the kernel for want of memory
            answer = self._attempt(request)
        if answer is None:
            raise MatchFailed("the matching process was killed")
        return decode_answer(answer)

    def _attempt(self, request: MatchRequest) -> bytes | None:
        """Return the answer; None if the process died for another reason than its time limit.

        Raises:
            MatchFailed: the time limit is exceeded, or the process cannot be started.
        """
        if self._process is None:
            self._start()
        try:
            self._send(encode_request(request, with_text=request.text is not self._text))
            self._text = request.text
            answer = self._receive()
        except BlockingIOError as err:  # SO_RCVTIMEO, SO_SNDTIMEO
            self._end()
            raise MatchFailed(f"matching took more than {_PATIENCE_S} s") from err
        except (BrokenPipeError, ConnectionResetError):
            answer = b""
        if len(answer) == ANSWER_BYTES:
            return answer
        if self._end() == -signal.SIGPROF:
            raise MatchFailed(TOO_LONG)
        return None

    def _start(self) -> None:
        try:
            ours, theirs = socket.socketpair()
            with self._changing, ours, theirs:
                for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                    ours.setsockopt(socket.SOL_SOCKET, option, _TIMEVAL.pack(_PATIENCE_S, 0))
                self._process = subprocess.Popen(
                    [sys.executable, *RINGWARD, "matcher", "--fd", str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    env=environment(os.environ),
                    pass_fds=[theirs.fileno()],
                    start_new_session=True,
                )
                # The functions of os work in all threads, also where gevent has replaced the functions of socket.
                self._fd = ours.detach()
        except OSError as err:  # EMFILE, EAGAIN, ENOMEM
            raise MatchFailed(f"cannot start the matching process: {err.strerror}") from err
        os.set_blocking(self._fd, True)
        self._text = None

    def _send(self, data: bytes) -> None:
        unsent = memoryview(data)
        while unsent:
            unsent = unsent[os.write(self._fd, unsent) :]

    def _receive(self) -> bytes:
        data = b""
        while len(data) < ANSWER_BYTES and (part := os.read(self._fd, ANSWER_BYTES - len(data))):
            data += part
        return data

    def _end(self) -> int | None:
        """End and reap the process; return its exit status, or None without one."""
        with self._changing:
            process, self._process = self._process, None
            if process is None:
                return None
            os.close(self._fd)
            status = process.poll()
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(_END_S) if status is None else status
            process.kill()
            return process.wait()
