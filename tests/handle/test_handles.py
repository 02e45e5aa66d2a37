"""Hold lakes and tables by their handles: frozen, without secrets in what they show, enough to read, write and ask."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import FrozenInstanceError, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelake
from tidelake.catalog import open_catalog
from tidelake.errors import InvalidInputError
from tidelake.handle.lake_handle import LakeHandle
from tidelake.handle.opening import open_lake
from tidelake.handle.table_handle import TableHandle
from tidelake.lake import Lake
from tidelake.model.predicate import Equals, Range
from tidelake.objects import open_store
from tidelake.query.session import run
from tidelake.scan.extents import scan
from tidelake.scan.scannable import MemoryRows, Scannable
from tidelake.table import Table
from tidelake.write.alter import add_column
from tidelake.write.append import append
from tidelake.write.create import create_table
from tidelake.write.flush import flush
from tidelake.write.promote import promote

ROWS = [{"ts": f"2026-01-01T00:00:{n:02}Z", "n": n, "tags": {"a": n}} for n in range(10)]


@dataclass(frozen=True)
class Holder:
    """Something that is no lake, and has a handle."""

    handle: LakeHandle
    user_id: str | None = None


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[LakeHandle]:
    held = open_lake(tmp_path / "lake")
    create_table(held.catalog, "t", {"ts": "timestamp", "n": "long", "tags": "dynamic"}, flush_age="off")
    yield held
    held.close()


@pytest.fixture
def table(lake: LakeHandle) -> TableHandle:
    held = TableHandle.open(lake, "t")
    append(held, ROWS)
    return held


def numbers(table: TableHandle, **asked: Any) -> list[int]:
    found: list[int] = table.scan(["n"], **asked).read_all()["n"].to_pylist()
    return sorted(found)


def test_a_table_is_written_and_read_by_its_handle(table: TableHandle) -> None:
    assert numbers(table, where="n >= 7") == [7, 8, 9]
    assert (flush(table).rows, len(table.extents()), table.hot(table.snapshot)) == (10, 1, ())
    assert promote(table, "tags.a", "long").names == ("ts", "n", "tags", "a")
    assert add_column(table, "more", "string")["more"].type.kind == "string"
    assert numbers(table, where="a < 2") == [0, 1]


def test_a_pinned_handle_is_read_and_refuses_what_writes(table: TableHandle) -> None:
    past = table.pinned()
    append(table, ROWS)
    assert (len(numbers(past)), len(numbers(table))) == (10, 20)
    refused: list[Any] = [
        lambda: append(past, ROWS),
        lambda: flush(past),
        lambda: add_column(past, "more", "long"),
        lambda: promote(past, "tags.a", "long"),
    ]
    for write in refused:
        with pytest.raises(InvalidInputError, match=f"only be read table=default.t snapshot={past.snapshot.sequence}"):
            write()


def test_handles_are_frozen_and_nouns_show_theirs(table: TableHandle) -> None:
    with pytest.raises(FrozenInstanceError):
        table.past = None  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        table.lake.address = "elsewhere"  # type: ignore[misc]
    assert (Table(table).handle, Lake(table.lake).handle) == (table, table.lake)
    assert Lake(table.lake).table("t").handle.lake is table.lake


def test_handles_show_no_password(tmp_path: Path) -> None:
    address = "postgresql://me:hush@db/lake"
    lake = LakeHandle(open_catalog(tmp_path / "lake"), open_store(tmp_path / "lake"), address)
    create_table(lake.catalog, "t", {"ts": "timestamp"})
    table = TableHandle.open(lake, "t", snapshot=1)
    assert (lake.address, "hush" in f"{lake}{lake.where}{table}") == (address, False)
    assert repr(table) == f"TableHandle(default.t at snapshot 1 in {lake.where!r})"


def test_whatever_has_a_lakes_handle_can_be_asked(table: TableHandle) -> None:
    assert run(Holder(table.lake), "select sum(n) as s from t").to_arrow().to_pydict() == {"s": [45]}


def test_rows_in_memory_are_planned_and_scanned_as_a_table_is(table: TableHandle) -> None:
    rows = pa.table({"ts": pa.array(range(10), pa.timestamp("us", tz="UTC")), "n": range(10)})
    both: list[Scannable] = [MemoryRows.of("answers.a", rows, table.footers), table.pinned()]
    for each in both:
        plan = each.plan(["n"], Range("n", 3, 8), limit=4)
        assert scan(plan, each.footers).read_all()["n"].to_pylist() == [3, 4, 5, 6]
        assert [len(each.outline(["n"], Equals("n", 1), stats=["n"]).tasks), each.showing(["n"]).schema["n"]] == [
            0, each.schema["n"],
        ]  # fmt: skip


def test_a_lake_that_is_opened_by_its_address_is_the_one_that_connect_opens(table: TableHandle) -> None:
    with tidelake.connect(table.lake.address) as lake:
        assert (lake.handle.tables(), numbers(lake.table("t").handle)) == (["default.t"], list(range(10)))
