"""How a body goes to a client, without a server."""

import pytest

from api.sending import PIECE_BYTES, write


class Socket:
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def sendall(self, data: bytes) -> None:
        self.pieces.append(bytes(data))


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 10 * PIECE_BYTES + 7])
@pytest.mark.parametrize("chunked", [False, True])
def test_pieces(size: int, chunked: bool) -> None:
    """Each has a time limit of its own, so none is large; together they are the body, or one chunk of it."""
    sock, data = Socket(), bytes(number % 251 for number in range(size))
    write(sock, data, chunked)
    assert all(len(piece) <= PIECE_BYTES for piece in sock.pieces)
    assert b"".join(sock.pieces) == (b"%X\r\n%b\r\n" % (size, data) if chunked else data)
