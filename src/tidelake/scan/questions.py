"""Turn what a reader asks of a snapshot into a question: columns, condition, time range, order and limit, all checked.

It does not list extents or plan: see ``tidelake.pruning.plan``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias, TypedDict

from tidelake.errors import InvalidInputError, InvalidRangeError
from tidelake.model.expression import Distance, unknown_column
from tidelake.model.path_value import PathValue
from tidelake.model.predicate import And, Predicate, TimeRange, columns_of
from tidelake.model.schema import Schema
from tidelake.model.settings import TableSettings
from tidelake.model.snapshot import Snapshot
from tidelake.model.times import When, parse_time_ns
from tidelake.pruning.plan import Question
from tidelake.scan.alternatives import alternatives_of
from tidelake.scan.binding import check, check_vector

Columns: TypeAlias = Sequence[str | Distance | PathValue]


class Selection(TypedDict, total=False):
    """Which rows a scan asks for besides those of a condition: ``[start, end)`` of the time column, and how many."""

    start: When | None
    end: When | None
    limit: int | None
    ordered: bool  # by time


def question_of(
    table: str,
    snapshot: Snapshot,
    columns: Columns | None = None,
    where: Predicate | None = None,
    *,
    start: When | None = None,
    end: When | None = None,
    limit: int | None = None,
    ordered: bool = False,
) -> Question:
    """Return the question that a scan of a snapshot answers; the table's name is for errors."""
    schema = snapshot.schema
    time = TableSettings.of(snapshot.settings).time
    wanted, computed = _asked_columns(schema, columns)
    if limit is not None and limit < 0:
        raise InvalidInputError("a limit cannot be negative", limit=limit)
    parts = [check(where, schema)] if where is not None else []
    if start is not None or end is not None or ordered:
        if time is None:
            raise InvalidInputError("the table has no time column", table=table)
        if start is not None or end is not None:
            parts.append(_range(time, start, end))
    predicate = None if not parts else parts[0] if len(parts) == 1 else And(tuple(parts))
    alternatives, by = alternatives_of(snapshot.settings), time if ordered else None
    asked = where if where is not None and any(_is_logical(schema, name) for name in columns_of(where)) else None
    return Question(schema, wanted, predicate, time, alternatives, limit, by, computed, asked)


def _range(time: str, start: When | None, end: When | None) -> TimeRange:
    start_ns = None if start is None else parse_time_ns(start)
    end_ns = None if end is None else parse_time_ns(end)
    if start_ns is not None and end_ns is not None and start_ns >= end_ns:
        raise InvalidRangeError("the range's start is not before its end", start=start, end=end)
    return TimeRange(time, start_ns, end_ns)


def _asked_columns(schema: Schema, columns: Columns | None) -> tuple[tuple[str, ...], dict[str, Distance | PathValue]]:
    """Return the names of a scan's columns, and those of them that are computed."""
    if columns is None:
        return schema.names, {}
    computed = {each.name: each for each in columns if not isinstance(each, str)}
    for each in computed.values():
        if each.column not in schema:
            raise unknown_column(each.column, schema.names)
        if isinstance(each, Distance):
            check_vector(each.metric, each.query, schema[each.column])
    names = tuple(each if isinstance(each, str) else each.name for each in columns)
    for name in names:
        if name not in computed:
            schema[name]  # an unknown one is a NotFoundError
        elif name in schema or names.count(name) > 1:
            raise InvalidInputError("a computed column needs a name of its own: give one with alias()", column=name)
    return names, computed


def _is_logical(schema: Schema, name: str) -> bool:
    return name in schema and schema[name].type.logical is not None
