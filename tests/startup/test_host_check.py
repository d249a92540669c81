"""Requirements of a configuration on this host."""

import importlib.util
from pathlib import Path

import pytest

from supervisor.config.load import load
from supervisor.config.problems import ConfigError
from supervisor.startup import host_check


def test_export_without_its_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the SDK, an export of type otlp is an error at its key, with the command that installs the SDK."""
    path = tmp_path / "ringward.toml"
    path.write_text('[tasks.t]\nrun = "true"\n\n[exports.x]\ntype = "otlp"\nurl = "http://localhost:4318"\n')
    path.chmod(0o600)
    original = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if "opentelemetry" in name else original(name))
    with pytest.raises(ConfigError) as failed:
        host_check.check_host(load(str(path)), {})
    (problem,) = failed.value.problems
    assert (problem.line, problem.key) == (5, "exports.x.type")
    assert "needs the OpenTelemetry SDK" in problem.message
    assert "pip install opentelemetry-exporter-otlp-proto-http" in (problem.remedy or "")
