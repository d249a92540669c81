"""Imports compose files. The docker launcher starts their services, and jobs in ofelia labels become tasks."""

import functools
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from supervisor.config.files.env_file import parse_variables
from supervisor.config.problems import InvalidValue
from supervisor.config.value_types.durations import parse_duration
from supervisor.config.value_types.launchers import PLACEHOLDER
from supervisor.schedule.cron import validate
from supervisor.tools.importers import docker_options
from supervisor.tools.importers.docker_options import Project, pairs, text, truth
from supervisor.tools.importers.import_result import Outcome, UnreadableFile, check_text
from supervisor.tools.importers.unit_values import FOR_EVER

_LABEL = "ringward.compose"
_NETWORKS_TASK = "networks"
_OF_THE_CLIENT = re.compile(r"PATH|HOME|(?:DOCKER|LD|RINGWARD)_.*")
"""Variables that would change the behaviour of the docker client, so they are passed only to the container."""
_MAX_INSTANCES = 64
_RETRIES = 3
"""Retries of a task, because it does not wait for the networks and services that it needs."""
_STOP, _INTERVAL = "10s", "30s"
"""Docker's defaults for the stop of a container and for the interval of health checks."""
_START = (
    *("{client}", "run", "--rm", "--name=ringward-{run_id}", "--label=ringward.run={run_id}", "--env={env_name}"),
    *("{options}", "{command}"),
)
"""The start command of the preset without the image, for services without a command, whose ``run`` is the image."""
_NETWORK_FLAGS = {"internal": "internal", "attachable": "attachable", "enable_ipv6": "ipv6"}
_NETWORK_KEYS = frozenset({"name", "external", "labels", "driver"})
_CONDITIONS = {"service_started": "started", "service_healthy": "ready", "service_completed_successfully": "succeeded"}
# fmt: off
_LOOKED_AT = frozenset({
    "image", "build", "command", "entrypoint", "environment", "env_file", "restart", "depends_on", "healthcheck",
    "labels", "networks", "network_mode", "container_name", "stop_grace_period", "scale", "deploy", "profiles",
    "expose", "secrets", "configs", "stdin_open", "attach", *docker_options.HANDLED, *docker_options.SPECIAL,
})
_TOP_LEVEL = frozenset({"services", "version", "name", "volumes", "networks", "secrets", "configs"})
# fmt: on

Service = Mapping[str, Any]


def read(path: str, source: str, outcome: Outcome) -> None:
    """Add the services of a compose file to the outcome.

    Raises:
        UnreadableFile: the file is not a compose file.
    """
    variables = _Variables(path, outcome)
    document = content(path, source, variables)
    directory = os.path.dirname(os.path.abspath(path))
    given_name = document.get("name") or variables.values.get("COMPOSE_PROJECT_NAME")
    stated_name = str(given_name or os.path.basename(directory))
    name = re.sub(r"[^a-z0-9_-]", "", stated_name.lower()).lstrip("_-") or "project"
    volumes, networks = document.get("volumes") or {}, document.get("networks") or {}
    project = Project(name, directory, volumes, networks, variables.values)
    for key in document:
        if key not in _TOP_LEVEL and not key.startswith("x-"):
            resolved = ": import what docker compose config prints" if key == "include" else ""
            outcome.note(f"{path} {key}", f"is not converted{resolved}")
    outcome.advise(path, "put the launchers into the main file: included files hold tasks and services alone")
    try:
        for volume, settings in project.volumes.items():
            if set(settings or {}) - {"name", "external", "labels"}:
                location = f"{path} volumes.{volume}"
                outcome.note(location, f"{settings} is not converted: create the volume with docker volume create")
        _ComposeFile(path, document, project, outcome).add()
    except (TypeError, AttributeError) as err:
        raise UnreadableFile(f"{path}: is not a compose file: {err}") from err


