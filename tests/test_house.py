"""The shape of the house: figures that may only become smaller."""

from collections.abc import Callable

import pytest

from tests import house


@pytest.mark.parametrize(
    ("figure", "most"),
    [(house.continuations, 10), (house.lambdas, 389), (house.nested_functions, 10)],
)
def test_callbacks(figure: Callable[[], int], most: int) -> None:
    """The number of callbacks does not grow: operations that wait are procedures."""
    assert figure() <= most


def test_size_of_objects() -> None:
    """No object has more than 45 attributes, inherited ones counted."""
    assert {name: count for name, count in house.attributes().items() if count > 45} == {}


def test_private_attributes() -> None:
    """Only the module of a class sets its private attributes."""
    assert house.foreign_private_attributes() == []


def test_names_of_classes() -> None:
    """The number of class names that are used twice does not grow."""
    assert len(house.names_used_twice()) <= 22


def test_length_of_files() -> None:
    """No file of the product has more than 700 lines."""
    assert house.long_files() == []
