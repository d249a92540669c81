"""Lookups of API records by the task name or run id that a user typed, and of the state of a starting daemon."""

import re
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress

from supervisor.cli import exit_codes
from supervisor.cli.client import Api, ErrorResponse, NotFound, Query, Unreachable, segment
from supervisor.cli.daemon_answers import AnswerObject, UnexpectedAnswer, is_run_id
from supervisor.cli.failure import Failure

_NAME = re.compile(r"[a-zA-Z0-9._:-]{1,100}")
_PART = re.compile(r"[0-9A-HJKMNP-TV-Z]{6,25}")
_PAGE = 1000
_CANDIDATES = 10
_POLL_S = 0.05
_KINDS = ("task", "service")
_RUNS = ("run", "runs")
"""The kinds of upcoming entries that start runs."""

Run = AnswerObject


class UnknownName(Failure):
    """No task, service or run has the name."""


def daemon_states(api: Api, timeout_s: float) -> Iterator[AnswerObject]:
    """Ask for the state of a starting daemon again and again; the state is empty while the daemon does not answer."""
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        try:
            state = api.get("/api/daemon")
        except (Unreachable, ErrorResponse):
            state = AnswerObject()
        yield state
        time.sleep(_POLL_S)


def find_run(api: Api, text: str) -> Run | None:
    """Return the run whose id is `text`, or begins or ends with it; None if there is none, or a unit has that name.

    Raises:
        Failure: several ids begin or end with `text`.
    """
    run_id = text.upper()
    if is_part(run_id) and find_task(api, text) is None:
        return the_only(text, runs_with(api, "/api/runs", run_id))
    if not is_run_id(run_id):
        return None
    try:
        run = api.get(f"/api/runs/{run_id}")
    except NotFound:
        return None
    if run["id"] != run_id:
        raise UnexpectedAnswer("the response is about another run")
    return run


def is_part(text: str) -> bool:
    """Return whether `text` may be the beginning or the end of a run id."""
    return _PART.fullmatch(text) is not None


def runs_with(api: Api, path: str, part: str) -> list[Run]:
    """Return the runs in the API's list at `path` whose ids begin or end with `part`."""
    query: dict[str, str | int | None] = {"search": part, "limit": _PAGE}
    if path == "/api/runs":
        query["naming"] = "camel"
    matches: list[Run] = []
    offset = 0
    while True:
        page = api.get(path, {**query, "offset": offset})
        runs = page["runs"]
        matches += [run for run in runs if run["id"].startswith(part) or run["id"].endswith(part)]
        offset += len(runs)
        if not runs or offset >= page["total"] or len(matches) > _CANDIDATES:
            return matches


def the_only(text: str, matches: list[Run]) -> Run | None:
    """Return the run if exactly one was found; None if there is none.

    Raises:
        Failure: several were found.
    """
    if len(matches) > 1:
        listed = "".join(f"\n  {run['id']}  {run['taskName']}" for run in matches[:_CANDIDATES])
        more = "\n  ..." if len(matches) > _CANDIDATES else ""
        raise Failure(f"{text} is ambiguous; write more of the id:{listed}{more}")
    return matches[0] if matches else None


def runs_of(
    api: Api, task: str, *, status: str | None = None, limit: int = 0, filters: Query | None = None
) -> Iterator[Run]:
    """Yield the runs of a task or service, newest first; all of them if `limit` is 0.

    `filters` are further conditions, with the API's names.

    Raises:
        Failure: no task or service has the name.
    """
    if not _NAME.fullmatch(task):
        raise unknown(api, task)
    offset = 0
    while True:
        size = min(limit - offset, _PAGE) if limit else _PAGE
        query = {**(filters or {}), "limit": size, "offset": offset, **({} if status is None else {"status": status})}
        try:
            page = api.get(f"/api/tasks/{segment(task)}/runs", query)
        except NotFound as err:
            raise unknown(api, task) from err
        items = page["items"]
        yield from items
        offset += len(items)
        if len(items) < size or offset == limit or offset >= page["total"]:
            return


