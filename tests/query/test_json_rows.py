"""Write rows as JSON a column at a time, and compare with each value written on its own."""

from __future__ import annotations

import json
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelake import dynamic
from tidelake.model.schema import DYNAMIC_FIELD, JSON_FIELD
from tidelake.query import json_rows
from tidelake.query.json_rows import json_value, row_texts

NAN, INF = float("nan"), float("inf")
COLUMNS: dict[str, pa.Array] = {
    "whole": pa.array([1, None, -(2**63), 2**63 - 1]),
    "unsigned": pa.array([0, 2**64 - 1, None, 3], pa.uint64()),
    "real": pa.array([1.0, NAN, 1e300, -0.1]),
    "other_real": pa.array([INF, None, 1e-7, 123456789.0]),
    "small_real": pa.array([1.5, None, -INF, 3.0], pa.float32()),
    "text": pa.array(['a"\\/\n\t\x00\x1f\x7f', "é😀\u2028", None, ""]),
    "large_text": pa.array(['q"', None, "", "z"], pa.large_utf8()),
    "bool": pa.array([True, None, False, True]),
    "time": pa.array([0, None, 1_000_001, -1], pa.timestamp("us", "UTC")),
    "seconds": pa.array([0, 1, 2, None], pa.timestamp("s")),
    "elsewhere": pa.array([0, 1, 2, None], pa.timestamp("us", "Europe/Paris")),
    "date": pa.array([date(2026, 1, 2), None, date(1, 1, 1), date(1969, 12, 31)]),
    "hour": pa.array([time(1, 2, 3), time(1, 2, 3, 4), None, time(0)]),
    "decimal": pa.array([Decimal("1.10"), None, Decimal("-0.01"), Decimal(10**20)], pa.decimal128(30, 2)),
    "bytes": pa.array([b"\x00\xff", None, b"", b"a"]),
    "list": pa.array([[1, None], [], None, [3]]),
    "lists": pa.array([[['a"'], None], [[]], None, []]),
    "struct": pa.array([{"x": 1, "y": [datetime(2026, 1, 1)]}, None, {"x": None, "y": None}, {"x": 2, "y": []}]),
    "vector": pa.array([[1.0, 2.0], None, [3.0, NAN], [0.0, 0.0]], pa.list_(pa.float32(), 2)),
    "dictionary": pa.array(["x", None, "y", "x"]).dictionary_encode(),
    "nothing": pa.nulls(4),
    "duration": pa.array([timedelta(seconds=90), None, timedelta(0), timedelta(days=2)]),
}


def written(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    text = b"".join(row_texts(batch, after="\n"))
    assert text.count(b"\n") == batch.num_rows
    return [orjson.loads(line) for line in text.split(b"\n")[:-1]]


def test_rows_are_what_each_value_is_on_its_own() -> None:
    batch = pa.record_batch(COLUMNS)
    for start in range(5):
        for length in range(5 - start):
            piece = batch.slice(start, length)
            assert written(piece) == [
                {name: json_value(value) for name, value in row.items()} for row in piece.to_pylist()
            ]


def test_reals_read_back_as_reals_and_equal() -> None:
    values = [0.0, -0.0, 1.0, 1e15, 1e16, 1e22, -3e200, 0.1, 2**53 + 2.0, 5e-324, 1.7976931348623157e308]
    found = [row["v"] for row in written(pa.record_batch({"v": pa.array(values)}))]
    assert list(map(repr, found)) == list(map(repr, values))


def test_times_beyond_pythons_calendar_are_written() -> None:
    (row,) = written(pa.record_batch({"ts": pa.array([253_402_300_800_000_005], pa.timestamp("us", "UTC"))}))
    assert row == {"ts": "10000-01-01T00:00:00.000005Z"}


def test_maps_are_objects_whatever_their_keys() -> None:
    texts = pa.array([[('k"', 1)], [], None, [("a", None), ("b", 2)]], pa.map_(pa.utf8(), pa.int64()))
    whole = pa.array([[(1, "x")], [], None, [(2, None)]], pa.map_(pa.int64(), pa.utf8()))
    assert written(pa.record_batch({"t": texts, "w": whole})) == [
        {"t": {'k"': 1}, "w": {"1": "x"}},
        {"t": {}, "w": {}},
        {"t": None, "w": None},
        {"t": {"a": None, "b": 2}, "w": {"2": None}},
    ]


def test_dynamic_values_are_nested_whichever_form_they_have() -> None:
    values: list[Any] = [{"a": [1, {"b": "é\n"}]}, "text", None, 12345678901234567890, [], 0.5]
    stored = pa.array([None if value is None else dynamic.encode(value) for value in values], pa.binary())
    texts = pa.array([None if value is None else json.dumps(value) for value in values])
    schema = pa.schema(
        [
            pa.field("stored", pa.binary(), metadata=DYNAMIC_FIELD),
            pa.field("queried", pa.utf8(), metadata=JSON_FIELD),
            pa.field("plain", pa.utf8()),
        ]
    )
    rows = written(pa.RecordBatch.from_arrays([stored, texts, texts], schema=schema))
    assert [(row["stored"], row["queried"]) for row in rows] == [(value, value) for value in values]
    assert [row["plain"] for row in rows] == texts.to_pylist()
    assert written(pa.record_batch({"j": pa.array(['{"a":1}', None], pa.json_())})) == [{"j": {"a": 1}}, {"j": None}]


def test_json_texts_become_json_on_one_line() -> None:
    odd = [
        "[NaN, -Infinity]",
        '{"a":\n 1,\r\n "NaN": "Infinity\\n"}',
        '"NaN"',
        None,
        '{"n":12345678901234567890,"x":NaN}',
        "no NaN",
    ]
    schema = pa.schema([pa.field("j", pa.utf8(), metadata=JSON_FIELD)])
    rows = written(pa.RecordBatch.from_arrays([pa.array(odd)], schema=schema))
    assert [row["j"] for row in rows] == [
        [None, None],
        {"a": 1, "NaN": "Infinity\n"},
        "NaN",
        None,
        {"n": 12345678901234567890, "x": None},
        "no NaN",
    ]


def test_a_name_that_occurs_twice_is_written_once() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], names=["a", "b", "a"])
    assert b"".join(row_texts(batch)) == b'{"a":3,"b":2}'


