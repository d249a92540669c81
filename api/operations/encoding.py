"""The last steps of a response: a 304 if the client already has it, otherwise compression (RFC 9110, 8.4 and 13).

Only text that is complete in memory and not too small is compressed. Streams are sent unchanged.
"""

import re
import zlib

import falcon
import gevent

from api.operations.conditional import is_known
from api.server.thread_pool import run_in
from logring.logfile import zstd

_WORTH_BYTES = 2048
_OFF_LOOP_BYTES = 65536
_THOROUGH, _FAST = 6, 1
_GZIP = 31
"""zlib's window of 15 bits, plus 16 for a gzip header and trailer."""
_ZSTD_LEVEL = 3
"""The window of this level is smaller than the 8 MiB that RFC 9659 allows."""
_COMPRESSED = re.compile(r"text/|application/(?:[\w.-]+\+)?json")
_ACCEPTED = re.compile(r"\s*(?:x-)?([\w*-]+)\s*(?:;\s*q\s*=\s*([01](?:\.[0-9]*)?)\s*)?", re.IGNORECASE)
_CODINGS = ("zstd", "gzip")
"""Codings by preference: zstd compresses as well as gzip in a third of the time."""


def choose(accept: str) -> str | None:
    """Return the preferred coding that an Accept-Encoding header allows; None: send the body uncompressed."""
    weights: dict[str, float] = {}
    for part in accept.split(","):
        match = _ACCEPTED.fullmatch(part)
        if match is not None:
            weights[match[1].lower()] = float(match[2] or 1)
    others = weights.get("*", 0.0)
    best = max(_CODINGS, key=lambda coding: weights.get(coding, others))
    weight = weights.get(best, others)
    return best if weight > 0 and weight >= weights.get("identity", 0.0) else None


def finish(req: falcon.Request, resp: falcon.Response) -> None:
    """Turn `resp` into a 304 if the client has the current body; otherwise compress the body if that is worthwhile.

    Streams are left unchanged.
    """
    data = resp.data
    if resp.stream is not None or data is None:
        return
    coding = None
    if len(data) >= _WORTH_BYTES and _COMPRESSED.match(resp.content_type or ""):
        resp.append_header("Vary", "Accept-Encoding")
        coding = choose(req.get_header("Accept-Encoding") or "")
    tag = resp.get_header("ETag")
    if tag is not None:
        if coding is not None:
            # The compressed bytes differ, so the strong tag does not apply.
            resp.set_header("ETag", f"W/{tag}")
        if is_known(req, tag):
            resp.status = 304
            resp.content_type = None
            resp.data = None
            return
    if coding is None:
        return
    resp.set_header("Content-Encoding", coding)
    resp.data = _packed(data, coding)


def _packed(data: bytes, coding: str) -> bytes:
    if len(data) < _OFF_LOOP_BYTES:
        return _zstd(data) if coding == "zstd" else _gzip(data, _THOROUGH)
    threads = gevent.get_hub().threadpool
    packed: bytes = run_in(threads, _zstd, data) if coding == "zstd" else run_in(threads, _gzip, data, _FAST)
    return packed


def _zstd(data: bytes) -> bytes:
    return zstd.pack(data, _ZSTD_LEVEL)


def _gzip(data: bytes, level: int) -> bytes:
    packer = zlib.compressobj(level, wbits=_GZIP)
    return packer.compress(data) + packer.flush()
