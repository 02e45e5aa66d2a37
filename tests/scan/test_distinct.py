"""Put equal rows together: what is left, times its number, is what there was."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tidelake.dynamic import cbor, path_values
from tidelake.dynamic.values import encode
from tidelake.scan.distinct import joined_once, put_together

values = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from([0.0, -0.0, float("nan"), 1.5, 1.0]),
    st.sampled_from(["", "a", "b", "1"]), st.just([1, 2]), st.just({}), st.just(10**30),
)  # fmt: skip


@given(st.lists(values, min_size=1, max_size=30), st.booleans(), st.integers(1, 40))
def test_rows_put_together_are_the_rows_there_were(some: list[Any], is_coded: bool, times: int) -> None:
    rows = some * times
    stored = pa.array([encode({} if n % 7 == 5 else {"a": value}) for n, value in enumerate(rows)], pa.binary())
    found = path_values.of_extracted(cbor.extract(stored, "a"))
    if is_coded and path_values.field(found, "text") is not None:
        fields = {field.name: found.field(field.name) for field in found.type}
        fields["text"] = fields["text"].dictionary_encode()
        found = pa.StructArray.from_arrays(list(fields.values()), names=list(fields))
    whole = Counter(map(repr, found.to_pylist()))
    once = put_together(found)
    if once is None:
        assert len(set(map(repr, found.to_pylist()))) * 4 > len(rows) / 2  # NaN and such may be told apart
        return
    given_rows, counts = once.field("values").to_pylist(), once.field("count").to_pylist()
    total: Counter[str] = Counter()
    for row, count in zip(given_rows, counts, strict=True):
        total[repr(row)] += count
    assert total == whole


@given(st.lists(st.lists(values, min_size=1, max_size=8), min_size=1, max_size=4), st.integers(8, 12))
def test_what_was_put_together_is_joined_with_each_row_once(blocks: list[list[Any]], times: int) -> None:
    parts, whole = [], Counter[str]()
    for block in blocks:
        stored = pa.array([encode({"a": value}) for value in block * times], pa.binary())
        found = path_values.of_extracted(cbor.extract(stored, "a"))
        once = put_together(found)
        assert once is not None
        parts.append(once)
        whole.update(map(repr, path_values.filled(found).to_pylist()))
    joined = joined_once(parts)
    rows = list(map(repr, joined.field("values").to_pylist()))
    assert len(rows) == len(set(rows))
    assert dict(zip(rows, joined.field("count").to_pylist(), strict=True)) == dict(whole)
