"""Say what there is to ask about: tables, their columns and settings, snapshots, extents, and what fields hold.

Answers come from the catalog, and no object is read. A client sees the tables that its token reaches; where each user
has a table, the one of the user it acts for, or without one, of all users together as far as totals go. It does not
change anything.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from tidelake.catalog.protocol import HotHeader
from tidelake.errors import NotFoundError
from tidelake.handle.table_handle import TableHandle
from tidelake.lake import Lake
from tidelake.model.drift import changes_between
from tidelake.model.schema import Schema
from tidelake.model.settings import TableSettings
from tidelake.model.snapshot import Counts, Extent, Scope, Snapshot
from tidelake.model.times import time_text
from tidelake.scan.field_statistics import FieldStatistics, PathStatistics, field_statistics
from tidelake.server.call import Answer
from tidelake.server.doors.base import About, Asked, Door

EXAMPLES = 20  # values of a field that has few
TEXT_SHOWN = 256  # characters of a bound or an example
PAGE, MAX_PAGE = 1_000, 10_000
MAX_VERSIONS = 200  # of a schema, each of which is read whole
SPANS_KEPT = 4_096  # of tables, whose first and last times are remembered

Span = tuple[int | None, int | None]


async def answer_tables(asked: Asked) -> Answer:
    """Answer with the tables that the token reaches, and how much each holds."""
    return Answer.json({"tables": await _looked(asked, lambda: _listed(asked))})


async def answer_table(asked: Asked) -> Answer:
    """Answer with a table's columns, its settings and how much it holds."""
    return Answer.json(await _looked(asked, lambda: _described(asked, asked.table(asked.call.path["table"]))))


async def answer_history(asked: Asked) -> Answer:
    """Answer with a table's snapshots, the newest first."""
    limit, before = asked.number("limit", 100, least=1, most=MAX_PAGE), asked.number("before", 0, most=2**62)

    def look() -> list[dict[str, Any]]:
        table = asked.table(asked.call.path["table"])
        found = table.catalog.history(table.scope, limit=limit, before=before or None)
        return [_snapshot(each) for each in found]

    return Answer.json({"snapshots": await _looked(asked, look)})


async def answer_drift(asked: Asked) -> Answer:
    """Answer with the versions of a table's schema, the oldest first: what each changed, and which snapshot brought it.

    Of a version that is older than the snapshots that are retained, nobody knows any more when it came.
    """

    def look() -> dict[str, Any]:
        table = asked.table(asked.call.path["table"])
        retained = table.catalog.history(table.scope, limit=MAX_PAGE)
        brought = {each.schema.version: each for each in retained}  # the newest come first, so the earliest stays
        if retained and retained[-1].sequence > 1:
            brought.pop(retained[-1].schema.version)
        last = table.snapshot.schema.version
        shown = range(max(1, last - MAX_VERSIONS + 1), last + 1)
        before = table.catalog.schema(table.info.id, shown[0] - 1) if shown[0] > 1 else None
        versions = []
        for number in shown:
            schema = table.catalog.schema(table.info.id, number)
            versions.append(_version(schema, before, brought.get(number)))
            before = schema
        return {"versions": versions, "total": last, "snapshot": table.snapshot.sequence}

    return Answer.json(await _looked(asked, look))


async def answer_extents(asked: Asked) -> Answer:
    """Answer with a page of a table's extents, by their keys."""
    limit = asked.number("limit", PAGE, least=1, most=MAX_PAGE)
    after, sequence = asked.call.query.get("after", ""), asked.number("snapshot", 0, most=2**62)

    def look() -> dict[str, Any]:
        table = asked.table(asked.call.path["table"])
        snapshot = table.catalog.snapshot(table.scope, sequence=sequence) if sequence else table.snapshot
        listed = table.catalog.extents(table.scope, sequence=snapshot.sequence, stats=())
        rest = sorted((each for each in listed if each.key > after), key=lambda each: each.key)
        page = [
            {
                "key": each.key,
                "format": each.format,
                "rows": each.row_count,
                "bytes": each.byte_size,
                "blocks": each.block_count,
                "level": each.level,
                "added": each.added_seq,
                **_times(each.min_ts_ns, each.max_ts_ns),
            }
            for each in rest[:limit]
        ]
        more = page[-1]["key"] if len(rest) > limit else None
        return {"extents": page, "total": len(listed), "snapshot": snapshot.sequence, "after": more}

    return Answer.json(await _looked(asked, look))


async def answer_fields(asked: Asked) -> Answer:
    """Answer with what statistics know of each column, and of paths in dynamic ones."""

    def look() -> dict[str, Any]:
        table = asked.table(asked.call.path["table"]).pinned()
        snapshot = table.snapshot
        extents = table.catalog.extents(table.scope, sequence=snapshot.sequence)
        hot = table.hot_statistics()
        found = field_statistics(snapshot.schema, extents, hot)
        return {
            "fields": [_field(each) for each in found],
            "rows": snapshot.totals.rows + snapshot.totals.hot_rows,
            "rows_described": snapshot.totals.rows + (hot.rows if hot is not None else 0),
            "snapshot": snapshot.sequence,
        }

    return Answer.json(await _looked(asked, look))


async def _looked(asked: Asked, look: Callable[[], Any]) -> Any:
    return await asked.questions.looked(asked.grant, look)


def _listed(asked: Asked) -> list[dict[str, Any]]:
    rows = []
    for name in asked.lake.tables():
        if not asked.may_see(name):
            continue
        try:
            rows.append(_summed(asked, asked.table(name)))
        except NotFoundError:
            continue  # dropped meanwhile
    return rows


