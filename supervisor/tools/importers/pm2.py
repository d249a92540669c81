"""Imports the apps of pm2."""

import json
import os
import re
import shlex
from collections.abc import Mapping
from typing import Any

from supervisor.schedule.cron import validate
from supervisor.tools.importers.ecosystem import content
from supervisor.tools.importers.import_result import Outcome, UnreadableFile, check_text, seconds

_INTERPRETERS = {
    **dict.fromkeys((".js", ".mjs", ".cjs", ".ts", ".mts", ".cts"), "node"),
    ".py": "python3",
    ".sh": "bash",
    ".rb": "ruby",
    ".php": "php",
    ".pl": "perl",
}
_MAX_INSTANCES = 64
_UNSTABLE_RESTARTS, _MIN_UPTIME_MS, _KILL_TIMEOUT_MS, _LONGEST_BACKOFF_MS = 16, 1000, 1600, 15_000
"""The defaults of pm2."""
_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?")
_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, None: 1}
_AMOUNT = re.compile(r"(\d+)\s*([KMG]?)B?", re.IGNORECASE)
# fmt: off
_LOOKED_AT = frozenset({
    "name", "script", "args", "interpreter", "exec_interpreter", "interpreter_args", "node_args", "cwd", "env",
    "instances", "exec_mode", "instance_var", "increment_var", "autorestart", "stop_exit_codes", "max_restarts",
    "min_uptime", "restart_delay", "exp_backoff_restart_delay", "kill_timeout", "treekill", "max_memory_restart",
    "cron_restart", "cron", "uid", "user", "gid", "namespace", "autostart", "env_file",
})
_NOT_NEEDED = frozenset({
    "merge_logs", "combine_logs", "log_date_format", "time", "log_type", "disable_logs", "ignore_watch",
    "watch_options", "watch_delay", "source_map_support", "disable_source_map_support", "vizion", "automation", "pmx",
    "force", "post_update", "listen_timeout", "pid_file", "pid", "kill_retry_time", "windowsHide", "exec_max_buffer",
})
_FILES = frozenset({"out_file", "output", "out", "error_file", "error", "err_file", "log_file", "log"})
# fmt: on

App = Mapping[str, Any]


def read(path: str, text: str, outcome: Outcome) -> None:
    """Add the apps of an ecosystem file to the outcome.

    Raises:
        UnreadableFile: the file is not an ecosystem file.
    """
    document = content(path, text)
    check_text(path, document)
    if isinstance(document, Mapping):
        for key in document:
            if key != "apps" and "script" not in document:
                outcome.note(f"{path} {key}", "is not carried over")
        document = document.get("apps", [document] if "script" in document else None)
    apps = [document] if isinstance(document, Mapping) else document
    if not isinstance(apps, list):
        raise UnreadableFile(f"{path}: has no apps")
    for number, app in enumerate(apps):
        location = f"{path} apps[{number}]"
        if not isinstance(app, Mapping) or not isinstance(app.get("script"), str):
            outcome.note(location, f"is not carried over: it has no script: {json.dumps(app)}")
            continue
        try:
            _app(app, os.path.dirname(os.path.abspath(path)), location, outcome)
        except (ValueError, TypeError, AttributeError, OverflowError) as err:  # an unterminated quote, or a wrong type
            outcome.note(location, f"is not carried over: {err}: {json.dumps(app)}")