def find_task(api: Api, name: str) -> AnswerObject | None:
    """Return the record of the task or service `name`; None if it is not configured."""
    if not _NAME.fullmatch(name):
        return None
    try:
        task = api.get(f"/api/tasks/{segment(name)}")
    except NotFound:
        return None
    if task["name"] != name:
        raise UnexpectedAnswer("the response is about another task")
    return task


def ask_of(api: Api, name: str, action: str, query: Query | None = None) -> None:
    """Request an action on a task or service: ``start``, ``stop``, ``restart``, ``pause`` or ``resume``.

    Raises:
        Failure: no task or service has the name.
        ErrorResponse: it is of the wrong kind, or its state does not allow the action.
    """
    if not _NAME.fullmatch(name):
        raise unknown(api, name)
    try:
        api.send(f"/api/tasks/{segment(name)}/{action}", query)
    except NotFound as err:
        raise unknown(api, name) from err


def run_to_show(api: Api, text: str) -> Run:
    """Return the run with the id `text`, else the newest run of that task or service.

    Raises:
        Failure: there is none.
    """
    if run := find_run(api, text):
        return run
    if run := next(runs_of(api, text, limit=1), None):
        return run
    raise Failure(f"{text} has no runs yet")


def upcoming(api: Api, tasks: Iterable[str], count: int) -> list[AnswerObject]:
    """Return the next times of tasks, at most `count`, the soonest first.

    Raises:
        UnknownName: one of the names is not that of a task.
    """
    return sorted((item for name in tasks for item in _schedule(api, name, count)), key=starts_at)[:count]


def agenda(api: Api, names: Collection[str], count: int) -> list[AnswerObject]:
    """Return the next runs of tasks within five weeks, about `count`; many runs of a day are one entry.

    A daemon of an earlier release has none.
    """
    found: list[AnswerObject] = []
    query: dict[str, str | int | None] = {"limit": _PAGE, "to": "9999-01-01T00:00:00Z"}
    with suppress(NotFound):
        while len(found) < count:
            answer = api.get("/api/upcoming", query)
            found += [item for item in answer["items"] if item["taskName"] in names and item["kind"] in _RUNS]
            if "nextFrom" not in answer:
                break
            query["from"] = answer["nextFrom"]
    return found


def starts_at(item: AnswerObject) -> str:
    """Return when the run for one of the next times starts: after the jitter."""
    return str(item.get("startsAt") or item["at"])


def soonest(tasks: Iterable[AnswerObject], count: int) -> list[str]:
    """Return the names of the tasks that may have one of the next `count` times: of their schedule, or requested."""
    tasks = list(tasks)
    scheduled = [task for task in tasks if task.get("nextRunAt")]
    first = sorted(scheduled, key=lambda task: str(task["nextRunAt"]))[:count]
    first += [task for task in tasks if (task.get("active") or {}).get("pending")]
    return list(dict.fromkeys(str(task["name"]) for task in first))


def _schedule(api: Api, name: str, count: int) -> list[AnswerObject]:
    try:
        items = api.get(f"/api/tasks/{segment(name)}/schedule", {"count": count})["items"]
    except NotFound as err:
        raise unknown(api, name, noun="task", kinds=("task",)) from err
    return [AnswerObject({"taskName": name, **item}) for item in items]


def unknown(
    api: Api,
    text: str,
    *,
    noun: str = "task, service or run",
    kinds: Collection[str] = _KINDS,
    code: int = exit_codes.REFUSED,
) -> UnknownName:
    """Return the error for a name that does not exist; it suggests the most similar one.

    Args:
        api: the daemon, which knows the names.
        text: the argument as typed.
        noun: the kind of argument that the command takes.
        kinds: the kinds of units to suggest.
        code: the exit code.
    """
    from difflib import get_close_matches

    names: list[str] = []
    if _NAME.fullmatch(text):
        with suppress(Failure):  # without a suggestion, the error is still useful
            names = [str(item["name"]) for item in api.get("/api/tasks")["items"] if item["kind"] in kinds]
    near = get_close_matches(text, names, n=1)
    hint = f' (did you mean "{near[0]}"?)' if near else ""
    return UnknownName(f'no {noun} named "{text}"{hint}', code)
