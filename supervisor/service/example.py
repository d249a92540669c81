"""The configuration that is written where there is none."""

from supervisor.config.lookup import SYSTEM_DATA


def text(path: str, data: str) -> str:
    """A configuration without tasks that says how to go on.

    Args:
        path: where it is written.
        data: the data directory.
    """
    told = f'data_dir = "{data}"' if data != SYSTEM_DATA else f'# data_dir = "{data}"'
    return f"""\
# What Ringward runs, and when. "ringward validate" checks this file, "ringward reload" brings a change into force.

[daemon]
{told}

[http]
# The dashboard and the API. Other hosts reach them through TLS or a proxy only.
listen = ["127.0.0.1:7464"]
# Without a password of yours one is made at each start, which "ringward password" shows. Yours stands in the first line
# of a file that nobody else can read.
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
