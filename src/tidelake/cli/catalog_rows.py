"""List what a lake's catalog holds, as rows that a person or a machine can read.

A ``Listing`` is made from library values, and knows both shapes: a table for the terminal, and JSON with plain numbers
and RFC 3339 times. It does not read data.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from tidelake.errors import NotFoundError
from tidelake.model.schema import OVERFLOW_COLUMN, DataType
from tidelake.model.settings import DEMOTED
from tidelake.model.snapshot import Extent, Scope, Snapshot
from tidelake.model.times import time_text
from tidelake.pruning.statistics import column_from_json
from tidelake.scan.field_statistics import merged_stats, shown_bound

if TYPE_CHECKING:
    from rich.table import Table as RichTable

    from tidelake.lake import Lake

MAX_SHOWN = 24  # letters of a bound in a terminal
MANY = "many"  # distinct values: more than statistics keep
EXAMPLES = 3  # values of a column that has few
MIN_TEXT = 14  # letters of a name or a bound, before another column is left out for it
WIDE = 120  # letters of a line, if nobody says

_NAME = r"[`\"\[']*([\w.\-]+?)[`\"\]']*"
_SHOW = re.compile(r"\s*show\s+tables(?:\s+(?:in|from)\s+" + _NAME + r")?\s*;?\s*", re.I)
_DESCRIBE = re.compile(
    r"\s*(?:(?:describe|desc)(?:\s+table)?(?:\s+extended)?|show\s+columns\s+(?:in|from))\s+" + _NAME + r"\s*;?\s*", re.I
)
_RFC_3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_TEXTS = frozenset({"table", "column", "least", "most", "examples", "extent"})  # what may be cut
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, slots=True)
class Listing:
    """Rows of one kind, each with the same keys; keys that end in ``bytes`` are shown with a unit."""

    title: str
    keys: tuple[str, ...]
    rows: Sequence[tuple[Any, ...]]
    for_machines: frozenset[str] = frozenset()  # keys that a terminal has no room for
    spare: tuple[str, ...] = ()  # keys that a narrow one leaves out, the first first
    notes: tuple[str, ...] = ()  # sentences below the rows, for people

    def to_json(self) -> list[dict[str, Any]]:
        shapes = [dict(zip(self.keys, row, strict=True)) for row in self.rows]
        return [
            {key: None if (key, value) == ("distinct", MANY) else value for key, value in s.items()} for s in shapes
        ]

    def to_table(self, width: int = WIDE) -> RichTable:
        """Lay out the rows; where there is little room, spare columns go first, then text is cut, and never numbers."""
        from rich.box import SIMPLE_HEAD
        from rich.table import Table as RichTable
        from rich.text import Text

        shown = {
            key: [_shown(key, row[at]) for row in self.rows]
            for at, key in enumerate(self.keys)
            if key not in self.for_machines
        }
        left_out = []
        for key in self.spare:
            if _room_for(shown, tight=True) > width and key in shown:
                del shown[key]
                left_out.append(key.replace("_", " "))
        told = [f"no room for {', '.join(left_out)}: --json has all"] if left_out else []
        caption = Text("\n".join([*told, *self.notes])) if told or self.notes else None
        table = RichTable(title=self.title, caption=caption, box=SIMPLE_HEAD, pad_edge=False)
        table.title_justify = table.caption_justify = "left"
        numbers = {
            key for at, key in enumerate(self.keys) if any(type(row[at]) in (int, float) for row in self.rows)
        } - _TEXTS
        gap = "\n" if _room_for(shown, tight=False) > width else " "
        for key in shown:
            justify: Literal["left", "right"] = "right" if key in numbers else "left"
            head = Text(key.replace("_", gap))
            table.add_column(head, justify=justify, no_wrap=key not in _TEXTS, vertical="bottom")
        for cells in zip(*shown.values(), strict=True):
            table.add_row(*(Text(cell, no_wrap=True, overflow="ellipsis") for cell in cells))
        return table


def _room_for(shown: Mapping[str, Sequence[str]], *, tight: bool) -> int:
    """Return the letters that columns need; if tight, with a word of a head on a line, and text cut."""
    room = 1
    for key, cells in shown.items():
        head = max(map(len, key.split("_"))) if tight else len(key)
        most = max(map(len, cells), default=0)
        room += 3 + max(head, min(most, MIN_TEXT) if tight and key in _TEXTS else most)
    return room


def about_lake(lake: Lake, text: str) -> Listing | None:
    """Answer ``show tables`` and ``describe TABLE``, for people who type them; None for a text that is a query."""
    if show := _SHOW.fullmatch(text):
        return list_tables(lake, show[1])
    if describe := _DESCRIBE.fullmatch(text):
        return list_columns(lake, describe[1])
    return None


def list_tables(lake: Lake, namespace: str | None = None) -> Listing:
    """List tables with what their newest snapshot holds."""
    rows = []
    for info in lake.catalog.tables(namespace):
        head = lake.catalog.head(info.scope)
        totals = lake.catalog.totals(info.id).live if lake.handle.has_users(info) else head.totals
        rows.append(
            (str(info), head.sequence, totals.rows + totals.hot_rows, totals.hot_rows, totals.extents, totals.bytes,
             _time(head.committed_us * 1000))
        )  # fmt: skip
    keys = ("table", "snapshot", "rows", "hot_rows", "extents", "bytes", "changed")
    return Listing(
        f"{_many(len(rows), 'table')} in {lake.where}",
        keys,
        rows,
        spare=("snapshot", "hot_rows", "extents", "bytes", "changed"),
    )


def list_columns(lake: Lake, table: str) -> Listing:
    """List the columns of a table with what its extents' statistics know of each; hot rows are not looked at."""
    info = lake.catalog.table(table)
    has_users = lake.handle.has_users(info)
    scope = Scope(info.id, lake.user_id or "") if has_users else info.scope
    head = lake.catalog.head(scope)
    extents = lake.catalog.extents(scope, sequence=head.sequence)
    totals = head.totals
    rows: list[tuple[Any, ...]] = []
    for column in head.schema:
        merged = merged_stats(extents, column)
        role = "key" if column.name in (head.settings.get("key") or ()) else ""
        role = "time" if head.settings.get("time") == column.name and not role else role
        low, high = (_bound(column.type, bound) for bound in (merged.low, merged.high))
        distinct: int | str | None = None if merged.distinct is None else len(merged.distinct)
        if distinct is None and column.type.kind != "dynamic" and merged.low is not None:
            distinct = MANY
        share = None if merged.nulls is None or not totals.rows else merged.nulls / totals.rows
        examples = ", ".join(str(_bound(column.type, each)) for each in (merged.distinct or ())[:EXAMPLES]) or None
        rows.append(
            (column.name, str(column.type), role, merged.nulls, share, low, high, distinct, examples, column.id)
        )
    keys = ("column", "type", "role", "nulls", "null_share", "least", "most", "distinct", "examples", "id")
    version = "version of a row" if head.is_keyed else "row"
    versions = (
        f"{totals.rows:,} versions of rows" if head.is_keyed and totals.rows != 1 else _many(totals.rows, version)
    )
    held = f"{versions} in {_many(totals.extents, 'extent')}, {_many(totals.hot_rows, 'hot row')}"
    return Listing(
        f"{table}: one for each user"
        if has_users and not scope.user
        else f"{table} at snapshot {head.sequence}: {held}",
        keys,
        rows,
        frozenset({"id"}),
        ("nulls", "examples", "role", "distinct", "null_share", "most", "least"),
        tuple(_drift_notes(head, extents)),
    )


