"""Store a column of numbers as how far each is from another column's: times that follow each other, days of one order.

Which columns are, and from which others, is measured on a sample for the whole extent. The other column has no nulls
and is stored as it is, so that reading one takes at most one more. A page is that of the differences after a byte of
its own, so that a reader who does not know of them refuses it. ``docs/format.md`` is the specification. It does not lay
out extents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidelake.format import codecs
from tidelake.format.choosing import Choice
from tidelake.kernels.spreading import spread
from tidelake.model.schema import Column, Schema

KINDS = ("int", "long", "timestamp")
MIN_ROWS = 512  # of a block, below which a second column to read costs more than is saved
SAMPLE = 8_192  # rows from the middle of the largest block
MAX_COLUMNS = 32  # whose pairs are looked at
NARROWER = 2  # times a sample's differences must lie closer together than its values, before they are encoded
GAIN = 0.9  # of a column's bytes that its differences may take at most: whoever reads it reads the other one too

_Ints = npt.NDArray[np.int64]


def is_possible(column: Column) -> bool:
    """Whether a column may be stored so, or be the one that another is compared with."""
    return column.type.kind in KINDS


def chosen(schema: Schema, blocks: Sequence[pa.RecordBatch]) -> dict[str, str]:
    """Choose columns that become smaller as differences, each with the column that they are from."""
    largest = max(blocks, key=lambda block: block.num_rows)
    columns = [column for column in schema if is_possible(column)][:MAX_COLUMNS]
    if largest.num_rows < MIN_ROWS or len(columns) < 2:
        return {}
    sample = largest.slice(max(0, (largest.num_rows - SAMPLE) // 2), SAMPLE)
    bases = {
        column.name: codecs.as_ints(sample.column(column.name))
        for column in columns
        if not any(block.column(column.name).null_count for block in blocks)
    }
    gains = []
    for column in columns:
        for base, size in _smaller(column, sample.column(column.name), bases, schema):
            gains.append((size, column.name, base))
    found: dict[str, str] = {}
    for _, name, base in sorted(gains):
        if name not in found and base not in found and name not in found.values():
            found[name] = base
    return found


def encode(values: pa.Array, base: pa.Array, choice: Choice | None = None) -> bytes:
    """Encode a column of a block by its differences from another one."""
    head = codecs.nulls_head(values)
    if head[0] == codecs.ALL_NULLS:
        return head
    apart = _apart(values, codecs.as_ints(base))
    return head + bytes([codecs.DIFFERENCE]) + codecs.encode_ints(apart, choice)


def decode(page: memoryview, rows: int, kind: pa.DataType, base: pa.Array) -> pa.Array:
    """Decode a column of a block, with the one that it is compared with."""
    valid, rest = codecs.decode_nulls(page, rows)
    if not valid.any():
        return pa.nulls(rows, kind)
    if not len(rest) or rest[0] != codecs.DIFFERENCE or base.null_count or base.type != kind:
        raise ValueError("differences from nothing")
    apart = codecs.decode_ints(rest[1:], int(valid.sum()))
    others = codecs.as_ints(base)
    own = others if valid.all() else others[valid]
    dense = codecs.ints_as(kind, (own.view(np.uint64) + apart.view(np.uint64)).view(np.int64))
    return dense if valid.all() else spread(dense, valid)


def checked(told: Mapping[str, str], schema: Schema) -> dict[str, str]:
    """Check which columns a footer says are differences from which others; ValueError if that cannot be."""
    for name, base in told.items():
        own = [schema[each] for each in (name, base) if each in schema]
        if len(own) < 2 or base in told or not is_possible(own[0]) or own[0].type != own[1].type:
            raise ValueError(f"column {name!r} cannot be compared with {base!r}")
    return dict(told)


def _smaller(column: Column, values: pa.Array, bases: Mapping[str, _Ints], schema: Schema) -> list[tuple[str, float]]:
    """Return from which others a column's sample is smaller, with how many times its bytes that takes."""
    if len(values) - values.null_count < MIN_ROWS // 2:
        return []
    own = codecs.as_ints(values.drop_null())
    others = {name: each for name, each in bases.items() if name != column.name and schema[name].type == column.type}
    aparts = {name: _apart(values, each) for name, each in others.items()}
    near = {name: each for name, each in aparts.items() if _span(each) * NARROWER <= _span(own)}
    if not near:
        return []
    whole = len(codecs.encode_ints(own))
    sizes = ((name, len(codecs.encode_ints(each)) / whole) for name, each in near.items())
    return [(name, size) for name, size in sizes if size <= GAIN]


def _apart(values: pa.Array, base: _Ints) -> _Ints:
    """Return how far the values that there are lie from those of another column, modulo 2 to the 64th."""
    own = codecs.as_ints(values.drop_null() if values.null_count else values)
    others = base[values.is_valid().to_numpy(zero_copy_only=False)] if values.null_count else base
    return (own.view(np.uint64) - others.view(np.uint64)).view(np.int64)


def _span(values: _Ints) -> int:
    return int(values.max()) - int(values.min())
