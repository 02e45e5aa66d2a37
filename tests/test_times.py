"""Times and durations as people write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from tidelake.errors import InvalidInputError
from tidelake.times import duration_us, parse_time_ns, time_us


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01", 0),
        ("1970-01-01 00:00:01", 1_000_000_000),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1969-12-31T23:59:59.5Z", -500_000_000),
        ("1970-01-01T00:00:00.123456789Z", 123_456_789),
        ("1970-01-01T00:00:00.1234567Z", 123_456_700),
        (datetime(1970, 1, 1, 0, 0, 1), 1_000_000_000),
        (datetime(1970, 1, 1, tzinfo=timezone(timedelta(hours=1))), -3_600_000_000_000),
        (datetime(2026, 1, 1, tzinfo=UTC), 1_767_225_600_000_000_000),
        (17, 17),
    ],
)
def test_parse_time_reads_what_people_write(value: str | datetime | int, expected: int) -> None:
    assert parse_time_ns(value) == expected


@pytest.mark.parametrize("value", ["", "yesterday", "2026-13-01", True, 1.5, None])
def test_parse_time_refuses_what_is_no_time(value: object) -> None:
    with pytest.raises(InvalidInputError, match="is not a time"):
        parse_time_ns(value)  # type: ignore[arg-type]


def test_time_us_rounds_down_before_1970() -> None:
    assert time_us(-1) == -1


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1us", 1), ("5 ms", 5_000), ("90s", 90_000_000), ("15 Minutes", 900_000_000), ("2w", 1_209_600_000_000)],
)
def test_duration_reads_number_and_unit(text: str, expected: int) -> None:
    assert duration_us(text) == expected


@pytest.mark.parametrize("text", ["", "5", "d", "-1d", "0s", "1 month", "1.5h", "1d 2h"])
def test_duration_refuses_what_is_none(text: str) -> None:
    with pytest.raises(InvalidInputError, match="duration"):
        duration_us(text)
