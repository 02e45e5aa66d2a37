"""Rows in the shape of a table: what fits its column is there, all else is in the overflow map, nothing is lost."""

from __future__ import annotations

import json
import math
import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal, localcontext
from typing import Any

import cbor2
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelake.dynamic.values import decode
from tidelake.errors import InvalidInputError, SchemaError
from tidelake.ingest import OVERFLOW_COLUMN, Coerced, Rules, coerce_arrow, coerce_ndjson, coerce_rows, infer_schema
from tidelake.ingest.instants import _few_texts
from tidelake.ingest.json import plain_reader
from tidelake.ingest.json.plain_reader import few_rows, require_json
from tidelake.logical import shown
from tidelake.model.schema import DYNAMIC_FIELD, Column, DataType, Schema

ANY_COLUMNS = Schema.of({"b": "dynamic"})
RULES = Rules()
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
KINDS = ("int", "long", "real", "bool", "string", "timestamp", "dynamic")
ODD_NAMES = ("", " padded ", "a\nb", "x" * 256, "\x7f", OVERFLOW_COLUMN, "é", 'quo"te', "back\\slash", "a.b")

TIMES = (
    "2026-01-01T00:00:00Z",
    "2026-01-01 00:00:00.123456789+01:30",
    "1969-12-31T23:59:59.9999999Z",
    "0001-01-01T00:00:00Z",
    "9999-12-31t23:59:59.999999z",
    "2024-02-29T23:59:60Z",
    "2026-01-01T00:00:00-0000",
    "2026-01-01T00:00:00+14",
    "2026-01-01",
    "2026-01-01T12:00:00",
    "2023-02-29T00:00:00Z",
    "0000-01-01T00:00:00Z",
    "0001-01-01T00:00:00+00:01",
    "9999-12-31T23:59:59-00:01",
    "2026-13-01T00:00:00Z",
    "2026-01-01T24:00:00Z",
    "2026-01-01T00:00:00.Z",
    "2026-01-01T00:00Z",
    "2026-1-01T00:00:00Z",
    "2026-01-01T00:00:00+25:00",
    "2026-01-01T00:00:00 Z",
    "20260101T000000Z",
    "soon",
    "1700000000",
)
SCALARS = (
    st.booleans()
    | st.integers(-5, 5)
    | st.sampled_from([2**31 - 1, 2**31, -(2**31) - 1, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63) - 1, 10**30])
    | st.sampled_from([0.0, -0.0, 5.0, 0.1, 1.5e300, 1e-7, 1700000000.123456, -1.0000001, 1e20])
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([1_700_000_000, 1_700_000_000_123, 1_700_000_000_123_456, 1_700_000_000_123_456_789])
    | st.sampled_from(TIMES)
    | st.text(st.characters(codec="utf-8"), max_size=8)
)
VALUES = (
    st.none()
    | SCALARS
    | st.recursive(
        SCALARS | st.none(),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab\n", max_size=3), inner, max_size=3),
        max_leaves=5,
    )
)
NAMES = st.sampled_from(["a", "b", "c", "d", *ODD_NAMES])
ROWS = st.lists(st.dictionaries(NAMES, VALUES, max_size=6), min_size=1, max_size=8)
SCHEMAS = st.dictionaries(st.sampled_from(["a", "b", "c", "é", "z"]), st.sampled_from(KINDS), min_size=1).map(Schema.of)


@given(SCHEMAS, st.lists(ROWS, min_size=1, max_size=3), st.integers(0, 4), st.booleans())
@settings(max_examples=100, deadline=None)
def test_ndjson_comes_back_as_it_was_however_the_schema_evolves(
    schema: Schema, batches: list[list[dict[str, Any]]], room: int, ascii: bool
) -> None:
    rules = Rules(max_new_columns=room)
    for rows in batches:
        coerced = coerce_ndjson(ndjson(rows, ascii=ascii), schema, rules)
        coerced.batch.validate(full=True)
        check_widening(schema, coerced.schema, room)
        schema = coerced.schema
        assert list(map(strict, merged(coerced))) == [strict(expected(row, schema)) for row in rows]
        spilled = coerced.batch.column(OVERFLOW_COLUMN).drop_null() if OVERFLOW_COLUMN in schema else []
        assert coerced.overflowed == sum(len(decode(one.as_py())) for one in spilled)


@given(SCHEMAS, ROWS, st.integers(0, 4))
@settings(max_examples=75, deadline=None)
def test_rows_and_ndjson_of_the_same_values_give_the_same_batch(
    schema: Schema, rows: list[dict[str, Any]], room: int
) -> None:
    rules = Rules(max_new_columns=room)
    assert coerce_rows(rows, schema, rules) == coerce_ndjson(ndjson(rows), schema, rules)


def plainly(data: bytes, schema: Schema, rules: Rules = RULES) -> Coerced | None:
    """Read lines without the loops, or None if they are left to those."""
    plain_reader._read = 0
    rows = few_rows(data)
    try:
        return None if rows is None else coerce_rows(rows, schema, rules)
    except (InvalidInputError, SchemaError):
        return None


@given(SCHEMAS, ROWS, st.integers(0, 4), st.booleans())
@settings(max_examples=60, deadline=None)
def test_a_few_lines_read_the_plain_way_are_as_the_loops_read_them(
    schema: Schema, rows: list[dict[str, Any]], room: int, ascii: bool
) -> None:
    data, rules = ndjson(rows, ascii=ascii), Rules(max_new_columns=room)
    if (found := plainly(data, schema, rules)) is not None:
        assert found == coerce_ndjson(data, schema, rules)
        assert infer_schema(data) == infer_schema(pa.py_buffer(data))  # a buffer is for the loops


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_a_few_lines_that_were_mutated_are_read_as_the_loops_read_them(data: st.DataObject) -> None:
    line = '{"a":"x\\n\\\\y","b":{"c":[1,-2.5,null,true]},"d":1234,"é":false,"t":"2026-01-01T00:00:00.5+01:00"}\n'
    text = bytearray(line.encode() * 2)
    for _ in range(data.draw(st.integers(0, 3))):
        at, size = data.draw(st.integers(0, len(text))), data.draw(st.integers(0, 2))
        text[at : at + size] = data.draw(
            st.sampled_from(list(b'"\\{}[]:,.-+eE019\n\r\t\xc3\xa9 n')).map(lambda b: bytes([b]))
        )
    schema = Schema.of({"t": "timestamp", "d": "real", "b": "dynamic"})
    if (found := plainly(bytes(text), schema)) is not None:
        assert found == coerce_ndjson(bytes(text), schema, RULES)


