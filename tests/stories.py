"""State sequences as text, for comparison with a state table.

A story is a state, and then one line for each event: ``event: action, action -> next state``.
"""

import enum
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple


class Words(NamedTuple):
    """The words of a table."""

    state: type[enum.Enum]
    event: type[enum.Enum]
    action: type[enum.Enum]


class Chapter(NamedTuple):
    """One line of a story."""

    state: Any
    event: Any
    following: Any
    actions: tuple[Any, ...]


def steps_of(words: Words, story: str) -> Iterator[Chapter]:
    """Yield the transitions of a story."""
    start, *lines = (line.strip() for line in story.strip().splitlines())
    state = words.state(start)
    for line in lines:
        event, _, right = line.partition(":")
        actions, _, following = right.partition("->")
        expected = tuple(words.action(word.strip()) for word in actions.split(",") if word.strip())
        yield Chapter(state, words.event(event), words.state(following.strip()), expected)
        state = words.state(following.strip())


def pairs(words: Words, stories: Iterable[str]) -> set[tuple[Any, Any]]:
    """Return the pairs of state and event in the stories."""
    return {(step.state, step.event) for story in stories for step in steps_of(words, story)}


def deeds(table: Mapping[tuple[Any, Any], tuple[Any, tuple[Any, ...]]]) -> set[tuple[Any, Any]]:
    """Return the pairs of a table that have an action or another next state."""
    return {(state, event) for (state, event), outcome in table.items() if outcome != (state, ())}
