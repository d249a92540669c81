"""The daemon's password: a configured one, or a random one for this start."""

import base64
import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from supervisor.config.problems import UnusableObject

VARIABLE = "RINGWARD_PASSWORD"
MIN_CHARS = 8
_MAX_FILE_BYTES = 4096
_RANDOM_BYTES = 18
_KEY = ("http", "password_file")


@dataclass(frozen=True)
class Password:
    """A password and its origin."""

    value: str = field(repr=False)
    origin: str
    """A text about the origin, for users."""
    ephemeral: bool = False
    """Whether it was generated for this start, and changes with the next one."""


def resolve_password(environ: Mapping[str, str], password_file: str | None) -> Password:
    """Return the password: RINGWARD_PASSWORD, else the first line of `password_file`, else a random one.

    Raises:
        UnusableObject: the configured password file cannot be read, or the password is too short.
    """
    if VARIABLE in environ:
        return _checked(environ[VARIABLE], f"set by {VARIABLE}", VARIABLE)
    if password_file:
        try:
            return _checked(_first_line(password_file), f"from {password_file}", password_file)
        except UnusableObject as err:
            err.path, err.remedy = _KEY, f"the first line must have the password, at least {MIN_CHARS} characters"
            raise
    return Password(
        base64.urlsafe_b64encode(os.urandom(_RANDOM_BYTES)).decode(), "generated at this start", ephemeral=True
    )


def _first_line(path: str) -> str:
    from supervisor.config.files.substitute import read_small

    try:
        data, _status = read_small(path, _MAX_FILE_BYTES)
        return data.decode().split("\n", 1)[0].removesuffix("\r")
    except OSError as err:
        message = f"cannot read the password file {path}: {err.strerror or err}"
        raise UnusableObject(message) from err
    except UnicodeDecodeError as err:
        raise UnusableObject(f"the password file {path} is not UTF-8") from err


def _checked(value: str, origin: str, source: str) -> Password:
    if len(value) < MIN_CHARS:
        problem = "is empty" if not value else f"is shorter than {MIN_CHARS} characters"
        raise UnusableObject(f"the password in {source} {problem}")
    try:
        value.encode()
    except UnicodeEncodeError as err:  # os.environ represents bytes that are not UTF-8 as lone surrogates
        raise UnusableObject(f"the password in {source} is not UTF-8") from err
    return Password(value, origin)
