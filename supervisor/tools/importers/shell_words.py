"""Quotes commands for a shell that were not written for one, so that no character has a special meaning."""

import re
import shlex
from collections.abc import Callable, Iterable

Pattern = re.Pattern[str]
Replacement = Callable[[re.Match[str]], str]


def for_shell(words: Iterable[str], pattern: Pattern, replacement: Replacement) -> str:
    """Return a command as shell code.

    Args:
        words: The program and its arguments.
        pattern: Matches the parts that the shell must replace.
        replacement: Returns shell code for such a part, for use inside double quotes.
    """
    return " ".join(_quoted(word, pattern, replacement) for word in words)


def _quoted(word: str, pattern: Pattern, replacement: Replacement) -> str:
    if not pattern.search(word):
        return shlex.quote(word)
    parts, end = [], 0
    for match in pattern.finditer(word):
        parts += [_literal(word[end : match.start()]), replacement(match)]
        end = match.end()
    return f'"{"".join(parts)}{_literal(word[end:])}"'


def _literal(text: str) -> str:
    """Escape a text for use inside double quotes."""
    return re.sub(r'([\\"$`])', r"\\\1", text)
