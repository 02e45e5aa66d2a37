"""Show that a schema names its types both ways, only widens, and reads back only what it wrote."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given

from tests.support.strategies import examples, schemas
from tidelake.errors import InvalidInputError, NotFoundError, SchemaError
from tidelake.model.schema import MAX_COLUMNS, MAX_DIMENSION, MAX_NAME_BYTES, Column, DataType, Schema

LOGS = Schema.of({"ts": "timestamp", "service": "string", "n": "int"})

ARROW_TYPES = {
    "int": pa.int32(),
    "long": pa.int64(),
    "real": pa.float64(),
    "bool": pa.bool_(),
    "string": pa.utf8(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "dynamic": pa.binary(),
    "vector(3)": pa.list_(pa.field("item", pa.float32(), nullable=False), 3),
}
SPARK_NAMES = {
    "int": "int",
    "long": "bigint",
    "real": "double",
    "bool": "boolean",
    "string": "string",
    "timestamp": "timestamp",
    "dynamic": "variant",
}


@pytest.mark.parametrize(("name", "arrow"), ARROW_TYPES.items())
def test_type_goes_to_arrow_and_back(name: str, arrow: pa.DataType) -> None:
    kind = DataType.parse(name)
    assert (kind.arrow, DataType.from_arrow(arrow), str(kind)) == (arrow, kind, name)


@pytest.mark.parametrize(("name", "spark"), SPARK_NAMES.items())
def test_type_goes_to_spark_and_back(name: str, spark: str) -> None:
    kind = DataType.parse(name)
    assert (kind.spark, DataType.from_spark(spark)) == (spark, kind)


def test_vector_needs_its_dimension_told_when_it_comes_from_spark() -> None:
    assert DataType.from_spark("array<float>", dimension=3) == DataType("vector", 3)
    with pytest.raises(SchemaError, match="dimension"):
        DataType.from_spark("array<float>")


@pytest.mark.parametrize(
    ("arrow", "name"),
    [
        (pa.int8(), "int"),
        (pa.uint16(), "int"),
        (pa.uint32(), "long"),
        (pa.float32(), "real"),
        (pa.large_utf8(), "string"),
        (pa.string_view(), "string"),
        (pa.dictionary(pa.int32(), pa.utf8()), "string"),
        (pa.timestamp("ns"), "timestamp"),
        (pa.timestamp("s", tz="Europe/Berlin"), "timestamp"),
        (pa.large_binary(), "dynamic"),
        (pa.list_(pa.float32(), 2), "vector(2)"),
    ],
)
def test_type_from_arrow_holds_every_value_of_a_narrower_type(arrow: pa.DataType, name: str) -> None:
    assert str(DataType.from_arrow(arrow)) == name


@pytest.mark.parametrize(
    "arrow",
    [pa.uint64(), pa.date32(), pa.decimal128(10, 2), pa.null(), pa.list_(pa.float32()), pa.list_(pa.float64(), 2)],
)
def test_type_from_arrow_refuses_what_no_type_holds(arrow: pa.DataType) -> None:
    with pytest.raises(SchemaError, match="unsupported arrow type") as caught:
        Schema.from_arrow(pa.schema([("odd", arrow)]))
    assert (caught.value.kind, caught.value.facts) == ("unsupported_type", {"column": "odd", "type": arrow})


@pytest.mark.parametrize(
    "text", ["", "text", "vector", "vector()", "vector(0)", f"vector({MAX_DIMENSION + 1})", "int4"]
)
def test_type_refuses_an_unknown_name(text: str) -> None:
    with pytest.raises(SchemaError):
        DataType.parse(text)


def test_type_takes_any_case_and_spaces() -> None:
    assert [str(DataType.parse(text)) for text in (" Long", "VECTOR( 7 )")] == ["long", "vector(7)"]


def test_schema_of_gives_ids_in_order() -> None:
    assert LOGS.columns == (
        Column(1, "ts", DataType("timestamp")),
        Column(2, "service", DataType("string")),
        Column(3, "n", DataType("int")),
    )
    assert repr(LOGS) == "Schema v1(ts: timestamp, service: string, n: int)"
    assert LOGS.spark == "`ts` TIMESTAMP, `service` STRING, `n` INT"


def test_schema_finds_columns_by_name() -> None:
    assert (LOGS["n"].id, "n" in LOGS, "m" in LOGS, len(LOGS)) == (3, True, False, 3)
    with pytest.raises(NotFoundError, match="no such column column=m columns=ts, service, n"):
        LOGS["m"]


@pytest.mark.parametrize(
    ("columns", "kind"),
    [
        ((), "no_columns"),
        ((Column(1, "a", DataType("int")), Column(2, "a", DataType("int"))), "duplicate_column"),
        ((Column(1, "a", DataType("int")), Column(1, "b", DataType("int"))), "duplicate_column"),
        ((Column(1, "", DataType("int")),), "bad_name"),
        ((Column(1, " a", DataType("int")),), "bad_name"),
        ((Column(1, "a\nb", DataType("int")),), "bad_name"),
        ((Column(1, "a\ud800", DataType("int")),), "bad_name"),
        ((Column(1, "é" * (MAX_NAME_BYTES // 2 + 1), DataType("int")),), "bad_name"),
        (tuple(Column(at, f"c{at}", DataType("int")) for at in range(MAX_COLUMNS + 1)), "schema"),
    ],
)
def test_schema_refuses_columns_that_cannot_be(columns: tuple[Column, ...], kind: str) -> None:
    with pytest.raises(SchemaError) as caught:
        Schema(columns)
    assert caught.value.kind == kind


def test_widen_adds_nullable_columns_with_fresh_ids() -> None:
    widened = LOGS.widen([("level", DataType("string")), Column(77, "r", DataType("real"), nullable=False)])
    assert widened == Schema(
        (*LOGS.columns, Column(4, "level", DataType("string")), Column(5, "r", DataType("real"))), version=2
    )


def test_widen_makes_int_long_and_columns_nullable() -> None:
    strict = Schema((Column(1, "n", DataType("int"), nullable=False),))
    assert strict.widen([Column(1, "n", DataType("long"))]) == Schema((Column(1, "n", DataType("long")),), version=2)


@pytest.mark.parametrize(
    ("has", "wanted", "found"),
    [
        ("int", "real", "real"),
        ("long", "real", "real"),
        ("real", "int", "real"),
        ("string", "dynamic", "dynamic"),
        ("dynamic", "real", "dynamic"),
    ],
)
def test_widen_merges_two_types_to_the_wider(has: str, wanted: str, found: str) -> None:
    assert str(Schema.of({"a": has}).widen([("a", DataType.parse(wanted))])["a"].type) == found


def test_widen_changes_nothing_when_the_schema_holds_it_already() -> None:
    long = Schema.of({"n": "long"})
    assert long.widen([("n", DataType("int"))]) is long
    assert LOGS.widen([]) is LOGS


@pytest.mark.parametrize(
    ("has", "wanted"),
    [("real", "string"), ("string", "int"), ("vector(2)", "vector(3)"), ("vector(2)", "dynamic"), ("bool", "int")],
)
def test_widen_refuses_to_narrow_or_replace(has: str, wanted: str) -> None:
    with pytest.raises(SchemaError, match="only widens") as caught:
        Schema.of({"a": has}).widen([("a", DataType.parse(wanted))])
    assert caught.value.kind == "narrowing"


@examples(50)
@given(schemas())
def test_schema_survives_json_and_arrow(schema: Schema) -> None:
    assert Schema.from_json(schema.to_json()) == schema
    assert Schema.from_arrow(schema.arrow) == schema


@pytest.mark.parametrize(
    "shape",
    [
        None,
        [],
        {},
        {"version": 1},
        {"version": 1, "columns": [{}]},
        {"version": 1, "columns": 7},
        {"version": "1", "columns": [{"id": 1, "name": "a", "type": "int", "nullable": True}]},
        {"version": 1, "columns": [{"id": "1", "name": "a", "type": "int", "nullable": True}]},
        {"version": 1, "columns": [{"id": True, "name": "a", "type": "int", "nullable": True}]},
        {"version": 1, "columns": [{"id": 1, "name": 5, "type": "int", "nullable": True}]},
        {"version": 1, "columns": [{"id": 1, "name": "a", "type": 5, "nullable": True}]},
        {"version": 1, "columns": [{"id": 1, "name": "a", "type": "int", "nullable": "no"}]},
    ],
)
def test_schema_refuses_json_that_it_did_not_write(shape: Any) -> None:
    with pytest.raises(InvalidInputError, match="not a stored schema"):
        Schema.from_json(shape)
