"""The JSON Schema of the configuration."""

import json
import re
from collections.abc import Iterator
from typing import Any

import docutils.core
import docutils.nodes
import jsonschema_rs
import pytest
import tomli

from supervisor.config.jsonschema import DIALECT, document, example, schema_of
from supervisor.config.key_tables import EXTERNAL, KEYS
from supervisor.config.keys import REQUIRED
from tests.support.command_line import Ringward
from tests.support.paths import ROOT

TABLES = {
    "notifier": "notifiers",
    "route": "routes",
    "launcher": "launchers",
    "hook": "hooks",
    "export": "exports",
    "slot": "slots",
    "calendar": "calendars",
    "window": "windows",
    "task": "tasks",
    "service": "services",
}


@pytest.fixture(scope="module")
def validator() -> Any:
    return jsonschema_rs.Draft202012Validator(document())


def test_schema_is_valid() -> None:
    """The schema is valid in the dialect that it names."""
    jsonschema_rs.meta.validate(document())
    assert document()["$schema"] == DIALECT


def test_schema_has_every_key() -> None:
    """Each table has exactly its keys, with their meanings and defaults."""
    properties = document()["properties"]
    flow = properties["flows"]["additionalProperties"]
    command, named = flow["properties"]["steps"]["additionalProperties"]["anyOf"]
    of_flows = {"flow": flow, "step": command, "named_step": named, "step_defaults": flow["properties"]["defaults"]}
    for table in {table for key in KEYS for table in key.tables} - {EXTERNAL}:
        schema = of_flows[table] if table in of_flows else properties[TABLES.get(table, table)]
        inner = schema.get("additionalProperties") or schema.get("items") or schema
        expected = {key.name: key for key in KEYS if table in key.tables}
        assert set(inner["properties"]) - {"steps", "defaults"} == set(expected)
        for name, key in expected.items():
            assert key.doc in inner["properties"][name]["description"]
            if key.default not in (None, REQUIRED):
                assert inner["properties"][name]["default"] == key.default


def test_each_key_has_an_example() -> None:
    """Each key has a title and an example, which the schema and the loader accept."""
    for key in KEYS:
        schema = {**schema_of(key.type), "$defs": document()["$defs"]}
        value = example(key)
        assert jsonschema_rs.Draft202012Validator(schema).is_valid(value), key.name
        key.type.parse(value, "/etc/ringward")
    table = document()["properties"]["tasks"]["additionalProperties"]["properties"]
    assert table["timeout"]["title"] == "timeout"
    assert table["timeout"]["examples"] == ["30s"]


def nested(schema: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the schema of each key in a schema, at any depth."""
    if isinstance(schema, dict):
        yield from schema.get("properties", {}).items()
    for part in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        yield from nested(part)


def test_each_key_is_explained() -> None:
    """Each table and each key, even of a nested table, has a title, a meaning and a valid example."""
    whole = document()
    for name, schema in nested(whole):
        assert (schema["title"], bool(schema["description"])) == (name, True)
        if name not in whole["properties"] or schema is not whole["properties"][name]:
            validator = jsonschema_rs.Draft202012Validator({**schema, "$defs": whole["$defs"]})
            assert schema["examples"], name
            assert all(validator.is_valid(shown_example) for shown_example in schema["examples"]), name


def test_defaults_are_valid() -> None:
    """Each default is a valid value."""
    for key in KEYS:
        if key.default not in (None, REQUIRED):
            schema = {**schema_of(key.type), "$defs": document()["$defs"]}
            assert jsonschema_rs.Draft202012Validator(schema).is_valid(key.default), key.name


def examples() -> Iterator[str]:
    """Examples of the documentation, which the loader accepts (tests/test_docs.py), and the example file."""
    yield (ROOT / "examples" / "ringward.toml").read_text()
    for page in [ROOT / "README.rst", *sorted((ROOT / "docs").rglob("*.rst"))]:
        tree = docutils.core.publish_doctree(page.read_text(), settings_overrides={"report_level": 5})
        for block in tree.findall(docutils.nodes.literal_block):
            if "toml" in block["classes"]:
                yield block.astext()


def test_valid_configurations(validator: Any) -> None:
    """The example, and every configuration in the documentation, are valid."""
    texts = list(examples())
    assert len(texts) > 5
    for text in texts:
        plain = json.loads(json.dumps(tomli.loads(text), default=str))
        assert [f"{error.instance_path}: {error.message}" for error in validator.iter_errors(plain)] == [], text


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("[tasks.a]\nrunn = 'x'\nrun = 'x'", ["tasks", "a"]),
        ("[tasks.a]\ncron = '@daily'", ["tasks", "a"]),
        ("[tasks.'a b']\nrun = 'x'", ["tasks"]),
        ("[tasks.a]\nrun = 'x'\ntimeout = '5'", ["tasks", "a", "timeout"]),
        ("[tasks.a]\nrun = 'x'\nlog_max_size = '5 bytes'", ["tasks", "a", "log_max_size"]),
        ("[tasks.a]\nrun = 'x'\nretry_attempts = -1", ["tasks", "a", "retry_attempts"]),
        ("[tasks.a]\nrun = 'x'\non_overlap = 'wait'", ["tasks", "a", "on_overlap"]),
        ("[tasks.a]\nrun = 'x'\nparams = [{name = 'D'}]", ["tasks", "a", "params", 0]),
        ("[tasks.a]\nrun = 'x'\nlimits = {memory = 5}", ["tasks", "a", "limits", "memory"]),
        ("[services.a]\nrun = 'x'\nready = {tcp = 'a:1', log = 'b'}", ["services", "a", "ready"]),
        ("[services.a]\nrun = 'x'\ncron = '@daily'", ["services", "a"]),
        ("[http]\nworkers = 0", ["http", "workers"]),
        ("[htpp]\nworkers = 1", []),
    ],
)
def test_invalid_configurations(validator: Any, text: str, place: list[str | int]) -> None:
    """An invalid configuration has one error, at its place."""
    errors = list(validator.iter_errors(tomli.loads(text)))
    assert [error.instance_path for error in errors] == [place]


@pytest.mark.parametrize(
    "line", ["retry_attempts = '${N}'", "timeout = '${T:-5m}'", "api_trigger = '${YES}'", "log_max_size = '64 KB'"]
)
def test_references_and_case(validator: Any, line: str) -> None:
    """The schema accepts references to variables and units in any case, as the loader does."""
    assert validator.is_valid(tomli.loads(f"[tasks.a]\nrun = 'x'\n{line}"))


def test_command_prints_the_schema(ringward: Ringward) -> None:
    """The output is JSON with patterns of ECMA 262, as editors expect."""
    result = ringward("schema", plain=True)
    assert result.exit_code == 0
    assert ringward("schema", "--json", plain=True).output == result.output
    assert json.loads(result.output) == document()
    for pattern in re.findall(r'"pattern": "(.*)"', result.output):
        assert "(?i" not in pattern
        assert "(?P" not in pattern