def _app(app: App, directory: str, location: str, outcome: Outcome) -> None:
    working_dir = os.path.normpath(os.path.join(directory, str(app.get("cwd") or ".")))
    name = str(app.get("name") or os.path.splitext(os.path.basename(app["script"].split()[0]))[0])
    env = {key: _text(value) for key, value in (app.get("env") or {}).items() if value is not None}
    argv = _argv(app, working_dir)
    instances = _instances(app, argv[0], location, outcome)
    keys: dict[str, Any] = {
        "run": _with_numbers(argv, app, env, instances),
        "working_dir": working_dir,
        "instances": instances if instances > 1 else None,
        "group": app.get("namespace"),
        "autostart": False if app.get("autostart") is False else None,
        "user": _user(app),
        "env": env,
        "env_file": _env_files(app, working_dir),
    }
    keys |= _restarts(app, location, outcome)
    keys |= _stopping(app, location, outcome)
    _limits(app, keys, location, outcome)
    _report(app, location, outcome)
    unit = outcome.add("services", name, keys, f"{location}: {name}", location)
    _restarted_by_cron(app, unit.name, location, outcome)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _words(value: Any) -> list[str]:
    if value is None:
        return []
    return [_text(word) for word in value] if isinstance(value, list) else shlex.split(_text(value))


def _argv(app: App, working_dir: str) -> list[str]:
    """Return the command that pm2 would execute, as arguments."""
    script: str = app["script"]
    args, options = _words(app.get("args")), _words(app.get("interpreter_args") or app.get("node_args"))
    interpreter = app.get("interpreter") or app.get("exec_interpreter")
    file = os.path.join(working_dir, script)
    if " " in script and not os.path.exists(file):
        return ["bash", "-c", script if not args else f"{script} {shlex.join(args)}"]
    if not interpreter:
        interpreter = _INTERPRETERS.get(os.path.splitext(script)[1], "none")
    if interpreter == "none":
        is_path = "/" in script or os.path.exists(file)
        return [os.path.normpath(file) if is_path else script, *args]
    program = os.path.normpath(os.path.join(working_dir, interpreter)) if "/" in interpreter else interpreter
    return [program, *options, script, *args]


def _instances(app: App, program: str, location: str, outcome: Outcome) -> int:
    """Return the number of instances, which is 1 in cluster mode, because instances cannot share a port."""
    instances = app.get("instances")
    cores = os.cpu_count() or 1
    if instances in ("max", "0", 0):
        count = cores
    else:
        try:
            count = int(instances or 1)
        except (TypeError, ValueError):
            raise ValueError(f"instances = {instances}") from None
        count = max(1, cores + count) if count < 0 else count
    mode = str(app.get("exec_mode") or ("cluster" if instances is not None and program == "node" else "fork"))
    if mode.startswith("cluster") and count > 1:
        outcome.note(
            location,
            f"instances = {instances} in cluster mode: one instance here, because instances cannot share a port: give"
            " each its own port behind a proxy, or use node:cluster in the program",
        )
        return 1
    if instances in ("max", "0", 0) or (isinstance(instances, int) and instances < 0):
        outcome.advise(location, f"instances = {instances} is {count} here, by the processors of this host")
    if count > _MAX_INSTANCES:
        outcome.note(location, f"instances = {instances} is {_MAX_INSTANCES} here")
    return min(count, _MAX_INSTANCES)


def _with_numbers(argv: list[str], app: App, env: dict[str, str], instances: int) -> list[str] | str:
    """Return the command, which sets the variables that differ between instances. They are removed from `env`."""
    variable, counted = str(app.get("instance_var") or "NODE_APP_INSTANCE"), app.get("increment_var")
    if instances == 1 and not counted:
        env.setdefault(variable, "0")
        return argv
    exports = f'export {variable}="$RINGWARD_INSTANCE"; '
    if counted:
        base = env.pop(str(counted), "0")
        if not base.isdigit():
            raise ValueError(f"increment_var: {counted} is not a number: {base}")
        exports += f'export {counted}="$(({base} + RINGWARD_INSTANCE))"; '
    return f"{exports}exec {shlex.join(argv)}"


def _user(app: App) -> str | None:
    user, group = app.get("uid") or app.get("user"), app.get("gid")
    return None if not user else f"{user}:{group}" if group else str(user)


def _env_files(app: App, working_dir: str) -> list[str]:
    given = app.get("env_file")
    return [
        os.path.join(working_dir, str(env_file))
        for env_file in (given if isinstance(given, list) else [given] if given else [])
    ]


