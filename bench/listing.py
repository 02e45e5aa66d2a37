"""Measure planning over very many extents: a needle by value, by word and by path, warm, in one process.

Extents are committed through the catalog, as writers do, with the statistics of a real extent of five rows in which
values and times are moved: what a catalog holds is what it would hold after as many flushes. Only the one extent that
the needles are in has an object; no other is opened. Amounts are in proportion to the rows asked for: a million extents
for all of them. It does not measure reading rows.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from bench.data import ROWS, START_US
from bench.report import Ratio, Report
from tidelake.catalog import Catalog, Pending
from tidelake.catalog.protocol import new_id
from tidelake.lake import Lake, connect
from tidelake.model.snapshot import AddExtent, Commit, Extent, Scope
from tidelake.scan.listing_cache import listings_of

EXTENTS = 1_000_000  # for all rows of bench.data
AT_ONCE = 20_000  # extents of a commit
SPAN_US = 1_000_000  # of an extent's rows
PLANNED_WITHIN_S = 0.03

NEEDLES = {
    "a number": "trace == -1",
    "a text": "host == 'needle'",
    "a word": "message has 'needle'",
    "a word in an hour": f"message has 'needle' and ts >= {START_US * 1000} and ts < {START_US * 1000 + 10**12}",
    "nothing": "trace == -2",
}
COLUMNS = {"ts": "timestamp", "host": "string", "trace": "long", "message": "string"}

METHOD = (
    "Every extent has five rows' worth of statistics: bounds and distinct values of each column, and the words of "
    "messages; values differ from extent to extent.",
    "A plan goes from the predicate's text to the blocks that would be read, the footer of the one extent that is left "
    "included; the snapshot's head is asked of the catalog each time. The first plan that judges a column reads what "
    "is known of it, of all extents; 'until the listing is kept' is what was left to read after those.",
    "No peer is measured.",
)


def run(folder: Path, *, rows: int, rounds: int) -> Report:
    """Fill a catalog, then plan."""
    extents = max(EXTENTS * rows // ROWS, 1_000)
    with connect(folder / "lake", upkeep=False) as lake:
        began = time.perf_counter()
        _fill(lake, extents)
        filled = time.perf_counter() - began
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return _measured(lake, extents, rounds, filled, before)


def _measured(lake: Lake, extents: int, rounds: int, filled: float, before: int) -> Report:
    table = lake.table("logs")
    seconds: dict[str, tuple[float, ...]] = {"filling the catalog": (filled,)}
    kept = listings_of(table._handle.catalog)
    for name, where in NEEDLES.items():
        seconds[f"{name}: asked for the first time"] = (_planned(table, where),)
    began = time.perf_counter()
    for where in NEEDLES.values():  # one after the other, new columns are read besides
        _planned(table, where)
        kept.settle()
    seconds["until the listing is kept"] = (time.perf_counter() - began,)
    for name, where in NEEDLES.items():
        seconds[name] = tuple(_planned(table, where) for _ in range(max(rounds, 1) * 5))
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    listing = kept._large.get(table._handle.scope)
    return Report(
        name="listing",
        workload=f"{extents:,} extents of four columns in a SQLite catalog; needles that are in one of them.",
        ratios=tuple(
            Ratio(f"{name}, against 30 ms", median(seconds[name]), PLANNED_WITHIN_S, "s", 1.0) for name in NEEDLES
        ),
        seconds=seconds,
        sizes={
            "the kept listing": 0 if listing is None else listing.byte_size,
            "the process, beyond what it had before": (after - before) * 1024,
        },
        method=METHOD,
    )


def _planned(table: Any, where: str) -> float:
    began = time.perf_counter()
    plan = table.plan(["host"], where)
    taken = time.perf_counter() - began
    expected = 0 if "-2" in where else 1
    if len(plan.tasks) != expected:
        raise AssertionError(f"{where}: {len(plan.tasks)} extents, not {expected}")
    return taken


def _fill(lake: Lake, extents: int) -> None:
    """Write one extent that is what it says, and commit many that only say so."""
    table = lake.create_table("logs", COLUMNS, time="ts", flush_age="off")
    table.append([_row(0, at) for at in range(5)])
    table.flush()
    sample = table.extents()[0]
    table.append([{**_row(0, 0), "host": "needle", "trace": -1, "message": "a needle in a haystack"}])
    table.flush()
    catalog, scope = table._handle.catalog, table._handle.scope
    for first in range(2, extents, AT_ONCE):
        _commit(catalog, scope, [*_moved(sample, range(first, min(first + AT_ONCE, extents)))])


def _commit(catalog: Catalog, scope: Scope, added: list[Extent]) -> None:
    catalog.register_pending([Pending(extent.key, scope, "bench") for extent in added])
    head = catalog.head(scope)
    actions = tuple(AddExtent(extent) for extent in added)
    catalog.commit([Commit(new_id(), scope, head.sequence, actions)], onto=head)


def _row(extent: int, at: int) -> dict[str, Any]:
    number = extent * 5 + at
    return {
        "ts": START_US + extent * SPAN_US + at,
        "host": f"host-{number % 5_000:04}",
        "trace": number * 7_919,
        "message": f"request {number} of user{number % 10_007} took {number % 997} ms",
    }


def _moved(sample: Extent, numbers: range) -> Iterator[Extent]:
    for number in numbers:
        rows = [_row(number, at) for at in range(5)]
        stats = {name: _stats(sample.column_stats[name], [row[name] for row in rows]) for name in COLUMNS}
        low, high = rows[0]["ts"] * 1000, rows[-1]["ts"] * 1000
        name = f"{number:032x}"
        stats["ts"] = {**sample.column_stats["ts"], "min": low, "max": high}
        yield replace(sample, id=name, key=f"data/{name}", min_ts_ns=low, max_ts_ns=high, column_stats=stats)


def _stats(known: Mapping[str, Any], values: list[Any]) -> dict[str, Any]:
    distinct = sorted(set(values))
    found = {**known, "min": distinct[0], "max": distinct[-1]}
    if known.get("distinct") is not None:
        found["distinct"] = distinct
    if known.get("tokens") is not None:
        found["tokens"] = sorted({word for text in values for word in text.replace("-", " ").split()})
    return found
