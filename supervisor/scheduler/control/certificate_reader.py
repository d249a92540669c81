"""The certificate of the API, read for workers of another user, who cannot read its key themselves."""

import os
from typing import Any

from supervisor.config.model import Config
from supervisor.scheduler.control.control_socket import Operation, Reply, done, refused
from supervisor.scheduler.reload.config_files import ConfigFiles

_MAX_BYTES = 1 << 20
_Found = tuple[str, str | None]


class Certificate:
    """Reads it when a worker asks, which has it read again as soon as the files have changed.

    Args:
        files: has a thread for that.
        config: in force.
    """

    def __init__(self, files: ConfigFiles, config: Config) -> None:
        self._files = files
        self.configure(config)

    def configure(self, config: Config) -> None:
        """Go by this one from now on."""
        self._paths = [path for path in (config.http.tls_cert, config.http.tls_key) if path is not None]

    def operations(self) -> dict[str, Operation]:
        """By name."""
        return {"certificate": self.command}

    def command(self, arguments: dict[str, Any], reply: Reply) -> None:
        """Answer with the certificate chain and its key as PEM, and their version; without them when it is known."""
        paths, known = self._paths, arguments["version"]

        def found(result: _Found | BaseException) -> None:
            if isinstance(result, BaseException):
                reply(refused(409, f"the certificate cannot be read: {result}"))
            else:
                reply(done(version=result[0], pem=result[1]))

        self._files.submit(lambda: _look(paths, known), found)


def _look(paths: list[str], known: str | None) -> _Found:
    version = " ".join(map(_version, paths))
    return version, None if version == known else "".join(map(_read, paths))


def _version(path: str) -> str:
    status = os.stat(path)
    return f"{status.st_ino}-{status.st_size}-{status.st_mtime_ns}"


def _read(path: str) -> str:
    with open(path, encoding="ascii", errors="replace") as file:
        return file.read(_MAX_BYTES) + "\n"
