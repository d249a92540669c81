"""Colours and attributes of text: the combined effect of a series of SGR sequences."""

import re
from functools import lru_cache

NO_PEN = b""
"""The pen without attributes. Any other pen is the parameters of the SGR sequence that sets all its attributes."""

SGR = re.compile(rb"\x1b\[([0-9;:]{0,64})m")

_RESETS = (b"\x1b[0m", b"\x1b[m")
_ON = {1: "bold", 2: "dim", 3: "italic", 4: "underline", 5: "blink", 6: "blink", 7: "reverse", 8: "hidden"}
_ON |= {9: "strike", 21: "underline", 53: "overline"}
_ON |= dict.fromkeys((*range(30, 38), *range(90, 98)), "foreground")
_ON |= dict.fromkeys((*range(40, 48), *range(100, 108)), "background")
_OFF = {22: ("bold", "dim"), 23: ("italic",), 24: ("underline",), 25: ("blink",), 27: ("reverse",), 28: ("hidden",)}
_OFF |= {29: ("strike",), 39: ("foreground",), 49: ("background",), 55: ("overline",), 59: ("underline colour",)}
_EXTENDED = {38: "foreground", 48: "background", 58: "underline colour"}
_SEEN_ON_BLANKS = {"underline", "reverse", "strike", "background", "overline"}


def sgr(pen: bytes) -> bytes:
    """Return the sequence that sets `pen`, whatever was set before."""
    return b"\x1b[0;" + pen + b"m" if pen else b"\x1b[0m"


def shows_blanks(pen: bytes) -> bool:
    """Return whether a blank in this pen is visible, for example because it is underlined."""
    return pen != NO_PEN and not _SEEN_ON_BLANKS.isdisjoint(_attributes(pen))


@lru_cache(maxsize=1024)
def pen_with(pen: bytes, parameters: bytes) -> bytes:
    """Return the pen after one SGR sequence with these parameters."""
    attributes = _attributes(pen)
    items = parameters.split(b";")
    at = 0
    while at < len(items):
        item = items[at]
        at += 1
        head = item.partition(b":")[0]
        code = int(head or b"0")
        if code == 0:
            attributes = {}
        elif code in _EXTENDED:
            size = 0 if b":" in item else {b"5": 2, b"2": 4}.get(b"".join(items[at : at + 1]), 0)
            arguments = items[at : at + size]
            at += size
            if b":" in item or (size and len(arguments) == size):
                attributes[_EXTENDED[code]] = b";".join((item, *arguments))
        elif item == b"4:0":
            attributes.pop("underline", None)
        elif code in _ON:
            attributes[_ON[code]] = item
        else:
            for name in _OFF.get(code, ()):
                attributes.pop(name, None)
    return b";".join(attributes[name] for name in sorted(attributes))


def pen_after(pen: bytes, text: bytes) -> bytes:
    """Return the pen after all SGR sequences in `text`."""
    if b"\x1b" not in text:
        return pen
    reset = text.rfind(_RESETS[0])
    reset = max(reset, text.rfind(_RESETS[1], max(reset, 0)))
    if reset >= 0:
        pen = NO_PEN
    for match in SGR.finditer(text, max(reset, 0)):
        pen = pen_with(pen, match[1])
    return pen


@lru_cache(maxsize=1024)
def _named(pen: bytes) -> tuple[tuple[str, bytes], ...]:
    items = pen.split(b";") if pen else []
    attributes: list[tuple[str, bytes]] = []
    at = 0
    while at < len(items):
        code = int(items[at].partition(b":")[0])
        size = 1
        if code in _EXTENDED and b":" not in items[at]:
            size = 3 if items[at + 1] == b"5" else 5
        attributes.append((_EXTENDED.get(code) or _ON[code], b";".join(items[at : at + size])))
        at += size
    return tuple(attributes)


def _attributes(pen: bytes) -> dict[str, bytes]:
    return dict(_named(pen))
