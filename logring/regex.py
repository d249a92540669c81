"""The engine of regular expressions: google-re2 if it is installed, otherwise Python's ``re`` in another process.

RE2 takes time linear in the text. Python's engine may take exponential time, and holds the interpreter's lock all the
while. So a process without google-re2 does not match by itself: it gives a `Matcher` the translated expression.
"""

from functools import cache
from typing import Any, Protocol

from logring.common_syntax import BadPattern

__all__ = ["MatchFailed", "Matcher", "compile_re2", "re2_module"]


class MatchFailed(Exception):
    """A text could not be matched within the time limit, or there is no process to match it; the message says which."""


class Matcher(Protocol):
    """Matches texts in a process of its own."""

    def find(self, expression: str, text: bytes, pos: int, start: int, end: int) -> tuple[int, int] | None:
        """Return start and end of the first match from `pos` on, within `text[begin:end]`; None if there is none.

        Raises:
            MatchFailed: it took too long, or is impossible.
        """


@cache
def re2_module() -> Any | None:
    """Return the module of google-re2, or None if it is not installed."""
    try:
        import re2  # imported at first use, to keep idle processes small
    except ImportError:
        return None
    return re2


def compile_re2(re2: Any, text: str, options: Any) -> Any:
    """Return a compiled pattern.

    Raises:
        BadPattern: the pattern is invalid or too large.
    """
    options.log_errors = False
    try:
        return re2.compile(text, options)
    except re2.error as err:
        reason = err.args[0] if err.args else ""
        raise BadPattern(reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)) from err
