"""Request bodies: read within limits of time and size, then validated field by field.

Falcon sees no body without Content-Length, so chunked bodies are read from gunicorn's reader. An oversized body is
drained up to a limit before it is rejected: closing a connection with unread data resets it, and the client would never
see the response.

JSON permits lone surrogates and numbers of any size. The decoder cannot represent them and reports both as malformed
JSON. RFC 8259 (6, 8.2) lets the receiver reject them.
"""

import contextlib
import functools
import itertools
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import NoReturn, get_args, get_origin

import falcon
import gevent
import msgspec
from gunicorn.http.errors import NoMoreData, ParseException
from msgspec import UNSET

from api.errors import ApiError, invalid, unavailable
from api.operations.parameters import IGNORED
from api.schemas.records import ErrorDetail
from api.server.thread_pool import Threads

_DRAIN_BYTES = 64 << 20
_TIME_S = 30.0
_STEP_BYTES = 65536
_SECRET = frozenset({"password", "params"})
_MAX_ITEMS = 100
"""Maximum number of reported errors per object."""
_MAX_ERRORS = 10_000
"""Maximum number of errors per body: a million unknown fields would yield a response many times as large."""
_LARGE_BYTES = 128 << 10
"""Larger bodies are checked in a thread, because a million fields take half a second."""
_MOST_INSIDE = 1000
"""Maximum number of objects and arrays in a body; valid bodies have only a few.

The decoder takes seconds to create millions of them, and no other Python thread runs meanwhile.
"""
_STRINGS_OR_BEGIN = re.compile(rb'(?:[^"\[{]*+"[^"\\]*+(?:\\.[^"\\]*+)*+"?+){1,1000}+|[\[{]', re.DOTALL)
_PART = r"(?:[A-Za-z0-9._~:/?@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*"
_URI = re.compile(rf"[A-Za-z][A-Za-z0-9+.-]*:(?://\[[0-9A-Fa-f:.]+\])?{_PART}(?:#{_PART})?")
"""RFC 3986, 3, without user names and future address formats."""
_EXACT = 1 << 53
"""Up to this value every integer has an exact float."""

SMALL_BYTES = 64 << 10


class BodyBudget:
    """A memory budget for large request bodies, shared by all requests of a worker.

    Large bodies are checked one after another, in a single thread. Python runs only one thread at a time, so more
    threads would delay the event loop and all its streams. Small bodies are always accepted.

    Args:
        size_bytes: Size of the budget, in addition to `SMALL_BYTES` for each body.
    """

    def __init__(self, size_bytes: int) -> None:
        self._left_bytes = size_bytes

    @functools.cached_property
    def thread(self) -> Threads:
        """The thread that checks large bodies."""
        return Threads(1)

    @contextlib.contextmanager
    def holding(self) -> Iterator[Callable[[int], bool]]:
        """Yield a function that reserves more bytes for one body, and returns whether there was room.

        The memory is released at the end of the request rather than of the check: while the scheduler is busy, many
        requests can wait, each with half a million ids.
        """
        small_bytes, held_bytes = SMALL_BYTES, 0

        def take(size_bytes: int) -> bool:
            nonlocal small_bytes, held_bytes
            more_bytes = max(0, size_bytes - small_bytes)
            if more_bytes > self._left_bytes:
                return False
            small_bytes -= size_bytes - more_bytes
            self._left_bytes -= more_bytes
            held_bytes += more_bytes
            return True

        try:
            yield take
        finally:
            self._left_bytes += held_bytes


STRANGERS = BodyBudget(8 << 20)
"""A separate budget for unauthenticated clients, so that they cannot exhaust that of authenticated ones."""
KNOWN = BodyBudget(64 << 20)


def _number(text: str) -> int | float:
    """Parse a JSON number with a point or an exponent; JSON Schema considers 4.0 an integer."""
    value = float(text)
    if math.isinf(value):
        raise ValueError("Number out of range")
    return int(value) if value.is_integer() and abs(value) <= _EXACT else value


def _check_uri(text: str) -> None:
    if not _URI.fullmatch(text):
        raise ValueError("is not a URI")


_CHECKS = {"schema_link": _check_uri}
"""Checks that apply to every schema."""
_TWICE = object()
_DECODER = msgspec.json.Decoder(float_hook=_number)


