"""Try columns that are stored as differences from others: which are, what is read of them, and what is refused."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.golden.make import SPAN_SCHEMA, tide_v3_differences_rows
from tests.support.rows import KEY, batch_of, rows_of, write
from tidelake.errors import CorruptExtent
from tidelake.format import WriteOptions, codecs, differences, segment_format
from tidelake.model.schema import Schema
from tidelake.objects import open_store

ROWS = tide_v3_differences_rows()


def written(blocks: int = 1) -> Any:
    store = open_store("memory://")
    options = WriteOptions(block_rows=-(-len(ROWS) // blocks), sort=False)
    write(store, segment_format("tlm3"), SPAN_SCHEMA, [batch_of(ROWS, SPAN_SCHEMA)], options=options)
    return store


def test_columns_that_are_near_others_are_differences_and_smaller() -> None:
    reader: Any = segment_format("tlm3").open_extent(written(), KEY)
    parts = {part.column: part for part in reader.parts()}
    apart = {name for name, part in parts.items() if part.codecs == ("difference",)}
    assert len(apart & {"ts", "began"}) == len(apart & {"day", "due"}) == 1 == len(apart) - 1
    for name in apart:
        alone = codecs.encode_column(batch_of(ROWS, SPAN_SCHEMA).column(name))
        assert parts[name].byte_size < differences.GAIN * len(alone)


@pytest.mark.parametrize("names", [["began"], ["due", "day"], ["due", "ts", "began"], ["none"], ["day"]])
def test_any_columns_are_read_with_those_that_they_are_from_and_given_alone(names: list[str]) -> None:
    store = written()
    reader = segment_format("tlm3").open_extent(store, KEY)
    again = segment_format("tlm3").reopen(store, KEY, reader.ticket([0], names))
    wanted = [{name: row[name] for name in names} for row in ROWS]
    assert rows_of(reader.read_block(0, names)) == rows_of(again.read_block(0, names)) == wanted


def test_a_column_with_nulls_is_not_one_that_others_are_from() -> None:
    times = pa.array([n * n * 104_729 % 2**40 for n in range(600)])
    near = pa.array([None if n == 5 else each.as_py() + n % 7 for n, each in enumerate(times)])
    batch = pa.record_batch({"a": near, "b": times})
    assert differences.chosen(Schema.from_arrow(batch.schema), [batch]) == {"a": "b"}
    both = pa.record_batch({"a": near, "b": near})
    assert differences.chosen(Schema.from_arrow(both.schema), [both]) == {}


def test_differences_go_round_at_the_ends_of_what_64_bits_hold() -> None:
    chance = random.Random(5)
    values = pa.array([chance.choice([-(2**63), 2**63 - 1, 0, None]) for _ in range(100)], pa.int64())
    base = pa.array([chance.choice([-(2**63), 2**63 - 1, 1]) for _ in range(100)], pa.int64())
    page = differences.encode(values, base)
    assert differences.decode(memoryview(page), 100, pa.int64(), base).equals(values)
    small = pa.array(np.arange(100), pa.int32())
    beyond = bytes([codecs.NO_NULLS, codecs.DIFFERENCE]) + codecs.encode_ints(np.full(100, 2**31))
    for damaged, other in ((beyond, small), (page, small), (b"\x20", base), (page[:6], base), (page, values)):
        with pytest.raises(
            ValueError, match=r"beyond 32 bits|differences from nothing|a part|page|early|bytes|numbers"
        ):
            differences.decode(memoryview(damaged), 100, other.type, other)


@pytest.mark.parametrize(
    "told", [{"due": "none there"}, {"due": "ts"}, {"due": "day", "day": "none"}, {"due": "due"}, {"gone": "day"}]
)
def test_a_footer_that_says_what_cannot_be_is_refused(told: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="cannot be compared"):
        differences.checked(told, SPAN_SCHEMA)


def test_a_page_of_differences_is_refused_where_none_is_told_of() -> None:
    base = batch_of(ROWS, SPAN_SCHEMA).column("day")
    page = memoryview(differences.encode(batch_of(ROWS, SPAN_SCHEMA).column("due"), base))
    with pytest.raises(ValueError, match="codec 8"):
        codecs.decode_column(page, len(ROWS), pa.int32())
    store = written()
    damaged = bytearray(store.get(KEY))
    damaged[20] ^= 1
    store.put(KEY, bytes(damaged))
    with pytest.raises(CorruptExtent):
        segment_format("tlm3").open_extent(store, KEY).read_block(0, ["began"])
