"""Imports the apps of pm2."""

import json
import os
import re
import shlex
import shutil
from collections.abc import Mapping
from typing import Any

from supervisor.schedule.cron import validate
from supervisor.tools.importers.ecosystem import content
from supervisor.tools.importers.import_result import Outcome, UnreadableFile, check_text, seconds

_INTERPRETERS = {
    **dict.fromkeys((".js", ".mjs", ".cjs"), "node"),
    ".py": "python",
    ".sh": "bash",
    ".rb": "ruby",
    ".php": "php",
    ".pl": "perl",
    ".ts": "bun",
    ".tsx": "bun",
    ".coffee": "coffee",
    ".ls": "lsc",
}
_SUBSTITUTES = {"python": "python3", "bun": "node"}
"""What pm2 uses if the interpreter is not in PATH."""
_SOUGHT = frozenset({"bun", "coffee", "lsc"})
"""Interpreters that a host often does not have."""
_OF_NODE = re.compile(rb"#!.*\b(?:node|nodejs|bun)\b")
_FILE_START_BYTES = 512
_WORD = re.compile(r"""[^\s"'=]+=(?:"[^"]*"|'[^']*')|"[^"]*"|'[^']*'|\S+""")
_MAX_INSTANCES = 64
_MAX_RESTARTS, _MIN_UPTIME_MS, _KILL_TIMEOUT_MS = 16, 1000, 1600
"""The defaults of pm2, which also apply if the value is 0."""
_LONGEST_BACKOFF, _BACKOFF_RESET = "15s", "30s"
_FIRST_DELAY = "100ms"
"""The first delay of an app for which pm2 would wait for nothing."""
_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?")
_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, None: 1}
_AMOUNT = re.compile(r"(\d+)\s*([KMG]?)B?", re.IGNORECASE)
# fmt: off
_LOOKED_AT = frozenset({
    "name", "script", "args", "interpreter", "node_args", "cwd", "env", "port", "instances", "exec_mode",
    "instance_var", "increment_var", "autorestart", "stop_exit_codes", "max_restarts", "min_uptime", "restart_delay",
    "exp_backoff_restart_delay", "kill_timeout", "treekill", "max_memory_restart", "cron_restart", "uid", "gid",
    "namespace", "autostart", "env_file",
})
_NOT_NEEDED = frozenset({
    "merge_logs", "combine_logs", "log_date_format", "time", "log_type", "disable_logs", "ignore_watch",
    "watch_options", "watch_delay", "source_map_support", "disable_source_map_support", "vizion", "automation", "pmx",
    "force", "post_update", "listen_timeout", "pid_file", "pid", "kill_retry_time", "windows_hide", "exec_max_buffer",
})
_FILES = frozenset({"out_file", "output", "out", "error_file", "error", "err_file", "log_file", "log"})
# fmt: on
_ALIASES = {
    **dict.fromkeys(("exec", "cmd", "command"), "script"),
    "exec_interpreter": "interpreter",
    "interpreter_args": "node_args",
    "cron": "cron_restart",
    "user": "uid",
}

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
            if key not in ("apps", "pm2") and "script" not in document:
                outcome.note(f"{path} {key}", "is not converted")
        document = document.get("apps") or document.get("pm2") or ([document] if "script" in document else None)
    apps = [document] if isinstance(document, Mapping) else document
    if not isinstance(apps, list):
        raise UnreadableFile(f"{path}: has no apps")
    for number, app in enumerate(apps):
        location = f"{path} apps[{number}]"
        try:
            _app(_with_full_names(app), path, location, outcome)
        except (ValueError, TypeError, AttributeError, OverflowError) as err:  # a value of a wrong type
            outcome.note(location, f"is not converted: {err}: {json.dumps(app)}")


def _with_full_names(app: App) -> App:
    """Return an app with pm2's full names of its keys, for which pm2 has aliases and forms in camel case.

    Raises:
        TypeError: the app is not an object.
    """
    if not isinstance(app, Mapping):
        raise TypeError("it is not an object")
    full: dict[str, Any] = {}
    for key, value in app.items():
        snake_case = re.sub(r"(?<=[a-z])[A-Z]", lambda letter: f"_{letter[0].lower()}", key)
        name = _ALIASES.get(snake_case, snake_case)
        name = name if name in _LOOKED_AT | _NOT_NEEDED else key
        full[name] = full.get(name) or value
    return full


