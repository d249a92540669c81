import json
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest

from supervisor.config import diff as module
from supervisor.config.diff import Difference, definition_hash, diff, effect_of
from supervisor.config.keys import Effect
from supervisor.config.model import Config, Daemon, Http, Notify, Service, Storage, Task
from supervisor.config.schema import keys_of

HASH = "0a16b748fed07c740a7523cad8cf019b07d2a825de496ac433f5aa9e34e1618e"
UNITS = '[tasks.t]\nrun = "true"\n[services.s]\nrun = "true"\ninstances = 2\n'
NO_KEYS = {"path", "files", "include", "host_zone", "read", "tasks", "services", "warnings"}
"""Fields of a configuration that say where it comes from, or hold the rest."""
PLACES = {Task: "task", Service: "service", Daemon: "daemon", Http: "http", Storage: "storage", Notify: "notify"}


Load = Callable[..., Config]


@pytest.fixture
def before(config: Load) -> Config:
    return config(UNITS)


@pytest.mark.parametrize("record", PLACES, ids=lambda record: record.__name__)
def test_every_field_is_a_key(record: type[Any]) -> None:
    """Records have no field that the file cannot set, but their name."""
    attributes = {key.attribute for key in keys_of(PLACES[record]).values() if key.attribute is not None}
    assert attributes == {field.name for field in fields(record)} - {"name"}


def test_every_field_outside_of_records_has_an_effect() -> None:
    """Sections are compared as records; every other field has an effect."""
    outside = {*module.SECTIONS, *module.GONE, *module.WHOLE}
    assert {field.name for field in fields(Config)} == NO_KEYS | outside


@pytest.mark.parametrize("record", PLACES, ids=lambda record: record.__name__)
def test_every_field_is_compared(before: Config, record: type[Any]) -> None:
    """Whatever differs is found, under the name that the file has, with its effect."""
    before = replace(before, tasks={"t": replace(before.tasks["t"], crons=("@daily",))})
    places: dict[type, Any] = {Task: before.tasks.get("t"), Service: before.services.get("s")}
    known = places.get(record) or getattr(before, PLACES[record])
    for key in keys_of(PLACES[record]).values():
        if key.attribute is None:
            continue
        after = replace(known, **{key.attribute: object()})
        if record is Task:
            found = diff(before, replace(before, tasks={"t": after})).changed[0].keys
        elif record is Service:
            found = diff(before, replace(before, services={"s": after})).changed[0].keys
        else:
            place = PLACES[record]
            found = diff(before, replace(before, **{place: after})).sections[place]
        assert [(one.key, one.effect) for one in found] == [(key.name, effect_of(key, PLACES[record]))]


def test_the_same_is_no_difference(before: Config) -> None:
    """Where it was read from and when does not count."""
    other = replace(before, path="/elsewhere", files=(), include=("x",), read={"/x": (1, 2, 3)})
    assert diff(before, other) == Difference()


def test_added_and_removed(before: Config, config: Load) -> None:
    """By name, in their order; nothing else is touched."""
    after = config('[tasks.b]\nrun = "true"\n[tasks.a]\nrun = "true"\n[services.s]\nrun = "true"\ninstances = 2\n')
    found = diff(before, after)
    assert [unit.name for unit in found.added] == ["a", "b"]
    assert [unit.name for unit in found.removed] == ["t"]
    assert (found.changed, found.turned, found.sections) == ((), (), {})


def test_a_task_that_became_a_service(before: Config, config: Load) -> None:
    """Is neither changed nor added."""
    found = diff(before, config('[services.t]\nrun = "true"\n[services.s]\nrun = "true"\ninstances = 2\n'))
    assert [(old.kind, new.kind) for old, new in found.turned] == [("task", "service")]
    assert (found.added, found.changed, found.removed) == ((), (), ())


def test_defaults(before: Config, config: Load) -> None:
    """Changed defaults are found in every task that uses them, and for removed tasks."""
    found = diff(before, config(f"[defaults]\nkeep_runs = 7\n{UNITS}"))
    assert [(change.new.name, change.keys[0].key) for change in found.changed] == [
        ("s", "keep_runs"),
        ("t", "keep_runs"),
    ]
    assert [one.key for one in found.sections["defaults"]] == ["keep_runs"]


def test_a_recipe_changes_only_with_what_a_process_is_started_with(before: Config) -> None:
    """Policies may change under a living process, its environment may not."""
    service = before.services["s"]
    for name, key in keys_of("service").items():
        if key.attribute is not None:
            other = replace(service, **{key.attribute: json.loads('"other"')})
            restarts = effect_of(key, "service") is Effect.RESTART
            assert (definition_hash(other) != definition_hash(service)) is restarts, name


def test_a_recipe_is_the_same_as_in_earlier_versions(config: Load) -> None:
    """An upgrade restarts no service: the hash of a definition never changes."""
    text = 'run = "true"\ntimeout = "3s"\nready = { tcp = "127.0.0.1:80" }\nlive = { exec = "true" }\ntty = true'
    service = config(f"[services.s]\n{text}\n").services["s"]
    assert definition_hash(service) == HASH


def test_a_recipe_is_the_same_for_a_version_that_knows_more(before: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes stay when a new version of the daemon adds a key that is not set."""
    service = before.services["s"]
    of_this = definition_hash(service)
    hashed = module._hashed("service")
    for name in hashed:
        if name != "run":
            with monkeypatch.context() as patch:
                patch.setattr(module, "_hashed", lambda _kind, name=name: [one for one in hashed if one != name])
                assert definition_hash(service) == of_this, name