def _give_up(req: falcon.Request) -> None:
    # gunicorn's parser accepts no further request on a connection whose body reader has failed.
    req.env["wsgi.input"].failed = True


def read(req: falcon.Request, limit_bytes: int, take: Callable[[int], bool]) -> bytes:
    """Read the whole body; `take` reserves memory for it.

    Raises:
        ApiError: 400 it ends early; 408 it did not arrive within 30 s; 413 it exceeds `limit_bytes`; 503 `take`
            refuses.
    """
    if not req.content_length and "HTTP_TRANSFER_ENCODING" not in req.env:
        return b""
    too_large = ApiError(413, f"The body exceeds {limit_bytes} bytes")
    if req.env["ringward.awaits_continue"] and (req.content_length or 0) > limit_bytes:
        raise too_large
    stream = req.env["wsgi.input"]
    parts: list[bytes] = []
    size, fits = 0, True
    try:
        with gevent.Timeout(_TIME_S):
            while data := stream.read(_STEP_BYTES):
                size += len(data)
                fits = fits and (size > limit_bytes or take(len(data)))
                if size <= limit_bytes and fits:
                    parts.append(data)
                    continue
                parts.clear()
                if size > _DRAIN_BYTES:
                    _give_up(req)
                    break
    except (gevent.Timeout, TimeoutError) as err:
        _give_up(req)
        raise ApiError(408, "The body did not arrive within 30 s") from err
    except (ParseException, NoMoreData) as err:
        raise ApiError(400, "The framing of the body is invalid") from err
    except OSError as err:  # ECONNRESET: the client is gone, and the server did not fail
        _give_up(req)
        raise ApiError(400, "The client disconnected") from err
    if size > limit_bytes:
        raise too_large
    if size < (req.content_length or 0):
        # The client disconnected in the middle of the request, so do not execute it.
        _give_up(req)
        raise ApiError(400, "The body ends before its Content-Length")
    if not fits:
        raise unavailable("Too many large requests at once; nothing was changed")
    return b"".join(parts)


def decode(
    req: falcon.Request,
    schema: type[msgspec.Struct],
    *,
    required: bool,
    limit_bytes: int,
    take: Callable[[int], bool],
    thread: Threads,
) -> msgspec.Struct:
    """Decode the body as `schema`. An empty body, or null, counts as ``{}`` unless a body is required.

    `take` reserves memory for the body. A large body is checked in `thread`.

    Raises:
        ApiError: 400 it is not JSON; 413 it is too large; 415 wrong media type, or compressed; 422 with every invalid
            field; 503 `take` refuses.
    """
    raw = read(req, limit_bytes, take)
    if not raw:
        if required:
            raise ApiError(400, "A body is required")
        raw = b"{}"
    elif not is_json(req.content_type):
        raise ApiError(415, "The body must be application/json")
    elif (req.get_header("Content-Encoding") or "identity").strip().lower() != "identity":
        raise ApiError(415, "The body must not be compressed", headers={"Accept-Encoding": "identity"})
    if len(raw) > _LARGE_BYTES:
        return thread(_decoded, raw, schema, required)
    return _decoded(raw, schema, required)


def _decoded(raw: bytes, schema: type[msgspec.Struct], required: bool) -> msgspec.Struct:
    if _holds_many(raw):
        raise ApiError(400, f"The body has more than {_MOST_INSIDE} objects and arrays")
    try:
        data, errors = _parsed(raw)
    except RecursionError as err:
        raise ApiError(400, "The body is nested too deeply") from err
    if data is None and not required and not errors:
        data = {}  # generated Go clients send null for an absent body
    values: dict[str, object] = {}
    if not errors:
        values, errors = _convert(data, schema)
    if errors:
        if _SECRET.intersection(schema.__struct_fields__):
            # Do not quote values: any part of a malformed body may be a secret.
            errors = [ErrorDetail(error.location, error.message) for error in errors]
        raise invalid(errors)
    return schema(**values)


