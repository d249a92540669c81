"""Handlers for the daemon: its state, identity, configuration, health checks, slots and host."""

import contextlib
import hashlib
import os
import socket
import time
from datetime import UTC, datetime
from typing import Any

import falcon
from msgspec import UNSET, structs

from api.auth.identity import Role
from api.errors import ApiError, unavailable
from api.host_info import sample_events
from api.operations.intermediaries import sign_of_another_client, through_proxy
from api.operations.operation import Access, Call, Operation, json_of
from api.operations.parameters import flag, instant, integer
from api.resources.upcoming import open_window
from api.schemas import records as schemas
from api.schemas.daemon_info import (
    CalendarDay,
    Calendars,
    CalendarYear,
    ChangedUnit,
    DaemonInfo,
    Export,
    LeftRunning,
    MaxRunning,
    Reloaded,
    SilentTask,
    Slot,
    SlotRun,
    Slots,
    System,
    SystemMetrics,
)
from api.schemas.pauses import pause_of
from api.schemas.task_view import attributed
from api.schemas.wire_times import known_rfc3339, rfc3339
from api.server.client_address import is_local_socket, parse_address
from api.worker_context import Context, is_ready
from store import daemon_values, metrics
from store.database import Database
from supervisor.host.files import DAMAGED, read_json
from supervisor.ipc.messages import DaemonSettings
from supervisor.version import VERSION

META_KEY = "info"


