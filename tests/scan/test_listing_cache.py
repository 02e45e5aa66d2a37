"""Keep listings in memory: always what the catalog would list, or fewer that its statistics disprove."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

import tidelake
from tidelake.scan import large_listing, listing_cache

CONDITIONS = (
    None,
    "n == 70",
    "n in (5, 300, 9007199254740993)",
    "n > 120 and host == 'h3'",
    "x < 2.5",
    "ts >= 2026-01-03T00:00:00Z",
)


@pytest.fixture(autouse=True)
def _keep_small_listings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing_cache, "FEW_EXTENTS", 1)


@pytest.mark.parametrize("few", [1, 4, 64])
def test_listing_is_brought_forward_by_commits_and_loses_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(listing_cache, "FEW_EXTENTS", few)
    with tidelake.connect(tmp_path) as lake:
        table = lake.create_table("t", {"ts": "timestamp", "host": "string", "n": "long", "x": "real"}, time="ts")
        first = 0
        for day in range(1, 9):
            rows = [
                {
                    "ts": f"2026-01-{day:02}T{hour:02}:00:00Z",
                    "host": f"h{hour % 5}",
                    "n": day * 50 + hour,
                    "x": day + 0.5,
                }
                for hour in range(24)
            ]
            table.append(rows)
            first = table.flush().snapshot if day == 1 else first
            table.flush()
            for where in CONDITIONS:
                pruned, whole = table.scan(["n"], where), table.scan(["n"], where, prune=False)
                assert sorted(pruned.read_all()["n"].to_pylist()) == sorted(whole.read_all()["n"].to_pylist())
        assert [len(table.plan(["n"], where).tasks) for where in CONDITIONS] == [8, 1, 1, 7, 1, 6]
        assert len(lake.table("t", snapshot=first).plan(["n"]).tasks) == 1  # older than what is kept


def test_no_more_is_kept_than_memory_allows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tidelake.connect(tmp_path) as lake:
        tables = [lake.create_table(name, {"ts": "timestamp", "n": "long"}) for name in ("a", "b")]
        for table in tables:
            table.append([{"ts": "2026-01-01T00:00:00Z", "n": 1}])
            table.flush()
        kept = listing_cache.listings_of(lake.catalog)
        assert [len(table.plan(["n"], "n == 1").tasks) for table in tables] == [1, 1]
        assert len(kept._kept) == 2
        monkeypatch.setattr(listing_cache, "MAX_BYTES", 700)  # of one table
        assert len(tables[0].plan(["n"], "n == 1").tasks) == 1
        assert [listing.byte_size > 0 for listing in kept._kept.values()] == [True]
        monkeypatch.setattr(listing_cache, "MAX_BYTES", 10)
        assert len(tables[1].plan(["n"], "n == 1").tasks) == 1
        assert [listing.byte_size for listing in kept._kept.values()] == [0]
        assert tables[1].plan(["n"], "n == 2").tasks == ()


def test_listing_of_very_many_loses_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing_cache, "MAX_EXTENTS", 0)  # one is very many
    monkeypatch.setattr(large_listing, "SMALL_RUN", 2)
    monkeypatch.setattr(large_listing, "MAX_RUNS", 2)
    conditions = (
        *CONDITIONS[1:],
        "message has 'needle'",
        "n == 70 or message has 'needle'",
        "not n == 70",
        "host == 'h3' and ts < 2026-01-03T00:00:00Z",
        "attributes.user == 'u7'",
        "attributes.code in (3, 5)",
    )
    columns = {"ts": "timestamp", "host": "string", "n": "long", "x": "real", "message": "string"}
    with tidelake.connect(tmp_path) as lake:
        table = lake.create_table("t", {**columns, "attributes": "dynamic"}, time="ts", flush_age="off")
        kept = listing_cache.listings_of(lake.catalog)
        for day in range(1, 9):
            table.append(
                [
                    {
                        "ts": f"2026-01-{day:02}T{hour:02}:00:00Z",
                        "host": f"h{hour % 5}",
                        "n": day * 50 + hour,
                        "x": day + 0.5,
                        "message": f"row {hour} of {day}" + (" with a needle" if day == hour == 6 else ""),
                        "attributes": {"user": f"u{day}", "code": day},
                    }
                    for hour in range(24)
                ]
            )
            table.flush()
            if day == 6:
                table.delete("n < 110")
            for where in conditions:
                table.plan(["n"], where)
                kept.settle()
                pruned, whole = table.scan(["n"], where), table.scan(["n"], where, prune=False)
                assert sorted(pruned.read_all()["n"].to_pylist()) == sorted(whole.read_all()["n"].to_pylist())
        stages = [{stage.name: stage.extents for stage in table.plan(["n"], where).stages} for where in conditions]
        assert [each["catalog"] for each in stages] == [0, 1, 7, 1, 6, 1, 1, 7, 1, 1, 2]
        assert kept._large[table._handle.scope].byte_size > 0


def test_who_asks_first_reads_columns_one_by_one_and_lists_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing_cache, "MAX_EXTENTS", 0)
    with tidelake.connect(tmp_path) as lake:
        table = lake.create_table("t", {"ts": "timestamp", "n": "long", "host": "string"}, flush_age="off")
        for day in range(1, 5):
            table.append([{"ts": f"2026-01-0{day}T00:00:00Z", "n": day, "host": f"h{day}"}])
            table.flush()
        asked: list[list[str]] = []
        pages, listed = lake.catalog.extent_pages, lake.catalog.extents

        def extent_pages(*args: Any, stats: Collection[str], **how: Any) -> Any:
            asked.append(sorted(stats))
            return pages(*args, stats=stats, **how)

        monkeypatch.setattr(lake.catalog, "extent_pages", extent_pages)
        monkeypatch.setattr(lake.catalog, "extents", lambda *_, **__: pytest.fail("the catalog lists"))
        for where in ("n == 3", "host == 'h3'", "n == 3 and host == 'h3'"):
            assert len(table.plan(["n"], where).tasks) == 1
        assert asked == [["n"], ["host"]]
        monkeypatch.setattr(lake.catalog, "extents", listed)
        assert len(table.plan(["n"], "n == 3 and ts >= 2026-01-02").tasks) == 1


def test_listing_that_cannot_be_read_leaves_the_catalog_to_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing_cache, "MAX_EXTENTS", 0)
    with tidelake.connect(tmp_path) as lake:
        table = lake.create_table("t", {"ts": "timestamp", "n": "long"}, flush_age="off")
        table.append([{"ts": "2026-01-01T00:00:00Z", "n": 1}])
        table.flush()
        kept = listing_cache.listings_of(lake.catalog)
        monkeypatch.setattr(listing_cache, "MAX_LARGE_BYTES", 0)  # not even bounds: nothing is known
        for _ in range(2):
            assert len(table.plan(["n"], "n == 1").tasks) == 1
            assert table.plan(["n"], "n == 2").tasks == ()
            kept.settle()
        kept._large.clear()
        table.plan(["n"], "n == 1")  # a thread reads on while the lake is closed
    kept.settle()
