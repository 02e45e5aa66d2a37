"""Test extents that are Parquet files: ours, other writers', and damaged ones."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.faulty import Fault, FaultyStore
from tidelake.errors import CorruptExtent, InvalidInputError, NotFoundError, SchemaError, StorageError
from tidelake.format import FORMATS, ExtentReader, WriteOptions, format_of_object, segment_format
from tidelake.format.segment import checksum_of
from tidelake.model.predicate import (
    And,
    Equals,
    InSet,
    IsNull,
    Not,
    Or,
    Predicate,
    Range,
    StartsWith,
    StringContains,
    StringHas,
    TimeRange,
)
from tidelake.model.schema import Schema
from tidelake.objects import ObjectStore, open_store
from tidelake.pruning.statistics import ColumnStats

KEY = "data/e.parquet"
PARQUET = segment_format("parquet")
SCHEMA = Schema.of(
    {
        "ts": "timestamp",
        "i": "int",
        "l": "long",
        "r": "real",
        "b": "bool",
        "s": "string",
        "d": "dynamic",
        "v": "vector(3)",
    }
)
ROWS, BLOCK_ROWS = 300, 64
FRAME_TAIL = 8  # the length of the footer, and the magic


def random_batch(seed: int, rows: int = ROWS, null_share: float = 0.2) -> pa.RecordBatch:
    """Make rows of all eight types, in the order of their times."""
    chance = random.Random(seed)
    makers: dict[str, Callable[[int], Any]] = {
        "ts": lambda at: 1_700_000_000_000_000 + at * 1_000_000,
        "i": lambda _: chance.randrange(-(2**31), 2**31),
        "l": lambda at: at * 1_000_003 - 2**40,
        "r": lambda _: chance.choice([chance.uniform(-1e9, 1e9), math.inf, -0.0]),
        "b": lambda _: chance.random() < 0.5,
        "s": lambda at: chance.choice(["", "naïve ☃", f"user-{at} logged in", "error: disk full"]),
        "d": lambda at: b"\xa1ak" + bytes([at % 24]),
        "v": lambda _: [chance.uniform(-1, 1) for _ in range(3)],
    }
    columns = [
        pa.array(
            [None if name != "ts" and chance.random() < null_share else make(at) for at in range(rows)],
            SCHEMA[name].type.arrow,
        )
        for name, make in makers.items()
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA.arrow)


def write(
    store: ObjectStore, *batches: pa.RecordBatch, schema: Schema = SCHEMA, options: WriteOptions | None = None
) -> ExtentReader:
    writer = PARQUET.start_extent(
        store, KEY, schema, extent_id="e-1", options=options or WriteOptions(block_rows=BLOCK_ROWS)
    )
    for batch in batches:
        writer.append(batch)
    writer.finish()
    return PARQUET.open_extent(store, KEY)


def write_foreign(store: ObjectStore, table: pa.Table, **options: Any) -> ExtentReader:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    store.put(KEY, sink.getvalue())
    return PARQUET.open_extent(store, KEY)


def read_all(reader: ExtentReader, projection: Sequence[str] | None = None) -> pa.Table:
    table = pa.Table.from_batches([reader.read_block(at, projection) for at in range(len(reader.metadata().blocks))])
    table.validate(full=True)
    return table


def column_of(reader: ExtentReader, name: str) -> list[Any]:
    values: list[Any] = read_all(reader, [name]).column(name).to_pylist()
    return values


def bounds_of(reader: ExtentReader, block: int = 0) -> dict[str, tuple[Any, Any, Any]]:
    columns: Mapping[str, ColumnStats] = reader.metadata().blocks[block].stats.columns
    return {name: (known.nulls, known.low, known.high) for name, known in columns.items()}


def footer_start(data: bytes) -> int:
    return len(data) - FRAME_TAIL - int(struct.unpack_from("<I", data, len(data) - FRAME_TAIL)[0])


def with_footer(data: bytes, footer: bytes) -> bytes:
    return data[: footer_start(data)] + footer + struct.pack("<I", len(footer)) + b"PAR1"


@pytest.mark.parametrize("compression", ["zstd", "lz4", None])
@pytest.mark.parametrize("sort", [True, False])
def test_rows_come_back_identical(memory_store: ObjectStore, compression: str | None, sort: bool) -> None:
    batch = random_batch(1)
    options = WriteOptions(block_rows=BLOCK_ROWS, compression=compression, sort=sort)
    reader = write(memory_store, batch.slice(0, 130), batch.slice(130), options=options)
    read = read_all(reader)
    assert read.schema.equals(SCHEMA.arrow)
    assert read.equals(pa.Table.from_batches([batch]))


def test_rows_are_sorted_by_time_and_told_in_the_result(memory_store: ObjectStore) -> None:
    batch = random_batch(2)
    order = list(range(ROWS))
    random.Random(3).shuffle(order)
    writer = PARQUET.start_extent(
        memory_store, KEY, SCHEMA, extent_id="e-1", options=WriteOptions(block_rows=BLOCK_ROWS)
    )
    writer.append(batch.take(pa.array(order)))
    result = writer.finish()
    reader = PARQUET.open_extent(memory_store, KEY)
    metadata = reader.metadata()
    assert read_all(reader).equals(pa.Table.from_batches([batch]))
    assert (result.row_count, result.block_count, result.byte_size) == (300, 5, memory_store.head(KEY).size)
    assert (result.min_timestamp_nanos, result.max_timestamp_nanos) == (
        1_700_000_000 * 10**9,
        1_700_000_299 * 10**9,
    )
    assert (metadata.format, metadata.version, metadata.extent_id, metadata.schema) == ("parquet", 2, "e-1", SCHEMA)
    assert (metadata.row_count, metadata.byte_size, metadata.checksummed) == (300, result.byte_size, True)
    assert [block.stats.rows for block in metadata.blocks] == [64, 64, 64, 64, 44]


def test_extreme_values_come_back(memory_store: ObjectStore) -> None:
    columns: dict[str, list[Any]] = {
        "ts": [-(2**63), 2**63 - 1, None, 0],
        "i": [-(2**31), 2**31 - 1, None, 0],
        "l": [-(2**63), 2**63 - 1, None, 0],
        "r": [math.nan, -math.inf, None, -0.0],
        "b": [True, False, None, True],
        "s": ["", "\0\U0010ffff", None, "x" * 5000],
        "d": [b"", b"\xff" * 5000, None, b"\0"],
        "v": [[math.nan, 0.0, -0.0], [0.0] * 3, None, [1e-45, 1e18, 1.0]],
    }
    arrays = [pa.array(columns[column.name], column.type.arrow) for column in SCHEMA]
    batch = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA.arrow)
    read = read_all(write(memory_store, batch, options=WriteOptions(sort=False)))
    assert repr(read.drop(["ts"]).to_pylist()) == repr(pa.Table.from_batches([batch]).drop(["ts"]).to_pylist())
    assert read.column("ts").cast(pa.int64()).to_pylist() == columns["ts"]


def test_columns_without_a_value_come_back(memory_store: ObjectStore) -> None:
    batch = random_batch(4, null_share=1.0)
    assert read_all(write(memory_store, batch)).equals(pa.Table.from_batches([batch]))


def test_columns_that_cannot_be_null_come_back(memory_store: ObjectStore) -> None:
    schema = Schema.from_arrow(pa.schema([pa.field(field.name, field.type, nullable=False) for field in SCHEMA.arrow]))
    batch = pa.RecordBatch.from_arrays(random_batch(5, null_share=0.0).columns, schema=schema.arrow)
    assert read_all(write(memory_store, batch, schema=schema)).equals(pa.Table.from_batches([batch]))


def test_any_columns_of_any_block_are_read_in_the_order_asked(memory_store: ObjectStore) -> None:
    batch = random_batch(6)
    reader = write(memory_store, batch)
    chance = random.Random(7)
    for _ in range(60):
        block = chance.randrange(5)
        names = chance.sample(SCHEMA.names, chance.randint(1, len(SCHEMA)))
        assert reader.read_block(block, names).equals(batch.slice(block * BLOCK_ROWS, BLOCK_ROWS).select(names))
    assert reader.read_block(4, []).num_rows == 44
    assert reader.read_block(4, []).num_columns == 0
    assert reader.read_block(0, ["s", "s"]).column_names == ["s", "s"]


def test_names_that_look_like_paths_or_like_a_seal_stay_names(memory_store: ObjectStore) -> None:
    names = ["http", "http.status", 'x,"sum":"0123456789abcdef"}]', "tidelake", "☃"]
    schema = Schema.of(dict.fromkeys(names, "string"))
    texts = [[f'{name},"sum":"0123456789abcdef"}}]'] for name in names]
    batch = pa.RecordBatch.from_arrays([pa.array(text) for text in texts], schema=schema.arrow)
    reader = write(memory_store, batch, schema=schema)
    assert [reader.read_block(0, [name]).to_pydict() for name in names] == [
        {name: text} for name, text in zip(names, texts, strict=True)
    ]


def test_statistics_are_those_of_tlm(memory_store: ObjectStore) -> None:
    batch = random_batch(8)
    reader = write(memory_store, batch)
    writer = segment_format("tlm").start_extent(
        memory_store, "data/e.tlm", SCHEMA, extent_id="e-1", options=WriteOptions(block_rows=BLOCK_ROWS)
    )
    writer.append(batch)
    writer.finish()
    sibling = segment_format("tlm").open_extent(memory_store, "data/e.tlm")
    for ours, theirs in zip(reader.metadata().blocks, sibling.metadata().blocks, strict=True):
        assert {name: ours.stats.columns[name] for name in SCHEMA.names} == dict(theirs.stats.columns)


def test_one_column_of_one_block_reads_a_small_share(memory_store: ObjectStore) -> None:
    batch = random_batch(9, rows=20_000)
    write(memory_store, batch, options=WriteOptions(block_rows=2_000))
    store = FaultyStore(memory_store)
    reader = PARQUET.open_extent(store, KEY)
    store.clear()
    read = reader.read_block(3, ["l"])
    assert read.equals(batch.slice(6_000, 2_000).select(["l"]))
    assert store.calls == {"get_ranges": 1}
    assert store.bytes_read == reader.metadata().blocks[3].pieces["l"].length
    assert store.bytes_read < reader.metadata().byte_size / 40
    store.clear()
    assert reader.read_block(3, []).num_rows == 2_000
    assert store.bytes_read == 0


def test_opening_takes_one_request_and_two_for_a_large_footer(memory_store: ObjectStore) -> None:
    batch = random_batch(10)
    store = FaultyStore(memory_store)
    assert write(memory_store, batch).metadata().footer_bytes < 60_000
    PARQUET.open_extent(store, KEY)
    assert store.calls == {"get_tail": 1}
    assert write(memory_store, batch, options=WriteOptions(block_rows=4)).metadata().footer_bytes > 70_000
    store.clear()
    assert read_all(PARQUET.open_extent(store, KEY)).equals(pa.Table.from_batches([batch]))
    assert (store.calls["get_tail"], store.calls["get_range"]) == (1, 1)


def at_second(second: int) -> int:
    return (1_700_000_000 + second) * 10**9


PRUNING_CASES: list[tuple[Predicate, Callable[[dict[str, Any]], Any], int]] = [
    (TimeRange("ts", at_second(64), at_second(128)), lambda row: 64 <= row["at"] < 128, 1),
    (TimeRange("ts", at_second(-9), at_second(0)), lambda row: False, 0),
    (Equals("l", 70 * 1_000_003 - 2**40), lambda row: row["l"] == 70 * 1_000_003 - 2**40, 1),
    (InSet("l", (-(2**40), 299 * 1_000_003 - 2**40)), lambda row: row["at"] in (0, 299) and row["l"] is not None, 2),
    (Range("l", low=250 * 1_000_003 - 2**40), lambda row: row["l"] is not None and row["at"] >= 250, 2),
    (Not(Range("l", low=64 * 1_000_003 - 2**40)), lambda row: row["l"] is not None and row["at"] < 64, 1),
    (StringHas("s", "131"), lambda row: "user-131 " in (row["s"] or ""), 1),
    (StartsWith("s", "user-299"), lambda row: (row["s"] or "").startswith("user-299"), 1),
    (StringContains("s", "no such text"), lambda row: False, 0),
    (IsNull("ts"), lambda row: False, 0),
    (And((Equals("b", True), TimeRange("ts", None, at_second(10)))), lambda row: row["b"] and row["at"] < 10, 1),
    (
        Or((TimeRange("ts", at_second(295), None), TimeRange("ts", None, at_second(2)))),
        lambda row: row["at"] < 2 or row["at"] >= 295,
        2,
    ),
]


@pytest.mark.parametrize(
    ("predicate", "holds", "most_blocks"), PRUNING_CASES, ids=[str(predicate)[:60] for predicate, _, _ in PRUNING_CASES]
)
def test_pruning_keeps_every_matching_row(
    memory_store: ObjectStore, predicate: Predicate, holds: Callable[[dict[str, Any]], Any], most_blocks: int
) -> None:
    batch = random_batch(11)
    reader = write(memory_store, batch)
    matching = {at // BLOCK_ROWS for at, row in enumerate(batch.to_pylist()) if holds({**row, "at": at})}
    kept = reader.pruned_blocks(predicate)
    assert matching <= set(kept)
    assert len(kept) <= most_blocks
    assert reader.pruned_blocks(None) == [0, 1, 2, 3, 4]


def test_a_plain_parquet_reader_reads_it(memory_store: ObjectStore) -> None:
    batch = random_batch(12)
    write(memory_store, batch)
    data = memory_store.get(KEY)
    file = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
    assert file.read().equals(pa.Table.from_batches([batch]))
    assert [file.metadata.row_group(at).num_rows for at in range(file.num_row_groups)] == [64, 64, 64, 64, 44]
    assert file.metadata.num_rows == ROWS
    assert pq.read_table(pa.BufferReader(data), columns=["s"]).column("s").equals(file.read(["s"]).column("s"))
    times = pq.read_table(pa.BufferReader(data), filters=[("l", "<", 5 * 1_000_003 - 2**40)])
    assert times.num_rows == sum(value is not None for value in batch.column("l").slice(0, 5).to_pylist())


def test_duckdb_reads_it(local_store: ObjectStore, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    batch = random_batch(13)
    write(local_store, batch)
    found = duckdb.sql(f"select count(*), sum(l), min(s) from '{tmp_path / 'lake' / KEY}'").fetchall()[0]
    longs = [value for value in batch.column("l").to_pylist() if value is not None]
    assert found == (ROWS, sum(longs), "")


def test_polars_reads_it(local_store: ObjectStore, tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    batch = random_batch(14)
    write(local_store, batch)
    found = polars.read_parquet(tmp_path / "lake" / KEY, columns=["l", "s"])
    assert found.rows() == list(zip(batch.column("l").to_pylist(), batch.column("s").to_pylist(), strict=True))


def foreign_table() -> pa.Table:
    rows = 30
    return pa.table(
        {
            "i8": pa.array([at - 15 for at in range(rows)], pa.int8()),
            "u16": pa.array(range(rows), pa.uint16()),
            "u32": pa.array([2**32 - 1 - at for at in range(rows)], pa.uint32()),
            "f32": pa.array([math.nan if at % 7 == 3 else at / 2 for at in range(rows)], pa.float32()),
            "text": pa.array([f"s{at:03}" for at in range(rows)], pa.large_string()),
            "long_text": pa.array(["x" * 70] * rows, pa.string_view()),
            "word": pa.array(["a", "b", None] * (rows // 3)).dictionary_encode(),
            "bytes": pa.array([b"\xff"] * rows, pa.large_binary()),
            "ns": pa.array([at * 700 - 1500 for at in range(rows)], pa.timestamp("ns")),
            "ms": pa.array(range(rows), pa.timestamp("ms", "Europe/Paris")),
            "vector": pa.array([[1.0, 2.0]] * (rows - 1) + [None], pa.list_(pa.float32(), 2)),
            "flag": pa.array([True] * rows),
        }
    )


@pytest.mark.parametrize("data_page_version", ["1.0", "2.0"])
def test_a_file_from_elsewhere_is_read_as_our_types(memory_store: ObjectStore, data_page_version: str) -> None:
    table = foreign_table()
    reader = write_foreign(memory_store, table, row_group_size=10, data_page_version=data_page_version)
    metadata = reader.metadata()
    assert (metadata.extent_id, metadata.checksummed, metadata.row_count) == (None, False, 30)
    assert {column.name: str(column.type) for column in metadata.schema} == {
        "i8": "int",
        "u16": "int",
        "u32": "long",
        "f32": "real",
        "text": "string",
        "long_text": "string",
        "word": "string",
        "bytes": "dynamic",
        "ns": "timestamp",
        "ms": "timestamp",
        "vector": "vector(2)",
        "flag": "bool",
    }
    read = read_all(reader)
    assert read.schema.equals(metadata.schema.arrow)
    for name in ("i8", "u16", "u32", "text", "long_text", "word", "bytes", "vector", "flag"):
        assert read.column(name).to_pylist() == table.column(name).to_pylist(), name
    assert repr(read.column("f32").to_pylist()) == repr(table.column("f32").to_pylist())
    assert read.column("ns").cast(pa.int64()).to_pylist() == [(at * 700 - 1500) // 1000 for at in range(30)]
    assert read.column("ms").cast(pa.int64()).to_pylist() == [at * 1000 for at in range(30)]


def test_statistics_from_elsewhere_are_believed_only_where_they_cannot_mislead(memory_store: ObjectStore) -> None:
    reader = write_foreign(memory_store, foreign_table(), row_group_size=10)
    assert bounds_of(reader) == {
        "i8": (0, -15, -6),
        "u16": (0, 0, 9),
        "u32": (0, None, None),
        "f32": (0, 0.0, None),
        "text": (0, "s000", "s009"),
        "long_text": (0, "x" * 70, "x" * 70),
        "word": (3, "a", "b"),
        "bytes": (0, None, None),
        "ns": (0, -2000, 4000),
        "ms": (0, 0, 9_000_000),
        "vector": (None, None, None),
        "flag": (0, True, True),
    }
    assert reader.pruned_blocks(Equals("text", "s015")) == [1]
    assert reader.pruned_blocks(Range("f32", low=1000.0)) == [0, 1, 2]
    assert reader.pruned_blocks(Range("f32", high=4.0)) == [0]
    assert reader.pruned_blocks(TimeRange("ms", 20_000_000, None)) == [2]
    assert reader.pruned_blocks(TimeRange("ns", 4000, 5000)) == [0]


def test_statistics_from_elsewhere_may_be_missing(memory_store: ObjectStore) -> None:
    reader = write_foreign(memory_store, foreign_table(), row_group_size=10, write_statistics=False)
    assert set(bounds_of(reader).values()) == {(None, None, None)}
    assert reader.pruned_blocks(Equals("text", "nowhere")) == [0, 1, 2]


def test_times_of_96_bits_keep_their_range(memory_store: ObjectStore) -> None:
    times = [datetime(9999, 1, 1), datetime(1, 1, 1), None]
    table = pa.table({"t": pa.array(times, pa.timestamp("us"))})
    reader = write_foreign(memory_store, table, use_deprecated_int96_timestamps=True)
    assert [value and value.replace(tzinfo=None) for value in column_of(reader, "t")] == times
    assert bounds_of(reader)["t"][1:] == (None, None)


def test_times_beyond_nanoseconds_have_no_bounds(memory_store: ObjectStore) -> None:
    table = pa.table({"t": pa.array([2**60, 2**61], pa.timestamp("us")), "n": pa.array([0, 2**62], pa.timestamp("ms"))})
    reader = write_foreign(memory_store, table)
    assert bounds_of(reader) == {"t": (0, None, None), "n": (0, 0, None)}
    assert read_all(reader, ["t"]).column("t").cast(pa.int64()).to_pylist() == [2**60, 2**61]
    with pytest.raises(CorruptExtent, match="column=n reason=a time is outside the range of microseconds"):
        reader.read_block(0, ["n"])


def test_an_empty_file_from_elsewhere_has_no_rows(memory_store: ObjectStore) -> None:
    reader = write_foreign(memory_store, foreign_table().slice(0, 0))
    assert reader.metadata().row_count == 0
    assert read_all(reader).num_rows == 0
    assert reader.pruned_blocks(IsNull("text")) == []


@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.uint64(), pa.date32(), pa.struct({"a": pa.int64()})])
def test_an_unsupported_type_from_elsewhere_is_a_schema_error(memory_store: ObjectStore, kind: pa.DataType) -> None:
    with pytest.raises(SchemaError, match=f"object={KEY} column=odd") as caught:
        write_foreign(memory_store, pa.table({"odd": pa.array([None], kind)}))
    assert caught.value.kind == "unsupported_type"


def test_a_vector_with_a_null_component_is_refused(memory_store: ObjectStore) -> None:
    table = pa.table({"v": pa.array([[1.0, None]], pa.list_(pa.float32(), 2))})
    with pytest.raises(CorruptExtent, match="block=0 column=v reason=a vector has a null component"):
        write_foreign(memory_store, table).read_block(0)


def test_page_checksums_from_elsewhere_are_verified(memory_store: ObjectStore) -> None:
    table = pa.table({"n": pa.array(range(1000))})
    options: dict[str, Any] = {"compression": "none", "use_dictionary": False}
    reader = write_foreign(memory_store, table, write_page_checksum=True, **options)
    piece = reader.metadata().blocks[0].pieces["n"]
    data = bytearray(memory_store.get(KEY))
    data[piece.offset + piece.length - 5] ^= 1
    memory_store.put(KEY, bytes(data))
    with pytest.raises(CorruptExtent, match=f"object={KEY} block=0 column=n reason=.*CRC"):
        PARQUET.open_extent(memory_store, KEY).read_block(0)


def test_a_text_from_elsewhere_that_is_not_utf8_is_refused(memory_store: ObjectStore) -> None:
    table = pa.table({"s": pa.array(["abcdefgh", "z"])})
    write_foreign(memory_store, table, compression="none", write_statistics=False)
    memory_store.put(KEY, bytes(memory_store.get(KEY)).replace(b"abcdefgh", b"abcd\xff\xff\xff\xff"))
    with pytest.raises(CorruptExtent, match=r"block=0 column=s reason=.*UTF8"):
        PARQUET.open_extent(memory_store, KEY).read_block(0)


def test_statistics_of_a_wrong_length_do_not_end_the_process(memory_store: ObjectStore) -> None:
    write_foreign(memory_store, pa.table({"b": pa.array([True, False])}))
    data = bytes(memory_store.get(KEY))
    footer = data[footer_start(data) : -FRAME_TAIL]
    for head in (b"\x18", b"\x28"):  # of the older field for the high bound, and of the newer one
        bounds, no_bounds = head + b"\x01\x01\x18\x01\x00", head + b"\x00\x18\x00"
        assert footer.count(bounds) == 1
        footer = footer.replace(bounds, no_bounds)
    memory_store.put(KEY, with_footer(data, footer))
    reader = PARQUET.open_extent(memory_store, KEY)
    assert bounds_of(reader) == {"b": (0, None, None)}
    with pytest.raises(CorruptExtent, match="block=0 column=b reason=Unexpected end of stream"):
        reader.read_block(0)


@pytest.mark.parametrize(
    ("length", "flags", "is_known"),
    [
        (70, b"\x11\x11", True),  # both are exact
        (70, b"\x12\x12", False),  # neither is
        (20, b"\x12\x12", False),
        (70, b"", False),  # nobody says
        (20, b"", True),
    ],
)
def test_a_text_bound_from_elsewhere_must_be_whole(
    memory_store: ObjectStore, length: int, flags: bytes, is_known: bool
) -> None:
    text = "t" * length
    write_foreign(memory_store, pa.table({"s": pa.array([text])}))
    data = bytes(memory_store.get(KEY))
    footer = data[footer_start(data) : -FRAME_TAIL]
    told = b"\x18" + bytes([length]) + text.encode() + b"\x11\x11"
    assert footer.count(told) == 1
    memory_store.put(KEY, with_footer(data, footer.replace(told, told[:-2] + flags)))
    reader = PARQUET.open_extent(memory_store, KEY)
    assert bounds_of(reader) == {"s": (0, text, text) if is_known else (0, None, None)}
    assert column_of(reader, "s") == [text]


def test_a_copy_is_another_file_and_refused_if_it_kept_our_metadata(memory_store: ObjectStore) -> None:
    batch = random_batch(15)
    write(memory_store, batch)
    ours = memory_store.get(KEY)
    copy = write_foreign(memory_store, pq.read_table(pa.BufferReader(ours)))
    assert (copy.metadata().extent_id, read_all(copy)) == (None, pa.Table.from_batches([batch]))
    with pytest.raises(CorruptExtent, match="a copy that kept our metadata"):
        write_foreign(memory_store, pq.ParquetFile(pa.BufferReader(ours)).read())


def test_a_missing_block_column_or_object_is_not_found(memory_store: ObjectStore) -> None:
    reader = write(memory_store, random_batch(16))
    with pytest.raises(NotFoundError, match=f"no such block object={KEY} block=5 blocks=5"):
        reader.read_block(5)
    with pytest.raises(NotFoundError, match="no such block"):
        reader.read_block(-1)
    with pytest.raises(NotFoundError, match="no such column column=nothing"):
        reader.read_block(0, ["nothing"])
    with pytest.raises(NotFoundError, match="no such object"):
        PARQUET.open_extent(memory_store, "data/other.parquet")


def test_bad_rows_are_refused_and_nothing_is_stored(memory_store: ObjectStore) -> None:
    writer = PARQUET.start_extent(memory_store, KEY, SCHEMA, extent_id="e-1")
    with pytest.raises(SchemaError, match="columns"):
        writer.append(random_batch(17).select(["ts", "i"]))
    with pytest.raises(InvalidInputError, match="at least one row"):
        writer.finish()
    assert list(memory_store.list()) == []


def test_a_storage_error_stays_one(memory_store: ObjectStore) -> None:
    write(memory_store, random_batch(18))
    store = FaultyStore(memory_store, [Fault("get_ranges", "before")])
    with pytest.raises(StorageError, match="failed on purpose"):
        PARQUET.open_extent(store, KEY).read_block(0)


def test_bits_flipped_on_the_way_are_caught(memory_store: ObjectStore) -> None:
    write(memory_store, random_batch(19))
    for seed in range(20):
        store = FaultyStore(memory_store, [Fault("get_ranges", "flip")], seed=seed)
        with pytest.raises(CorruptExtent, match=f"checksum mismatch object={KEY} block=2 column="):
            PARQUET.open_extent(store, KEY).read_block(2)


def test_every_byte_of_the_footer_counts(memory_store: ObjectStore) -> None:
    write(memory_store, random_batch(20, rows=3))
    good = bytes(memory_store.get(KEY))
    for at in range(footer_start(good), len(good)):
        data = bytearray(good)
        data[at] ^= 1 << at % 8
        memory_store.put(KEY, bytes(data))
        with pytest.raises(CorruptExtent, match=f"object={KEY} reason="):
            PARQUET.open_extent(memory_store, KEY)


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Damage bytes in one of the ways that disks, wires and people do."""
    changed = bytearray(data)
    at = chance.randrange(len(changed))
    match chance.randrange(5):
        case 0:
            changed[at] ^= 1 << chance.randrange(8)
        case 1:
            changed[at : at + chance.randint(1, 64)] = bytes(min(chance.randint(1, 64), len(changed) - at))
        case 2:
            changed[at:] = b""
        case 3:
            changed[at:at] = chance.randbytes(chance.randint(1, 16))
        case _:
            for _ in range(chance.randint(2, 12)):
                changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def test_a_damaged_extent_is_refused_or_gives_the_right_rows(memory_store: ObjectStore) -> None:
    batch = random_batch(21)
    write(memory_store, batch)
    good = bytes(memory_store.get(KEY))
    chance = random.Random(22)
    refused = right = 0
    for _ in range(400):
        memory_store.put(KEY, mutated(good, chance))
        for block in range(5):
            try:
                read = PARQUET.open_extent(memory_store, KEY).read_block(block)
            except CorruptExtent as error:
                refused += f"object={KEY}" in str(error)
            else:
                assert read.equals(batch.slice(block * BLOCK_ROWS, BLOCK_ROWS))
                right += 1
    assert refused + right == 2_000
    assert min(refused, right) > 100


