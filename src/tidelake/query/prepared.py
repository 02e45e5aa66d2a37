"""What is known of a query before it runs: its tree, what it asks of each table, and how each table is scanned.

It does not plan, run or finish anything: ``session`` plans, the engines run, ``result`` holds the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from sqlglot import exp

from tidelake.model.predicate import columns_of
from tidelake.model.schema import JSON_FIELD
from tidelake.pruning.plan import ScanPlan
from tidelake.query.budget import Budget
from tidelake.query.join_keys import JoinKey
from tidelake.query.kql import Lowered
from tidelake.query.manifest import Answered, Shape
from tidelake.query.pushdown import Ask
from tidelake.scan.scannable import Scannable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Runs(Protocol):
    """What runs a result's query, on the engine that was chosen."""

    def rows(self, prepared: Prepared, scans: Sequence[Scan], budget: Budget) -> pa.RecordBatchReader: ...

    def schema(self, prepared: Prepared, scans: Sequence[Scan], budget: Budget) -> pa.Schema: ...

    def satisfying(self, prepared: Prepared, scan: Scan, rows: pa.Table, budget: Budget) -> list[bool]: ...

    def frame(self, prepared: Prepared, scans: Sequence[Scan]) -> DataFrame: ...


@dataclass(frozen=True, slots=True)
class Prepared:
    """A query that is ready to be planned: its tree, the names of its columns, and what it asks of each table."""

    text: str
    language: str
    tree: exp.Query
    columns: tuple[str, ...]
    asks: tuple[Ask, ...]
    shape: Shape | None = None  # what the manifest may answer
    lowered: Lowered | None = None  # of a KQL query: how its result is finished and drawn
    clocks: frozenset[int] = frozenset()  # the places of columns that are wall clocks, without a zone
    picked: tuple[str, ...] | None = None  # columns, where that is all it asks for
    grows: bool = False  # whether a condition doubles on its way down to the tables, which an engine must not try
    joined: tuple[JoinKey, ...] = ()  # rows that joins drop, and scans may
    rendered: dict[str, str] = field(default_factory=dict)  # by engine, written once
    known: dict[str, bool] = field(default_factory=dict)  # what engines ask of the tree, answered once
    kept: dict[str, Any] = field(default_factory=dict)  # what an engine makes of it each time, and alike
    plans: dict[int, ScanPlan] = field(default_factory=dict)  # of its asks, by their places, at one snapshot each
    answered: dict[str, Answered] = field(default_factory=dict)  # by the manifest, at one snapshot, by the table's name
    repeatable: bool = False  # whether the same snapshots give the same rows, whenever it is asked
    apart: Prepared | None = None  # the same with paths in place of dynamic columns, for the engine in process


@dataclass(frozen=True, slots=True)
class Scan:
    """One table as a query reads it: the name it has in the tree, its columns there, and the plan."""

    name: str
    columns: tuple[str, ...]
    table: Scannable
    plan: ScanPlan
    ask: Ask

    @property
    def asked(self) -> frozenset[str]:
        """The table's columns that the query looks at; one that is only read to count rows is not among them."""
        where = self.plan.question.where
        named = frozenset(self.ask.reference.spelled[name] for name in self.ask.columns)
        named |= {each.column for each in self.ask.paths}
        return named | (frozenset() if where is None else columns_of(where))

    @property
    def byte_size(self) -> int:
        """The bytes that reading it takes, as stored."""
        return self.plan.stages[-1].byte_size + sum(len(batch.payload) for batch in self.plan.hot)


def result_schema(prepared: Prepared, found: pa.Schema, dynamic: Sequence[bool]) -> pa.Schema:
    """Return a result's schema from what an engine found: with the query's names, and its dynamic columns marked.

    KQL knows the types of its columns; of others the engine says which hold JSON.
    """
    names = prepared.columns if len(prepared.columns) == len(found) else found.names
    if prepared.lowered is not None and len(prepared.lowered.columns) == len(found):
        dynamic = [kind == "dynamic" for _, kind in prepared.lowered.columns]
    fields = [field.with_name(name) for field, name in zip(found, names, strict=True)]
    return marked_json(pa.schema(fields), dynamic)


def marked_json(schema: pa.Schema, dynamic: Sequence[bool]) -> pa.Schema:
    """Mark the text columns that hold JSON."""
    return pa.schema(
        [
            field.with_metadata(JSON_FIELD) if is_json and pa.types.is_string(field.type) else field
            for field, is_json in zip(schema, dynamic, strict=True)
        ]
    )
