"""Helpers for tests of the redraw reducer: output in chunks, and the parts of settled output."""

from collections.abc import Iterable, Iterator

from logring.redraw.reducer import Drawn, Redraw


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


def reduced(parts: Iterable[bytes], *, full: bool) -> list[bytes | Drawn]:
    reducer = Redraw(full=full)
    settled = [item for part in parts for item in reducer.feed(part)]
    settled += reducer.finish()
    assert not reducer.region()
    return settled


def text_of(settled: list[bytes | Drawn]) -> bytes:
    """Return the resulting log."""
    return b"".join(item.text + b"\n" if isinstance(item, Drawn) else item for item in settled)


def drawn_of(settled: list[bytes | Drawn]) -> list[Drawn]:
    return [item for item in settled if isinstance(item, Drawn)]
