"""Counting and splitting lines, and escaping control characters in the daemon's own text."""

from mmap import mmap

_PIECE = 65536
LONG_LINE = 48  # bytes; from this average length on, removing newlines is faster than counting them


def newlines(text: bytes, long_lines: bool) -> int:
    """Return the number of newlines.

    `bytes.count` looks at each byte (15 us for 64 KiB). `bytes.replace` jumps from one newline to the next. It takes
    4 us for lines of 200 bytes, but 63 us for lines of 8 bytes. So the caller says which case to expect.
    """
    return len(text) - len(text.replace(b"\n", b"")) if long_lines else text.count(b"\n")


def count_lines(data: mmap, start: int, end: int, long_lines: bool) -> int:
    """Return the number of newlines in [start, end).

    The text is copied piece by piece, because one large copy would evict it from the processor's cache.
    """
    if end - start <= _PIECE:
        return newlines(data[start:end], long_lines)
    return sum(newlines(data[at : min(end, at + _PIECE)], long_lines) for at in range(start, end, _PIECE))


def utf8_cut(data: bytes | mmap, start: int, end: int) -> int:
    """Return the largest position in (start, end] that does not split a UTF-8 sequence.

    Byte `end` must exist. For bytes that are not valid UTF-8, the result is `end`.
    """
    return end if data[end] & 0xC0 != 0x80 else whole_characters(data, start + 1, end)


def whole_characters(data: bytes | mmap, start: int, end: int) -> int:
    """Return `end`, or the start of a UTF-8 sequence in [start, end) that is incomplete at `end`."""
    for lead in range(end - 1, max(start, end - 4) - 1, -1):
        byte = data[lead]
        if byte & 0xC0 == 0x80:
            continue
        length = 4 if byte & 0xF8 == 0xF0 else 3 if byte & 0xF0 == 0xE0 else 2 if byte & 0xE0 == 0xC0 else 1
        return lead if lead + length > end else end
    return end


def has_long_line(data: mmap, start: int, cut: int, end: int, longest: int) -> bool:
    """Return whether a line in [start, cut), or the unfinished one in [cut, end), is longer than `longest` bytes.

    `cut` is the position after the last newline; it is 0 or negative if there is none. A window of `longest` + 1 bytes
    from the start of a line contains the line's newline, unless the line is too long. The search continues after the
    last newline of the window.
    """
    while start < cut:
        newline = data.rfind(b"\n", start, min(cut, start + longest + 1))
        if newline < 0:
            return True
        start = newline + 1
    return end - start > longest


_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))} | {10: "\\n", 13: "\\r", 9: "\t"}


def harmless(text: str) -> bytes:
    """Return the text as one line of UTF-8. Control characters and line ends are escaped; tabs are kept."""
    return text.translate(_ESCAPES).encode("utf-8", "backslashreplace")
