"""``${VAR}``, ``${VAR:-default}`` and ``${file:PATH}`` in configuration values.

::

    ${VAR}            the environment variable; an error if it is not set
    ${VAR:-default}   the default if the variable is not set or empty
    ${file:PATH}      content of a file, without newlines at the end; PATH is relative to the configuration file
    $${               a literal ${

Variables of the daemon (``RINGWARD_*``) are rejected, because its processes that read the configuration do not have
them. Substituted text is not substituted again.
"""

import os
import re
import stat
from collections.abc import Callable, Mapping

from supervisor.config.problems import InvalidValue

MAX_FILE_BYTES = 64 * 1024

_REFERENCE = re.compile(r"(\$\$\{)|\$\{([^}]*)\}|(\$\{)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UNDECODED = re.compile("[\ud800-\udfff]")
"""Lone surrogates, by which os.environ represents bytes that are not UTF-8."""
_HOW = 'write "${NAME}", "${NAME:-default}" or "${file:PATH}"; "$${" stands for a literal "${"'


class Substituted(str):
    """A string with substitutions; `raw` is the string in the file, which messages show instead."""

    __slots__ = ("raw",)
    raw: str


def as_written(value: object) -> object:
    """Return a value for a message: a string with substitutions as it is in the file."""
    return value.raw if isinstance(value, Substituted) else value


def substitute(
    text: str, environ: Mapping[str, str], directory: str, on_read: Callable[[str, os.stat_result], None] | None = None
) -> str:
    """Return `text` with all references replaced; without references, the same object.

    Args:
        text: a value in the file.
        environ: the environment variables.
        directory: the base of relative paths.
        on_read: called with path and status of each file that was read.

    Raises:
        InvalidValue: a reference is malformed or has no value.
    """
    if "${" not in text:
        return text

    def replace(match: re.Match[str]) -> str:
        if match[1]:
            return "${"
        if match[2] is None:
            raise InvalidValue("has a ${ without its }", _HOW)
        if match[2].startswith("file:"):
            if match[2] == "file:":
                raise InvalidValue("has a ${file:…} that names no file", _HOW)
            if "\0" in match[2]:
                raise InvalidValue("must not contain a NUL character", show=False)
            return _content(os.path.join(directory, match[2].removeprefix("file:")), on_read)
        return _value(match[2], environ)

    result = Substituted(_REFERENCE.sub(replace, text))
    result.raw = text
    return result


def variables_in(value: str) -> frozenset[str]:
    """Return the names of the environment variables that were substituted in a value."""
    raw = value.raw if isinstance(value, Substituted) else ""
    texts = (reference[2] for reference in _REFERENCE.finditer(raw) if reference[2])
    return frozenset(text.partition(":-")[0] for text in texts if not text.startswith("file:"))


def _value(reference: str, environ: Mapping[str, str]) -> str:
    name, has_default, default = reference.partition(":-")
    if not _NAME.fullmatch(name):
        raise InvalidValue("has a ${…} that names no variable", _HOW)
    if name.startswith("RINGWARD_"):
        raise InvalidValue(f"{name} belongs to the daemon and cannot be used in the configuration", show=False)
    value = environ.get(name)
    if value is not None and _UNDECODED.search(value):
        raise InvalidValue(f"the environment variable {name} is not UTF-8", show=False)
    if has_default:
        return value or default
    if value is None:
        raise InvalidValue(
            f"the environment variable {name} is not set",
            f'set it, or give a default: "${{{name}:-default}}"',
            show=False,
        )
    return value


def _content(path: str, on_read: Callable[[str, os.stat_result], None] | None) -> str:
    try:
        data, status = read_small(path)
    except OSError as err:
        raise InvalidValue(f"{path} cannot be read: {err.strerror or err}", show=False) from err
    if on_read is not None:
        on_read(path, status)
    try:
        return data.decode().rstrip("\r\n")
    except UnicodeDecodeError as err:
        raise InvalidValue(f"{path} is not UTF-8", show=False) from err


def read_small(path: str, limit: int = MAX_FILE_BYTES) -> tuple[bytes, os.stat_result]:
    """Return content and status of a regular file of at most `limit` bytes; does not block on a FIFO.

    Raises:
        OSError: the file cannot be read, is not a regular file, or is too large.
    """
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise OSError("it is not a regular file")
        data = b""
        while chunk := os.read(fd, limit + 1 - len(data)):
            data += chunk
            if len(data) > limit:
                raise OSError(f"it is larger than {limit} bytes")
        return data, status
    finally:
        os.close(fd)
