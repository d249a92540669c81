"""Parameters and times, without a server."""

import re
from urllib.parse import urlencode

import pytest

from api.operations.parameters import (
    INT64_MAX,
    INT64_MIN,
    RUN_ID,
    TASK_NAME,
    clamped,
    flag,
    instant,
    integer,
    parse_query,
    statuses,
    text,
)
from api.schemas.wire_times import parse_rfc3339, rfc3339

PARAMS = (
    integer("limit", "", 50, minimum=1, maximum=1000),
    integer("from", ""),
    text("taskName", "", aliases=("task_name",)),
    flag("retriesOnly", ""),
    statuses("status", ""),
    clamped("exitCodeMin", ""),
    instant("createdAfter", "", up=True),
)


def values(query: str) -> dict[str, object]:
    values_read, errors = parse_query(PARAMS, query)
    assert not errors
    return values_read


def locations(query: str) -> list[str]:
    return [error.location for error in parse_query(PARAMS, query)[1]]


def test_defaults_hold_for_absent_and_empty_parameters() -> None:
    """An empty parameter has its default value, as an absent one has."""
    assert values("") == values("limit=&taskName=&retriesOnly=&status=&createdAfter=")
    assert values("")["limit"] == 50


def test_every_invalid_parameter_is_named() -> None:
    """One answer names all invalid parameters, as the client spelt them."""
    query = "limit=0&from=x&retriesOnly=yes&status=ended,nonsense&exitCodeMin=1.5&createdAfter=now&typo=1"
    assert sorted(locations(query)) == sorted(
        f"query.{name}" for name in ("limit", "from", "retriesOnly", "status", "exitCodeMin", "createdAfter", "typo")
    )


@pytest.mark.parametrize("query", ["$schema=x", "_=1", "lastEventId=5"])
def test_tolerated_parameters(query: str) -> None:
    """``$schema``, ``_`` and ``lastEventId`` are ignored."""
    assert locations(query) == []


def test_leading_zeros_of_an_exit_code() -> None:
    """Any number of leading zeros is ignored."""
    assert values("exitCodeMin=" + "0" * 6000 + "7")["exitCodeMin"] == 7
    assert values("exitCodeMin=-" + "0" * 6000)["exitCodeMin"] == 0


def test_repeated_parameters() -> None:
    """A repeated scalar must have one value; both namings are one parameter."""
    assert values("taskName=a&task_name=a")["taskName"] == "a"
    assert locations("taskName=a&task_name=b") == ["query.task_name"]
    assert locations("limit=1&limit=2") == ["query.limit"]


@pytest.mark.parametrize("text", ["9223372036854775808", "-9223372036854775809", "1e3", " 1", "0x10", "\u0661", "1\n"])
def test_integers_are_int64(text: str) -> None:
    """A value that is not an int64 in ASCII digits is refused."""
    assert locations(f"from={text}") == ["query.from"]


def test_exit_codes_are_clamped() -> None:
    """Bounds of exit codes may have any size; beyond int64, the nearest int64 counts."""
    assert values("exitCodeMin=-" + "9" * 5000)["exitCodeMin"] == INT64_MIN
    assert values("exitCodeMin=" + "9" * 5000)["exitCodeMin"] == INT64_MAX
    assert values("exitCodeMin=-2")["exitCodeMin"] == -2


def test_status_is_a_list() -> None:
    """Status is comma-separated; blanks, empty parts and repetitions are ignored; success means succeeded."""
    assert values("status=%20ended,,%20success%20,ended,succeeded,")["status"] == ("ended", "success", "succeeded")


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("failed", True),
        (" , failed ,,\tended, ", True),
        (" ", True),
        ("failed ended", False),
        ("fail", False),
        ("failed;ended", False),
        ("failed\n", False),
        ("Failed", False),
    ],
)
def test_status_matches_its_documented_pattern(text: str, valid: bool) -> None:
    """The parameter accepts exactly the documented pattern."""
    pattern = statuses("status", "").schema["pattern"].removesuffix("$")
    assert bool(re.search(f"{pattern}\\Z", text)) is valid
    assert (locations(urlencode({"status": text})) == []) is valid


@pytest.mark.parametrize(("text", "value"), [("true", True), ("1", True), ("false", False), ("0", False)])
def test_booleans(text: str, value: bool) -> None:
    """Booleans are true, false, 1 and 0."""
    assert values(f"retriesOnly={text}")["retriesOnly"] is value


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t00:00:00.5z", 500),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1970-01-01T01:00:00 01:00", 0),
        ("1969-12-31T23:00:00-01:00", 0),
        ("2016-12-31T23:59:60Z", 1483228800000),
        ("2016-12-31T18:59:60-05:00", 1483228800000),
        ("0000-02-29T00:00:00Z", -62162121600000),
        ("0001-01-01T00:00:00Z", -62135596800000),
        ("1970-01-01T00:00:00.0005Z", 1),
        ("1970-01-01T00:00:00.001000Z", 1),
    ],
)
def test_times(text: str, at_ms: int) -> None:
    """Times are RFC 3339 in all its forms; a blank stands for a plus sign; an earliest time is rounded up."""
    assert parse_rfc3339(text, up=True) == at_ms


def test_latest_times_round_down() -> None:
    """Created before 0.0005 s does not include 0.001 s."""
    assert parse_rfc3339("1970-01-01T00:00:00.0009Z", up=False) == 0


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-11-21",
        "2026-11-21T03:04:05",
        "2026-02-30T00:00:00Z",
        "2026-11-21T24:00:00Z",
        "2026-11-21T00:00:00+24:00",
        "2026-11-21T00:00:61Z",
        "2026-11-21T00:00:60Z",
        "2016-12-31T23:59:60+01:00",
        "0000-02-30T00:00:00Z",
        "2026-11-21T00:00:00Z\n",
        "1795232604",
    ],
)
def test_invalid_times(text: str) -> None:
    """A time without an offset, a nonexistent day and the like are refused."""
    with pytest.raises(ValueError, match="is not a"):
        parse_rfc3339(text, up=True)


def test_times_are_written_with_milliseconds_and_z() -> None:
    """Times are written in UTC with three digits and Z, even before 1970."""
    assert rfc3339(1_795_232_604_007) == "2026-11-21T03:43:24.007Z"
    assert rfc3339(-1) == "1969-12-31T23:59:59.999Z"


@pytest.mark.parametrize("name", ["", "a" * 101, "a b", "ä", "a/b", "a\n"])
def test_task_names(name: str) -> None:
    """A name has 1 to 100 characters of ^[a-zA-Z0-9._:-]+$."""
    assert TASK_NAME.check(name)
    assert TASK_NAME.check("a" * 100) is None
    assert TASK_NAME.check("aZ0._:-") is None


@pytest.mark.parametrize("run_id", ["", "0" * 25, "0" * 27, "I" * 26, "a" * 26, "0" * 26 + "\n"])
def test_run_ids(run_id: str) -> None:
    """An id has 26 upper-case characters of the ULID alphabet."""
    assert RUN_ID.check(run_id)
    assert RUN_ID.check("0123456789ABCDEFGHJKMNPQRS") is None


def test_fixed_length_of_a_path_parameter() -> None:
    """The error for an id names its length, not a range."""
    error = RUN_ID.check("x")
    assert error is not None
    assert error.message.startswith("must have 26 characters and match ")