def test_a_damaged_file_from_elsewhere_raises_only_our_errors(memory_store: ObjectStore) -> None:
    write_foreign(memory_store, foreign_table(), row_group_size=10, write_page_checksum=True)
    good = bytes(memory_store.get(KEY))
    chance = random.Random(23)
    refused = 0
    for _ in range(300):
        memory_store.put(KEY, mutated(good, chance))
        try:
            reader = PARQUET.open_extent(memory_store, KEY)
            reader.pruned_blocks(Equals("text", "s015"))
            read_all(reader)
        except (CorruptExtent, SchemaError):
            refused += 1
    assert refused > 100


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "0 bytes are too few"),
        (b"PAR1PAR1", "8 bytes are too few"),
        (b"PAR1" + b"\0" * 50 + b"NOPE", "wrong magic b'NOPE' at the end"),
        (b"PARE" + b"\0" * 50 + b"PARE", "the file is encrypted"),
        (b"PAR1" + b"\0" * 50 + b"\xff\xff\xff\xffPAR1", "a footer of 4294967295 bytes in an object of 62"),
        (b"PAR1" + b"\0" * 50 + b"\x00\x00\x00\x00PAR1", "a footer of 0 bytes in an object of 62"),
        (b"PAR0" + b"\0" * 50 + b"\x0a\x00\x00\x00PAR1", "the opening magic is not the closing one"),
        (b"PAR1" + b"\0" * 50 + b"\x0a\x00\x00\x00PAR1", "the footer is not readable"),
    ],
)
def test_bytes_that_are_no_extent_are_refused_with_the_reason(
    memory_store: ObjectStore, data: bytes, reason: str
) -> None:
    memory_store.put(KEY, data)
    with pytest.raises(CorruptExtent) as caught:
        PARQUET.open_extent(memory_store, KEY)
    assert str(caught.value).startswith(f"not a readable extent object={KEY} reason={reason}")


