"""Give rows values that are the same in each of them, such as the host that a file came from.

A constant takes the place of what a row has under that name. It does not change the rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from tidelake.ingest.text_columns import RawRow, TextColumns
from tidelake.model.schema import DataType

if TYPE_CHECKING:
    from tidelake.ingest.coerce import Source


class WithConstants:
    """Rows of any sort, and columns that hold one value; text is taken as what it looks like."""

    def __init__(self, rows: Source, constants: Mapping[str, str], names: Sequence[str]) -> None:
        self._rows = rows
        arrays = {name: pa.repeat(pa.scalar(value), rows.rows) for name, value in constants.items()}
        self._constants = TextColumns(arrays, rows.rows, names, raw=rows.raw)
        self._names = frozenset(constants)

    @property
    def rows(self) -> int:
        return self._rows.rows

    @property
    def spilled(self) -> int:
        return self._rows.spilled + self._constants.spilled

    def names(self) -> Iterator[str]:
        yield from (name for name in self._rows.names() if name not in self._names)
        yield from self._constants.names()

    def fold(self, name: str, into: str) -> bool:
        return not self._names.intersection((name, into)) and self._rows.fold(name, into)

    def proposed(self, name: str) -> DataType | None:
        return (self._constants if name in self._names else self._rows).proposed(name)

    def has_reals(self, name: str) -> bool:
        return (self._constants if name in self._names else self._rows).has_reals(name)

    def column(self, name: str, kind: DataType) -> pa.Array:
        return (self._constants if name in self._names else self._rows).column(name, kind)

    def spill_others(self, kept: Collection[str]) -> None:
        replaced = self._names.intersection(self._rows.names())
        self._rows.spill_others({*(name for name in kept if name not in self._names), *replaced})
        self._constants.spill_others(kept)

    def overflow(self) -> pa.Array:
        if not self._constants.spilled:
            return self._rows.overflow()
        if not self._rows.spilled:
            return self._constants.overflow()
        return _united(self._rows.overflow(), self._constants.overflow())

    def where(self, row: int) -> dict[str, int]:
        return self._rows.where(row)

    def shown(self, name: str, row: int) -> str:
        return (self._constants if name in self._names else self._rows).shown(name, row)

    def raw(self, rows: Sequence[int]) -> list[RawRow]:
        return self._rows.raw(rows)


def _united(maps: pa.Array, others: pa.Array) -> pa.Array:
    """Unite two maps a row; a constant that fits no column is rare enough for plain Python."""
    from tidelake import dynamic

    pairs = zip(maps.to_pylist(), others.to_pylist(), strict=True)
    united = [
        dynamic.encode({**dynamic.decode(left), **dynamic.decode(right)}) if left and right else left or right
        for left, right in pairs
    ]
    return pa.array(united, pa.binary())
