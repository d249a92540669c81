"""Passes related options of a command as one argument."""

import functools
from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., object])


def grouped(name: str, group: type[Any]) -> Callable[[F], F]:
    """Pass the options with the names of the fields of the dataclass `group` as one argument `name`."""

    def add(function: F) -> F:
        @functools.wraps(function)
        def call(*args: object, **given: object) -> object:
            values = {field.name: given.pop(field.name) for field in fields(group)}
            return function(*args, **{name: group(**values)}, **given)

        return cast("F", call)

    return add
