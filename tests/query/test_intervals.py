"""Show that intervals of a result are whole, or refused."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tidelake import Lake, QueryError

LONG = pa.MonthDayNano([0, 106_751_991, 4 * 3_600_000_000_000])


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("interval '2562047788' hour", LONG),
        ("array(interval '2562047788' hour)", [LONG]),
        ("map('a', interval '2562047788' hour)", [("a", LONG)]),
        ("named_struct('a', interval '2562047788' hour)", {"a": LONG}),
        ("make_dt_interval(106751991)", pa.MonthDayNano([0, 106_751_991, 0])),
        ("interval '30' hour", pa.MonthDayNano([0, 0, 30 * 3_600_000_000_000])),
        ("cast('5' as interval day)", pa.MonthDayNano([0, 5, 0])),
        ("cast(\"interval '3-1' year to month\" as interval year to month)", pa.MonthDayNano([37, 0, 0])),
        ("try_add(interval 106751991 day, interval 3 day)", None),
    ],
)
def test_a_long_interval_is_given_whole(world: Lake, text: str, found: Any) -> None:
    assert world.sql(f"select {text} as x", engine="local").to_arrow()["x"].to_pylist() == [found]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("interval 106751991 day + interval 3 day", "an interval is longer than 64 bits of microseconds"),
        ("cast('x' as interval day)", "'x' is not an interval of day"),
    ],
)
def test_what_is_no_interval_is_refused(world: Lake, text: str, message: str) -> None:
    with pytest.raises(QueryError, match=message):
        world.sql(f"select {text} as x", engine="local").to_arrow()
