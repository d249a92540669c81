"""Dataclasses that are made quickly: they are as those of the standard library."""

import dataclasses
from collections.abc import Callable
from dataclasses import field
from typing import Any, ClassVar

import pytest

from supervisor.dataclass import dataclass


def make(decorator: Callable[..., Any]) -> tuple[Any, Any]:
    """A class and one that inherits from it."""

    @decorator(frozen=True)
    class Base:
        """Has fields with and without defaults."""

        name: str
        size: int = 3
        kind: ClassVar[str] = "base"

    @decorator(frozen=True, kw_only=True, slots=True)
    class Other:
        """Has slots, and names that have to be said."""

        secret: str = field(default="s", repr=False)
        items: list[int] = field(default_factory=list)
        base: Any

    @decorator(frozen=True)
    class Derived(Base):
        """Adds a field and a method."""

        extra: Other | None = None

        def __str__(self) -> str:
            return f"{self.name} {self.size}"

    return Derived, Other


OURS, THEIRS = make(dataclass), make(dataclasses.dataclass)


def told(derived: Any, other: Any) -> list[Any]:
    """What can be seen of some objects."""
    one, same = derived("a", extra=None), derived(name="a", size=3)
    big = derived("b", 4, extra=other(base=(1, 2), items=[5]))
    plain = other(base=one)
    assert plain.items is not other(base=one).items
    return [
        *(str(it) for it in (one, big)),
        *(repr(it).replace("make.<locals>.", "") for it in (one, big, plain)),
        *(one == same, one != big, one == "a", hash(one) == hash(same), plain == other(base=same)),
        *(dataclasses.asdict(it) for it in (one, big, plain)),
        dataclasses.replace(one, size=9) == derived("a", 9),
        [(it.name, it.kw_only, it.repr) for cls in (derived, other) for it in dataclasses.fields(cls)],
        dataclasses.is_dataclass(one),
        hasattr(plain, "__dict__"),
        derived.__match_args__,
    ]


def test_they_do_the_same() -> None:
    """Values, defaults, comparison, text, copies and inheritance."""
    assert told(*OURS) == told(*THEIRS)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda derived, _other: derived(),
        lambda derived, _other: derived("a", 1, None, 2),
        lambda derived, _other: derived("a", name="b"),
        lambda derived, _other: derived("a", colour="red"),
        lambda _derived, other: other(1),
        lambda _derived, other: hash(other(base=1)),
        lambda derived, _other: setattr(derived("a"), "size", 4),
        lambda derived, _other: delattr(derived("a"), "size"),
    ],
)
def test_they_refuse_the_same(wrong: Callable[[Any, Any], object]) -> None:
    """Wrong arguments, and every change of what is made."""
    with pytest.raises((TypeError, AttributeError)) as theirs:
        wrong(*THEIRS)
    with pytest.raises(theirs.type):
        wrong(*OURS)


def test_what_can_change_is_not_made_here() -> None:
    """Only frozen ones are."""
    with pytest.raises(TypeError, match="frozen"):
        dataclass(frozen=False)
