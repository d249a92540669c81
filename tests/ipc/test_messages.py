"""Messages between processes of different versions."""

import ast
import tarfile
from typing import Any

import pytest

from supervisor.ipc import messages
from supervisor.ipc.messages import PROTOCOL, DaemonSettings, Spawn, spawn_message
from tests.support.paths import ROOT

FIRST_PROTOCOL = ROOT / "tests/e2e/upgrade/versions/2026-11-25.tar.xz"
FIELDS: dict[str, Any] = {
    "run": "R",
    "task": "t",
    "argv": ["true"],
    "env": {},
    "log": "/l",
    "log_max_bytes": 1,
    "stop_signal": 15,
    "grace_ms": 5000,
}
"""The fields that every request has had since the first protocol."""


def test_request_omits_defaults() -> None:
    """A request omits fields with their default, so a version that lacks an unused field can read it."""
    assert spawn_message(Spawn(**FIELDS), PROTOCOL) == FIELDS
    assert spawn_message(Spawn(**FIELDS, tty=True, limits={}), 1) == {**FIELDS, "tty": True}


def test_request_round_trip() -> None:
    """The receiver has every value of a request, including the defaults."""
    spawn = Spawn(**FIELDS, stdin_open=True, stop_target="main", limits={"nice": 3.0}, umask=0o027)
    assert Spawn(**spawn_message(spawn, PROTOCOL)) == spawn


def test_request_for_an_older_root() -> None:
    """A request that an older root cannot fulfil is refused with the keys and the remedy."""
    spawn = Spawn(**spawn_message(Spawn(**FIELDS, stdin_open=True, stop_target="main"), 1))
    assert spawn.refusal == ("the running supervisor is too old for stdin_open, stop_target: run ringward upgrade")
    assert not spawn.stdin_open


def test_settings_of_another_version() -> None:
    """A root ignores unknown settings, and takes the defaults of missing ones."""
    boot = DaemonSettings(
        daemon_id="D",
        data_dir="/d",
        runtime_dir="/r",
        config_path="/c",
        listen=[("127.0.0.1", 1)],
        http_socket="/s",
        workers=1,
        shutdown_timeout_ms=1,
        log_level="info",
        password="p" * 8,
        password_ephemeral=False,
        token="t",
        started_at=1,
        run_token_key="k",
    )
    assert DaemonSettings.from_dict(boot.to_dict()) == boot
    assert "run_token_key" not in boot.to_dict(1)
    assert DaemonSettings.from_dict(boot.to_dict(1)).run_token_key == ""


def fields_of(source: str, name: str) -> set[str]:
    (class_node,) = (
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef) and node.name == name
    )
    return {
        statement.target.id
        for statement in class_node.body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    }


@pytest.mark.parametrize(("kind", "first_name"), [(Spawn, "Spawn"), (DaemonSettings, "Boot")])
def test_new_fields_have_a_protocol(kind: type, first_name: str) -> None:
    """Every field that the first protocol lacks declares its protocol, so that an older root does not get it."""
    with tarfile.open(FIRST_PROTOCOL) as archive:
        file = archive.extractfile("supervisor/messages.py")
        assert file is not None
        declared = fields_of(file.read().decode(), first_name)
    assert declared <= kind.__dataclass_fields__.keys()  # type: ignore[attr-defined]
    assert kind.__dataclass_fields__.keys() - declared <= messages._SINCE.keys()  # type: ignore[attr-defined]
