"""The daemon itself."""

import socket
import time
from typing import Any

from msgspec import UNSET

from api.auth.authentication import asked
from api.auth.identity import Role
from api.host_info.database_problem import database_problem
from api.operations.operation import Call, Operation, json_of
from api.schemas import records as schemas
from api.schemas.known import known_rfc3339
from api.schemas.wire_times import rfc3339
from api.worker_context import Context
from store import meta
from supervisor.version import VERSION

META_KEY = "info"


def get_daemon(context: Context, call: Call) -> None:
    """What it is and how it does; also while the scheduler is away, then as that one left it."""
    boot = context.boot
    answer = context.scheduler.info(context)
    problem = database_problem(boot)
    info: dict[str, Any] = answer or ({} if problem else context.reads(meta.get_meta, META_KEY, {}))
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
            database_problem=UNSET if problem is None else problem["detail"],
            store="sqlite" if boot.database_url is None else "postgresql",
            hostname=socket.gethostname(),
            tasks=info.get("tasks", 0),
            services=info.get("services", 0),
            left_running=[
                schemas.LeftRunning(run_id=left["run"], task_name=left["task"], processes=left["processes"])
                for left in (answer or {}).get("left_running", ())
            ],
            silent_task_count=info.get("silent_task_count", 0),
            silent_tasks=[
                schemas.SilentTask(one["name"], rfc3339(one["runs_again_at"])) for one in info.get("silent_tasks", ())
            ],
            removals_held_until=known_rfc3339(info.get("removals_held_until")),
        )
    )


def trust_clock(context: Context, call: Call) -> None:
    """Let the wall clock as it is set count for removals at once."""
    asked(lambda: context.control.call("clock_trust", by=call.by))
    context.scheduler.forget()
    call.no_content()


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
    Operation(
        method="POST",
        path="/api/daemon/trust-clock",
        id="trustClock",
        role=Role.ADMIN,
        summary="Confirm that the wall clock is right, so that old runs are removed.",
        handler=trust_clock,
        answers={204: None},
        refusals=(503,),
        tag="daemon",
    ),
)