def test_a_forged_place_cannot_make_the_decoder_read_beyond_it(memory_store: ObjectStore) -> None:
    reader = write(memory_store, random_batch(24))
    piece = reader.metadata().blocks[0].pieces["l"]
    data = bytes(memory_store.get(KEY))
    shorter = checksum_of(data[piece.offset : piece.offset + piece.length - 1])
    told = f'"at":{piece.offset},"len":{piece.length},"sum":"{piece.checksum}"'.encode()
    forged = f'"at":{piece.offset},"len":{piece.length - 1},"sum":"{shorter}"'.encode()
    footer = data[footer_start(data) : -FRAME_TAIL]
    assert footer.count(told) == 1
    assert len(told) == len(forged)
    footer = footer.replace(told, forged)
    at = footer.rindex(b',"sum":"') + 8
    footer = footer[:at] + checksum_of(footer[:at], b"0" * 16, footer[at + 16 :]).encode() + footer[at + 16 :]
    memory_store.put(KEY, with_footer(data, footer))
    reader = PARQUET.open_extent(memory_store, KEY)
    assert reader.read_block(0, ["i"]).num_rows == BLOCK_ROWS
    with pytest.raises(CorruptExtent, match=r"block=0 column=l reason=.*outside the column chunk"):
        reader.read_block(0, ["l"])


