"""Check the bytes of a log table: the original's shapes, ours beside them, and every way they can be wrong."""

from __future__ import annotations

import json
import shutil
from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.catalogs import SCHEMA, Ticking, announce, append, append_hot, commit_of, extent, publish
from tests.support.original import read_original
from tidelake.catalog.log.entries import (
    Covered,
    Done,
    Entry,
    Mark,
    Named,
    Unfinished,
    Upkeep,
    decode,
    encode,
    seal,
    unit_to_json,
    unseal,
)
from tidelake.catalog.log.log_catalog import LogCatalog, open_log_catalog
from tidelake.catalog.log.metadata import (
    Meta,
    bucket_of,
    bucket_text,
    meta_of,
    schema_of,
    settings_of,
    time_ns,
    time_text,
)
from tidelake.catalog.log.state import from_json, start, to_json
from tidelake.catalog.protocol import Garbage, TableInfo
from tidelake.catalog.work_queue import WorkUnit
from tidelake.errors import CorruptError, InvalidInputError, SchemaError
from tidelake.model.schema import Column, DataType, Schema
from tidelake.model.snapshot import (
    AddExtent,
    Counts,
    DropHot,
    Extent,
    HotBatch,
    RecordOffset,
    RemoveExtent,
    Scope,
    Snapshot,
    UnitedCoverage,
    UpdateCoverage,
    UpdateTable,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "log" / "prices"
NANOS = st.integers(-(2**63), 2**63 - 1)


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    """Return a table that was written by hand in the original's layout."""
    return Path(shutil.copytree(GOLDEN, tmp_path / "prices"))


@pytest.fixture
def ours(tmp_path: Path) -> tuple[Path, LogCatalog, Scope]:
    """Return a table of our own, with its root."""
    root = tmp_path / "ours"
    catalog = open_log_catalog(root, create=True, clock=Ticking())
    settings = {"time": "ts", "entity": "service", "bucket": "15 min", "timezone": "UTC", "coverage": "track"}
    return root, catalog, catalog.create_table("obs.logs", SCHEMA, settings).scope


def entry_at(root: Path, version: int) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((root / f"_timeseries_log/{version:010d}.json").read_text())
    return document


def files_of(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


# tables in the original's layout


def test_table_of_the_original_opens_as_it_is(prices: Path) -> None:
    before = files_of(prices)
    with open_log_catalog(prices) as catalog:
        (info,) = catalog.tables()
        assert info == TableInfo(info.id, "default", "prices", 1704358800123456)
        assert catalog.table("prices") == info
        third, second, first = catalog.history(info.scope)
        adopted = Schema(
            (
                Column(1, "ts", DataType("timestamp"), nullable=False),
                Column(2, "symbol", DataType("string"), nullable=False),
                Column(3, "close", DataType("real")),
                Column(4, "volume", DataType("long")),
            ),
            version=2,
        )
        settings = {
            "format": "parquet",
            "coverage": "exclusive",
            "time": "ts",
            "bucket": "1h",
            "entity": ["symbol"],
            "timezone": "America/New_York",
        }
        pinned = {**settings, "entity_identity": {"symbol": "NVDA"}}
        segments = "_coverage/segments/segcov-"
        table = "_coverage/table/"
        one = Extent(
            id="3f2a9d0c7b6e5a4f8c1d2e3b4a5f6071",
            key="data/nvda_1h_0001.parquet",
            format="parquet",
            byte_size=1457,
            row_count=7,
            block_count=1,
            min_ts_ns=1704204000 * 10**9,
            max_ts_ns=1704225600 * 10**9,
            schema_version=2,
            coverage_key=f"{segments}5b6e7a8f9c0d1e2f3a4b5c6d7e8f9a0b.roar",
            added_seq=2,
        )
        two = Extent(
            id="nvda-january-3",
            key="data/nvda_1h_0002.parquet",
            format="parquet",
            byte_size=0,  # nobody said
            row_count=7,
            block_count=1,
            min_ts_ns=1704290400 * 10**9,
            max_ts_ns=1704312000 * 10**9,
            schema_version=2,
            coverage_key=f"{segments}1c2d3e4f5a6b7c8d9e0f1a2b3c4d5e6f.roar",
            added_seq=3,
        )
        assert first == Snapshot(
            scope=info.scope,
            sequence=1,
            id=info.id,
            parent_id=None,
            committed_us=1704358800123999,
            operation="create",
            schema=Schema((Column(1, "ts", DataType("timestamp"), nullable=False),)),
            settings=settings,
        )
        assert second == Snapshot(
            scope=info.scope,
            sequence=2,
            id=second.id,
            parent_id=first.id,
            committed_us=1704358801500000,
            operation="append",
            schema=adopted,
            settings=pinned,
            totals=Counts(1, 7, 1457),
            added=Counts(1, 7, 1457),
            coverage=UnitedCoverage(f"{table}2-tblcov-9a8b7c6d5e4f3a2b1c0d9e8f7a6b5c4d.roar", 2),
        )
        assert third == replace(
            second,
            sequence=3,
            id=third.id,
            parent_id=second.id,
            committed_us=1704358801500001,  # its own clock went back
            totals=Counts(2, 14, 1457),
            added=Counts(1, 7, 0),
            coverage=UnitedCoverage(f"{table}3-tblcov-0f1e2d3c4b5a69788796a5b4c3d2e1f0.roar", 3),
        )
        assert catalog.extents(info.scope) == [one, two]
        assert catalog.extents(info.scope, end_ns=1704290400 * 10**9) == [one]
        assert catalog.extents(info.scope, sequence=2) == [one]
        assert catalog.snapshot(info.scope, snapshot_id=second.id) == second
        assert pq.read_table(prices / one.key).num_rows == one.row_count
    assert files_of(prices) == before


def test_table_of_the_original_takes_our_commits_and_the_original_reads_them(prices: Path) -> None:
    with open_log_catalog(prices, clock=Ticking(1_704_400_000_000_000)) as catalog:
        scope = catalog.table("prices").scope
        rows = pq.read_table(prices / "data/nvda_1h_0001.parquet")
        pq.write_table(rows, prices / "data/nvda_1h_0003.parquet")
        size = (prices / "data/nvda_1h_0003.parquet").stat().st_size
        added = replace(
            extent(7, times=(1704463200 * 10**9, 1704484800 * 10**9 + 1000), version=2),
            key="data/nvda_1h_0003.parquet",
            format="parquet",
            byte_size=size,
            coverage_key="_coverage/segments/segcov-00000000000000000000000000000003.roar",
        )
        united = UnitedCoverage("_coverage/table/4-tblcov-00000000000000000000000000000004.roar", 4)
        publish(catalog, scope, AddExtent(added), UpdateCoverage(united))
        publish(catalog, scope, RemoveExtent("nvda-january-3"), RemoveExtent("3f2a9d0c7b6e5a4f8c1d2e3b4a5f6071"))
        listed = catalog.extents(scope)
    bare = {name: held for name, held in entry_at(prices, 4).items() if name != "tide"}
    bare["actions"][0]["AddSegment"].pop("tide")
    assert bare == {
        "version": 4,
        "base_version": 3,
        "timestamp": bare["timestamp"],
        "actions": [
            {
                "AddSegment": {
                    "segment_id": f"seg-{added.id}",
                    "path": "data/nvda_1h_0003.parquet",
                    "format": "parquet",
                    "ts_min": "2024-01-05T14:00:00Z",
                    "ts_max": "2024-01-05T20:00:00.000001Z",
                    "row_count": 7,
                    "file_size": size,
                    "coverage_path": "_coverage/segments/segcov-00000000000000000000000000000003.roar",
                }
            },
            {"UpdateTableCoverage": {"bucket_spec": {"Hours": 1}, "coverage_path": united.key}},
        ],
    }
    original = read_original(prices)
    assert original.version == 5
    assert list(original.segments) == [f"seg-{added.id}"]
    assert original.coverage == {"bucket_spec": {"Hours": 1}, "coverage_path": united.key}
    assert original.meta["entity_identity"] == {"symbol": "NVDA"}
    with open_log_catalog(prices) as catalog:
        assert catalog.extents(scope) == listed == [replace(added, added_seq=4)]


def test_widening_a_table_of_the_original_keeps_its_own_types(prices: Path) -> None:
    with open_log_catalog(prices) as catalog:
        scope = catalog.table("prices").scope
        wider = catalog.head(scope).schema.widen([("venue", DataType("string"))])
        publish(catalog, scope, UpdateTable(wider, {"retention": "30d"}))
    meta = read_original(prices).meta
    before = entry_at(GOLDEN, 2)["actions"][0]["UpdateTableMeta"]
    venue = {"name": "venue", "data_type": "Utf8", "nullable": True}
    assert meta == {**before, "logical_schema": {"columns": [*before["logical_schema"]["columns"], venue]}}
    with open_log_catalog(prices) as catalog:
        head = catalog.head(scope)
        assert (head.schema, head.settings["retention"], head.settings["bucket"]) == (wider, "30d", "1h")


def test_original_may_go_on_writing_to_our_table(ours: tuple[Path, LogCatalog, Scope]) -> None:
    root, catalog, scope = ours
    vector = catalog.head(scope).schema.widen([("v", DataType("vector", 3))])
    publish(catalog, scope, UpdateTable(vector, {"bucket": "250ms", "retention": "1d"}))
    held = append(catalog, scope)
    meta = entry_at(root, 2)["actions"][0]["UpdateTableMeta"]
    meta.pop("tide")
    column = {"name": "n", "data_type": "Int32", "nullable": True}
    meta["logical_schema"]["columns"].append(column)
    segment = {"segment_id": f"seg-{held.id}", "path": "data/again.parquet", "format": "parquet", "row_count": 3}
    times = {"ts_min": "2024-01-01T00:00:00Z", "ts_max": "2024-01-01T01:00:00.5+01:00"}
    commit = {
        "version": 4,
        "base_version": 3,
        "timestamp": "2024-01-01T00:00:00Z",
        "actions": [
            {"UpdateTableMeta": meta},
            {"AddSegment": {**segment, **times}},  # again: it replaces
            {"RemoveSegment": {"segment_id": "never there"}},
        ],
    }
    (root / "_timeseries_log/0000000004.json").write_text(json.dumps(commit, indent=1))
    head = catalog.head(scope)
    assert (head.operation, head.totals, head.removed) == ("change", Counts(1, 3, 0), Counts(1, 10, 1000))
    assert head.schema == vector.widen([("n", DataType("int"))])
    assert (head.settings["bucket"], head.settings["retention"]) == ("250ms", "1d")
    (found,) = catalog.extents(scope)
    assert (found.id, found.key, found.schema_version) == (held.id, "data/again.parquet", 3)
    assert (found.min_ts_ns, found.max_ts_ns) == (1704067200 * 10**9, 1704067200 * 10**9 + 5 * 10**8)
    assert catalog.extents(scope, sequence=3) == [replace(held, removed_seq=4)]


# tables of our own


def test_creating_a_table_writes_one_commit_and_the_hint(ours: tuple[Path, LogCatalog, Scope]) -> None:
    root, catalog, scope = ours
    head = catalog.head(scope)
    assert set(files_of(root)) == {"_timeseries_log/0000000001.json", "_timeseries_log/CURRENT"}
    assert (root / "_timeseries_log/CURRENT").read_text() == "1\n"
    nothing = [0, 0, 0, 0, 0, 0]
    document = entry_at(root, 1)
    assert list(document) == ["tide", "version", "base_version", "timestamp", "actions"]
    assert document == {
        "tide": {
            "sum": document["tide"]["sum"],
            "format": 1,
            "id": head.id,
            "table": {"id": scope.table_id, "namespace": "obs", "name": "logs"},
            "snapshot": {
                "sequence": 1,
                "parent": None,
                "operation": "create",
                "schema": 1,
                "totals": nothing,
                "added": nothing,
                "removed": nothing,
                "coverage": None,
                "commits": [],
                "hot": [],
                "dropped": [],
            },
            "upkeep": None,
        },
        "version": 1,
        "base_version": 0,
        "timestamp": "1970-01-01T00:00:01.000010Z",
        "actions": [
            {
                "UpdateTableMeta": {
                    "kind": {
                        "TimeSeries": {
                            "timestamp_column": "ts",
                            "entity_columns": ["service"],
                            "bucket": {"Minutes": 15},
                            "timezone": "UTC",
                        }
                    },
                    "logical_schema": {
                        "columns": [
                            {
                                "name": "ts",
                                "data_type": {"Timestamp": {"unit": "Micros", "timezone": "UTC"}},
                                "nullable": True,
                            },
                            {"name": "service", "data_type": "Utf8", "nullable": True},
                            {"name": "level", "data_type": "Int64", "nullable": True},
                            {"name": "load", "data_type": "Float64", "nullable": True},
                        ]
                    },
                    "created_at": "1970-01-01T00:00:01.000010Z",
                    "format_version": 1,
                    "tide": {"schema": SCHEMA.to_json(), "settings": dict(head.settings)},
                }
            }
        ],
    }


def test_commit_writes_its_actions_and_what_makes_it_happen_once(ours: tuple[Path, LogCatalog, Scope]) -> None:
    root, catalog, scope = ours
    old, batch = append(catalog, scope), append_hot(catalog, scope)
    head = catalog.head(scope)
    added = extent(5, times=(None, 7), stats={"level": {"min": 1, "max": 2}}, level=1, coverage_key="_coverage/c.roar")
    flush = announce(
        catalog,
        commit_of(
            scope,
            DropHot(batch.id),
            RemoveExtent(old.id),
            AddExtent(added),
            UpdateCoverage(UnitedCoverage("_coverage/t.roar", 3)),
            RecordOffset("s", 7),
            base=head.sequence,
            key="k",
            operation="flush",
        ),
    )
    other = commit_of(scope, UpdateTable(settings={"retention": "1d"}), base=head.sequence, operation="set")
    receipt, _ = catalog.commit([flush, other], onto=head)
    document = entry_at(root, 4)
    settings = {**catalog.head(scope).settings}
    meta = document["actions"][2]["UpdateTableMeta"]
    assert document == {
        "tide": {
            "sum": document["tide"]["sum"],
            "format": 1,
            "id": receipt.snapshot_id,
            "table": None,
            "snapshot": {
                "sequence": 4,
                "parent": head.id,
                "operation": "flush+set",
                "schema": 1,
                "totals": [1, 5, 500, 0, 0, 0],
                "added": [1, 5, 500, 0, 0, 0],
                "removed": [1, 10, 1000, 1, 3, len(batch.payload)],
                "coverage": ["_coverage/t.roar", 3],
                "commits": [
                    {"id": flush.id, "key": "k", "rows": 5, "extents": 1, "offsets": [["s", 7]]},
                    {"id": other.id, "key": None, "rows": 0, "extents": 0, "offsets": []},
                ],
                "hot": [],
                "dropped": [batch.id],
            },
            "upkeep": None,
        },
        "version": 4,
        "base_version": 3,
        "timestamp": time_text(receipt.committed_us * 1000),
        "actions": [
            {"RemoveSegment": {"segment_id": f"seg-{old.id}"}},
            {
                "AddSegment": {
                    "segment_id": f"seg-{added.id}",
                    "path": added.key,
                    "format": "tlm",
                    "ts_min": "0001-01-01T00:00:00Z",
                    "ts_max": "1970-01-01T00:00:00.000000007Z",
                    "row_count": 5,
                    "file_size": 500,
                    "coverage_path": "_coverage/c.roar",
                    "tide": {
                        "blocks": 1,
                        "schema": 1,
                        "level": 1,
                        "stats": {"level": {"min": 1, "max": 2}},
                        "paths": ["http.status"],
                    },
                }
            },
            {"UpdateTableMeta": {**meta, "tide": {"schema": SCHEMA.to_json(), "settings": settings}}},
            {"UpdateTableCoverage": {"bucket_spec": {"Minutes": 15}, "coverage_path": "_coverage/t.roar"}},
        ],
    }
    assert settings["retention"] == "1d"
    assert entry_at(root, 3)["tide"]["snapshot"]["hot"] == [
        {
            "id": batch.id,
            "rows": 3,
            "payload": b64encode(batch.payload).decode(),
            "min_ts_ns": 5,
            "max_ts_ns": 6,
            "schema_version": 1,
            "added_seq": 0,
            "removed_seq": None,
        }
    ]


def test_original_reads_our_parquet_tables(tmp_path: Path) -> None:
    catalog = open_log_catalog(tmp_path / "t", create=True)
    schema = Schema.of({kind: kind for kind in ("timestamp", "int", "long", "real", "bool", "string", "dynamic")})
    schema = schema.widen([("vector", DataType("vector", 4))])
    scope = catalog.create_table("t", replace(schema, version=1), {"bucket": "2d", "entity": ["string"]}).scope
    kept = []
    for _ in range(25):  # past a checkpoint's tail
        own = replace(extent(), format="parquet")
        publish(catalog, scope, AddExtent(own))
        kept.append(own)
    publish(catalog, scope, RemoveExtent(kept.pop(0).id))
    catalog.release_pending([announce(catalog, commit_of(scope, AddExtent(extent()))).actions[0].extent.key])  # type: ignore[union-attr]
    original = read_original(tmp_path / "t")
    assert original.version == 28  # one of them upkeep
    assert [segment["path"] for segment in original.segments.values()] == [own.key for own in kept]
    assert original.meta["kind"]["TimeSeries"]["timestamp_column"] == "timestamp"
    types = [column["data_type"] for column in original.meta["logical_schema"]["columns"]]
    assert types == [
        {"Timestamp": {"unit": "Micros", "timezone": "UTC"}},
        "Int32",
        "Int64",
        "Float64",
        "Bool",
        "Utf8",
        "Binary",
        {"List": {"elements": {"name": "element", "data_type": "Float32", "nullable": False}}},
    ]
    with open_log_catalog(tmp_path / "t") as again:
        assert again.head(scope).schema == replace(schema, version=1)


def test_coverage_in_buckets_that_the_original_lacks_is_kept_from_it(tmp_path: Path) -> None:
    catalog = open_log_catalog(tmp_path / "t", create=True)
    scope = catalog.create_table("t", SCHEMA, {"time": "ts", "bucket": "250ms"}).scope
    publish(catalog, scope, UpdateCoverage(UnitedCoverage("c/1", 1)))
    assert catalog.head(scope).coverage == UnitedCoverage("c/1", 1)
    original = read_original(tmp_path / "t")
    assert original.coverage is None
    assert original.meta["kind"]["TimeSeries"]["bucket"] == {"Seconds": 1}
    with open_log_catalog(tmp_path / "t") as again:
        assert again.head(scope).settings == {"time": "ts", "bucket": "250ms"}
        assert again.head(scope).coverage == UnitedCoverage("c/1", 1)


def test_table_without_a_time_is_generic(tmp_path: Path) -> None:
    catalog = open_log_catalog(tmp_path / "t", create=True)
    catalog.create_table("t", Schema.of({"a": "long"}), {})
    assert read_original(tmp_path / "t").meta["kind"] == "Generic"
    with open_log_catalog(tmp_path / "t") as again:
        assert again.head(again.table("t").scope).settings == {}


# values


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("1s", {"Seconds": 1}),
        ("15m", {"Minutes": 15}),
        ("1h", {"Hours": 1}),
        ("7d", {"Days": 7}),
        ("4294967295d", {"Days": 4294967295}),
    ],
)
def test_bucket_has_one_name_here_and_there(text: str, stored: dict[str, int]) -> None:
    assert bucket_of(text) == stored
    assert bucket_text(stored) == text


