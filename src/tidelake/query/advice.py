"""Suggest what to try next: where a table's rows lie when none were found, and what would make a query read less.

Both come from what the catalog and the plan know; no object is read. It does not change what a query answers.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tidelake.handle.table_handle import TableHandle
from tidelake.pruning.plan import ScanPlan, time_window
from tidelake.query.result import Result

MUCH_BYTES = 256 << 20  # stored bytes of one scan that are worth a word; some seconds on one machine

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def next_steps(result: Result, found: int | None) -> list[str]:
    """Return what to tell a person beside an answer of so many rows; None where it is not known how many."""
    faster = how_to_read_less(result)
    return [*(where_rows_are(result) if found == 0 else []), *([faster] if faster else [])]


def where_rows_are(result: Result) -> list[str]:
    """Return a sentence for each table that a query reads: the time that its rows span, or that it has none."""
    tables = {scan.table.name: scan.table for scan in result._scans if isinstance(scan.table, TableHandle)}
    return [_held(name, table) for name, table in tables.items()]


def _held(name: str, table: TableHandle) -> str:
    head = table.snapshot
    extents = table.catalog.extents(table.scope, sequence=head.sequence, stats=())
    hot = table.hot(head)
    spans = [(each.min_ts_ns, each.max_ts_ns) for each in extents] + [(each.min_ts_ns, each.max_ts_ns) for each in hot]
    low = [first for first, _ in spans if first is not None]
    high = [last for _, last in spans if last is not None]
    if not head.totals.rows + head.totals.hot_rows:
        return f"{name} holds no rows"
    if not low or not high:
        return f"{name} holds {head.totals.rows + head.totals.hot_rows:,} rows"
    column = head.settings.get("time")
    return f"{name} holds rows from {_time(min(low))} to {_time(max(high))}" + (f" ({column})" if column else "")


def how_to_read_less(result: Result, *, much_bytes: int = MUCH_BYTES) -> str | None:
    """Return one sentence on the largest scan, if it reads much and its plan shows what would narrow it."""
    large = max(result._scans, key=lambda scan: scan.byte_size, default=None)
    if large is None or large.byte_size < much_bytes or not isinstance(large.table, TableHandle):
        return None
    advice = list(_narrower(large.plan))
    if not advice:
        return None
    read = f"{large.table.name} was read for {large.byte_size / (1 << 20):,.0f} MiB"
    return f"{read}; to read less, {', or '.join(advice)}; tidelake explain shows what is read"


def _narrower(plan: ScanPlan) -> list[str]:
    question = plan.question
    advice = []
    if question.time is not None and time_window(question) == (None, None):
        advice.append(f"narrow the time, where {question.time} > ago(1d)")
    read_whole = [name for name in question.needed if question.schema[name].type.kind == "dynamic"]
    if read_whole:
        advice.append(f"promote the paths of {read_whole[0]} that are asked for, with Table.promote")
    return advice


def _time(ns: int) -> str:
    try:
        return (_EPOCH + timedelta(microseconds=ns // 1000)).isoformat(sep=" ").replace("+00:00", "Z")
    except OverflowError:
        return f"{ns} ns"
