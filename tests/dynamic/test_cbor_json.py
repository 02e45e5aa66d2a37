"""Write dynamic columns as JSON text, against the plain way."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelake.dynamic.cbor_json import json_of, plain_json
from tidelake.dynamic.values import encode
from tidelake.errors import CorruptError

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(),
    st.binary(max_size=5),
    st.datetimes(min_value=datetime(1900, 1, 1), timezones=st.just(UTC)),
)
values = st.recursive(scalars, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=20)


def column(*held: Any) -> pa.Array:
    return pa.array([None if each is None else encode(each) for each in held], pa.binary())


def same(left: Any, right: Any) -> bool:
    """Compare JSON values, with the types of numbers."""
    if isinstance(left, dict) and isinstance(right, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float) and isinstance(right, float):
        return math.copysign(1, left) == math.copysign(1, right) and left == right
    return type(left) is type(right) and bool(left == right)


@given(st.lists(values))
def test_json_of_a_column_is_that_of_each_value(held: list[Any]) -> None:
    encoded = pa.array([encode(each) for each in held], pa.binary())
    found = json_of(encoded)
    found.validate(full=True)
    for text, value in zip(found.to_pylist(), encoded.to_pylist(), strict=True):
        assert same(json.loads(text), json.loads(plain_json(value)))


@given(st.lists(st.none() | values, min_size=3), st.data())
def test_json_of_a_slice_with_nulls_keeps_them_in_place(held: list[Any], data: st.DataObject) -> None:
    whole = column(*held)
    start = data.draw(st.integers(0, len(held)))
    assert json_of(whole.slice(start)).to_pylist() == json_of(whole).to_pylist()[start:]
    assert [each is None for each in json_of(whole).to_pylist()] == [each is None for each in whole.to_pylist()]


def test_json_keeps_reals_reals_and_escapes_what_json_escapes() -> None:
    held = column({"a": [5.0, -1.5e-7, 1e300], "b": 'say "x"\\\n\t\x01é', "c": {}}, [], "", -1, 2**64 - 1)
    assert json_of(held).to_pylist() == [
        '{"a":[5.0,-1.5e-7,1e+300],"b":"say \\"x\\"\\\\\\n\\t\\u0001é","c":{}}',
        "[]",
        '""',
        "-1",
        "18446744073709551615",
    ]


def test_json_of_bytes_that_are_no_value_is_an_error() -> None:
    with pytest.raises(CorruptError):
        json_of(pa.array([b"\xa1\x61"], pa.binary()))
