"""Conversion of handed-over state to JSON and back. The types of the fields determine the form.

A program hands its state over to another version of itself. A dataclass becomes an object, whose fields have the names
of its attributes, or those that :func:`tagged` gives them. A class with `state` and `from_state` travels as the state
that `state` returns. A named tuple becomes a list. A field with its default value is not written, so that an older
version, which may lack the field, accepts the state. Unknown fields are refused, because their values would be lost.

Tagged objects, and everything in them, also name types that JSON lacks, as an object with one member::

    b"..."          {"bytes": "..."}, one character per byte
    tuple, deque    {"tuple": [...]}
    a class         {"Name": {"field": value, ...}}, with all fields; {"dict": [["field", value], ...]} if its name is
                    empty
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable
from enum import Enum
from types import NoneType, UnionType
from typing import Any, NamedTuple, TypeVar, get_args, get_origin

_Conversion = Callable[[Any], Any]
_Pair = tuple[_Conversion, _Conversion]
"""The functions that convert a type to JSON and back."""
_Class = TypeVar("_Class", bound=type)


class UnknownFormat(Exception):
    """The state has a format that this version does not know."""


class _Tag(NamedTuple):
    name: str
    attributes: dict[str, str]
    """The attributes by field."""


class _Field(NamedTuple):
    attribute: str
    default: Callable[[], Any] | None
    """Creates the value of a missing field; None: all versions write the field."""
    to_json: _Conversion
    from_json: _Conversion


_TAGS: dict[object, _Tag] = {}


def tagged(name: str, fields: str) -> Callable[[_Class], _Class]:
    """Declare the format of a dataclass, which does not follow the names of the class and its attributes.

    Args:
        name: The name of the class in the format.
        fields: The fields in the format, separated by blanks. They are the attributes that the constructor takes. If
            the attribute has another name, it follows the field's name and ``=``.
    """

    def declare(cls: _Class) -> _Class:
        pairs = (field.partition("=") for field in fields.split())
        _TAGS[cls] = _Tag(name, {field: attribute or field for field, _, attribute in pairs})
        return cls

    return declare


@functools.cache
def _fields(cls: Any) -> dict[str, _Field]:
    tag = _TAGS.get(cls)
    attributes = {attribute.name: attribute for attribute in dataclasses.fields(cls)}
    fields_by_name = {}
    for name, attribute in (tag.attributes if tag else dict(zip(attributes, attributes, strict=True))).items():
        declared, default = attributes[attribute], None
        if tag is None and declared.default_factory is not dataclasses.MISSING:
            default = declared.default_factory
        elif tag is None and declared.default is not dataclasses.MISSING:
            default = functools.partial(_same, declared.default)
        fields_by_name[name] = _Field(attribute, default, *_conversions(declared.type, tag is not None))
    return fields_by_name


def _same(value: Any) -> Any:
    return value


def _conversions(kind: Any, is_tagged: bool) -> _Pair:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return _one_of([argument for argument in arguments if argument is not NoneType], is_tagged)
    if origin is not None:
        return _of_container(origin, arguments, is_tagged)
    if kind is bytes:
        down, up = (lambda value: value.decode("latin-1")), (lambda value: value.encode("latin-1"))
        return _with_tag("bytes", down, up) if is_tagged else (down, up)
    if hasattr(kind, "from_state"):
        to_state, of_state = _conversions(kind.state.__annotations__["return"], is_tagged)
        return (lambda value: to_state(value.state())), (lambda body: kind.from_state(of_state(body)))
    if hasattr(kind, "from_dict"):
        return kind.to_dict, kind.from_dict
    if dataclasses.is_dataclass(kind):
        return functools.partial(_to_json_as, kind), functools.partial(from_json, kind)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return (lambda value: value.value), kind
    if isinstance(kind, type) and issubclass(kind, tuple):
        return _of_items(lambda items: kind(*items), tuple(kind.__annotations__.values()), is_tagged)
    return _same, _same


def _of_container(origin: Any, arguments: tuple[Any, ...], is_tagged: bool) -> _Pair:
    if origin is tuple and arguments[-1] is not ...:
        pair = _of_items(tuple, arguments, is_tagged)
        return _with_tag("tuple", *pair) if is_tagged else pair
    down, up = _conversions(arguments[1 if origin is dict else 0], is_tagged)
    if origin is dict:
        return functools.partial(_each_value, down), functools.partial(_each_value, up)
    if origin is list:
        return functools.partial(_each, down), functools.partial(_each, up)
    return _with_tag(origin.__name__, functools.partial(_each, down), lambda values: origin(map(up, values)))


def _with_tag(name: str, down: _Conversion, up: _Conversion) -> _Pair:
    return (lambda value: {name: down(value)}), (lambda body: up(body[name]))


def _one_of(kinds: list[Any], is_tagged: bool) -> _Pair:
    """Convert None, or a value of one of these types; several types differ in their tags."""
    pairs = {kind: _conversions(kind, is_tagged) for kind in kinds}

    def down(value: Any) -> Any:
        return None if value is None else pairs[kinds[0] if len(kinds) == 1 else type(value)][0](value)

    def up(body: Any) -> Any:
        if body is None or len(kinds) == 1:
            return None if body is None else pairs[kinds[0]][1](body)
        for _, convert in pairs.values():
            with contextlib.suppress(KeyError):  # it has another tag
                return convert(body)
        raise UnknownFormat(f"{', '.join(body)} is not known")

    return down, up


def _each(convert: _Conversion, values: Any) -> list[object]:
    return [convert(value) for value in values]


def _each_value(convert: _Conversion, values: dict[str, object]) -> dict[str, object]:
    return {name: convert(value) for name, value in values.items()}


def _of_items(make: Callable[[list[Any]], Any], kinds: tuple[Any, ...], is_tagged: bool) -> _Pair:
    conversions = [_conversions(kind, is_tagged) for kind in kinds]

    def down(value: Any) -> list[Any]:
        pairs = zip(value, conversions, strict=True)
        return [to_json(item) for item, (to_json, _) in pairs]

    def up(value: list[object]) -> object:
        pairs = zip(value, conversions, strict=True)
        return make([from_json(item) for item, (_, from_json) in pairs])

    return down, up


def to_json(part: object) -> dict[str, Any]:
    """Convert an object of one of these classes to JSON, without fields that have their default values."""
    return _to_json_as(type(part), part)


def _to_json_as(cls: Any, part: object) -> dict[str, Any]:
    """Convert only the fields of `cls`; the class of `part` may be a subclass with more fields."""
    body: dict[str, Any] = {}
    for name, field in _fields(cls).items():
        value = getattr(part, field.attribute)
        if field.default is None or value != field.default():
            body[name] = field.to_json(value)
    tag = _TAGS.get(cls)
    if tag is None:
        return body
    return {tag.name: body} if tag.name else {"dict": list(map(list, body.items()))}


def from_json(cls: Any, body: dict[str, Any]) -> Any:
    """Create an object of `cls` from the result of :func:`to_json`, perhaps of another version.

    Raises:
        UnknownFormat: a field is missing, or one is unknown.
    """
    tag = _TAGS.get(cls)
    if tag is not None:
        body = body[tag.name] if tag.name else dict(body["dict"])
    known = _fields(cls)
    if unknown := sorted(body.keys() - known.keys()):
        raise UnknownFormat(f"{cls.__name__} has the unknown fields {', '.join(unknown)}")
    if lacking := sorted(name for name, field in known.items() if field.default is None and name not in body):
        raise UnknownFormat(f"{cls.__name__} lacks {', '.join(lacking)}")
    values = {}
    for name, value in body.items():
        try:
            values[known[name].attribute] = known[name].from_json(value)
        except (TypeError, ValueError, AttributeError, KeyError) as err:
            raise UnknownFormat(f"{cls.__name__}.{name}: {err}") from err
    return cls(**values)
