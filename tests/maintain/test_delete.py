"""Delete and replace rows, undo and restore: what is left is exactly what a reader would expect."""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import tidelake
from tidelake import Lake, Table
from tidelake.catalog.protocol import new_id
from tidelake.catalog.sql.sql_catalog import SqlCatalog
from tidelake.errors import ConflictError, InvalidInputError, NotFoundError
from tidelake.maintain.rewrite import REWRITE_TRIES, at_newest_head
from tidelake.model.snapshot import Commit, RemoveExtent, Snapshot

BASE = 1_700_000_000


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return tidelake.connect(tmp_path / "lake")


@pytest.fixture
def table(lake: Lake) -> Table:
    """A table of two extents and hot rows, with values that drifted into the overflow column."""
    table = lake.create_table("t", {"ts": "timestamp", "k": "string", "v": "long", "d": "dynamic"}, time="ts")
    table.append(rows(0, 1500))
    table.append(rows(5000, 1500))
    table.append([*rows(10_000, 10), {"ts": BASE + 10_020, "k": "odd", "v": "text", "new": 7}])
    return table


def rows(offset: int, count: int) -> list[dict[str, Any]]:
    return [
        {"ts": BASE + offset + at, "k": "even" if at % 2 else "odd", "v": at, "d": {"x": at % 7}} for at in range(count)
    ]


def held(table: Table, where: str | None = None) -> Counter[str]:
    return Counter(repr(row) for row in table.to_arrow(where=where).to_pylist())


@pytest.mark.parametrize(
    "where",
    [
        "k == 'odd'",
        "k == 'odd' and v < 100",
        "d.x == 3",
        "_overflow.v == 'text'",
        "new == 7",
        "not (k == 'odd')",
        "k == 'nobody'",
        "v >= 0",
        "d.x > 5 or v == 9",
    ],
)
def test_a_delete_takes_what_a_scan_finds_and_nothing_else(table: Table, where: str) -> None:
    before, found, past = held(table), held(table, where), table.snapshot.sequence
    planned = table.delete(where, dry_run=True)
    assert held(table) == before
    report = table.delete(where)
    assert report.rows == planned.rows == found.total()
    assert held(table) == before - found
    assert len(table) == (before - found).total()
    assert not held(table, where)
    assert Counter(repr(row) for row in table.scan(where=where, prune=False).read_all().to_pylist()) == Counter()
    old = Table(table.handle.open(table.handle.lake, "t", snapshot=past))
    assert held(old) == before


def test_extents_that_are_wholly_meant_leave_without_being_read(table: Table, tmp_path: Path) -> None:
    for extent in table.extents():
        (tmp_path / "lake" / extent.key).unlink()
    report = table.delete(start=BASE, end=BASE + 9000)
    assert (report.rows, report.extents, report.written) == (3000, 2, 0)
    assert len(table) == 11


def test_a_delete_of_everything_is_said_twice(table: Table) -> None:
    with pytest.raises(InvalidInputError, match="all=True"):
        table.delete()
    with pytest.raises(InvalidInputError, match="leave the condition"):
        table.delete("v == 1", all=True)
    assert table.delete(all=True).rows == 3011
    assert (len(table), held(table)) == (0, Counter())


def test_a_pinned_table_is_not_changed(table: Table) -> None:
    pinned = table.pinned()
    for change in (
        lambda: pinned.delete("v == 1"),
        lambda: pinned.delete(all=True),
        lambda: pinned.replace([], start=BASE, end=BASE + 1),
        lambda: pinned.undo(2),
        lambda: pinned.restore(2),
    ):
        with pytest.raises(InvalidInputError, match="can only be read"):
            change()


def test_a_replacement_may_be_repeated(table: Table) -> None:
    fresh = [{"ts": BASE + 100 + at, "k": "fresh", "v": at, "d": None} for at in range(20)]
    outside = held(table) - held(table, f"ts >= {BASE + 100} and ts < {BASE + 150}")
    for _ in range(2):
        report = table.replace(fresh, start=BASE + 100, end=BASE + 150)
        assert report.rows == 20
        assert held(table, "k == 'fresh'").total() == 20
        assert held(table) - held(table, "k == 'fresh'") == outside
    assert report.replaced == 20
    first = table.replace(fresh[:5], start=BASE + 100, end=BASE + 150, key="day")
    again = table.replace(fresh, start=BASE + 100, end=BASE + 150, key="day")
    assert (again.replayed, again.snapshot) == (True, first.snapshot)
    assert held(table, "k == 'fresh'").total() == 5