def complaint(read: Callable[[], object]) -> tuple[str, Any, Any] | None:
    try:
        read()
    except InvalidInputError as error:
        return error.message, error.facts.get("line"), error.facts.get("column")
    return None


@pytest.mark.parametrize(
    "line",
    [
        *('{"v":.5}', '{"v":"\\x"}', '{"v":"a\tb"}', '{"v":"abc', '{"v":1}x', '{"v":1}{"v":2}', '{"é€😀":1 2}'),
        *("{", '{"a"', '{"a":', '{"a":1', '{"a":1,', '{"a":1,}', "{a:1}", '{"a":[1,]}', '{"a":nul}', '{"a":1]'),
        *("[1]", "  3", "null", '"x"'),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_line_is_told_without_the_loops_as_by_them(
    line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = f'{{"v":1}}\r\n\n{{"v":"\\ud83d"}}\n{line}\n{{"v":3}}\n'.encode()
    require_json(data)  # who has loops does not ask
    monkeypatch.setattr(plain_reader, "is_waiting", lambda: True)
    told = complaint(lambda: require_json(data, 7))
    assert told is not None
    assert told == complaint(
        lambda: coerce_ndjson(data.replace(b"ud83d", b"u0041"), Schema.of({"v": "real"}), RULES, first_line=7)
    )


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_no_line_is_called_wrong_that_the_loops_read(data: st.DataObject) -> None:
    text = bytearray('{"a":"x\\n\\\\y","b":{"c":[1,-2.5e3,null,true]},"é":false}\n'.encode() * 2)
    for _ in range(data.draw(st.integers(1, 3))):
        at, size = data.draw(st.integers(0, len(text))), data.draw(st.integers(0, 2))
        text[at : at + size] = data.draw(
            st.sampled_from(list(b'"\\{}[]:,.-+eE019\n\r\t\xc3\xa9 n\xef\xbb\xbf')).map(lambda b: bytes([b]))
        )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain_reader, "is_waiting", lambda: True)
        told = complaint(lambda: require_json(bytes(text)))
    if told is not None:
        by_loops = complaint(lambda: coerce_ndjson(bytes(text), ANY_COLUMNS, RULES))
        assert by_loops is not None
        assert by_loops[1] <= told[1]


@pytest.mark.parametrize(
    "line",
    [
        '{"a":1,"a":2}',
        '{"a":-0}',
        '{"a":1e5}',
        '{"a":9223372036854775808}',
        '{"a":NaN}',
        '{"a":"\\ud800"}',
        '{"a":"\\\\ud83d\\ude00"}',
        "[]",
        "{",
    ],
)
def test_what_is_out_of_the_ordinary_is_left_to_the_loops(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_reader, "_read", 0)
    assert few_rows(b'{"a":1}\n\n{"a":"\\""}\r\n') == [{"a": 1}, {"a": '"'}]
    assert few_rows(line.encode()) is None
    assert few_rows(b'{"a":1}\n' * 10_000) is None
    monkeypatch.setattr(plain_reader, "_read", plain_reader.PROCESS_BYTES)
    assert few_rows(b'{"a":1}\n') is None


@pytest.mark.parametrize(
    "value", [2**63 - 1, -(2**63), 1234567890123456789, "\U0001f600", "\\\U0001f600\\ud83d", "x\\"]
)
def test_large_numbers_and_letters_written_as_pairs_do_not_wait_for_the_loops(value: Any) -> None:
    data = ndjson([{"a": value}], ascii=True)
    found = plainly(data, Schema.of({"b": "long"}))
    assert found is not None
    assert found == coerce_ndjson(data, Schema.of({"b": "long"}), RULES)


@given(SCHEMAS, ROWS)
@settings(max_examples=75, deadline=None)
def test_a_batch_of_the_table_s_own_passes_as_it_is(schema: Schema, rows: list[dict[str, Any]]) -> None:
    made = coerce_rows(rows, schema, RULES)
    again = coerce_arrow(marked(made), made.schema, RULES)
    assert (again.batch, again.schema) == (made.batch, made.schema)


def test_a_decimal_in_a_dynamic_column_is_an_equal_number_or_text() -> None:
    values = [Decimal("0E-9"), Decimal("1.5"), Decimal("12345678901234567890.123456789")]
    rows = coerce_rows([{"v": value} for value in values], Schema.of({"v": "dynamic"}), RULES)
    assert [decode(value) for value in rows.batch["v"].to_pylist()] == [0, 1.5, str(values[2])]


@given(st.sampled_from([*KINDS, "vector(2)"]), st.data())
@settings(max_examples=150, deadline=None)
def test_arrow_columns_and_rows_of_the_same_values_give_the_same_batch(kind: str, data: st.DataObject) -> None:
    values = data.draw(
        st.sampled_from(
            [
                (pa.int64(), st.integers(-(2**63), 2**63 - 1) | st.integers(-(10**12), 10**12)),
                (pa.uint64(), st.integers(0, 2**64 - 1)),
                (pa.int8(), st.integers(-128, 127)),
                (pa.float64(), st.floats(allow_nan=False) | st.sampled_from([1.5e9, 0.0, -0.0, 5.0])),
                (pa.bool_(), st.booleans()),
                (pa.string(), st.sampled_from(TIMES) | st.text(st.characters(codec="utf-8"), max_size=5)),
                (pa.binary(), st.binary(max_size=3)),
                (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(UTC))),
                (pa.timestamp("ms"), st.datetimes(datetime(1, 1, 2), datetime(9999, 1, 1)).map(_whole_seconds)),
                (pa.date32(), st.dates()),
                (pa.decimal128(38, 9), st.decimals(-(10**20), 10**20, places=9)),
                (pa.list_(pa.float64()), st.lists(st.floats(-9, 9), min_size=2, max_size=2)),
                (pa.list_(pa.int64()), st.lists(st.none() | st.integers(0, 9), max_size=3)),
                (
                    pa.struct({"a": pa.int64(), "b": pa.string()}),
                    st.fixed_dictionaries({"a": st.just(1), "b": st.none()}),
                ),
            ]
        ).flatmap(lambda pair: st.lists(st.none() | pair[1], max_size=6).map(lambda held: pa.array(held, pair[0])))
    )
    schema, table = Schema.of({"v": kind}), pa.table({"v": values})
    rows = [{"v": value} for value in values.to_pylist()]
    assert outcome(coerce_arrow, table, schema) == outcome(coerce_rows, rows, schema)
    sliced = pa.concat_tables([pa.table({"v": values[1:]}), table]).slice(max(len(values) - 1, 0))
    assert outcome(coerce_arrow, sliced, schema) == outcome(coerce_rows, rows, schema)


@pytest.mark.parametrize(
    ("kind", "value", "fits"),
    [
        ("int", 5, 5),
        ("int", "5", None),
        ("int", True, None),
        ("long", -(2**63), -(2**63)),
        ("long", 2**63, None),
        ("long", 5.0, None),
        ("real", 5, 5.0),
        ("real", 2**53 + 1, None),
        ("real", 2**70, 2.0**70),
        ("real", "1.5", None),
        ("bool", True, True),
        ("bool", 1, None),
        ("bool", "true", None),
        ("string", "x", "x"),
        ("string", 5, "5"),
        ("string", -0.5, "-0.5"),
        ("string", False, "false"),
        ("string", ["x"], None),
        ("timestamp", "2026-01-01T00:00:00Z", NEW_YEAR),
        ("timestamp", 1767225600, NEW_YEAR),
        ("timestamp", "yesterday", None),
        ("timestamp", True, None),
        ("timestamp", {"a": 1}, None),
        ("dynamic", {"a": [1, None, "x"]}, cbor2.dumps({"a": [1, None, "x"]}, canonical=True)),
        ("dynamic", 5, b"\x05"),
        ("dynamic", 5.0, b"\xf9\x45\x00"),
    ],
)
def test_a_value_is_in_its_column_if_it_fits_else_in_the_overflow_map(kind: str, value: Any, fits: Any) -> None:
    schema = Schema.of({"v": kind, "other": "long"})
    for coerced in both([{"v": value}, {"other": 1}, {"v": None}], schema):
        assert coerced.batch.column("v").to_pylist() == [fits, None, None]
        if fits is not None:
            assert (coerced.schema, coerced.overflowed) == (schema, 0)
        else:
            assert coerced.schema == schema.widen([(OVERFLOW_COLUMN, DataType("dynamic"))])
            held = [one and decode(one) for one in coerced.batch.column(OVERFLOW_COLUMN).to_pylist()]
            assert strict(held) == strict([{"v": value}, None, None])
            assert coerced.overflowed == 1


def test_a_column_of_whole_numbers_becomes_real_when_others_come_and_it_stays_exact() -> None:
    rows: list[dict[str, Any]] = [{"n": 1}, {"n": 0.5}, {"n": 2**53 + 1}, {"n": 2**60}]
    for kind in ("int", "long"):
        for coerced in both(rows, Schema.of({"n": kind}), Rules(exact={"n"})):
            assert (coerced.schema["n"].type, coerced.overflowed) == (DataType("real"), 1)
            assert merged(coerced) == [{"n": 1.0}, {"n": 0.5}, {"n": 2**53 + 1}, {"n": 2.0**60}]
    for coerced in both(rows, Schema.of({"n": "long"})):
        assert (coerced.schema["n"].type, coerced.overflowed) == (DataType("long"), 1)
        assert merged(coerced) == rows
    arrow = coerce_arrow(pa.table({"n": [0.5, None, 3.0]}), Schema.of({"n": "long"}), Rules(exact={"n"}))
    assert (str(arrow.schema["n"].type), arrow.batch.column("n").to_pylist()) == ("real", [0.5, None, 3.0])


def test_an_int_column_becomes_long_when_a_value_needs_it() -> None:
    schema = Schema.of({"n": "int"})
    for coerced in both([{"n": 1}, {"n": 2**31}, {"n": 2**63}], schema):
        assert coerced.schema == Schema(
            (Column(1, "n", DataType("long")), Column(2, OVERFLOW_COLUMN, DataType("dynamic"))), 2
        )
        assert coerced.batch.column("n").to_pylist() == [1, 2**31, None]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2], "long"),
        ([1, 2.5], "real"),
        ([2.5, 2**70, 3], "real"),
        ([1, 2**63], "dynamic"),
        ([True, False], "bool"),
        (["x", "y"], "string"),
        (["2026-01-01T00:00:00Z"], "string"),
        ([1, "x"], "dynamic"),
        ([1, True], "dynamic"),
        ([1, [1]], "dynamic"),
        ([{"a": 1}], "dynamic"),
        ([[1]], "dynamic"),
    ],
)
def test_an_unknown_key_becomes_a_column_of_the_type_that_holds_its_values(values: list[Any], kind: str) -> None:
    schema = Schema.of({"k": "long"})
    for coerced in both([{"k": 1}, *({"new": value} for value in values), {"new": None}], schema):
        assert coerced.schema == schema.widen([("new", DataType.parse(kind))])
        assert [row.get("new") for row in merged(coerced)] == [None, *values, None]


