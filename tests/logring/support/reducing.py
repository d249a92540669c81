"""Helpers for tests of the redraw reducer: output in chunks, and the parts of settled output."""

from collections.abc import Iterable, Iterator

from logring.redraw.reducer import Redraw, RedrawnLine


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


def reduced(parts: Iterable[bytes], *, full: bool) -> list[bytes | RedrawnLine]:
    reducer = Redraw(full=full)
    settled = [item for part in parts for item in reducer.feed(part)]
    settled += reducer.finish()
    assert not reducer.region()
    return settled


def text_of(settled: list[bytes | RedrawnLine]) -> bytes:
    """Return the resulting log."""
    return b"".join(item.text + b"\n" if isinstance(item, RedrawnLine) else item for item in settled)


def drawn_of(settled: list[bytes | RedrawnLine]) -> list[RedrawnLine]:
    return [item for item in settled if isinstance(item, RedrawnLine)]
