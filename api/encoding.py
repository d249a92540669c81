"""Compressing answers (RFC 9110, 8.4) where that pays: text of some size, whole in memory. Never streams."""

import re
import zlib

import falcon
import gevent

_WORTH_BYTES = 2048
_OFF_LOOP_BYTES = 65536
_THOROUGH, _FAST = 6, 1
_GZIP = 31
"""zlib's window of 15 bits, and 16 for gzip's head and tail."""
_COMPRESSED = re.compile(r"text/|application/(?:[\w.-]+\+)?json")
_ACCEPTED = re.compile(r"(?:^|,)\s*(?:gzip|x-gzip|\*)\s*(?:;\s*q\s*=\s*([0-9.]+)\s*)?(?=,|$)", re.IGNORECASE)
_REFUSED = re.compile(r"(?:^|,)\s*gzip\s*;\s*q\s*=\s*0(?:\.0*)?\s*(?=,|$)", re.IGNORECASE)


def takes_gzip(accept: str) -> bool:
    """What an Accept-Encoding header says of gzip."""
    return not _REFUSED.search(accept) and any(not weight or weight.strip("0.") for weight in _ACCEPTED.findall(accept))


def compress(req: falcon.Request, resp: falcon.Response) -> None:
    """Compress the body of `resp` if it is worth it and the client takes it."""
    data = resp.data
    if resp.stream is not None or data is None or len(data) < _WORTH_BYTES:
        return
    if not _COMPRESSED.match(resp.content_type or "") or resp.get_header("Content-Encoding"):
        return
    resp.append_header("Vary", "Accept-Encoding")
    if not takes_gzip(req.get_header("Accept-Encoding") or ""):
        return
    if len(data) < _OFF_LOOP_BYTES:
        resp.data = _gzip(data, _THOROUGH)
    else:
        resp.data = gevent.get_hub().threadpool.apply(_gzip, (data, _FAST))
    resp.set_header("Content-Encoding", "gzip")
    tag = resp.get_header("ETag")
    if tag is not None and tag.startswith('"'):
        # Other bytes than those that the strong tag stands for.
        resp.set_header("ETag", f"W/{tag}")


def _gzip(data: bytes, level: int) -> bytes:
    packer = zlib.compressobj(level, wbits=_GZIP)
    return packer.compress(data) + packer.flush()
