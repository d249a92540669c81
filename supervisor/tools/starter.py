"""Writes the first configuration of a host or project, with hints about files of other programs to import."""

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from supervisor.config.jsonschema import document
from supervisor.tools.service.rendering import first_config

SCHEMA = "ringward.schema.json"
"""The name of the file with the JSON Schema, in the directory of the configuration."""
DIRECTIVE = f"#:schema ./{SCHEMA}\n"
"""The first line of a configuration, which tells editors with Taplo where the schema is."""

_IN_PROJECT = (
    ("compose", ("compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml")),
    ("pm2", ("ecosystem.config.js", "ecosystem.config.cjs", "ecosystem.config.json")),
    ("procfile", ("Procfile",)),
)
_SUPERVISORD = ("etc/supervisor/supervisord.conf", "etc/supervisord.conf", "usr/local/etc/supervisord.conf")
_CRONTABS = ("etc/crontab", "etc/cron.d/*", "var/spool/cron/crontabs/*", "var/spool/cron/*")
_UNITS = ("etc/systemd/system/*.timer", "etc/systemd/system/*.service")
_NO_JOBS = frozenset({".placeholder", "README"})
_OF_SERVERS = ("start", "serve", "dev")
"""Scripts of package.json that run until they are stopped."""


@dataclass(frozen=True)
class DetectedFiles:
    """Files of another program that were found."""

    kind: str
    """The first argument of ``ringward import``, or ``npm``."""
    files: tuple[str, ...]
    scripts: tuple[str, ...] = ()
    """The names of the scripts in package.json; empty for other files."""

    @property
    def command(self) -> str:
        """Return the command that converts the files; empty if there is none."""
        if self.kind == "npm":
            return ""
        return f"ringward import {self.kind} {shlex.join(self.files)} -o {self.kind}.toml"


def find(directory: Path, root: Path) -> list[DetectedFiles]:
    """Find the files of other programs in a project's directory and on the host below `root`."""
    detections = [
        DetectedFiles(kind, (name,))
        for kind, names in _IN_PROJECT
        for name in [next((each for each in names if (directory / each).is_file()), "")]
        if name
    ]
    scripts = _scripts(directory / "package.json")
    if scripts:
        detections.append(DetectedFiles("npm", ("package.json",), scripts))
    detections += [DetectedFiles("supervisord", (path,)) for path in _files(root, _SUPERVISORD)][:1]
    crontabs = tuple(_files(root, _CRONTABS))
    if crontabs:
        detections.append(DetectedFiles("cron", crontabs))
    units = tuple(_files(root, _UNITS))
    if units:
        detections.append(DetectedFiles("systemd", units))
    return detections


def text(path: str, data: str, detections: list[DetectedFiles]) -> str:
    """Return the text of the configuration, with a comment about each found file.

    Args:
        path: The path of the configuration.
        data: The data directory.
        detections: The found files of other programs.
    """
    parts = [DIRECTIVE, first_config(path, data)]
    for detected in detections:
        parts.append(f"\n# Found: {', '.join(detected.files)}\n")
        if detected.command:
            parts.append(
                "# This command converts it. Read the file that it writes, and name it in `include` of [daemon].\n"
            )
            parts.append(f"#     {detected.command}\n")
        parts += [_commented(detected.files[0], script) for script in detected.scripts]
    return "".join(parts)


def write_schema(directory: Path) -> Path | None:
    """Write the JSON Schema to a directory; return its path, or None if it already existed.

    Raises:
        OSError: the file cannot be written.
    """
    path = directory / SCHEMA
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(json.dumps(document(), indent=2) + "\n")
    except FileExistsError:
        return None
    return path


def _commented(package: str, script: str) -> str:
    """Return a script of package.json as a task or service that is commented out."""
    table = "services" if script in _OF_SERVERS else "tasks"
    name = "".join(letter if letter.isalnum() or letter in "_-" else "-" for letter in script)
    return f'# [{table}.{name}]  # from {package}\n# run = {json.dumps(["npm", "run", script])}\n# working_dir = "."\n'


def _scripts(path: Path) -> tuple[str, ...]:
    """Return the names of the scripts in a package.json; none if it is missing or damaged."""
    try:
        package = json.loads(path.read_text(encoding="utf-8"))
        return tuple(str(name) for name in package["scripts"] if name.isascii())
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return ()


def _files(root: Path, patterns: tuple[str, ...]) -> Iterator[str]:
    """Yield the absolute paths of matching regular files.

    Symbolic links are skipped, because they are units that a package provides or that systemd has enabled.
    """
    for pattern in patterns:
        try:
            paths = sorted(root.glob(pattern))
        except PermissionError:  # only root can list the crontabs of users
            continue
        for path in paths:
            if path.is_file() and not path.is_symlink() and path.name not in _NO_JOBS and str(path).isprintable():
                yield str(path)
