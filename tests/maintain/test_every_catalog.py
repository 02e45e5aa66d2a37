"""A life of a table with upkeep, in every catalog: what is left is what a list of rows says."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import tidelake
from tests.support.catalogs import fresh_schema
from tests.support.upkeep import check_store
from tidelake import Lake
from tidelake.catalog.users import Small
from tidelake.errors import InvalidInputError, OverlapError
from tidelake.maintain import choice, status

BASE = 1_790_000_000


@pytest.fixture(params=["sqlite", "postgres", "log"])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """A lake of every catalog, not looked after by itself."""
    if request.param == "sqlite":
        return tidelake.connect(tmp_path / "lake", upkeep=False)
    if request.param == "log":
        return tidelake.connect(f"log:{tmp_path / 'prices'}", upkeep=False)
    return tidelake.connect(
        fresh_schema(request.getfixturevalue("postgres")), objects=tmp_path / "objects", upkeep=False
    )


def test_a_life_of_a_table(anywhere: Lake) -> None:
    with anywhere as lake:
        table = lake.create_table("t", {"ts": "timestamp", "v": "long"})
        rows: list[int] = []
        for at in range(5):
            table.append([{"ts": BASE + at * 3000 + each, "v": at * 3000 + each} for each in range(1100)])
            rows += [at * 3000 + each for each in range(1100)]

        def check() -> None:
            assert sorted(table.to_arrow()["v"].to_pylist()) == sorted(rows)
            assert sorted(table.scan(["v"], where="v >= 0", prune=False).read_all()["v"].to_pylist()) == sorted(rows)

        table.delete("v > 3000 and v < 3500")
        rows = [v for v in rows if not 3000 < v < 3500]
        check()
        table.compact()
        check()
        table.pin("before")
        kept, pinned = list(rows), table.snapshot.sequence
        table.replace([{"ts": BASE + 10, "v": -1}], start=BASE, end=BASE + 1000)
        rows = [v for v in rows if v >= 1000] + [-1]
        added = table.append([{"ts": BASE + 90_000 + each, "v": 90_000 + each} for each in range(1200)])
        table.undo(added.snapshot)
        check_rows = sorted(table.to_arrow()["v"].to_pylist())
        assert check_rows == sorted(rows)
        assert table.expire("0s").snapshots > 0
        lake.collect(abandoned_after="0s", orphan_after="0s")
        check_store(lake)
        assert sorted(lake.table(table.name, snapshot=pinned).to_arrow()["v"].to_pylist()) == sorted(kept)
        table.restore(pinned)
        rows = list(kept)
        check()
        table.unpin("before")
        report = table.delete("v >= 6000", purge=True)
        rows = [v for v in rows if v < 6000]
        assert report.purged is not None
        assert report.purged.held_by == ()
        check()
        check_store(lake)
        assert len(table.history()) == 1


def test_a_replacement_of_an_exclusive_table_frees_what_it_takes(anywhere: Lake) -> None:
    with anywhere as lake:
        table = lake.create_table(
            "c", {"ts": "timestamp", "dev": "string", "v": "long"}, bucket="1m", entity="dev", coverage="exclusive"
        )
        table.append([{"ts": BASE // 60 * 60 + 60 * at, "dev": "a", "v": at} for at in range(1200)])
        start = BASE // 60 * 60
        with pytest.raises(OverlapError):
            table.append([{"ts": start, "dev": "a", "v": 0}])
        again = [{"ts": start + 60 * at, "dev": "a", "v": -at} for at in range(0, 100, 2)]
        for _ in range(2):
            table.replace(again, start=start, end=start + 6000)
        assert len(table) == 1100 + 50
        assert table.coverage.gaps().num_rows == 50
        table.append([{"ts": start + 60, "dev": "a", "v": 1}])  # what was freed is free
        with pytest.raises(OverlapError):
            table.replace(
                [{"ts": start + 30, "dev": "a", "v": 5}], start=start + 30, end=start + 60
            )  # the rest is held
        assert table.coverage.gaps().num_rows == 49


def test_appends_and_rewrites_at_once_lose_nothing(anywhere: Lake) -> None:
    with anywhere as lake:
        table = lake.create_table("t", {"ts": "timestamp", "v": "long"})
        table.append([{"ts": BASE + at, "v": at} for at in range(2000)])
        errors: list[BaseException] = []

        def appends() -> None:
            try:
                for at in range(6):
                    table.append([{"ts": BASE + 5000 + at, "v": 10_000 + at * 1100 + each} for each in range(1100)])
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=appends)
        thread.start()
        for at in range(6):
            table.delete(f"v == {at}")
            table.compact()
        thread.join()
        assert not errors
        wanted = [*range(6, 2000), *range(10_000, 10_000 + 6 * 1100)]
        assert sorted(table.to_arrow()["v"].to_pylist()) == wanted


def test_bad_input_changes_nothing(anywhere: Lake) -> None:
    with anywhere as lake:
        table = lake.create_table("t", {"ts": "timestamp", "v": "long"})
        table.append([{"ts": BASE + at, "v": at} for at in range(1500)])
        table.append([{"ts": BASE + 9000 + at, "v": at} for at in range(1500)])
        table.expire("0s")
        head = table.snapshot.sequence
        with pytest.raises(tidelake.NotFoundError, match="expired"):
            table.restore(2)
        with pytest.raises(tidelake.QueryError):
            table.delete("nothing == 1")
        with pytest.raises(tidelake.InvalidRangeError):
            table.delete(start=BASE + 5, end=BASE)
        with pytest.raises(InvalidInputError, match="keep_last"):
            table.expire("0s", keep_last=0)
        assert table.snapshot.sequence == head
        assert lake.catalog.pending() == []


def test_extents_that_shrink_to_a_hundredth_are_compacted_until_they_are_full_in_memory(
    anywhere: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog knows what rows take in memory; by their bytes, these extents would look small for ever."""
    monkeypatch.setattr(choice, "SMALL", Small(choice.SMALL_BYTES, 700_000, 2_000_000))
    monkeypatch.setattr(status, "SMALL", choice.SMALL)
    text = "the same words in every row " * 4
    with anywhere as lake:
        table = lake.create_table("t", {"ts": "timestamp", "text": "string"}, format="tlm3")

        def appended(start: int, count: int) -> None:
            for at in range(start, start + count):
                table.append([{"ts": BASE + at * 3000 + each, "text": text} for each in range(1100)])

        appended(0, 8)
        assert all(200_000 > (each.unpacked_bytes or 0) > 30 * each.byte_size for each in table.extents())
        assert lake.status()["small_extents"].to_pylist() == [8]
        assert table.compact().runs == 1
        (full,) = table.extents()
        assert (full.unpacked_bytes or 0) > 700_000
        assert lake.status()["small_extents"].to_pylist() == [0]
        appended(8, 6)
        assert table.compact().runs == 1
        assert table.extents()[0].id == full.id
        assert len(table.extents()) == 2
        assert table.compact().runs == 0
