"""``python -m ringward filewatcher --fd N``: the scheduler starts it and exchanges messages over the descriptor.

The file watcher exits when the descriptor closes.
"""

import contextlib
import os
import socket
import sys
import threading
from collections.abc import Callable

from supervisor.helpers.filewatcher.refusals import Refusals
from supervisor.helpers.filewatcher.task_watch import TaskWatch
from supervisor.helpers.process_setup import set_up_helper
from supervisor.host.osport import forbid_new_privileges
from supervisor.ipc.file_bursts import BurstStored, WatchFiles
from supervisor.ipc.helper_messages import HelperMessage, decoder, encode

_SUFFIX = ".json"


def _serve(sock: socket.socket) -> None:
    requests, lock = decoder(WatchFiles, BurstStored), threading.Lock()
    watches: dict[str, TaskWatch] = {}

    def send(message: HelperMessage) -> None:
        with lock, contextlib.suppress(OSError):  # the scheduler is gone, so this process is about to exit
            sock.sendall(encode(message))

    try:
        while data := sock.recv(65536):
            for message in requests.feed(data):
                if isinstance(message, WatchFiles):
                    watches = _watch(message, send)
                elif message.task in watches:
                    watches[message.task].stored(message.id)
    except ConnectionResetError:  # the scheduler was killed
        pass
    finally:
        for watch in watches.values():
            watch.close()


def _watch(request: WatchFiles, send: Callable[[HelperMessage], None]) -> dict[str, TaskWatch]:
    directory, tasks = request.directory, request.tasks
    os.makedirs(directory, mode=0o700, exist_ok=True)
    for name in os.listdir(directory):
        if name.removesuffix(_SUFFIX) not in tasks:
            os.unlink(f"{directory}/{name}")
    refusals = Refusals(send)
    watches = {
        name: TaskWatch(name, globs, settle_ms / 1000, f"{directory}/{name}{_SUFFIX}", send, refusals)
        for name, (globs, settle_ms) in tasks.items()
    }
    for watch in watches.values():
        watch.start()
    return watches


def main() -> int:
    """Report bursts until the scheduler closes the connection; return the exit status."""
    set_up_helper("filewatcher")
    forbid_new_privileges()
    _serve(socket.socket(fileno=int(sys.argv[2])))
    # A normal exit would wait for threads that hang in a directory.
    os._exit(0)
