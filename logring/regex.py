"""Regular expressions of RE2, which take time linear in the text, and plain texts in upper or lower case.

google-re2 has no wheels for some hosts. Where it is missing, each regular expression is an error.
"""

import re
from functools import cache
from typing import Any

__all__ = ["BadPattern", "Re2Missing", "compile_re2", "in_any_case"]

_CASED_END = 0x1E944
"""The first character behind all those that have cases."""
_TURKISH = frozenset("İı")
"""The capital I with a dot and the small i without one. To Python they equal I and i; to RE2 no other letter."""


class BadPattern(ValueError):
    """The pattern is not a valid regular expression, is too large, or cannot match any line."""


class Re2Missing(BadPattern):
    """Regular expressions need the package google-re2."""

    message = "needs the Python package google-re2, which is not installed"
    remedy = "install a C++ compiler and the headers of Python, RE2, Abseil and pybind11, then: pip install google-re2"

    def __init__(self) -> None:
        super().__init__(f"{self.message}: {self.remedy}")


def compile_re2(
    text: str, max_bytes: int, *, ignore_case: bool = False, literal: bool = False, lines: bool = False
) -> Any:
    """Return a compiled regular expression.

    Args:
        text: the regular expression, or plain text if `literal`.
        max_bytes: the memory that it may take.
        ignore_case: match text in upper and lower case.
        literal: match the text itself.
        lines: match within lines, and capture no groups.

    Raises:
        BadPattern: the pattern is invalid or too large; `Re2Missing` if google-re2 is not installed.
    """
    try:
        import re2  # imported at first use, to keep idle processes small
    except ImportError as err:
        raise Re2Missing from err
    chosen = re2.Options()
    chosen.log_errors = False
    chosen.max_mem = max_bytes
    chosen.case_sensitive = not ignore_case
    chosen.literal = literal
    chosen.never_capture = chosen.never_nl = lines
    try:
        return re2.compile(text, chosen)
    except re2.error as err:
        reason = err.args[0] if err.args else ""
        raise BadPattern(reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)) from err
    finally:
        re2.purge()  # its cache would keep 128 patterns, each with its full memory


def in_any_case(text: str) -> re.Pattern[bytes]:
    """Return an expression of Python's ``re`` that matches the text, in upper or lower case, in UTF-8."""
    cases = (b"|".join(re.escape(case.encode()) for case in sorted(_cases(char))) for char in text)
    return re.compile(b"".join(b"(?:%b)" % alternatives for alternatives in cases))


def _cases(char: str) -> set[str]:
    if char in _TURKISH:
        return {char}
    return {char, *re.findall(re.escape(char), _cased(), re.IGNORECASE)} - _TURKISH


@cache
def _cased() -> str:
    """Return all characters that have cases."""
    return "".join(char for char in map(chr, range(_CASED_END)) if char.lower() != char.upper())