class _ComposeFile:
    """A compose file that is being converted."""

    def __init__(self, path: str, document: Mapping[str, Any], project: Project, outcome: Outcome) -> None:
        self._path = path
        self._document = document
        self._project = project
        self._outcome = outcome
        self._services: Mapping[str, Service] = {
            name: service or {} for name, service in document["services"].items() if isinstance(service or {}, Mapping)
        }
        for name in document["services"].keys() - self._services.keys():
            outcome.note(self._location(name), f"is not converted: not a table: {document['services'][name]}")
        self._networks: dict[str, list[str]] = {}
        """The options of the networks that docker compose would create, by the names that docker knows."""
        self._once = {
            name
            for service in self._services.values()
            for name, condition in _dependencies(service)
            if condition == "service_completed_successfully"
        }
        """Services that others expect to complete, which become tasks."""

    def add(self) -> None:
        """Add all services, networks and jobs to the outcome."""
        carried = {name: service for name, service in self._services.items() if not _is_ofelia(service)}
        self._collect_networks(carried)
        names = {name: self._free(name) for name in carried}
        for name, service in carried.items():
            try:
                self._add(name, service, names)
            except (ValueError, TypeError, AttributeError, OverflowError) as err:
                self._outcome.note(self._location(name), f"is not converted: {err}: {dict(service)}")
        for name, service in self._services.items():
            if _is_ofelia(service):
                self._outcome.advise(self._location(name), "is not needed: its jobs are tasks here")
            for job in _ofelia_jobs(pairs(service.get("labels"))):
                _add_ofelia_job(job, functools.partial(self._container, name), self._location(name), self._outcome)

    def _location(self, name: str) -> str:
        return f"{self._path} services.{name}"

    def _free(self, name: str) -> str:
        """Return the name for a service, which must differ from that of the task that creates the networks."""
        return name if name != self._networks_task() else f"{name}-2"

    def _networks_task(self) -> str:
        return f"{self._project.name}-{_NETWORKS_TASK}"

    def _collect_networks(self, carried: Mapping[str, Service]) -> None:
        for service in carried.values():
            for name in _networks(service):
                settings = self._project.networks.get(name) or {}
                network_name = self._project.network(name)
                if not truth(settings.get("external")) and network_name not in self._networks:
                    self._networks[network_name] = [
                        *(f"--{option}" for key, option in _NETWORK_FLAGS.items() if truth(settings.get(key))),
                        *([f"--driver={settings['driver']}"] if settings.get("driver") else []),
                    ]
                    others = {key for key in settings if key not in _NETWORK_FLAGS and key not in _NETWORK_KEYS}
                    if others:
                        without = f"{settings}: the network is created without {', '.join(sorted(others))}"
                        self._outcome.note(f"{self._path} networks.{name}", without)
        if self._networks:
            commands = [
                f"docker network inspect {shlex.quote(name)} >/dev/null 2>&1"
                f" || docker network create {shlex.join([*options, name])}"
                for name, options in self._networks.items()
            ]
            keys = {"run": "\n".join(commands), "description": "Creates the networks of the containers"}
            self._outcome.add("tasks", self._networks_task(), keys, f"{self._path} networks")

    def _container(self, own: str, given: str | None) -> str:
        """Return shell code for a container, which is given by the name of its service or by its own name."""
        container = given or own
        for name, service in self._services.items():
            if container in (name, service.get("container_name")):
                label = f"{_LABEL}={self._project.name}.{name}"
                return f'"$(docker ps --quiet --filter={shlex.quote(f"label={label}")} | head -n 1)"'
        return shlex.quote(container)

    def _add(self, name: str, service: Service, names: Mapping[str, str]) -> None:
        location, outcome = self._location(name), self._outcome
        is_task = name in self._once
        image = self._image(name, service, location)
        command = _words(service.get("command"))
        options = [f"--label={_LABEL}={self._project.name}.{name}", *self._network_options(name, service, location)]
        options += docker_options.options(service, self._project, location, outcome)
        options += self._labels(service)
        options += self._files(service, location)
        options += self._deployed(service, location)
        entrypoint = _words(service.get("entrypoint"))
        if entrypoint:
            options.append(f"--entrypoint={entrypoint[0]}")
            command = [*entrypoint[1:], *command]
        keys: dict[str, Any] = {"run": command or [image]}
        variables = self._variables(service, location)
        options += [f"--env={name}={value}" for name, value in variables.items() if _OF_THE_CLIENT.fullmatch(name)]
        keys["env"] = {name: value for name, value in variables.items() if not _OF_THE_CLIENT.fullmatch(name)}
        keys["env_file"] = self._env_files(service, location)
        keys["graceful_stop"] = text(service.get("stop_grace_period") or _STOP)
        parse_duration(keys["graceful_stop"])
        outcome.stops_within(location, keys["graceful_stop"], explicit="stop_grace_period" in service)
        # With a terminal, a container waits for input anyway, and docker run refuses an input that is not a terminal.
        if truth(service.get("stdin_open")) and not truth(service.get("tty")):
            options.append("--interactive")
            keys["stdin"] = "open"
        if is_task:
            keys["retry_attempts"] = self._as_task(service, location)
        else:
            keys |= self._restarts(service, location)
            keys |= self._supervision(service, names, location)
            keys["instances"] = self._instances(service, location)
            if service.get("profiles"):
                keys["autostart"] = False
                outcome.advise(location, f"profiles = {service['profiles']}: starts by hand only")
        for key, value in service.items():
            if key not in _LOOKED_AT and not key.startswith("x-"):
                resolved = ": import what docker compose config prints" if key == "extends" else ""
                outcome.note(location, f"{key} = {value} is not converted{resolved}")
        launcher: dict[str, Any] = {"preset": "docker", "image": image, "options": self._plain(options, location)}
        if not command:
            launcher["start"] = list(_START)
        added = outcome.add(
            "launchers", f"docker-{name}", launcher, f"{location}: how its container is started", f"{location} launcher"
        )
        keys["launcher"] = added.name
        outcome.add("tasks" if is_task else "services", names[name], keys, location)

    def _plain(self, options: list[str], location: str) -> list[str]:
        """Return the options; report and omit any that a launcher would take for a placeholder."""
        for option in options:
            if PLACEHOLDER.search(option):
                self._outcome.note(location, f"{option} is not converted: names in braces are placeholders here")
        return [option for option in options if not PLACEHOLDER.search(option)]

    def _image(self, name: str, service: Service, location: str) -> str:
        image = service.get("image") or f"{self._project.name}-{name}"
        if "build" in service:
            self._outcome.note(location, f"build is not converted: build the image {image} with docker compose build")
        elif "image" not in service:
            raise ValueError("it has no image")
        return str(image)

    def _network_options(self, name: str, service: Service, location: str) -> list[str]:
        mode = service.get("network_mode")
        if mode:
            if str(mode).startswith(("service:", "container:")):
                self._outcome.note(location, f"network_mode = {mode} is not converted")
                return []
            return [f"--network={mode}"]
        network_options: list[str] = []
        networks = _networks(service)
        for network, settings in networks.items():
            aliases = [name, *([str(service["container_name"])] if service.get("container_name") else [])]
            aliases += (settings or {}).get("aliases") or []
            own = self._project.network(network)
            address = (settings or {}).get("ipv4_address")
            if len(networks) == 1:  # podman and older engines support only this form
                network_options += [f"--network={own}", *(f"--network-alias={alias}" for alias in aliases)]
                network_options += [f"--ip={address}"] if address else []
            else:
                parts = [
                    f"name={own}",
                    *(f"alias={alias}" for alias in aliases),
                    *([f"ip={address}"] if address else []),
                ]
                network_options.append(f"--network={','.join(parts)}")
            for key in set(settings or {}) - {"aliases", "ipv4_address"}:
                self._outcome.note(location, f"networks.{network}.{key} is not converted")
        if service.get("container_name"):
            named = (
                f"container_name = {service['container_name']}: the container is named ringward- and the id of the run"
            )
            self._outcome.note(location, f"{named}; other containers find it under that name, docker does not")
        return network_options

    @staticmethod
    def _labels(service: Service) -> list[str]:
        labels = pairs(service.get("labels"))
        return [
            f"--label={label}={value or ''}" for label, value in labels.items() if not label.startswith(_OFELIA_PREFIX)
        ]

    def _files(self, service: Service, location: str) -> Iterator[str]:
        """Yield the options that mount secrets and configs from files."""
        for kind, directory in (("secrets", "/run/secrets/"), ("configs", "/")):
            for mount in service.get(kind) or []:
                source = mount.get("source") if isinstance(mount, Mapping) else mount
                definition = (self._document.get(kind) or {}).get(source) or {}
                target = (mount.get("target") if isinstance(mount, Mapping) else None) or source
                if not isinstance(definition, Mapping) or "file" not in definition:
                    self._outcome.note(location, f"{kind}: {source} is not converted: not a file")
                    continue
                target = target if str(target).startswith("/") else f"{directory}{target}"
                yield f"--volume={self._project.path(definition['file'])}:{target}:ro"

    def _deployed(self, service: Service, location: str) -> Iterator[str]:
        """Yield the options for the resource limits in ``deploy``."""
        deploy = service.get("deploy") or {}
        limits = (deploy.get("resources") or {}).get("limits") or {}
        for key, option in (("memory", "memory"), ("cpus", "cpus"), ("pids", "pids-limit")):
            if key in limits:
                yield f"--{option}={limits[key]}"
        for key in deploy:
            if key not in ("replicas", "resources") or (key == "resources" and set(deploy[key]) - {"limits"}):
                self._outcome.note(location, f"deploy.{key} = {deploy[key]} is not converted")

    def _variables(self, service: Service, location: str) -> dict[str, str]:
        environment = {}
        for name, value in pairs(service.get("environment")).items():
            if value is None:
                value = self._project.variables.get(name)
            if value is None:
                self._outcome.note(location, f"environment: {name} has no value here, so it is left out")
            else:
                environment[name] = value
        return environment

    def _env_files(self, service: Service, location: str) -> list[str]:
        given = service.get("env_file") or []
        paths = []
        for entry in given if isinstance(given, list) else [given]:
            if isinstance(entry, Mapping) and "path" not in entry:
                raise ValueError("an entry of env_file has no path")
            path = self._project.path(str(entry["path"] if isinstance(entry, Mapping) else entry))
            if os.path.exists(path):
                _env_file(path, self._outcome)  # reports what it has that means something else here
                paths.append(path)
            elif not (isinstance(entry, Mapping) and not truth(entry.get("required", True))):
                self._outcome.note(location, f"env_file: {path} does not exist and is left out")
        return paths

    def _as_task(self, service: Service, location: str) -> int:
        """Report what a service loses as a task, and return the number of its retries."""
        policy, _, count = text(service.get("restart") or "no").partition(":")
        retries = int(count or 0) or _RETRIES
        self._outcome.advise(location, f"is a task: others wait until it has succeeded, with up to {retries} retries")
        if policy not in ("no", "false") and not int(count or 0):
            self._outcome.note(location, f"restart = {policy}: up to {retries} retries here; set retry_attempts")
        for name, _ in _dependencies(service):
            self._outcome.note(location, f"depends_on {name} is not converted: a task waits for nothing")
        if service.get("healthcheck"):
            self._outcome.note(location, "healthcheck is not converted")
        return retries

    def _restarts(self, service: Service, location: str) -> dict[str, Any]:
        restart = service.get("restart")
        policy, _, count = text(restart or "no").partition(":")
        if policy in ("no", "false"):
            return {"restart": "never"}
        if policy not in ("always", "unless-stopped", "on-failure"):
            self._outcome.note(location, f"restart = {restart} is not converted")
            return {"restart": "never"}
        # As in docker, delays begin with 100 ms and double up to a minute, without a limit of attempts by default.
        keys: dict[str, Any] = {"restart": "on_failure" if policy == "on-failure" else "always"}
        keys |= {"restart_delay": "100ms", "restart_max_delay": "60s"}
        return keys | {"restart_attempts": int(count or 0) or "unlimited"}

    def _supervision(self, service: Service, names: Mapping[str, str], location: str) -> dict[str, Any]:
        """Return the keys for the dependencies and the health check of a service."""
        waits: list[dict[str, str]] = []
        if self._networks and not service.get("network_mode"):
            waits.append({"name": self._networks_task(), "until": "succeeded"})
        for name, condition in _dependencies(service):
            if name not in names or condition not in _CONDITIONS:
                self._outcome.note(location, f"depends_on {name} ({condition}) is not converted")
                continue
            until = "succeeded" if name in self._once else _CONDITIONS[condition]
            waits.append({"name": names[name], "until": until})
        if isinstance(service.get("depends_on"), Mapping):
            for name, condition in service["depends_on"].items():
                for key in set(condition or {}) - {"condition"}:
                    self._outcome.note(location, f"depends_on.{name}.{key} is not converted")
        return {"depends_on": waits, "ready": self._ready(service.get("healthcheck") or {}, location)}

    def _ready(self, check: Mapping[str, Any], location: str) -> dict[str, Any] | None:
        test = check.get("test")
        disabled = truth(check.get("disable"))
        if disabled or test in (None, ["NONE"], "NONE"):
            if check and test is None and not disabled:
                self._outcome.note(location, "healthcheck of the image is not converted; set ready")
            return None
        words = ["CMD-SHELL", test] if isinstance(test, str) else [text(word) for word in test]
        argv = ["/bin/sh", "-c", words[1]] if words[0] == "CMD-SHELL" else words[1:]
        if parse_duration(text(check.get("timeout") or _INTERVAL)) > parse_duration("5s") and "timeout" in check:
            self._outcome.note(location, f"healthcheck.timeout = {check['timeout']}: each attempt has 5s here")
        given = (text(check[key]) for key in ("start_interval", "interval") if check.get(key))
        every = next((interval for interval in given if parse_duration(interval)), _INTERVAL)  # 0 is not set
        # Without a time limit, because docker does not stop a container that is not healthy yet either.
        run = f'docker exec "ringward-$RINGWARD_RUN_ID" {shlex.join(argv)}'
        return {"exec": run, "every": every, "timeout": FOR_EVER}

    def _instances(self, service: Service, location: str) -> int | None:
        deploy = service.get("deploy") or {}
        replicas = int(text(deploy.get("replicas", service.get("scale", 1))))
        if replicas < 1:
            self._outcome.note(
                location, f"replicas = {replicas}: one here; set autostart = false if it should not start"
            )
        if replicas > _MAX_INSTANCES:
            self._outcome.note(location, f"replicas = {replicas}: {_MAX_INSTANCES} here")
        return min(replicas, _MAX_INSTANCES) if replicas > 1 else None