def _parsed(raw: bytes) -> tuple[object, list[ErrorDetail]]:
    """Return the value of a JSON text, and the errors that concern the text as a whole.

    Raises:
        ApiError: 400 the text is not JSON.
        RecursionError: it is nested too deeply.
    """
    try:
        data = _DECODER.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as err:
        errors = unusable_values(raw)
        if not errors:
            raise _not_json(err) from err
        return None, errors
    return data, _given_twice(raw, data)


def parsed_json(raw: bytes) -> object:
    """Return the value of a JSON text from an authenticated client, without a limit on objects and arrays.

    Raises:
        ApiError: 400 it is not JSON, or nested too deeply; 422 it has values that this API cannot represent.
    """
    try:
        return _DECODER.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as err:
        if isinstance(err, RecursionError):
            raise ApiError(400, "The body is nested too deeply") from err
        if errors := unusable_values(raw):
            raise invalid(errors) from err
        raise _not_json(err) from err


def _not_json(err: Exception) -> ApiError:
    return ApiError(
        400, "The body is not UTF-8" if isinstance(err, UnicodeDecodeError) else f"The body is not JSON: {err}"
    )


def _holds_many(raw: bytes) -> bool:
    """Return whether a text has too many objects and arrays; brackets in strings do not count."""
    if raw.count(b"[") + raw.count(b"{") <= _MOST_INSIDE:
        return False
    openings = (1 for match in _STRINGS_OR_BEGIN.finditer(raw) if match[0] in (b"[", b"{"))
    return next(itertools.islice(openings, _MOST_INSIDE, None), None) is not None


def is_json(content_type: str | None) -> bool:
    """Return whether a Content-Type denotes JSON."""
    media_type = (content_type or "").split(";")[0].strip().lower()
    return media_type == "application/json" or (media_type.startswith("application/") and media_type.endswith("+json"))


def _given_twice(raw: bytes, data: object) -> list[ErrorDetail]:
    """Return fields that `raw` repeats with different values, down to two levels, the depth of the schemas.

    `data` is the decoded body, with the last value of each field.
    """
    if not isinstance(data, dict):
        return []
    inner = {name: value for name, value in data.items() if isinstance(value, dict)}
    if raw.count(b":") == len(data) + sum(map(len, inner.values())):
        return []  # every colon belongs to a field that was parsed
    decoded = json.loads(raw, object_pairs_hook=_unlike, parse_int=str, parse_float=str)
    twice = [name for name, value in decoded.items() if value is _TWICE]
    twice += [
        f"{location}.{name}"
        for location in inner.keys() - set(twice)
        for name, value in decoded[location].items()
        if value is _TWICE
    ]
    return [ErrorDetail(f"body.{name}", "appears twice") for name in twice]


