"""Hold the answer to a query: its rows in whatever form is wanted, and how little was read for it.

Nothing is read until rows are asked for. Those who ask for all of them get them read once and kept; who reads a stream
gets them as they come, and nothing is kept. It does not run queries: the engines do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidelake.coverage.entities import may_concern
from tidelake.coverage.verbs import Judge, Series
from tidelake.dynamic.forms import decode
from tidelake.handle.table_handle import TableHandle
from tidelake.logical.frames import pandas_frame
from tidelake.model.schema import JSON_FIELD
from tidelake.model.svg import Gap
from tidelake.pruning.plan import ScanPlan
from tidelake.query.budget import Budget
from tidelake.query.kql import Render
from tidelake.query.kql.results import unpacked
from tidelake.query.plotting import Plot, gaps_between, plot
from tidelake.query.prepared import Prepared, Runs, Scan, marked_json
from tidelake.scan.misfits import announced

if TYPE_CHECKING:
    import pandas
    import polars
    from pyspark.sql import DataFrame

SHOWN_ROWS = 20
UNPACKED_SHARE = 8  # a bag's JSON as Python objects takes some times as many bytes
CELL_LETTERS = 60  # of a value shown to a person; `to_arrow` has it whole


class Result:
    """The answer to a query."""

    def __init__(self, prepared: Prepared, scans: Sequence[Scan], engine: str, budget: Budget, runs: Runs) -> None:
        self._prepared, self._scans, self._budget, self._runs = prepared, tuple(scans), budget, runs
        self._rows: pa.Table | None = None
        self._announced: tuple[tuple[str, ...], ...] | None = None
        self.engine = engine

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the result's columns; those that only the rows can tell, once they are read."""
        return self._prepared.columns if self._rows is None else tuple(self._rows.schema.names)

    @property
    def plans(self) -> tuple[ScanPlan, ...]:
        """The plan of each table's scan, in the order of the text."""
        return tuple(replace(scan.plan, warnings=each) for scan, each in zip(self._scans, self._by_scan(), strict=True))

    @property
    def reads(self) -> tuple[tuple[str, str], ...] | None:
        """The tables that it reads and their snapshots' ids, if these alone say what its rows are; or else None."""
        if not self._prepared.repeatable or not all(isinstance(scan.table, TableHandle) for scan in self._scans):
            return None
        return tuple(sorted({(scan.table.name, scan.table.snapshot.id) for scan in self._scans}))

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows; nothing is run to know them, but for those that only the rows can tell."""
        lowered = self._prepared.lowered
        if self._rows is not None or (lowered is not None and lowered.unpack is not None):
            return self.to_arrow().schema
        return self._runs.schema(self._prepared, self._scans, self._budget)

    @property
    def is_plain(self) -> bool:
        """Whether its rows are those of one scan, in any order, so that they can be read in parts."""
        return is_plain(self._prepared, self._scans)

    @property
    def snapshots(self) -> Mapping[str, int]:
        """The sequences of the snapshots that it reads, by the tables' names."""
        return {scan.table.name: scan.table.snapshot.sequence for scan in self._scans}

    @property
    def read_bytes(self) -> int:
        """The bytes that its scans read, as stored."""
        return sum(scan.byte_size for scan in self._scans)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the answer leaves out: values that do not fit the type of a column that the query reads."""
        return tuple(dict.fromkeys(each for several in self._by_scan() for each in several))

    def _by_scan(self) -> tuple[tuple[str, ...], ...]:
        if self._announced is None:
            self._announced = tuple(
                announced(scan.plan, scan.table.footers, scan.asked) if scan.plan.question.alternatives else ()
                for scan in self._scans
            )
        return self._announced

    @property
    def render(self) -> Render | None:
        """How the author of a KQL query wants its result drawn: a hint, for those who draw."""
        return None if self._prepared.lowered is None else self._prepared.lowered.render

    @property
    def kinds(self) -> Mapping[str, str]:
        """The types that KQL has for the result's columns, by their names; nothing for another language."""
        return {} if self._prepared.lowered is None else dict(self._prepared.lowered.columns)

    def to_arrow(self) -> pa.Table:
        """Return the rows as an Arrow table; a dynamic value is its JSON text."""
        if self._rows is None:
            rows = self._collected()
            lowered = self._prepared.lowered
            if lowered is not None and lowered.unpack is not None:
                if rows.nbytes > self._budget.result_bytes // UNPACKED_SHARE:
                    raise self._budget.out_of_result()
                rows, kinds = unpacked(lowered, rows)
                rows = rows.cast(marked_json(rows.schema, [kind == "dynamic" for _, kind in kinds]))
            self._rows = rows
        return self._rows

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream of batches, which holds few of them at a time; a dynamic value is its JSON text.

        The local engine gives rows as they come. Each stream runs the query again, unless its rows are held already.
        """
        lowered = self._prepared.lowered
        if self._rows is not None or (lowered is not None and lowered.unpack is not None):
            return self.to_arrow().to_reader()
        return self._runs.rows(self._prepared, self._scans, self._budget)

    def to_polars(self) -> polars.DataFrame:
        """Return the rows as a Polars frame; needs polars."""
        import polars

        frame = polars.from_arrow(self.to_arrow())
        assert isinstance(frame, polars.DataFrame)
        return frame

    def to_pandas(self) -> pandas.DataFrame:
        """Return the rows as a pandas frame; needs pandas."""
        return pandas_frame(self.to_arrow())

    def spark(self) -> DataFrame:
        """Return the query as a Spark frame, whichever engine was chosen; needs pyspark."""
        return self._runs.frame(self._prepared, self._scans)

    def show(self, rows: int = SHOWN_ROWS) -> None:
        """Print the first rows."""
        print("\n".join([self._text(rows), *(f"warning: {each}" for each in self.warnings)]))

    def plot(self, kind: str | None = None) -> Plot:
        """Draw the rows, for a notebook: as ``kind`` says, or the query's ``render``, or as the columns suggest.

        Kinds are those of ``render``: timechart, areachart, columnchart, scatterchart, barchart, piechart. Windows that
        the table does not hold are hatched, where it knows them.
        """
        told = self.render.kind if kind is None and self.render is not None and self.render.kind != "table" else kind
        return plot(self.to_arrow(), told, self._gaps)

    def coverage_of(self, table: str) -> tuple[Series, Judge] | None:
        """Return what a table that the query reads holds, in the state that it reads, and which entities it may mean.

        None if it is not read, or does not count what it holds.
        """
        found = [scan for scan in self._scans if scan.table.name == table]
        handle = found[0].table if found else None
        if not isinstance(handle, TableHandle) or not handle.snapshot.settings.get("bucket"):
            return None

        def judge(entities: pa.Table) -> list[bool]:
            judged = [self._may_be_about(scan, entities) for scan in found]
            return [any(each) for each in zip(*judged, strict=True)]

        return Series(handle, handle.coverage_store), judge

    def _may_be_about(self, scan: Scan, entities: pa.Table) -> list[bool]:
        """Say of each entity whether a scan may want rows of it: by what was pushed to it, and by all that is asked."""
        where = scan.plan.question.where
        pushed = [True] * entities.num_rows if where is None else may_concern(entities, where)
        asked = self._runs.satisfying(self._prepared, scan, entities, self._budget)
        return [one and other for one, other in zip(pushed, asked, strict=True)]

    def _gaps(self, start: float, end: float) -> list[Gap]:
        """Return the windows between two times that the only table of the query does not hold."""
        names = {scan.table.name for scan in self._scans}
        found = self.coverage_of(names.pop()) if len(names) == 1 else None
        if found is None or found[0].is_of_numbers:
            return []
        series, judge = found
        low, high = (datetime.fromtimestamp(each, UTC) for each in (start, end))
        entities = series.report(low, high, where=judge).entities
        if not entities.num_rows:
            return [Gap(start, end, True, "")]
        missing = series.gaps(low, high, where=judge)
        return gaps_between(missing, missing.schema.names[:-3], entities.num_rows)

    def explain(self) -> str:
        """Say which engine runs the query, and draw of every table what pruning left."""
        return "\n\n".join([f"engine {self.engine}", *(plan.explain() for plan in self.plans)])

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        """Let any reader of Arrow streams read the result."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Return the rows one by one, as dicts; dynamic values as Python objects."""
        for batch in self.to_reader():
            columns = [_objects(column, field) for column, field in zip(batch.columns, batch.schema, strict=True)]
            for values in zip(*columns, strict=True):
                yield dict(zip(batch.schema.names, values, strict=True))

    def __len__(self) -> int:
        return int(self.to_arrow().num_rows)

    def __repr__(self) -> str:
        if self._rows is None:
            return f"Result({', '.join(self.columns)}; not read yet, engine {self.engine})"
        return self._text(SHOWN_ROWS)

    def _repr_html_(self) -> str:
        rows = self.to_arrow()
        head = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in _cells(rows, SHOWN_ROWS)
        )
        more = f"<p>{rows.num_rows:,} rows</p>" if rows.num_rows > SHOWN_ROWS else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"

    def _collected(self) -> pa.Table:
        """Collect all rows, as long as they fit into the budget."""
        with self._runs.rows(self._prepared, self._scans, self._budget) as reader:
            batches, size = [], 0
            for batch in reader:
                batches.append(batch)
                size += batch.nbytes
                if size > self._budget.result_bytes:
                    raise self._budget.out_of_result()
            return pa.Table.from_batches(batches, reader.schema)

    def _text(self, most: int) -> str:
        """Draw the first rows as a table of plain letters."""
        rows = self.to_arrow()
        lines = [list(self.columns), *_cells(rows, most)]
        widths = [max(len(line[at]) for line in lines) for at in range(len(self.columns))]
        drawn = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
        ]
        drawn.insert(1, "  ".join("-" * width for width in widths))
        if rows.num_rows > most:
            drawn.append(f"… {rows.num_rows:,} rows")
        return "\n".join(drawn)


