"""Dynamic values: canonical bytes, paths, and the compiled walkers against their plain twins."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelake.dynamic import cbor
from tidelake.dynamic.cbor_encode import encoded
from tidelake.dynamic.values import MISSING, decode, encode, get_path, paths_of, to_json
from tidelake.errors import CorruptError, InvalidInputError
from tidelake.kernels.bloom import hash_bytes
from tidelake.model.predicate import (
    DynamicPathEquals,
    DynamicPathExists,
    DynamicPathTest,
    InSet,
    Predicate,
    Range,
    StringHas,
)
from tidelake.model.schema import DataType, Schema
from tidelake.pruning.collector import collect
from tidelake.pruning.outcomes import leaf_bytes, may_match

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.integers(-5, 5)
    | st.floats()
    | st.sampled_from([0.0, -0.0, 1.0, 2.0**63, 2.0**53, 1e300, 0.1, 1.5, 65504.0, 5e-324])
    | st.text(max_size=20)
    | st.sampled_from(["Connection timed out", "ECONNRESET", "x" * 300, "x" * 300 + "y"])
)
KEYS = st.text(alphabet="ab.é", min_size=1, max_size=4)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=8
)
DOCUMENTS = st.dictionaries(KEYS, VALUES, max_size=5)


def column(documents: list[Any]) -> pa.Array:
    return pa.array([None if value is MISSING else encode(value) for value in documents], pa.binary())


def leaves_of(value: dict[str, Any], prefix: str = "") -> Iterator[bytes]:
    for key, inner in value.items():
        path = f"{prefix}.{key}" if prefix else key
        yield path.encode()
        if isinstance(inner, dict):
            yield from leaves_of(inner, path)
        elif isinstance(inner, bool | int | float | str):
            yield leaf_bytes(path, inner)


def test_encode_gives_equal_bytes_for_equal_values() -> None:
    assert encode({"b": 1, "a": {"d": 2, "c": 3}}) == encode({"a": {"c": 3, "d": 2}, "b": 1})


@pytest.mark.parametrize(
    "value",
    [
        2**200,
        -(2**200),
        b"\x00\xff",
        datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC),
        {"a": [None, True, 1.5]},
        "é\U0001f600",
    ],
)
def test_encode_loses_nothing(value: Any) -> None:
    assert decode(encode(value)) == value


def test_encode_refuses_what_it_cannot_keep() -> None:
    with pytest.raises(InvalidInputError, match="dynamic column can keep type=object"):
        encode({"a": object()})
    with pytest.raises(InvalidInputError, match="keys are text"):
        encode({1: 2})


def test_encode_refuses_endless_nesting() -> None:
    value: list[Any] = []
    for _ in range(2000):
        value = [value]
    with pytest.raises(InvalidInputError, match="nested too deeply"):
        encode(value)


@pytest.mark.parametrize("data", [b"", b"\xff", b"\x62a", b"\xa1\x61a", b"\x9b" + b"\xff" * 8])
def test_decode_refuses_bad_bytes(data: bytes) -> None:
    with pytest.raises(CorruptError):
        decode(data)


def test_get_path_lets_the_longer_key_win() -> None:
    value = {"a": {"b": 1, "b.c": 2}, "a.b": {"c": 3}, "l": [{"x": 7}], "n": None}
    assert get_path(value, "a.b.c") == 3
    assert get_path(value, "a.b") == {"c": 3}
    assert get_path(value, "l[0].x") == 7
    assert get_path(value, "l[1]") is MISSING
    assert get_path(value, "n") is None
    assert get_path(value, "a.z") is MISSING


def test_to_json_says_everything_in_json() -> None:
    value = {"t": datetime(2026, 1, 1, tzinfo=UTC), "b": b"\x00", "f": math.inf, "l": [1, "x"]}
    assert to_json(value) == {"t": "2026-01-01T00:00:00Z", "b": "AA==", "f": "inf", "l": [1, "x"]}


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.lists(DOCUMENTS, min_size=1, max_size=30))
def test_walk_finds_the_paths_and_leaves_that_the_values_have(documents: list[dict[str, Any]]) -> None:
    found = cbor.PathTable().add(column(documents))
    assert found is not None
    assert found.paths == tuple(sorted({path for value in documents for path in paths_of(value)}))
    assert found.leaves is not None
    wanted = {hash_bytes(leaf) for value in documents for leaf in leaves_of(value)}
    assert set(found.leaves.tolist()) == {hash or 1 for hash in wanted}


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.lists(DOCUMENTS | st.just(MISSING), min_size=1, max_size=30), st.data())
def test_extract_finds_what_get_path_finds(documents: list[Any], data: st.DataObject) -> None:
    known = sorted({path for value in documents if value is not MISSING for path in paths_of(value)})
    path = data.draw(st.sampled_from(known) if known else KEYS)
    expected = [MISSING if value is MISSING else get_path(value, path) for value in documents]
    found = cbor.extract(column(documents), path)
    assert found.is_present().tolist() == [value is not MISSING for value in expected]
    texts = [value if isinstance(value, str) else None for value in expected]
    assert found.as_type(DataType("string")).to_pylist() == texts
    longs = [_as_long(value) for value in expected]
    assert found.as_type(DataType("long")).to_pylist() == longs
    bools = [value if isinstance(value, bool) else None for value in expected]
    assert found.as_type(DataType("bool")).to_pylist() == bools


def _as_long(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, float) and (not math.isfinite(value) or value != int(value)):
        return None
    return int(value) if -(2**63) <= value < 2**63 else None


@given(st.lists(VALUES | st.just(MISSING), max_size=6), st.data())
@settings(max_examples=150, deadline=None)
def test_paths_are_found_without_loops_as_with_them(documents: list[Any], data: st.DataObject) -> None:
    paths = sorted({path for each in documents if isinstance(each, dict) for path in paths_of(each)})
    path = data.draw(st.sampled_from([*paths, None, "", "a", "nothing"]))
    values = column(documents)
    held = cbor.decoded(values)
    assert held is not None
    plain, found = cbor.found_in(held, path), cbor.whole(values) if path is None else cbor.extract(values, path)
    assert plain.kinds.tolist() == found.kinds.tolist()
    for kind in ("long", "real", "string", "bool"):
        assert repr(plain.as_column(DataType(kind)).to_pylist()) == repr(found.as_column(DataType(kind)).to_pylist())
    assert plain.as_bytes() == found.as_bytes()


@pytest.mark.parametrize("stored", ["a2616201616102", "1801", "ff", "a16161", "6161ff", "f97e01"])
def test_what_is_not_canonical_is_left_to_loops(stored: str) -> None:
    assert cbor.decoded(pa.array([bytes.fromhex(stored)], pa.binary())) is None


def test_an_empty_path_is_the_empty_key_and_not_the_value() -> None:
    found = cbor.extract(column([{"": "x", "a": 1}, {"a": 1}, 5, MISSING]), "")
    assert found.kinds.tolist() == [cbor.TEXT_KIND, *[cbor.MISSING_KIND] * 3]


def test_extract_steps_into_lists() -> None:
    found = cbor.extract(column([{"a": [1, "x"]}, {"a": []}, MISSING]), "a[1]")
    assert found.as_type(DataType("string")).to_pylist() == ["x", None, None]


@pytest.mark.parametrize(
    "data", [b"\xbf\xff", b"\xa1\x01\x02", b"\xa1\x60\x02", b"\xa1\x61a", b"\x81", b"\x5b" + b"\xff" * 8, b"\x01\x01"]
)
def test_walk_gives_up_on_forms_we_never_write(data: bytes) -> None:
    assert cbor.PathTable().add(pa.array([encode({"a": 1}), data], pa.binary())) is None


@settings(max_examples=300, deadline=None, derandomize=True)
@given(DOCUMENTS, st.integers(0, 10**6), st.integers(0, 255))
def test_walkers_stay_inside_mutated_bytes(document: dict[str, Any], at: int, byte: int) -> None:
    data = bytearray(encode(document))
    data[at % len(data)] = byte
    values = pa.array([bytes(data)], pa.binary())
    cbor.PathTable().add(values)
    cbor.extract(values, "a.b")


def test_stats_of_a_dynamic_column_prune_by_path_value_range_and_word() -> None:
    schema = Schema.of({"d": "dynamic"})
    documents = [{"http": {"status": 200 + n}, "error.code": f"E{n}", "text": "Connection reset"} for n in range(50)]
    _, stats = collect([pa.RecordBatch.from_arrays([column(documents)], schema=schema.arrow)], schema)
    judged: dict[Predicate, bool] = {
        DynamicPathExists("d", "http.status"): True,
        DynamicPathExists("d", "http"): True,
        DynamicPathExists("d", "missing"): False,
        DynamicPathEquals("d", "error.code", "E7"): True,
        DynamicPathEquals("d", "error.code", "E77"): False,
        DynamicPathEquals("d", "http.status", 249.0): True,
        DynamicPathEquals("d", "http.status", "249"): False,
        DynamicPathTest("d", "http.status", Range("", low=249)): True,
        DynamicPathTest("d", "http.status", Range("", low=500)): False,
        DynamicPathTest("d", "text", Range("", low=500)): False,
        DynamicPathTest("d", "http.status", InSet("", (1, 2, 203))): True,
        DynamicPathTest("d", "http.status", InSet("", (1, 2))): False,
        DynamicPathTest("d", "text", StringHas("", "RESET")): True,
        DynamicPathTest("d", "text", StringHas("", "rese")): False,
    }
    assert {predicate: may_match(predicate, stats) for predicate in judged} == judged


def test_canonical_bytes_are_those_of_rfc_8949() -> None:
    assert encode({"aa": 1.5, "b": [10**3, -1], "": None}).hex() == "a360f66162821903e820626161f93e00"


TYPED = [
    (pa.int64(), st.integers(-(2**63), 2**63 - 1) | st.sampled_from([23, 24, 255, 256, -24, -25, 2**32])),
    (pa.float64(), st.floats() | st.sampled_from([0.0, -0.0, 0.5, 65504.0, 1e-7, 6e-8, 1e39])),
    (pa.utf8(), st.text(st.characters(codec="utf-8")) | st.sampled_from(["x" * 23, "x" * 24, "x" * 300])),
    (pa.bool_(), st.booleans()),
    (pa.timestamp("us", tz="UTC"), st.datetimes()),
]


@pytest.mark.parametrize(("kind", "values"), TYPED, ids=str)
@settings(max_examples=50, deadline=None)
@given(st.data())
def test_typed_columns_are_encoded_as_each_value_is(
    kind: pa.DataType, values: st.SearchStrategy[Any], data: st.DataObject
) -> None:
    typed = pa.array([None, *data.draw(st.lists(st.none() | values)), None], kind)
    for array in (typed, typed.slice(1), typed.slice(2, max(len(typed) - 3, 0))):
        made = encoded(array)
        made.validate(full=True)
        assert made.to_pylist() == [None if v is None else encode(v) for v in array.to_pylist()]
