"""Read extents that others wrote and that we once wrote, and have a stranger read what we write."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.golden.make import FILES, FOLDER, TIDE_SCHEMA, as_json, tide_rows
from tests.support import foreign, stranger_v3
from tests.support.rows import EXTENT_ID, KEY, Row, batch_of, by_time, exact, rows_of, write
from tidelake.dynamic.values import encode
from tidelake.format import ExtentReader, WriteOptions, format_of_object, segment_format
from tidelake.model.predicate import (
    And,
    Equals,
    InSet,
    IsNull,
    Not,
    Predicate,
    Range,
    StartsWith,
    StringContains,
    TimeRange,
)
from tidelake.model.schema import Schema
from tidelake.objects import ObjectStore

GOLDEN = sorted(FOLDER.glob("*.tlm"))
NOON_NS = 1_776_679_200_000_000_000
SECOND_NS = 1_000_000_000


def opened(store: ObjectStore, data: bytes) -> ExtentReader:
    store.put(KEY, data)
    return format_of_object(store, KEY).open_extent(store, KEY)


def blocks_of(reader: ExtentReader) -> list[list[Row]]:
    return [rows_of(reader.read_block(block)) for block in range(len(reader.metadata().blocks))]


def read_as_a_stranger(data: bytes) -> tuple[list[dict[str, Any]], list[pa.RecordBatch]]:
    """Read version 2 with what the specification says and nothing of ours."""
    head, tail = data[:5], data[-5:]
    assert (head, tail) == (b"KYMA\x02", b"KYMA\x02")
    (length,) = struct.unpack("<I", data[-9:-5])
    stats_json, body = data[-9 - length : -9], data[5 : -9 - length]
    assert (body[:8], body[-6:]) == (b"ARROW1\0\0", b"ARROW1")
    file = pa.ipc.open_file(body)
    batches = [file.get_batch(number) for number in range(file.num_record_batches)]
    for batch in batches:
        batch.validate(full=True)
    stats = json.loads(stats_json)
    assert [entry["row_count"] for entry in stats] == [batch.num_rows for batch in batches]
    return stats, batches


def bounds_of(batch: pa.RecordBatch) -> dict[str, Any]:
    """Return the bounds that the specification asks for, with our times as the nanoseconds it knows."""
    times = batch.column("ts").view(pa.int64())
    in_ns = pa.array([None if us is None else us * 1000 for us in times.to_pylist()], pa.timestamp("ns"))
    return foreign.column_bounds(batch.set_column(0, "ts", in_ns))


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_golden_extent_gives_its_rows(memory_store: ObjectStore, path: Path) -> None:
    reader = opened(memory_store, path.read_bytes())
    assert as_json(blocks_of(reader)) == json.loads(path.with_suffix(".json").read_text())


def test_golden_extents_are_all_there() -> None:
    assert [path.stem for path in GOLDEN] == sorted(FILES)


@pytest.mark.parametrize("name", ["kyma_v1", "kyma_v2"])
def test_foreign_extent_tells_its_schema_in_our_types(memory_store: ObjectStore, name: str) -> None:
    metadata = opened(memory_store, (FOLDER / f"{name}.tlm").read_bytes()).metadata()
    assert (metadata.format, metadata.version, metadata.extent_id, metadata.checksummed, metadata.row_count) == (
        "tlm",
        int(name[-1]),
        None,
        False,
        7,
    )
    assert [str(column) for column in metadata.schema] == [
        "timestamp: timestamp",
        "n: int",
        "long: long",
        "real: real",
        "ok: bool",
        "msg: string",
        "Ärger: string",
        "attributes: dynamic",
        "embedding: vector(2)",
    ]


@pytest.mark.parametrize("name", ["kyma_v1", "kyma_v2"])
def test_foreign_extent_gives_any_columns_in_our_types(memory_store: ObjectStore, name: str) -> None:
    reader = opened(memory_store, (FOLDER / f"{name}.tlm").read_bytes())
    batch = reader.read_block(1, ["Ärger", "timestamp"])
    assert batch.schema == pa.schema([("Ärger", pa.utf8()), ("timestamp", pa.timestamp("us", tz="UTC"))])
    assert rows_of(batch) == [{"Ärger": None, "timestamp": us} for us in (-1, -2, None)]


@pytest.mark.parametrize(
    ("predicate", "blocks"),
    [
        (TimeRange("timestamp", NOON_NS, NOON_NS + 1), [0, 2]),
        (TimeRange("timestamp", NOON_NS + SECOND_NS, None), [0, 2]),
        (TimeRange("timestamp", NOON_NS + SECOND_NS + 1, None), [2]),  # its 999 ns are not kept
        (TimeRange("timestamp", -1000, 0), [1, 2]),
        (TimeRange("timestamp", -999, 0), [2]),
        (Equals("n", 2), [0, 1, 2]),
        (Equals("n", 8), [2]),
        (Equals("long", 5), [0, 1, 2]),
        (Equals("long", 4), [0, 1]),
        (InSet("msg", ("0", "~")), [1, 2]),
        (Range("msg", "H", "y", include_high=True), [0, 1, 2]),
        (StartsWith("msg", "zz", case_sensitive=True), [1, 2]),
        (StartsWith("msg", "GET", case_sensitive=True), [0, 1, 2]),
        (Equals("Ärger", "d"), [1, 2]),
        (Equals("Ärger", "ü"), [1]),
        (Equals("ok", True), [0, 1, 2]),  # no bounds are kept of it
        (IsNull("n"), [1]),
        (IsNull("long"), [1]),
        (Not(Range("long", 5, 5)), [0, 1]),
        (StringContains("msg", "ok"), [0, 1, 2]),
        (And((Equals("n", 2), TimeRange("timestamp", 0, None))), [0, 2]),
    ],
)
def test_foreign_v2_prunes_by_its_bounds_and_v1_keeps_all(
    memory_store: ObjectStore, predicate: Predicate, blocks: list[int]
) -> None:
    v2 = opened(memory_store, (FOLDER / "kyma_v2.tlm").read_bytes())
    v1 = opened(memory_store, (FOLDER / "kyma_v1.tlm").read_bytes())
    assert (v2.pruned_blocks(predicate), v1.pruned_blocks(predicate)) == (blocks, [0, 1, 2])
    assert (v2.pruned_blocks(None), v1.pruned_blocks(None)) == ([0, 1, 2, 3], [0, 1, 2, 3])  # the last has no rows


def test_foreign_v2_bytes_are_the_specified_ones() -> None:
    data = (FOLDER / "kyma_v2.tlm").read_bytes()
    assert data[:13] == bytes.fromhex("4b594d4102 4152524f57310000")
    assert data[-5:] == bytes.fromhex("4b594d4102")
    two = pa.RecordBatch.from_pydict(
        {
            "timestamp": pa.array([NOON_NS, NOON_NS + SECOND_NS], pa.timestamp("ns")),
            "n": pa.array([1, 2], pa.int32()),
            "msg": ["GET /ok", "z"],
        }
    )
    assert foreign.stats_json([two, two.slice(0, 0)]) == (
        b'[{"row_count":2,"cols":{"msg":{"k":"str","min":"GET /ok","max":"z","nulls":0},'
        b'"n":{"k":"i64","min":1,"max":2,"nulls":0},'
        b'"timestamp":{"k":"ts","min":1776679200000000000,"max":1776679201000000000,"nulls":0}}},'
        b'{"row_count":0,"cols":{}}]'
    )


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_foreign_extent_may_be_compressed(memory_store: ObjectStore, compression: str) -> None:
    reader = opened(memory_store, foreign.frame_v2(foreign.sample_batches(), compression))
    assert as_json(blocks_of(reader)) == json.loads((FOLDER / "kyma_v2.json").read_text())


@pytest.mark.parametrize(("unit", "factor"), [("s", 1_000_000), ("ms", 1_000), ("us", 1)])
def test_foreign_times_of_any_unit_become_microseconds(memory_store: ObjectStore, unit: str, factor: int) -> None:
    times = pa.array([-1, None, 1_776_679_200], pa.timestamp(unit, tz="Europe/Berlin"))
    reader = opened(memory_store, foreign.frame_v1([pa.RecordBatch.from_pydict({"t": times})]))
    assert rows_of(reader.read_block(0)) == [{"t": -factor}, {"t": None}, {"t": 1_776_679_200 * factor}]


@pytest.mark.parametrize("compression", ["zstd", "lz4", None])
def test_stranger_reads_what_we_write(memory_store: ObjectStore, compression: str | None) -> None:
    options = WriteOptions(block_rows=5, compression=compression)
    write(memory_store, segment_format("tlm"), TIDE_SCHEMA, [batch_of(tide_rows(), TIDE_SCHEMA)], options=options)
    _, batches = read_as_a_stranger(bytes(memory_store.get(KEY)))
    rows = [row for batch in batches for row in rows_of(batch)]
    assert exact(rows) == exact(by_time(tide_rows(), "ts"))
    assert [batch.schema for batch in batches] == [TIDE_SCHEMA.arrow] * 3


def test_stranger_finds_the_bounds_that_it_knows_in_our_footer(memory_store: ObjectStore) -> None:
    options = WriteOptions(block_rows=5)
    write(memory_store, segment_format("tlm"), TIDE_SCHEMA, [batch_of(tide_rows(), TIDE_SCHEMA)], options=options)
    stats, batches = read_as_a_stranger(bytes(memory_store.get(KEY)))
    plain = [{"row_count": entry["row_count"], "cols": entry["cols"]} for entry in stats]
    wanted = [{"row_count": batch.num_rows, "cols": bounds_of(batch)} for batch in batches]
    assert json.dumps(plain) == json.dumps(wanted)  # as text, because the order of keys is specified too
    assert [list(entry)[:2] for entry in stats] == [["row_count", "cols"]] * 3


def test_our_golden_extent_still_says_all_it_said(memory_store: ObjectStore) -> None:
    data = (FOLDER / "tide_v2.tlm").read_bytes()
    metadata = opened(memory_store, data).metadata()
    assert (metadata.version, metadata.extent_id, metadata.schema, metadata.checksummed, metadata.byte_size) == (
        2,
        EXTENT_ID,
        TIDE_SCHEMA,
        True,
        len(data),
    )
    assert [block.stats.rows for block in metadata.blocks] == [5, 5, 2]


@pytest.mark.parametrize(
    ("predicate", "blocks"),
    [
        (TimeRange("ts", 0, 1), [0]),
        (Equals("service", "billing timeout"), [0, 1]),
        (StringContains("service", "ofmem"), [1, 2]),
        (Range("real", float("inf")), [0, 1, 2]),
        (IsNull("ts"), [2]),
        (Equals("long", 2**63 - 1), [0]),
    ],
)
def test_our_golden_extent_still_prunes(memory_store: ObjectStore, predicate: Predicate, blocks: list[int]) -> None:
    assert opened(memory_store, (FOLDER / "tide_v2.tlm").read_bytes()).pruned_blocks(predicate) == blocks


@pytest.mark.parametrize("name", [name for name in FILES if name.startswith("tide_v3")])
@pytest.mark.parametrize("source", ["golden", "today"])
def test_a_stranger_reads_the_third_body_by_its_specification(source: str, name: str) -> None:
    make_extent, make_rows = FILES[name]
    data = (FOLDER / f"{name}.tlm").read_bytes() if source == "golden" else make_extent()
    footer, blocks = stranger_v3.read_extent(data)
    assert [entry["row_count"] for entry in footer] == list(map(len, make_rows()))
    rows = [[dict(zip(block, row, strict=True)) for row in zip(*block.values(), strict=True)] for block in blocks]
    assert as_json(rows) == as_json(make_rows())


def test_a_stranger_reads_real_looking_events(memory_store: ObjectStore) -> None:
    events = [
        encode({"id": n, "level": ["INFO", "WARN"][n % 2], "took": n / 8, "tags": [n], "user": {"name": f"u{n % 9}"}}
               | ({"rare": n} if n == 777 else {}))
        for n in range(2_000)
    ]  # fmt: skip
    schema = Schema.of({"event": "dynamic"})
    write(memory_store, segment_format("tlm3"), schema, [batch_of([{"event": each} for each in events], schema)])
    _, (block,) = stranger_v3.read_extent(bytes(memory_store.get(KEY)))
    assert block["event"] == events
