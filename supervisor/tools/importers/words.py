"""Commands that no shell has read so far, written for a shell: nothing in them may mean more to it than to them."""

import re
import shlex
from collections.abc import Callable, Iterable

Pattern = re.Pattern[str]
Replacement = Callable[[re.Match[str]], str]


def for_shell(words: Iterable[str], pattern: Pattern, replacement: Replacement) -> str:
    """One command of a shell.

    Args:
        words: the program and its arguments.
        pattern: the characters that the shell is to replace.
        replacement: how it is asked to, inside double quotes.
    """
    return " ".join(_quoted(word, pattern, replacement) for word in words)


def _quoted(word: str, pattern: Pattern, replacement: Replacement) -> str:
    if not pattern.search(word):
        return shlex.quote(word)
    parts, end = [], 0
    for found in pattern.finditer(word):
        parts += [_literal(word[end : found.start()]), replacement(found)]
        end = found.end()
    return f'"{"".join(parts)}{_literal(word[end:])}"'


def _literal(text: str) -> str:
    """Inside double quotes."""
    return re.sub(r'([\\"$`])', r"\\\1", text)
