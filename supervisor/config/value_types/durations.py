"""Durations and sizes in the form that people write: ``"1h30m"``, ``"300ms"``, ``"64kb"``."""

import re
from decimal import Decimal
from itertools import pairwise

_MS = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
_BYTES = {"b": 1, "kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30, "tb": 1 << 40}

_NUMBER = r"[0-9]{1,15}(?:\.[0-9]{1,6})?"
DURATION = re.compile(rf"(?:{_NUMBER}(?:ms|s|m|h|d|w))+", re.ASCII)
_DURATION_PART = re.compile(rf"({_NUMBER})(ms|s|m|h|d|w)", re.ASCII)
SIZE = re.compile(rf"({_NUMBER}) ?(b|kb|mb|gb|tb)", re.ASCII | re.IGNORECASE)


def parse_duration(text: str) -> int:
    """Return a duration in milliseconds.

    It consists of numbers with the units w, d, h, m, s and ms, each at most once and the longest first, or is ``0``.

    Raises:
        ValueError: the text is not a duration, or not a whole number of milliseconds.
    """
    if text == "0":
        return 0
    if not DURATION.fullmatch(text):
        raise ValueError(f"not a duration: {text!r}")
    total, shortest = Decimal(0), None
    for number, unit in _DURATION_PART.findall(text):
        if shortest is not None and _MS[unit] >= shortest:
            raise ValueError(f"units out of order in {text!r}")
        shortest = _MS[unit]
        total += Decimal(number) * shortest
    if total != int(total):
        raise ValueError(f"finer than a millisecond: {text!r}")
    return int(total)


def parse_size(text: str) -> int:
    """Return a size in bytes: a number with the unit b, kb, mb, gb or tb (1kb is 1024 bytes), or ``0``.

    Raises:
        ValueError: the text is not a size, or not a whole number of bytes.
    """
    if text == "0":
        return 0
    match = SIZE.fullmatch(text)
    if not match:
        raise ValueError(f"not a size: {text!r}")
    total = Decimal(match[1]) * _BYTES[match[2].lower()]
    if total != int(total):
        raise ValueError(f"finer than a byte: {text!r}")
    return int(total)


def format_duration(ms: int) -> str:
    """Return a duration in the form that :func:`parse_duration` accepts: ``5400000`` is ``1h30m``."""
    if ms <= 0:
        return "0s"
    text = ""
    for unit in ("w", "d", "h", "m", "s", "ms"):
        count, ms = divmod(ms, _MS[unit])
        if count:
            text += f"{count}{unit}"
    return text


def format_roughly(ms: int) -> str:
    """Return a duration rounded to its two largest units, or to seconds: ``243217`` is ``4m3s``."""
    for large, small in pairwise(("w", "d", "h", "m", "s")):
        if ms >= _MS[large]:
            return format_duration(round(ms / _MS[small]) * _MS[small])
    return format_duration(ms if ms < _MS["s"] else round(ms / _MS["s"]) * _MS["s"])


def format_size(size: int) -> str:
    """Return a size in the form that :func:`parse_size` accepts: ``104857600`` is ``100mb``."""
    for unit in ("tb", "gb", "mb", "kb"):
        if size and size % _BYTES[unit] == 0:
            return f"{size // _BYTES[unit]}{unit}"
    return f"{size}b"
