"""Parameters of requests. Each is declared once; the declaration validates, parses and documents it.

An undeclared query parameter is an error, so that a misspelt filter never selects more than intended. A response lists
all invalid parameters. An empty parameter counts as absent.
"""

import re
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, time
from typing import Any
from urllib.parse import parse_qsl

from msgspec import Struct

from api.errors import invalid
from api.schemas.records import PHASES, REASONS, REASONS_FOLDED, ErrorDetail
from api.schemas.wire_times import FIRST_MS, LAST_MS, parse_rfc3339

IGNORED = frozenset({"$schema", "_", "lastEventId"})
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

_INTEGER = re.compile(r"-?[0-9]{1,400}")
_BLANKS = " \t"
_STATUSES = tuple(dict.fromkeys((*PHASES, *REASONS, *REASONS_FOLDED)))
STATUSES = "^[, \\t]*(({words})([ \\t]*,[, \\t]*({words}))*[, \\t]*)?$".format(words="|".join(_STATUSES))
"""Pattern of a list of phases and end reasons, for the OpenAPI document."""
_MAX_PARAMETERS = 200


class Deprecation(Struct, frozen=True):
    """An operation or parameter that still works, but that the next major release may remove.

    Attributes:
        since: Day of the release that deprecated it.
        remedy: What to use instead, as a sentence for the OpenAPI document.
    """

    since: date
    remedy: str

    @property
    def header(self) -> str:
        """Return the value of the response header ``Deprecation`` (RFC 9745)."""
        return f"@{int(datetime.combine(self.since, time(), UTC).timestamp())}"


class QueryParameter(Struct, frozen=True):
    """A query parameter.

    Attributes:
        name: Documented name; the key of the parsed value.
        parse: Converts the text, or raises ValueError with a message such as "is not an integer".
        schema: JSON Schema for the OpenAPI document.
        default: Value if the parameter is absent.
        description: For the OpenAPI document.
        aliases: Other accepted names.
        required: Whether its absence is an error.
        deprecated: Set if clients are to stop using it.
    """

    name: str
    parse: Callable[[str], Any]
    schema: dict[str, Any]
    default: object = None
    description: str = ""
    aliases: tuple[str, ...] = ()
    required: bool = False
    deprecated: Deprecation | None = None


class PathParam(Struct, frozen=True):
    """A path parameter, with its pattern and its length."""

    name: str
    pattern: re.Pattern[str]
    min_length: int
    max_length: int
    description: str

    @property
    def schema(self) -> dict[str, object]:
        """Return the JSON Schema for the OpenAPI document."""
        return {
            "type": "string",
            "minLength": self.min_length,
            "maxLength": self.max_length,
            "pattern": self.pattern.pattern,
        }

    def check(self, value: str) -> ErrorDetail | None:
        """Return the error if `value` is invalid, otherwise None."""
        if self.min_length <= len(value) <= self.max_length and self.pattern.fullmatch(value):
            return None
        length = self.min_length if self.min_length == self.max_length else f"{self.min_length} to {self.max_length}"
        return ErrorDetail(
            f"path.{self.name}", f"must have {length} characters and match {self.pattern.pattern}", value
        )


TASK_NAME = PathParam("taskName", re.compile(r"^[a-zA-Z0-9._:-]+$"), 1, 100, "Name of the task or service.")
RUN_ID = PathParam("runId", re.compile(r"^[0-9A-HJKMNP-TV-Z]{26}$"), 26, 26, "ULID of the run.")
NOTIFICATION_ID = PathParam("notificationId", RUN_ID.pattern, 26, 26, "ULID of the notification.")
_PING_EVENT = re.compile(r"^(start|fail|[0-9]|[1-9][0-9]|1[0-9][0-9]|2[0-4][0-9]|25[0-5])$")
PATH_PARAMS = {
    param.name: param
    for param in (
        TASK_NAME,
        PathParam("tokenName", re.compile(r"^[a-zA-Z0-9._:-]+$"), 1, 100, "Name of the token."),
        PathParam("userName", re.compile(r"^[a-zA-Z0-9._@-]+$"), 1, 100, "Name of the account."),
        PathParam("notifierName", re.compile(r"^[a-zA-Z0-9._:-]+$"), 1, 100, "Name of the notifier."),
        PathParam("hookName", re.compile(r"^[a-zA-Z0-9._:-]+$"), 1, 100, "Name of the hook."),
        PathParam("windowName", re.compile(r"^[a-zA-Z0-9._:-]+$"), 1, 100, "Name of the window."),
        PathParam("pingToken", re.compile(r"^[A-Za-z0-9._~-]+$"), 16, 200, "Token of the task."),
        PathParam("pingEvent", _PING_EVENT, 1, 5, "`start`, `fail`, or an exit code from 0 to 255."),
        RUN_ID,
        PathParam("lineNumber", re.compile(r"^[0-9]+$"), 1, 19, "Absolute number of the line, from 0."),
        PathParam("schemaName", re.compile(r"^[A-Za-z]+\.json$"), 1, 100, "Name of the schema."),
        PathParam("badgeFile", re.compile(r"^[a-zA-Z0-9._:-]+$"), 1, 104, "Name of a task or service, and .svg."),
        NOTIFICATION_ID,
    )
}


