"""Serve the sockets that the daemon passes (sd_listen_fds(3)): answer each connection with our pid and its name.

With a port as argument, listen there instead. SIGTERM takes effect between connections. The first line of output has
our pid, the names, and our open descriptors.
"""

import os
import selectors
import signal
import socket
import sys

if sys.argv[1:]:
    listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
    os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDNAMES": "own", "LISTEN_FDS": "1"}
    assert listener.detach() == 3
assert os.environ["LISTEN_PID"] == str(os.getpid())
names = os.environ["LISTEN_FDNAMES"].split(":")
assert os.environ["LISTEN_FDS"] == str(len(names))
fds = sorted(fd for fd in map(int, os.listdir("/proc/self/fd")) if os.path.exists(f"/proc/self/fd/{fd}"))
stopped, wakeup = os.pipe2(os.O_NONBLOCK)
signal.set_wakeup_fd(wakeup)
signal.signal(signal.SIGTERM, lambda _number, _frame: None)
selector = selectors.DefaultSelector()
selector.register(stopped, selectors.EVENT_READ)
for number, name in enumerate(names):
    listener = socket.socket(fileno=3 + number)
    listener.setblocking(False)
    selector.register(listener, selectors.EVENT_READ, name)
print(os.getpid(), *names, *fds, flush=True)
while True:
    ready = [key for key, _ in selector.select()]
    if any(key.fileobj == stopped for key in ready):
        break
    for key in ready:
        try:
            connection, _ = key.fileobj.accept()  # type: ignore[union-attr]
        except BlockingIOError:  # another instance was faster
            continue
        with connection:
            connection.sendall(f"{os.getpid()} {key.data}".encode())
