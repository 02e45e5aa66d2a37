"""Bring keys together that only case tells apart, since to Spark and DuckDB they are one name.

A key that differs only in case from a column goes into that column, and one that differs only in case from a key before
it goes with that one, unless a row of the same call has a value under both: then each is a column of its own, and both
values are kept. A key that is a column's exact name is always that column's. It does not read values.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Protocol


class Folding(Protocol):
    """Rows whose keys can be brought together."""

    def names(self) -> Iterator[str]: ...
    def fold(self, name: str, into: str) -> bool:
        """Return all values of a key to another, and return whether that was done: not where a row has both."""
        ...


def fold_cases(source: Folding, columns: Collection[str], apart: Collection[str] = ()) -> None:
    """Fold the keys of some rows as this module says; those in ``apart`` stay as they are."""
    names = list(source.names())
    lowered = [name.lower() for name in names]
    if len({*lowered, *map(str.lower, columns)}) == len({*names, *columns}):
        return  # as nearly always
    first: dict[str, str] = {}
    for name in (*columns, *names):
        first.setdefault(name.lower(), name)
    kept = {name.lower() for name in apart}
    for name, low in zip(names, lowered, strict=True):
        if low not in kept and name not in columns and first[low] != name:
            source.fold(name, first[low])
