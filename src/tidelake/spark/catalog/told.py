"""Tell of a table in tables: ``obs.logs.history``, ``.extents``, ``.coverage``, ``.gaps``.

The rows are few, and travel as JSON: times in microseconds, lists as text. It does not read the table's rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, TypeAlias

import pyarrow as pa
from pyspark.sql import types as t
from pyspark.sql.pandas.types import from_arrow_schema

from tidelake.coverage.verbs import Series
from tidelake.handle.table_handle import TableHandle
from tidelake.model.settings import TableSettings
from tidelake.spark.catalog.names import table_of

HISTORY_PAGE = 1000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Cells: TypeAlias = tuple[t.StructType, Iterable[Sequence[Any]]]


def about(table: TableHandle, what: str) -> dict[str, Any]:
    """Return the schema of what is told of a table, at its snapshot if it is pinned to one."""
    schema, _ = _TOLD[what](table)
    at = None if table.past is None else table.past.sequence
    return {"name": f"{table.name}.{what}", "schema": schema.json(), "table": table.name, "told": what, "at": at}


def rows_of(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rows of what is told of a table, as the table is now."""
    table = table_of(question, question["table"], snapshot=question["at"])
    return told(*_TOLD[question["told"]](table))


def told(schema: t.StructType, rows: Iterable[Sequence[Any]]) -> dict[str, Any]:
    """Return rows as Spark's JVM takes them."""
    return {"schema": schema.json(), "rows": [[_plain(value) for value in row] for row in rows]}


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return (moment - _EPOCH) // timedelta(microseconds=1)
    if isinstance(value, date):
        return (value - date(1970, 1, 1)).days
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else value


def _history(table: TableHandle) -> Cells:
    fields = {
        "snapshot": t.LongType(), "committed": t.TimestampType(), "operation": t.StringType(), "id": t.StringType(),
        "rows": t.LongType(), "rows_added": t.LongType(), "rows_removed": t.LongType(), "extents": t.LongType(),
        "extents_added": t.LongType(), "extents_removed": t.LongType(), "bytes": t.LongType(),
    }  # fmt: skip
    return _struct(fields), _snapshots(table)


def _snapshots(table: TableHandle) -> Iterable[Sequence[Any]]:
    before = None if table.past is None else table.past.sequence + 1
    while page := table.catalog.history(table.scope, limit=HISTORY_PAGE, before=before):
        for each in page:
            totals, added, removed = each.totals, each.added, each.removed
            moment = _EPOCH + timedelta(microseconds=each.committed_us)
            yield (
                each.sequence, moment, each.operation, each.id, totals.rows + totals.hot_rows,
                added.rows + added.hot_rows, removed.rows + removed.hot_rows, totals.extents, added.extents,
                removed.extents, totals.bytes + totals.hot_bytes,
            )  # fmt: skip
        before = page[-1].sequence


def _extents(table: TableHandle) -> Cells:
    fields = {
        "extent": t.StringType(), "key": t.StringType(), "format": t.StringType(), "rows": t.LongType(),
        "bytes": t.LongType(), "blocks": t.LongType(), "start": t.TimestampType(), "end": t.TimestampType(),
        "level": t.LongType(), "schema_version": t.LongType(), "added": t.LongType(),
    }  # fmt: skip
    has_time = TableSettings.of(table.snapshot.settings).time is not None

    def moment(bound_ns: int | None) -> datetime | None:
        return None if bound_ns is None or not has_time else _EPOCH + timedelta(microseconds=bound_ns // 1000)

    return _struct(fields), (
        (
            each.id, each.key, each.format, each.row_count, each.byte_size, each.block_count, moment(each.min_ts_ns),
            moment(each.max_ts_ns), each.level, each.schema_version, each.added_seq,
        )
        for each in table.extents()
    )  # fmt: skip


def _coverage(table: TableHandle) -> Cells:
    return _of_arrow(Series(table, table.coverage_store).held())


def _gaps(table: TableHandle) -> Cells:
    return _of_arrow(Series(table, table.coverage_store).gaps())


def _of_arrow(found: pa.Table) -> Cells:
    schema = t.StructType([*from_arrow_schema(found.schema)])
    return schema, zip(*(column.to_pylist() for column in found.columns), strict=True)


def _struct(fields: Mapping[str, t.DataType]) -> t.StructType:
    return t.StructType([t.StructField(name, kind) for name, kind in fields.items()])


_TOLD: dict[str, Callable[[TableHandle], Cells]] = {
    "history": _history, "extents": _extents, "coverage": _coverage, "gaps": _gaps,
}  # fmt: skip