@pytest.mark.parametrize("text", [" 2 Hours ", "2hr", "2HRS", "2hour", "2 h"])
def test_bucket_is_read_as_the_original_reads_it(text: str) -> None:
    assert bucket_of(text) == {"Hours": 2}


@pytest.mark.parametrize(
    "text", ["", "h", "2", "0h", "-1h", "4294967296s", "1w", "250ms", "1.5h", "1h2m", "٣h", None, 5]
)
def test_bucket_that_the_original_has_no_name_for_has_none(text: object) -> None:
    assert bucket_of(text) is None


@given(NANOS)
def test_time_is_the_same_after_text(ns: int) -> None:
    assert time_ns(time_text(ns), "t") == ns


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1969-12-31T23:59:59.999999999Z", -1),
        ("1970-01-01T01:30:00.5+01:30", 5 * 10**8),
        ("1969-12-31t23:00:00.000000001-01:00", 1),
        ("1970-01-01 00:00:60Z", 60 * 10**9),
        ("1677-09-21T00:12:43.145224192Z", -(2**63)),
        ("2262-04-11T23:47:16.854775807Z", 2**63 - 1),
    ],
)
def test_time_is_read_as_rfc_3339(text: str, ns: int) -> None:
    assert time_ns(text, "t") == ns


@pytest.mark.parametrize(
    "text", ["", "yesterday", "2024-01-01", "2024-01-01T00:00:00", "2024-13-01T00:00:00Z", "2262-04-11T23:47:16.9Z"]
)
def test_time_that_is_none_or_too_far_is_refused(text: str) -> None:
    with pytest.raises(CorruptError, match="time"):
        time_ns(text, "t")


