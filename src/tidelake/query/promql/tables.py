"""Say which columns of a table are the time, the labels, the value and the name of a sample.

What a mapping does not say is found in the table's schema. It does not read rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tidelake.errors import InvalidInputError
from tidelake.model.schema import Schema

TABLE = "prom_samples"
_KEYS = ("table", "time", "labels", "value", "name")
_NUMBERS = frozenset({"int", "long", "real"})
_LABELS = frozenset({"string", "dynamic", "bool"})


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of a table of samples; without a name's column, each value's column is a metric of that name."""

    time: str
    labels: tuple[str, ...]
    values: tuple[str, ...]
    name: str | None
    dynamic: frozenset[str]  # those of the labels whose keys are the labels

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of the metrics, where columns are metrics."""
        return self.values if self.name is None else ()


def table_name(given: str | Mapping[str, Any]) -> str:
    """Return the table that is meant."""
    if isinstance(given, str):
        return given
    unknown = [key for key in given if key not in _KEYS]
    if unknown:
        raise InvalidInputError(
            f"a table of samples is told by {', '.join(_KEYS)}, not {unknown[0]!r}", kind="bad_mapping"
        )
    return str(given.get("table", TABLE))


def columns_of(given: str | Mapping[str, Any], schema: Schema, time: str | None) -> Columns:
    """Find the columns of a sample: those that are named, and the others by their names and types."""
    told = {} if isinstance(given, str) else dict(given)
    kinds = {column.name: column.type.kind for column in schema if not column.name.startswith("_")}
    clock = told.get("time") or time
    if clock is None:
        raise InvalidInputError("the table has no time column: name one as time", kind="bad_mapping")
    name = told["name"] if "name" in told else "name" if kinds.get("name") == "string" and "value" in kinds else None
    found = ("value",) if name is not None else tuple(each for each, kind in kinds.items() if kind in _NUMBERS)
    values = _several(told.get("value")) or found
    if not values or (name is not None and len(values) > 1):
        raise InvalidInputError(
            "a table of samples with names has one value column: name it as value", kind="bad_mapping"
        )
    others = {clock, name, *values}
    labels = _several(told.get("labels"))
    if "labels" not in told:
        labels = tuple(each for each, kind in kinds.items() if kind in _LABELS and each not in others)
    for column in (clock, *values, *labels, *([] if name is None else [name])):
        if column not in kinds:
            raise InvalidInputError(f"there is no column {column!r}", kind="bad_mapping", columns=", ".join(kinds))
    return Columns(clock, labels, values, name, frozenset(each for each in labels if kinds[each] == "dynamic"))


def _several(given: str | Sequence[str] | None) -> tuple[str, ...]:
    return () if given is None else (given,) if isinstance(given, str) else tuple(given)