def integer(
    name: str,
    description: str,
    default: int | None = None,
    *,
    minimum: int | None = None,
    maximum: int | None = None,
    aliases: tuple[str, ...] = (),
) -> QueryParameter:
    """Declare an int64 between `minimum` and `maximum`."""
    low = INT64_MIN if minimum is None else minimum
    high = INT64_MAX if maximum is None else maximum

    def parse(text: str) -> int:
        if not _INTEGER.fullmatch(text):
            raise ValueError("is not an integer")
        value = int(text)
        if not low <= value <= high:
            raise ValueError(f"must be between {low} and {high}")
        return value

    schema: dict[str, object] = {"type": "integer", "format": "int64"}
    if default is not None:
        schema["default"] = default
    if minimum is not None:
        schema["minimum"] = minimum
    if maximum is not None:
        schema["maximum"] = maximum
    return QueryParameter(name, parse, schema, default, description, aliases)


def clamped(name: str, description: str, *, aliases: tuple[str, ...] = ()) -> QueryParameter:
    """Declare an integer of any size, documented as text; values beyond int64 become the nearest int64."""

    def parse(text: str) -> int:
        if not re.fullmatch("-?[0-9]+", text):
            raise ValueError("must match ^-?[0-9]+$")
        negative = text.startswith("-")
        # Python converts at most 4300 digits, leading zeros included.
        digits = text.lstrip("-").lstrip("0") or "0"
        if len(digits) > 19:
            return INT64_MIN if negative else INT64_MAX
        return max(INT64_MIN, min(INT64_MAX, -int(digits) if negative else int(digits)))

    return QueryParameter(name, parse, {"type": "string", "pattern": "^-?[0-9]+$"}, None, description, aliases)


def flag(name: str, description: str, *, aliases: tuple[str, ...] = ()) -> QueryParameter:
    """Declare a boolean: true, false, 1 or 0."""

    def parse(text: str) -> bool:
        if text not in ("true", "false", "1", "0"):
            raise ValueError("must be true or false")
        return text in ("true", "1")

    return QueryParameter(name, parse, {"type": "boolean"}, None, description, aliases)


def choice(
    name: str,
    description: str,
    values: tuple[str, ...],
    *,
    others: tuple[str, ...] = (),
    or_empty: bool = False,
    aliases: tuple[str, ...] = (),
) -> QueryParameter:
    """Declare one of `values`. `others` are accepted too, but not documented."""

    def parse(text: str) -> str:
        if text not in values and text not in others:
            raise ValueError(f"must be one of {', '.join(values)}")
        return text

    schema = {"type": "string", "enum": [*values, *([""] if or_empty else [])]}
    return QueryParameter(name, parse, schema, None, description, aliases)


def text(name: str, description: str, *, aliases: tuple[str, ...] = ()) -> QueryParameter:
    """Declare a parameter with any text."""
    return QueryParameter(name, str, {"type": "string"}, None, description, aliases)


def shaped(name: str, description: str, shape: PathParam) -> QueryParameter:
    """Declare text that matches the pattern and length of a path parameter."""

    def parse(value: str) -> str:
        error = shape.check(value)
        if error is not None:
            raise ValueError(error.message)
        return value

    return QueryParameter(name, parse, shape.schema, None, description)