def test_new_columns_stop_at_the_limits_of_the_call_and_of_the_table() -> None:
    schema, rows = Schema.of({"k": "long"}), [{f"n{at}": at for at in range(10)}]
    for rules, added in ((Rules(max_new_columns=3), 3), (Rules(max_columns=6), 4), (Rules(max_columns=1), 0)):
        for coerced in both(rows, schema, rules):
            assert coerced.schema.names == ("k", *(f"n{at}" for at in range(added)), OVERFLOW_COLUMN)
            assert coerced.overflowed == 10 - added
            assert merged(coerced) == rows


def test_keys_that_cannot_name_a_column_go_to_the_overflow_map() -> None:
    schema, rows = Schema.of({"k": "long"}), [{name: at for at, name in enumerate(ODD_NAMES)}]
    for coerced in both(rows, schema):
        assert coerced.schema.names == ("k", "\x7f", "é", 'quo"te', "back\\slash", "a.b", OVERFLOW_COLUMN)
        assert merged(coerced) == rows


def test_a_key_named_as_the_overflow_column_stays_apart_from_what_overflows() -> None:
    schema = Schema.of({"n": "long", OVERFLOW_COLUMN: "dynamic"})
    rows: list[dict[str, Any]] = [{"n": "x", OVERFLOW_COLUMN: {"n": 5}}, {OVERFLOW_COLUMN: 7}, {"n": 1}]
    for coerced in both(rows, schema):
        held = [one and decode(one) for one in coerced.batch.column(OVERFLOW_COLUMN).to_pylist()]
        assert held == [{"n": "x", OVERFLOW_COLUMN: {"n": 5}}, {OVERFLOW_COLUMN: 7}, None]
        assert coerced.schema is schema