@pytest.mark.parametrize("data_type", ["UInt64", {"Decimal": {"precision": 3, "scale": 1}}, {"Other": "x"}, "Nothing"])
def test_type_that_is_not_ours_names_its_column(prices: Path, data_type: Any) -> None:
    file = prices / "_timeseries_log/0000000002.json"
    document = json.loads(file.read_text())
    document["actions"][0]["UpdateTableMeta"]["logical_schema"]["columns"][3]["data_type"] = data_type
    file.write_text(json.dumps(document))
    with pytest.raises(SchemaError, match="a column has a type that is not ours column=volume") as error:
        open_log_catalog(prices)
    assert error.value.kind == "unsupported_type"


HOT = HotBatch("b", 3, b"\x00rows", None, 6, 1)
UNIT = WorkUnit("u", "compact", "k", {"a": [1]}, "leased", 1, 2, 5, 3, "me", 4, 5, 6, 7, None)
MARK = Mark(2, "p", "append", 1, Counts(1, 2, 3, 4, 5, 6), Counts(1), Counts(), UnitedCoverage("c", 2))
ENTRIES = {
    "create": Entry(1, "i", 5, (meta_of(SCHEMA, {"time": "ts"}, created_us=5),), MARK, table=Named("t", "n", "a")),
    "commit": Entry(
        7,
        "i",
        -5,
        (AddExtent(extent(times=(-(2**63), 2**63 - 1))), RemoveExtent("x"), Covered({"Hours": 1}, "c/k")),
        replace(
            MARK,
            commits=(Done("a", "k", 1, 2, (RecordOffset("s", 1), RecordOffset("s", 2))),),
            hot=(HOT,),
            dropped=("d",),
        ),
    ),
    "upkeep": Entry(
        9,
        "i",
        5,
        (RemoveExtent("0" * 32),),
        upkeep=Upkeep("all", 2, 3, 4, True, (Garbage("k", "t", 1, "expired"),), ("f",), (unit_to_json(UNIT),), ("u",)),
    ),
}


