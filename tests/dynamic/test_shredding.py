"""Show that values come back byte for byte, and that a path read alone is what the whole value has there."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import cbor2
import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from tests.support.strategies import examples
from tidelake.dynamic import cbor, path_values, plain_shredding, shredding
from tidelake.dynamic.values import encode
from tidelake.format import WriteOptions, segment_format
from tidelake.format.shredded import BlockPages
from tidelake.format.tlm3 import Tlm3Reader
from tidelake.model.schema import Schema
from tidelake.objects import open_store

KEYS = st.sampled_from(["a", "b", "a.b", "b.a", "aa", "ab", "é", "", "c.d"])
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.sampled_from([0, 23, 24, 255, 256, 65535, 65536, 2**32, -1, -24, -25, 2**63 - 1, -(2**63), 2**63])
    | st.floats(allow_nan=True)
    | st.sampled_from([0.0, -0.0, 1.5, 65504.0, 65505.0, 5.960464477539063e-08, 1e-7, 3.4e38, 1e39, float("inf")])
    | st.text(max_size=5)
    | st.binary(max_size=3)
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5), max_leaves=12
)
DOCUMENTS = st.dictionaries(KEYS, VALUES, max_size=6)
PATHS = ("a", "b", "a.b", "b.a", "aa", "c.d", "a.a", "a.b.a", "é", "nothing", "a.c.d")
SCHEMA = Schema.of({"v": "dynamic"})


def stored(values: list[bytes | None], block_rows: int = 7) -> tuple[Tlm3Reader, list[int]]:
    store, form = open_store("memory://"), segment_format("tlm3")
    writer = form.start_extent(store, "x", SCHEMA, extent_id="x", options=WriteOptions(block_rows=block_rows))
    writer.append(pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], schema=SCHEMA.arrow))
    result = writer.finish()
    reader = form.open_extent(store, "x")
    assert isinstance(reader, Tlm3Reader)
    return reader, list(range(result.block_count))


def read_back(values: list[bytes | None]) -> list[bytes | None]:
    reader, blocks = stored(values)
    return [value for block in blocks for value in reader.read_block(block).column(0).to_pylist()]


@given(st.lists(st.none() | DOCUMENTS | VALUES, min_size=1, max_size=30))
@examples(150)
def test_any_values_come_back_byte_for_byte(values: list[Any]) -> None:
    wanted = [None if value is None else encode(value) for value in values]
    assert read_back(wanted) == wanted


@given(st.lists(st.binary(min_size=1, max_size=20), min_size=1, max_size=20))
@examples(150)
def test_any_bytes_come_back_though_they_are_no_values(values: list[bytes]) -> None:
    assert read_back(list(values)) == values


@pytest.mark.parametrize(
    "odd",
    [
        cbor2.dumps({"b": 1, "a": 2}),  # keys that do not ascend
        b"\xa1\x61a\x18\x01",  # a number in a longer form than it needs
        b"\xa1\x78\x01a\x01",  # a key in a longer form
        b"\xa1\x61a\xfb\x3f\xf8\x00\x00\x00\x00\x00\x00",  # a real that a half holds
        b"\xbf\x61a\x01\xff",  # a map without its length
        b"\xa2\x61a\x01\x61a\x02",  # a key twice
        b"\xa1\x61a\x62\xff\xfe",  # a text that is no UTF-8
        b"\xa1\x61a\xf7",  # undefined
        b"\xa1\x61a\xf9\x7e\x01",  # a NaN with a message
        b"\xa1\x01\x02",  # a key that is no text
    ],
)
def test_values_in_odd_forms_come_back_beside_plain_ones(odd: bytes) -> None:
    wanted: list[bytes | None] = [encode({"a": 1}), odd, None, encode({"a": 2, "b": {"c": "x"}}), odd]
    assert read_back(wanted) == wanted


@given(st.lists(st.none() | DOCUMENTS, min_size=1, max_size=30))
@examples(150)
def test_a_path_alone_is_what_the_value_has_there(values: list[Any]) -> None:
    encoded = [None if value is None else encode(value) for value in values]
    reader, blocks = stored(encoded, block_rows=64)
    for path in PATHS:
        found = [each for block in blocks for each in _shown(reader.read_paths(block, [("v", path)])[0])]
        assert found == _shown(path_values.of_extracted(cbor.extract(pa.array(encoded, pa.binary()), path))), path


def _shown(values: pa.StructArray) -> list[tuple[int, bytes | None]]:
    return list(zip(path_values.kinds_of(values).tolist(), path_values.items(values).to_pylist(), strict=True))


@given(st.lists(VALUES, max_size=12), st.sampled_from([0, 1]))
@examples(150)
def test_values_are_put_together_without_loops_as_with_them(values: list[Any], root: int) -> None:
    blobs = pa.array([encode(value) for value in values], pa.binary())
    apart = shredding.take_apart(blobs)
    leaves, (numbers,) = shredding.joined_leaves([apart])
    of = np.zeros(max(numbers, default=0) + 1, dtype=np.int64)
    of[list(numbers)] = list(numbers.values())
    shapes = replace(apart.shapes, leaves=of[apart.shapes.leaves])
    own = {number: leaf for leaf, number in numbers.items()}
    if root and len(leaves.tree.parents) > 1:  # the maps at one key alone
        below = [n for n, node in enumerate(leaves.nodes.tolist()) if _is_below(leaves.tree.parents, node)]
        _, shapes = shapes.only(below)
        counts = {n: len(apart.column(own[n])) for n in below if int(leaves.kinds[n]) in shredding.WITH_VALUES}
        assert set(counts) <= set(np.unique(shapes.leaves).tolist())
    else:
        root = 0

    def column(leaf: int) -> pa.Array:
        return apart.column(own[leaf])

    plain = plain_shredding.put_together(
        shapes, leaves, column, root=root, constants={0: b"\xf6", 1: b"\xa0"}, raw=(6, 7)
    )
    assert plain.to_pylist() == shredding.put_together(shapes, leaves, column, root).to_pylist()
    if not root:
        assert plain.to_pylist() == blobs.to_pylist()


def _is_below(parents: Sequence[int], node: int) -> bool:
    while parents[node] > 0:
        node = parents[node]
    return node == 1


@pytest.mark.parametrize("count", [0, 1, 50])
def test_values_that_stay_whole_come_back(count: int) -> None:
    blobs = pa.array([encode({"a": n, "b": [n]}) for n in range(count + 2)], pa.binary()).slice(2)
    apart = shredding.kept_whole(blobs)
    assert apart.leaves == [shredding.BAG] * bool(count)
    leaves, (numbers,) = shredding.joined_leaves([apart])
    assert numbers == ({shredding.BAG: 0} if count else {})
    shapes = replace(apart.shapes, leaves=np.zeros(len(apart.shapes.leaves), dtype=np.int64))
    found = shredding.put_together(shapes, leaves, lambda _: apart.column(shredding.BAG))
    assert found.to_pylist() == blobs.to_pylist()


def test_maps_with_very_many_keys_stay_whole_and_are_found_in() -> None:
    values: list[bytes | None] = [encode({"id": n, "labels": {f"k{n}": n, "same": "x"}}) for n in range(3_000)]
    reader, blocks = stored(values, block_rows=65_536)
    assert reader.read_block(0).column(0).to_pylist() == values
    for path, wanted in (("id", list(range(3_000))), ("labels.same", ["x"] * 3_000)):
        (found,) = reader.read_paths(0, [("v", path)])
        field = "int" if path == "id" else "text"
        assert path_values.field(found, field).to_pylist() == wanted  # type: ignore[union-attr]
    assert blocks == [0]


def test_rare_paths_lie_in_the_rest_and_are_found_there() -> None:
    values = [
        encode({"id": n, **({"rare": n} if n % 900 == 5 else {}), **({"odd": "x"} if n == 7 else {})})
        for n in range(2_000)
    ]
    reader, _ = stored(list(values), block_rows=65_536)
    kinds = [path_values.kinds_of(reader.read_paths(0, [("v", path)])[0]) for path in ("rare", "odd")]
    assert [np.flatnonzero(each).tolist() for each in kinds] == [[5, 905, 1805], [7]]
    assert len([page for page in reader.directory("v").blocks[0] if page >= 0]) == 1
    assert reader.read_block(0).column(0).to_pylist() == values


def test_rows_that_are_alike_share_a_shape() -> None:
    values = pa.array([encode({"a": n, "b": {"c": str(n)}}) for n in range(100)], pa.binary())
    apart = shredding.take_apart(values)
    assert len(apart.shapes.offsets) == 2
    assert [apart.column(leaf).to_pylist()[:2] for leaf in apart.leaves] == [[0, 1], ["0", "1"]]


def test_pages_of_an_enemy_are_refused_or_read_and_do_no_harm() -> None:
    values = [encode({"a": n, "b": {"c": str(n % 5), "d": n / 4}, **({"e": [n]} if n % 3 else {})}) for n in range(300)]
    reader, _ = stored(list(values), block_rows=65_536)
    directory, chance, refused = reader.directory("v"), random.Random(5), 0
    (pages,) = directory.blocks
    piece = reader.metadata().blocks[0].pieces["v"]
    good = bytes(reader._store.get_range("x", piece.offset, piece.length))
    for _ in range(1_500):
        data = bytearray(good)
        for _ in range(chance.choice((1, 1, 3))):
            data[chance.randrange(len(data))] = chance.randrange(256)
        own = {
            leaf: page._replace(checksum=xxhash.xxh3_64_intdigest(bytes(data[page.offset : page.offset + page.length])))
            for leaf, page in pages.items()
        }
        held = bytes(data)
        block = BlockPages(
            replace(directory, blocks=[own]), 0, len(values),
            fetch=partial(_cut, held), dictionary=partial(reader._leaf_dictionary, "v"),
            lines=lambda leaf: reader._line_dictionary(("v", leaf)),
        )  # fmt: skip
        for read in (block.whole, partial(block.at_path, "b.c"), partial(block.at_path, "b")):
            try:
                assert len(read()) == len(values)
            except (ValueError, pa.ArrowException):
                refused += 1
    assert refused > 500


def _cut(data: bytes, places: Sequence[tuple[int, int]]) -> list[pa.Buffer]:
    return [pa.py_buffer(data[at : at + size]) for at, size in places]