def test_an_overflow_column_that_is_not_dynamic_is_refused() -> None:
    with pytest.raises(SchemaError) as caught:
        coerce_ndjson(b"{}", Schema.of({OVERFLOW_COLUMN: "string"}), RULES)
    assert caught.value.kind == "bad_overflow"
    renamed = coerce_ndjson(b'{"n":[1]}', Schema.of({OVERFLOW_COLUMN: "string", "n": "string"}), Rules(overflow="rest"))
    assert renamed.schema.names == (OVERFLOW_COLUMN, "n", "rest")


@given(st.lists(st.sampled_from(TIMES) | st.text("0123456789-:.TZ+ ", max_size=30), min_size=1, max_size=10))
@settings(max_examples=100, deadline=None)
def test_times_in_text_are_read_as_the_oracle_reads_them(texts: list[str]) -> None:
    check_times(texts)


@given(
    st.lists(
        st.tuples(
            st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1)),
            st.sampled_from("Tt "),
            st.text("0123456789", max_size=12),
            st.sampled_from(["", "Z", "z", "+00:00", "-00:00", "+05:30", "-2359", "+14"]),
        ),
        min_size=1,
    )
)
@settings(max_examples=75, deadline=None)
def test_times_in_rfc3339_are_floored_to_microseconds(parts: list[tuple[datetime, str, str, str]]) -> None:
    check_times(
        [
            f"{at:%Y}".rjust(4, "0")
            + f"{at:-%m-%d}{between}{at:%H:%M:%S}"
            + (f".{fraction}" if fraction else "")
            + offset
            for at, between, fraction, offset in parts
        ]
    )


@given(
    st.lists(
        st.integers(-(10**20), 10**20)
        | st.tuples(st.integers(-(10**19), 10**19), st.integers(0, 12)).map(lambda t: round(t[0] / 10 ** t[1], 7))
        | st.floats(-1e19, 1e19)
        | st.sampled_from(
            [sign * (10**power + step) for sign in (1, -1) for power in (11, 14, 16) for step in (-1, 0, 1)]
        )
        | st.sampled_from(
            [1e11, 1e14, 1e16, 1e-7, -1e-7, 0.0, -0.0, 1700000000.123456, 1700000000.1234567, 1.7e18, -1.5]
        ),
        min_size=1,
        max_size=20,
    )
)
@settings(max_examples=75, deadline=None)
def test_times_in_numbers_take_their_unit_from_their_size(numbers: list[float]) -> None:
    check_times(numbers)


def test_times_in_numbers_keep_every_digit_that_is_written() -> None:
    text = b'{"t":1700000000.123456}\n{"t":1.700000000123456e9}\n{"t":17000000001234567e-7}\n{"t":-0.0000001}\n'
    text += b'{"t":1700000000123.4567}\n{"t":1700000000.12345600000000000001}\n{"t":-1700000000.12345600000000000001}\n'
    found = coerce_ndjson(text, Schema.of({"t": "timestamp"}), RULES).batch.column("t").cast(pa.int64()).to_pylist()
    whole = 1_700_000_000_123_456
    assert found == [whole, whole, whole, -1, whole, whole, -whole - 1]


def test_times_with_escapes_are_times() -> None:
    found = coerce_ndjson(rb'{"t":"2026-01-01T00:00:00\u005a"}', Schema.of({"t": "timestamp"}), Rules(time="t"))
    assert found.batch.column("t").to_pylist() == [NEW_YEAR]


@pytest.mark.parametrize("bad", [None, "yesterday", True, [1], 10**30, {"a": 1}, 1e300])
def test_a_row_without_a_time_in_the_time_column_is_an_error_that_names_it(bad: Any) -> None:
    schema, rows = Schema.of({"t": "timestamp", "n": "long"}), [{"t": 1}, {"t": bad, "n": 1}, {"t": 3}]
    text = ndjson(rows).replace(b"\n", b"\n\n")
    with pytest.raises(InvalidInputError) as caught:
        coerce_ndjson(text, schema, Rules(time="t"), first_line=10)
    assert (caught.value.kind, caught.value.facts["line"], caught.value.facts["column"]) == ("bad_time", 12, "t")
    with pytest.raises(InvalidInputError) as caught:
        coerce_rows(rows, schema, Rules(time="t"))
    assert (caught.value.kind, caught.value.facts["row"], caught.value.facts["column"]) == ("bad_time", 2, "t")
    assert coerce_ndjson(text, schema, RULES).batch.num_rows == 3


def test_a_time_column_must_be_in_the_schema() -> None:
    with pytest.raises(SchemaError) as caught:
        coerce_rows([], Schema.of({"n": "long"}), Rules(time="t"))
    assert caught.value.kind == "bad_time_column"


def test_a_column_that_needs_values_and_lacks_one_is_an_error() -> None:
    schema = Schema((Column(1, "n", DataType("long"), nullable=False), Column(2, "m", DataType("long"))))
    several: list[list[dict[str, Any]]] = [[{"n": 1}, {"m": 1}], [{"n": 1}, {"n": "x"}]]
    for rows in several:
        with pytest.raises(InvalidInputError) as caught:
            coerce_ndjson(ndjson(rows), schema, RULES)
        assert (caught.value.kind, caught.value.facts["line"], caught.value.facts["column"]) == ("null_value", 2, "n")
    assert coerce_ndjson(b'{"n":1}', schema, RULES).batch.schema == schema.arrow


def test_vectors_of_the_right_length_are_kept_as_floats() -> None:
    schema = Schema.of({"e": "vector(3)"})
    rows: list[dict[str, Any]] = [{"e": [1, 2.5, -0.1]}, {}, {"e": [2**63, 10**25, 1e-50]}, {"e": [0.1, 1e38, 3]}]
    for coerced in both(rows, schema):
        expected = [row.get("e") and [float(np.float32(value)) for value in row["e"]] for row in rows]
        assert coerced.batch.column("e").to_pylist() == expected
        assert coerced.schema is schema
    spaced = coerce_ndjson(b'{"e": [ 1 ,\t2 , 3.123456789012345678901234567890 ] }', schema, RULES)
    assert spaced.batch.column("e").to_pylist() == [[1, 2, float(np.float32(3.1234567890123457))]]


