"""Zstandard: in the standard library from Python 3.14 on, before that its backport.

Loaded by the first who uses it: an idle process is smaller without.
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
    """Return one frame with `data`; the caller keeps the checksum."""
    zstd = _library()
    parameters = zstd.CompressionParameter
    packer = zstd.ZstdCompressor(options={parameters.compression_level: level, parameters.checksum_flag: 0})
    packed: bytes = packer.compress(data, packer.FLUSH_FRAME)
    return packed


def unpack(data: bytes, length: int) -> bytes | None:
    """Return the `length` bytes that were packed, which are not 0; None when `data` is no such frame.

    Memory use is bounded by this size and the decoder's own needs, regardless of the sizes a frame declares.
    """
    zstd = _library()
    window_log = max(_LEAST_WINDOW_LOG, (length - 1).bit_length())
    try:
        decoder = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: window_log})
        found: bytes = decoder.decompress(data, length)
    except zstd.ZstdError:
        return None
    return found if len(found) == length else None
