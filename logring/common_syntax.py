r"""Translation of regular expressions from RE2's syntax to that of Python's ``re``, for hosts without google-re2.

The common subset has literals, classes, groups, alternatives, anchors, repetitions, and the flags i, m and s. What RE2
rejects is rejected here too. Errors about what only RE2 has (``\pN``, ``\C``, ``\B``, ``(?U)``) say that it is missing.

The translation is for text that was decoded with ``surrogateescape``. As in RE2, ``\d``, ``\w``, ``\s`` and ``\b`` are
ASCII, and no class contains a byte that is not valid UTF-8. Each flag becomes part of the expressions to which it
applies, because Python's flags and RE2's have different scopes.

Both engines then find a match in the same texts, and it begins at the same place. Its end can differ if an expression
that may match nothing is repeated, as in ``(a??)+``.
"""

import re
from typing import NamedTuple

__all__ = ["BadPattern", "literal", "translated"]

_MOST_REPEATS = 1000
_MOST_GROUPS = 100
"""Limit of nested groups; Python's compiler is recursive."""
_MAX_CHAR = 0x10FFFF
_SURROGATES = (0xD800, 0xDFFF)
_NEWLINE = 0x0A
_TURKISH = (0x130, 0x131)
"""The capital I with a dot and the small i without one. In Python they equal I and i; in RE2 no other letter."""
_I = r"[\u0130-\u0131]"
_REPEAT = re.compile(r"\{(0|[1-9][0-9]{0,7})(,(0|[1-9][0-9]{0,7})?)?\}")
_GROUP_NAME = re.compile(r"\?P?<([A-Za-z0-9_]+)>")
_FLAGS = re.compile(r"\?([imsU]*)(?:-([imsU]+))?([:)])")
_HEX = re.compile(r"x(?:([0-9A-Fa-f]{2})|\{([0-9A-Fa-f]+)\})")
_OCTAL = re.compile(r"0[0-7]{0,2}|[1-7][0-7]{1,2}")
_NAMED_CLASS = re.compile(r"\[:(\^?)(.*?):\]", re.DOTALL)
_ESCAPES = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
_FOREIGN_GROUPS = (
    ("?=", "a lookahead"),
    ("?!", "a lookahead"),
    ("?<=", "a lookbehind"),
    ("?<!", "a lookbehind"),
    ("?>", "an atomic group"),
    ("?(", "a conditional"),
    ("?#", "a comment"),
    ("?P=", "a backreference"),
    ("?P>", "a recursion"),
)

Ranges = list[tuple[int, int]]

_DIGITS: Ranges = [(0x30, 0x39)]
_LOWER: Ranges = [(0x61, 0x7A)]
_UPPER: Ranges = [(0x41, 0x5A)]
_LETTERS = _UPPER + _LOWER
_PERL: dict[str, Ranges] = {
    "d": _DIGITS,
    "w": [*_DIGITS, *_LETTERS, (0x5F, 0x5F)],
    "s": [(9, 10), (12, 13), (32, 32)],
}
_NAMED: dict[str, Ranges] = {
    "alnum": _DIGITS + _LETTERS,
    "alpha": _LETTERS,
    "ascii": [(0, 0x7F)],
    "blank": [(9, 9), (32, 32)],
    "cntrl": [(0, 0x1F), (0x7F, 0x7F)],
    "digit": _DIGITS,
    "graph": [(0x21, 0x7E)],
    "lower": _LOWER,
    "print": [(0x20, 0x7E)],
    "punct": [(0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E)],
    "space": [(9, 13), (32, 32)],
    "upper": _UPPER,
    "word": _PERL["w"],
    "xdigit": [*_DIGITS, (0x41, 0x46), (0x61, 0x66)],
}


class BadPattern(ValueError):
    """The pattern is not a valid regular expression, is too large, or cannot match any line."""


class _Flags(NamedTuple):
    ignore_case: bool
    multi_line: bool
    dot_all: bool


class _Group:
    """An open group: its flags after it closes, and the largest product of nested repetitions in it so far."""

    def __init__(self, flags: _Flags, at: int) -> None:
        self.flags = flags
        self.at = at
        self.repeats = 1