def _unlike(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return an object in which `_TWICE` marks fields with several values."""
    members: dict[str, object] = {}
    for name, value in pairs:
        same = name not in members or (type(members[name]) is type(value) and members[name] == value)
        members[name] = value if same else _TWICE
    return members


def _convert(
    data: object, schema: type[msgspec.Struct], location: str = "body"
) -> tuple[dict[str, object], list[ErrorDetail]]:
    """Return the values by field, and all errors.

    msgspec reports only the first error, so each field is converted alone. A schema may have `checks`: by field,
    functions that raise ValueError for an invalid value of the right type.
    """
    if not isinstance(data, dict):
        return {}, [ErrorDetail(location, "must be an object", UNSET if data is None else data)]
    checks = {**_CHECKS, **getattr(schema, "checks", {})}
    errors: list[ErrorDetail] = []
    values: dict[str, object] = {}
    fields = _fields(schema)
    for name, value in data.items():
        field = fields.get(name)
        if field is None and name in IGNORED:
            continue
        if field is None:
            errors.append(ErrorDetail(f"{location}.{name}", "unknown field", value))
            if len(errors) == _MAX_ERRORS:
                return {}, errors
            continue
        inner = _struct_in(field.type)
        if inner is not None and isinstance(value, dict):
            inner_values, inner_errors = _convert(value, inner, f"{location}.{name}")
            errors += inner_errors
            if not inner_errors:
                values[field.name] = inner(**inner_values)
            continue
        try:
            values[field.name] = msgspec.convert(value, field.type)
            if field.name in checks:
                checks[field.name](values[field.name])
        except ValueError as err:  # includes msgspec's ValidationError
            wrong = _wrong(f"{location}.{name}", err, value)
            errors += _wrong_items(value, field.type, wrong.location) or [wrong]
    errors += [
        ErrorDetail(f"{location}.{name}", "is required")
        for name, field in fields.items()
        if field.required and name not in data
    ]
    return values, errors


def _wrong(location: str, err: ValueError, value: object) -> ErrorDetail:
    """Return the error of a value; without msgspec's path, which `location` replaces, and its escapes of patterns."""
    message = str(err).partition(" - at `")[0].replace("\\\\", "\\")
    return ErrorDetail(location, message, UNSET if value is None else value)


def _wrong_items(value: object, kind: object, location: str) -> list[ErrorDetail]:
    """Return the errors of single items, if the field is a list or an object of one type; otherwise none."""
    items: Iterable[tuple[str, object]]
    if isinstance(value, dict):
        item_type, items = _item_type(kind, dict), ((f".{name}", item) for name, item in value.items())
    elif isinstance(value, list):
        item_type, items = _item_type(kind, list), ((f"[{index}]", item) for index, item in enumerate(value))
    else:
        return []
    errors: list[ErrorDetail] = []
    if item_type is None:
        return errors
    for place, item in items:
        try:
            msgspec.convert(item, item_type)
        except ValueError as err:
            errors.append(_wrong(f"{location}{place}", err, item))
        if len(errors) == _MAX_ITEMS:
            break
    return errors


@functools.cache
def _item_type(kind: object, container: type) -> object:
    """Return the type of the items of the list or object that a field's type allows; None if it allows none."""
    if get_origin(kind) is container:
        return get_args(kind)[-1]
    return next(
        (item_type for argument in get_args(kind) if (item_type := _item_type(argument, container)) is not None), None
    )


@functools.cache
def _fields(schema: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    """Return the fields of a schema by JSON name. Cached: resolving the types takes 0.1 ms."""
    return {field.encode_name: field for field in msgspec.structs.fields(schema)}


def _struct_in(kind: object) -> type[msgspec.Struct] | None:
    """Return the Struct that a field's type allows; None if it allows none."""
    for member in (kind, *get_args(kind)):
        if isinstance(member, type) and issubclass(member, msgspec.Struct):
            return member
    return None


_SURROGATE = re.compile("[\ud800-\udfff]")
_OUT_OF_RANGE = object()
_MAX_UNUSABLE = 100


def unusable_values(raw: bytes) -> list[ErrorDetail]:
    """Return errors for values that this API cannot represent; none if the body is not JSON.

    Raises:
        RecursionError: the body is nested too deeply.
    """
    try:
        data = json.loads(raw.decode(), parse_int=_integer, parse_float=_float, parse_constant=_no_json)
    except ValueError:  # includes UnicodeDecodeError and JSONDecodeError
        return []
    errors: list[ErrorDetail] = []
    waiting = [("body", data)]
    while waiting and len(errors) < _MAX_UNUSABLE:
        location, value = waiting.pop()
        if value is _OUT_OF_RANGE:
            errors.append(ErrorDetail(location, "is a number out of range: the largest is about 1.8e308"))
        elif isinstance(value, str):
            errors += _surrogates(location, value)
        elif isinstance(value, list):
            waiting += reversed([(f"{location}[{index}]", item) for index, item in enumerate(value)])
        elif isinstance(value, dict):
            names = [(name, f"{location}.{_shown(name)}") for name in value]
            errors += [error for name, inner in names for error in _surrogates(inner, name)]
            waiting += reversed([(inner, value[name]) for name, inner in names])
    return errors


def _integer(text: str) -> object:
    try:
        return int(text)
    except ValueError:  # Python limits conversions to some thousand digits
        return _OUT_OF_RANGE


def _float(text: str) -> object:
    return _OUT_OF_RANGE if math.isinf(float(text)) else 0.0


def _no_json(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _surrogates(location: str, text: str) -> Iterator[ErrorDetail]:
    match = _SURROGATE.search(text)
    if match is not None:
        yield ErrorDetail(location, f"contains {_shown(match[0])}, a lone surrogate, which stands for no character")


def _shown(text: str) -> str:
    """Return `text` in a form that can be encoded."""
    return _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
