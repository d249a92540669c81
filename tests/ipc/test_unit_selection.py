"""Selection of units."""

from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

import pytest

from supervisor.config.load import load
from supervisor.config.model import Service, Task
from supervisor.ipc.unit_selection import ANY, Kinds, NotSelected, Selector, select

CONFIG = """
[tasks.backup]
run = "true"
group = "shop"
tags = ["night"]
[services.web]
run = "true"
group = "shop"
tags = ["edge", "eu"]
[services.worker]
run = "true"
group = "shop"
[services.wiki]
run = "true"
tags = ["eu"]
"""
SERVICES = Kinds(lambda unit: unit.kind == "service", "service")


@pytest.fixture
def units(tmp_path: Path) -> list[Task | Service]:
    path = tmp_path / "ringward.toml"
    path.write_text(CONFIG)
    path.chmod(0o600)
    config = load(str(path))
    return [*config.tasks.values(), *config.services.values()]


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        (Selector(), ["web", "worker", "wiki"]),
        (Selector(names=("web",)), ["web"]),
        (Selector(names=("wiki", "web", "web")), ["web", "wiki"]),
        (Selector(names=("w*k*", "web")), ["web", "worker", "wiki"]),
        (Selector(names=("*",)), ["web", "worker", "wiki"]),
        (Selector(names=("w?b", "w[i]ki")), ["web", "wiki"]),
        (Selector(group="shop"), ["web", "worker"]),
        (Selector(tag="eu"), ["web", "wiki"]),
        (Selector(group="shop", tag="eu"), ["web"]),
        (Selector(names=("w*",), tag="eu"), ["web", "wiki"]),
        (Selector(reach=("web", "wi*")), ["web", "wiki"]),
        (Selector(names=("*",), reach=("web",)), ["web"]),
        (Selector(reach=()), []),
    ],
)
def test_selection(units: list[Task | Service], selector: Selector, names: list[str]) -> None:
    """Names and globs are united, group and tag narrow, and units outside the reach do not exist."""
    assert [unit.name for unit in select(units, selector, SERVICES)] == names


@pytest.mark.parametrize(
    ("selector", "status", "messages"),
    [
        (Selector(names=("web", "wbe")), 404, ['no service named "wbe" (did you mean "web"?)']),
        (Selector(names=("x*", "web", "zzz")), 404, ['no service matches "x*"', 'no service named "zzz"']),
        (Selector(names=("backup",)), 409, ["backup is a task"]),
        (Selector(names=("b*",)), 404, ['no service matches "b*"']),
        (Selector(names=("backup", "wbe")), 404, ['no service named "wbe" (did you mean "web"?)', "backup is a task"]),
        (Selector(group="shpo"), 404, ['no group named "shpo" (did you mean "shop"?)']),
        (Selector(tag="edeg"), 404, ['no tag named "edeg" (did you mean "edge"?)']),
        (Selector(tag="night"), 404, ['no selected service has tag "night"']),
        (Selector(names=("wiki",), group="shop"), 404, ['no selected service has group "shop"']),
        (Selector(names=("worker",), reach=("web",)), 404, ['no service named "worker"']),
        (Selector(names=("w*",), reach=("backup",)), 404, ['no service matches "w*"']),
        (Selector(tag="edge", reach=("worker",)), 404, ['no tag named "edge"']),
    ],
)
def test_no_match(units: list[Task | Service], selector: Selector, status: int, messages: list[str]) -> None:
    """Each part that matches nothing is reported with a similar name, and hidden units are not suggested."""
    with pytest.raises(NotSelected) as raised:
        select(units, selector, SERVICES)
    assert (raised.value.status, [error["message"] for error in raised.value.errors]) == (status, messages)


@dataclass(frozen=True)
class NamedUnit:
    name: str
    kind: str = "service"
    group: str | None = None
    tags: tuple[str, ...] = ()
    flow: str | None = None


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        (Selector(), ["f"]),
        (Selector(group="g"), ["f"]),
        (Selector(names=("f*",)), ["f"]),
        (Selector(names=("f:*",)), ["f:a"]),
        (Selector(names=("f:a",), group="g"), ["f:a"]),
    ],
)
def test_steps(selector: Selector, names: list[str]) -> None:
    """Steps of flows are selected by their names, and by globs with a colon, but not by groups and other globs."""
    units = [NamedUnit("f", "task", "g"), NamedUnit("f:a", "task", "g", flow="f")]
    assert [unit.name for unit in select(units, selector, ANY)] == names


def test_suggestions_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the first five unknown names are compared, each with the 20 most promising of all units."""
    compared: list[float] = []
    ratio = SequenceMatcher.ratio

    def counted(matcher: SequenceMatcher[str]) -> float:
        compared.append(ratio(matcher))
        return compared[-1]

    monkeypatch.setattr(SequenceMatcher, "ratio", counted)
    units = [NamedUnit(f"export-of-orders-{number}") for number in range(500)]
    with pytest.raises(NotSelected) as raised:
        select(units, Selector(names=tuple(f"export-of-oders-{number}" for number in range(300))), SERVICES)
    messages = [str(error["message"]) for error in raised.value.errors]
    assert len(messages) == 300
    assert messages[4] == 'no service named "export-of-oders-4" (did you mean "export-of-orders-4"?)'
    assert messages[5] == 'no service named "export-of-oders-5"'
    assert len(compared) <= 2 * 5 * 20  # the standard library compares similar names twice
    assert str(raised.value).endswith('; no service named "export-of-oders-19" and 280 more')
