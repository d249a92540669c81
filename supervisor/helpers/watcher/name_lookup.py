"""The addresses of hosts, looked up in threads: a name service may ask a network, and may never answer.

Equal questions are asked together, so what hangs takes one thread for each name, and no other name waits for it. Nor
does the end of this process.
"""

import asyncio
import contextlib
import socket
import threading

Address = tuple[socket.AddressFamily, tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]]
_Answer = asyncio.Future[list[Address]]


class NameLookup:
    """Asks the name service for one loop."""

    def __init__(self) -> None:
        self._open: dict[str | None, _Answer] = {}

    async def connect(self, host: str | None, port: int | None) -> socket.socket:
        """A connection to the first address that takes one.

        Raises:
            OSError: no address does, or there is none; UnicodeError, which is a ValueError: no name can be like that.
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
        raise failed or OSError("it has no address")

    async def _addresses(self, host: str | None) -> list[Address]:
        with contextlib.suppress(socket.gaierror):  # it is a name
            return _found(host, socket.AI_NUMERICHOST)
        found = self._open.get(host)
        if found is None:
            loop = asyncio.get_running_loop()
            found = self._open[host] = loop.create_future()
            found.add_done_callback(lambda _: self._open.pop(host))
            try:
                threading.Thread(target=_ask, args=(host, loop, found), daemon=True).start()
            except RuntimeError as err:  # no more threads may be had
                found.set_exception(OSError(str(err)))
        return await asyncio.shield(found)


def _found(host: str | None, flags: int = 0) -> list[Address]:
    return [(one[0], one[4]) for one in socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM, flags=flags)]


def _ask(host: str | None, loop: asyncio.AbstractEventLoop, found: _Answer) -> None:
    """In a thread."""
    answer: list[Address] | Exception
    try:
        answer = _found(host)
    except Exception as err:  # noqa: BLE001 - whatever it is, it is why
        answer = err
    with contextlib.suppress(RuntimeError):  # nobody waits any more
        loop.call_soon_threadsafe(_tell, found, answer)


def _tell(found: _Answer, answer: list[Address] | Exception) -> None:
    if isinstance(answer, Exception):
        found.set_exception(answer)
    else:
        found.set_result(answer)