def list_status(lake: Lake) -> Listing:
    """List the health of every table."""
    found = lake.status()
    rows = [tuple(_plain(value) for value in row.values()) for row in found.to_pylist()]
    keys = tuple(found.schema.names)
    due = sum(bool(row[keys.index("due")]) for row in rows)
    return Listing(
        f"{_many(len(rows), 'table')} in {lake.where}, upkeep due in {due}",
        keys,
        rows,
        spare=("pending", "failed", "pins", "hot_batches", "garbage", "overlap", "oldest_snapshot", "snapshots"),
    )


def list_manifests(lake: Lake, table: str | None, state: str | None, limit: int) -> Listing:
    """List the manifests of scopes and their states."""
    found = lake.manifests(table, state=state, limit=limit)
    rows = [tuple(_plain(value) for value in row.values()) for row in found.to_pylist()]
    counts = Counter(found["state"].to_pylist())
    told = ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items())) or "none"
    more = f", the first {limit:,}" if len(rows) == limit else ""
    return Listing(
        f"manifests in {lake.where}{more}: {told}",
        tuple(found.schema.names),
        rows,
        spare=("since", "last_refreshed", "next_try", "snapshot", "attempts", "tier", "version", "bytes", "hot_rows"),
    )


def list_users(lake: Lake, table: str, after: str, limit: int) -> Listing:
    """List the users of a table in their order, after one of them, and what each one's holds."""
    held = lake.table(table)
    found = list(islice(held.users(after=after), limit + 1))
    heads = [held.user(each).handle.snapshot for each in found[:limit]]
    more = (f"there are more: --after {shlex.quote(found[limit - 1])}",) if len(found) > limit else ()
    told = f"users of {table} in {lake.where}"
    rows = [
        (
            head.scope.user,
            head.totals.rows + head.totals.hot_rows,
            head.totals.extents,
            head.totals.bytes + head.totals.hot_bytes,
            head.sequence,
            _plain(datetime.fromtimestamp(head.committed_us // 1_000_000, UTC)),
        )
        for head in heads
    ]
    return Listing(told, ("user", "rows", "extents", "bytes", "snapshot", "changed"), rows, notes=more)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%dT%H:%M:%SZ")
    return ", ".join(value) if isinstance(value, list) else value


def _drift_notes(head: Snapshot, extents: Sequence[Extent]) -> Iterator[str]:
    """Yield which columns are dynamic because their values mixed, and which have values that do not fit."""
    for name, kind in head.settings.items():
        if name.startswith(DEMOTED):
            yield f"{name.removeprefix(DEMOTED)} was {kind} and is dynamic: its values are of several types"
    stored = [extent.column_stats.get(OVERFLOW_COLUMN) for extent in extents]
    misfits = [found for shape in stored if shape and (found := column_from_json(shape).misfits)]
    for column in head.schema:
        counts = [each[column.name] for each in misfits if column.name in each]
        left = sum(each["count"] - each.get(str(column.type), 0) for each in counts)
        if left and column.type.kind != "dynamic":
            count = f"{_many(left, 'value')} of {column.name} in extents"
            yield f"{count} do not fit its type, {column.type}: see {OVERFLOW_COLUMN}"


def list_history(lake: Lake, table: str, limit: int = 20) -> Listing:
    """List the snapshots of a table, newest first."""
    rows = [
        (s.sequence, _time(s.committed_us * 1000), s.operation, s.added.rows + s.added.hot_rows - s.removed.hot_rows
         - s.removed.rows, s.added.extents, s.removed.extents, s.totals.rows + s.totals.hot_rows, s.totals.bytes,
         s.schema.version, s.id)
        for s in lake.catalog.history(lake.handle.seen_scope(lake.catalog.table(table), lake.user_id), limit=limit)
    ]  # fmt: skip
    keys = ("snapshot", "committed", "operation", "rows_change", "extents_added", "extents_removed", "rows", "bytes",
            "schema", "id")  # fmt: skip
    return Listing(f"history of {table}", keys, rows, frozenset({"id", "extents_removed", "schema"}),
                   ("extents_added", "bytes", "rows_change", "rows"))  # fmt: skip


def list_extents(lake: Lake, table: str, *, as_of: str | None = None, snapshot: int | None = None) -> Listing:
    """List the extents of a table by time, now or at an older snapshot."""
    scope = lake.handle.seen_scope(lake.catalog.table(table), lake.user_id)
    try:
        held = lake.snapshot(table, as_of=as_of, snapshot=snapshot)
    except NotFoundError as error:
        wanted = as_of if snapshot is None else snapshot
        raise NotFoundError(error.message, table=table, wanted=wanted, kind=error.kind) from error
    rows = [
        (e.id, e.format, e.row_count, e.block_count, e.byte_size, _time(e.min_ts_ns), _time(e.max_ts_ns), e.added_seq,
         e.level, e.key)
        for e in lake.catalog.extents(scope, sequence=held.sequence, stats=())
    ]  # fmt: skip
    keys = ("extent", "format", "rows", "blocks", "bytes", "from", "to", "added_in", "level", "key")
    return Listing(
        f"{_many(len(rows), 'extent')} of {table} at snapshot {held.sequence}",
        keys,
        rows,
        frozenset({"key", "level", "format", "added_in"}),
        ("blocks", "bytes", "rows", "to"),
    )


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _bound(kind: DataType, bound: Any) -> Any:
    """Return a least or most value as it reads best, long text cut."""
    shown = shown_bound(kind, bound)
    is_long = kind.kind == "string" and isinstance(shown, str) and len(shown) > MAX_SHOWN
    return shown[: MAX_SHOWN - 1] + "…" if is_long else shown


def _time(ns: int | None) -> str | None:
    """Return a time as RFC 3339, or its number where no calendar reaches."""
    return None if ns is None else time_text(ns)


def _shown(key: str, value: Any) -> str:
    if value is None:
        return "–"
    if key.endswith("bytes"):
        size, unit = float(value), 0
        while size >= 1024 and unit < len(_UNITS) - 1:
            size, unit = size / 1024, unit + 1
        return f"{size:,.0f} B" if unit == 0 else f"{size:,.1f} {_UNITS[unit]}"
    if isinstance(value, bool):
        return str(value).lower()
    if key.endswith("share"):
        return f"{value:.1%}"
    if key in ("from", "to", "committed", "changed") or (key in ("least", "most") and _RFC_3339.fullmatch(str(value))):
        return str(value)[:23].replace("T", " ").removesuffix("Z")  # to the millisecond
    return f"{value:,}" if isinstance(value, int) else "".join(c if c.isprintable() else "�" for c in str(value))
