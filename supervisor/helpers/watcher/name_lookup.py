"""Looks up host names in threads, because a name service can use the network and may never answer.

Lookups of the same name share a thread, so a hung lookup costs one thread per name. It delays neither other lookups nor
the exit of the watcher.
"""

import asyncio
import contextlib
import socket
import threading

Address = tuple[socket.AddressFamily, tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]]
_Answer = asyncio.Future[list[Address]]


class NameLookup:
    """Looks up names for one event loop."""

    def __init__(self) -> None:
        self._open: dict[str | None, _Answer] = {}

    async def connect(self, host: str | None, port: int | None) -> socket.socket:
        """Connect to the first address of a host that accepts a connection.

        Raises:
            OSError: the host has no address, or none accepts a connection.
            UnicodeError: the name is invalid (a subclass of ValueError).
        """
        failed: OSError | None = None
        for family, address in await self._addresses(host):
            sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            try:
                await asyncio.get_running_loop().sock_connect(sock, (address[0], port or 0, *address[2:]))
            except OSError as err:
                sock.close()
                failed = failed or err
            except BaseException:
                sock.close()
                raise
            else:
                return sock
        raise failed or OSError("the host has no address")

    async def _addresses(self, host: str | None) -> list[Address]:
        with contextlib.suppress(socket.gaierror):  # the host is a name, not an address
            return _found(host, socket.AI_NUMERICHOST)
        future = self._open.get(host)
        if future is None:
            loop = asyncio.get_running_loop()
            future = self._open[host] = loop.create_future()
            future.add_done_callback(lambda _: self._open.pop(host))
            try:
                threading.Thread(target=_ask, args=(host, loop, future), daemon=True).start()
            except RuntimeError as err:  # the limit of threads is reached
                future.set_exception(OSError(str(err)))
        return await asyncio.shield(future)


def _found(host: str | None, flags: int = 0) -> list[Address]:
    return [(info[0], info[4]) for info in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=flags)]


def _ask(host: str | None, loop: asyncio.AbstractEventLoop, future: _Answer) -> None:
    """Look up a name in a thread of its own, and pass the answer to the event loop."""
    answer: list[Address] | Exception
    try:
        answer = _found(host)
    except Exception as err:  # noqa: BLE001 - any exception is the answer
        answer = err
    with contextlib.suppress(RuntimeError):  # the event loop is closed
        loop.call_soon_threadsafe(_set_result, future, answer)


def _set_result(future: _Answer, answer: list[Address] | Exception) -> None:
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)