def _app(app: App, path: str, location: str, outcome: Outcome) -> None:
    if not isinstance(app.get("script"), str) or not app["script"].split():
        raise ValueError("it has no script")
    directory = os.path.dirname(os.path.abspath(path))
    working_dir = os.path.normpath(os.path.join(directory, str(app.get("cwd") or ".")))
    name = str(app.get("name") or os.path.splitext(os.path.basename(app["script"].split()[0].rstrip("/")))[0])
    env = {key: _text(value) for key, value in (app.get("env") or {}).items()}
    if app.get("port"):
        env["PORT"] = _text(app["port"])
    argv = _argv(app, working_dir, location, outcome)
    if "python" in argv[0]:
        env["PYTHONUNBUFFERED"] = "1"
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
    keys |= _restarts(app, path, location, outcome)
    keys |= _stopping(app, location, outcome)
    _limits(app, keys, location, outcome)
    _report(app, location, outcome)
    unit = outcome.add("services", name, keys, f"{location}: {name}", location)
    _restarted_by_cron(app, unit.name, location, outcome)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _words(value: Any) -> list[str]:
    """Split a text as pm2 does, which removes only quotes around a whole word."""
    if value is None:
        return []
    if isinstance(value, list):
        return [_text(word) for word in value]
    words = [word[1:-1] if word[0] == word[-1] and word[0] in "\"'" else word for word in _WORD.findall(_text(value))]
    return [word for word in words if word.strip()]


def _argv(app: App, working_dir: str, location: str, outcome: Outcome) -> list[str]:
    """Return the command that pm2 would execute, as arguments."""
    script: str = app["script"]
    args, options = _words(app.get("args")), _words(app.get("node_args"))
    if script == "serve":
        raise ValueError("serve is pm2's own file server: use a web server")
    if " " in script:
        if args:
            outcome.note(location, f"args = {_text(app['args'])} is not converted: pm2 ignores it with this script")
        return ["bash", "-c", script]
    file = os.path.normpath(os.path.join(working_dir, script))
    interpreter = app.get("interpreter") or _interpreter(script, file, bool(options), location, outcome)
    if interpreter == "none":
        return [file if "/" in script or os.path.exists(file) else script, *args]
    if interpreter.startswith("node@"):
        outcome.note(location, f"interpreter = {interpreter}: is the node in PATH here; name that version by its path")
        interpreter = "node"
    program = os.path.normpath(os.path.join(working_dir, interpreter)) if "/" in interpreter else interpreter
    if program == "node" and not os.path.exists(file):
        script = shutil.which(script) or script
    return [program, *options, script, *args]


def _interpreter(script: str, file: str, has_options: bool, location: str, outcome: Outcome) -> str:
    """Return the interpreter of a script for which the app names none; ``none``: it is started directly.

    pm2 starts everything with node that has no known extension and is not binary, even a shell script, which fails.
    """
    if interpreter := _INTERPRETERS.get(os.path.splitext(script)[1]):
        if shutil.which(interpreter) is None:
            interpreter = _SUBSTITUTES.get(interpreter, interpreter)
        if _INTERPRETERS[os.path.splitext(script)[1]] in _SOUGHT:
            outcome.note(location, f"{script} is started with {interpreter} here: install it, or name another program")
        return interpreter
    in_path = None if os.path.exists(file) else shutil.which(script)
    try:
        with open(in_path or file, "rb") as opened:
            start = opened.read(_FILE_START_BYTES)
    except OSError:
        interpreter = "node" if "/" in script else "none"
        how = "with node" if interpreter == "node" else "directly"
        outcome.note(location, f"{file} cannot be read here: it is started {how}, which may be wrong")
        return interpreter
    if b"\0" in start or (in_path and not has_options):
        return "none"
    if start.startswith(b"#!") and not _OF_NODE.match(start):
        outcome.advise(
            location, f"{script} is started directly, for its first line names an interpreter; pm2 uses node"
        )
        return "none"
    return "node"


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
    mode = str(
        app.get("exec_mode") or ("cluster" if instances is not None and re.search("(node|bun)$", program) else "fork")
    )
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
    user, group = app.get("uid"), app.get("gid")
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


