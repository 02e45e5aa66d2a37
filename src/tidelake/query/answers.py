"""Let a query ask a table what it holds and what is missing, as if the answer were a table.

::

    SELECT * FROM gaps('m.cpu', '2026-01-01', '2026-02-01', least => '5m')
    SELECT device, ratio FROM coverage('m.cpu')
    gaps('m.cpu', ago(1d), now()) | where buckets > 5               in KQL

``gaps``, ``missing`` and ``held`` give entity columns, start, end and buckets; ``coverage`` a row for each entity. The
arguments are constants: table, start, end, and by name also ``entity``, ``schedule``, ``least`` (gaps) and ``at_most``
(missing). An answer is found when the query is prepared, at the snapshot that its table is pinned to, and is scanned
like rows that are not yet in an extent, so both engines read it alike. It does not run queries.
"""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from sqlglot import exp

from tidelake.catalog.protocol import TableInfo, new_id
from tidelake.errors import InvalidInputError, NotFoundError
from tidelake.lake import Lake
from tidelake.model.schema import Schema
from tidelake.model.snapshot import Counts, HotBatch, Scope, Snapshot
from tidelake.pruning.plan import ScanPlan, make_plan
from tidelake.query.constants import constant_of
from tidelake.query.sql.parse import error_of
from tidelake.query.tables import ANSWER_PLACES, ANSWERS, Answering
from tidelake.scan.extents import prune_blocks
from tidelake.scan.hot import hot_payload
from tidelake.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def coverage_table(lake: Lake, table: str | Table, kind: str = "coverage", **words: Any) -> pa.Table:
    """Give an answer about a table's coverage: ``coverage``, ``gaps``, ``missing`` or ``held``."""
    asked = (lake.table(table) if isinstance(table, str) else table).coverage
    match kind:
        case "gaps":
            return asked.gaps(**words)
        case "missing":
            return asked.missing(words.pop("start", None), words.pop("end", None), **words)
        case "held":
            return asked.held(**words)
        case "coverage":
            return asked.report(**words).entities
        case _:
            raise InvalidInputError("no such answer", kind="bad_answer", asked=kind, known=", ".join(ANSWERS))


class Answer(Table):
    """Rows in memory, to be scanned as a table is."""

    def __init__(self, lake: Lake, name: str, rows: pa.Table) -> None:
        info = TableInfo(new_id(), "answers", name, 0)
        schema = Schema.of({field.name: _type_of(field.type) for field in rows.schema})
        whole = rows.cast(schema.arrow).combine_chunks().to_batches()
        batch = HotBatch(new_id(), rows.num_rows, hot_payload(whole[0]), None, None, 1) if whole else None
        totals = Counts(hot_batches=len(whole), hot_rows=rows.num_rows, hot_bytes=len(batch.payload) if batch else 0)
        pinned = Snapshot(Scope(info.id), 1, info.id, None, 0, "answer", schema, {}, totals)
        super().__init__(lake.catalog, lake.store, lake.coordinator, lake.footers, info, pinned, holdings=lake.holdings)
        self._rows = () if batch is None else (batch,)

    def plan(self, columns: Any = None, where: Any = None, **words: Any) -> ScanPlan:
        """Say what a scan would read: rows in memory."""
        return prune_blocks(self.outline(columns, where, **words), self._footers)

    def outline(self, columns: Any = None, where: Any = None, **words: Any) -> ScanPlan:
        """Plan without a catalog, which does not know the rows."""
        snapshot = self.snapshot
        question = self._question(snapshot, columns, where, None, None, words.get("limit"), False)
        return make_plan(self.name, snapshot, question, (), self._rows)

    def to_spark(
        self, columns: Any = None, where: Any = None, *, spark: SparkSession | None = None, plain: bool = False
    ) -> DataFrame:
        """Give the rows to Spark themselves: there is no table for executors to read."""
        from tidelake.spark import session

        frame: DataFrame = (spark or session()).createDataFrame(self.scan(columns, where).read_all())
        return frame


def name_answers(tree: exp.Query, text: str, tables: Answering) -> None:
    """Turn the calls among a query's tables into the names of their answers."""
    for node in list(tree.find_all(exp.Table)):
        call = node.this
        if not isinstance(call, exp.Anonymous) or str(call.this).lower() not in ANSWERS:
            continue
        kind = str(call.this).lower()
        words = _words(call, text, kind)
        try:
            name = tables.answer(kind, words)
        except NotFoundError as error:
            raise error_of(text, call, str(error), kind="unknown_table") from None
        node.set("this", exp.to_identifier(name, quoted=True))
        if not node.args.get("alias"):
            node.set("alias", exp.TableAlias(this=exp.to_identifier(kind, quoted=True)))


def _words(call: exp.Anonymous, text: str, kind: str) -> dict[str, Any]:
    words: dict[str, Any] = {}
    for place, argument in enumerate(call.expressions):
        if isinstance(argument, exp.Kwarg | exp.PropertyEQ | exp.EQ):
            name, value = argument.this.name.lower(), argument.expression
        elif place < len(ANSWER_PLACES):
            name, value = ANSWER_PLACES[place], argument
        else:
            raise error_of(text, argument, f"{kind} takes {', '.join(ANSWER_PLACES)}; name the others", kind="syntax")
        if name not in (*ANSWER_PLACES, *ANSWERS[kind]):
            known = ", ".join((*ANSWER_PLACES, *sorted(ANSWERS[kind])))
            raise error_of(text, argument, f"{kind} knows no {name!r}: {known}", kind="syntax")
        words[name] = _value(value, text)
    if not isinstance(words.get("table"), str):
        raise error_of(text, call, f"{kind} needs the name of a table, {kind}('m.cpu')", kind="syntax")
    return words


def _value(node: exp.Expr, text: str) -> Any:
    value = constant_of(node)
    if value is None and not isinstance(node, exp.Null):
        raise error_of(text, node, "an argument here must be a constant", kind="syntax")
    if isinstance(value, Decimal):
        return int(value) if value == int(value) else float(value)
    if not isinstance(value, datetime | str | int | float | bool | None):
        return str(value)  # a date
    return value


def _type_of(kind: pa.DataType) -> str:
    if pa.types.is_timestamp(kind):
        return "timestamp"
    if pa.types.is_floating(kind):
        return "real"
    if pa.types.is_boolean(kind):
        return "bool"
    if pa.types.is_integer(kind):
        return "int" if kind.bit_width <= 32 else "long"
    return "string"
