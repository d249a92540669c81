"""Words of other programs with their names here, if a suggestion of a similar spelling would mislead."""

from collections.abc import Collection, Mapping

KEYS: Mapping[str, tuple[str, ...]] = {
    "args": ("run",),
    "autorestart": ("restart",),
    "chdir": ("working_dir",),
    "cmd": ("run", "exec"),
    "command": ("run", "exec"),
    "concurrency": ("max_concurrent",),
    "cpus": ("limits.cpu",),
    "crontab": ("cron",),
    "cwd": ("working_dir",),
    "dependencies": ("depends_on",),
    "dir": ("working_dir",),
    "directory": ("working_dir",),
    "entrypoint": ("run",),
    "environment": ("env",),
    "environment_file": ("env_file",),
    "enum": ("choices",),
    "exec": ("run",),
    "execstart": ("run",),
    "exitcodes": ("exit_codes",),
    "failurethreshold": ("failures",),
    "grace": ("graceful_stop",),
    "health": ("live",),
    "healthcheck": ("live",),
    "httpget": ("http",),
    "image": ("launcher",),
    "interval": ("every",),
    "kill_signal": ("stop_signal",),
    "liveness": ("live",),
    "livenessprobe": ("live",),
    "mem_limit": ("limits.memory",),
    "memory": ("limits.memory",),
    "memory_limit": ("limits.memory",),
    "nice": ("limits.nice",),
    "nofile": ("limits.nofile",),
    "numprocs": ("instances",),
    "onfailure": ("notify_on_failure",),
    "parallelism": ("max_concurrent",),
    "period": ("every",),
    "periodseconds": ("every",),
    "port": ("listen", "tcp"),
    "program": ("run",),
    "pwd": ("working_dir",),
    "readiness": ("ready",),
    "readinessprobe": ("ready",),
    "regex": ("pattern",),
    "replicas": ("instances",),
    "retention": ("keep_for",),
    "retries": ("retry_attempts", "failures"),
    "retry": ("retry_attempts", "failures"),
    "schedule": ("cron",),
    "script": ("run",),
    "start_period": ("healthy_after",),
    "startretries": ("restart_attempts",),
    "stop_grace_period": ("graceful_stop",),
    "stopsignal": ("stop_signal",),
    "stopwaitsecs": ("graceful_stop",),
    "tcpsocket": ("tcp",),
    "threshold": ("failures",),
    "timeoutseconds": ("timeout",),
    "tz": ("timezone",),
    "uid": ("user",),
    "url": ("http",),
    "values": ("choices",),
    "when": ("cron",),
    "workdir": ("working_dir",),
    "workingdirectory": ("working_dir",),
    "working_directory": ("working_dir",),
}
"""Keys of the configuration."""

COMMANDS: Mapping[str, tuple[str, ...]] = {
    "add": ("service",),
    "check": ("validate",),
    "cron": ("next",),
    "delete": ("rm",),
    "down": ("stop",),
    "enum": ("choices",),
    "exec": ("run",),
    "history": ("runs",),
    "journal": ("logs",),
    "kill": ("stop",),
    "list": ("ps",),
    "log": ("logs",),
    "ls": ("ps",),
    "remove": ("rm",),
    "retry": ("rerun",),
    "schedule": ("next",),
    "serve": ("up",),
    "tail": ("logs",),
    "test": ("validate",),
    "trigger": ("run",),
    "undelete": ("restore",),
    "why": ("ending",),
}
"""Commands."""

OPTIONS: Mapping[str, tuple[str, ...]] = {
    "--count": ("--limit", "--lines"),
    "--data-dir": ("--data",),
    "--file": ("--config",),
    "--filter": ("--status", "--search"),
    "--from": ("--since", "--after"),
    "--host": ("--url",),
    "--name": ("--task",),
    "--number": ("--lines", "--limit"),
    "--output-format": ("--json",),
    "--since": ("--after",),
    "--state": ("--status",),
    "--tail": ("--lines",),
    "--to": ("--until", "--before"),
    "--until": ("--before",),
    "--watch": ("--follow",),
}
"""Options of commands."""


def meant(word: str, names: Collection[str], synonyms: Mapping[str, tuple[str, ...]]) -> str | None:
    """Return the known word that has the meaning of `word` in other programs; None if there is none.

    A word such as ``limits.memory`` counts as known if its table is.
    """
    for candidate in synonyms.get(word.lower().replace("-", "_") if word[:1] != "-" else word, ()):
        if candidate in names or candidate.partition(".")[0] in names:
            return candidate
    return None