@pytest.mark.parametrize("name", ENTRIES)
def test_entry_is_the_same_after_bytes(name: str) -> None:
    entry = ENTRIES[name]
    assert decode(encode(entry), entry.version) == entry


def test_state_is_the_same_after_a_checkpoint(prices: Path) -> None:
    catalog = open_log_catalog(prices)
    scope = catalog.table("prices").scope
    append(catalog, scope, version=2)
    batch = append_hot(catalog, scope)
    append_hot(catalog, scope)
    publish(catalog, scope, DropHot(batch.id), RecordOffset("s", 1), key="k")
    catalog.work.enqueue("compact", "k", {"a": 1})
    announce(catalog, commit_of(scope, AddExtent(extent())))
    catalog.abandon_pending(before_us=2**60)
    state = catalog._journal.refresh()
    assert state is not None
    shape = to_json(state)
    again = from_json(unseal(seal({"format": 1, "state": shape}))["tide"]["state"])
    assert to_json(again) == shape
    assert again.head == state.head


# what is wrong


def changed(document: dict[str, Any], *fields: Any) -> dict[str, Any]:
    """Return a commit whose first action has other values."""
    meta = {**document["actions"][0]["UpdateTableMeta"], **dict(zip(fields[::2], fields[1::2], strict=True))}
    return {**document, "actions": [{"UpdateTableMeta": meta}]}


