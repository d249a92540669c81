"""The daemon itself."""

import socket
import time
from typing import Any

from msgspec import UNSET

from api import schemas
from api.context import Context
from api.identity import Role
from api.known import known_rfc3339
from api.operation import Call, Operation, json_of
from api.times import rfc3339
from store import meta
from supervisor.version import VERSION

META_KEY = "info"


def get_daemon(context: Context, call: Call) -> None:
    """What it is and how it does; also while the scheduler is away, then as that one left it."""
    boot = context.boot
    answer = context.scheduler.info(context)
    info: dict[str, Any] = answer or context.reads(meta.get_meta, META_KEY, {})
    path = info.get("config_path", boot.config_path)
    loaded_at = info.get("config_loaded_at")
    call.answer(
        schemas.DaemonInfo(
            version=VERSION,
            started_at=rfc3339(boot.started_at),
            uptime_ms=max(0, time.time_ns() // 1_000_000 - boot.started_at),
            config_path=path,
            config_loaded_at=known_rfc3339(loaded_at),
            config_stale=bool(info.get("config_stale")),
            config_warnings=[str(warning) for warning in info.get("config_warnings", ())],
            timezone=info.get("timezone") or UNSET,
            scheduler_active=answer is not None,
            store="sqlite" if boot.database_url is None else "postgresql",
            hostname=socket.gethostname(),
            tasks=info.get("tasks", 0),
            services=info.get("services", 0),
            left_running=[
                schemas.LeftRunning(run_id=left["run"], task_name=left["task"], processes=left["processes"])
                for left in (answer or {}).get("left_running", ())
            ],
        )
    )


OPERATIONS = (
    Operation(
        method="GET",
        path="/api/daemon",
        id="getDaemon",
        role=Role.VIEWER,
        summary="Get daemon info.",
        handler=get_daemon,
        answers={200: json_of(schemas.DaemonInfo)},
        tag="daemon",
    ),
)
