"""Compose files: YAML and variables, services as launched containers, health checks, jobs of ofelia."""

import os
import shlex
from pathlib import Path
from typing import Any

import pytest
import tomli

from supervisor.cli import exit_codes
from supervisor.tools.importers import compose
from supervisor.tools.importers.import_result import Outcome, UnreadableFile
from tests.support.command_line import Ringward
from tests.tools.importers.imported import checked, mentions

SHOP = """
version: "3.9"
name: shop
x-common: &common
  restart: unless-stopped
  environment: { TZ: UTC }
services:
  web:
    <<: *common
    image: ghcr.io/acme/shop:${TAG:-1.4}
    command: ["gunicorn", "shop:app", "--bind", ":8000"]
    ports: ["8000:8000", "22:22"]
    env_file: web.env
    environment: [MODE=live, "PRICE=5$$", PATH=/opt/bin]
    volumes: ["./data:/data:ro", "cache:/cache"]
    working_dir: /app
    stop_grace_period: 1m30s
    depends_on:
      db: { condition: service_healthy }
      migrate: { condition: service_completed_successfully }
    labels:
      ofelia.enabled: "true"
      ofelia.job-exec.clean.schedule: "@every 1h"
      ofelia.job-exec.clean.command: "python manage.py clean --days '30'"
  migrate:
    image: ghcr.io/acme/shop:${TAG:-1.4}
    command: python manage.py migrate
    depends_on: [db]
  db:
    image: postgres:16
    restart: always
    shm_size: 128mb
    volumes:
      - { type: volume, source: db, target: /var/lib/postgresql/data }
    healthcheck:
      test: ["CMD-SHELL", "pg_isready -U postgres"]
      interval: 5s
  ofelia:
    image: mcuadros/ofelia:latest
    command: daemon --docker
    labels:
      - ofelia.job-run.dump.schedule=0 30 2 * * *
      - ofelia.job-run.dump.image=postgres:16
      - ofelia.job-run.dump.command=pg_dump shop
      - ofelia.job-run.dump.no-overlap=true
volumes: { db: , cache: { name: big-cache } }
"""


UNREADABLE = (
    'services: { a: { image: "\0" } }',
    f"services: {{ a: {{ image: i, scale: {'9' * 5000} }} }}",
    "services: &a { b: *a }",
    'services: { a: { image: "\\ud800" } }',
)
"""A control character, a number with too many digits, a table that contains itself, a lone surrogate."""


def imported(tmp_path: Path, text: str) -> tuple[Outcome, dict[str, Any], dict[str, Any]]:
    """Return the outcome, tasks and services, and launchers."""
    outcome = Outcome()
    compose.read(str(tmp_path / "compose.yaml"), text, outcome)
    units = checked(outcome, tmp_path)
    return outcome, units, tomli.loads(outcome.toml("a test")).get("launchers", {})


def service(tmp_path: Path, *lines: str) -> tuple[Outcome, dict[str, Any], list[str]]:
    """Return the outcome, the service and the options of its container."""
    text = "\n".join(("name: p", "services:", "  one:", "    image: i", *(f"    {line}" for line in lines)))
    outcome, units, launchers = imported(tmp_path, text + "\n")
    return outcome, units["one"], launchers["docker-one"]["options"]


