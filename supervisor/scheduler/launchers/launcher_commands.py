"""Commands of launchers: start, stop and probe. Pure.

Each word of a launcher becomes one argument, so no shell parses values of a run. The only exception is the login shell
of a remote host; :func:`script` quotes everything for it.
"""

import json
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from supervisor.config.model import Service, Task
from supervisor.config.value_records import Launcher
from supervisor.config.value_types.launchers import PLACEHOLDER
from supervisor.config.value_types.presets import COMMAND_VARIABLE, FEED_VARIABLE, REMOTE_MARK
from supervisor.host.prepared_command import FirstEnvironment
from supervisor.ipc.messages import Spawn

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NOMAD_TEMPLATE = re.compile(r"([$%])\{")
"""Start of a variable in a Nomad driver configuration; doubling its first character escapes it."""
_NO_SIGNAL = 0
_SHELL = "/bin/sh"
_ENGINE_MS = 5000
"""Time that an engine gets to deliver a stop to its job, in milliseconds."""

Facts = dict[str, str | None]
"""Values by placeholder; None if a placeholder has no value."""


def facts(definition: Task | Service, run_id: str, instance: int, attempt: int) -> Facts:
    """Return the values of the placeholders that every command of a launcher may use."""
    user, _, group = (definition.user or "").partition(":")
    return {
        "run_id": run_id,
        "run_id_lower": run_id.lower(),
        "task": definition.name,
        "instance": str(instance),
        "attempt": str(attempt),
        "user": user or None,
        "group": group or None,
        "stop_signal": str(definition.stop_ladder[0][0]),
        "grace_s": str(-(-definition.stop_ms // 1000)),  # the first signal gets the time of all
    }


def words(template: Sequence[str], placeholders: Facts) -> list[str]:
    """Return the expanded arguments of a template; those with a placeholder that has no value are omitted."""
    names = [set(PLACEHOLDER.findall(word)) for word in template]
    there = (word for word, named in zip(template, names, strict=True) if not _without_value(named, placeholders))
    return [PLACEHOLDER.sub(lambda match: placeholders.get(match[1]) or "", word) for word in there]


def _without_value(names: Collection[str], placeholders: Facts) -> bool:
    return any(placeholders.get(name) is None for name in names)


def launched(
    launcher: Launcher, spawn: Spawn, placeholders: Facts, definition: Task | Service, job: Mapping[str, str]
) -> Spawn:
    """Return the spawn request that starts the command of `spawn` through a launcher.

    Args:
        launcher: the launcher of the definition.
        spawn: the request that would start the command directly, without a launcher.
        placeholders: the result of :func:`facts`.
        definition: the definition of the run.
        job: all environment variables of the job.
    """
    named = {name for word in launcher.start for name in PLACEHOLDER.findall(word)}
    travels = launcher.feed == "script" or "working_dir" in named
    env, secrets, hidden = spawn.env, spawn.secrets, None
    if "user" in named and spawn.uid is not None:
        # The client has the rights of the daemon's user, so it must not see the variables of another user's run.
        hidden = FirstEnvironment(job, job, other_user=True)
        if hidden.by_python:
            message = f"launcher {launcher.name}: variables with names like app.name, or over 96 KiB, cannot be passed"
            return replace(spawn, refusal=spawn.refusal or message)
        env = dict(hidden.variables)
        secrets = [hidden.carriers[name] for name in secrets if name in hidden.carriers]
    argv = _start(launcher, spawn, placeholders, definition, job, hidden)
    env = {**env, **_fed(launcher, spawn, placeholders, job)}
    if "user" in named:
        spawn = replace(spawn, uid=None, gid=None, groups=[])
    # The stop command stops the job, and with it the client. A client that is signalled before would lose its job.
    if launcher.stop:
        grace_ms = definition.stop_ms + _ENGINE_MS
        steps = [[spawn.stop_signal, spawn.grace_ms], *spawn.stop_then]
        spawn = replace(spawn, stop_signal=_NO_SIGNAL, grace_ms=grace_ms, stop_then=steps)
    cwd = None if travels else spawn.cwd
    own_failures = launcher.own_failures
    return replace(spawn, argv=argv, env=env, secrets=secrets, cwd=cwd, launched=True, own_failures=own_failures)


def _start(
    launcher: Launcher,
    spawn: Spawn,
    placeholders: Facts,
    definition: Task | Service,
    job: Mapping[str, str],
    hidden: FirstEnvironment | None,
) -> list[str]:
    command = definition.run
    text, more, argv = command, spawn.argv[4:], spawn.argv
    if not isinstance(command, str):
        given = spawn.argv[len(command) :]
        text = f'exec {shlex.join(command)} "$@"'
        more = [definition.shell, *given] if given else []
    by_name: Collection[str] = job
    if hidden is not None and any("{env_name}" in word and "{env_value}" not in word for word in launcher.start):
        by_name = hidden.variables
        text = f"{hidden.restore}{text}"
        argv = [_SHELL, "-c", f'{hidden.restore}exec "$@"', "ringward", *argv]
    with_command = {
        **placeholders,
        "shell": definition.shell,
        "run": str(text),
        "working_dir": definition.working_dir,
        "env_json": json.dumps({**_shown(job, spawn.secrets), COMMAND_VARIABLE: json.dumps(spawn.argv)}),
    }
    # The engine expands variables in arguments, but not in the name of the program.
    whole = [argv[0], *map(_doubled, argv[1:])] if launcher.expands else argv
    values = {name: _doubled(value) for name, value in job.items()} if launcher.expands else job
    words_of_start: list[str] = []
    for word in launcher.start:
        if word == "{command}":
            words_of_start += whole
        elif "{env_name}" in word and "{env_value}" not in word:
            words_of_start += _repeated(word, with_command, dict.fromkeys(by_name, ""), ())
        else:
            words_of_start += _repeated(word, with_command, values, spawn.secrets)
    return words_of_start + (more if any("{run}" in word for word in launcher.start) else [])


def _doubled(text: str) -> str:
    return text.replace("$", "$$")


def _repeated(word: str, placeholders: Facts, job: Mapping[str, str], secrets: Collection[str]) -> Iterator[str]:
    if "env_name" not in PLACEHOLDER.findall(word):
        yield from words([word], placeholders)
        return
    for name, value in _shown(job, secrets).items():
        yield from words([word], {**placeholders, "env_name": name, "env_value": value})


def _shown(job: Mapping[str, str], secrets: Collection[str]) -> dict[str, str]:
    return {name: value for name, value in job.items() if name not in secrets}


def _fed(launcher: Launcher, spawn: Spawn, placeholders: Facts, job: Mapping[str, str]) -> dict[str, str]:
    if launcher.feed == "script":
        marked = {**job, REMOTE_MARK: spawn.run}
        return {FEED_VARIABLE: script(spawn.argv, marked, cwd=spawn.cwd, umask=spawn.umask)}
    if launcher.feed == "nomad_job":
        return {FEED_VARIABLE: json.dumps(_nomad_job(launcher, spawn.argv, placeholders, job))}
    return {}


def script(command: Sequence[str], env: Mapping[str, str], *, cwd: str | None, umask: int | None) -> str:
    """Return a POSIX shell script that executes `command` in the environment `env`.

    It is one compound command, so a script that arrives truncated does nothing. A variable whose name is not a shell
    identifier cannot be exported, and is passed through env(1).
    """
    odd = [f"{name}={value}" for name, value in env.items() if not _IDENTIFIER.fullmatch(name)]
    lines = ["{"]
    if cwd is not None:
        lines.append(f"cd -- {shlex.quote(cwd)} || exit 126")
    if umask is not None:
        lines.append(f"umask {umask:04o}")
    lines += [f"export {name}={shlex.quote(value)}" for name, value in env.items() if _IDENTIFIER.fullmatch(name)]
    lines.append(f"exec {shlex.join([*(['env', '--', *odd] if odd else []), *command])}")
    return "\n".join([*lines, "}"])


def _nomad_job(
    launcher: Launcher, command: Sequence[str], placeholders: Facts, job: Mapping[str, str]
) -> dict[str, object]:
    """Return the job for Nomad's HTTP API: one task, on any node, without restarts."""
    name = f"ringward-{placeholders['run_id']}"
    config: dict[str, object] = {
        "command": command[0],
        "args": [_NOMAD_TEMPLATE.sub(r"\1\1{", word) for word in command[1:]],
    }
    if launcher.image is not None:
        config["image"] = launcher.image
    task = {
        "Name": "run",
        "Driver": "exec" if launcher.image is None else "docker",
        "Config": config,
        "Env": dict(job),
        "User": placeholders["user"] or "",
        "KillTimeout": int(placeholders["grace_s"] or 0) * 1_000_000_000,
    }
    group = {
        "Name": "run",
        "Count": 1,
        "RestartPolicy": {"Attempts": 0, "Mode": "fail"},
        "ReschedulePolicy": {"Attempts": 0, "Unlimited": False},
        "Tasks": [task],
    }
    return {"Job": {"ID": name, "Name": name, "Type": "batch", "Datacenters": ["*"], "TaskGroups": [group]}}