def _is_ofelia(service: Service) -> bool:
    return "/ofelia" in str(service.get("image") or "")


def _words(value: Any) -> list[str]:
    if value is None:
        return []
    return [text(word) for word in value] if isinstance(value, list) else shlex.split(text(value))


def _networks(service: Service) -> dict[str, Any]:
    """Return the networks of a service, each with the settings of the service."""
    if service.get("network_mode"):
        return {}
    networks = service.get("networks") or ["default"]
    return dict(networks) if isinstance(networks, Mapping) else {str(name): None for name in networks}


def _dependencies(service: Service) -> Iterator[tuple[str, str]]:
    """Yield the names and conditions of a service's dependencies."""
    dependencies = service.get("depends_on") or []
    for name in dependencies:
        dependency = dependencies[name] if isinstance(dependencies, Mapping) else None
        yield str(name), str((dependency or {}).get("condition") or "service_started")


_OFELIA_PREFIX = "ofelia."
_OFELIA_LABEL = re.compile(r"ofelia\.(job-exec|job-run|job-local)\.([^.]+)\.(.+)")
_OFELIA_EVERY = "@every "
_OFELIA_KEYS = {
    "job-exec": frozenset({"schedule", "command", "container", "user", "no-overlap", "environment"}),
    "job-run": frozenset({"schedule", "command", "image", "user", "no-overlap", "network", "volume", "environment"}),
    "job-local": frozenset({"schedule", "command", "dir", "no-overlap", "environment"}),
}