def test_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compose services become services that docker starts, with their dependencies, checks and schedules."""
    monkeypatch.delenv("TAG", raising=False)
    (tmp_path / "web.env").write_text("SECRET='a b'\n")
    (tmp_path / "web.env").chmod(0o600)
    outcome, units, launchers = imported(tmp_path, SHOP)
    web, options = units["web"], launchers["docker-web"]["options"]
    assert (launchers["docker-web"]["preset"], launchers["docker-web"]["image"]) == ("docker", "ghcr.io/acme/shop:1.4")
    assert web["run"] == ["gunicorn", "shop:app", "--bind", ":8000"]
    assert web["env"] == {"MODE": "live", "PRICE": "5$"}
    assert web["env_file"] == [str(tmp_path / "web.env")]
    assert (web["restart"], web["restart_attempts"], web["graceful_stop"]) == ("always", "unlimited", "1m30s")
    assert web["depends_on"] == [
        {"name": "shop-networks", "until": "succeeded"},
        {"name": "db", "until": "ready"},
        {"name": "migrate", "until": "succeeded"},
    ]
    for option in (
        "--publish=8000:8000",
        "--publish=22:22",
        f"--volume={tmp_path}/data:/data:ro",
        "--volume=big-cache:/cache",
        "--workdir=/app",
        "--env=PATH=/opt/bin",
        "--network=shop_default",
        "--network-alias=web",
    ):
        assert option in options
    assert "docker network create shop_default" in units["shop-networks"]["run"]
    assert units["migrate"]["run"] == ["python", "manage.py", "migrate"]
    assert mentions(outcome, "services.migrate", "depends_on db")
    assert (units["db"]["run"], launchers["docker-db"]["start"][-1]) == (["postgres:16"], "{command}")
    assert "--volume=shop_db:/var/lib/postgresql/data" in launchers["docker-db"]["options"]
    check = "docker exec \"ringward-$RINGWARD_RUN_ID\" /bin/sh -c 'pg_isready -U postgres'"
    assert units["db"]["ready"] == {"exec": check, "every": "5s", "timeout": "520w"}
    assert "ofelia" not in units
    clean, dump = units["clean"], units["dump"]
    assert clean["every"] == "1h"
    assert "--filter=label=ringward.compose=shop.web" in clean["run"]
    assert shlex.split(clean["run"])[-5:] == ["python", "manage.py", "clean", "--days", "30"]
    assert (dump["cron"], dump["on_overlap"]) == ("0 30 2 * * *", "skip")
    assert dump["run"] == ["docker", "run", "--rm", "postgres:16", "pg_dump", "shop"]


def test_command(ringward: Ringward, tmp_path: Path) -> None:
    """The written file is valid, and the exit status reports whether anything is missing."""
    source, target = tmp_path / "compose.yaml", tmp_path / "compose.toml"
    source.write_text("services:\n  one:\n    image: i\n    logging: { driver: gelf }\n")
    result = ringward("import", "compose", str(source), "-o", str(target), plain=True)
    assert result.exit_code == exit_codes.REFUSED
    assert "1 task, 1 service" in result.output
    assert ringward("validate", str(target), plain=True).exit_code == exit_codes.OK
    assert "# CHECK: logging = {'driver': 'gelf'} is not converted" in target.read_text()
    source.write_text("services:\n  one:\n    image: i\n")
    assert ringward("import", "compose", str(source), plain=True).exit_code == exit_codes.OK


def test_yaml(tmp_path: Path) -> None:
    """Values follow YAML 1.2, as in compose; other files are refused."""
    _, definition, options = service(
        tmp_path, "environment: { A: on, B: 0755, C: 1:20, D: true, E: 1e3, F: 2026-01-01 }"
    )
    assert definition["env"] == {"A": "on", "B": "0755", "C": "1:20", "D": "true", "E": "1e3", "F": "2026-01-01"}
    assert "--label=ringward.compose=p.one" in options
    for text in ("services: [", "- a", "services: []", "a: &a [*a", "x: !!python/object:os.system {}", *UNREADABLE):
        with pytest.raises(UnreadableFile):
            compose.read("c.yaml", text, Outcome())


def test_expanding_aliases() -> None:
    """Aliases that expand to billions of values are refused."""
    levels = [f"a{level + 1}: &a{level + 1} [*a{level}, *a{level}, *a{level}, *a{level}]\n" for level in range(30)]
    text = "a0: &a0 {x: 1, y: 2}\n" + "".join(levels) + "services: {}\n"
    with pytest.raises(UnreadableFile, match="expand to more than"):
        compose.read("c.yaml", text, Outcome())


def test_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables have the values of the environment and of .env, and a variable without a value is reported."""
    monkeypatch.setenv("FROM_HERE", "here")
    monkeypatch.delenv("NOWHERE", raising=False)
    (tmp_path / ".env").write_text("FROM_FILE=file\nEMPTY=\n")
    outcome, definition, _ = service(
        tmp_path,
        "environment:",
        "  A: $FROM_HERE-${FROM_FILE}",
        '  B: "${NOWHERE:-x}${EMPTY:-y}${EMPTY-z}${FROM_HERE:+w}"',
        "  C: $${literal}",
        "  D: ${NOWHERE}",
        "  E: ${NOWHERE:-${FROM_FILE}}",
        "  FROM_HERE:",
    )
    expected = {"A": "here-file", "B": "xyw", "C": "$${literal}", "D": "", "E": "file", "FROM_HERE": "here"}
    assert {name: value for name, value in definition["env"].items() if name != "D"} == {
        name: value for name, value in expected.items() if name != "D"
    }
    assert mentions(outcome, "$NOWHERE is not set")


