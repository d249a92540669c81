r"""Files of variables for ``env_file`` and ``secrets_file``.

::

    # a comment
    NAME=value             blanks around the value are ignored; " #" begins a comment
    export NAME=value      the same
    NAME='value'           taken literally; may span several lines
    NAME="value"           \n and \t are a newline and a tab; \", \\ and \$ are the characters themselves

A name is any text without blanks and ``=`` that does not begin with a quote or ``#``, such as ``app.name``. References
to variables are not expanded.
"""

import re

from supervisor.config.problems import InvalidValue

_BLANK = re.compile(r"[ \t\r]*(?:#[^\n]*)?(?:\n|\Z)")
_NAME = re.compile(r"[ \t]*(?:export[ \t]+)?([^\s=#'\"\0][^\s=\0]*)[ \t]*=[ \t]*")
_SINGLE = re.compile(r"'([^']*)'")
_DOUBLE = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_COMMENT = re.compile(r"\s#.*")
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\", "$": "$", "\n": ""}


def parse_variables(text: str) -> dict[str, str]:
    """Return the variables in the text of a file, in order; a repeated name gets the last value.

    Raises:
        InvalidValue: a line is invalid; the message has its number, but not its content, which may be secret.
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
    """Return the value that begins at `at`, and the position of the next line."""
    if text[at : at + 1] not in ("'", '"'):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        return _COMMENT.sub("", text[at - 1 : end])[1:].strip(), end + 1  # includes the blank before a comment
    quoted = (_SINGLE if text[at] == "'" else _DOUBLE).match(text, at)
    line_end = _BLANK.match(text, quoted.end()) if quoted else None
    if quoted is None or line_end is None:
        raise _wrong(text, at, "has an unterminated quote, or text after it")
    value = quoted[1]
    if text[at] == '"':
        value = _ESCAPE.sub(lambda match: _ESCAPES.get(match[1], match[0]), value)
    return value, line_end.end()


def _wrong(text: str, at: int, problem: str) -> InvalidValue:
    return InvalidValue(f"line {text.count(chr(10), 0, at) + 1} {problem}", show=False)
