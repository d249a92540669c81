"""The order in which services start and stop."""

import random
from pathlib import Path

import pytest

from supervisor.config.load import load
from supervisor.scheduler.runs.live_units import Unit
from supervisor.scheduler.services.start_order import start_order, stop_levels


def units(tmp_path: Path, text: str) -> list[Unit]:
    path = tmp_path / "r.toml"
    path.write_text(text)
    path.chmod(0o600)
    config = load(str(path))
    return [*map(Unit, config.services.values()), *map(Unit, config.tasks.values())]


def service(name: str, *needs: str, priority: int = 100) -> str:
    return f'[services.{name}]\nrun = "true"\npriority = {priority}\ndepends_on = {list(needs)}\n'


def test_dependencies_start_first(tmp_path: Path) -> None:
    """Tasks start first, and dependencies before their dependents. Otherwise priority and file order decide."""
    all_units = units(
        tmp_path,
        service("late", priority=500)
        + service("app", "db", "t", priority=10)
        + service("db", "disk", priority=900)
        + service("disk", priority=900)
        + service("other", priority=50)
        + '[tasks.t]\nrun = "true"\n',
    )
    assert [unit.name for unit in start_order(all_units)] == ["t", "disk", "db", "app", "other", "late"]
    levels = [[unit.name for unit in level] for level in stop_levels(all_units)]
    assert levels == [["late"], ["other"], ["app"], ["db"], ["disk"]]


def test_independent_services_stop_together(tmp_path: Path) -> None:
    """Services that do not depend on each other share a stop level."""
    all_units = units(tmp_path, service("db") + service("a", "db") + service("b", "db") + service("c", "a"))
    assert [sorted(unit.name for unit in level) for level in stop_levels(all_units)] == [["c"], ["a", "b"], ["db"]]


@pytest.mark.parametrize("seed", range(20))
def test_random_graphs(tmp_path: Path, seed: int) -> None:
    """A dependency starts before its dependents and stops in a later level."""
    choose = random.Random(seed)
    needs = {n: choose.sample(range(n), choose.randrange(min(n, 4) + 1)) for n in range(40)}
    names = list(needs)
    choose.shuffle(names)
    text = "".join(
        service(f"s{n}", *(f"s{need}" for need in needs[n]), priority=choose.choice((1, 50, 100))) for n in names
    )
    all_units = units(tmp_path, text)
    place = {unit.name: number for number, unit in enumerate(start_order(all_units))}
    level = {unit.name: number for number, level_units in enumerate(stop_levels(all_units)) for unit in level_units}
    for name, others in needs.items():
        for other in others:
            assert place[f"s{other}"] < place[f"s{name}"]
            assert level[f"s{other}"] > level[f"s{name}"]
