"""A hash of the installed files, which tells apart states of the product that have the same version."""

import os
import zlib

_PACKAGES = ("api", "logring", "store", "supervisor")


def installation_hash() -> str:
    """Return a hash of the installed files, with their names and without bytecode.

    It takes about 20 ms. CRC-32 distinguishes states well enough, and the root need not load OpenSSL for it.

    Raises:
        OSError: a file cannot be read.
    """
    parent = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    crc = 0
    for package in _PACKAGES:
        for directory, folders, names in os.walk(os.path.join(parent, package)):
            folders[:] = sorted(name for name in folders if name != "__pycache__")
            for name in sorted(names):
                path = os.path.join(directory, name)
                with open(path, "rb") as file:
                    crc = zlib.crc32(file.read(), zlib.crc32(os.fsencode(os.path.relpath(path, parent)), crc))
    return f"{crc:08x}"