@pytest.mark.parametrize(
    ("line", "keys"),
    [
        ("restart: no", {"restart": "never"}),
        ('restart: "no"', {"restart": "never"}),
        ("tty: false", {"restart": "never"}),
        ("restart: on-failure:5", {"restart": "on_failure", "restart_attempts": 5}),
        ("restart: on-failure", {"restart": "on_failure", "restart_attempts": "unlimited"}),
        ("restart: always", {"restart": "always", "restart_delay": "100ms", "restart_max_delay": "60s"}),
        ("deploy: { replicas: 3 }", {"instances": 3}),
        ("profiles: [debug]", {"autostart": False}),
        ("stdin_open: true", {"stdin": "open"}),
        ("entrypoint: /init --now", {"run": ["--now"]}),
        ("command: sh -c 'exec x y'", {"run": ["sh", "-c", "exec x y"]}),
        ("healthcheck: { test: [CMD, ok, a b] }", {"ready": {"exec": "", "every": "30s", "timeout": "520w"}}),
        ("healthcheck: { disable: true }", {"ready": None}),
    ],
)
def test_keys(tmp_path: Path, line: str, keys: dict[str, Any]) -> None:
    """Restarts, numbers, commands and health checks have the meaning and the defaults of docker."""
    definition = service(tmp_path, line)[1]
    if definition.get("ready"):
        assert shlex.split(definition["ready"].pop("exec"))[-2:] == ["ok", "a b"]
        keys["ready"].pop("exec")
    assert {key: definition.get(key) for key in keys} == keys


@pytest.mark.parametrize(
    ("line", "option"),
    [
        (
            "ports: [{ target: 80, published: 8080, host_ip: 127.0.0.1, protocol: tcp }]",
            "--publish=127.0.0.1:8080:80/tcp",
        ),
        ("network_mode: host", "--network=host"),
        (
            "networks: { front: , back: { aliases: [api], ipv4_address: 10.0.0.2 } }",
            "--network=name=p_back,alias=one,alias=api,ip=10.0.0.2",
        ),
        ("networks: { back: { aliases: [api], ipv4_address: 10.0.0.2 } }", "--network=p_back"),
        ("networks: { back: { aliases: [api], ipv4_address: 10.0.0.2 } }", "--network-alias=api"),
        ("networks: { back: { aliases: [api], ipv4_address: 10.0.0.2 } }", "--ip=10.0.0.2"),
        ("extra_hosts: ['db=10.0.0.1']", "--add-host=db:10.0.0.1"),
        ("ulimits: { nofile: { soft: 10, hard: 20 } }", "--ulimit=nofile=10:20"),
        ("sysctls: { net.core.somaxconn: 1024 }", "--sysctl=net.core.somaxconn=1024"),
        ("tmpfs: /run", "--tmpfs=/run"),
        ("init: true", "--init"),
        ("user: '1000:1000'", "--user=1000:1000"),
        ("stop_signal: SIGQUIT", "--stop-signal=SIGQUIT"),
        ("pull_policy: always", "--pull=always"),
        ("deploy: { resources: { limits: { memory: 50M, cpus: '0.5' } } }", "--memory=50M"),
        ("labels: { a.b: c }", "--label=a.b=c"),
        ("volumes: ['/srv/x:/x']", "--volume=/srv/x:/x"),
    ],
)
def test_options(tmp_path: Path, line: str, option: str) -> None:
    """Settings that docker run has an option for become that option."""
    outcome, _, options = service(tmp_path, line)
    assert option in options
    assert not outcome.lost


