"""Times and durations as people write them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import orjson
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import tidelake
from tidelake.cli.main import main
from tidelake.errors import InvalidInputError
from tidelake.ingest.instants import NO_TIME, times_of_ints
from tidelake.model.predicate import Nanoseconds
from tidelake.model.times import MIN_ASKED, duration_us, parse_time_ns, time_us


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
        (Nanoseconds(17), 17),
        (0, 0),
        (1_767_225_600, 1_767_225_600 * 10**9),
        (1_767_225_600_123, 1_767_225_600_123 * 10**6),
        (1_767_225_600_123_456, 1_767_225_600_123_456 * 1000),
        (1_767_225_600_123_456_789, 1_767_225_600_123_456_789),
        (-1_000_000_000, -(10**18)),
        (99_999_999_999, 99_999_999_999 * 10**9),
        (100_000_000_000, 10**17),
        (1_767_225_600.25, 1_767_225_600_250_000_000),
        ("1767225600", 1_767_225_600 * 10**9),
        (" 1767225600.000000001 ", 1_767_225_600 * 10**9 + 1),
        ("20260131", 1_769_817_600 * 10**9),
        (date(2026, 1, 31), 1_769_817_600 * 10**9),
        (np.int64(1_767_225_600), 1_767_225_600 * 10**9),
        (np.float64(1_767_225_600), 1_767_225_600 * 10**9),
        (np.datetime64("2026-01-31T00:00:00.000000001"), 1_769_817_600 * 10**9),
    ],
)
def test_parse_time_reads_what_people_write(value: object, expected: int) -> None:
    assert parse_time_ns(value) == expected


@pytest.mark.parametrize("value", ["", "yesterday", "2026-13-01", True, None, float("nan"), 10**18 * 300, [1]])
def test_parse_time_refuses_what_is_no_time(value: object) -> None:
    with pytest.raises(InvalidInputError, match="is not a time"):
        parse_time_ns(value)


@pytest.mark.parametrize("value", [1, -1, 1.5, 86_400, 20_260_131, 99_999_999])
def test_parse_time_refuses_numbers_that_are_rather_something_else(value: object) -> None:
    with pytest.raises(InvalidInputError, match=r"is too small for a time: .* write a date as '2026-01-31'"):
        parse_time_ns(value)


@given(st.integers(-(2**63) + 1, 2**63 - 1).filter(lambda n: n == 0 or abs(n) >= MIN_ASKED))
def test_questions_and_appends_read_numbers_alike(number: int) -> None:
    (appended,) = times_of_ints(np.array([number], dtype=np.int64)).tolist()
    if appended == NO_TIME:
        with pytest.raises(InvalidInputError, match="years 1 to 9999"):
            parse_time_ns(number)
    else:
        assert parse_time_ns(number) // 1000 == appended


def test_time_us_rounds_down_before_1970() -> None:
    assert time_us(Nanoseconds(-1)) == -1


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


@pytest.mark.parametrize("unit", [1, 10**3, 10**6, 10**9])
def test_numbers_mean_the_same_time_at_every_door(tmp_path: Path, unit: int) -> None:
    noon = 1_767_268_800  # of 2026-01-01
    with tidelake.connect(tmp_path / "lake") as lake:
        table = lake.create_table("m", {"ts": "timestamp", "n": "long"}, time="ts", bucket="1m", flush_age="off")
        table.append([{"ts": (noon + 60 * n) * unit, "n": n} for n in range(10)])
        table.flush()
        middle = (noon + 300) * unit
        ts = tidelake.col("ts")
        for where in (ts >= middle, f"ts >= {middle}", "ts >= 2026-01-01T12:05:00Z"):
            assert table.to_arrow(["n"], where)["n"].to_pylist() == [5, 6, 7, 8, 9]
        for where in (ts == middle, ts.isin([middle]), f"ts in ({middle}, {middle + 60 * unit}) and n < 6"):
            assert table.to_arrow(["n"], where)["n"].to_pylist() == [5]
        assert table.scan(["n"], start=middle, end=middle + 60 * unit).read_all()["n"].to_pylist() == [5]
        assert table.coverage.held(middle, str(middle + 180 * unit))["buckets"].to_pylist() == [3]
        run = CliRunner().invoke(
            main,
            [
                "coverage",
                "m",
                "--lake",
                lake.where,
                "--start",
                str(middle),
                "--end",
                str(middle + 600 * unit),
                "--json",
            ],
        )
        assert orjson.loads(run.output)["ratio"] == 0.5
        committed = table.history()[0].committed_us // 10**6 + 1
        assert lake.table("m", as_of=committed * unit).snapshot == table.snapshot
        empty = lake.sql(f"select count(*) from m where ts < cast('{middle}' as timestamp)", engine="local")
        assert empty.to_arrow()[0].to_pylist() == [0]  # of text that is a number, as in Spark, SQL makes no time