def _time(app: App, key: str, default_ms: float, location: str, outcome: Outcome) -> str:
    try:
        return seconds((_ms(app.get(key) or 0) or default_ms) / 1000)
    except ValueError:
        outcome.note(location, f"{key} = {app[key]} is not converted")
        return seconds(default_ms / 1000)


def _restarts(app: App, path: str, location: str, outcome: Outcome) -> dict[str, Any]:
    if app.get("autorestart") is False:
        return {"restart": "never"}
    keys: dict[str, Any] = {
        "restart_attempts": "unlimited",
        "healthy_after": _time(app, "min_uptime", _MIN_UPTIME_MS, location, outcome),
    }
    _say_when_pm2_gives_up(app, keys["healthy_after"], path, location, outcome)
    growing = {"restart_backoff": "exponential", "restart_max_delay": _LONGEST_BACKOFF}
    if app.get("exp_backoff_restart_delay"):
        keys["restart_delay"] = _time(app, "exp_backoff_restart_delay", 0, location, outcome)
        keys |= growing | {"healthy_after": _BACKOFF_RESET}
    elif app.get("restart_delay"):
        keys |= {"restart_delay": _time(app, "restart_delay", 0, location, outcome), "restart_backoff": "constant"}
    else:
        keys |= {"restart_delay": _FIRST_DELAY, **growing}
    if (codes := app.get("stop_exit_codes")) not in (None, []):
        keys |= {
            "restart": "on_failure",
            "exit_codes": [int(code) for code in (codes if isinstance(codes, list) else [codes])],
        }
    return keys


def _say_when_pm2_gives_up(app: App, min_uptime: str, path: str, location: str, outcome: Outcome) -> None:
    """Report that restarts never end here.

    pm2 counts quick exits only during the first ``min_uptime`` times ``max_restarts`` of an app, and not even then if a
    delay makes these restarts take longer. An app that fails later is restarted for ever.
    """
    most = int(app.get("max_restarts") or _MAX_RESTARTS)
    text = f"pm2 gives up after {most} quick exits, but only in the first {most} times {min_uptime} of an app;"
    text += " restarts never end here: set restart_attempts to give up"
    if app.get("max_restarts") or app.get("min_uptime"):
        outcome.note(location, text)
    else:
        outcome.advise(path, text)


def _stopping(app: App, location: str, outcome: Outcome) -> dict[str, Any]:
    keys = {"stop_signal": "SIGINT", "graceful_stop": _time(app, "kill_timeout", _KILL_TIMEOUT_MS, location, outcome)}
    if app.get("treekill") is False:
        keys["stop_target"] = "main"
    outcome.stops_within(location, keys["graceful_stop"], explicit=bool(app.get("kill_timeout")))
    return keys


def _limits(app: App, keys: dict[str, Any], location: str, outcome: Outcome) -> None:
    memory = app.get("max_memory_restart")
    if not memory:
        return
    match = _AMOUNT.fullmatch(str(memory))
    if match is None:
        outcome.note(location, f"max_memory_restart = {memory} is not converted")
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
            outcome.note(location, "wait_ready is not converted; set ready = { http = … } or { log = … }")
        elif key == "watch":
            outcome.note(location, "watch is not converted: run ringward restart after a deployment")
        else:
            outcome.note(location, f"{key} = {_text(value)} is not converted")


def _restarted_by_cron(app: App, name: str, location: str, outcome: Outcome) -> None:
    """Add a task that restarts a service."""
    schedule = app.get("cron_restart")
    if not schedule or schedule == "0":
        return
    if (wrong := validate(str(schedule))) is not None:
        outcome.note(location, f"cron_restart = {schedule} is not converted: {wrong}")
        return
    keys = {"cron": str(schedule), "run": ["ringward", "restart", name], "may": [f"restart:{name}"]}
    outcome.add("tasks", f"restart-{name}", keys, f"{location}: cron_restart = {schedule}", f"{location} cron_restart")