def instant(name: str, description: str, *, up: bool, aliases: tuple[str, ...] = ()) -> QueryParameter:
    """Declare an RFC 3339 date-time, parsed to milliseconds since the epoch; finer digits round `up` or down.

    A time outside the years 1 to 9999 of UTC becomes the nearest time inside, so every filter selects the same.
    """

    def parse(value: str) -> int:
        return max(FIRST_MS, min(LAST_MS, parse_rfc3339(value, up=up)))

    return QueryParameter(name, parse, {"type": "string", "format": "date-time"}, None, description, aliases)


def statuses(name: str, description: str) -> QueryParameter:
    """Declare a comma-separated list of phases and end reasons; spaces and empty parts are ignored."""

    def parse(value: str) -> tuple[str, ...]:
        words = _split(value)
        unknown = [word for word in words if word not in _STATUSES]
        if unknown:
            words_of = ", ".join(f'"{word}"' for word in unknown)
            raise ValueError(f"unknown status {words_of} (use {', '.join(_STATUSES)})")
        return words

    return QueryParameter(name, parse, {"type": "string", "pattern": STATUSES}, (), description)


def _split(text: str) -> tuple[str, ...]:
    """Return the words of a comma-separated list, without duplicates."""
    return tuple(dict.fromkeys(word for part in text.split(",") if (word := part.strip(_BLANKS))))


def words(name: str, description: str, values: tuple[str, ...]) -> QueryParameter:
    """Declare a comma-separated list of some of `values`; spaces and empty parts are ignored."""
    allowed = frozenset(values)

    def parse(text: str) -> tuple[str, ...]:
        given = _split(text)
        unknown = [word for word in given if word not in allowed]
        if unknown:
            raise ValueError(f"unknown words {', '.join(unknown)} (use {', '.join(values)})")
        return given

    return QueryParameter(
        name, parse, {"type": "array", "items": {"type": "string", "enum": [*values]}}, (), description
    )


def several(name: str, description: str, shape: PathParam, most: int) -> QueryParameter:
    """Declare a comma-separated list of at most `most` texts that match a path parameter."""

    def parse(text: str) -> tuple[str, ...]:
        given = _split(text)
        if len(given) > most:
            raise ValueError(f"must have at most {most} elements")
        for value in given:
            error = shape.check(value)
            if error is not None:
                raise ValueError(f'"{value}" {error.message}')
        return given

    schema = {"type": "array", "items": shape.schema, "maxItems": most}
    return QueryParameter(name, parse, schema, (), description)


def parse_query(params: Iterable[QueryParameter], query_string: str) -> tuple[dict[str, object], list[ErrorDetail]]:
    """Parse a query string; return the values by documented name, and all errors."""
    by_name: dict[str, QueryParameter] = {}
    values: dict[str, object] = {}
    for param in params:
        values[param.name] = param.default
        for name in (param.name, *param.aliases):
            by_name[name] = param
    errors: list[ErrorDetail] = []
    given: dict[str, tuple[str, str]] = {}
    try:
        pairs = parse_qsl(query_string, keep_blank_values=True, max_num_fields=_MAX_PARAMETERS)
    except ValueError:
        return values, [ErrorDetail("query", f"has more than {_MAX_PARAMETERS} parameters")]
    for name, value in pairs:
        parameter = by_name.get(name)
        if parameter is None:
            if name not in IGNORED:
                errors.append(ErrorDetail(f"query.{name}", "is not a known parameter of this operation", value))
        elif value:
            first = given.setdefault(parameter.name, (name, value))
            if first[1] != value:
                errors.append(ErrorDetail(f"query.{name}", f"appears twice, also as {first[1]!r}", value))
    errors += [
        ErrorDetail(f"query.{absent.name}", "is missing")
        for absent in by_name.values()
        if absent.required and absent.name not in given
    ]
    for canonical, (name, value) in given.items():
        try:
            values[canonical] = by_name[name].parse(value)
        except ValueError as err:
            errors.append(ErrorDetail(f"query.{name}", str(err), value))
    return values, errors


def parse_path(values: dict[str, str]) -> list[ErrorDetail]:
    """Return all errors of the path's parameters."""
    return [error for name, value in values.items() if (error := PATH_PARAMS[name].check(value)) is not None]


def raise_all(errors: list[ErrorDetail]) -> None:
    """Raise one exception for all `errors`, with one entry per location; return if there are none.

    Raises:
        ApiError: 422 there are errors.
    """
    if errors:
        unique: dict[str, ErrorDetail] = {}
        for error in errors:
            unique.setdefault(error.location, error)
        raise invalid(list(unique.values()))