@pytest.mark.parametrize(
    ("line", "note"),
    [
        ("build: .", "docker compose build"),
        ("extends: { service: base }", "docker compose config"),
        ("container_name: the-one", "container_name = the-one"),
        ("env_file: none.env", "none.env"),
        ("network_mode: service:vpn", "network_mode"),
        ("labels: { rule: 'Host({name})' }", "--label=rule=Host({name})"),
        ("secrets: [outside]", "secrets: outside"),
        ("stop_grace_period: 10m", "shutdown_timeout"),
        ("healthcheck: { test: x, timeout: 20s }", "healthcheck.timeout"),
        ("depends_on: [nobody]", "depends_on nobody"),
        ("restart: sometimes", "restart = sometimes"),
        ("gpus: all", "gpus = all"),
        ("labels: { ofelia.job-exec.x.schedule: never, ofelia.job-exec.x.command: y }", "cannot be expressed"),
    ],
)
def test_settings_not_carried_over_are_reported(tmp_path: Path, line: str, note: str) -> None:
    """Settings that are not converted are listed in the file and make the exit status 1."""
    outcome, _, _ = service(tmp_path, line)
    assert mentions(outcome, "services.one", note)
    assert any(note in str(loss) for loss in outcome.lost)
    assert any(text.startswith("# CHECK") and note in text for text in outcome.toml("a test").splitlines())


def test_values_of_the_wrong_kind(tmp_path: Path) -> None:
    """An invalid service is reported, and an unusable file is refused."""
    outcome, units, _ = imported(
        tmp_path,
        "services: { a: 5, b: { image: i }, c: , d: { image: i, env_file: [[]] }, "
        "e: { image: i, env_file: { required: true } } }",
    )
    assert {"b"} <= units.keys()
    for name in ("a", "c", "e"):
        assert mentions(outcome, f"services.{name}", "is not converted")
    for text in (
        "services: { a: { image: i, depends_on: 5 } }",
        "services: { a: { image: i, labels: 5 } }",
        "{ services: {}, volumes: x }",
    ):
        with pytest.raises(UnreadableFile, match="not a compose file"):
            compose.read("c.yaml", text, Outcome())


def test_project_names(tmp_path: Path) -> None:
    """A project without a name is named after its directory."""
    directory = tmp_path / "My Shop.d"
    directory.mkdir()
    outcome = Outcome()
    compose.read(os.fspath(directory / "c.yaml"), "services: { a: { image: i } }", outcome)
    assert next(unit.name for unit in outcome.units) == "myshopd-networks"


def test_variables_without_a_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name without a value takes it from the environment, or else from ``.env``, as does the project's name."""
    (tmp_path / ".env").write_text("A=file\nB=file\nCOMPOSE_PROJECT_NAME=shop\n")
    monkeypatch.setenv("A", "here")
    for name in ("B", "C", "COMPOSE_PROJECT_NAME"):
        monkeypatch.delenv(name, raising=False)
    text = "services:\n  one:\n    image: i\n    environment:\n      A:\n      B:\n      C:\n"
    outcome, units, _ = imported(tmp_path, text)
    assert units["one"]["env"] == {"A": "here", "B": "file"}
    assert "shop-networks" in units
    assert mentions(outcome, "environment: C has no value here")


def test_network_settings(tmp_path: Path) -> None:
    """A network is internal if the file says so, and settings that are not converted are reported by name."""
    text = """
name: p
services: { one: { image: i, networks: [back, front] } }
networks:
  back: { internal: true, driver: macvlan, ipam: { driver: default } }
  front: { internal: "false" }
"""
    outcome, units, _ = imported(tmp_path, text)
    run = units["p-networks"]["run"]
    assert "docker network create --internal --driver=macvlan p_back\n" in run
    assert run.endswith("docker network create p_front")
    assert mentions(outcome, "networks.back", "created without ipam")
    assert not mentions(outcome, "networks.front")