@dataclass(frozen=True)
class _OfeliaJob:
    """A job of ofelia, a scheduler whose jobs are labels of compose services."""

    kind: str
    name: str
    settings: Mapping[str, str]


def _ofelia_jobs(labels: Mapping[str, str | None]) -> Iterator[_OfeliaJob]:
    """Yield the ofelia jobs among the labels of a service."""
    jobs: dict[tuple[str, str], dict[str, str]] = {}
    for label, value in labels.items():
        if parts := _OFELIA_LABEL.fullmatch(label):
            jobs.setdefault((parts[1], parts[2]), {})[parts[3]] = value or ""
    for (kind, name), settings in jobs.items():
        yield _OfeliaJob(kind, name, settings)


def _add_ofelia_job(job: _OfeliaJob, containers: Callable[[str | None], str], location: str, outcome: Outcome) -> None:
    """Add an ofelia job as a task.

    Args:
        job: The job.
        containers: Returns shell code for the container with a name; None means the container of the service.
        location: The line or section of the service in the file, for messages.
        outcome: The outcome to which the task is added.
    """
    where = f"{location} {_OFELIA_PREFIX}{job.kind}.{job.name}"
    schedule = job.settings.get("schedule", "")
    keys: dict[str, Any] = {}
    if wrong := _set_schedule(schedule, keys):
        outcome.note(where, f"the job is not converted: {wrong}: {dict(job.settings)}")
        return
    if truth(job.settings.get("no-overlap")):
        keys["on_overlap"] = "skip"
    command = shlex.split(job.settings.get("command", ""))
    for key, value in job.settings.items():
        default = key in ("tty", "delete") and truth(value) == (key == "delete")
        if key not in _OFELIA_KEYS[job.kind] and not default:
            outcome.note(where, f"{key} = {value} is not converted")
    variables = job.settings.get("environment", "")
    if job.kind == "job-local":
        keys |= {"run": command, "working_dir": job.settings.get("dir")}
        outcome.note(where, "ran in the container of ofelia; here it runs on this host")
        if variables:
            outcome.note(where, f"environment = {variables} is not converted")
    elif job.kind == "job-exec":
        options = _ofelia_options(job, {"user": "user", "environment": "env"})
        container = containers(job.settings.get("container"))
        keys["run"] = f"exec docker exec {shlex.join(options)}{' ' if options else ''}{container} {shlex.join(command)}"
    else:
        options = _ofelia_options(job, {"user": "user", "environment": "env", "network": "network", "volume": "volume"})
        if not (image := job.settings.get("image")):
            outcome.note(where, f"the job is not converted: it names no image: {dict(job.settings)}")
            return
        keys["run"] = ["docker", "run", "--rm", *options, image, *command]
    outcome.add("tasks", job.name, keys, where)