def _ms(value: Any) -> float:
    """Convert a time, which is a number of milliseconds or a text such as ``10s``, to milliseconds.

    Raises:
        ValueError: the value is not a time.
    """
    match = _TIME.fullmatch(str(value))
    if match is None:
        raise ValueError(f"no time: {value}")
    return float(match[1]) * _MS[match[2]]


def _time(app: App, key: str, default: float, location: str, outcome: Outcome) -> str:
    try:
        return seconds(_ms(app.get(key) if app.get(key) is not None else default) / 1000)
    except ValueError:
        outcome.note(location, f"{key} = {app[key]} is not carried over")
        return seconds(default / 1000)


def _restarts(app: App, location: str, outcome: Outcome) -> dict[str, Any]:
    if app.get("autorestart") is False:
        return {"restart": "never"}
    most = app.get("max_restarts")
    keys: dict[str, Any] = {
        # In pm2, this number of quick exits in a row makes an app "errored".
        "restart_attempts": max(0, int(most if most is not None else _UNSTABLE_RESTARTS) - 1),
        "healthy_after": _time(app, "min_uptime", _MIN_UPTIME_MS, location, outcome),
        "restart_delay": _time(app, "restart_delay", 0, location, outcome),
        "restart_backoff": "constant",
    }
    if app.get("exp_backoff_restart_delay"):
        keys["restart_delay"] = _time(app, "exp_backoff_restart_delay", 0, location, outcome)
        keys |= {"restart_backoff": "exponential", "restart_max_delay": seconds(_LONGEST_BACKOFF_MS / 1000)}
    if codes := app.get("stop_exit_codes"):
        keys |= {
            "restart": "on_failure",
            "exit_codes": [int(code) for code in (codes if isinstance(codes, list) else [codes])],
        }
    return keys


def _stopping(app: App, location: str, outcome: Outcome) -> dict[str, Any]:
    keys = {"stop_signal": "SIGINT", "graceful_stop": _time(app, "kill_timeout", _KILL_TIMEOUT_MS, location, outcome)}
    if app.get("treekill") is False:
        keys["stop_target"] = "main"
    outcome.stops_within(location, keys["graceful_stop"], explicit="kill_timeout" in app)
    return keys


def _limits(app: App, keys: dict[str, Any], location: str, outcome: Outcome) -> None:
    memory = app.get("max_memory_restart")
    if not memory:
        return
    match = _AMOUNT.fullmatch(str(memory))
    if match is None:
        outcome.note(location, f"max_memory_restart = {memory} is not carried over")
        return
    keys["limits"] = {"memory": f"{match[1]}{match[2].lower()}b"}
    outcome.advise(location, f"max_memory_restart = {memory}: the kernel kills it at this limit, and it is restarted")


def _report(app: App, location: str, outcome: Outcome) -> None:
    for key, value in app.items():
        if key in _LOOKED_AT or key in _NOT_NEEDED or value in (None, False):
            continue
        if key in _FILES:
            outcome.note(location, f"{key} = {_text(value)}: Ringward keeps the output in its logs instead")
        elif key == "wait_ready":
            outcome.note(location, "wait_ready is not carried over; set ready = { http = … } or { log = … }")
        elif key == "watch":
            outcome.note(location, "watch is not carried over: run ringward restart after a deployment")
        else:
            outcome.note(location, f"{key} = {_text(value)} is not carried over")


def _restarted_by_cron(app: App, name: str, location: str, outcome: Outcome) -> None:
    """Add a task that restarts a service."""
    schedule = app.get("cron_restart") or app.get("cron")
    if not schedule or schedule == "0":
        return
    if (wrong := validate(str(schedule))) is not None:
        outcome.note(location, f"cron_restart = {schedule} is not carried over: {wrong}")
        return
    keys = {"cron": str(schedule), "run": ["ringward", "restart", name], "may": [f"restart:{name}"]}
    outcome.add("tasks", f"restart-{name}", keys, f"{location}: cron_restart = {schedule}", f"{location} cron_restart")
