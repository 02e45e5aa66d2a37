"""Give Spark, in the place of VARIANT values, objects of the few keys that a query uses of them.

Spark tells which paths a query takes out of a column, and casts what is there by itself. An object that has the
outermost keys of these paths and no others answers as the whole value does, and where extents keep paths apart, nothing
else is read. Only blocks without a null are read so: a null has no keys, but it is not an object without keys, and
Spark asks which it is. What is no object becomes one without keys, at whose paths there is as little.

It does not decide what a query uses: see ``LakePaths.java``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.dynamic import encode
from tidelake.model.path_value import PathValue
from tidelake.model.predicate import And, IsNull, Not, Predicate
from tidelake.model.schema import Schema
from tidelake.pruning.plan import Block, Question
from tidelake.scan.path_columns import reads_paths
from tidelake.spark.catalog.path_conditions import dynamic_column, outermost_key

MOST_KEYS = 16  # of a column, beyond which it is read whole; CBOR's short maps have up to 23

Keys: TypeAlias = Mapping[str, tuple[str, ...]]  # of dynamic columns: the outermost keys that are used


def used_keys(told: str | None, schema: Schema) -> Keys:
    """Return the keys that a query uses of columns, of those that it does not need whole."""
    found: dict[str, set[str] | None] = {}
    for each in orjson.loads(told) if told else ():
        column = dynamic_column(each["column"], schema)
        if column is None:
            continue
        key, known = outermost_key(_path(orjson.loads(each["metadata"])) or "$"), found.setdefault(column, set())
        if key is None:
            found[column] = None
        elif known is not None:
            known.add(key)
    return {column: tuple(sorted(keys)) for column, keys in found.items() if keys and len(keys) <= MOST_KEYS}


def readable_keys(keys: Keys, question: Question, blocks: Iterable[tuple[object, Block]]) -> Keys:
    """Return those that can be read in some blocks, each given with a reader of its extent."""
    asked = {column: each for column, each in keys.items() if column in question.columns}
    for reader, block in blocks:
        if not asked or not reads_paths(reader):
            return {}
        known = block.stats.columns
        asked = {column: each for column, each in asked.items() if column in known and known[column].nulls == 0}
    return asked


def narrowed(question: Question, keys: Keys) -> Question:
    """Ask for what is at keys in the place of columns, in blocks where these have no nulls."""
    if not keys:
        return question
    names = {column: [_name(column, key) for key in each] for column, each in keys.items()}
    columns = tuple(name for column in question.columns for name in names.get(column, [column]))
    parts = [PathValue(column, key, "item", _name(column, key)) for column, each in keys.items() for key in each]
    computed = {**question.computed, **{part.name: part for part in parts}}
    return replace(question, columns=columns, computed=computed, where=_without_nulls(question.where, keys))


def put_together(batch: pa.RecordBatch, columns: Sequence[str], keys: Keys) -> pa.RecordBatch:
    """Return the columns that were asked for, made of what was read in their place."""
    arrays = [
        _objects([batch.column(_name(name, key)) for key in keys[name]], keys[name])
        if name in keys
        else batch.column(name)
        for name in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _objects(values: Sequence[pa.Array], keys: Sequence[str]) -> pa.Array:
    """Return an object for each row, of the keys that it has."""
    counts = values[0].is_valid().cast(pa.int32())
    for each in values[1:]:
        counts = pc.add(counts, each.is_valid().cast(pa.int32()))
    heads = pa.array([bytes([0xA0 + count]) for count in range(len(keys) + 1)], pa.binary()).take(counts)
    nothing = pa.scalar(b"", pa.binary())
    members = [
        pc.fill_null(pc.binary_join_element_wise(pa.scalar(encode(key), pa.binary()), each, nothing), nothing)
        for key, each in zip(keys, values, strict=True)
    ]
    return pc.binary_join_element_wise(heads, *members, nothing)


def _name(column: str, key: str) -> str:
    return f"{column}\0key\0{key}"  # no column's name: control characters are refused


def _without_nulls(where: Predicate | None, keys: Keys) -> Predicate | None:
    """Leave out what is known of columns without nulls: to ask it, they would be read whole."""
    parts = where.parts if isinstance(where, And) else () if where is None else (where,)
    left = tuple(
        part
        for part in parts
        if not (isinstance(part, Not) and isinstance(part.part, IsNull) and part.part.column in keys)
    )
    if len(left) == len(parts):
        return where
    return None if not left else left[0] if len(left) == 1 else And(left)


def _path(metadata: Any) -> str | None:
    """Find the path in what Spark tells of an extraction."""
    if not isinstance(metadata, dict):
        return None
    if isinstance(found := metadata.get("path"), str):
        return found
    return next((path for each in metadata.values() if (path := _path(each)) is not None), None)
