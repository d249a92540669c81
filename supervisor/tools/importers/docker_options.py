"""Converts keys of compose services to options of ``docker run``."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from supervisor.tools.importers.import_result import Outcome

_SCALARS = {
    "hostname": "hostname",
    "domainname": "domainname",
    "user": "user",
    "ipc": "ipc",
    "pid": "pid",
    "uts": "uts",
    "shm_size": "shm-size",
    "platform": "platform",
    "runtime": "runtime",
    "userns_mode": "userns",
    "cgroup_parent": "cgroup-parent",
    "stop_signal": "stop-signal",
    "mem_limit": "memory",
    "mem_reservation": "memory-reservation",
    "memswap_limit": "memory-swap",
    "cpus": "cpus",
    "cpu_shares": "cpu-shares",
    "cpuset": "cpuset-cpus",
    "pids_limit": "pids-limit",
    "oom_score_adj": "oom-score-adj",
    "working_dir": "workdir",
    "mac_address": "mac-address",
}
_LISTS = {
    "tmpfs": "tmpfs",
    "devices": "device",
    "cap_add": "cap-add",
    "cap_drop": "cap-drop",
    "dns": "dns",
    "dns_search": "dns-search",
    "dns_opt": "dns-option",
    "security_opt": "security-opt",
    "group_add": "group-add",
    "volumes_from": "volumes-from",
}
_FLAGS = {"privileged": "privileged", "read_only": "read-only", "init": "init", "tty": "tty"}
_PULL = {"always": "always", "missing": "missing", "if_not_present": "missing", "never": "never"}
HANDLED = frozenset({*_SCALARS, *_LISTS, *_FLAGS})
"""Keys whose values are passed to options unchanged."""


@dataclass(frozen=True)
class Project:
    """The parts of a compose file to which its services refer."""

    name: str
    directory: str
    volumes: Mapping[str, Any]
    networks: Mapping[str, Any]
    variables: Mapping[str, str]
    """The environment, and the variables in the project's ``.env``."""

    def path(self, text: str) -> str:
        """Return the absolute path for a path in the file."""
        return os.path.normpath(os.path.join(self.directory, os.path.expanduser(text)))

    def network(self, name: str) -> str:
        """Return the name by which docker knows a network."""
        return self._full_name(self.networks, name)

    def volume(self, name: str) -> str:
        """Return the name by which docker knows a volume."""
        return self._full_name(self.volumes, name)

    def _full_name(self, declared: Mapping[str, Any], name: str) -> str:
        settings = declared.get(name) or {}
        return str(settings.get("name") or (name if truth(settings.get("external")) else f"{self.name}_{name}"))


def options(service: Mapping[str, Any], project: Project, location: str, outcome: Outcome) -> list[str]:
    """Return the options for a service, except those for networks and labels."""
    arguments: list[str] = []
    for key, value in service.items():
        if value is None:
            continue
        if key in _SCALARS:
            arguments.append(f"--{_SCALARS[key]}={value}")
        elif key in _LISTS:
            arguments += [f"--{_LISTS[key]}={item}" for item in (value if isinstance(value, list) else [value])]
        elif key in _FLAGS:
            arguments += [f"--{_FLAGS[key]}"] if truth(value) else []
        elif key in SPECIAL:
            try:
                arguments += SPECIAL[key](value, project)
            except (KeyError, TypeError, ValueError, AttributeError):
                outcome.note(location, f"{key} = {value} is not converted")
    return arguments


def pairs(value: Any) -> dict[str, str | None]:
    """Return the names and values of a mapping, or of a list of ``NAME=value``; None for a name without a value."""
    if isinstance(value, Mapping):
        return {str(key): None if item is None else text(item) for key, item in value.items()}
    by_name: dict[str, str | None] = {}
    for item in value or []:
        name, equals, content = str(item).partition("=")
        by_name[name] = content if equals else None
    return by_name


def text(value: Any) -> str:
    """Return a value as the text that docker compose would pass on."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def truth(value: Any) -> bool:
    """Return whether a value is true, which substituted variables express as text."""
    return text(value).lower() in ("true", "t", "yes", "y", "on", "1")


def _ports(value: Any, _project: Project) -> list[str]:
    arguments = []
    for port in value:
        if isinstance(port, Mapping):
            host = f"{port['host_ip']}:" if port.get("host_ip") else ""
            published = f"{port['published']}:" if port.get("published") else ":" if host else ""
            protocol = f"/{port['protocol']}" if port.get("protocol") else ""
            arguments.append(f"--publish={host}{published}{port['target']}{protocol}")
        else:
            arguments.append(f"--publish={port}")
    return arguments


def _volumes(value: Any, project: Project) -> list[str]:
    return [_long_volume(item, project) if isinstance(item, Mapping) else _volume(str(item), project) for item in value]


def _volume(volume: str, project: Project) -> str:
    source, colon, target = volume.partition(":")
    if not colon:
        return f"--volume={volume}"
    return f"--volume={_source(source, project)}:{target}"


def _source(source: str, project: Project) -> str:
    return project.path(source) if source[:1] in "./~" else project.volume(source)


def _long_volume(volume: Mapping[str, Any], project: Project) -> str:
    target, end = volume["target"], ":ro" if truth(volume.get("read_only")) else ""
    if volume["type"] == "tmpfs":
        return f"--tmpfs={target}"
    if volume["type"] not in ("bind", "volume"):
        raise ValueError(volume["type"])
    if "source" not in volume:
        return f"--volume={target}"
    source = project.path(volume["source"]) if volume["type"] == "bind" else project.volume(volume["source"])
    return f"--volume={source}:{target}{end}"


def _hosts(value: Any, _project: Project) -> list[str]:
    if isinstance(value, Mapping):
        return [f"--add-host={name}:{address}" for name, address in value.items()]
    return [f"--add-host={str(item).replace('=', ':', 1)}" for item in value]


def _sysctls(value: Any, _project: Project) -> list[str]:
    settings = pairs(value)
    if None in settings.values():
        raise ValueError("a name without a value")
    return [f"--sysctl={name}={item}" for name, item in settings.items()]


def _ulimits(value: Any, _project: Project) -> list[str]:
    return [
        f"--ulimit={name}={item['soft']}:{item['hard']}" if isinstance(item, Mapping) else f"--ulimit={name}={item}"
        for name, item in value.items()
    ]


def _pull(value: Any, _project: Project) -> list[str]:
    return [f"--pull={_PULL[value]}"]


SPECIAL: Mapping[str, Callable[[Any, Project], list[str]]] = {
    "ports": _ports,
    "volumes": _volumes,
    "extra_hosts": _hosts,
    "sysctls": _sysctls,
    "ulimits": _ulimits,
    "pull_policy": _pull,
}
"""Keys whose values must be converted, with the functions that convert them to options."""
