"""Let a query ask a table what it holds now and what is missing, as if the answer were a table.

::

    SELECT * FROM gaps('m.cpu', '2026-01-01', '2026-02-01', least => '5m')
    SELECT device, ratio FROM coverage('m.cpu')
    gaps('m.cpu', ago(1d), now()) | where buckets > 5               in KQL
    SELECT * FROM live('crm.orders')                                the table of a source: see ``connectors.attached``
    SELECT * FROM latest('crm.orders')                              of a table that is synced: see ``connectors.latest``

``gaps``, ``missing`` and ``held`` give entity columns, start, end and buckets; ``coverage`` a row for each entity. The
arguments are constants: table, start, end, and by name also ``entity``, ``schedule``, ``least`` (gaps) and ``at_most``
(missing). An answer is found when the query is prepared, at the snapshot that its table is pinned to, and is scanned
like rows that are not yet in an extent, so both engines read it alike. It does not run queries.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from sqlglot import exp

from tidelake.connectors.attached import live_table
from tidelake.connectors.latest import LatestRows
from tidelake.coverage.verbs import Series, no_coverage
from tidelake.errors import InvalidInputError, NotFoundError
from tidelake.handle.lake_handle import LakeHandle
from tidelake.handle.table_handle import TableHandle
from tidelake.query.constants import constant_of
from tidelake.query.sql.parse import error_of
from tidelake.query.tables import ANSWER_PLACES, ANSWERS, Answering
from tidelake.scan.footers import Footers
from tidelake.scan.scannable import MemoryRows, Scannable


def coverage_table(table: Scannable, kind: str, words: Mapping[str, Any]) -> pa.Table:
    """Return an answer about a table's coverage: ``coverage``, ``gaps``, ``missing`` or ``held``."""
    if not isinstance(table, TableHandle):
        raise no_coverage(table.name)
    asked, about = Series(table, table.coverage_store), dict(words)
    match kind:
        case "gaps":
            return asked.gaps(**about)
        case "missing":
            return asked.missing(about.pop("start", None), about.pop("end", None), **about)
        case "held":
            return asked.held(**about)
        case "coverage":
            return asked.report(**about).entities
        case _:
            raise InvalidInputError("no such answer", kind="bad_answer", asked=kind, known=", ".join(ANSWERS))


def live(lake: LakeHandle, table: str, words: Mapping[str, Any]) -> Scannable:
    """Return a table of a source, to be read in place."""
    if words:
        raise InvalidInputError("live takes the name of a table alone", kind="bad_answer")
    return live_table(lake, table)


def answered(name: str, table: Scannable, kind: str, words: Mapping[str, Any], footers: Footers) -> Scannable:
    """Return an answer about a table, to be scanned as a table is under a name."""
    if kind != "latest":
        return answer_rows(name, coverage_table(table, kind, words), footers)
    if words:
        raise InvalidInputError("latest takes the name of a table alone", kind="bad_answer")
    latest: Scannable = LatestRows.of(table)
    return latest


def answer_rows(name: str, rows: pa.Table, footers: Footers) -> MemoryRows:
    """Hold an answer's rows under a name, to be scanned as a table is."""
    return MemoryRows.of(f"answers.{name}", rows, footers)


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