def _ofelia_options(job: _OfeliaJob, names: Mapping[str, str]) -> list[str]:
    return [f"--{option}={job.settings[key]}" for key, option in names.items() if job.settings.get(key)]


def _set_schedule(schedule: str, keys: dict[str, Any]) -> str | None:
    """Set the schedule of a task; return why it cannot be expressed, or None."""
    if schedule.startswith(_OFELIA_EVERY):
        every = schedule.removeprefix(_OFELIA_EVERY).strip()
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


_TYPES = (
    ("tag:yaml.org,2002:bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("tag:yaml.org,2002:int", r"0|[-+]?[1-9][0-9]*", "-+0123456789"),
    ("tag:yaml.org,2002:float", r"[-+]?[0-9]*\.[0-9]+", "-+.0123456789"),
    ("tag:yaml.org,2002:null", r"~|null|Null|NULL|", ("~", "n", "N", "")),
    ("tag:yaml.org,2002:merge", r"<<", "<"),
)
"""The scalar types of YAML 1.2. In YAML 1.1, which PyYAML implements, the port ``22:22`` would be a sexagesimal number
and ``on`` would be true."""
_MAX_VALUES = 1_000_000
_VARIABLE = re.compile(
    r"\$(?:(?P<escaped>\$)|(?P<bare>[A-Za-z_]\w*)|\{(?P<name>[A-Za-z_]\w*)(?:(?P<how>:?[-?+])(?P<other>(?:[^{}]|\$\{[^{}]*\})*))?\})"
)


def content(path: str, text: str, variables: "_Variables") -> Mapping[str, Any]:
    """Return the content of a compose file, with variables from the environment and from ``.env`` in its directory.

    Raises:
        UnreadableFile: the file is not a compose file.
    """
    import yaml  # imported only here, because that takes 20 ms

    resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    for tag, pattern, starts in _TYPES:
        for start in starts:
            resolvers.setdefault(start, []).append((tag, re.compile(f"(?:{pattern})$")))
    try:
        loader = yaml.SafeLoader(text)  # raises ReaderError for control characters
        loader.yaml_implicit_resolvers = resolvers
        try:
            node = loader.get_single_node()
            _check_names(path, node, set())
            document = None if node is None else loader.construct_document(node)
        finally:
            loader.dispose()
    except (yaml.YAMLError, RecursionError, ValueError) as err:  # ValueError: a number with thousands of digits
        raise UnreadableFile(f"{path}: is not YAML: {' '.join(str(err).split())}") from err
    if not isinstance(document, Mapping) or not isinstance(document.get("services"), Mapping):
        raise UnreadableFile(f"{path}: has no services")
    try:
        filled: Mapping[str, Any] = variables.filled(document)
    except RecursionError as err:  # an anchor whose value contains its own alias
        raise UnreadableFile(f"{path}: is nested too deeply") from err
    check_text(path, filled)
    return filled


def _check_names(path: str, node: Any, checked: set[int]) -> None:
    """Check that no table of a YAML document has a key twice, of which PyYAML would take the last one.

    Raises:
        UnreadableFile: there is such a key, as with docker compose.
    """
    if id(node) in checked or not isinstance(getattr(node, "value", None), list):
        return
    checked.add(id(node))
    names = set()
    for item in node.value:
        key, value = item if isinstance(item, tuple) else (None, item)
        if key is not None and isinstance(key.value, str):
            if key.value in names:
                raise UnreadableFile(f"{path}:{key.start_mark.line + 1}: {key.value} occurs twice")
            names.add(key.value)
        _check_names(path, value, checked)


class _Variables:
    """Substitutes variables such as ``$NAME`` and ``${NAME:-default}``."""

    def __init__(self, path: str, outcome: Outcome) -> None:
        self._path = path
        self._outcome = outcome
        self._count = 0
        file = os.path.join(os.path.dirname(os.path.abspath(path)), ".env")
        self.values = {**_env_file(file, outcome), **os.environ}

    def filled(self, value: Any) -> Any:
        """Return a value with all variables in it substituted.

        Raises:
            UnreadableFile: aliases in the file expand to too many values.
        """
        self._count += 1
        if self._count > _MAX_VALUES:
            raise UnreadableFile(f"{self._path}: aliases expand to more than {_MAX_VALUES} values")
        if isinstance(value, Mapping):
            return {str(key): self.filled(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.filled(item) for item in value]
        return self._text(value) if isinstance(value, str) else value

    def _text(self, text: str) -> str:
        return _VARIABLE.sub(self._replaced, text)

    def _replaced(self, match: re.Match[str]) -> str:
        if match["escaped"]:
            return "$"
        name, how, other = match["bare"] or match["name"], match["how"] or "", match["other"] or ""
        value = self.values.get(name)
        is_there = value is not None and (value != "" or not how.startswith(":"))
        if how.endswith("+"):
            return self._text(other) if is_there else ""
        if is_there:
            self._outcome.advise(self._path, f"${name} has the value that it has here and now")
            return value or ""
        if how.endswith("-"):
            return self._text(other)
        self._outcome.note(self._path, f"${name} is not set: it is empty{f' ({other})' if other else ''}")
        return ""


def _env_file(path: str, outcome: Outcome) -> dict[str, str]:
    try:
        with open(path, encoding="utf-8") as file:
            variables = parse_variables(file.read())
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, InvalidValue) as err:
        outcome.note(path, f"cannot read it: {err}")
        return {}
    if referring := [name for name, value in variables.items() if "$" in value]:
        outcome.note(path, f"variables in the value of {', '.join(referring)} are not replaced")
    return variables
