"""Labels of ofelia, the scheduler of jobs beside compose services."""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from supervisor.config.value_types.durations import parse_duration
from supervisor.schedule.cron import validate
from supervisor.tools.importers.outcome import Outcome

PREFIX = "ofelia."
_LABEL = re.compile(r"ofelia\.(job-exec|job-run|job-local)\.([^.]+)\.(.+)")
_EVERY = "@every "
_KNOWN = {
    "job-exec": frozenset({"schedule", "command", "container", "user", "no-overlap", "tty", "environment"}),
    "job-run": frozenset(
        {"schedule", "command", "image", "user", "no-overlap", "network", "volume", "environment", "delete"}
    ),
    "job-local": frozenset({"schedule", "command", "dir", "no-overlap", "environment"}),
}


@dataclass(frozen=True)
class Job:
    """One job."""

    kind: str
    name: str
    said: Mapping[str, str]


def jobs(labels: Mapping[str, str | None]) -> Iterator[Job]:
    """Yield the jobs among the labels of a service."""
    found: dict[tuple[str, str], dict[str, str]] = {}
    for label, value in labels.items():
        if parts := _LABEL.fullmatch(label):
            found.setdefault((parts[1], parts[2]), {})[parts[3]] = value or ""
    for (kind, name), said in found.items():
        yield Job(kind, name, said)


def add(job: Job, containers: Callable[[str | None], str], place: str, outcome: Outcome) -> None:
    """Add a job as a task.

    Args:
        job: the job.
        containers: gives the words of a shell for the container with a name; None: that of the service.
        place: of the service.
        outcome: the result that the task is added to.
    """
    where = f"{place} {PREFIX}{job.kind}.{job.name}"
    schedule = job.said.get("schedule", "")
    keys: dict[str, Any] = {}
    if wrong := _scheduled(schedule, keys):
        outcome.note(where, f"the job is not carried over: {wrong}: {dict(job.said)}")
        return
    if job.said.get("no-overlap", "").lower() in ("true", "1"):
        keys["on_overlap"] = "skip"
    command = shlex.split(job.said.get("command", ""))
    for key, value in job.said.items():
        if key not in _KNOWN[job.kind]:
            outcome.note(where, f"{key} = {value} is not carried over")
    variables = job.said.get("environment", "")
    if job.kind == "job-local":
        keys |= {"run": command, "working_dir": job.said.get("dir")}
        outcome.note(where, "ran in the container of ofelia; here it runs on this host")
        if variables:
            outcome.note(where, f"environment = {variables} is not carried over")
    elif job.kind == "job-exec":
        options = _options(job, {"user": "user", "environment": "env"})
        container = containers(job.said.get("container"))
        keys["run"] = f"exec docker exec {shlex.join(options)}{' ' if options else ''}{container} {shlex.join(command)}"
    else:
        options = _options(job, {"user": "user", "environment": "env", "network": "network", "volume": "volume"})
        if not (image := job.said.get("image")):
            outcome.note(where, f"the job is not carried over: it names no image: {dict(job.said)}")
            return
        keys["run"] = ["docker", "run", "--rm", *options, image, *command]
    outcome.add("tasks", job.name, keys, where)


def _options(job: Job, names: Mapping[str, str]) -> list[str]:
    return [f"--{option}={job.said[key]}" for key, option in names.items() if job.said.get(key)]


def _scheduled(schedule: str, keys: dict[str, Any]) -> str | None:
    """Set when a task runs, and return why that cannot be expressed."""
    if schedule.startswith(_EVERY):
        every = schedule.removeprefix(_EVERY).strip()
        try:
            if parse_duration(every) < 1000:
                return f"its schedule cannot be expressed: {schedule}"
        except ValueError:
            return f"its schedule cannot be expressed: {schedule}"
        keys["every"] = every
        return None
    if (wrong := validate(schedule)) is not None:
        return f"its schedule cannot be expressed: {wrong}"
    keys["cron"] = schedule
    return None
