"""The daemon settings that follow from the configuration alone, for ``ringward up`` and for reloads."""

from typing import Any

from supervisor.config.model import Config
from supervisor.ipc.messages import StatusPage
from supervisor.startup.host_check import HostValues


def configured_settings(config: Config, resolved: HostValues) -> dict[str, Any]:
    """Return fields of :class:`supervisor.ipc.messages.DaemonSettings` by name.

    Directories, addresses, the password, and the user of the API workers are not among them: they also depend on
    options, on the environment, or on the start of the daemon.
    """
    http, database = config.http, config.storage.database
    page = http.status_page
    return {
        "socket_gid": resolved.socket_gid,
        "proxy_socket": http.proxy_socket,
        "hosts": resolved.hosts,
        "external_url": http.external_url,
        "base_path": http.base_path,
        "behind_proxy": list(http.behind_proxy),
        "identity": resolved.identity,
        "tls_cert": http.tls_cert,
        "tls_key": http.tls_key,
        "api_user": http.user,
        "workers": http.workers,
        "metrics_open": http.metrics_open,
        "public": list(http.public),
        "status_page": page
        and StatusPage(
            title=page.title,
            text=page.text,
            sections={heading: list(names) for heading, names in page.sections},
            embed=list(page.embed),
        ),
        "min_free_bytes": config.storage.min_free_bytes,
        "shutdown_timeout_ms": config.daemon.shutdown_timeout_ms,
        "cgroups": config.daemon.cgroups,
        "database_url": None if database is None else database.url,
        "log_level": config.daemon.log_level,
    }
