"""Show what a writer takes, what it refuses without leaving anything behind, and what reading an extent costs."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.format.test_extent_hostile import lines
from tests.support.faulty import Fault, FaultyStore
from tests.support.rows import EXTENT_ID, KEY, Row, batch_of, by_time, read_all, rows_of, write
from tests.support.strategies import NS_EDGE_US
from tidelake.dynamic.values import encode
from tidelake.errors import (
    CorruptExtent,
    InvalidInputError,
    NotFoundError,
    SchemaError,
    StorageError,
    TidelakeError,
)
from tidelake.format import FORMATS, ExtentWriteResult, SegmentFormat, WriteOptions, segment_format
from tidelake.model.predicate import Equals, Predicate, StringHas
from tidelake.model.schema import Column, DataType, Schema
from tidelake.objects import ObjectStore
from tidelake.pruning.outcomes import may_match
from tidelake.pruning.statistics import Stats, column_from_json

LOGS = Schema.of({"ts": "timestamp", "service": "string", "n": "int"})
ROWS: list[Row] = [
    {"ts": 3_000, "service": "auth", "n": 1},
    {"ts": 1_000, "service": "billing timeout", "n": None},
    {"ts": None, "service": None, "n": 2},
    {"ts": 1_000, "service": "auth", "n": 3},
]
VECTORS = Schema.of({"v": "vector(2)"})
STRICT = Schema((Column(1, "n", DataType("int"), nullable=False),))
TEXTS = Schema.of({"s": "string"})


@pytest.fixture(params=list(FORMATS))
def format(request: pytest.FixtureRequest) -> SegmentFormat:
    """Return each format in turn."""
    return FORMATS[request.param]


def of_types(**columns: pa.Array) -> list[pa.RecordBatch]:
    return [pa.RecordBatch.from_arrays(list(columns.values()), list(columns))]


def invalid_text() -> pa.Array:
    return pa.Array.from_buffers(pa.utf8(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")])


def texts_that_end_at(*ends: int) -> pa.Array:
    offsets = pa.py_buffer(np.array(ends, dtype=np.int32))
    return pa.Array.from_buffers(pa.utf8(), len(ends) - 1, [None, offsets, pa.py_buffer(b"plain")])


def random_rows(count: int, seed: int = 1) -> list[Row]:
    chance = random.Random(seed)
    words = [f"{chance.getrandbits(40):x}" for _ in range(400)]
    return [{"ts": at, "service": " ".join(chance.choices(words, k=8)), "n": at} for at in range(count)]


@pytest.mark.parametrize(
    ("schema", "batches", "error", "kind"),
    [
        (LOGS, [], InvalidInputError, "no_rows"),
        (LOGS, [batch_of([], LOGS)], InvalidInputError, "no_rows"),
        (LOGS, [batch_of(ROWS, LOGS).select(["ts", "n"])], SchemaError, "schema_mismatch"),
        (LOGS, [batch_of(ROWS, LOGS).select(["n", "service", "ts"])], SchemaError, "schema_mismatch"),
        (
            LOGS,
            [batch_of(ROWS, LOGS).append_column("extra", batch_of(ROWS, LOGS)["n"])],
            SchemaError,
            "schema_mismatch",
        ),
        (LOGS, [batch_of(ROWS, LOGS), *of_types(n=pa.array([1], pa.int32()))], SchemaError, "schema_mismatch"),
        (STRICT, of_types(n=pa.array([1], pa.int64())), SchemaError, "schema_mismatch"),
        (STRICT, of_types(n=pa.array([1, None], pa.int32())), SchemaError, "schema"),
        (TEXTS, of_types(s=pa.array(["a"], pa.large_utf8())), SchemaError, "schema_mismatch"),
        (TEXTS, of_types(s=pa.array(["a"]).dictionary_encode()), SchemaError, "schema_mismatch"),
        (TEXTS, of_types(s=invalid_text()), InvalidInputError, "invalid_input"),
        (TEXTS, of_types(s=texts_that_end_at(0, 3, 1, 4)), InvalidInputError, "invalid_input"),
        (TEXTS, of_types(s=texts_that_end_at(0, 40, 4)), InvalidInputError, "invalid_input"),
        (TEXTS, of_types(s=texts_that_end_at(0, -2, 4)), InvalidInputError, "invalid_input"),
        (TEXTS, of_types(s=pa.array(["a"]), t=pa.array(["a"])), SchemaError, "schema_mismatch"),
        (VECTORS, of_types(v=pa.array([[1.0]], pa.list_(pa.float32(), 1))), SchemaError, "vector_length"),
        (VECTORS, of_types(v=pa.array([[1.0, None]], pa.list_(pa.float32(), 2))), SchemaError, "vector_length"),
        (VECTORS, of_types(v=pa.array([[1.0, 2.0]], pa.list_(pa.float64(), 2))), SchemaError, "schema_mismatch"),
        (VECTORS, of_types(v=pa.array([[1.0, 2.0]], pa.list_(pa.float32()))), SchemaError, "schema_mismatch"),
    ],
)
def test_writer_refuses_rows_that_do_not_fit_and_leaves_nothing(
    memory_store: ObjectStore,
    format: SegmentFormat,
    schema: Schema,
    batches: list[pa.RecordBatch],
    error: type[TidelakeError],
    kind: str,
) -> None:
    with pytest.raises(error) as caught:
        write(memory_store, format, schema, batches)
    assert (type(caught.value), caught.value.kind) == (error, kind)
    assert list(memory_store.list()) == []


@pytest.mark.parametrize(
    ("arrow", "kind"),
    [
        (pa.schema([]), "no_columns"),
        (pa.schema([("a", pa.int32()), ("a", pa.utf8())]), "duplicate_column"),
        (pa.schema([("a", pa.date32())]), "unsupported_type"),
        (pa.schema([("a", pa.struct([("b", pa.int32())]))]), "unsupported_type"),
    ],
)
def test_no_writer_starts_on_a_schema_that_cannot_be(arrow: pa.Schema, kind: str) -> None:
    with pytest.raises(SchemaError) as caught:
        Schema.from_arrow(arrow)
    assert caught.value.kind == kind


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: WriteOptions(block_rows=0), InvalidInputError),
        (lambda: WriteOptions(block_rows=2**24 + 1), InvalidInputError),
        (lambda: WriteOptions(compression="gzip"), InvalidInputError),
    ],
)
def test_write_options_refuse_what_cannot_be(make: Callable[[], object], error: type[TidelakeError]) -> None:
    with pytest.raises(error):
        make()


@pytest.mark.parametrize(("time", "error"), [("absent", NotFoundError), ("n", SchemaError)])
def test_writer_refuses_a_time_column_that_is_none(
    memory_store: ObjectStore, format: SegmentFormat, time: str, error: type[TidelakeError]
) -> None:
    with pytest.raises(error):
        format.start_extent(memory_store, KEY, LOGS, extent_id=EXTENT_ID, options=WriteOptions(time=time))


def test_writer_takes_nothing_once_finished(memory_store: ObjectStore, format: SegmentFormat) -> None:
    writer = format.start_extent(memory_store, KEY, LOGS, extent_id=EXTENT_ID)
    writer.append(batch_of(ROWS, LOGS))
    assert list(memory_store.list()) == []
    writer.finish()
    for act in (writer.finish, lambda: writer.append(batch_of(ROWS, LOGS))):
        with pytest.raises(InvalidInputError, match="the extent is finished"):
            act()


def test_writer_stores_nothing_when_it_is_told_not_to(memory_store: ObjectStore, format: SegmentFormat) -> None:
    writer = format.start_extent(memory_store, KEY, LOGS, extent_id=EXTENT_ID)
    writer.append(batch_of(ROWS, LOGS))

    def refuse() -> None:
        assert list(memory_store.list()) == []
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        writer.finish(refuse)
    assert list(memory_store.list()) == []


@pytest.mark.parametrize(
    "times",
    [
        [[1, 2, 2], [], [2, 3]],
        [[1, 2], [1, 3]],
        [[3, 1], [4]],
        [[], [5]],
        [[1, None], [2]],
        [[-(2**63), 2**63 - 1], [2**63 - 1, -(2**63)]],
    ],
)
def test_writer_sorts_batches_that_are_not_in_order_together(
    memory_store: ObjectStore, format: SegmentFormat, times: list[list[int | None]]
) -> None:
    numbers = iter(range(100))
    parts: list[list[Row]] = [[{"ts": ts, "service": "x", "n": next(numbers)} for ts in part] for part in times]
    write(memory_store, format, LOGS, [batch_of(part, LOGS) for part in parts])
    read = read_all(format.open_extent(memory_store, KEY))
    assert read == by_time([row for part in parts for row in part], "ts")


EVEN = Schema.of({"ts": "timestamp", "s": "string", "d": "dynamic"})
SHAPES: dict[str, Callable[[int], str | None]] = {
    "all as long": lambda at: f"{at:06}",
    "one longer": lambda at: f"{at:06}" if at != 1_500 else "longer than that",
    "one null": lambda at: f"{at:06}" if at != 900 else None,
    "all null": lambda at: None,
    "all empty": lambda at: "",
    "one letter of two bytes": lambda at: "é",
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("compression", ["zstd", "lz4", None])
def test_texts_that_are_all_as_long_come_back(memory_store: ObjectStore, shape: str, compression: str | None) -> None:
    """Blocks of 1,100 rows tell the width of their texts, the last one of 300 does not."""
    texts = [SHAPES[shape](at) for at in range(2_500)]
    dynamic = [None if text is None else b"\x66" + text.encode()[:6].ljust(6) for text in texts]
    rows: list[Row] = [{"ts": at, "s": text, "d": d} for at, (text, d) in enumerate(zip(texts, dynamic, strict=True))]
    batch = batch_of([*rows[:7], *rows], EVEN).slice(7)  # offsets that do not begin at zero
    options = WriteOptions(block_rows=1_100, compression=compression)
    write(memory_store, FORMATS["tlm"], EVEN, [batch], options=options)
    reader = FORMATS["tlm"].open_extent(memory_store, KEY)
    assert read_all(reader) == rows
    again = FORMATS["tlm"].reopen(memory_store, KEY, reader.ticket([1], ["s"]))
    assert rows_of(again.read_block(1, ["s"])) == [{"s": row["s"]} for row in rows[1_100:2_200]]
    block = reader.read_block(1)
    block.validate(full=True)
    told = footer(bytes(memory_store.get(KEY)))[1]["tide"]["s"].get("width")
    assert told == {"all as long": 6, "one null": 6, "one letter of two bytes": 2}.get(shape)


def footer(extent: bytes) -> list[dict[str, Any]]:
    length = int.from_bytes(extent[-9:-5], "little")
    entries: list[dict[str, Any]] = json.loads(extent[-9 - length : -9])
    return entries


def test_put_that_fails_leaves_nothing(local_store: ObjectStore, format: SegmentFormat) -> None:
    store = FaultyStore(local_store, [Fault("put*", "before")])
    with pytest.raises(StorageError):
        write(store, format, LOGS, [batch_of(ROWS, LOGS)])
    assert len(store.fired) == 1
    assert list(local_store.list()) == []


def test_put_that_tears_leaves_what_no_reader_takes(memory_store: ObjectStore, format: SegmentFormat) -> None:
    for seed in range(10):
        store = FaultyStore(memory_store, [Fault("put*", "torn")], seed=seed)
        with pytest.raises(StorageError):
            write(store, format, LOGS, [batch_of(ROWS, LOGS)])
        with pytest.raises(CorruptExtent):
            format.open_extent(memory_store, KEY)


def test_put_whose_answer_is_lost_leaves_the_whole_extent(memory_store: ObjectStore, format: SegmentFormat) -> None:
    store = FaultyStore(memory_store, [Fault("put*", "after")])
    with pytest.raises(StorageError):
        write(store, format, LOGS, [batch_of(ROWS, LOGS)])
    assert read_all(format.open_extent(memory_store, KEY)) == by_time(ROWS, "ts")


def test_flipped_bits_on_the_way_are_found(memory_store: ObjectStore, format: SegmentFormat) -> None:
    write(memory_store, format, LOGS, [batch_of(random_rows(200), LOGS)])
    reader = format.open_extent(FaultyStore(memory_store, [Fault("get_ranges", "flip", times=None)]), KEY)
    with pytest.raises(CorruptExtent, match=r"checksum mismatch object=data/x\.tlm block=0") as caught:
        reader.read_block(0)
    assert caught.value.kind == "checksum"


def test_write_result_says_what_the_catalog_needs(memory_store: ObjectStore, format: SegmentFormat) -> None:
    result = write(memory_store, format, LOGS, [batch_of(ROWS, LOGS)], options=WriteOptions(block_rows=3))
    assert result == ExtentWriteResult(
        extent_id=EXTENT_ID,
        object_path=KEY,
        byte_size=memory_store.head(KEY).size,
        row_count=4,
        block_count=2,
        min_timestamp_nanos=1_000_000,
        max_timestamp_nanos=3_000_000,
        present_paths=(),
        column_stats={
            "n": {"distinct": [1, 2, 3], "tokens": None, "nulls": 1, "min": 1, "max": 3},
            "service": {
                "distinct": ["auth", "billing timeout"],
                "tokens": ["auth", "billing", "timeout"],
                "nulls": 1,
                "min": "auth",
                "max": "billing timeout",
            },
            "ts": {"distinct": None, "tokens": None, "nulls": 1, "min": 1_000_000, "max": 3_000_000},
        },
    )


def test_write_result_names_the_paths_that_are_present(memory_store: ObjectStore, format: SegmentFormat) -> None:
    schema = Schema.of({"d": "dynamic", "e": "dynamic"})
    rows: list[Row] = [{"d": b"\xa1\x61b\xa1\x61c\x01", "e": None}, {"d": b"\xa1\x61a\x01", "e": b"\xa1\x61z\x01"}]
    assert write(memory_store, format, schema, [batch_of(rows, schema)]).present_paths == ("a", "b", "b.c", "z")


@pytest.mark.parametrize(
    ("times", "wanted"),
    [
        ([5, -7, None], (-7_000, 5_000)),
        ([None, None], (None, None)),
        ([NS_EDGE_US, -NS_EDGE_US], (-NS_EDGE_US * 1000, NS_EDGE_US * 1000)),
        ([NS_EDGE_US + 1, 0], (None, None)),  # no nanoseconds: unknown
        ([2**63 - 1, -(2**63)], (None, None)),
    ],
)
def test_time_bounds_are_nanoseconds_or_unknown(
    memory_store: ObjectStore, format: SegmentFormat, times: list[int | None], wanted: tuple[int | None, int | None]
) -> None:
    schema = Schema.of({"ts": "timestamp"})
    batch = batch_of([{"ts": time} for time in times], schema)
    result = write(memory_store, format, schema, [batch], options=WriteOptions(block_rows=1))
    assert (result.min_timestamp_nanos, result.max_timestamp_nanos) == wanted


def test_time_column_is_the_first_unless_named(memory_store: ObjectStore, format: SegmentFormat) -> None:
    schema = Schema.of({"n": "int", "a": "timestamp", "b": "timestamp"})
    rows = [{"n": 0, "a": 2, "b": 10}, {"n": 1, "a": 1, "b": 20}]
    for time, order, bounds in ((None, [1, 0], (1000, 2000)), ("b", [0, 1], (10_000, 20_000))):
        result = write(memory_store, format, schema, [batch_of(rows, schema)], options=WriteOptions(time=time))
        assert (result.min_timestamp_nanos, result.max_timestamp_nanos) == bounds
        assert [row["n"] for row in read_all(format.open_extent(memory_store, KEY))] == order


def test_extent_without_times_keeps_its_order(memory_store: ObjectStore, format: SegmentFormat) -> None:
    schema = Schema.of({"n": "int"})
    rows = [{"n": n} for n in (3, 1, 2)]
    result = write(memory_store, format, schema, [batch_of(rows, schema)])
    assert (result.min_timestamp_nanos, read_all(format.open_extent(memory_store, KEY))) == (None, rows)


def test_rows_are_sorted_by_time_stably_across_batches(memory_store: ObjectStore, format: SegmentFormat) -> None:
    chance = random.Random(7)
    rows = [{"ts": chance.choice([None, *range(20)]), "service": "s", "n": at} for at in range(3000)]
    batches = [batch_of(rows[at : at + 700], LOGS) for at in range(0, 3000, 700)]
    write(memory_store, format, LOGS, batches, options=WriteOptions(block_rows=128))
    assert read_all(format.open_extent(memory_store, KEY)) == by_time(rows, "ts")


@pytest.mark.parametrize(
    ("rows", "block_rows", "wanted"), [(10, 4, [4, 4, 2]), (8, 4, [4, 4]), (3, 4, [3]), (2, 1, [1, 1])]
)
def test_blocks_are_cut_at_the_row_target_whatever_was_appended(
    memory_store: ObjectStore, format: SegmentFormat, rows: int, block_rows: int, wanted: list[int]
) -> None:
    batches = [batch_of([row], LOGS) for row in random_rows(rows)]
    result = write(memory_store, format, LOGS, batches, options=WriteOptions(block_rows=block_rows))
    metadata = format.open_extent(memory_store, KEY).metadata()
    assert [block.stats.rows for block in metadata.blocks] == wanted
    assert (result.block_count, result.row_count, metadata.row_count) == (len(wanted), rows, rows)


@pytest.mark.parametrize("sort", [True, False])
def test_blocks_of_long_rows_are_cut_at_the_byte_target(
    memory_store: ObjectStore, format: SegmentFormat, sort: bool
) -> None:
    schema = Schema.of({"ts": "timestamp", "s": "string"})
    line = "long line " * 104_858  # a little over one MiB
    batch = batch_of([{"ts": 100 - at, "s": line} for at in range(72)], schema)
    write(memory_store, format, schema, [batch], options=WriteOptions(sort=sort))
    reader = format.open_extent(memory_store, KEY)
    assert [block.stats.rows for block in reader.metadata().blocks] == [36, 36]
    assert reader.read_block(1, ["s"]).column(0).equals(batch.column(1).slice(36))


def test_long_texts_do_not_bloat_what_the_catalog_keeps(memory_store: ObjectStore, format: SegmentFormat) -> None:
    rows = [{"s": f"{at:03d}" * 10_000 + f" tail{at}"} for at in range(100)]
    result = write(memory_store, format, TEXTS, [batch_of(rows, TEXTS)])
    assert len(json.dumps(result.column_stats)) < 100_000
    known = Stats(100, {"s": column_from_json(result.column_stats["s"])})
    asked: list[Predicate] = [StringHas("s", "tail99"), StringHas("s", "tail100")]
    asked += [Equals("s", rows[7]["s"]), Equals("s", "007")]
    assert [may_match(each, known) for each in asked] == [True, False, True, False]


def test_vectors_are_taken_from_any_list_of_their_length(memory_store: ObjectStore, format: SegmentFormat) -> None:
    values = pa.array([[9.0, 9.0], [1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float32(), 2))
    write(memory_store, format, VECTORS, of_types(v=values.slice(1)))
    assert read_all(format.open_extent(memory_store, KEY)) == [{"v": (1.0, 2.0)}, {"v": None}, {"v": (3.0, 4.0)}]


def test_opening_reads_the_tail_and_nothing_else(memory_store: ObjectStore, format: SegmentFormat) -> None:
    result = write(memory_store, format, LOGS, [batch_of(random_rows(9000), LOGS)])
    store = FaultyStore(memory_store)
    format.open_extent(store, KEY).pruned_blocks(None)
    assert result.byte_size > 65_536
    assert (dict(store.calls), store.bytes_read) == ({"get_tail": 1}, 65_536)


def test_opening_a_small_extent_reads_it_once(memory_store: ObjectStore, format: SegmentFormat) -> None:
    result = write(memory_store, format, LOGS, [batch_of(ROWS, LOGS)])
    store = FaultyStore(memory_store)
    format.open_extent(store, KEY)
    assert (dict(store.calls), store.bytes_read) == ({"get_tail": 1}, result.byte_size)


def test_opening_reads_a_long_footer_with_one_more_request(memory_store: ObjectStore, format: SegmentFormat) -> None:
    rows = random_rows(8000)
    write(memory_store, format, LOGS, [batch_of(rows, LOGS)], options=WriteOptions(block_rows=8))
    store = FaultyStore(memory_store)
    reader = format.open_extent(store, KEY)
    assert reader.metadata().footer_bytes > 65_536
    assert (dict(store.calls), store.bytes_read < 65_536 + reader.metadata().footer_bytes + 16) == (
        {"get_tail": 1, "get_range": 1},
        True,
    )
    assert read_all(reader) == rows


def test_reading_two_columns_of_a_block_fetches_just_their_bytes(
    memory_store: ObjectStore, format: SegmentFormat
) -> None:
    rows = random_rows(4000)
    result = write(memory_store, format, LOGS, [batch_of(rows, LOGS)], options=WriteOptions(block_rows=500))
    store = FaultyStore(memory_store)
    reader = format.open_extent(store, KEY)
    pieces = reader.metadata().blocks[3].pieces
    store.clear()
    batch = reader.read_block(3, ["n", "ts"])
    assert rows_of(batch) == [{"n": row["n"], "ts": row["ts"]} for row in rows[1500:2000]]
    assert (dict(store.calls), store.bytes_read) == ({"get_ranges": 1}, pieces["n"].length + pieces["ts"].length)
    assert store.bytes_read * 20 < result.byte_size


def test_reading_one_of_many_blocks_fetches_less_than_a_tenth(memory_store: ObjectStore, format: SegmentFormat) -> None:
    schema = Schema.of({"ts": "timestamp", "service": "string", "a": "real", "b": "real"})
    rows = 16 * 16_384
    noise = np.random.default_rng(1)
    columns = [
        pa.array(np.arange(rows)).view(schema["ts"].type.arrow),
        pa.array(np.array(["auth", "billing", "search"])[noise.integers(0, 3, rows)]),
        pa.array(noise.random(rows)),
        pa.array(noise.random(rows)),
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema.arrow)
    result = write(memory_store, format, schema, [batch], options=WriteOptions(block_rows=16_384))
    store = FaultyStore(memory_store)
    assert format.open_extent(store, KEY).read_block(5).equals(batch.slice(5 * 16_384, 16_384))
    assert store.bytes_read * 10 < result.byte_size


def test_reading_no_columns_fetches_nothing_and_keeps_the_count(
    memory_store: ObjectStore, format: SegmentFormat
) -> None:
    write(memory_store, format, LOGS, [batch_of(ROWS, LOGS)])
    store = FaultyStore(memory_store)
    reader = format.open_extent(store, KEY)
    store.clear()
    assert (reader.read_block(0, []).num_rows, store.bytes_read) == (4, 0)


@pytest.mark.parametrize(("block", "columns"), [(1, None), (-1, None), (0, ["absent"])])
def test_reading_what_is_not_there_is_not_found(
    memory_store: ObjectStore, format: SegmentFormat, block: int, columns: list[str] | None
) -> None:
    write(memory_store, format, LOGS, [batch_of(ROWS, LOGS)])
    reader = format.open_extent(memory_store, KEY)
    with pytest.raises(NotFoundError):
        reader.read_block(block, columns)


def test_opening_what_is_not_there_is_not_found(memory_store: ObjectStore, format: SegmentFormat) -> None:
    with pytest.raises(NotFoundError):
        format.open_extent(memory_store, KEY)


def test_metadata_tells_where_everything_lies(memory_store: ObjectStore, format: SegmentFormat) -> None:
    result = write(memory_store, format, LOGS, [batch_of(ROWS, LOGS)], options=WriteOptions(block_rows=3))
    metadata = format.open_extent(memory_store, KEY).metadata()
    said: dict[str, Any] = {
        "format": metadata.format,
        "extent_id": metadata.extent_id,
        "schema": metadata.schema,
        "row_count": metadata.row_count,
        "byte_size": metadata.byte_size,
        "checksummed": metadata.checksummed,
        "rows": [block.stats.rows for block in metadata.blocks],
        "columns": [list(block.pieces) for block in metadata.blocks],
    }
    assert said == {
        "format": format.name,
        "extent_id": EXTENT_ID,
        "schema": LOGS,
        "row_count": 4,
        "byte_size": result.byte_size,
        "checksummed": True,
        "rows": [3, 1],
        "columns": [["ts", "service", "n"]] * 2,
    }
    pieces = [piece for block in metadata.blocks for piece in block.pieces.values()]
    assert all(0 < piece.offset < piece.offset + piece.length < result.byte_size for piece in pieces)
    assert all(piece.checksum for piece in pieces)


def test_each_way_of_reading_lines_fetches_just_its_bytes(memory_store: ObjectStore) -> None:
    memory_store.put(KEY, lines())
    store = FaultyStore(memory_store)
    reader: Any = segment_format("tlm3").open_extent(store, KEY)
    pieces = reader.metadata().blocks[1].pieces
    shared = {(each.column, each.part, each.block): each.piece.length for each in reader.shared_pieces()}
    templates = shared["line", "templates", None] + shared["line", "words", None]
    near, base = next((name, base) for name, base in reader._parts.differences.items())
    dictionary = shared["host", "dictionary", None]
    asked: tuple[tuple[Callable[[], Any], int], ...] = (
        (lambda: reader.read_block(1, [near]), pieces[near].length + pieces[base].length),
        (lambda: reader.read_block(1, [base]), pieces[base].length),
        (lambda: reader.read_block(1, ["host"]), pieces["host"].length + dictionary),
        (lambda: reader.read_block(1, ["host"]), pieces["host"].length),
        (lambda: reader.read_block(1, ["line"]), pieces["line"].length + templates),
        (lambda: reader.rows_with(1, "line", ["took"]), shared["line", "postings", 1]),
        (lambda: reader.row_templates(1, "line"), reader._parts.templates["line"].heads[1][0]),
        (lambda: reader.read_templates(1, "line"), reader._parts.templates["line"].heads[1][0]),
        (lambda: reader.read_lines("line", [(1, np.array([3]))]), pieces["line"].length),
    )
    for read, size in asked:
        store.clear()
        read()
        assert store.bytes_read == size
    assert reader._parts.templates["line"].heads[1][0] * 4 < pieces["line"].length


def test_reading_a_path_fetches_the_shapes_and_its_leaves(memory_store: ObjectStore) -> None:
    schema = Schema.of({"event": "dynamic"})
    noise = random.Random(3)
    events: list[Row] = [
        {
            "event": encode(
                {"id": n * 7919 % 10007, "level": ("INFO", "WARN")[n * n % 3 % 2], "text": noise.randbytes(20).hex()}
            )
        }
        for n in range(3000)
    ]
    write(memory_store, segment_format("tlm3"), schema, [batch_of(events, schema)])
    store = FaultyStore(memory_store)
    reader: Any = segment_format("tlm3").open_extent(store, KEY)
    directory = reader.directory("event")
    pages = directory.blocks[0]
    for path in ("id", "level", "nowhere"):
        leaves = directory.at(path).leaves
        words = sum(place.length for leaf, place in directory.dictionaries.items() if leaf in leaves)
        store.clear()
        (found,) = reader.read_paths(0, [("event", path)])
        assert len(found) == len(events)
        assert store.bytes_read == sum(page.length for leaf, page in pages.items() if leaf in (-1, *leaves)) + words
        assert store.bytes_read * 3 < reader.metadata().blocks[0].pieces["event"].length