@pytest.mark.parametrize(
    "bad",
    [
        [],
        [1],
        [1, 2],
        [1, 2, 3, 4],
        [1, 2, "3"],
        [1, None, 3],
        [1, True, 3],
        [1, 2, [3]],
        5,
        "x",
        {"a": 1},
        [1, 2, 1e39],
        [1, 2, 10**400],
    ],
)
def test_a_vector_of_another_length_or_of_no_numbers_is_an_error_that_names_it(bad: Any) -> None:
    schema, rows = Schema.of({"e": "vector(3)"}), [{"e": [1, 2, 3]}, {"e": bad}]
    with pytest.raises(SchemaError) as caught:
        coerce_ndjson(ndjson(rows), schema, RULES, first_line=7)
    assert (caught.value.kind, caught.value.facts["line"], caught.value.facts["column"]) == ("vector_length", 8, "e")
    with pytest.raises(SchemaError) as caught:
        coerce_rows(rows, schema, RULES)
    assert (caught.value.kind, caught.value.facts["row"], caught.value.facts["column"]) == ("vector_length", 2, "e")


def test_rows_may_have_what_json_has_not() -> None:
    berlin = timezone(timedelta(hours=1))
    key = uuid.UUID(int=5)
    row = {
        "t": datetime(2026, 1, 1, 1, tzinfo=berlin),
        "d": date(2026, 1, 1),
        "n": np.int32(5),
        "r": np.float32(0.5),
        "b": np.bool_(True),
        "s": np.str_("text"),
        "u": key,
        "m": Decimal("12.50"),
        "i": Decimal(5),
        "big": Decimal("0.12345678901234567890"),
        "nan": math.nan,
        "raw": b"\x00\x01",
        "huge": 2**70,
        "none": np.datetime64("NaT"),
        "ns": np.datetime64("2026-01-01T00:00:00.000000999", "ns"),
        "list": (1, np.float64(2.5), Decimal("1.5"), {"at": datetime(2026, 1, 1)}),
        "array": np.array([1, 2]),
    }
    coerced = coerce_rows([row], Schema.of({"k": "long"}), RULES)
    kinds = {column.name: str(column.type) for column in coerced.schema}
    assert kinds == {
        "k": "long",
        "t": "timestamp",
        "d": "date",
        "n": "long",
        "r": "real",
        "b": "bool",
        "s": "string",
        "u": "string",
        "m": "decimal(38,18)",
        "i": "decimal(38,18)",
        "big": "string",
        "nan": "real",
        "raw": "binary",
        "ns": "timestamp",
        **dict.fromkeys(("huge", "list", "array"), "dynamic"),
    }
    [found] = merged(coerced)
    assert math.isnan(found.pop("nan"))
    assert found == {
        "t": NEW_YEAR,
        "d": NEW_YEAR.date(),
        "n": 5,
        "r": 0.5,
        "b": True,
        "s": "text",
        "u": str(key),
        "m": Decimal("12.5"),
        "i": Decimal(5),
        "big": "0.12345678901234567890",
        "raw": b"\x00\x01",
        "huge": 2**70,
        "ns": NEW_YEAR,
        "list": [1, 2.5, 1.5, {"at": NEW_YEAR}],
        "array": [1, 2],
    }


@pytest.mark.parametrize(
    ("rows", "kind"),
    [
        ([{}, [1]], "bad_row"),
        ([{}, {5: 1}], "bad_key"),
        ([{}, {"\ud800": 1}], "bad_text"),
        ([{}, {"s": "\ud800"}], "bad_text"),
        ([{}, {"v": object()}], "bad_value"),
        ([{}, {"v": timedelta(1)}], "bad_value"),
        ([{}, {"v": {"a": object()}}], "bad_value"),
        ([{}, {"v": np.datetime64("20000-01-01", "D")}], "bad_time"),
    ],
)
def test_a_row_that_cannot_be_kept_is_an_error_that_names_it(rows: list[Any], kind: str) -> None:
    with pytest.raises(InvalidInputError) as caught:
        coerce_rows(rows, Schema.of({"s": "string"}), RULES)
    assert (caught.value.kind, caught.value.facts["row"]) == (kind, 2)


@pytest.mark.parametrize(
    ("array", "kind", "fits", "spilled"),
    [
        (pa.array([1, None, -128], pa.int8()), "int", [1, None, -128], {}),
        (pa.array([1, None, 2**16 - 1], pa.uint16()), "int", [1, None, 2**16 - 1], {}),
        (pa.array([1, 2**32 - 1], pa.uint32()), "long", [1, 2**32 - 1], {}),
        (pa.array([1, 2**64 - 1, 2**63], pa.uint64()), "long", [1, None, None], {1: 2**64 - 1, 2: 2**63}),
        (pa.array([5.0, None]), "long", [None, None], {0: 5.0}),
        (pa.array([0.5, None, math.inf], pa.float16()), "real", [0.5, None, math.inf], {}),
        (pa.array([0.5], pa.float32()), "real", [0.5], {}),
        (pa.array([1, 2**53 + 1, None]), "real", [1.0, None, None], {1: 2**53 + 1}),
        (pa.array([2**63, 2**64 - 1, 3], pa.uint64()), "real", [2.0**63, None, 3.0], {1: 2**64 - 1}),
        (pa.array([2**63 - 1, -(2**63)]), "real", [None, -(2.0**63)], {0: 2**63 - 1}),
        (pa.array([True, None]), "bool", [True, None], {}),
        (pa.array([1, None]), "bool", [None, None], {0: 1}),
        (pa.array(["x", None], pa.large_string()), "string", ["x", None], {}),
        (pa.array(["x", None], pa.string_view()), "string", ["x", None], {}),
        (pa.array(["x", None, "x"]).dictionary_encode(), "string", ["x", None, "x"], {}),
        (pa.RunEndEncodedArray.from_arrays([2, 3], ["x", None]), "string", ["x", "x", None], {}),
        (pa.array([1, None]), "string", ["1", None], {}),
        (pa.array([0.5, math.nan, None, 1e20]), "string", ["0.5", "NaN", None, "1e+20"], {}),
        (pa.array([True, None]), "string", ["true", None], {}),
        (pa.array([time(1, 2, 3, 4)]), "string", ["01:02:03.000004"], {}),
        (pa.array([-1, 1999, None], pa.timestamp("ns")), "timestamp", [-1, 1, None], {}),
        (pa.array([-1, 2], pa.timestamp("us", "Asia/Tokyo")), "timestamp", [-1, 2], {}),
        (pa.array([-1, 2], pa.timestamp("ms")), "timestamp", [-1000, 2000], {}),
        (pa.array([-1, None], pa.timestamp("s")), "timestamp", [-1_000_000, None], {}),
        (pa.array([-1, None], pa.date32()), "timestamp", [-86_400_000_000, None], {}),
        (pa.array([86_400_000], pa.date64()), "timestamp", [86_400_000_000], {}),
        (pa.array(["1970-01-02", "x", None]), "timestamp", [86_400_000_000, None, None], {1: "x"}),
        (pa.array([5, 10**12, None]), "timestamp", [5_000_000, 10**15, None], {}),
        (pa.array([2**64 - 1], pa.uint64()), "timestamp", [None], {0: 2**64 - 1}),
        (pa.array([1.5, math.nan, None]), "timestamp", [1_500_000, None, None], {1: math.nan}),
        (pa.array([Decimal("1.5"), None]), "timestamp", [1_500_000, None], {}),
        (pa.array([Decimal("5"), None]), "long", [5, None], {}),
        (pa.array([Decimal("5.0"), Decimal("2.5")]), "long", [None, None], {0: 5.0, 1: 2.5}),
        (
            pa.array([Decimal("0.10"), Decimal("12345678901234567.89")]),
            "real",
            [0.1, None],
            {1: "12345678901234567.89"},
        ),
        (pa.array([Decimal("0.10")]), "string", ["0.10"], {}),
        (pa.array([b"x", None]), "string", [None, None], {0: b"x"}),
        (pa.array([None, None], pa.null()), "long", [None, None], {}),
    ],
)
def test_arrow_columns_are_cast_without_loss(
    array: pa.Array, kind: str, fits: list[Any], spilled: dict[int, Any]
) -> None:
    coerced = coerce_arrow(pa.table({"v": array}), Schema.of({"v": kind}), RULES)
    coerced.batch.validate(full=True)
    column = coerced.batch.column("v")
    assert (column.cast(pa.int64()) if kind == "timestamp" else column).to_pylist() == fits
    held = coerced.batch.column(OVERFLOW_COLUMN).to_pylist() if OVERFLOW_COLUMN in coerced.schema else []
    assert strict({at: decode(one)["v"] for at, one in enumerate(held) if one}) == strict(spilled)
    assert coerced.overflowed == len(spilled)


