"""Rows told apart by their keys: few rows and many, of one column and of several, give one answer."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelake.scan.key_codes import codes_of, last_of_each

KEYS = st.tuples(st.integers(-2, 2), st.sampled_from(["", "a", "b", "é"]), st.sampled_from([0.0, -0.0, 1.5]))
TYPES = (pa.int64(), pa.string(), pa.float64())


@given(st.lists(KEYS, max_size=90), st.sets(st.integers(0, 2), min_size=1))
def test_the_last_row_of_each_key_is_kept_however_many_there_are(
    rows: list[tuple[int, str, float]], chosen: set[int]
) -> None:
    at = sorted(chosen)
    columns = [pa.array([row[each] for row in rows], TYPES[each]) for each in at]
    codes, _ = codes_of(columns)
    wanted = sorted({code: row for row, code in enumerate(codes.tolist())}.values())
    assert last_of_each(columns).tolist() == wanted
    if 2 not in at:
        plain = {tuple(row[each] for each in at): number for number, row in enumerate(rows)}
        assert wanted == sorted(plain.values())


@pytest.mark.parametrize("rows", [0, 1, 64, 65])
def test_no_rows_and_the_edge_between_few_and_many(rows: int) -> None:
    assert last_of_each([pa.array([7] * rows, pa.int64())]).tolist() == [rows - 1][: min(rows, 1)]
