from collections.abc import Callable

import pytest

from supervisor.config.model import Config
from supervisor.config.problems import ConfigError

Load = Callable[..., Config]
SLOTS = "[slots.db]\nsize = 2\n"


def test_valid_slots(config: Load) -> None:
    """A list takes one place of each slot, a table says how many, and [defaults] applies to units without uses."""
    loaded = config(
        SLOTS + "[slots.api]\nsize = 1\n[daemon]\nmax_running = 4\n[defaults]\nuses = ['api']\n"
        "[tasks.t]\nrun = 'true'\nuses = { db = 2 }\nqueue_priority = -5\n"
        "[tasks.none]\nrun = 'true'\nuses = []\n[services.s]\nrun = 'true'\n"
    )
    assert loaded.slots == {"db": 2, "api": 1}
    assert loaded.daemon.max_running == 4
    assert (loaded.tasks["t"].uses, loaded.tasks["t"].queue_priority) == ({"db": 2}, -5)
    assert (loaded.tasks["none"].uses, loaded.services["s"].uses) == ({}, {"api": 1})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            SLOTS + '[tasks.t]\nrun = "true"\nuses = ["bd"]\n',
            'ringward.toml:5: tasks.t.uses.bd: no slot named "bd"\n  add [slots.bd] with its size',
        ),
        (
            SLOTS + '[services.s]\nrun = "true"\nuses = { db = 3 }\n',
            'uses.db: needs 3 places of the slot "db", which has 2\n  raise slots.db.size, or use fewer places',
        ),
        ('[slots.billing]\nsize = 1\n[tasks.t]\nrun = "true"\nuses = ["biling"]\n', 'did you mean "billing"?'),
        (SLOTS + '[tasks.t]\nrun = "true"\nuses = "db"\n', 'must be a list of slots such as ["db"], or a table'),
        (SLOTS + '[tasks.t]\nrun = "true"\nuses = ["db", "db"]\n', 'uses[1]: "db" repeats an earlier item'),
        (SLOTS + '[tasks.t]\nrun = "true"\nuses = { db = 0 }\n', "tasks.t.uses.db: must be a whole number from 1"),
        ("[slots.db]\n", "slots.db: has no size\n  add size = 1"),
        ("[slots.db]\nsize = 0\n", "slots.db.size: must be a whole number from 1 to 10000"),
        ("[slots]\ndb = 2\n", "slots.db: must be a table, with the slot's name"),
        ("slots = 2\n", "slots: must hold tables"),
        ('[slots."a/b"]\nsize = 1\n', "is not a valid name"),
        ('[services.s]\nrun = "true"\nqueue_priority = 1\n', "not a key of a service"),
        ('[tasks.t]\nrun = "true"\nqueue_priority = 101\n', "must be a whole number from -100 to 100"),
    ],
)
def test_errors(config: Load, text: str, expected: str) -> None:
    """An error names the line, the key and the remedy."""
    with pytest.raises(ConfigError) as caught:
        config(text)
    assert expected in str(caught.value)
