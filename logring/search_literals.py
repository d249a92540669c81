r"""Texts without which a line cannot match a regular expression.

A search for a text is several times as fast as RE2, which examines each byte. A line without these texts cannot match,
so RE2 need not see it. The texts come from the outermost level of the pattern. Uncertain texts are left out, and a
pattern with switches (``(?i)``) or unusual escapes (``\Q``, ``\x``) has none at all.
"""

import re

_SHORTEST = 3
"""Shorter texts are nearly everywhere."""
_MOST_TEXTS = 3
_MOST_ALTERNATIVES = 2
"""Looking for three texts takes as long as RE2 does."""

_UNUSUAL = re.compile(r"\(\?(?!:|P?<[A-Za-z_])|\\[^dDwWsSbBAzntrfva\W_]")
_TOKEN = re.compile(
    r"""
      (?P<literal>[^\\\[(|)*+?{.^$] | \\[^A-Za-z0-9])
    | (?P<repeat>[*+?] | \{[0-9]*,?[0-9]*\})
    | (?P<open>\( (?:\?:|\?P?<[A-Za-z_][A-Za-z0-9_]*>)?)
    | (?P<close>\))
    | (?P<or>\|)
    | \[\^?\]?(?:\\.|\[:\^?[a-z]+:\]|[^\]\\])*\]
    | \\. | .
    """,
    re.VERBOSE | re.DOTALL,
)
_AT_LEAST_ONCE = re.compile(r"\+|\{0*[1-9]")

Texts = tuple[bytes, ...]


def required(pattern: str) -> tuple[Texts, ...]:
    """For each alternative of a pattern, which RE2 takes, the texts that each of its matches has.

    Empty when there is an alternative of which nothing is certain.
    """
    if _UNUSUAL.search(pattern):
        return ()
    alternatives: list[Texts] = []
    runs = [""]
    depth = 0
    before = None  # kind of the token before
    for token in _TOKEN.finditer(pattern):
        kind = token.lastgroup
        depth += (kind == "open") - (kind == "close")
        if depth or kind == "close":
            runs.append("")
        elif kind == "literal":
            runs[-1] += token[0][-1]
        elif kind == "or":
            alternatives.append(_longest(runs))
            runs = [""]
        else:
            if kind == "repeat" and before == "literal" and not _AT_LEAST_ONCE.match(token[0]):
                runs[-1] = runs[-1][:-1]
            runs.append("")
        before = kind
    alternatives.append(_longest(runs))
    if len(alternatives) > _MOST_ALTERNATIVES or not all(alternatives):
        return ()
    return tuple(alternatives)


def _longest(runs: list[str]) -> Texts:
    texts = dict.fromkeys(run.encode() for run in runs if len(run) >= _SHORTEST)
    return tuple(sorted(texts, key=len, reverse=True)[:_MOST_TEXTS])


def present(alternatives: tuple[Texts, ...], text: bytes, begin: int, end: int) -> bool:
    """Return whether `text[begin:end]` has all texts of an alternative, or there are no alternatives."""
    return not alternatives or any(all(text.find(one, begin, end) >= 0 for one in texts) for texts in alternatives)
