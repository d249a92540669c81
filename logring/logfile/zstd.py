"""Zstandard compression: from the standard library since Python 3.14, otherwise from its backport.

The library is loaded at first use, to keep idle processes small.
"""

import functools
import importlib
import sys
from typing import Any

_LEAST_WINDOW_LOG = 10


@functools.cache
def _library() -> Any:
    if sys.version_info >= (3, 14):
        return importlib.import_module("compression.zstd")
    return importlib.import_module("backports.zstd")


def pack(data: bytes, level: int) -> bytes:
    """Return `data` as one frame, without a checksum: the caller keeps its own."""
    zstd = _library()
    parameters = zstd.CompressionParameter
    packer = zstd.ZstdCompressor(options={parameters.compression_level: level, parameters.checksum_flag: 0})
    packed: bytes = packer.compress(data, packer.FLUSH_FRAME)
    return packed


def unpack(data: bytes, length: int) -> bytes | None:
    """Return the `length` bytes (at least 1) that were packed; None if `data` is not a frame of that size.

    `length` and the decoder's own needs bound the memory use, whatever sizes the frame declares.
    """
    zstd = _library()
    window_log = max(_LEAST_WINDOW_LOG, (length - 1).bit_length())
    try:
        decoder = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: window_log})
        unpacked: bytes = decoder.decompress(data, length)
    except zstd.ZstdError:
        return None
    return unpacked if len(unpacked) == length else None
