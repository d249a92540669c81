"""Exports: types of values, and the check of a table, whose keys depend on its ``type``."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from msgspec import Struct

from supervisor.config.problems import Faults, InvalidValue
from supervisor.config.value_types.values import Text, TextOf

MAX_EXPORTS = 32
"""Maximum number of exports; each has a process of its own."""
STREAMS: Final = ("stdout", "stderr", "system")
FOR_ALL: Final = ("type", "tasks", "groups", "tags", "streams", "alert_after")
"""Keys of every type."""
OF_TYPE: Final[Mapping[str, tuple[str, ...]]] = {
    "file": ("path", "max_size", "max_age", "keep"),
    "syslog": ("address", "facility", "format", "tls_ca"),
    "journald": (),
    "loki": ("url", "tenant", "username", "password_file", "token_file", "tls_ca"),
    "otlp": ("url", "spans", "tenant", "username", "password_file", "token_file", "tls_ca"),
}
"""The other keys of each type."""
_NEEDED: Final[Mapping[str, str]] = {"file": "path", "syslog": "address", "loki": "url", "otlp": "url"}
"""The key that each type requires."""
FACILITIES: Final = ("user", "daemon", *(f"local{number}" for number in range(8)))
FORMATS: Final = ("rfc3164", "rfc5424")
_PORTS: Final = {"udp": 514, "tcp": 601, "tls": 6514}
"""The usual ports of syslog, by protocol."""
_MAX_SOCKET_PATH_BYTES = 107
"""The size of sun_path (unix(7)) without the terminating NUL."""
HEADER_TEXT: Final = TextOf("printable ASCII without a colon", re.compile("[ -9;-~]+"), 200)
"""A text for an HTTP header; a colon would end a user name."""


class SyslogAddress(Struct, frozen=True):
    """The address of a syslog server: a Unix socket, or a protocol with host and port."""

    expected = 'an address such as "unix:/dev/log", "udp://HOST:514", "tcp://HOST:601" or "tls://HOST:6514"'

    def parse(self, value: object, directory: str) -> str:
        """Return the address of the syslog server."""
        text = Text(limit=1000, empty=False, expected=self.expected).parse(value, directory)
        path = text.removeprefix("unix:")
        if path != text:
            if not path.startswith("/"):
                raise InvalidValue("must be an absolute path", 'write it as in "unix:/dev/log"')
            if len(path.encode()) > _MAX_SOCKET_PATH_BYTES:
                raise InvalidValue(f"must be a path of at most {_MAX_SOCKET_PATH_BYTES} bytes")
            return text
        try:
            parts = urlsplit(text)
            port = _PORTS.get(parts.scheme, 0) if parts.port is None else parts.port
        except ValueError:
            raise InvalidValue(f"must be {self.expected}") from None
        plain = text == f"{parts.scheme}://{parts.netloc}" and "@" not in text
        if not plain or not parts.hostname or not port or parts.scheme not in _PORTS:
            raise InvalidValue(f"must be {self.expected}")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        return f"{parts.scheme}://{host}:{port}"


def check(values: Mapping[str, Any], written: Mapping[str, Any]) -> None:
    """Check that the keys of a table fit its type.

    Args:
        values: the valid values.
        written: the table in the file.

    Raises:
        InvalidParts: keys of another type are set, or a required key is missing.
    """
    kind = values.get("type")
    if kind is None:
        return
    faults = Faults(_misplaced(kind, values))
    key = _NEEDED.get(kind)
    if key is not None and key not in written:
        faults.add(f"an export of type {kind} needs {key}", f'add {key} = "…"')
    if ("username" in written) != ("password_file" in written):
        missing = "password_file" if "username" in written else "username"
        faults.add("username and password_file belong together", f'add {missing} = "…"')
    if "token_file" in written and "username" in written:
        faults.add("cannot be combined with username", "remove one of them", path=("token_file",))
    faults.check()


def _misplaced(kind: str, values: Mapping[str, object]) -> Iterator[InvalidValue]:
    allowed = (*FOR_ALL, *OF_TYPE[kind])
    for key in values:
        if key not in allowed:
            types = " and ".join(other for other, keys in OF_TYPE.items() if key in keys)
            yield InvalidValue(f"not a key of the type {kind}", f"only {types} has this key", show=False, path=(key,))
