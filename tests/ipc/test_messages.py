"""Messages between processes of different versions."""

import ast
import re
import tarfile
from typing import Any

import pytest

from supervisor.ipc import messages
from supervisor.ipc.messages import PROTOCOL, DaemonSettings, Spawn, spawn_message
from tests.support.paths import ROOT

FIRST_PROTOCOL = ROOT / "tests/e2e/upgrade/versions/0.1.0.tar.xz"
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


_TO_ROOT = ("root.send", "root.ask", "self.ask")
"""Ends of the functions by which the scheduler sends a message to the root."""


def _documented(section: str) -> set[str]:
    """Return the messages that the list in the module's docstring has in a section."""
    (part,) = [part for part in (messages.__doc__ or "").split("\n\n") if part.startswith(f"{section}\n")]
    return set(re.findall(r"^    ``(\w+)``", part, re.MULTILINE))


def _named_in(node: ast.AST) -> set[str]:
    """Return the messages that dict displays below a node are."""
    return {
        str(value.value)
        for message in ast.walk(node)
        if isinstance(message, ast.Dict)
        for key, value in zip(message.keys, message.values, strict=True)
        if isinstance(key, ast.Constant) and key.value == "op" and isinstance(value, ast.Constant)
    }


def _trees(room: str) -> list[ast.Module]:
    return [ast.parse(path.read_text()) for path in (ROOT / room).rglob("*.py")]


def _sent_to_root() -> set[str]:
    calls = (call for tree in _trees("supervisor/scheduler") for call in ast.walk(tree) if isinstance(call, ast.Call))
    return set().union(*(_named_in(call) for call in calls if ast.unparse(call.func).endswith(_TO_ROOT)))


def test_list_of_messages_is_complete() -> None:
    """The list of messages between root and scheduler has each message that is sent, and no other."""
    assert set().union(*map(_named_in, _trees("supervisor/root"))) | {"hello"} == _documented("Root -> scheduler")
    assert _sent_to_root() == _documented("Scheduler -> root")


def test_request_omits_defaults() -> None:
    """A request omits fields with their default, so a version that lacks an unused field can read it."""
    assert spawn_message(Spawn(**FIELDS), PROTOCOL) == FIELDS
    assert spawn_message(Spawn(**FIELDS, tty=True, limits={}), PROTOCOL) == {**FIELDS, "tty": True}


def test_request_round_trip() -> None:
    """The receiver has every value of a request, including the defaults."""
    spawn = Spawn(**FIELDS, stdin_open=True, stop_target="main", limits={"nice": 3.0}, umask=0o027)
    assert Spawn(**spawn_message(spawn, PROTOCOL)) == spawn


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> int:
    """The protocol that added some fields."""
    added = PROTOCOL + 1
    for name in ("stdin_open", "stop_target", "run_token_key"):
        monkeypatch.setitem(messages._SINCE, name, added)
    return added


def test_request_for_an_older_root(added: int) -> None:
    """A request that an older root cannot fulfil is refused with the keys and the remedy."""
    wanted = Spawn(**FIELDS, stdin_open=True, stop_target="main")
    assert Spawn(**spawn_message(wanted, added)) == wanted
    spawn = Spawn(**spawn_message(wanted, added - 1))
    assert spawn.refusal == ("the running supervisor is too old for stdin_open, stop_target: run ringward upgrade")
    assert not spawn.stdin_open


def test_settings_of_another_version(added: int) -> None:
    """A root ignores unknown settings, and takes the defaults of missing ones."""
    settings = DaemonSettings(
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
    assert DaemonSettings.from_dict(settings.to_dict(added)) == settings
    older = settings.to_dict(added - 1)
    assert "run_token_key" not in older
    assert DaemonSettings.from_dict(older).run_token_key == ""


def fields_of(source: str, name: str) -> set[str]:
    (class_node,) = (
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef) and node.name == name
    )
    return {
        statement.target.id
        for statement in class_node.body
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name)
    }


@pytest.mark.parametrize("kind", [Spawn, DaemonSettings])
def test_new_fields_have_a_protocol(kind: type) -> None:
    """Every field that the first protocol lacks declares its protocol, so that an older root does not get it."""
    with tarfile.open(FIRST_PROTOCOL) as archive:
        file = archive.extractfile("supervisor/ipc/messages.py")
        assert file is not None
        declared = fields_of(file.read().decode(), kind.__name__)
    assert declared <= kind.__dataclass_fields__.keys()  # type: ignore[attr-defined]
    assert kind.__dataclass_fields__.keys() - declared <= messages._SINCE.keys()  # type: ignore[attr-defined]