def translated(pattern: str, *, lines: bool, ignore_case: bool = False) -> str:
    """Return the pattern in the syntax of Python's ``re``.

    Args:
        pattern: the pattern in RE2's syntax.
        lines: whether the text is several lines: ``^`` and ``$`` are their ends, and nothing matches a newline.
        ignore_case: whether upper and lower case are equal.

    Raises:
        BadPattern: the pattern is invalid, or needs RE2.
    """
    return _Translator(pattern, lines=lines, flags=_Flags(ignore_case, lines, dot_all=False)).translate()


def literal(text: str, *, ignore_case: bool) -> str:
    """Return the expression in the syntax of Python's ``re`` that matches `text`."""
    translator = _Translator("", lines=True, flags=_Flags(ignore_case, multi_line=True, dot_all=False))
    return "".join(map(translator.literal, map(ord, text)))


class _Translator:
    def __init__(self, pattern: str, *, lines: bool, flags: _Flags) -> None:
        self._pattern = pattern
        self._lines = lines
        self._flags = flags
        self._at = 0
        self._parts: list[str] = []
        self._groups = [_Group(flags, 0)]
        self._atom_repeats = 0
        """The product of nested repetitions in the expression before the position; 0 if nothing can be repeated."""
        self._repeated = False
        """Whether that expression already has a repetition."""

    def translate(self) -> str:
        pattern = self._pattern
        while self._at < len(pattern):
            char = pattern[self._at]
            if char == "\\":
                self._escape()
            elif char == "[":
                self._class()
            elif char == "(":
                self._open()
            elif char == ")":
                self._close()
            elif char == "|":
                self._parts.append("|")
                self._at += 1
                self._atom_repeats = 0
            elif char in "*+?" or (char == "{" and _REPEAT.match(pattern, self._at)):
                self._repeat()
            else:
                self._at += 1
                self._plain(char)
        if len(self._groups) > 1:
            raise self._error("is not closed", "(", self._groups[-1].at)
        return "".join(self._parts)

    def _error(self, problem: str, syntax: str, at: int | None = None) -> BadPattern:
        return BadPattern(f"{syntax} at position {self._at if at is None else at} {problem}")

    def _needs_re2(self, syntax: str) -> BadPattern:
        return self._error("needs google-re2, which is not installed", syntax)

    # Expressions

    def _add(self, part: str, repeats: int = 1) -> None:
        self._parts.append(part)
        self._atom_repeats, self._repeated = repeats, False
        group = self._groups[-1]
        group.repeats = max(group.repeats, repeats)

    def _plain(self, char: str) -> None:
        if char == ".":
            excluded: Ranges = [_SURROGATES]
            if self._lines or not self._flags.dot_all:
                excluded.append((_NEWLINE, _NEWLINE))
            self._add(f"[^{_written(excluded)}]")
        elif char == "^":
            self._add("(?:(?m:^))" if self._flags.multi_line else r"(?:\A)")
        elif char == "$":
            self._add("(?:(?m:$))" if self._flags.multi_line else r"(?:\Z)")
        else:
            self._add(self.literal(ord(char)))

    def literal(self, code: int) -> str:
        """Return the expression that matches this character."""
        if code == _NEWLINE and self._lines:
            return "(?!)"
        return self._one_of([(code, code)]) if self._flags.ignore_case else _char(code)

    def _repeat(self) -> None:
        pattern, at = self._pattern, self._at
        counted = _REPEAT.match(pattern, at)
        operator = counted[0] if counted else pattern[at]
        if not self._atom_repeats:
            raise self._error("has nothing to repeat", operator)
        if self._repeated:
            raise self._error("follows another repetition", operator)
        repeats = 1
        if counted:
            least = int(counted[1])
            most = least if counted[2] is None else int(counted[3]) if counted[3] else None
            if most is not None and most < least:
                raise self._error("has the larger number first", operator)
            repeats = max(1, least if most is None else most)
        repeats *= self._atom_repeats
        if repeats > _MOST_REPEATS:
            raise self._error(f"repeats more than {_MOST_REPEATS} times, with repetitions inside of it", operator)
        self._at += len(operator)
        if pattern.startswith("?", self._at):
            operator += "?"
            self._at += 1
        self._add(operator, repeats)
        self._repeated = True

    # Groups

    def _open(self) -> None:
        pattern, at = self._pattern, self._at
        if len(self._groups) > _MOST_GROUPS:
            raise self._error(f"is nested more than {_MOST_GROUPS} times", "(")
        inner = self._flags
        if pattern.startswith("(?", at):
            if (name := _GROUP_NAME.match(pattern, at + 1)) is not None:
                self._at = name.end()
            elif (flags := _FLAGS.match(pattern, at + 1)) is not None:
                inner = self._set_flags(flags[1], flags[2] or "")
                self._at = flags.end()
                if flags[3] == ")":
                    self._flags = inner
                    self._atom_repeats = 0
                    return
            else:
                raise self._bad_group()
        else:
            self._at += 1
        self._groups.append(_Group(self._flags, at))
        self._flags = inner
        self._parts.append("(?:")
        self._atom_repeats = 0

    def _bad_group(self) -> BadPattern:
        for beginning, description in _FOREIGN_GROUPS:
            if self._pattern.startswith(beginning, self._at + 1):
                return self._error("is not supported", f"({beginning}, {description},")
        if self._pattern.startswith(("?<", "?P<"), self._at + 1):
            return self._error("must be ASCII letters, digits and underscores, and end with >", "the name of the group")
        return self._error("is not a valid group", self._pattern[self._at : self._at + 3])

    def _set_flags(self, on: str, off: str) -> _Flags:
        if "U" in on + off:
            raise self._needs_re2("the flag U")

        def value(name: str, now: bool) -> bool:
            return (now or name in on) and name not in off

        now = self._flags
        return _Flags(value("i", now.ignore_case), value("m", now.multi_line), value("s", now.dot_all))

    def _close(self) -> None:
        if len(self._groups) == 1:
            raise self._error("closes no group", ")")
        group = self._groups.pop()
        self._flags = group.flags
        self._at += 1
        self._add(")", group.repeats)

    # Escapes

    def _escape(self) -> None:
        pattern, at = self._pattern, self._at
        kind = pattern[at + 1 : at + 2]
        if kind == "Q":
            end = pattern.find(r"\E", at)
            text = pattern[at + 2 : None if end < 0 else end]
            if not text:
                self._atom_repeats = 0
            for char in text:
                self._add(self.literal(ord(char)))
            self._at = len(pattern) if end < 0 else end + 2
        elif kind in ("A", "z"):
            self._at += 2
            self._add(r"(?:\A)" if kind == "A" else r"(?:\Z)")
        elif kind == "b":
            self._at += 2
            self._add(r"(?:(?a:\b))")
        elif kind.lower() in _PERL and kind:
            self._at += 2
            self._add_class(_PERL[kind.lower()], [], negated=kind.isupper())
        else:
            self._add(self.literal(self._escaped()))

    def _escaped(self) -> int:
        """Return the character of an escape sequence, which can also stand in a class."""
        pattern, at = self._pattern, self._at
        kind = pattern[at + 1 : at + 2]
        if not kind:
            raise self._error("ends the pattern", "\\")
        if kind in "BpPC":  # RE2's \B also matches within the bytes of a character
            raise self._needs_re2(f"\\{kind}")
        if (octal := _OCTAL.match(pattern, at + 1)) is not None:
            self._at = octal.end()
            return int(octal[0], 8)
        if kind.isdecimal() and kind.isascii():
            raise self._error("is not supported", f"\\{kind}, a backreference,")
        if kind == "x":
            return self._hexadecimal()
        if kind not in _ESCAPES and (not kind.isascii() or kind.isalnum()):
            raise self._error("is not a valid escape sequence", f"\\{kind}")
        self._at += 2
        return _ESCAPES.get(kind, ord(kind))

    def _hexadecimal(self) -> int:
        match = _HEX.match(self._pattern, self._at + 1)
        code = int(match[1] or match[2], 16) if match else -1
        if match is None or code > _MAX_CHAR:
            raise self._error("is not a character", match[0] if match else "\\x")
        if _SURROGATES[0] <= code <= _SURROGATES[1]:
            raise self._error("is not a character but half of a surrogate pair", f"\\{match[0]}")
        self._at = match.end()
        return code

    # Classes

    def _class(self) -> None:
        pattern, opened_at = self._pattern, self._at
        self._at += 1
        negated = pattern.startswith("^", self._at)
        self._at += negated
        ranges: Ranges = []
        complements: list[Ranges] = []
        first = True
        while first or not pattern.startswith("]", self._at):
            if self._at >= len(pattern):
                raise self._error("is not closed", "[", opened_at)
            named = _NAMED_CLASS.match(pattern, self._at)
            kind = pattern[self._at + 1 : self._at + 2] if pattern[self._at] == "\\" else ""
            if named is not None:
                if named[2] not in _NAMED:
                    raise self._error("is not a class", named[0])
                if named[1]:
                    complements.append(_NAMED[named[2]])
                else:
                    ranges += _NAMED[named[2]]
                self._at = named.end()
            elif kind and kind.lower() in _PERL:
                if kind.isupper():
                    complements.append(_PERL[kind.lower()])
                else:
                    ranges += _PERL[kind]
                self._at += 2
            else:
                ranges.append(self._range())
            first = False
        self._at += 1
        if not self._flags.ignore_case:
            for complement in complements:
                ranges += _without([(0, _MAX_CHAR)], complement)
            complements = []
        self._add_class(ranges, complements, negated=negated)

    def _range(self) -> tuple[int, int]:
        pattern, range_start = self._pattern, self._at
        low = high = self._class_char()
        if pattern.startswith("-", self._at) and not pattern.startswith("-]", self._at):
            self._at += 1
            if self._at >= len(pattern):
                raise self._error("is not closed", "[", range_start)
            high = self._class_char()
        if high < low:
            raise self._error("has its end before its start", pattern[range_start : self._at], range_start)
        return low, high

    def _class_char(self) -> int:
        if self._pattern[self._at] == "\\":
            return self._escaped()
        self._at += 1
        return ord(self._pattern[self._at - 1])

    def _add_class(self, ranges: Ranges, complements: list[Ranges], *, negated: bool) -> None:
        """Add a class.

        Args:
            ranges: characters of the class.
            complements: the class also has all characters except these; empty unless case is ignored. A complement has
                no other cases of its characters, because it lacks all cases of the excluded ones.
            negated: whether the class has all other characters instead.
        """
        excluded: Ranges = [_SURROGATES]
        if self._lines:
            excluded.append((_NEWLINE, _NEWLINE))
        if not negated:
            parts = [self._one_of(_without(ranges, excluded))]
            parts += [f"(?!{self._one_of(complement)})[^{_written(excluded)}]" for complement in complements]
            self._add(f"(?:{'|'.join(parts)})" if complements else parts[0])
        elif self._flags.ignore_case:
            required = "".join(f"(?={self._one_of(complement)})" for complement in complements)
            self._add(f"(?:(?!{self._one_of(ranges)}){required}[^{_written(excluded)}])")
        else:
            self._add(f"[^{_written([*ranges, *excluded])}]")

    def _one_of(self, ranges: Ranges) -> str:
        """Return an expression that matches one character of `ranges`."""
        if not ranges:
            return "(?!)"
        if not self._flags.ignore_case:
            return f"[{_written(ranges)}]"
        folded = _without(ranges, [_TURKISH])
        turkish = _without(ranges, _without([(0, _MAX_CHAR)], [_TURKISH]))
        parts = [f"(?!{_I})(?i:[{_written(folded)}])"] if folded else []
        parts += [f"[{_written(turkish)}]"] if turkish else []
        return f"(?:{'|'.join(parts)})"


def _without(ranges: Ranges, excluded: Ranges) -> Ranges:
    """Return `ranges` without the characters in `excluded`."""
    for low, high in excluded:
        remaining: Ranges = []
        for start, end in ranges:
            if start < low:
                remaining.append((start, min(end, low - 1)))
            if end > high:
                remaining.append((max(start, high + 1), end))
            # else: nothing of the range is left
        ranges = remaining
    return ranges


def _written(ranges: Ranges) -> str:
    """Return characters and ranges as they stand in a class."""
    return "".join(_char(low) if low == high else f"{_char(low)}-{_char(high)}" for low, high in ranges)


def _char(code: int) -> str:
    char = chr(code)
    if char.isascii():
        return char if char.isalnum() else f"\\x{code:02x}"
    return f"\\U{code:08x}" if code > 0xFFFF else f"\\u{code:04x}"
