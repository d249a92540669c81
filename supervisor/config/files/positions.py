"""The line of each table and key of a TOML text, which TOML parsers do not report.

A small scanner reads text that the parser accepted. It knows headers (``[a.b]``, ``[[a]]``), dotted and quoted keys,
inline tables, arrays and all four kinds of strings, and skips other values. It never fails: it skips text that it
cannot read to the end of the line. A key without a line of its own gets that of its nearest ancestor.
"""

import re
from bisect import bisect_right

KeyPath = tuple[str | int, ...]
"""Keys from the root; integers are indexes of arrays."""

_BLANK = re.compile(r"[ \t]*")
_GAP = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_BASIC = re.compile(r'"((?:[^"\\\n]++|\\.)*+)"')
_LITERAL = re.compile(r"'([^'\n]*)'")
_BASIC_LONG = re.compile(r'"""(?:[^\\]|\\.)*?"{3,5}', re.DOTALL)
_LITERAL_LONG = re.compile(r"'''.*?'{3,5}", re.DOTALL)
_PLAIN = re.compile(r"[^,\]}#\n]*")
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|x([0-9A-Fa-f]{2})|(.))", re.DOTALL)
_ESCAPED = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r", "e": "\x1b", '"': '"', "\\": "\\"}
_STRINGS = ((_BASIC_LONG, '"""'), (_LITERAL_LONG, "'''"), (_BASIC, '"'), (_LITERAL, "'"))
_MAX_DEPTH = 64
_MAX_ITEMS = 1000
_LAST_CODE_POINT = 0x10FFFF


class _ScanFailed(Exception):
    """The scanner cannot read the text at this position."""


class Positions:
    """The lines of the keys in a text, which is scanned only for the first question: most texts have no mistake."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._newlines: list[int] = []
        self._lines: dict[KeyPath, int] = {}
        self._arrays: dict[KeyPath, int] = {}
        self._scanned = False

    def line(self, path: KeyPath) -> int | None:
        """Return the line (from 1) of the key or table at `path` or of its nearest ancestor; None if there is none."""
        self._scan()
        while path:
            if (line := self._lines.get(path)) is not None:
                return line
            path = path[:-1]
        return None

    def exact(self, path: KeyPath) -> int | None:
        """Return the line (from 1) of the key or table at `path`; None if it has no line of its own."""
        self._scan()
        return self._lines.get(path)

    def _scan(self) -> None:
        if self._scanned:
            return
        self._scanned = True
        self._newlines = [match.start() for match in re.finditer("\n", self._text)]
        text, end = self._text, len(self._text)
        table: KeyPath = ()
        at = 0
        while (at := self._gap(at)) < end:
            try:
                if text.startswith("[", at):
                    table, at = self._header(at)
                else:
                    at = self._pair(at, table, 0)
            except _ScanFailed:
                newline = text.find("\n", at)
                at = end if newline < 0 else newline + 1

    def _header(self, at: int) -> tuple[KeyPath, int]:
        start, several = at, self._text.startswith("[[", at)
        keys, at = self._key(at + 1 + several)
        if not self._text.startswith("]]" if several else "]", at):
            raise _ScanFailed
        path: KeyPath = ()
        for key in keys[:-1]:
            path = self._newest((*path, key))
            self._put(path, start)
        path = (*path, keys[-1])
        self._put(path, start)
        if several:
            self._arrays[path] = self._arrays.get(path, -1) + 1
        path = self._newest(path)
        self._put(path, start)
        return path, at + 1 + several

    def _newest(self, path: KeyPath) -> KeyPath:
        """Return `path`, or the path of the newest element if it is an array of tables."""
        return (*path, self._arrays[path]) if path in self._arrays else path

    def _pair(self, at: int, table: KeyPath, depth: int) -> int:
        start = at
        keys, at = self._key(at)
        if not self._text.startswith("=", at):
            raise _ScanFailed
        path = table
        for key in keys:
            path = (*path, key)
            self._put(path, start)
        return self._value(self._blank(at + 1), path, depth)

    def _key(self, at: int) -> tuple[list[str], int]:
        """Return the parts of a dotted key, and the position of the first character after it that is not a blank."""
        keys: list[str] = []
        while True:
            at = self._blank(at)
            if match := _BARE.match(self._text, at):
                keys.append(match[0])
            elif match := _BASIC.match(self._text, at):
                keys.append(_ESCAPE.sub(_unescape, match[1]))
            elif match := _LITERAL.match(self._text, at):
                keys.append(match[1])
            else:
                raise _ScanFailed
            at = self._blank(match.end())
            if not self._text.startswith(".", at):
                return keys, at
            if len(keys) > _MAX_DEPTH:
                raise _ScanFailed
            at += 1

    def _value(self, at: int, path: KeyPath, depth: int) -> int:
        text = self._text
        if depth > _MAX_DEPTH:
            raise _ScanFailed
        for pattern, quote in _STRINGS:
            if text.startswith(quote, at):
                if match := pattern.match(text, at):
                    return match.end()
                raise _ScanFailed
        if text.startswith("[", at):
            return self._array(at + 1, path, depth + 1)
        if text.startswith("{", at):
            return self._inline_table(at + 1, path, depth + 1)
        return _end_of(_PLAIN, text, at)

    def _array(self, at: int, path: KeyPath, depth: int) -> int:
        index = 0
        while True:
            at = self._gap(at)
            if self._text.startswith("]", at):
                return at + 1
            item = (*path, index)
            if index < _MAX_ITEMS:
                self._put(item, at)
            at = self._separator(self._value(at, item, depth), "]")
            index += 1

    def _inline_table(self, at: int, path: KeyPath, depth: int) -> int:
        while True:
            at = self._gap(at)
            if self._text.startswith("}", at):
                return at + 1
            at = self._separator(self._pair(at, path, depth), "}")

    def _separator(self, at: int, closing: str) -> int:
        """Return the position after a comma, or of the closing bracket; anything else is unreadable."""
        at = self._gap(at)
        if self._text.startswith(",", at):
            return at + 1
        if self._text.startswith(closing, at):
            return at
        raise _ScanFailed

    def _blank(self, at: int) -> int:
        return _end_of(_BLANK, self._text, at)

    def _gap(self, at: int) -> int:
        return _end_of(_GAP, self._text, at)

    def _put(self, path: KeyPath, at: int) -> None:
        if path not in self._lines:
            self._lines[path] = bisect_right(self._newlines, at - 1) + 1


def _end_of(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Return the end of a pattern's match at a position; the position itself if there is none."""
    match = pattern.match(text, at)
    return at if match is None else match.end()


def _unescape(match: re.Match[str]) -> str:
    code = match[1] or match[2] or match[3]
    if code:
        number = int(code, 16)
        return chr(number) if number <= _LAST_CODE_POINT else "\ufffd"
    return _ESCAPED.get(match[4], match[4])
