"""Durations and sizes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.config.value_types.durations import format_duration, format_size, parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("300ms", 300),
        ("5s", 5000),
        ("10m", 600_000),
        ("1h30m", 5_400_000),
        ("7d", 604_800_000),
        ("2w", 1_209_600_000),
        ("1.5s", 1500),
        ("0s", 0),
        ("0", 0),
        ("1m500ms", 60_500),
    ],
)
def test_durations(text: str, ms: int) -> None:
    """Every documented notation of a duration has its meaning."""
    assert parse_duration(text) == ms


@pytest.mark.parametrize(
    "text", ["", "5", "s", "5 s", "-5s", "30m1h", "1h1h", "5S", "1.2345678s", "0.5ms", "5sec", "٣s", "5s\n", "1e3s"]
)
def test_invalid_durations(text: str) -> None:
    """Unknown units, wrong order, repeated units and fractions of a millisecond are refused."""
    with pytest.raises(ValueError, match=r"not a|out of order|finer"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size"),
    [("64kb", 65536), ("100mb", 104_857_600), ("2gb", 2 << 30), ("1TB", 1 << 40), ("512 kb", 524_288), ("0", 0)],
)
def test_sizes(text: str, size: int) -> None:
    """Sizes count in powers of 1024."""
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "5", "kb", "-1kb", "5k", "1kb1b", "1.5b", "5pb"])
def test_invalid_sizes(text: str) -> None:
    """A size without a number or without a known unit is refused."""
    with pytest.raises(ValueError, match=r"not a|out of order|finer"):
        parse_size(text)


@given(st.integers(0, 10**13))
def test_duration_round_trip(ms: int) -> None:
    """A duration in a message can be copied into the file."""
    assert parse_duration(format_duration(ms)) == ms


@given(st.integers(0, 10**14))
def test_size_round_trip(size: int) -> None:
    """A size in a message can be copied into the file."""
    assert parse_size(format_size(size)) == size


@given(st.text())
def test_any_text(text: str) -> None:
    """No input raises anything but ValueError."""
    for parse in (parse_duration, parse_size):
        try:
            assert parse(text) >= 0
        except ValueError:
            continue