@pytest.mark.parametrize("name", ENTRIES)
def test_every_flipped_bit_of_an_entry_is_found(name: str) -> None:
    data = encode(ENTRIES[name])
    version = ENTRIES[name].version
    for at in range(len(data)):
        flipped = bytearray(data)
        flipped[at] ^= 1 << at % 8
        with pytest.raises(CorruptError, match=f"a commit file is damaged file=_timeseries_log/{version:010d}.json"):
            decode(bytes(flipped), version)


@pytest.mark.parametrize("name", ENTRIES)
def test_every_entry_of_ours_that_breaks_off_is_damage(name: str) -> None:
    data = encode(ENTRIES[name])
    head = len('{"tide":{"sum":"')
    for length in range(head, len(data)):
        with pytest.raises(CorruptError, match="the checksum does not fit"):
            decode(data[:length], ENTRIES[name].version)


def test_every_entry_of_others_that_breaks_off_is_unfinished() -> None:
    data = (GOLDEN / "_timeseries_log/0000000002.json").read_bytes().replace(b"NVDA", "NVDÄ".encode())
    for length in range(len(data)):
        with pytest.raises(Unfinished):
            decode(data[:length], 2)
    with pytest.raises(Unfinished):
        decode(b"\0" * 100, 2)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: {**d, "version": 9}, "it says version 9 on 1"),
        (lambda d: {**d, "base_version": 0}, "it says version 2 on 0"),
        (lambda d: {**d, "extra": 1}, "not the fields of a commit"),
        (lambda d: {**d, "tide": {}}, "not the fields of a commit"),
        (lambda d: [d], "not the fields of a commit"),
        (lambda d: {**d, "timestamp": "noon"}, "not a time"),
        (lambda d: {**d, "timestamp": 5}, "a field is missing or wrong"),
        (lambda d: {**d, "actions": [{"Explode": {}}]}, "no such action action=Explode"),
        (lambda d: {**d, "actions": [{"AddSegment": {}}]}, "a field is missing or wrong: KeyError"),
        (lambda d: {**d, "actions": [{"RemoveSegment": {"segment_id": 5}}]}, "a field is missing or wrong"),
        (lambda d: {**d, "actions": [{}]}, "a field is missing or wrong"),
        (lambda d: {**d, "actions": 5}, "a field is missing or wrong"),
        (lambda d: changed(d, "kind", "Generic", "logical_schema", None), "a table without columns"),
        (lambda d: changed(d, "kind", {"TimeSeries": {}}), "a field is missing or wrong"),
        (lambda d: changed(d, "kind", {"Graph": {}}), "a field is missing or wrong"),
        (lambda d: changed(d, "logical_schema", {"columns": [{"name": "a"}]}), "a field is missing or wrong"),
        (lambda d: changed(d, "logical_schema", {}), "a field is missing or wrong"),
        (lambda d: changed(d, "created_at", "2024"), "not a time"),
    ],
)
def test_commit_of_another_shape_is_damage(change: Callable[[Any], Any], said: str) -> None:
    document = json.loads((GOLDEN / "_timeseries_log/0000000002.json").read_text())
    with pytest.raises(CorruptError, match="a commit file is damaged") as error:
        decode(json.dumps(change(document)).encode(), 2)
    assert error.value.facts["file"] == "_timeseries_log/0000000002.json"
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("path", "../../etc/passwd", "not a key"),
        ("path", "/abs", "not a key"),
        ("path", 7, "a field is missing or wrong"),
        ("ts_min", "2025-01-01T00:00:00Z", "a time range ends before it begins"),
        ("row_count", -1, "an extent has a negative size"),
        ("row_count", None, "a field is missing or wrong"),
    ],
)
def test_segment_that_cannot_be_is_damage(field: str, value: object, said: str) -> None:
    document = json.loads((GOLDEN / "_timeseries_log/0000000002.json").read_text())
    document["actions"][1]["AddSegment"][field] = value
    with pytest.raises(CorruptError, match=said):
        decode(json.dumps(document).encode(), 2)