def test_formats_are_found_by_name() -> None:
    assert {name: (found.name, found.suffix) for name, found in FORMATS.items()} == {
        "tlm": ("tlm", ".tlm"),
        "tlm3": ("tlm3", ".tlm"),
        "parquet": ("parquet", ".parquet"),
    }
    assert segment_format("tlm") is FORMATS["tlm"]
    with pytest.raises(InvalidInputError, match="unknown format 'orc' known=tlm, tlm3, parquet"):
        segment_format("orc")


@pytest.mark.parametrize("where", ["memory://", None])
def test_formats_are_found_by_an_objects_first_bytes(tmp_path: Path, where: str | None) -> None:
    store = open_store(where or tmp_path)
    for name in FORMATS:
        writer = segment_format(name).start_extent(store, name, SCHEMA, extent_id="e-1")
        writer.append(random_batch(25, rows=5))
        writer.finish()
        counted = FaultyStore(store)
        assert format_of_object(counted, name) is FORMATS[name]
        assert counted.bytes_read == 5
    for data in (b"", b"PAR", b"ORC\x01 and more"):
        store.put("other", data)
        with pytest.raises(CorruptExtent, match="no known format object=other reason="):
            format_of_object(store, "other")
    with pytest.raises(NotFoundError):
        format_of_object(store, "missing")