def test_a_replacement_of_some_rows_leaves_the_others(table: Table) -> None:
    before = held(table)
    odd = held(table, f"k == 'odd' and ts >= {BASE} and ts < {BASE + 1000}")
    report = table.replace([{"ts": BASE + 1, "k": "odd", "v": -1}], start=BASE, end=BASE + 1000, where="k == 'odd'")
    assert report.replaced == odd.total()
    assert held(table) - held(table, "v == -1") == before - odd


@pytest.mark.parametrize("row", [{"ts": BASE + 150, "k": "odd"}, {"ts": BASE + 120, "k": "even"}])
def test_a_row_that_would_not_be_replaced_is_refused(table: Table, row: dict[str, Any]) -> None:
    before = held(table)
    with pytest.raises(InvalidInputError, match="not among those that are replaced"):
        table.replace([row], start=BASE + 100, end=BASE + 150, where="k == 'odd'")
    assert held(table) == before


def test_undo_takes_back_one_append(table: Table) -> None:
    before = held(table)
    added = table.append(rows(20_000, 2000))
    table.append(rows(30_000, 3))
    report = table.undo(added.snapshot)
    assert (report.rows_removed, report.extents_removed) == (2000, 1)
    assert held(table) == before + held(table, f"ts >= {BASE + 30_000}")
    with pytest.raises(tidelake.ConflictError, match="flushed, compacted or deleted"):
        table.undo(added.snapshot)
    with pytest.raises(InvalidInputError, match="took rows away"):
        table.undo(report.snapshot)
    with pytest.raises(NotFoundError, match="expired, or never was"):
        table.undo(999)


@pytest.mark.parametrize(
    ("kind", "moves", "expected"),
    [("not_live", 0, 1), ("not_live", 3, 4), ("not_live", 99, REWRITE_TRIES), ("fenced", 9, 1), ("rewritten", 9, 1)],
)
def test_a_change_is_tried_again_only_where_the_head_moved(lake: Lake, kind: str, moves: int, expected: int) -> None:
    table = lake.create_table("moving", {"ts": "timestamp", "v": "long"}, flush_age="off", upkeep=False)
    heads: list[int] = []

    def change(head: Snapshot) -> None:
        heads.append(head.sequence)
        if len(heads) <= moves:
            table.append([{"ts": BASE, "v": 1}])
        raise ConflictError("an input is no longer live", kind=kind)

    with pytest.raises(ConflictError):
        at_newest_head(table.handle, change)
    assert heads == list(range(1, expected + 1))


def test_restore_publishes_an_older_state(table: Table) -> None:
    states = {table.snapshot.sequence: held(table)}
    table.delete("k == 'odd'")
    states[table.snapshot.sequence] = held(table)
    table.flush()
    table.append(rows(50_000, 5))
    states[table.snapshot.sequence] = held(table)
    for sequence, state in [*states.items(), *states.items()]:
        table.restore(sequence)
        assert held(table) == state
    assert table.restore(table.snapshot.sequence).rows_restored == 0
    with pytest.raises(InvalidInputError, match="as_of"):
        table.restore()


def test_a_restore_reads_the_statistics_of_what_comes_back_alone(tmp_path: Path) -> None:
    with tidelake.connect(tmp_path / "lake", upkeep=False) as lake:
        table = lake.create_table("t", {"ts": "timestamp", "v": "long"})
        for at in range(3):
            table.append([{"ts": BASE + at * 5000 + each, "v": at * 5000 + each} for each in range(1100)])
        past, (stays, comes, goes) = table.snapshot.sequence, table.extents()
        table.delete("v >= 5000 and v < 10000")
        table.append([{"ts": BASE + 90_000 + each, "v": -1} for each in range(1100)])
        assert isinstance(lake.catalog, SqlCatalog)
        with lake.catalog._database.writing() as transaction:  # so that whoever reads others is told
            ordinals = "SELECT ordinal FROM extents WHERE id <> :id"
            transaction.run_text(
                f"UPDATE extent_columns SET body = x'00' WHERE ordinal IN ({ordinals})", {"id": comes.id}
            )
        report = table.restore(past)
        assert (report.extents_removed, report.extents_restored) == (1, 1)
        listed = {each.min_ts_ns: each for each in lake.catalog.extents(table.handle.scope, stats=())}
        assert listed.keys() == {each.min_ts_ns for each in (stays, comes, goes)}
        back = listed[comes.min_ts_ns]
        assert lake.catalog.extents(table.handle.scope, ids=[back.id])[0].column_stats == comes.column_stats
        with pytest.raises(tidelake.CorruptError):
            table.extents()


