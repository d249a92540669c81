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
    found, errors = parse_query(PARAMS, query)
    assert not errors
    return found


def locations(query: str) -> list[str]:
    return [error.location for error in parse_query(PARAMS, query)[1]]


def test_defaults_hold_for_absent_and_empty_parameters() -> None:
    """An empty parameter is an absent one."""
    assert values("") == values("limit=&taskName=&retriesOnly=&status=&createdAfter=")
    assert values("")["limit"] == 50


def test_every_invalid_parameter_is_named() -> None:
    """One answer names them all, by the name that was given."""
    query = "limit=0&from=x&retriesOnly=yes&status=ended,nonsense&exitCodeMin=1.5&createdAfter=now&typo=1"
    assert sorted(locations(query)) == sorted(
        f"query.{name}" for name in ("limit", "from", "retriesOnly", "status", "exitCodeMin", "createdAfter", "typo")
    )


@pytest.mark.parametrize("query", ["$schema=x", "_=1", "lastEventId=5"])
def test_what_browsers_and_documents_add_is_ignored(query: str) -> None:
    """``$schema``, ``_`` and ``lastEventId`` are no errors."""
    assert locations(query) == []


def test_zeros_before_an_exit_code() -> None:
    """However many: the number is what counts."""
    assert values("exitCodeMin=" + "0" * 6000 + "7")["exitCodeMin"] == 7
    assert values("exitCodeMin=-" + "0" * 6000)["exitCodeMin"] == 0


def test_twice() -> None:
    """A scalar may come twice only with one value; both namings are one parameter."""
    assert values("taskName=a&task_name=a")["taskName"] == "a"
    assert locations("taskName=a&task_name=b") == ["query.task_name"]
    assert locations("limit=1&limit=2") == ["query.limit"]


@pytest.mark.parametrize("text", ["9223372036854775808", "-9223372036854775809", "1e3", " 1", "0x10", "\u0661", "1\n"])
def test_integers_are_int64(text: str) -> None:
    """A value other than an int64 in ASCII digits is refused."""
    assert locations(f"from={text}") == ["query.from"]


def test_exit_codes_are_clamped() -> None:
    """Exit code bounds of any size are understood; beyond int64 the nearest int64 counts."""
    assert values("exitCodeMin=-" + "9" * 5000)["exitCodeMin"] == INT64_MIN
    assert values("exitCodeMin=" + "9" * 5000)["exitCodeMin"] == INT64_MAX
    assert values("exitCodeMin=-2")["exitCodeMin"] == -2


def test_status_is_a_list() -> None:
    """Comma-separated; blanks, empty parts and repetitions do not count; success and succeeded are both known."""
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
def test_a_status_is_what_is_documented(text: str, valid: bool) -> None:
    """The pattern in the document says the same as the parameter."""
    pattern = statuses("status", "").schema["pattern"].removesuffix("$")
    assert bool(re.search(f"{pattern}\\Z", text)) is valid
    assert (locations(urlencode({"status": text})) == []) is valid


@pytest.mark.parametrize(("text", "value"), [("true", True), ("1", True), ("false", False), ("0", False)])
def test_booleans(text: str, value: bool) -> None:
    """true, false, 1 and 0."""
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
    """RFC 3339 in all its forms; a blank as the sign reads as plus; an earliest time rounds up."""
    assert parse_rfc3339(text, up=True) == at_ms


def test_a_latest_time_rounds_down() -> None:
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
def test_what_is_no_time(text: str) -> None:
    """A time without an offset, a day that does not exist and the like are refused."""
    with pytest.raises(ValueError, match="is not a"):
        parse_rfc3339(text, up=True)


def test_times_are_written_with_milliseconds_and_z() -> None:
    """UTC, three digits, Z; before 1970 as well."""
    assert rfc3339(1_795_232_604_007) == "2026-11-21T03:43:24.007Z"
    assert rfc3339(-1) == "1969-12-31T23:59:59.999Z"


@pytest.mark.parametrize("name", ["", "a" * 101, "a b", "ä", "a/b", "a\n"])
def test_task_names(name: str) -> None:
    """1 to 100 characters of ^[a-zA-Z0-9._:-]+$."""
    assert TASK_NAME.check(name)
    assert TASK_NAME.check("a" * 100) is None
    assert TASK_NAME.check("aZ0._:-") is None


@pytest.mark.parametrize("run_id", ["", "0" * 25, "0" * 27, "I" * 26, "a" * 26, "0" * 26 + "\n"])
def test_run_ids(run_id: str) -> None:
    """26 characters of the ULID alphabet, upper case."""
    assert RUN_ID.check(run_id)
    assert RUN_ID.check("0123456789ABCDEFGHJKMNPQRS") is None
