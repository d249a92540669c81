"""The keys by which clients find a running daemon.

The table of all keys is not loaded for them, because that would take half as long as the rest of a short command.
"""

from collections.abc import Mapping
from typing import Final

from supervisor.config.files.reading import read_keys
from supervisor.config.keys import Key
from supervisor.config.problems import Problem
from supervisor.config.table_reader import TableReader, Values
from supervisor.config.value_types.values import FilePath

_MAX_SOCKET_PATH_BYTES = 107
"""The size of sun_path (unix(7)) without the terminating NUL."""

DATA_DIR: Final = FilePath()
SOCKET: Final = FilePath(_MAX_SOCKET_PATH_BYTES)
_KEYS: Final = {
    "daemon": {"data_dir": Key("data_dir", DATA_DIR, None, "")},
    "http": {"socket": Key("socket", SOCKET, None, "")},
}


def load_client_keys(path: str, environ: Mapping[str, str]) -> tuple[Values, Problem | None]:
    """Load ``data_dir`` and ``socket`` even if the rest of the file is invalid.

    Returns:
        The keys that are set, and the reason why root must not trust the file, if any.

    Raises:
        ConfigError: the file cannot be read, or one of the two keys is invalid.
    """
    reader = TableReader(environ)
    main, distrusted = read_keys(path, [(table, key) for table, keys in _KEYS.items() for key in keys])
    values: Values = {}
    for table, keys in _KEYS.items():
        values |= reader.section(main, table, keys)
    reader.finish()
    return values, distrusted
