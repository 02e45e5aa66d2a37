"""Dynamic values become variants and come back the same, compiled and plain alike."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from itertools import cycle
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import VariantVal

from tidelake import dynamic
from tidelake.errors import CorruptError
from tidelake.spark.variant import dynamics_of, variants_of
from tidelake.spark.variant_plain import plain_cbor, plain_variant

FIELDS = [pa.field("value", pa.binary()), pa.field("metadata", pa.binary())]

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.integers(-(10**27), 10**27)  # pyspark itself reads no more digits
    | st.floats(allow_nan=False)
    | st.text(max_size=80)
    | st.binary(max_size=8)
    | st.datetimes(timezones=st.just(UTC), min_value=datetime(1900, 1, 1), max_value=datetime(2200, 1, 1))
)
keys = st.text(max_size=6) | st.sampled_from(["http.status", "\uffee", "\U0001f600"])
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(keys, inner, max_size=6), max_leaves=25
)


def plain(value: Any) -> Any:
    """Return a variant's Python value as the dynamic one it came from: whole decimals are integers."""
    if isinstance(value, Decimal):
        return int(value)
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    return value


@given(st.lists(st.none() | values, max_size=8))
def test_values_are_the_same_as_variants_and_back(rows: list[Any]) -> None:
    encoded = [None if row is None else dynamic.encode(row) for row in rows]
    array = pa.array([None, *encoded], pa.binary()).slice(1)  # a slice, as blocks are
    value, metadata = variants_of(array)
    for row, data, made, described in zip(rows, encoded, value.to_pylist(), metadata.to_pylist(), strict=True):
        if data is None:
            continue
        assert plain(VariantVal(made, described).toPython()) == row
        assert plain_cbor(made, described) == data
        assert plain(VariantVal(*plain_variant(data)).toPython()) == row
    variants = pa.StructArray.from_arrays([value, metadata], fields=FIELDS, mask=array.is_null())
    assert dynamics_of(variants).to_pylist() == encoded


def _filled(shape: Any, fill: Any) -> Any:
    """Return a value in which every scalar is another one of some."""
    if isinstance(shape, dict):
        return {key: _filled(inner, fill) for key, inner in shape.items()}
    return [_filled(inner, fill) for inner in shape] if isinstance(shape, list) else next(fill)


@given(values, st.lists(scalars, min_size=1, max_size=7), st.integers(2, 6), st.sampled_from([1, 30, 300]))
def test_rows_that_differ_in_scalars_alone_are_what_they_are_alone(
    shape: Any, others: list[Any], count: int, repeats: int
) -> None:
    fill = cycle([*others, "x" * repeats])
    rows = [_filled({"b": shape, "a": [shape], "long": "y"}, fill) for _ in range(count)]
    rows.insert(count // 2, None)
    rows.append({"another": 1})
    encoded = [None if row is None else dynamic.encode(row) for row in rows]
    made, described = variants_of(pa.array(encoded, pa.binary()))
    for at, data in enumerate(encoded):
        if data is not None:
            alone = variants_of(pa.array([data], pa.binary()))
            assert (made[at], described[at]) == (alone[0][0], alone[1][0])


def test_keys_that_come_twice_are_all_there_in_each_of_rows_alike() -> None:
    rows = [b"\xa3\x61a" + bytes([n]) + b"\x61b\x07\x61a" + bytes([n + 1]) for n in range(3)]  # as a stranger writes
    made, described = variants_of(pa.array(rows, pa.binary()))
    for at, row in enumerate(rows):
        alone = variants_of(pa.array([row], pa.binary()))
        assert (made[at], described[at]) == (alone[0][0], alone[1][0])


def test_wide_and_long_values_take_the_wide_forms() -> None:
    rows = [{f"key {n}": n for n in range(600)}, list(range(70_000)), {"a": "x" * 70_000, "b": [{"a": 1}] * 300}]
    rows = [row for row in rows for _ in range(3)]
    array = pa.array([dynamic.encode(row) for row in rows], pa.binary())
    value, metadata = variants_of(array)
    for row, made, described in zip(rows, value.to_pylist(), metadata.to_pylist(), strict=True):
        assert VariantVal(made, described).toPython() == row
    assert dynamics_of(pa.StructArray.from_arrays([value, metadata], fields=FIELDS)) == array


def test_numbers_that_spark_parses_are_the_numbers_that_we_parse() -> None:
    texts = ["1.5", "0.1", "5.0", "12345678901234567890", "1e300", "-0.001", "123456789.123456789012"]
    parsed = [VariantVal.parseJson(text) for text in texts]
    variants = pa.StructArray.from_arrays(
        [pa.array([bytes(p.value) for p in parsed]), pa.array([bytes(p.metadata) for p in parsed])], fields=FIELDS
    )
    found = [dynamic.decode(data) for data in dynamics_of(variants).to_pylist()]
    assert found == [1.5, 0.1, 5.0, 12345678901234567890, 1e300, -0.001, "123456789.123456789012"]
    assert [type(number) for number in found] == [
        float,
        float,
        float,
        int,
        float,
        float,
        str,
    ]  # no double is equal to the last


@given(st.binary(max_size=24), st.binary(max_size=12))
def test_hostile_variants_are_errors_or_values_and_nothing_else(value: bytes, metadata: bytes) -> None:
    variants = pa.StructArray.from_arrays([pa.array([value]), pa.array([metadata])], fields=FIELDS)
    try:
        (found,) = dynamics_of(variants).to_pylist()
    except Exception as error:
        assert type(error).__module__.startswith("tidelake")  # noqa: PT017  any of ours will do
    else:
        dynamic.decode(found)


def test_bytes_that_are_no_variant_are_corrupt() -> None:
    with pytest.raises(CorruptError, match="not a variant"):
        plain_cbor(b"\x43", b"\x01")