@Operation("GET", "/api/daemon", role=Role.VIEWER, answers={200: json_of(DaemonInfo)}, tag="daemon")
def get_daemon(context: Context, call: Call) -> None:
    """Get daemon info.

    While the scheduler is down, return the state that it stored last.
    """
    settings, starting = context.settings, context.starting
    answer = context.scheduler.info(context)
    problem = database_problem(settings)
    info: dict[str, Any] = answer or (
        {} if problem or starting else context.reads(daemon_values.get_meta, META_KEY, {})
    )
    path = info.get("config_path", settings.config_path)
    loaded_at = info.get("config_loaded_at")
    call.answer(
        DaemonInfo(
            version=VERSION,
            started_at=rfc3339(settings.started_at),
            uptime_ms=max(0, time.time_ns() // 1_000_000 - settings.started_at),
            config_path=path,
            config_loaded_at=known_rfc3339(loaded_at),
            config_stale=bool(info.get("config_stale")),
            config_warnings=[*info.get("config_warnings", ()), *info.get("config_advice", ())],
            config_advice=info.get("config_advice", []),
            timezone=info.get("timezone") or UNSET,
            public_units=[] if settings.status_page is None else settings.public,
            scheduler_active=answer is not None,
            starting=starting,
            database_problem=UNSET if problem is None else problem["detail"],
            store="sqlite" if settings.database_url is None else "postgresql",
            hostname=socket.gethostname(),
            tasks=info.get("tasks", 0),
            services=info.get("services", 0),
            exports=[_export(export) for export in info.get("exports", ())],
            left_running=[
                LeftRunning(run_id=leftover["run"], task_name=leftover["task"], processes=leftover["processes"])
                for leftover in (answer or {}).get("left_running", ())
            ],
            silent_task_count=info.get("silent_task_count", 0),
            silent_tasks=[
                SilentTask(task["name"], rfc3339(task["runs_again_at"])) for task in info.get("silent_tasks", ())
            ],
            pause=UNSET if problem or starting else attributed(schemas.Withholding, context.reads(_pause)),
            windows=[open_window(opening) for opening in (answer or {}).get("windows", ())],
            removals_held_until=known_rfc3339(info.get("removals_held_until")),
            inotify_problems=info.get("inotify_problems", []),
            log_problems=info.get("log_problems", []),
        )
    )


def _export(export: dict[str, Any]) -> Export:
    return Export(
        name=export["name"],
        type=export["type"],
        behind_lines=export["behind_lines"],
        behind_runs=export["behind_runs"],
        delivered_lines=export["delivered"],
        skipped_lines=export["skipped"],
        lost_runs=export["lost_runs"],
        delivered_at=known_rfc3339(export["delivered_at"]),
        error=export["error"] or UNSET,
        failing_since=known_rfc3339(export["failing_since"]),
    )


def _pause(db: Database) -> dict[str, Any] | None:
    pause: dict[str, Any] | None = daemon_values.get_meta(db, "pause")
    return pause


@Operation("POST", "/api/daemon/pause", role=Role.OPERATOR, body=schemas.PauseBody, tag="daemon")
def pause_daemon(context: Context, call: Call) -> None:
    """Pause all schedules together, beside the pauses of single tasks."""
    context.command("daemon_pause", call.entry(), by=call.by, **pause_of(call.body))
    call.no_content()


@Operation("POST", "/api/daemon/resume", role=Role.OPERATOR, tag="daemon")
def resume_daemon(context: Context, call: Call) -> None:
    """Resume all schedules from now on, except those of tasks that are paused themselves."""
    context.command("daemon_resume", call.entry(), by=call.by)
    call.no_content()


@Operation("POST", "/api/daemon/trust-clock", role=Role.ADMIN, tag="daemon")
def trust_clock(context: Context, call: Call) -> None:
    """Confirm that the wall clock is right, so that old runs are removed."""
    context.command("clock_trust", call.entry(), by=call.by)
    context.scheduler.forget()
    call.no_content()


def _from_this_host(req: falcon.Request) -> bool:
    """Return whether the client runs on this host, without a proxy in between.

    A proxy on this host may forward requests from other hosts, so a request that passed a proxy does not count. A
    session cookie says nothing about the host.
    """
    if is_local_socket(req.env):
        return not sign_of_another_client(req)
    if through_proxy(req):
        return False
    client = parse_address(req.remote_addr)
    return client is not None and client.is_loopback


@Operation(
    "GET", "/api/daemon/identity", role=Role.VIEWER, answers={200: json_of(schemas.DaemonIdentity)}, tag="daemon"
)
def identify_daemon(context: Context, call: Call) -> None:
    """Identify the daemon (from the same host only)."""
    if not _from_this_host(call.req):
        raise ApiError(403, "Permitted only to programs on the daemon's host, without a proxy")
    settings = context.settings
    fingerprint = hashlib.sha256(f"{settings.daemon_id} {settings.started_at}".encode()).hexdigest()
    call.answer(
        schemas.DaemonIdentity(
            version=VERSION,
            pid=context.daemon_pid,
            config_path=settings.config_path,
            data_dir=settings.data_dir,
            socket_path=settings.http_socket,
            fingerprint=fingerprint,
        )
    )


@Operation(
    "POST",
    "/api/daemon/reload",
    role=Role.ADMIN,
    query=(flag("dry_run", "Only show the changes."),),
    answers={200: json_of(Reloaded)},
    tag="daemon",
)
def reload_daemon(context: Context, call: Call) -> None:
    """Reload the configuration and apply the differences."""
    call.target = "dry run" if call.query["dry_run"] else ""
    arguments = {"by": call.by, "dry_run": bool(call.query["dry_run"])}
    result = context.patient_command("reload", call.entry(), **arguments)
    context.scheduler.forget()
    call.answer(
        Reloaded(
            added=result["added"],
            changed=[ChangedUnit(**unit) for unit in result["changed"]],
            removed=result["removed"],
            warnings=result["warnings"],
        )
    )


@Operation(
    "GET", "/healthz", role=Role.ANYBODY, answers={200: json_of(schemas.Health)}, access=Access.PROBE, tag="health"
)
def get_health(_context: Context, call: Call) -> None:
    """Check that the API server is up."""
    call.answer(schemas.Health())


@Operation(
    "GET", "/readyz", role=Role.ANYBODY, answers={200: json_of(schemas.Health)}, access=Access.PROBE, tag="health"
)
def get_readiness(context: Context, call: Call) -> None:
    """Check that commands are accepted and stored."""
    starting, info = context.starting, context.scheduler.info(context)
    if not os.path.isdir(context.settings.runtime_dir):
        raise unavailable("Not ready: the runtime directory was removed")
    if info is None or not is_ready(info):
        problem = database_problem(context.settings)
        if problem is not None:
            reason = problem["summary"]
        elif info is not None and not info.get("storing", True):
            reason = "the database cannot be written"
        elif starting:
            reason = "the daemon is starting"
        else:
            reason = "the scheduler does not answer" if info is None else "the scheduler is starting"
        raise unavailable(f"Not ready: {reason}")
    call.answer(schemas.Health(status="degraded" if info.get("degraded") else "ok"))


_LISTED = 20
"""Maximum number of listed runs that hold places of a slot, and of runs that wait for it."""


@Operation("GET", "/api/slots", role=Role.VIEWER, scoped=True, answers={200: json_of(Slots)}, tag="daemon")
def list_slots(context: Context, call: Call) -> None:
    """List the slots with their use, and the runs that hold them or wait for them.

    Counts include all runs; the lists have only runs that the client may see.
    """
    slots = context.command("slots", listed=_LISTED)
    limit = slots["max_running"]["limit"]
    call.answer(
        Slots(
            items=[
                Slot(
                    name=slot["name"],
                    size=slot["size"],
                    used=slot["used"],
                    waiting=slot["waiting"],
                    held_by=_visible(call, slot["held_by"]),
                    next_runs=_visible(call, slot["next_runs"]),
                )
                for slot in slots["slots"]
            ],
            max_running=MaxRunning(limit=UNSET if limit is None else limit, running=slots["max_running"]["running"]),
        )
    )


def _visible(call: Call, runs: list[tuple[str, str, int]]) -> list[SlotRun]:
    return [SlotRun(run_id=run, task_name=task, places=places) for run, task, places in runs if call.sees(task)]


@Operation(
    "GET",
    "/api/calendars",
    role=Role.VIEWER,
    query=(integer("year", "Year of the days; default: the present one.", None, minimum=1970, maximum=2200),),
    answers={200: json_of(Calendars)},
    tag="daemon",
)
def list_calendars(context: Context, call: Call) -> None:
    """List the calendars, with their closed days in a year."""
    year = call.query["year"] or datetime.now(UTC).year
    calendars = context.command("calendars", year=year)["calendars"]
    call.answer(
        Calendars(
            year=year,
            items=[
                CalendarYear(
                    name=calendar["name"],
                    country=calendar["country"] or UNSET,
                    subdivision=calendar["subdivision"] or UNSET,
                    days=[CalendarDay(date=day, name=name or UNSET) for day, name in calendar["days"]],
                )
                for calendar in calendars
            ],
        )
    )


_HOUR_MS = 3_600_000
_MAX_STEP_S = 86_400


@Operation("GET", "/api/system", answers={200: json_of(System)}, role=Role.VIEWER, tag="system")
def get_system(context: Context, call: Call) -> None:
    """Get the current state of the host and of the daemon's processes."""
    info = context.scheduler.info(context) or {}
    system = context.system(context.daemon_pid, info.get("pid"))
    # Copy the result, because requests share it and each response sets its own $schema link.
    call.answer(structs.replace(system))


@Operation(
    "GET",
    "/api/system/metrics",
    query=(
        instant("from", "Start of the window; default: an hour before `to`.", up=False),
        instant("to", "End of the window, excluded; default: now.", up=True),
        integer(
            "step",
            "Seconds between two samples; longer if finer ones are not stored or there would be more than 2000.",
            minimum=1,
            maximum=_MAX_STEP_S,
        ),
    ),
    answers={200: json_of(SystemMetrics)},
    role=Role.VIEWER,
    tag="system",
)
def list_system_metrics(context: Context, call: Call) -> None:
    """Get the history of the host: every 5 seconds for a day, every minute for two weeks."""
    now_ms = time.time_ns() // 1_000_000
    end: int = now_ms if call.query["to"] is None else call.query["to"]
    start: int = end - _HOUR_MS if call.query["from"] is None else call.query["from"]
    end = max(start, end)
    wished: int | None = call.query["step"]
    step = metrics.resolution(start, end, now_ms, None if wished is None else wished * 1000)
    samples = context.reads(metrics.samples, start, end, step)
    call.answer(SystemMetrics(items=[sample_events.shown(sample) for sample in samples], step=step // 1000))


def database_problem(settings: DaemonSettings) -> dict[str, str] | None:
    """Return the database problem that the scheduler reported; None if there is none.

    The `summary` is public; the `detail` is for users who may see the daemon.
    """
    with contextlib.suppress(OSError, *DAMAGED):
        problem = read_json(settings.database_problem)
        if problem["daemon"] == settings.started_at:
            return {"summary": str(problem["summary"]), "detail": str(problem["detail"])}
    return None
