"""``python -m ringward watcher --fd N``: the scheduler starts it and sends requests over the descriptor.

The watcher exits when the descriptor closes, because the scheduler is gone then. It first kills its child processes.
"""

import asyncio
import signal
import socket
import sys

from supervisor.helpers.process_setup import set_up_helper
from supervisor.helpers.watcher.output_lines import RingWatcher
from supervisor.helpers.watcher.watch import ProbeRunner
from supervisor.host.osport import become_subreaper
from supervisor.ipc.helper_messages import decoder, encode
from supervisor.ipc.probe_request import StartProbe, StopProbe, WatcherSetup


async def _serve(sock: socket.socket) -> None:
    reader, writer = await asyncio.open_connection(sock=sock)
    requests = decoder(WatcherSetup, StartProbe, StopProbe)
    runner: ProbeRunner | None = None
    try:
        while data := await reader.read(65536):
            for message in requests.feed(data):
                if isinstance(message, WatcherSetup):
                    runner = ProbeRunner(
                        lambda answer: writer.write(encode(answer)),
                        RingWatcher(message.bell, message.token),
                        alone=True,
                    )
                elif runner is not None and isinstance(message, StartProbe):
                    runner.start(message.order)
                elif runner is not None:
                    runner.forget(message.key)
    except ConnectionError:  # the scheduler was killed; EPIPE: writing an answer has failed
        pass
    finally:
        if runner is not None:
            await runner.close()


def main() -> int:
    """Carry out requests until the scheduler closes the connection; return the exit status."""
    set_up_helper("watcher")
    become_subreaper()
    # Commands would inherit SIG_IGN, but they do not inherit a handler.
    signal.signal(signal.SIGINT, lambda *_: None)
    asyncio.run(_serve(socket.socket(fileno=int(sys.argv[2]))))
    return 0