def test_an_arrow_column_too_wide_for_an_int_makes_it_long() -> None:
    coerced = coerce_arrow(pa.table({"v": [1, 2**31]}), Schema.of({"v": "int"}), RULES)
    assert (coerced.schema, coerced.batch.column("v").to_pylist()) == (
        Schema.of({"v": "int"}).widen([("v", DataType("long"))]),
        [1, 2**31],
    )
    assert coerce_arrow(pa.table({"v": [1, -(2**31)]}), Schema.of({"v": "int"}), RULES).schema == Schema.of(
        {"v": "int"}
    )


def test_nested_arrow_values_become_cbor() -> None:
    at = pa.array([-1], pa.timestamp("ns"))
    arrays = {
        "struct": pa.StructArray.from_arrays([at, pa.array([[1, None]])], ["at", "list"]),
        "list": pa.array([[{"a": 1}, None]]),
        "map": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
        "pairs": pa.array([[(5, 1), (6, 2)]], pa.map_(pa.int64(), pa.int64())),
        "twice": pa.array([[("k", 1), ("k", 2)]], pa.map_(pa.string(), pa.int64())),
        "bytes": pa.array([b"\x01"]),
        "fixed": pa.array([b"ab"], pa.binary(2)),
        "decimals": pa.array([[Decimal("1.50"), Decimal("1.25")]]),
        "number": pa.array([5]),
        "date": pa.array([date(2026, 1, 1)]),
    }
    expected = {
        "struct": {"at": EPOCH - timedelta(microseconds=1), "list": [1, None]},
        "list": [{"a": 1}, None],
        "map": {"k": 1},
        "pairs": [[5, 1], [6, 2]],
        "twice": [["k", 1], ["k", 2]],
        "bytes": b"\x01",
        "fixed": b"ab",
        "decimals": [1.5, 1.25],
        "number": 5,
        "date": "2026-01-01",
    }
    table = pa.table(arrays)
    known = coerce_arrow(table, Schema.of(dict.fromkeys(arrays, "dynamic")), RULES)
    assert merged(known) == [expected]
    unknown = coerce_arrow(table, Schema.of({"k": "long"}), RULES)
    assert unknown.schema.names == ("k", *arrays)
    stored = unknown.batch.to_pylist()[0]
    assert {name: decode(stored[name]) for name in arrays if name not in ("number", "date")} == {
        name: value for name, value in expected.items() if name not in ("number", "date")
    }


def test_unknown_arrow_columns_become_columns_of_their_type() -> None:
    table = pa.table(
        {
            "i": pa.array([1], pa.int16()),
            "l": pa.array([1], pa.uint64()),
            "r": pa.array([1.5], pa.float32()),
            "b": [True],
            "s": pa.array(["x"], pa.large_string()),
            "t": pa.array([0], pa.timestamp("ns")),
            "e": pa.array([[1, 2]], pa.list_(pa.float32(), 2)),
            "d9": pa.array([Decimal("1.5")], pa.decimal128(9, 2)),
            "d30": pa.array([Decimal("1.5")], pa.decimal128(30, 2)),
            "d18": pa.array([Decimal(5)], pa.decimal128(18, 0)),
            "n": pa.nulls(1),
        }
    )
    coerced = coerce_arrow(table, Schema.of({"k": "long"}), RULES)
    assert {column.name: str(column.type) for column in coerced.schema} == {
        "k": "long",
        "i": "int",
        "l": "long",
        "r": "real",
        "b": "bool",
        "s": "string",
        "t": "timestamp_ntz",
        "e": "vector(2)",
        "d9": "decimal(9,2)",
        "d30": "decimal(30,2)",
        "d18": "decimal(18,0)",
    }
    assert merged(coerced) == [
        {"i": 1, "l": 1, "r": 1.5, "b": True, "s": "x", "t": EPOCH.replace(tzinfo=None), "e": [1, 2],
         "d9": Decimal("1.5"), "d30": Decimal("1.5"), "d18": Decimal(5)}
    ]  # fmt: skip
    assert coerce_arrow(table, coerced.schema, RULES).batch == coerced.batch


