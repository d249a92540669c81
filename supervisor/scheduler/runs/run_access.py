"""The access that ``may`` gives a run to the daemon: URL, token and the ``ringward`` program."""

import ipaddress
import os
import sys
from collections.abc import Mapping

from msgspec import Struct

import supervisor
from supervisor.ipc import run_token
from supervisor.ipc.messages import DaemonSettings

TOKEN = "RINGWARD_TOKEN"  # noqa: S105 - the name of a variable
FOLDER = os.path.join(os.path.dirname(os.path.abspath(supervisor.__file__)), "path")
"""Directory that contains only the ``ringward`` program."""


class RunAccess(Struct, frozen=True):
    """The access that the daemon grants to its runs."""

    url: str
    key: str

    @classmethod
    def of(cls, settings: DaemonSettings) -> "RunAccess":
        """Return the access to the daemon that `settings` describes."""
        return cls(_url(settings), settings.run_token_key)

    def variables(self, run_id: str, env: Mapping[str, str]) -> dict[str, str]:
        """Return the variables to add to `env`, the run's own variables; none if the daemon has no key for tokens."""
        if not self.key:
            return {}
        path = env.get("PATH") or os.environ.get("PATH") or os.defpath
        return {
            "RINGWARD_URL": self.url,
            TOKEN: run_token.make(self.key, run_id),
            "RINGWARD_PYTHON": sys.executable,
            "PATH": f"{path}:{FOLDER}",
        }


def _url(settings: DaemonSettings) -> str:
    """Return a TCP address that needs neither a certificate nor a trusted proxy, else the Unix socket."""
    for host, port in () if settings.tls_cert else settings.listen:
        address = ipaddress.ip_address(host)
        if port and (address.is_loopback or address.is_unspecified):
            local = ("127.0.0.1" if address.version == 4 else "::1") if address.is_unspecified else host
            return f"http://{f'[{local}]' if ':' in local else local}:{port}{settings.base_path}"
    return f"unix:{settings.http_socket}"