def test_newer_formats_are_refused_and_say_which() -> None:
    document = json.loads((GOLDEN / "_timeseries_log/0000000001.json").read_text())
    meta = document["actions"][0]["UpdateTableMeta"]
    meta["format_version"] = 6
    with pytest.raises(InvalidInputError, match="the table has a newer format format_version=6 reads=1"):
        decode(json.dumps(document).encode(), 1)
    del meta["format_version"]
    meta["protocol_version"] = 7
    with pytest.raises(InvalidInputError, match="the table has a newer format format_version=7 reads=1"):
        decode(json.dumps(document).encode(), 1)
    with pytest.raises(InvalidInputError, match="the log was written by a newer tidelake format=3 reads=2"):
        decode(seal({"format": 3}), 1)


def test_log_that_does_not_begin_with_a_table_is_damage() -> None:
    with pytest.raises(CorruptError, match="the log does not begin with a table"):
        start(Entry(1, "i", 5), "t")


def test_what_json_cannot_hold_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="cannot be kept as JSON"):
        seal({"format": 1, "stats": {"a": 2**70}})
    with pytest.raises(InvalidInputError, match="an extent's id cannot be kept in a log"):
        encode(replace(ENTRIES["commit"], changes=(AddExtent(replace(extent(), id=f"seg-{'0' * 32}")),)))


def test_settings_of_another_index_are_taken_over() -> None:
    meta = Meta(entry_at(GOLDEN, 2)["actions"][0]["UpdateTableMeta"])
    schema = schema_of(meta, None)
    held = {"time": "other", "bucket": "1d", "coverage": "track", "retention": "1d"}
    assert settings_of(meta, schema, held) == {
        "time": "ts",
        "bucket": "1h",
        "coverage": "track",
        "retention": "1d",
        "entity": ["symbol"],
        "timezone": "America/New_York",
        "entity_identity": {"symbol": "NVDA"},
    }
