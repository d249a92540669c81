r"""Files of variables, as ``env_file`` and ``secrets_file`` name them.

::

    # a comment
    NAME=value             blanks around it do not count; from " #" on it is a comment
    export NAME=value      the same
    NAME='value'           as it stands, over several lines if need be
    NAME="value"           \n, \t, \", \\ and \$ stand for a newline, a tab and themselves

A name is any text without blanks and ``=`` that begins with neither a quote nor ``#``, such as ``app.name``. Nothing is
substituted.
"""

import re

from supervisor.config.problems import Invalid

_BLANK = re.compile(r"[ \t\r]*(?:#[^\n]*)?(?:\n|\Z)")
_NAME = re.compile(r"[ \t]*(?:export[ \t]+)?([^\s=#'\"\0][^\s=\0]*)[ \t]*=[ \t]*")
_SINGLE = re.compile(r"'([^']*)'")
_DOUBLE = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_COMMENT = re.compile(r"\s#.*")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\", "$": "$", "\n": ""}


def parse_variables(text: str) -> dict[str, str]:
    """Return the variables of a file, in their order; of a name that comes twice the last value.

    Raises:
        Invalid: a line cannot be read; it is named by its number, its content is not shown.
    """
    variables: dict[str, str] = {}
    at = 0
    while at < len(text):
        if blank := _BLANK.match(text, at):
            at = blank.end()
            continue
        name = _NAME.match(text, at)
        if name is None:
            raise _wrong(text, at, "is not NAME=value")
        variables[name[1]], at = _value(text, name.end())
    return variables


def _value(text: str, at: int) -> tuple[str, int]:
    """Return the value that begins at `at`, and where the next line begins."""
    if text[at : at + 1] not in ("'", '"'):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        return _COMMENT.sub("", text[at - 1 : end])[1:].strip(), end + 1  # the blank of a comment may stand before it
    quoted = (_SINGLE if text[at] == "'" else _DOUBLE).match(text, at)
    rest = _BLANK.match(text, quoted.end()) if quoted else None
    if quoted is None or rest is None:
        raise _wrong(text, at, "has an unterminated quote, or text after it")
    value = quoted[1]
    if text[at] == '"':
        value = _ESCAPE.sub(lambda found: _ESCAPES.get(found[1], found[0]), value)
    return value, rest.end()


def _wrong(text: str, at: int, what: str) -> Invalid:
    return Invalid(f"line {text.count(chr(10), 0, at) + 1} {what}", show=False)
