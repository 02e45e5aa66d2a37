"""Hold ``manifest.json`` to its shape, both ways, and what is torn or hostile to one kind of error."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelake.errors import CorruptError
from tidelake.manifest.manifest_json import (
    ColumnBounds,
    Notes,
    Part,
    PartRef,
    ScopeManifest,
    Segment,
    checksum_of,
    from_bytes,
    part_from_bytes,
    part_to_bytes,
    to_bytes,
)
from tidelake.manifest.scalars import Typed, typed_bound
from tidelake.model.schema import DataType

EXAMPLE = b"""{
  "table_id": "flush_manifest_ns_mpczl3q7_s3k_0.user_flush_test_mpczl3q7_s3k_0",
  "user_id": "admin",
  "version": 2,
  "created_at": 1779216537052,
  "updated_at": 1779216537063,
  "segments": [
    {
      "min_seq": 315199164996489218,
      "max_seq": 315199165030043648,
      "row_count": 20,
      "size_bytes": 2711,
      "created_at": 1779216537063,
      "id": "batch-0.parquet",
      "path": "batch-0.parquet",
      "column_stats": {
        "1": {
          "min": {
            "Int64": "315199164994551810"
          },
          "max": {
            "Int64": "315199165028106240"
          },
          "null_count": 0
        }
      },
      "schema_version": 1,
      "status": "committed"
    }
  ],
  "last_sequence_number": 0,
  "files": null,
  "vector_indexes": {}
}"""

SEGMENT = Segment(
    min_seq=1 << 32,
    max_seq=(1 << 32) + 9,
    row_count=10,
    size_bytes=900,
    created_at=1_700_000_000_000,
    id="batch-0.parquet",
    path="batch-0.parquet",
    column_stats={
        1: ColumnBounds(Typed("Int64", -(2**63)), Typed("Int64", 2**63 - 1), 0),
        2: ColumnBounds(Typed("Utf8", "a"), Typed("Utf8", "zürich"), 3),
        7: ColumnBounds(null_count=10),
    },
)
MANIFEST = ScopeManifest(
    table_id="app.notes",
    user_id="alice",
    version=4,
    created_at=1,
    updated_at=2,
    segments=(SEGMENT,),
    last_sequence_number=0,
    vector_indexes={"embedding": {"metric": "cosine", "dimensions": 384}},
    notes=Notes(9, "s" * 32, (PartRef("manifest-part-1.json", 1, 64, "00"),), {"batch-0.parquet": "e" * 32}),
)


def test_example_parses_and_round_trips_byte_for_byte() -> None:
    found = from_bytes(EXAMPLE, "manifest.json")
    (segment,) = found.segments
    assert (found.user_id, found.version, found.last_sequence_number) == ("admin", 2, 0)
    assert segment.column_stats == {
        1: ColumnBounds(Typed("Int64", 315199164994551810), Typed("Int64", 315199165028106240), 0)
    }
    assert (segment.min_seq, segment.max_seq, segment.status) == (315199164996489218, 315199165030043648, "committed")
    assert to_bytes(found) == EXAMPLE


def test_manifest_of_ours_has_the_same_fields_in_the_same_order_and_its_notes_last() -> None:
    shape = orjson.loads(to_bytes(MANIFEST))
    assert [*shape] == [*orjson.loads(EXAMPLE), "_tide"]
    assert [*shape["segments"][0]] == [*orjson.loads(EXAMPLE)["segments"][0]]
    assert from_bytes(to_bytes(MANIFEST), "manifest.json") == MANIFEST


def test_fields_that_are_not_known_are_carried_along() -> None:
    shape = orjson.loads(EXAMPLE) | {"etag": {"of": [1, 2]}}
    found = from_bytes(orjson.dumps(shape), "manifest.json")
    assert found.others == {"etag": {"of": [1, 2]}}
    assert orjson.loads(to_bytes(found))["etag"] == {"of": [1, 2]}


@pytest.mark.parametrize("length", [0, 1, 100, len(EXAMPLE) - 1])
def test_torn_file_is_corrupt(length: int) -> None:
    with pytest.raises(CorruptError, match=r"^not a manifest object=a/manifest\.json"):
        from_bytes(EXAMPLE[:length], "a/manifest.json")


def test_flipped_value_is_found_by_the_checksum() -> None:
    data = to_bytes(MANIFEST)
    for old, new in ((b'"row_count": 10', b'"row_count": 11'), (b'"sequence": 9', b'"sequence": 8')):
        assert old in data
        with pytest.raises(CorruptError, match="checksum"):
            from_bytes(data.replace(old, new), "manifest.json")


@pytest.mark.parametrize(
    ("change", "at"),
    [
        ({"version": "2"}, "version"),
        ({"version": True}, "version"),
        ({"version": -1}, "version"),
        ({"version": 1.5}, "version"),
        ({"version": 2**63}, "version"),
        ({"table_id": ""}, "table_id"),
        ({"user_id": 5}, "user_id"),
        ({"segments": {}}, "segments"),
        ({"segments": [[]]}, "segments[0]"),
        ({"files": [1]}, "files"),
        ({"files": {"subfolder": "1"}}, "files.subfolder"),
        ({"vector_indexes": {"v": 1}}, "vector_indexes.v"),
        ({"_tide": {}}, "_tide"),
        ({"_tide": []}, "_tide"),
    ],
)
def test_field_of_another_type_is_corrupt_and_named(change: dict[str, Any], at: str) -> None:
    with pytest.raises(CorruptError) as caught:
        from_bytes(orjson.dumps(orjson.loads(EXAMPLE) | change), "manifest.json")
    assert caught.value.facts["at"] == at


@pytest.mark.parametrize(
    ("change", "at"),
    [
        ({"path": "../../etc/passwd"}, "path"),
        ({"path": "/etc/passwd"}, "path"),
        ({"path": "a\x00b"}, "path"),
        ({"path": ""}, "path"),
        ({"min_seq": 2**62, "max_seq": 0}, "min_seq"),
        ({"row_count": -1}, "row_count"),
        ({"status": "gone"}, "status"),
        ({"schema_version": 0}, "schema_version"),
        ({"column_stats": {"x": {}}}, "column_stats.x"),
        ({"column_stats": {"01": {}}}, "column_stats.01"),
        ({"column_stats": {"1": {"min": {"Int64": 5}}}}, "column_stats.1.min"),
        ({"column_stats": {"1": {"min": {"Int64": "9223372036854775808"}}}}, "column_stats.1.min"),
        ({"column_stats": {"1": {"min": {"Int64": "1", "Utf8": "1"}}}}, "column_stats.1.min"),
        ({"column_stats": {"1": {"max": {"Utf8": 1}}}}, "column_stats.1.max"),
        ({"column_stats": {"1": {"null_count": -1}}}, "column_stats.1.null_count"),
        ({"column_stats": {"1": {"min": {"TimestampMicrosecond": 1}}}}, "column_stats.1.min"),
    ],
)
def test_hostile_segment_is_corrupt_and_named(change: dict[str, Any], at: str) -> None:
    shape = orjson.loads(EXAMPLE)
    shape["segments"][0] |= change
    with pytest.raises(CorruptError) as caught:
        from_bytes(orjson.dumps(shape), "manifest.json")
    assert caught.value.facts["at"] == f"segments[0].{at}"


def test_segment_that_is_listed_twice_is_corrupt() -> None:
    shape = orjson.loads(EXAMPLE)
    shape["segments"] *= 2
    with pytest.raises(CorruptError, match="twice"):
        from_bytes(orjson.dumps(shape), "manifest.json")


def test_deep_nesting_is_corrupt_and_not_a_crash() -> None:
    for depth in (300, 2000):
        nested = b'"x": ' + b"[" * depth + b"]" * depth
        data = to_bytes(MANIFEST).replace(b'"metric": "cosine"', nested)
        with pytest.raises(CorruptError):
            from_bytes(data, "manifest.json")


@pytest.mark.parametrize("status", ["in_progress", "committed", "tombstone"])
def test_every_status_round_trips(status: Any) -> None:
    changed = replace(MANIFEST, segments=(replace(SEGMENT, status=status),))
    assert from_bytes(to_bytes(changed), "manifest.json").segments[0].status == status


@pytest.mark.parametrize(
    ("bound", "kind", "shape"),
    [
        (5, "int", {"Int32": 5}),
        (2**62, "long", {"Int64": str(2**62)}),
        (1.5, "real", {"Float64": 1.5}),
        (2, "real", {"Float64": 2.0}),
        (True, "bool", {"Boolean": True}),
        ("é", "string", {"Utf8": "é"}),
        (1_500_000, "timestamp", {"TimestampMicrosecond": {"value": 1500, "timezone": "UTC"}}),
        (1_500_000, "timestamp_ntz", {"TimestampMicrosecond": {"value": 1500, "timezone": None}}),
        (20_000, "date", {"Date32": 20000}),
    ],
)
def test_bounds_of_our_types_have_their_types_beside_them(bound: Any, kind: str, shape: Any) -> None:
    typed = typed_bound(bound, DataType.parse(kind))
    assert typed is not None
    segment = replace(SEGMENT, column_stats={1: ColumnBounds(typed, typed, 0)})
    data = to_bytes(replace(MANIFEST, segments=(segment,)))
    assert orjson.loads(data)["segments"][0]["column_stats"]["1"]["min"] == shape
    assert from_bytes(data, "manifest.json").segments[0] == segment


@pytest.mark.parametrize("bound", [float("nan"), float("inf"), None, {"real": "nan"}, "text"])
def test_bound_that_no_number_holds_is_left_out(bound: Any) -> None:
    assert typed_bound(bound, DataType("real")) is None


def test_typed_values_of_other_writers_are_kept_as_they_are() -> None:
    held = {
        "UInt64": str(2**64 - 1),
        "Int8": -3,
        "Float32": 0.5,
        "LargeUtf8": "x",
        "Binary": [0, 255],
        "TimestampMillisecond": {"value": 3, "timezone": None},
        "Decimal128": ["12", 18, 2],
    }
    shape = orjson.loads(EXAMPLE)
    for kind, value in held.items():
        shape["segments"][0]["column_stats"] = {"1": {"min": {kind: value}, "max": None, "null_count": None}}
        data = orjson.dumps(shape, option=orjson.OPT_INDENT_2)
        assert to_bytes(from_bytes(data, "manifest.json")) == data


def test_part_is_the_one_that_was_sealed_or_corrupt() -> None:
    part = Part((SEGMENT,), extents={SEGMENT.path: "e" * 32})
    data = part_to_bytes(part)
    ref = PartRef("manifest-part-1.json", 0, 1, checksum_of(data))
    assert part_from_bytes(data, ref, "p") == part
    for wrong in (replace(ref, checksum="00"), replace(ref, segments=2), replace(ref, level=1)):
        with pytest.raises(CorruptError):
            part_from_bytes(data, wrong, "p")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from([*orjson.loads(EXAMPLE)]), JSON)
def test_any_value_in_any_place_is_read_or_corrupt(name: str, value: Any) -> None:
    try:
        found = from_bytes(orjson.dumps(orjson.loads(EXAMPLE) | {name: value}), "manifest.json")
    except CorruptError:
        return
    assert from_bytes(to_bytes(found), "manifest.json") == found


@given(st.sampled_from([*orjson.loads(EXAMPLE)["segments"][0]]), JSON)
def test_any_value_in_a_segment_is_read_or_corrupt(name: str, value: Any) -> None:
    shape = orjson.loads(EXAMPLE)
    shape["segments"][0][name] = value
    try:
        found = from_bytes(orjson.dumps(shape), "manifest.json")
    except CorruptError:
        return
    assert from_bytes(to_bytes(found), "manifest.json") == found
