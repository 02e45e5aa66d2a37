"""Which segments of a table with a key are united: the rule of the suffix, its limits, and the rules after it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tidelake import InvalidInputError, connect
from tidelake.maintain.suffix import keyed_runs, suffix_of, versions_between
from tidelake.model.snapshot import Extent


def extent(at: int, rows: int, *, low: int = 0, high: int = 100, size: int = 1_000, **given: Any) -> Extent:
    shape = {"distinct": None, "tokens": None, "nulls": 0, "min": low, "max": high}
    return Extent(
        f"{at:032x}", f"k{at}", "parquet", size, rows, 1, None, None, given.pop("schema_version", 1), {"id": shape},
        first_seq=at * 1_000_000, **given,
    )  # fmt: skip


def ids(run: Any) -> list[int]:
    return sorted(int(each.id, 16) for each in run)


def test_a_run_is_the_last_small_segments_up_to_the_limits() -> None:
    few = [extent(at, 100) for at in range(4)]
    assert suffix_of(few, is_user=False, limits={}) == ()
    assert ids(suffix_of([extent(at, 100) for at in range(12)], is_user=False, limits={})) == list(range(4, 12))
    rows = [extent(at, 6_000) for at in range(6)]
    assert ids(suffix_of(rows, is_user=False, limits={})) == [2, 3, 4, 5], "25,000 rows at most"
    assert suffix_of(rows, is_user=True, limits={}) == (), "two are more than 10,000"


def test_a_large_segment_or_another_schema_ends_the_suffix() -> None:
    large = [extent(0, 100), extent(1, 30_000), *(extent(at, 100) for at in range(2, 8))]
    assert ids(suffix_of(large, is_user=False, limits={})) == [2, 3, 4, 5, 6, 7]
    older = [extent(at, 100, schema_version=1 if at < 3 else 2) for at in range(9)]
    assert ids(suffix_of(older, is_user=False, limits={})) == [3, 4, 5, 6, 7, 8]


def test_the_limits_are_settings() -> None:
    many = [extent(at, 100) for at in range(9)]
    assert ids(suffix_of(many, is_user=False, limits={"max_segments": 3})) == [6, 7, 8]
    assert suffix_of(many, is_user=False, limits={"min_segments": 10}) == ()
    assert suffix_of(many, is_user=False, limits={"max_rows": 0}) == ()
    assert ids(suffix_of(many, is_user=False, limits={"max_rows": 250})) == [7, 8]


def test_larger_segments_are_united_when_they_overlap_too_deep() -> None:
    wide = [extent(at, 3_000_000, size=20 << 20) for at in range(9)]
    runs = keyed_runs(wide, "id", rows=27_000_000, is_user=False, fewest=4, limits={})
    assert [ids(run) for run in runs] == [list(range(9))]
    apart = [extent(at, 3_000_000, size=20 << 20, low=at * 10, high=at * 10 + 9) for at in range(9)]
    assert keyed_runs(apart, "id", rows=27_000_000, is_user=False, fewest=4, limits={}) == []


def test_versions_are_those_stored_or_counted() -> None:
    counted = extent(2, 10)
    assert versions_between(counted) == (2_000_000, 2_000_009)
    stored = {"_seq": {"distinct": None, "tokens": None, "nulls": 0, "min": 7, "max": 99}}
    assert versions_between(replace(counted, column_stats=stored)) == (7, 99)


def test_limits_that_are_none_make_no_table(tmp_path: Path) -> None:
    with connect(tmp_path / "lake") as lake:
        columns = {"id": "long", "ts": "timestamp"}
        odd: list[Any] = [{"max_segments": 1}, {"min_segments": "5"}, {"most": 3}]
        for given in odd:
            with pytest.raises(InvalidInputError):
                lake.create_table("a.b", columns, key=["id"], compaction=given)
        with pytest.raises(InvalidInputError, match="with a key"):
            lake.create_table("a.b", columns, compaction={"max_segments": 4})
        with pytest.raises(InvalidInputError, match="flush_rows"):
            lake.create_table("a.b", columns, flush_rows=0)
        assert lake.tables() == []


def test_a_table_is_compacted_and_flushed_by_its_settings(tmp_path: Path) -> None:
    with connect(tmp_path / "lake", upkeep=False) as lake:
        columns = {"id": "long", "ts": "timestamp"}
        table = lake.create_table(
            "a.b", columns, key=["id"], flush_rows=10, flush_age="off", compaction={"min_segments": 3}
        )
        for at in range(4):
            table.append([{"id": id, "ts": "2026-01-01"} for id in range(at, at + 5)])
            table.flush()
        assert "upkeep.compact" in {each.kind for each in _due(lake)}
        lake.maintain()
        assert len(table.extents()) == 1
        assert len(table) == 8


def _due(lake: Any) -> Any:
    from tidelake.maintain.worker import plan

    return plan(lake.handle)
