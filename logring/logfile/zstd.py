"""Zstandard: in the standard library from Python 3.14 on, before that its backport."""

import sys

if sys.version_info >= (3, 14):
    from compression.zstd import (
        CompressionParameter,
        DecompressionParameter,
        ZstdCompressor,
        ZstdDecompressor,
        ZstdError,
    )
else:
    from backports.zstd import (
        CompressionParameter,
        DecompressionParameter,
        ZstdCompressor,
        ZstdDecompressor,
        ZstdError,
    )

_LEAST_WINDOW_LOG = 10


def pack(data: bytes, level: int) -> bytes:
    """One frame with `data`, whose checksum somebody else keeps."""
    options: dict[int, int] = {CompressionParameter.compression_level: level, CompressionParameter.checksum_flag: 0}
    return ZstdCompressor(options=options).compress(data, ZstdCompressor.FLUSH_FRAME)


def unpack(data: bytes, length: int) -> bytes | None:
    """The `length` bytes that were packed, which are not 0; None when `data` is no such frame.

    Takes no more memory than that and what the decoder needs, whatever a frame says of its content or its window.
    """
    window_log = max(_LEAST_WINDOW_LOG, (length - 1).bit_length())
    try:
        found = ZstdDecompressor(options={DecompressionParameter.window_log_max: window_log}).decompress(data, length)
    except ZstdError:
        return None
    return found if len(found) == length else None
