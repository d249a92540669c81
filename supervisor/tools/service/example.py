"""The configuration that is written where there is none."""

from supervisor.config.files.lookup import SYSTEM_DATA


def text(path: str, data: str) -> str:
    """Return a configuration without tasks that says how to go on.

    Args:
        path: where it is written.
        data: the data directory.
    """
    told = f'data_dir = "{data}"' if data != SYSTEM_DATA else f'# data_dir = "{data}"'
    return f"""\
# The tasks and services of Ringward. "ringward validate" checks this file, "ringward reload" applies a change.

[daemon]
{told}

[http]
# The dashboard and the API. Other hosts need TLS or a proxy to reach them.
listen = ["127.0.0.1:7464"]
# Without a password file, each start generates a password; "ringward password" shows it. The file has the password in
# its first line, and only its owner may read it.
# password_file = "{path.rpartition("/")[0]}/password"

# [tasks.backup]
# cron = "30 2 * * *"
# run = "pg_dump app > /var/backups/app.sql"
# user = "postgres"
# timeout = "1h"

# [services.web]
# run = ["/usr/bin/python3", "-m", "http.server", "8080"]
# user = "nobody"
"""