def test_arrow_lists_become_vectors_where_the_column_is_one() -> None:
    schema = Schema.of({"e": "vector(2)"})
    for kind in (pa.list_(pa.float64()), pa.large_list(pa.int32()), pa.list_(pa.float32(), 2), pa.list_(pa.float16())):
        table = pa.table({"e": pa.array([[1, 2], None, [3, 4]], kind)}).slice(1)
        assert coerce_arrow(table, schema, RULES).batch.column("e").to_pylist() == [None, [3, 4]]
    for bad in ([[1.0]], [[1.0, None]], [[1.0, 1e39]], [["x", "y"]], [1.5]):
        with pytest.raises(SchemaError) as caught:
            coerce_arrow(pa.table({"e": [None, *bad]}), schema, RULES)
        assert (caught.value.kind, caught.value.facts["row"], caught.value.facts["column"]) == ("vector_length", 2, "e")


def test_a_binary_column_is_bytes_unless_its_field_says_that_it_is_dynamic() -> None:
    schema, value = Schema.of({"v": "dynamic"}), cbor2.dumps({"a": 1})
    plain = pa.table({"v": [value], OVERFLOW_COLUMN: [value]})
    assert merged(coerce_arrow(plain, schema, RULES)) == [{"v": value, OVERFLOW_COLUMN: value}]
    fields = [pa.field(name, pa.binary(), metadata=DYNAMIC_FIELD) for name in plain.column_names]
    carried = coerce_arrow(plain.cast(pa.schema(fields)), schema, RULES)
    assert merged(carried) == [{"v": {"a": 1}, "a": 1}]
    united = coerce_arrow(plain.cast(pa.schema(fields)).append_column("w", pa.array([[1]])), schema, RULES)
    assert merged(united) == [{"v": {"a": 1}, "a": 1, "w": [1]}]


def test_arrow_data_that_cannot_be_taken_is_an_error() -> None:
    schema = Schema.of({"v": "timestamp"})
    with pytest.raises(InvalidInputError, match="occurs twice"):
        coerce_arrow(pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["v", "v"]), schema, RULES)
    with pytest.raises(SchemaError, match="unsupported arrow type"):
        coerce_arrow(pa.table({"v": pa.array([1], pa.duration("s"))}), schema, RULES)
    with pytest.raises(InvalidInputError, match="time out of range row=2"):
        coerce_arrow(pa.table({"v": pa.array([0, 2**62], pa.timestamp("s"))}), schema, RULES)


def test_empty_input_of_every_sort_gives_an_empty_batch() -> None:
    schema = Schema.of({kind: kind for kind in KINDS} | {"e": "vector(2)"})
    for coerced in (
        coerce_ndjson(b"", schema, Rules(time="timestamp")),
        coerce_rows([], schema, Rules(time="timestamp")),
        coerce_arrow(pa.table({"new": pa.array([], pa.int64())}), schema, RULES),
        coerce_arrow(schema.arrow.empty_table(), schema, RULES),
    ):
        assert coerced.batch.num_rows == 0
        assert coerced.batch.schema == coerced.schema.arrow


@pytest.mark.parametrize(
    ("rows", "types", "found"),
    [
        (
            [{"ts": "2026-01-01T00:00:00Z", "n": 1}, {"ts": "2026-01-01T00:00:00Z", "n": 2.5}],
            {"ts": "timestamp", "n": "real"},
            "ts",
        ),
        ([{"ts": 1767225600123, "o": {"a": 1}, "l": [1]}], {"ts": "timestamp", "o": "dynamic", "l": "dynamic"}, "ts"),
        ([{"ts": "2026-01-01", "time": "noon"}], {"ts": "timestamp", "time": "string"}, "ts"),
        ([{"time": 12.5, "x": 1}], {"time": "real", "x": "long"}, None),
        ([{"time": 1767225600}, {"x": "y"}], {"time": "long", "x": "string"}, None),
        (
            [{"@timestamp": "2026-01-01", "date": "2026-01-01"}],
            {"@timestamp": "timestamp", "date": "string"},
            "@timestamp",
        ),
        ([{"mixed": 1, "b": True}, {"mixed": "x", "b": False}], {"mixed": "dynamic", "b": "bool"}, None),
        ([{" bad ": 1}], {OVERFLOW_COLUMN: "dynamic"}, None),
        ([{"huge": 2**70, "none": None}], {"huge": "dynamic"}, None),
    ],
)
def test_a_schema_is_inferred_from_the_values_of_a_sample(
    rows: list[dict[str, Any]], types: dict[str, str], found: str | None
) -> None:
    assert infer_schema(rows) == (Schema.of(types), found)
    assert infer_schema(ndjson(rows)) == (Schema.of(types), found)


def test_a_schema_is_inferred_from_arrow_types() -> None:
    table = pa.table(
        {"ts": pa.array([0], pa.timestamp("ns")), "s": [{"a": 1}], "n": pa.array([1], pa.int8()), "b": [b"x"]}
    )
    found = Schema.of({"ts": "timestamp", "s": "struct<a:long>", "n": "int", "b": "binary"})
    assert infer_schema(table) == (found, "ts")


def test_a_named_time_column_must_have_times() -> None:
    rows = [{"when": 1767225600, "ts": "2026-01-01"}]
    assert infer_schema(rows, time="when") == (Schema.of({"when": "timestamp", "ts": "string"}), "when")
    for time_name in ("other", "n"):
        with pytest.raises(InvalidInputError) as caught:
            infer_schema([*rows, {"n": "x"}], time=time_name)
        assert caught.value.kind == "bad_time"
    with pytest.raises(InvalidInputError, match="no rows"):
        infer_schema(b"\n")


def outcome(coerce: Callable[..., Coerced], data: Any, schema: Schema) -> Any:
    """Return what a coercion returns, or the kind and the facts of its error."""
    try:
        coerced = coerce(data, schema, RULES)
    except SchemaError as error:
        return error.kind, error.facts
    coerced.batch.validate(full=True)
    return coerced.batch.to_pylist(), coerced.schema, coerced.overflowed


def _whole_seconds(value: datetime) -> datetime:
    return value.replace(microsecond=0)


def ndjson(rows: Sequence[Mapping[str, Any]], *, ascii: bool = True) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=ascii) + "\n" for row in rows).encode()


def both(rows: Sequence[Mapping[str, Any]], schema: Schema, rules: Rules = RULES) -> list[Coerced]:
    return [coerce_ndjson(ndjson(rows), schema, rules), coerce_rows(rows, schema, rules)]


