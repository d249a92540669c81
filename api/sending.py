"""What goes to a client, in pieces, each with the socket's whole patience.

A time limit of a socket is one for all that one ``sendall`` is given. Gunicorn gives it a whole body; so a client whose
line needs longer than the limit for a large page would be cut off although it takes what comes without a pause.
"""

from typing import Any

PIECE_BYTES = 65536


def write(sock: Any, data: bytes, chunked: bool = False) -> None:
    """Stands in for ``gunicorn.util.write``."""
    framed = b"%X\r\n%b\r\n" % (len(data), data) if chunked else data
    if len(framed) <= PIECE_BYTES:
        # Nearly always the kernel takes all of it at once, and then ``sendall`` costs twice as much.
        sent = sock.send(framed)
        if sent < len(framed):
            sock.sendall(memoryview(framed)[sent:])
        return
    view = memoryview(framed)
    for begin in range(0, len(view), PIECE_BYTES):
        sock.sendall(view[begin : begin + PIECE_BYTES])
