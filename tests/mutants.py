"""``python -m tests.mutants``: change the transition tables in each small way, and list unnoticed changes.

A change removes or adds an entry, replaces its next state, removes or adds one action, or swaps two actions. It
survives if every test of the table still passes.
"""

import functools
import inspect
import itertools
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from supervisor.root.process import transitions
from supervisor.scheduler.runs import run_transitions
from supervisor.scheduler.services import instance_transitions
from tests.root.process import test_transitions
from tests.scheduler.runs import test_transition_stories, test_transition_tables

TABLES: dict[ModuleType, tuple[ModuleType, ...]] = {
    transitions: (test_transitions,),
    run_transitions: (test_transition_stories, test_transition_tables),
    instance_transitions: (test_transition_stories, test_transition_tables),
}
"""Modules with a table, each with the modules of its tests."""


def cases(tests: ModuleType) -> Iterator[Callable[[], None]]:
    """Yield the tests of a module that need no fixture, once for each set of parameters."""
    for name, test in vars(tests).items():
        if not name.startswith("test_"):
            continue
        marks = [mark.args for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"]
        sets = [[_named(names, values) for values in rows] for names, rows in marks]
        for chosen in itertools.product(*sets):
            arguments = {name: value for choices in chosen for name, value in choices.items()}
            if arguments.keys() == inspect.signature(test).parameters.keys():
                yield functools.partial(test, **arguments)


def _named(names: Any, values: Any) -> dict[str, Any]:
    if isinstance(names, str):
        return {names: values}
    return dict(zip(names, values, strict=True))


def mutants(module: ModuleType) -> Iterator[tuple[Any, Any]]:
    """Yield changes of the module's table: a pair and its new outcome, or None to remove it."""
    states, actions = list(module.State), list(module.Action)
    for pair in itertools.product(states, module.Event):
        if pair not in module.TABLE:
            yield from ((pair, (pair[0], (action,))) for action in actions)
            yield from ((pair, (state, ())) for state in states if state is not pair[0])
            continue
        state, actions_taken = module.TABLE[pair]
        yield pair, None
        yield from ((pair, (other, actions_taken)) for other in states if other is not state)
        yield from (
            (pair, (state, (*actions_taken[:at], *actions_taken[at + 1 :]))) for at in range(len(actions_taken))
        )
        yield from ((pair, (state, (*actions_taken, action))) for action in actions)
        for at in range(len(actions_taken) - 1):
            yield (
                pair,
                (state, (*actions_taken[:at], actions_taken[at + 1], actions_taken[at], *actions_taken[at + 2 :])),
            )


def survives(tests: list[Callable[[], None]]) -> bool:
    """Return whether all tests pass."""
    try:
        for test in tests:
            test()
    except Exception:  # noqa: BLE001 - a change may break a test in any way
        return False
    return True


def main() -> int:
    """Print the surviving changes and how many there were; return 1 if one survived."""
    survivors = 0
    for module, files in TABLES.items():
        tests = [case for file in files for case in cases(file)]
        if not survives(tests):
            print(f"{module.__name__}: its tests fail already")
            return 1
        table, count = dict(module.TABLE), 0
        for pair, outcome in mutants(module):
            if outcome is None:
                del module.TABLE[pair]
            else:
                module.TABLE[pair] = outcome
            if survives(tests):
                survivors += 1
                print(f"{module.__name__}: {pair} -> {outcome} survives")
            module.TABLE.clear()
            module.TABLE.update(table)
            count += 1
        print(f"{module.__name__}: {count} changes, {len(tests)} tests")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
