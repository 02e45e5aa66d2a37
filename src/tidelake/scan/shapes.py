"""Bring columns as they were written to what a table has now.

Absent columns are null, narrower types are widened, and a column whose values lie in two places is united. It does not
read extents.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.dynamic import cbor
from tidelake.dynamic.cbor_encode import encoded
from tidelake.model.schema import DYNAMIC_FIELD, Column, DataType
from tidelake.pruning.plan import Question
from tidelake.scan.path_columns import Path, path_name

Alternatives: TypeAlias = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Shape:
    """Some columns as the table has them now, each with the places where its values may lie too."""

    columns: tuple[Column, ...]
    alternatives: Mapping[str, Alternatives]
    sources: frozenset[str]  # the columns that are read for it
    arrow: pa.Schema
    paths: tuple[Path, ...] = ()  # what is read of other dynamic columns
    encoded: frozenset[str] = frozenset()  # the columns that are given as dictionaries
    around: Shape | None = None  # the columns of those paths, for extents that do not keep paths apart

    @classmethod
    def of(cls, question: Question, names: Sequence[str], paths: Iterable[Path] = ()) -> Shape:
        apart = tuple(sorted(paths))
        around = Shape.of(question, sorted({column for column, _ in apart})) if apart else None
        columns = tuple(question.schema[name] for name in names)
        alternatives = {name: question.alternatives.get(name, ()) for name in names}
        others = {column for places in alternatives.values() for column, _ in places}
        return cls(
            columns,
            alternatives,
            frozenset({*names, *others}),
            pa.schema([given_field(question, name) for name in names]),
            apart,
            around=around,
            encoded=question.encoded & frozenset(names),
        )

    @property
    def names(self) -> list[str]:
        """The names of its columns in a batch."""
        return [*self.arrow.names, *(path_name(*each) for each in self.paths)]

    @property
    def elsewhere(self) -> Mapping[str, Alternatives]:
        """Where values of its columns, and of those of its paths, may lie too."""
        return self.alternatives if self.around is None else {**self.around.alternatives, **self.alternatives}

    def written(self, names: Sequence[str]) -> list[str]:
        """Return those of some columns that are read for it."""
        return [name for name in names if name in self.sources]

    def kept_encoded(self, names: Sequence[str]) -> list[str]:
        """Return those of some columns that may be read as dictionaries: they have their values in no other place."""
        return [name for name in names if name in self.encoded and not self.alternatives[name]]

    def written_anyhow(self, names: Sequence[str]) -> list[str]:
        """Return those of some columns that are read for it where paths are not kept apart."""
        return [name for name in names if name in self.sources or (self.around and name in self.around.sources)]

    def conformed(self, batch: pa.RecordBatch, written: Sequence[str], rows: int) -> pa.RecordBatch:
        """Return columns that were read as the table has them now: absent ones are null, spread ones are united."""
        if not self.columns:
            return bare(rows)
        arrays = []
        for column in self.columns:
            wanted = column.type.arrow
            array = batch.column(column.name) if column.name in written else pa.nulls(rows, wanted)
            is_encoded = pa.types.is_dictionary(array.type)
            if is_encoded and array.type.value_type == wanted:
                arrays.append(array)
                continue
            if is_encoded:
                array = array.dictionary_decode()
            if array.type != wanted:
                array = widened(array, column.type)
            for other, path in self.alternatives[column.name]:
                if other in written and array.null_count:
                    array = _united(array, batch.column(other), path, column)
            arrays.append(array.dictionary_encode() if column.name in self.encoded else array)
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow)


def bare(rows: int) -> pa.RecordBatch:
    """Return rows without columns."""
    nothing = pa.Array.from_buffers(pa.struct([]), rows, [None], 0, children=[])  # takes no memory
    return pa.RecordBatch.from_struct_array(nothing)


def widened(array: pa.Array, kind: DataType) -> pa.Array:
    """Return a column that was written under a narrower type as the type that it has now."""
    return encoded(array) if kind.kind == "dynamic" else array.cast(kind.arrow)


def _united(array: pa.Array, other: pa.Array, path: str, column: Column) -> pa.Array:
    """Fill what a column lacks with what a dynamic column has at a path, where the column's type holds it."""
    if column.type.kind in ("vector", "timestamp") or column.type.logical is not None:
        return array  # these never take anything but their own
    if column.type.kind == "dynamic":
        found = cbor.slices(other, path)
        return pc.coalesce(array, found) if found.null_count < len(found) else array
    return pc.coalesce(array, cbor.extract(other, path).as_column(column.type))


def given_field(question: Question, name: str) -> pa.Field:
    """Return the field of a column as a scan gives it: as a dictionary, if that is asked for."""
    field = field_of(question.schema[name])
    return field.with_type(pa.dictionary(pa.int32(), field.type)) if name in question.encoded else field


def field_of(column: Column) -> pa.Field:
    """Return the Arrow field of a column as it is stored."""
    metadata = DYNAMIC_FIELD if column.type.kind == "dynamic" else None
    return pa.field(column.name, column.type.arrow, nullable=True, metadata=metadata)
