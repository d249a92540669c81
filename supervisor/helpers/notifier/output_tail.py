"""The last lines of a run, for people who are told of its end."""

from logring.errors import LogError
from logring.layout import SYSTEM
from logring.reader import LogReader

_LINES = 20
_MAX_CHARS = 300
"""Of one line."""
_MAX_BYTES = 1 << 20


def last_lines(ring: str | None, file: str | None) -> str:
    """The end of a log as text; what the daemon itself said in it stands in brackets. Empty when it cannot be read."""
    if file is None:
        return ""
    lines: list[str] = []
    reader = LogReader(ring, file)
    try:
        head = reader.head()
        position = max(head.first_available, head.lines - _LINES)
        while position < head.lines:
            page = reader.read(position, _LINES, _MAX_BYTES)
            lines += [_shown(line.text, system=line.stream == SYSTEM) for line in page.lines]
            position = max(page.next, position + 1)
    except (LogError, OSError):
        return ""
    finally:
        reader.close()
    return "\n".join(lines[-_LINES:])


def _shown(text: bytes, *, system: bool) -> str:
    """Without control characters, and cut when it is long."""
    whole = text.decode(errors="replace").rstrip("\r\n").expandtabs(4)
    plain = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in whole)
    short = plain if len(plain) <= _MAX_CHARS else f"{plain[: _MAX_CHARS - 1]}…"
    return f"[{short}]" if system else short
