"""Answer small questions in the thread that asks: of one table, of few rows, whose work is bounded by those rows.

Most of what a small question costs is getting ready: threads, a connection, planning. So a statement is prepared once,
on a connection of its own to an engine of one thread, and kept for the next time that the same text comes; the table in
it is a slot, and each question puts the rows of its own scan there. What a plan of the engine knows of the slot is its
schema alone (a scan has no statistics for it), so it is right for any rows. Of rows that are only counted, it is enough
that equal ones are kept as one, of all extents; and rows that are found by their words may turn out to be few.

A question is only small if every node of its tree is known to do little for each row: no joins, no subqueries, nothing
that makes rows or long values. Whatever the engine complains about is left to ``local``, which words it. It does not
bound time: there is too little to do.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
from sqlglot import exp

from tidelake.query.engines.opening import opened
from tidelake.query.engines.streams import Slot, Stream
from tidelake.query.prepared import Prepared, Scan
from tidelake.runtime.forking import renew_after_fork
from tidelake.scan.block_cache import was_searched
from tidelake.scan.candidates import texts_asked
from tidelake.scan.counted_reading import kept_size

ROWS = 65_536  # that are scanned: a block
BYTES = 8 << 20  # of them, as stored
SCANNED_BYTES = 64 << 20  # of rows that turn out to be few, as they are scanned
SEARCHED_BLOCKS = 256  # in which words are looked for, in memory, before a question is known to be of few rows
NODES = 1_000  # of a tree
STATEMENTS = 128  # that are kept while nobody runs them; each has a connection, and is some dozens of kilobytes
MEMORY = 256 << 20  # of the engine
FEW_ROWS = 1_000  # up to which texts may be objects of Python's on their way out

# What does little for each row, and makes nothing that is longer than what it is given.
_NODES = frozenset(
    {exp.Select, exp.From, exp.Table, exp.TableAlias, exp.With, exp.CTE, exp.Where, exp.Group, exp.Having, exp.Order}
    | {exp.Ordered, exp.Limit, exp.Offset, exp.Distinct, exp.Alias, exp.Column, exp.Identifier, exp.Star, exp.Paren}
    | {exp.Literal, exp.Null, exp.Boolean, exp.Var, exp.And, exp.Or, exp.Not, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT}
    | {exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Is, exp.Between, exp.In, exp.Like, exp.ILike, exp.Case, exp.If}
    | {exp.Coalesce, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg, exp.Count, exp.CountIf, exp.Sum, exp.Avg, exp.Min}
    | {exp.Max, exp.TimestampTrunc, exp.Abs, exp.Length, exp.Cast, exp.DataType}
)
_CALLS = frozenset(
    f"tide_{name}"
    for name in (
        *("contains", "contains_cs", "startswith", "startswith_cs", "endswith", "endswith_cs", "has", "has_cs"),
        *("hasprefix", "hasprefix_cs", "hassuffix", "hassuffix_cs", "strlen", "bin_long", "bin_real"),
        *("bin_datetime", "start_of_day", "start_of_week", "start_of_month", "start_of_year", "add_ticks", "any"),
        *("ticks_between", "divide", "divide_whole", "max_of", "min_of", "mean", "percentile", "stdev", "variance"),
        *("text", "number", "flag", "shown", "as_long", "as_real", "as_bool"),
        *("to_string_from_dynamic", "to_real_from_dynamic"),
    )
)
# Types that come out as they are meant; in particular no intervals, which may be too long for Arrow.
_TYPES = frozenset(
    {"BOOLEAN", "INTEGER", "BIGINT", "HUGEINT", "DOUBLE", "VARCHAR", "DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE"}
)

# Of these, the engine's columns are numpy's, as they are; taking them as Arrow costs as much as a small query.
_PLAIN = {
    "BOOLEAN": pa.bool_(),
    "INTEGER": pa.int32(),
    "BIGINT": pa.int64(),
    "DOUBLE": pa.float64(),
    "VARCHAR": pa.utf8(),
    "TIMESTAMP": pa.timestamp("us"),
    "TIMESTAMP WITH TIME ZONE": pa.timestamp("us", tz="UTC"),
}
_MICROSECONDS = np.dtype("datetime64[us]")

# The engine says that rows of a statement are copied on their way to Arrow. They are few; planning again costs more.
warnings.filterwarnings("ignore", message="Arrow output on a DB-API result", category=UserWarning)


@dataclass(slots=True)
class _Statement:
    """A statement that is prepared, with the slot that its table is."""

    connection: duckdb.DuckDBPyConnection
    slot: Slot
    gave_many: bool = False  # rows, when it last ran


class _Statements:
    """Statements of one engine that nobody runs now, by their texts; those that were not run for longest go first."""

    def __init__(self, engine: duckdb.DuckDBPyConnection) -> None:
        self._engine = engine
        self.renew_after_fork()
        renew_after_fork(self)

    def renew_after_fork(self) -> None:
        """Begin anew: a thread of the parent may have been in the middle of a statement."""
        self._lock, self._count = Lock(), 0
        self._free: OrderedDict[str, list[_Statement]] = OrderedDict()

    def taken(self, text: str, stream: Stream) -> _Statement:
        """Return a statement for the caller alone, whose slot is for a stream."""
        with self._lock:
            found = self._free.get(text)
            kept = found.pop() if found else None
            if kept is not None:
                self._count -= 1
            if found is not None and not found:
                del self._free[text]
        if kept is not None and kept.slot.fits(stream):
            return kept
        slot = Slot(stream)
        connection = self._engine.cursor()
        connection.register(stream.name, slot)
        connection.execute(f"PREPARE tide AS {text}")
        return _Statement(connection, slot)

    def returned(self, text: str, statement: _Statement) -> None:
        """Keep a statement for the next one; it holds nothing of what it read."""
        statement.slot.rows = None
        gone = []
        with self._lock:
            self._free.setdefault(text, []).append(statement)
            self._free.move_to_end(text)
            self._count += 1
            while self._count > STATEMENTS:
                oldest = next(iter(self._free))
                gone.append(self._free[oldest].pop())
                self._count -= 1
                if not self._free[oldest]:
                    del self._free[oldest]
        for each in gone:
            each.connection.close()


def is_small(prepared: Prepared, scans: Sequence[Scan], memory_bytes: int) -> bool:
    """Whether a query reads few rows of one table, does little with each, and may take what that takes."""
    if len(scans) != 1 or memory_bytes < MEMORY:
        return False
    if not _is_little(scans[0]) and not (prepared.known.get("few", True) and _may_be_few(scans[0])):
        return False
    if "small" not in prepared.known:
        prepared.known["small"] = _is_bounded(prepared.tree)
    return prepared.known["small"]


def _is_little(scan: Scan) -> bool:
    """Whether a scan gives few rows, however many it stands for."""
    plan = scan.plan
    hot = sum(batch.rows for batch in plan.hot)
    if plan.stages[-1].rows + hot <= ROWS and scan.byte_size <= BYTES:
        return True
    if plan.question.counted is None:
        return False
    kept = kept_size(plan, scan.table.footers)
    return kept is not None and kept[0] + hot <= ROWS and kept[1] <= BYTES


def _may_be_few(scan: Scan) -> bool:
    """Whether a scan finds its rows by words that are kept in memory: of as many blocks, there may be few."""
    plan = scan.plan
    places = texts_asked(plan.question.where)
    if not places or plan.question.ordered_by or sum(len(task.blocks or ()) for task in plan.tasks) > SEARCHED_BLOCKS:
        return False
    footers = scan.table.footers
    readers = [footers.open(task.extent) for task in plan.tasks if footers.holds(task.extent)]
    return len(readers) == len(plan.tasks) and all(was_searched(reader, places) for reader in readers)


def rows_of(stream: Stream, text: str) -> tuple[pa.Table, list[str]] | None:
    """Run a small query, and return its rows and the engine's types of its columns; None if the engine complains."""
    statements = _statements()
    statement: _Statement | None = None
    try:
        # An engine that asks for rows batch by batch takes longer than for all of them.
        scanned = stream.read(ROWS, SCANNED_BYTES) if len(stream) > ROWS else stream.read()
        if scanned is None:
            return None
        statement = statements.taken(text, stream)
        statement.slot.rows = scanned
        ran = statement.connection.execute("EXECUTE tide")
        told = ran.description or ()
        names, kinds = [str(column[0]) for column in told], [str(column[1]) for column in told]
        if not kinds or not _TYPES.issuperset(kinds):
            return None
        rows: pa.Table
        if statement.gave_many or not _PLAIN.keys() >= set(kinds):
            rows = ran.to_arrow_table()
        else:
            found = ran.fetchnumpy().values()  # under names that the engine made different
            rows = pa.Table.from_arrays([_array(*each) for each in zip(found, kinds, strict=True)], names)
        statement.gave_many = rows.num_rows > FEW_ROWS
        statements.returned(text, statement)
        statement = None
        return rows, kinds
    except (duckdb.Error, pa.ArrowException, OSError, MemoryError, UserWarning):
        if stream.failure is not None:
            raise stream.failure from None
        return None
    finally:
        if statement is not None:
            statement.slot.rows = None
            statement.connection.close()


def _array(values: Any, kind: str) -> pa.Array:
    """Return a column of numpy's as Arrow, whose nulls are masked there."""
    mask = np.ma.getmaskarray(values) if np.ma.is_masked(values) else None
    plain = np.ma.getdata(values)
    if plain.dtype == _MICROSECONDS:  # numpy has a null of its own among times, which the engine does not know
        return pa.array(plain.view(np.int64), pa.int64(), mask=mask).view(_PLAIN[kind])
    return pa.array(plain, _PLAIN[kind], mask=mask)


def close() -> None:
    """Let go of the engine, which must not outlive the interpreter."""
    _statements.cache_clear()


def _is_bounded(tree: exp.Query) -> bool:
    for at, node in enumerate(tree.walk()):
        kind = type(node)
        if at >= NODES or not (kind in _NODES or (kind is exp.Anonymous and str(node.this).lower() in _CALLS)):
            return False
        if kind is exp.Select and node is not tree and not isinstance(node.parent, exp.CTE):
            return False
        if kind is exp.With and node.args.get("recursive"):
            return False
    return True


@lru_cache(maxsize=1)
def _statements() -> _Statements:
    """Open the engine, once; no functions of ours are there, because no small query calls any."""
    return _Statements(opened(MEMORY, threads=1))
