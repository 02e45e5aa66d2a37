"""Hold the answer to a query: its rows in whatever form is wanted, and how little was read for it.

Nothing is read until rows are asked for; then they are read once and kept. It does not run queries: the engines do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from tidelake.lake import Lake
from tidelake.plan import ScanPlan
from tidelake.query.budget import Budget
from tidelake.query.pushdown import Ask
from tidelake.table import Table

if TYPE_CHECKING:
    import pandas
    import polars

SHOWN_ROWS = 20


@dataclass(frozen=True, slots=True)
class Prepared:
    """A query that is ready to be planned: its tree, the names of its columns, and what it asks of each table."""

    text: str
    language: str
    tree: exp.Query
    columns: tuple[str, ...]
    asks: tuple[Ask, ...]
    rendered: dict[str, str] = field(default_factory=dict)  # by engine, written once


@dataclass(frozen=True, slots=True)
class Scan:
    """One table as a query reads it: the name it has in the tree, its columns there, and the plan."""

    name: str
    columns: tuple[str, ...]
    table: Table
    plan: ScanPlan
    ask: Ask

    @property
    def byte_size(self) -> int:
        """The bytes that reading it takes, as stored."""
        return self.plan.stages[-1].byte_size + sum(len(batch.payload) for batch in self.plan.hot)


class Result:
    """The answer to a query."""

    def __init__(self, prepared: Prepared, scans: list[Scan], engine: str, budget: Budget, lake: Lake) -> None:
        self._prepared, self._scans, self._budget, self._lake = prepared, scans, budget, lake
        self._rows: pa.Table | None = None
        self.engine = engine

    @property
    def columns(self) -> tuple[str, ...]:
        return self._prepared.columns

    def to_arrow(self) -> pa.Table:
        """Give the rows as an Arrow table."""
        if self._rows is None:
            self._rows = self._run()
        return self._rows

    def _run(self) -> pa.Table:
        from tidelake.query import local

        return local.execute(self._prepared, self._scans, self._budget, self._lake)

    def to_polars(self) -> polars.DataFrame:
        """Give the rows as a Polars frame; needs polars."""
        import polars

        frame = polars.from_arrow(self.to_arrow())
        assert isinstance(frame, polars.DataFrame)
        return frame

    def to_pandas(self) -> pandas.DataFrame:
        """Give the rows as a pandas frame; needs pandas."""
        return self.to_arrow().to_pandas()

    def explain(self) -> str:
        """Say which engine runs the query, and draw of every table what pruning left."""
        return "\n\n".join([f"engine {self.engine}", *(scan.plan.explain() for scan in self._scans)])

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def __len__(self) -> int:
        return int(self.to_arrow().num_rows)
