"""``${VAR}``, ``${VAR:-default}`` and ``${file:PATH}`` in configuration values.

::

    ${VAR}            the environment variable; an error if it is not set
    ${VAR:-default}   the default if the variable is not set or empty
    ${file:PATH}      content of a file, without newlines at the end; PATH is relative to the configuration file
    $${               a literal ${

Variables of the daemon (``RINGWARD_*``) are rejected, because its processes that read the configuration do not have
them. Substituted text is not substituted again.

Values of a step may also have references, which are resolved when its run begins. Text that was substituted is never
one::

    ${step:NAME.KEY}    an output of an earlier step, or its exit_code; ${step:NAME.KEY:-default} has a default
    ${param:NAME}       a parameter of the flow
    ${each:NAME}        the item of a list of the step
    ${flow:id}          the id of the flow's run; ${flow:scheduled_at}: its scheduled time
"""

import os
import re
import stat
from collections.abc import Callable, Iterable, Mapping

from supervisor.config.problems import InvalidValue
from supervisor.config.value_records import Reference, Template

MAX_FILE_BYTES = 64 * 1024

_REFERENCE = re.compile(r"(\$\$\{)|\$\{([^}]*)\}|(\$\{)")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UNDECODED = re.compile("[\ud800-\udfff]")
"""Lone surrogates, by which os.environ represents bytes that are not UTF-8."""
_KIND = "(?:step|param|each|flow):(?=[A-Za-z_])"
_RUN_TIME = re.compile(f"{_KIND}.*", re.DOTALL)
_IN_ARGUMENT = re.compile(rf"(\$\$\{{(?={_KIND}))|\$\{{({_KIND}[^}}]*)\}}|(\$\{{{_KIND})")
"""References in an argument of a command, where ``${`` belongs to the program otherwise."""
_STEP_REFERENCE = re.compile(r"([A-Za-z_][A-Za-z0-9_-]*)\.([A-Za-z_][A-Za-z0-9_-]*)(?::-(.*))?", re.DOTALL)
_OTHER_REFERENCES = {
    "param": re.compile("[A-Za-z0-9_-]+"),
    "each": re.compile("[A-Za-z0-9_-]+"),
    "flow": re.compile("id|scheduled_at"),
}
_REFERENCES = (
    "write ${step:NAME.KEY}, ${step:NAME.KEY:-default}, ${param:NAME}, ${each:NAME}, ${flow:id} or ${flow:scheduled_at}"
)
_HOW = 'write "${NAME}", "${NAME:-default}" or "${file:PATH}"; "$${" stands for a literal "${"'


class Substituted(str):
    """A string with substitutions; `raw` is the string in the file, which messages show instead."""

    __slots__ = ("raw", "template")
    raw: str
    template: Template
    """The parts of the string: texts, and references, which the string has as the file has them."""


def as_written(value: object) -> object:
    """Return a value for a message: a string with substitutions as it is in the file."""
    return value.raw if isinstance(value, Substituted) else value


def substitute(
    text: str,
    environ: Mapping[str, str],
    directory: str,
    on_read: Callable[[str, os.stat_result], None] | None = None,
    *,
    referable: bool = False,
) -> str:
    """Return `text` with all references replaced; without references, the same object.

    Args:
        text: a value in the file.
        environ: the environment variables.
        directory: the base of relative paths.
        on_read: called with path and status of each file that was read.
        referable: whether the value may have references to steps, which stay.

    Raises:
        InvalidValue: a reference is malformed or has no value.
    """

    def replace(match: re.Match[str]) -> str | Reference:
        if match[1]:
            return "${"
        if match[2] is None:
            raise InvalidValue("has a ${ without its }", _HOW)
        if referable and _RUN_TIME.fullmatch(match[2]):
            return _reference(match[2])
        if match[2].startswith("file:"):
            if match[2] == "file:":
                raise InvalidValue("has a ${file:…} that names no file", _HOW)
            if "\0" in match[2]:
                raise InvalidValue("must not contain a NUL character", show=False)
            return _content(os.path.join(directory, match[2].removeprefix("file:")), on_read)
        return _value(match[2], environ)

    return text if "${" not in text else _replaced(text, _REFERENCE, replace)


def refers(command: str) -> bool:
    """Return whether a text for a shell has a reference to a step."""
    match = _IN_ARGUMENT.search(command)
    return match is not None and not match[1]


def referring(argument: str) -> str:
    """Return an argument of a command, in which only references to steps have a meaning, and ``$${`` before them.

    Raises:
        InvalidValue: a reference is malformed.
    """

    def replace(match: re.Match[str]) -> str | Reference:
        if match[3]:
            raise InvalidValue("has a ${ without its }", _REFERENCES)
        return "${" if match[1] else _reference(match[2])

    return _replaced(argument, _IN_ARGUMENT, replace) if _IN_ARGUMENT.search(argument) else argument


def _replaced(text: str, pattern: re.Pattern[str], replace: Callable[[re.Match[str]], str | Reference]) -> Substituted:
    parts: list[str | Reference] = []
    written: list[str] = []
    end = 0
    for match in pattern.finditer(text):
        found = replace(match)
        parts += [text[end : match.start()], found]
        written += [text[end : match.start()], found if isinstance(found, str) else match[0]]
        end = match.end()
    result = Substituted("".join(written) + text[end:])
    result.raw = text
    result.template = _joined([*parts, text[end:]])
    return result


def _joined(parts: Iterable[str | Reference]) -> Template:
    """Return parts with one text in place of adjacent ones."""
    template: list[str | Reference] = []
    for part in parts:
        if isinstance(part, str) and template and isinstance(template[-1], str):
            template[-1] += part
        elif part:
            template.append(part)
    return tuple(template)


def _reference(text: str) -> Reference:
    """Return the reference that ``${TEXT}`` is."""
    of, _, rest = text.partition(":")
    if of == "step" and (match := _STEP_REFERENCE.fullmatch(rest)):
        return Reference("step", match[1], match[2], match[3])
    if of != "step" and _OTHER_REFERENCES[of].fullmatch(rest):
        return Reference(of, rest)  # type: ignore[arg-type]
    raise InvalidValue(f"has the invalid reference ${{{text}}}", _REFERENCES, show=False)


def variables_in(value: str) -> frozenset[str]:
    """Return the names of the environment variables that were substituted in a value."""
    raw = value.raw if isinstance(value, Substituted) else ""
    texts = (reference[2] for reference in _REFERENCE.finditer(raw) if reference[2])
    return frozenset(text.partition(":-")[0] for text in texts if not text.startswith("file:"))


def _value(reference: str, environ: Mapping[str, str]) -> str:
    name, has_default, default = reference.partition(":-")
    if _RUN_TIME.fullmatch(reference):
        message = f"has the reference ${{{reference}}}, which only run, env, params and each of a step can have"
        raise InvalidValue(message, 'to get this text, write "$${"', show=False)
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