def test_rows_come_in_pieces_that_join_to_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = pa.record_batch({"n": range(1000), "s": ["x" * (n % 50) for n in range(1000)]})
    whole = b"".join(row_texts(batch, before=",\n", after="!"))
    monkeypatch.setattr(json_rows, "PIECE_BYTES", 1000)
    pieces = list(row_texts(batch, before=",\n", after="!"))
    assert (b"".join(pieces), len(pieces) > 10) == (whole, True)
    assert list(row_texts(batch.slice(0, 0))) == []


@settings(max_examples=30)
@given(st.lists(st.none() | st.text(), max_size=20))
def test_any_text_reads_back(texts: list[str | None]) -> None:
    assert [row["s"] for row in written(pa.record_batch({"s": pa.array(texts, pa.utf8())}))] == texts


@settings(max_examples=30)
@given(st.lists(st.none() | st.floats(), max_size=20))
def test_any_real_reads_back_or_is_null(values: list[float | None]) -> None:
    found = [row["v"] for row in written(pa.record_batch({"v": pa.array(values, pa.float64())}))]
    assert found == [json_value(value) for value in values]


@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(
            st.none() | st.floats() | st.floats(-1e6, 1e6) | st.integers(0, 20).map(lambda e: 10.0**e),
            st.none() | st.integers(-(2**63) + 1, 2**63 - 1) | st.integers(0, 2**33).map(lambda s: s * 1_000_000),
            st.none() | st.text(),
            st.none() | st.booleans(),
            st.none() | st.integers(-(2**63), 2**63 - 1),
        ),
        min_size=1,
        max_size=20,
    )
)
def test_a_few_rows_are_written_as_many_are(rows: list[tuple[Any, ...]]) -> None:
    reals, times, texts, flags, wholes = (list(column) for column in zip(*rows, strict=True))
    columns = [
        pa.array(reals, pa.float64()),
        pa.array(times, pa.int64()).view(pa.timestamp("us", "UTC")),
        pa.array(times, pa.int64()).view(pa.timestamp("us")),
        pa.array(texts, pa.utf8()),
        pa.array(flags, pa.bool_()),
        pa.array(wholes, pa.int64()),
    ]
    for several in [*([column] for column in columns), columns]:
        batch = pa.RecordBatch.from_arrays(several, names=["a", 'b"\n', "c", "a", "é", ""][: len(several)])
        few = b"".join(row_texts(batch, before=",\n  ", after="!"))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(json_rows, "FEW_CELLS", 0)
            assert few == b"".join(row_texts(batch, before=",\n  ", after="!"))
