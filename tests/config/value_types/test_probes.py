"""The tables `ready` and `live`, and `depends_on`."""

from pathlib import Path
from typing import Any

import pytest

from supervisor.config.load import load
from supervisor.config.problems import ConfigError, InvalidValue
from supervisor.config.value_records import Dependency, Probe
from supervisor.config.value_types.dependencies import DependencyEntry
from supervisor.config.value_types.probes import LIVE, READY
from tests.support.host_features import needs_re2


def probe(kind: str, target: Any = "", every_ms: int = 1000, timeout_ms: int = 60_000) -> Probe:
    return Probe(kind=kind, target=target, every_ms=every_ms, timeout_ms=timeout_ms)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"notify": True}, probe("notify")),
        ({"http": "http://127.0.0.1:8080/healthz"}, probe("http", "http://127.0.0.1:8080/healthz")),
        ({"http": "https://[::1]/?deep=1", "every": "5s"}, probe("http", "https://[::1]/?deep=1", 5000)),
        ({"http": "http://127.0.0.1:80{instance}/"}, probe("http", "http://127.0.0.1:80{instance}/")),
        ({"tcp": "localhost:54{instance}2"}, probe("tcp", "localhost:54{instance}2")),
        ({"tcp": "[::1]:5432", "timeout": "10s"}, probe("tcp", "[::1]:5432", timeout_ms=10_000)),
        ({"exec": "pg_isready -q"}, probe("exec", "pg_isready -q")),
        ({"exec": ["pg_isready", "-q"]}, probe("exec", ("pg_isready", "-q"))),
        pytest.param({"log": "^on [0-9]+$"}, probe("log", "^on [0-9]+$"), marks=needs_re2),
    ],
)
def test_ready_probes(value: dict[str, Any], expected: Probe) -> None:
    """Each kind of readiness probe is parsed, with its defaults."""
    assert READY.parse(value, "/") == expected


def test_live_probes() -> None:
    """A liveness probe has its own times, and a number of failures."""
    assert LIVE.parse({"tcp": "127.0.0.1:1"}, "/") == Probe(
        kind="tcp", target="127.0.0.1:1", every_ms=10_000, timeout_ms=2000, failures=3
    )
    assert LIVE.parse({"notify": True, "failures": 5}, "/").failures == 5


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("http://x/", "must be a table"),
        ({}, "must have exactly one of notify, http, tcp, exec, log, it has none"),
        ({"every": "1s"}, "it has none"),
        ({"tcp": "x:1", "http": "http://x/"}, "not http and tcp"),
        ({"notify": False}, "must be true"),
        ({"htpp": "http://x/"}, "unknown key"),
        ({"tcp": "x:1", "failures": 3}, "unknown key"),
        ({"http": "ftp://x/"}, "must be a URL"),
        ({"http": "http://"}, "must be a URL"),
        ({"http": "http://x:99999/"}, "must be a URL"),
        ({"http": "http://u:p@x/"}, "must be a URL"),
        ({"http": "http://x/ y\r\nHost: z"}, "must be a URL"),
        ({"tcp": "5432"}, "must be a host and a port"),
        ({"tcp": "host"}, "must be a host and a port"),
        ({"tcp": "host:0"}, "must be a host and a port"),
        ({"tcp": "host:1/x"}, "must be a host and a port"),
        ({"exec": ""}, "must not be empty"),
        ({"exec": []}, "must name a program"),
        pytest.param({"log": "("}, "is not a valid regular expression", marks=needs_re2),
        ({"log": "a\nb"}, "is not a valid regular expression"),
        ({"tcp": "x:1", "every": "1ms"}, "from 50ms"),
        ({"tcp": "x:1", "timeout": "0s"}, "from 1ms"),
    ],
)
def test_invalid_ready_probes(value: object, message: str) -> None:
    """An invalid probe is refused with the reason."""
    with pytest.raises(InvalidValue) as caught:
        READY.parse(value, "/")
    assert message in str(caught.value)


def test_no_liveness_by_log() -> None:
    """A liveness probe cannot be a log line, because a line printed once says nothing about later."""
    with pytest.raises(InvalidValue, match="unknown key"):
        LIVE.parse({"log": "x"}, "/")


def test_dependencies() -> None:
    """A dependency is a name or a table."""
    assert DependencyEntry().parse("db", "/") == Dependency("db")
    assert DependencyEntry().parse({"name": "db", "until": "started"}, "/") == Dependency("db", "started")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("", "must not be empty"),
        ("a b", "must be the name"),
        (5, "must be the name"),
        ({"until": "ready"}, "must have a name"),
        ({"name": "db", "untill": "ready"}, "unknown key"),
        ({"name": "db", "until": "healthy"}, 'must be "started" or "ready" or "succeeded"'),
    ],
)
def test_invalid_dependencies(value: object, message: str) -> None:
    """An invalid dependency is refused with the reason."""
    with pytest.raises(InvalidValue) as caught:
        DependencyEntry().parse(value, "/")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ({"a": '["b"]', "b": '["a"]'}, "services.a.depends_on: dependency cycle: a -> b -> a"),
        ({"a": '["a"]', "b": "[]"}, "dependency cycle: a -> a"),
        ({"c": '["a"]', "a": '["b"]', "b": '["t", "a"]'}, "dependency cycle: a -> b -> a"),
        ({"a": '["x"]'}, 'services.a.depends_on[0]: no task or service named "x"'),
        ({"a": '["t", { name = "t", until = "ready" }]'}, "services.a.depends_on[1]: t is a task"),
        ({"a": '[{ name = "b", until = "succeeded" }]', "b": "[]"}, "b is a service"),
    ],
)
def test_impossible_dependencies(tmp_path: Path, edges: dict[str, str], message: str) -> None:
    """Unknown names, cycles and impossible conditions are reported with their place."""
    path = tmp_path / "r.toml"
    path.write_text(
        '[tasks.t]\nrun = "true"\n'
        + "".join(f'[services.{name}]\nrun = "true"\ndepends_on = {value}\n' for name, value in edges.items())
    )
    path.chmod(0o600)
    with pytest.raises(ConfigError) as caught:
        load(str(path))
    assert message in str(caught.value)
    assert len(caught.value.problems) == 1


def test_dependency_with_required_parameters(tmp_path: Path) -> None:
    """A task that a service depends on needs defaults for its required parameters, because no client passes them."""
    path = tmp_path / "r.toml"
    task = '[tasks.t]\nrun = "true"\nparams = [{{ name = "X", kind = "env", required = true{} }}]\n'
    service = '[services.a]\nrun = "true"\ndepends_on = ["t"]\n'
    path.write_text(task.format("") + service)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match=r'depends_on\[0\]: t requires the parameter "X"'):
        load(str(path))
    path.write_text(task.format(', default = "1"') + service)
    assert load(str(path)).services
