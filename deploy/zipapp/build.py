"""``python -m deploy.zipapp.build OUTPUT [LEVEL]``: put Ringward and its dependencies into one file.

The dependencies come from the environment of the Python that runs this program; nothing is downloaded. The file works
with Pythons of the same version, processor and C library. The same sources and installed packages give the same file.
LEVEL is the compression level, from 1 (fast) to 9 (small).
"""

import hashlib
import importlib.metadata
import json
import os
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from pathlib import Path

from deploy.release.build import epoch
from deploy.release.materials import bill, needs
from deploy.version import ROOT, SOURCE, source, version

PACKAGES = ("api", "logring", "store", "supervisor")
EXTRAS = "calendars,postgresql"
_LEFT_OUT = {"__pycache__", "sqlite_extra_binaries", "tests"}
_SOURCES = {".c", ".h", ".pxd", ".pyc", ".pyi", ".pyx"}
_TIME = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip file can store."""


def files() -> Iterator[tuple[str, Path]]:
    """Yield name below site-packages and path of each file: first of dependencies, then of Ringward."""
    for distribution in map(importlib.metadata.distribution, sorted(needs(EXTRAS).keys() - {"ringward"})):
        for file in distribution.files or ():
            if file.parts[0] != "..":  # scripts
                yield str(file), Path(str(distribution.locate_file(file)))
    yield "ringward.py", ROOT / "ringward.py"
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*"):
            if path.is_file():
                yield f"ringward/{path.relative_to(ROOT)}", path


def wanted(name: str) -> bool:
    """Return whether the program needs a file at run time, or a licence requires it."""
    *folders, _ = parts = name.split("/")
    return not _LEFT_OUT.intersection(folders) and os.path.splitext(parts[-1])[1] not in _SOURCES


def build(output: Path, level: int) -> None:
    """Write the file atomically."""
    number = version()
    contents = {name: path.read_bytes() for name, path in sorted(files()) if wanted(name)}
    contents[f"ringward/{SOURCE}"] = source(number).encode()
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()}
    manifest = json.dumps(hashes).encode()
    about = {
        "version": number,
        "id": hashlib.sha256(manifest).hexdigest(),
        "suffix": sysconfig.get_config_var("EXT_SUFFIX"),
    }
    members = {
        "__main__.py": Path(__file__).with_name("start.py").read_bytes(),
        "ringward.cdx.json": bill(needs(EXTRAS), number, epoch()).encode(),
        "LICENSE": (ROOT / "LICENSE").read_bytes(),
        "about.json": json.dumps(about).encode(),
        "manifest.json": manifest,
        **{f"site/{name}": data for name, data in contents.items()},
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    new = output.with_name(f"{output.name}.new")
    with new.open("wb") as file:
        file.write(f"#!/usr/bin/env python{sys.version_info.major}.{sys.version_info.minor}\n".encode())
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in members.items():
                archive.writestr(zipfile.ZipInfo(name, _TIME), data, zipfile.ZIP_DEFLATED, level)
    new.chmod(0o755)
    new.replace(output)


if __name__ == "__main__":
    build(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 6)
