"""Show for any rows that an extent gives back what it was given, and prunes no block that holds a wanted row."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.oracle import answers_of_rows
from tests.support.rows import KEY, Row, batch_of, by_time, exact, read_all, rows_of, write
from tests.support.strategies import Case, cases, examples, questions
from tidelake.format import FORMATS, ExtentReader, SegmentFormat, WriteOptions
from tidelake.model.predicate import Predicate
from tidelake.model.schema import Schema
from tidelake.objects import ObjectStore, open_store
from tidelake.pruning.outcomes import may_match
from tidelake.pruning.statistics import Stats, column_from_json

BLOCK_ROWS = st.sampled_from([1, 2, 3, 7, 64])
CUTS = st.integers(1, 5)


@pytest.fixture(params=list(FORMATS))
def format(request: pytest.FixtureRequest) -> SegmentFormat:
    """Return each format in turn."""
    return FORMATS[request.param]


def batches_of(case: Case, cut: int) -> list[pa.RecordBatch]:
    """Return the rows as several batches, the first a slice of a longer one, and one of no rows among them."""
    whole = batch_of(case.rows, case.schema)
    return [whole.slice(at, cut) for at in range(0, len(case.rows), cut)] + [whole.slice(0, 0)]


def sorted_rows(case: Case, *, sort: bool = True) -> list[Row]:
    time = next((column.name for column in case.schema if column.type.kind == "timestamp"), None)
    return by_time(case.rows, time) if sort and time else case.rows


def cut(rows: list[Row], size: int) -> list[list[Row]]:
    return [rows[at : at + size] for at in range(0, len(rows), size)]


def subsets(schema: Schema) -> Iterator[tuple[str, ...]]:
    """Yield every subset of the columns, each also in the other order."""
    for count in range(len(schema) + 1):
        for names in itertools.combinations(schema.names, count):
            yield names
            if count > 1:
                yield names[::-1]


def written(
    format: SegmentFormat, case: Case, *, batch_rows: int, options: WriteOptions
) -> tuple[ObjectStore, ExtentReader]:
    store = open_store("memory://")
    write(store, format, case.schema, batches_of(case, batch_rows), options=options)
    return store, format.open_extent(store, KEY)


@pytest.mark.parametrize("sort", [True, False])
def test_extent_gives_back_its_rows(format: SegmentFormat, sort: bool) -> None:
    @examples(60)
    @given(cases(max_rows=30), CUTS, BLOCK_ROWS, st.sampled_from(["zstd", "lz4", None]))
    def check(case: Case, batch_rows: int, block_rows: int, compression: str | None) -> None:
        options = WriteOptions(sort=sort, block_rows=block_rows, compression=compression)
        _, reader = written(format, case, batch_rows=batch_rows, options=options)
        wanted = sorted_rows(case, sort=sort)
        assert reader.metadata().schema == case.schema
        assert [block.stats.rows for block in reader.metadata().blocks] == list(map(len, cut(wanted, block_rows)))
        assert exact(read_all(reader)) == exact(wanted)

    check()


def test_extent_gives_back_any_columns_of_any_blocks(format: SegmentFormat) -> None:
    @examples(40)
    @given(cases(max_columns=3, max_rows=12), BLOCK_ROWS)
    def check(case: Case, block_rows: int) -> None:
        _, reader = written(format, case, batch_rows=5, options=WriteOptions(block_rows=block_rows))
        blocks = cut(sorted_rows(case), block_rows)
        for names in subsets(case.schema):
            for number in range(len(blocks) - 1, -1, -1):
                batch = reader.read_block(number, names)
                assert batch.num_rows == len(blocks[number])
                assert batch.schema.names == list(names)
                wanted = [{name: row[name] for name in names} for row in blocks[number]]
                assert exact(rows_of(batch)) == (exact(wanted) if names else [])

    check()


def test_extent_prunes_no_block_that_holds_a_wanted_row(format: SegmentFormat) -> None:
    pruned = kept = 0

    @examples(150)
    @given(questions(max_rows=30), BLOCK_ROWS)
    def check(question: tuple[Case, list[Predicate]], block_rows: int) -> None:
        nonlocal pruned, kept
        case, asked = question
        _, reader = written(format, case, batch_rows=7, options=WriteOptions(block_rows=block_rows))
        blocks = cut(sorted_rows(case), block_rows)
        for predicate in asked:
            held = [at for at, rows in enumerate(blocks) if True in answers_of_rows(predicate, rows, case.schema)]
            surviving = reader.pruned_blocks(predicate)
            assert [at for at in held if at not in surviving] == []
            pruned += len(blocks) - len(surviving)
            kept += len(surviving)

    check()
    assert (pruned > 1000, kept > 1000) == (True, True), (pruned, kept)


def test_extent_stats_prune_no_extent_that_holds_a_wanted_row(format: SegmentFormat) -> None:
    pruned = kept = 0

    @examples(60)
    @given(questions(max_rows=20))
    def check(question: tuple[Case, list[Predicate]]) -> None:
        nonlocal pruned, kept
        case, asked = question
        result = write(open_store("memory://"), format, case.schema, [batch_of(case.rows, case.schema)])
        columns = {name: column_from_json(shape) for name, shape in result.column_stats.items()}
        for predicate in asked:
            may = may_match(predicate, Stats(result.row_count, columns))
            assert may or True not in answers_of_rows(predicate, case.rows, case.schema)
            pruned += not may
            kept += may

    check()
    assert (pruned > 50, kept > 50) == (True, True), (pruned, kept)
