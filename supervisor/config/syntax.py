"""What is wrong with a text that is no TOML, in the words of this configuration: the key, what it is, what to do.

The parser knows only the place. The text is not to be relied on, so lines are looked at one by one.
"""

import re

_PART = r"""(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')"""
_NAME = rf"{_PART}(?:[ \t]*\.[ \t]*{_PART})*"
_HEADER = re.compile(rf"[ \t]*\[\[?[ \t]*({_NAME})[ \t]*\]")
_KEY = re.compile(rf"[ \t]*({_NAME})[ \t]*=[ \t]*([^\s#]?)")
_VALUES = ("Invalid value", "Expected newline or end of document after a statement")
_TWICE = ("Cannot overwrite", "Cannot declare", "Cannot redefine", "Cannot mutate", "Duplicate inline table key")
_REMEDIES = {
    "Invalid initial character for a key part": "a name with other characters than letters, digits, _ and - stands in "
    "quotes",
    "Unescaped '\\' in a string": "write \\\\, or the string in single quotes, in which \\ is like any other",
    "Unterminated string": 'end it with the quotes that it begins with; one of several lines stands in """',
}


def explain(text: str, line: int, message: str) -> tuple[str, str, str | None]:
    """Key, message and remedy for what the parser says of a line (from 1)."""
    lines = text.split("\n")[:line]
    last = lines[-1] if lines else ""
    pair = _KEY.match(last)
    table = next((found[1] for one in reversed(lines) if (found := _HEADER.match(one))), "")
    key = ".".join(part for part in (table, pair[1] if pair else "") if part)
    if message.startswith(_TWICE):
        return key, "is there already", "keep one of them"
    if message in _VALUES and pair is not None and pair[2] not in tuple("\"'[{"):
        return key, "has no valid value", 'text stands in quotes: name = "…"'
    return key, f"{message[:1].lower()}{message[1:]}", _REMEDIES.get(message)
