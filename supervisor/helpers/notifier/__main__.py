"""``python -m supervisor.helpers.notifier --fd N``: started by the scheduler, with which it speaks over the descriptor.

Ends when that closes: the scheduler is gone then, or has nothing to deliver any more. What it was doing is done again.
"""

import asyncio
import os
import signal
import socket
import sys

from supervisor.helpers.notifier.work import Work
from supervisor.host.osport import set_title
from supervisor.ipc.messages import Decoder, encode

_NICE = 5
_STUCK = 1


async def _serve(sock: socket.socket) -> int:
    reader, writer = await asyncio.open_connection(sock=sock)
    decoder = Decoder()
    stuck = asyncio.Event()
    work = Work(lambda message: writer.write(encode(message)), stuck.set)
    hearing = asyncio.create_task(_hear(reader, decoder, work))
    waiting = asyncio.create_task(stuck.wait())
    await asyncio.wait([hearing, waiting], return_when=asyncio.FIRST_COMPLETED)
    if hearing.done():
        hearing.result()
        return 0
    await writer.drain()
    return _STUCK


async def _hear(reader: asyncio.StreamReader, decoder: Decoder, work: Work) -> None:
    try:
        while data := await reader.read(65536):
            for frame in decoder.feed(data):
                work.take(frame)
    except ConnectionResetError:  # the scheduler was killed
        return


def main() -> int:
    """Deliver until the scheduler goes; returns the exit status."""
    if sys.argv[1:] == ["--check"]:
        return 0
    os.umask(0o077)
    os.chdir("/")  # Apprise asks where it stands, and the daemon's directory may have been removed
    os.nice(_NICE)
    set_title("ringward notifier")
    # Of a whole terminal: the daemon decides what that means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    loop = asyncio.new_event_loop()
    status = loop.run_until_complete(_serve(socket.socket(fileno=int(sys.argv[2]))))
    # Threads that wait for somebody's server would be waited for.
    os._exit(status)


if __name__ == "__main__":
    sys.exit(main())