def merged(coerced: Coerced) -> list[dict[str, Any]]:
    """Return each row's values by key: typed columns, and what the overflow map has."""
    rows = []
    arrays = [shown(array, column.type) for array, column in zip(coerced.batch.columns, coerced.schema, strict=True)]
    for row in pa.RecordBatch.from_arrays(arrays, names=list(coerced.schema.names)).to_pylist():
        spilled = decode(row.pop(OVERFLOW_COLUMN)) if row.get(OVERFLOW_COLUMN) else {}
        held = {
            column.name: decode(row[column.name]) if column.type == DataType("dynamic") else row[column.name]
            for column in coerced.schema
            if row.get(column.name) is not None
        }
        assert not held.keys() & spilled.keys()
        rows.append(held | spilled)
    return rows


def expected(row: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
    """Return what a row must read back as: itself, but for nulls, times, whole numbers in real columns, and text."""
    made = {}
    for name, value in row.items():
        kind = schema[name].type.kind if name in schema and name != OVERFLOW_COLUMN else "none"
        if kind == "timestamp" and (us := time_us(value)) is not None:
            value = EPOCH + timedelta(microseconds=us)
        if kind == "real" and type(value) is int and abs(value) < 2**1023 and int(float(value)) == value:
            value = float(value)
        if kind == "string" and isinstance(value, bool | int | float):
            value = json.dumps(value)
        if value is not None:
            made[name] = value
    return made


def strict(value: Any) -> Any:
    """Return a value in which True is not 1, 1 is not 1.0, 0.0 is not -0.0, and NaN is NaN."""
    if isinstance(value, Mapping):
        return {key: strict(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [strict(inner) for inner in value]
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    return (type(value).__name__, repr(value))


def check_widening(old: Schema, new: Schema, room: int) -> None:
    added = [name for name in new.names if name not in old and name != OVERFLOW_COLUMN]
    assert len(added) <= room
    for column in old:
        wider = {"int": ("int", "long", "real"), "long": ("long", "real")}.get(column.type.kind, (column.type.kind,))
        assert new[column.name].type.kind in wider
        assert new[column.name].id == column.id


def check_times(values: Sequence[Any]) -> None:
    schema = Schema.of({"t": "timestamp"})
    wanted = [time_us(value) for value in values]
    for coerced in both([{"t": value} for value in values], schema):
        assert coerced.batch.column("t").cast(pa.int64()).to_pylist() == wanted
        assert coerced.overflowed == wanted.count(None)
    if all(isinstance(value, str) for value in values):
        plain = [_few_texts(pa.array([value])) for value in values]
        assert all(found is None or found.tolist() == [time] for found, time in zip(plain, wanted, strict=True))
        assert (
            coerce_arrow(pa.table({"t": values}), schema, RULES).batch.column("t").cast(pa.int64()).to_pylist()
            == wanted
        )
    if all(isinstance(value, float) for value in values):
        assert (
            coerce_arrow(pa.table({"t": values}), schema, RULES).batch.column("t").cast(pa.int64()).to_pylist()
            == wanted
        )


def time_us(value: Any) -> int | None:
    """Read a time the plain way: the rule that the compiled loops follow."""
    if isinstance(value, str):
        return _text_us(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int) and not -(2**63) < value < 2**63:
        return None
    with localcontext(prec=400):
        exact = Decimal(repr(value))
        size = abs(exact)
        scale = -3 if size >= 10**16 else 0 if size >= 10**14 else 3 if size >= 10**11 else 6
        return _ranged(int((exact.scaleb(scale)).to_integral_value("ROUND_FLOOR")))


def _text_us(text: str) -> int | None:
    if re.fullmatch(r"[0-9]{9,}(?:\.[0-9]+)?", text):
        with localcontext(prec=400):
            exact = Decimal(text)
            scale = -3 if exact >= 10**16 else 0 if exact >= 10**14 else 3 if exact >= 10**11 else 6
            return _ranged(int((exact.scaleb(scale)).to_integral_value("ROUND_FLOOR")))
    match = re.fullmatch(
        r"(\d{4})-(\d\d)-(\d\d)(?:[Tt ](\d\d):(\d\d):(\d\d)(?:\.([0-9]+))?(?:[Zz]|([+-])(\d\d):?(\d\d)?)?)?",
        text,
        re.ASCII,
    )
    if not match or text.endswith(":"):
        return None
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups()[:6])
    fraction = int((match[7] or "").ljust(6, "0")[:6])
    hours, minutes = int(match[9] or 0), int(match[10] or 0)
    if second > 60 or hours > 23 or minutes > 59:
        return None
    try:
        start = datetime(year, month, day, hour, minute, tzinfo=UTC)
    except ValueError:
        return None
    offset = (hours * 60 + minutes) * (-1 if match[8] == "-" else 1)
    return _ranged(((start - EPOCH) // timedelta(seconds=1) + second - offset * 60) * 1_000_000 + fraction)


def _ranged(us: int) -> int | None:
    return us if -62_135_596_800_000_000 <= us <= 253_402_300_799_999_999 else None


def marked(coerced: Coerced) -> pa.RecordBatch:
    """Return a batch whose dynamic fields say so."""
    fields = [
        field.with_metadata(DYNAMIC_FIELD) if pa.types.is_binary(field.type) else field
        for field in coerced.batch.schema
    ]
    return pa.RecordBatch.from_arrays(coerced.batch.columns, schema=pa.schema(fields))


@given(st.permutations(["t", "n", "s"]), st.sets(st.sampled_from(["t", "n", "s"])), st.booleans())
def test_arrow_columns_that_fit_are_kept_and_those_that_lack_are_null(
    names: list[str], dropped: set[str], is_marked: bool
) -> None:
    columns = {
        "t": pa.array([NEW_YEAR, None], pa.timestamp("us", "UTC")),
        "n": pa.array([None, 3], pa.int64()),
        "s": pa.array(["a", "b"]),
    }
    kept = [name for name in names if name not in dropped]
    fields = [pa.field(name, columns[name].type, metadata={"a": "b"} if is_marked else None) for name in kept]
    batch = pa.table([columns[name] for name in kept], schema=pa.schema(fields)).to_batches()
    schema = Schema.of({"s": "string", "t": "timestamp", "d": "dynamic", "n": "long"})
    for each in batch:
        made = coerce_arrow(each, schema, RULES)
        assert made.batch.schema.equals(schema.arrow, check_metadata=True)
        assert made.schema == schema
        assert not made.overflowed
        for name in schema.names:
            assert made.batch[name].to_pylist() == (columns[name].to_pylist() if name in kept else [None] * 2)
