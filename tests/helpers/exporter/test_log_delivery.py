"""Decisions of an exporter."""

from logring.block import Batch
from supervisor.helpers.exporter.log_delivery import pause_s
from supervisor.helpers.exporter.log_records import DeliveryFailed, Piece, in_small_pieces, lines_of
from tests.helpers.exporter.pieces import RUN, piece


def test_pause_after_failures() -> None:
    """The pause grows with each failure, and is never shorter than the receiver asks."""
    assert [pause_s(failures, DeliveryFailed("")) for failures in (0, 1, 9)] == [1, 2, 30]
    assert [pause_s(failures, DeliveryFailed("", retry_after_ms=5000)) for failures in (0, 9)] == [5, 30]


def test_small_pieces() -> None:
    """A large batch is delivered in pieces of limited size, which have all its lines with their numbers."""
    text = b"\n".join([b"%d" % number for number in range(5000)] + [b"x" * 16_000] * 10 + [b"", b""])
    batch = piece(text, 7).content
    assert isinstance(batch, Batch)
    parts = list(in_small_pieces(batch))
    assert b"\n".join(part.text for part in parts) == text
    assert max(part.lines for part in parts) <= 2000
    assert max(len(part.text) for part in parts) <= 1 << 16
    assert [number for part in parts for number, _ in lines_of(Piece(RUN, part))] == list(range(7, 5019))
    assert (sum(part.lines for part in parts), parts[-1].next) == (5012, batch.next)
