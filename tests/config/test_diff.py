import json
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest

from supervisor.config import diff as module
from supervisor.config.daemon_tables import Daemon, Http, Notify, Storage
from supervisor.config.diff import ChangedKey, ConfigDiff, diff, effect_of, process_hash
from supervisor.config.key_tables import keys_of
from supervisor.config.keys import Effect
from supervisor.config.model import Config, Service, Task
from supervisor.config.value_records import CronEntry, Step

HASH = "0a16b748fed07c740a7523cad8cf019b07d2a825de496ac433f5aa9e34e1618e"
UNITS = '[tasks.t]\nrun = "true"\n[services.s]\nrun = "true"\ninstances = 2\n'
NO_KEYS = {"path", "files", "include", "host_zone", "read", "tasks", "services", "warnings"}
"""Fields of a configuration that are not keys: its origin, and its units."""
PLACES = {Task: "task", Service: "service", Daemon: "daemon", Http: "http", Storage: "storage", Notify: "notify"}


Load = Callable[..., Config]


@pytest.fixture
def before(config: Load) -> Config:
    return config(UNITS)


@pytest.mark.parametrize("record", PLACES, ids=lambda record: record.__name__)
def test_every_field_is_a_key(record: type[Any]) -> None:
    """Every field of a record is a key of the file, except its name and what the tables of a flow make."""
    attributes = {key.attribute for key in keys_of(PLACES[record]).values() if key.attribute is not None}
    assert attributes == {field.name for field in fields(record)} - {"name", "steps", "flow", "step", "references"}


def test_steps_are_compared(before: Config) -> None:
    """Other steps of a flow apply to its next run."""
    old, new = (replace(before.tasks["t"], steps=(Step(name=name, unit="u"),)) for name in ("a", "b"))
    change = diff(replace(before, tasks={"t": old}), replace(before, tasks={"t": new})).changed[0]
    assert change.keys == (ChangedKey("steps", Effect.NEXT_RUN),)


def test_every_section_has_an_effect() -> None:
    """Sections are compared as records, and every other field has an effect."""
    outside = {*module.SECTIONS, *module.GONE, *module.WHOLE}
    assert {field.name for field in fields(Config)} == NO_KEYS | outside


@pytest.mark.parametrize("record", PLACES, ids=lambda record: record.__name__)
def test_every_field_is_compared(before: Config, record: type[Any]) -> None:
    """A difference in any field is found, with the file's key and its effect."""
    before = replace(before, tasks={"t": replace(before.tasks["t"], cron=(CronEntry("@daily"),))})
    places: dict[type, Any] = {Task: before.tasks.get("t"), Service: before.services.get("s")}
    old_record = places.get(record) or getattr(before, PLACES[record])
    for key in keys_of(PLACES[record]).values():
        if key.attribute is None:
            continue
        after = replace(old_record, **{key.attribute: object()})
        if record is Task:
            changed_keys = diff(before, replace(before, tasks={"t": after})).changed[0].keys
        elif record is Service:
            changed_keys = diff(before, replace(before, services={"s": after})).changed[0].keys
        else:
            place = PLACES[record]
            changed_keys = diff(before, replace(before, **{place: after})).sections[place]
        assert [(key_change.key, key_change.effect) for key_change in changed_keys] == [
            (key.name, effect_of(key, PLACES[record]))
        ]


def test_equal_configurations(before: Config) -> None:
    """The path and time from which a configuration was read make no difference."""
    other = replace(before, path="/elsewhere", files=(), include=("x",), read={"/x": (1, 2, 3)})
    assert diff(before, other) == ConfigDiff()


def test_added_and_removed(before: Config, config: Load) -> None:
    """Added and removed units are listed by name in order, and nothing else differs."""
    after = config('[tasks.b]\nrun = "true"\n[tasks.a]\nrun = "true"\n[services.s]\nrun = "true"\ninstances = 2\n')
    difference = diff(before, after)
    assert [unit.name for unit in difference.added] == ["a", "b"]
    assert [unit.name for unit in difference.removed] == ["t"]
    assert (difference.changed, difference.turned, difference.sections) == ((), (), {})


def test_task_becomes_a_service(before: Config, config: Load) -> None:
    """A task that became a service is neither added nor changed."""
    difference = diff(before, config('[services.t]\nrun = "true"\n[services.s]\nrun = "true"\ninstances = 2\n'))
    assert [(old.kind, new.kind) for old, new in difference.turned] == [("task", "service")]
    assert (difference.added, difference.changed, difference.removed) == ((), (), ())


def test_changed_defaults(before: Config, config: Load) -> None:
    """Changed defaults are found in every unit that uses them, and in the defaults themselves.

    Units that left the configuration follow the defaults, so these differ even without a unit that uses them.
    """
    difference = diff(before, config(f"[defaults]\nkeep_runs = 7\n{UNITS}"))
    assert [(change.new.name, change.keys[0].key) for change in difference.changed] == [
        ("s", "keep_runs"),
        ("t", "keep_runs"),
    ]
    assert [default.key for default in difference.sections["defaults"]] == ["keep_runs"]
    difference = diff(before, config("[defaults]\nkeep_runs = 7\n"))
    assert [unit.name for unit in difference.removed] == ["s", "t"]
    assert (difference.changed, difference.sections) == ((), {"defaults": (ChangedKey("keep_runs", Effect.AT_ONCE),)})


def test_hash_covers_only_restarting_keys(before: Config) -> None:
    """The hash of a definition changes exactly with the keys that need a restart."""
    service = before.services["s"]
    for name, key in keys_of("service").items():
        if key.attribute is not None:
            other = replace(service, **{key.attribute: json.loads('"other"')})
            restarts = effect_of(key, "service") is Effect.RESTART
            assert (process_hash(other) != process_hash(service)) is restarts, name


def test_hash_is_stable(config: Load) -> None:
    """The hash of a definition never changes, so an upgrade restarts no service."""
    text = 'run = "true"\ntimeout = "3s"\nready = { tcp = "127.0.0.1:80" }\nlive = { exec = "true" }\ntty = true'
    service = config(f"[services.s]\n{text}\n").services["s"]
    assert process_hash(service) == HASH


def test_hash_ignores_unset_keys(before: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that a new version adds does not change the hash of a definition without it."""
    service = before.services["s"]
    of_this = process_hash(service)
    hashed = module._hashed("service")
    for name in hashed:
        if name != "run":
            with monkeypatch.context() as patch:
                patch.setattr(
                    module,
                    "_hashed",
                    lambda _kind, name=name: [name_hashed for name_hashed in hashed if name_hashed != name],
                )
                assert process_hash(service) == of_this, name
