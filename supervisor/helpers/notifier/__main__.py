"""``python -m ringward notifier --fd N``: the scheduler starts it and sends requests over the descriptor.

The notifier exits when the descriptor closes, because the scheduler is gone or has no more requests. The scheduler
repeats unfinished requests.
"""

import asyncio
import os
import socket
import sys

from supervisor.helpers.notifier.request_runner import RequestRunner
from supervisor.helpers.process_setup import set_up_helper
from supervisor.ipc.delivery_request import DeliveryRequest, PingRequest
from supervisor.ipc.helper_messages import decoder, encode

_STUCK = 1


async def _serve(sock: socket.socket) -> int:
    reader, writer = await asyncio.open_connection(sock=sock)
    stuck = asyncio.Event()
    runner = RequestRunner(lambda answer: writer.write(encode(answer)), stuck.set)
    receiving = asyncio.create_task(_receive(reader, runner))
    waiting = asyncio.create_task(stuck.wait())
    await asyncio.wait([receiving, waiting], return_when=asyncio.FIRST_COMPLETED)
    if receiving.done():
        receiving.result()
        return 0
    await writer.drain()
    return _STUCK


async def _receive(reader: asyncio.StreamReader, runner: RequestRunner) -> None:
    requests = decoder(DeliveryRequest, PingRequest)
    try:
        while data := await reader.read(65536):
            for request in requests.feed(data):
                runner.start(request)
    except ConnectionError:  # the scheduler was killed; EPIPE: writing an answer has failed
        return


def main() -> int:
    """Carry out requests until the scheduler closes the connection; return the exit status."""
    os.chdir("/")  # Apprise needs the working directory, and the daemon's may have been removed
    set_up_helper("notifier")
    loop = asyncio.new_event_loop()
    status = loop.run_until_complete(_serve(socket.socket(fileno=int(sys.argv[2]))))
    # A normal exit would wait for threads that are stuck in a request.
    os._exit(status)
