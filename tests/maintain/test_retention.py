"""Retention: old rows leave by metadata where they can, and coverage tells expired from missing."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.maintain.test_every_catalog import anywhere
from tidelake import Lake
from tidelake.catalog.sql.sql_catalog import SqlCatalog
from tidelake.errors import CorruptError, InvalidInputError
from tidelake.maintain.retention import retain
from tidelake.maintain.units import due_in_table
from tidelake.maintain.worker import maintain

__all__ = ["anywhere"]  # a fixture

HOUR = 3600
NOW = int(time.time()) // HOUR * HOUR


def test_old_extents_leave_and_straddling_ones_are_trimmed(lake: Lake) -> None:
    table = lake.create_table("t", {"ts": "timestamp", "v": "long"}, retention="10h")
    table.append([{"ts": NOW - 20 * HOUR + at, "v": at} for at in range(1500)])  # wholly old
    table.append([{"ts": NOW - 11 * HOUR + at * 3, "v": at} for at in range(1500)])  # mostly old
    table.append([{"ts": NOW - 10 * HOUR - 600 + at * 10, "v": at} for at in range(1500)])  # hardly old
    table.append([{"ts": NOW - 30 * HOUR, "v": -1}])  # hot and old
    table.append([{"ts": NOW - 1, "v": -2}])
    past = table.snapshot.sequence
    report = retain(table.handle, at_us=NOW * 1_000_000)
    assert (report.extents, report.written) == (2, 1)
    assert report.rows == 1500 + 1200 + 1
    assert len(table) == 300 + 1500 + 1
    assert len(lake.table("t", snapshot=past)) == 4502
    assert table.history(1)[0].operation == "retain"
    assert retain(table.handle, at_us=NOW * 1_000_000).snapshot == report.snapshot


def test_old_hot_rows_alone_are_due(anywhere: Lake) -> None:
    with anywhere as lake:
        table = lake.create_table("t", {"ts": "timestamp", "v": "long"}, retention="10h", flush_age="off")
        table.append([{"ts": NOW - 1, "v": 0}])
        table.append([{"ts": NOW - 11 * HOUR, "v": 1}, {"ts": NOW - 1, "v": 2}])
        assert list(due_in_table(table.handle, ["retain"])) == []
        table.append([{"ts": NOW - 40 * HOUR, "v": 3}, {"ts": NOW - 30 * HOUR, "v": 4}])
        (due,) = due_in_table(table.handle, ["retain"])
        held = "1 extents hold rows" if table.extents() else "2 hot rows are"  # a log table has no hot rows
        assert due.reason == f"{held} older than 10h"
        assert maintain(lake.handle, kinds=["retain"]).done[0].said == "2 old rows left"
        assert sorted(table.to_arrow()["v"].to_pylist()) == [0, 1, 2]
        assert list(due_in_table(table.handle, ["retain"])) == []


def test_the_rows_of_hot_batches_that_are_not_due_are_not_read(lake: Lake) -> None:
    table = lake.create_table("t", {"ts": "timestamp", "v": "long"}, retention="10h", flush_age="off", upkeep=False)
    table.append([{"ts": NOW - 1, "v": 0}])
    table.append([{"ts": NOW - 40 * HOUR, "v": 1}])
    assert isinstance(lake.catalog, SqlCatalog)
    with lake.catalog._database.writing() as transaction:  # so that whoever reads the first batch is told
        transaction.run_text("UPDATE hot_batches SET payload = x'00' WHERE added_seq = 2")
    assert len(list(due_in_table(table.handle, ["retain", "flush"]))) == 1
    assert retain(table.handle).rows == 1
    with pytest.raises(CorruptError):
        lake.catalog.hot(table.handle.scope)


def test_hot_rows_that_only_seem_old_are_not_taken_away(lake: Lake) -> None:
    table = lake.create_table("t", {"ts": "timestamp", "v": "long"}, retention="10h", flush_age="off", upkeep=False)
    table.append([{"ts": NOW - 1, "v": 0}])
    assert isinstance(lake.catalog, SqlCatalog)
    with lake.catalog._database.writing() as transaction:
        transaction.run_text("UPDATE hot_batches SET max_ts_ns = max_ts_ns - (1 << 60)")
    with pytest.raises(CorruptError, match="a hot batch cannot be read"):
        retain(table.handle)
    assert len(table) == 1


def test_what_expired_is_not_missing(lake: Lake) -> None:
    table = lake.create_table("c", {"ts": "timestamp", "dev": "string"}, bucket="1h", entity="dev", retention="10h")
    rows = [{"ts": NOW - at * HOUR, "dev": "a"} for at in range(1, 41) if at not in (3, 25)]
    table.append(rows)
    table.flush()
    start, end = NOW - 40 * HOUR, NOW
    assert table.coverage.gaps(start, end).num_rows == 2
    assert table.coverage.expired_before is None
    retain(table.handle, at_us=NOW * 1_000_000)
    assert len(table) == 9
    (gap,) = table.coverage.gaps(start, end).to_pylist()
    assert gap["start"].timestamp() == NOW - 3 * HOUR
    assert table.coverage.ratio(start, end) == 0.9
    assert table.coverage.expired_before == datetime.fromtimestamp(NOW - 10 * HOUR, UTC)
    assert table.coverage.missing(start, end).num_rows == 1


def test_a_table_without_retention_or_time_is_refused(lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="no retention"):
        retain(lake.create_table("t", {"ts": "timestamp"}).handle)
    with pytest.raises(InvalidInputError, match="needs a time column"):
        lake.create_table("u", {"v": "long"}, retention="1d")
    with pytest.raises(InvalidInputError, match="not a duration"):
        lake.create_table("w", {"ts": "timestamp"}, history="soon")