def _summed(asked: Asked, table: TableHandle) -> dict[str, Any]:
    """Return how much a table holds, in the row of a listing."""
    snapshot = table.snapshot
    totals = snapshot.totals
    span: Span = (None, None)
    if not table.is_of_users:
        span = _SPANS.of(asked.lake, table, snapshot)
    elif not asked.grant.users:  # who acts for any user may know what all of them hold
        totals = table.catalog.totals(table.info.id).live
    return {
        "name": table.name,
        **_counted(totals),
        **_times(*span),
        "columns": len(snapshot.schema),
        "snapshot": snapshot.sequence,
    }


def _described(asked: Asked, table: TableHandle) -> dict[str, Any]:
    snapshot = table.snapshot
    columns = [{"name": each.name, "type": str(each.type), "id": each.id} for each in snapshot.schema]
    return {**_summed(asked, table), "columns": columns, "settings": _settings(snapshot)}


def _settings(snapshot: Snapshot) -> dict[str, Any]:
    told, stored = TableSettings.of(snapshot.settings), snapshot.settings
    return {
        "time": told.time,
        "retention": told.retention,
        "history": told.history,
        "entity": list(stored.get("entity") or ()),
        "bucket": stored.get("bucket"),
        "coverage": stored.get("coverage"),
        "format": told.format,
        "key": list(told.key),
        "scope": told.scope,
    }


def _counted(totals: Counts) -> dict[str, int]:
    rows, size = totals.rows + totals.hot_rows, totals.bytes + totals.hot_bytes
    return {"rows": rows, "bytes": size, "extents": totals.extents, "hot_rows": totals.hot_rows}


def _snapshot(snapshot: Snapshot) -> dict[str, Any]:
    added, removed = snapshot.added, snapshot.removed
    return {
        "snapshot": snapshot.sequence,
        "id": snapshot.id,
        "at": time_text(snapshot.committed_us * 1000),
        "operation": snapshot.operation,
        **_counted(snapshot.totals),
        "rows_change": added.rows + added.hot_rows - removed.rows - removed.hot_rows,
        "extents_added": added.extents,
        "extents_removed": removed.extents,
        "schema": snapshot.schema.version,
    }


def _version(schema: Schema, before: Schema | None, brought: Snapshot | None) -> dict[str, Any]:
    return {
        "version": schema.version,
        "snapshot": None if brought is None else brought.sequence,
        "at": None if brought is None else time_text(brought.committed_us * 1000),
        "operation": None if brought is None else brought.operation,
        "changes": [asdict(each) for each in changes_between(before, schema)],
    }


def _times(low_ns: int | None, high_ns: int | None) -> dict[str, str | None]:
    return {
        "start": None if low_ns is None else time_text(low_ns),
        "end": None if high_ns is None else time_text(high_ns),
    }


def _field(known: FieldStatistics) -> dict[str, Any]:
    column = known.column
    told: dict[str, Any] = {
        "name": column.name,
        "type": str(column.type),
        "nulls": known.nulls,
        "min": _plain(known.low),
        "max": _plain(known.high),
        "distinct": None if known.distinct is None else len(known.distinct),
        "examples": [_plain(each) for each in (known.distinct or ())[:EXAMPLES]],
        "misfits": known.misfits,
    }
    if column.type.kind == "dynamic":
        told["paths"] = [_path(each) for each in known.paths]
    return told


def _path(known: PathStatistics) -> dict[str, Any]:
    return {"path": known.path, "rows": known.rows, "min": _plain(known.low), "max": _plain(known.high)}


def _plain(value: Any) -> Any:
    """Return a bound as JSON has it; long text cut."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value[: TEXT_SHOWN - 1] + "…" if isinstance(value, str) and len(value) > TEXT_SHOWN else value


class _Spans:
    """The first and last times of tables, by their snapshots, which never change."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, Scope], tuple[str, Span]] = OrderedDict()

    def of(self, lake: Lake, table: TableHandle, snapshot: Snapshot) -> Span:
        key = (lake.where, table.scope)
        found = self._kept.get(key)
        if found is not None and found[0] == snapshot.id:
            return found[1]
        extents = table.catalog.extents(table.scope, sequence=snapshot.sequence, stats=())
        parts: list[Extent | HotHeader] = [*extents, *table.hot_headers(snapshot)]
        lows = [each.min_ts_ns for each in parts if each.min_ts_ns is not None]
        highs = [each.max_ts_ns for each in parts if each.max_ts_ns is not None]
        span = min(lows, default=None), max(highs, default=None)
        self._kept[key] = (snapshot.id, span)
        while len(self._kept) > SPANS_KEPT:
            self._kept.popitem(last=False)
        return span


_SPANS = _Spans()

_LIMIT = "how many at most"

DOORS = (
    Door("/v1/tables", answer_tables, ("GET",), about=About("The tables that the token reaches.")),
    Door("/v1/tables/{table}", answer_table, ("GET",), about=About("A table's columns, settings and totals.")),
    Door(
        "/v1/tables/{table}/history",
        answer_history,
        ("GET",),
        about=About(
            "A table's snapshots, the newest first.", {"limit": _LIMIT, "before": "only those before this snapshot"}
        ),
    ),
    Door(
        "/v1/tables/{table}/drift",
        answer_drift,
        ("GET",),
        about=About("How a table's schema came to be: what each version changed, the oldest first."),
    ),
    Door(
        "/v1/tables/{table}/extents",
        answer_extents,
        ("GET",),
        about=About(
            "A table's extents, a page at a time.",
            {"limit": _LIMIT, "after": "the key that the last page ended with", "snapshot": "those of this snapshot"},
        ),
    ),
    Door("/v1/tables/{table}/fields", answer_fields, ("GET",), about=About("What statistics know of each field.")),
)
