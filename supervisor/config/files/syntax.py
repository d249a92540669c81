"""Texts that are not valid TOML: the error of a text, and the keys that can still be read from it.

The parser reports only a place, and nothing behind it is parsed. So both functions look at the lines one by one.
"""

import re
from collections.abc import Collection
from typing import Any

import tomli

_PART = r"""(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')"""
_NAME = rf"{_PART}(?:[ \t]*\.[ \t]*{_PART})*"
_HEADER = re.compile(rf"[ \t]*\[\[?[ \t]*({_NAME})[ \t]*\]")
_KEY = re.compile(rf"[ \t]*({_NAME})[ \t]*=[ \t]*([^\s#]?)")
_VALUES = ("Invalid value", "Expected newline or end of document after a statement")
_TWICE = ("Cannot overwrite", "Cannot declare", "Cannot redefine", "Cannot mutate", "Duplicate inline table key")
_REMEDIES = {
    "Invalid initial character for a key part": "quote a name that has other characters than letters, digits, _ and -",
    "Unescaped '\\' in a string": "write \\\\, or use single quotes",
    "Unterminated string": 'close the string with the same quotes; a string of several lines needs """',
}


def explain(text: str, line: int, message: str) -> tuple[str, str, str | None]:
    """Return key, message and remedy for the parser's error on a line (from 1)."""
    lines = text.split("\n")[:line]
    last = lines[-1] if lines else ""
    pair = _KEY.match(last)
    table = next((found[1] for one in reversed(lines) if (found := _HEADER.match(one))), "")
    key = ".".join(part for part in (table, pair[1] if pair else "") if part)
    if message.startswith(_TWICE):
        return key, "is defined twice", "remove one of them"
    if message in _VALUES and pair is not None and pair[2] not in tuple("\"'[{"):
        return key, "has an invalid value", 'put text into quotes: name = "…"'
    return key, f"{message[:1].lower()}{message[1:]}", _REMEDIES.get(message)


def salvage(text: str, wanted: Collection[tuple[str, str]]) -> dict[str, dict[str, Any]] | None:
    """Read keys whose value stands on one line from a text that is not valid TOML.

    Args:
        text: the text.
        wanted: table and key of each.

    Returns:
        The keys that were found, by table; None if the value of one cannot be read.
    """
    found: dict[str, dict[str, Any]] = {}
    header = ""
    for line in text.splitlines():
        if named := _HEADER.match(line):
            header = named[1]
        mentioned = [(table, key) for table, key in wanted if key in line and table in (header, *_words(line))]
        if not mentioned or line.lstrip().startswith("#"):
            continue
        try:
            content = tomli.loads(f"[{header}]\n{line}" if header and not named else line)
        except ValueError:
            if any(_words(line)[-1:] in ([table], [key]) for table, key in mentioned):
                return None
            continue
        for table, key in mentioned:
            if isinstance(content.get(table), dict) and key in content[table]:
                found.setdefault(table, {}).setdefault(key, content[table][key])
    return found


def _words(line: str) -> list[str]:
    """Return the parts of the key that stands on a line."""
    pair = _KEY.match(line)
    return [part.strip(" \t\"'") for part in pair[1].split(".")] if pair else []