def test_booleans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A boolean can be the text of a variable, which compose converts."""
    monkeypatch.setenv("YES", "true")
    lines = ("read_only: ${YES}", "init: 'false'", "stdin_open: 'yes'", "healthcheck: { test: x, disable: '${YES}' }")
    outcome, definition, options = service(tmp_path, *lines, "restart: on-failure:0")
    assert "--read-only" in options
    assert "--init" not in options
    assert (definition["stdin"], "ready" in definition, definition["restart_attempts"]) == ("open", False, "unlimited")
    assert not outcome.lost
    assert service(tmp_path, "healthcheck: { test: x, interval: 0s }")[1]["ready"]["every"] == "30s"


@pytest.mark.parametrize(
    "text", ["services: { a: { image: i }, a: { image: j } }", "services:\n  a:\n    x: 1\n    x: 2\n"]
)
def test_keys_that_occur_twice(text: str) -> None:
    """A file with a key twice is refused, as by docker compose."""
    with pytest.raises(UnreadableFile, match=r"^x:\d: (a|x) occurs twice"):
        compose.read("x", text, Outcome())


def test_references_in_env_files(tmp_path: Path) -> None:
    """References to variables in a file of variables, which compose replaces, are reported."""
    (tmp_path / "web.env").write_text("A=1\nB=${A}/x\n")
    (tmp_path / "web.env").chmod(0o600)
    assert mentions(service(tmp_path, "env_file: web.env")[0], "web.env: variables in the value of B")


def test_sysctl_without_a_value(tmp_path: Path) -> None:
    """A kernel parameter without a value is reported."""
    assert mentions(service(tmp_path, "sysctls: [net.core.somaxconn]")[0], "sysctls", "is not converted")


def test_settings_of_ofelia(tmp_path: Path) -> None:
    """Booleans of ofelia are read in any spelling, and those that change something are reported."""
    labels = ("schedule: '@daily'", "image: i", "command: c", "no-overlap: 'True'", "delete: 'false'")
    lines = ("labels:", *(f"  ofelia.job-run.dump.{label}" for label in labels))
    outcome = service(tmp_path, *lines)[0]
    (dump,) = (unit for unit in outcome.units if unit.name == "dump")
    assert dump.keys["on_overlap"] == "skip"
    assert mentions(outcome, "job-run.dump", "delete = false is not converted")
    assert not service(tmp_path, *lines[:-1], "  ofelia.job-run.dump.delete: 'true'")[0].lost


def test_terminals_with_open_input(tmp_path: Path) -> None:
    """A container with a terminal is not interactive: docker run refuses a terminal whose input is not one itself."""
    _, definition, options = service(tmp_path, "tty: true", "stdin_open: true")
    assert "--tty" in options
    assert "--interactive" not in options
    assert "stdin" not in definition


@pytest.mark.parametrize(
    ("restart", "attempts", "lost"),
    [
        ("on-failure:5", 5, False),
        ("on-failure", 3, True),
        ("on-failure:0", 3, True),
        ("always", 3, True),
        ("no", 3, False),
    ],
)
def test_restarts_of_tasks(tmp_path: Path, restart: str, attempts: int, lost: bool) -> None:
    """A service that others wait for is retried as often as it would be restarted; another number is reported."""
    one = f"one: {{ image: i, restart: '{restart}' }}"
    two = "two: { image: i, depends_on: { one: { condition: service_completed_successfully } } }"
    outcome, units, _ = imported(tmp_path, f"services: {{ {one}, {two} }}")
    assert units["one"]["retry_attempts"] == attempts
    assert bool(outcome.lost) == lost
    assert mentions(outcome, "services.one", f"restart = {restart.partition(':')[0]}", f"{attempts} retries") == lost