def is_plain(prepared: Prepared, scans: Sequence[Scan]) -> bool:
    """Return whether a query's rows are those of one scan, as many as there are, in any order."""
    if prepared.picked is None or len(scans) != 1:
        return False
    question = scans[0].plan.question
    return question.limit is None and question.ordered_by is None and isinstance(scans[0].table, TableHandle)


def _objects(column: pa.Array, field: pa.Field) -> list[Any]:
    is_dynamic = (field.metadata or {}).get(b"tidelake.type") == JSON_FIELD[b"tidelake.type"]
    return list(decode(column)) if is_dynamic else column.to_pylist()


def _cells(rows: pa.Table, most: int) -> list[list[str]]:
    return [[_cell(value) for value in row.values()] for row in _pairs(rows.slice(0, most))]


def _pairs(rows: pa.Table) -> list[dict[int, Any]]:
    """Return rows by the columns' places, because names may occur twice."""
    columns = [column.to_pylist() for column in rows.columns]
    return [dict(enumerate(values)) for values in zip(*columns, strict=True)]


def _cell(value: Any) -> str:
    text = "" if value is None else value.isoformat(sep=" ") if isinstance(value, datetime) else str(value)
    text = text.replace("\n", "\\n")
    return text if len(text) <= CELL_LETTERS else text[: CELL_LETTERS - 1] + "…"