@pytest.mark.parametrize("scheme", ["", "log:"], ids=["sqlite", "log"])
@pytest.mark.parametrize("mode", ["track", "exclusive"])
def test_a_writer_whose_last_snapshot_has_expired_writes_on(tmp_path: Path, scheme: str, mode: str) -> None:
    where = f"{scheme}{tmp_path / 'lake'}"
    with tidelake.connect(where) as one, tidelake.connect(where) as other:
        table = one.create_table("t", {"ts": "timestamp", "v": "long"}, bucket="1h", coverage=mode)
        for at in range(3):
            table.append([{"ts": BASE + at * 3600, "v": at}])
            other.table("t").delete(f"v == {at}", purge=True)
            table.append([{"ts": BASE + at * 3600, "v": at + 10}])
            other.table("t").flush()
            other.table("t").expire("0s")
            other.collect(abandoned_after="0s", orphan_after="0s")
        assert sorted(table.to_arrow()["v"].to_pylist()) == [10, 11, 12]
        assert table.coverage.held().to_pylist()[0]["buckets"] == 3


@pytest.mark.parametrize("scheme", ["", "log:"], ids=["sqlite", "log"])
def test_rows_that_drift_are_fitted_though_the_writers_last_snapshot_has_expired(tmp_path: Path, scheme: str) -> None:
    where = f"{scheme}{tmp_path / 'lake'}"
    with tidelake.connect(where) as one, tidelake.connect(where) as other:
        table = one.create_table("t", {"ts": "timestamp", "v": "int", "w": "long"})
        for value in (2**40, 2.5, "text"):
            for each in ("v", "w"):
                table.append([{"ts": BASE + at, each: at} for at in range(3)])
                other.table("t").delete("w == 1 or v == 1", purge=True)
                table.append([{"ts": BASE + 10, each: value}])
        assert len(table) == 2 * 3 * 2 + 6


def test_what_is_purged_is_in_no_file_any_more(lake: Lake) -> None:
    table = lake.create_table("people", {"ts": "timestamp", "who": "string"}, upkeep=False)
    for at in range(30):
        table.append([{"ts": BASE + at, "who": f"person {at}"}])
    table.append([{"ts": BASE + 50, "who": "PLANTED in a hot row"}])
    table.append([{"ts": BASE + 100 + at, "who": "PLANTED in an extent" if at == 7 else "x"} for at in range(1500)])
    table.flush()
    table.append([{"ts": BASE + 60, "who": "PLANTED again"}])
    assert planted(lake)
    report = table.delete("who startswith 'PLANTED'", purge=True)
    assert report.rows == 3
    assert len(table) == 1529
    assert planted(lake) == []


def planted(lake: Lake) -> list[Path]:
    return [path for path in Path(lake.where).rglob("*") if path.is_file() and b"PLANTED" in path.read_bytes()]


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Have nothing let go by Python's garbage collector, which comes at its own time."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("no_collector")
def test_a_purge_is_not_held_up_by_the_rewrite_it_is_part_of(lake: Lake, table: Table) -> None:
    with tidelake.connect(lake.where) as other:
        other.table("t").append(rows(15_000, 1))
        table.append([{**row, "fresh": 1} for row in rows(20_000, 3)])  # a schema that the other has not seen
        report = other.table("t").delete("v == 0", purge=True)
        assert report.purged is not None
        assert report.purged.held_by == ()
        assert [each.sequence for each in table.history()] == [report.snapshot]


class _Local:
    """Something that a caller has, and lets go of when it returns."""


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("fails", [False, True])
def test_a_change_that_is_tried_again_or_refused_keeps_nothing_of_its_caller(
    lake: Lake, table: Table, fails: bool
) -> None:
    with tidelake.connect(lake.where) as other:
        other.table("t").append(rows(15_000, 1))
        table.append([{**row, "fresh": 1} for row in rows(20_000, 3)])  # a schema that the other has not seen

        def change() -> weakref.ref[_Local]:
            mine = _Local()
            if fails:
                with suppress(ConflictError):
                    other.handle.coordinator.commit(
                        Commit(new_id(), table.handle.scope, 1, (RemoveExtent("none"),), operation="delete")
                    )
            else:
                other.table("t").delete("v == 0")
            return weakref.ref(mine)

        assert change()() is None
