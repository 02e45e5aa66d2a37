"""Lower KQL to a tree that both engines run.

``OPERATORS`` is the table of operators, and the reference is generated from it. It does not read tables or run
anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from sqlglot import exp

from tidelake.query.kql import columns, expanding, finding, grouping, joining, nesting, pairs, syntax
from tidelake.query.kql.binder import Binder, OperatorRule, Place
from tidelake.query.kql.conversions import convert
from tidelake.query.kql.mistakes import error_at
from tidelake.query.kql.parser import parse
from tidelake.query.kql.relations import Relation, aliased
from tidelake.query.kql.scope import Names
from tidelake.query.kql.values import Column, Value, call, cast
from tidelake.query.kql.values import text as never_null
from tidelake.query.tables import Tables

OPERATORS: Mapping[str, OperatorRule] = {
    "where": columns.where, "extend": columns.extend, "project": columns.project, "project-away": columns.project_away,
    "project-keep": columns.project_keep, "project-by-names": columns.project_by_names,
    "project-rename": columns.project_rename,
    "project-reorder": columns.project_reorder, "sort": columns.sort, "take": columns.take, "top": columns.top,
    "sample": columns.sample, "serialize": columns.extend, "getschema": columns.getschema, "as": columns.same,
    "consume": columns.same, "render": columns.render, "print": columns.print_row, "summarize": grouping.summarize,
    "count": grouping.count, "distinct": grouping.distinct, "sample-distinct": grouping.sample_distinct,
    "make-series": grouping.make_series, "join": joining.join, "lookup": joining.join, "union": joining.union,
    "search": finding.search, "mv-expand": expanding.mv_expand, "mv-apply": expanding.mv_apply,
    "partition": expanding.partition, "parse": expanding.parse, "parse-where": expanding.parse,
    "parse-kv": pairs.parse_kv, "range": expanding.range_rows, "invoke": expanding.invoke,
    "evaluate": expanding.evaluate, "find": finding.find, "top-nested": nesting.top_nested,
    "top-hitters": nesting.top_hitters, "reduce": nesting.reduce_by,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Render:
    """How the author wants the result drawn: a hint."""

    kind: str
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Lowered:
    """A query as a tree, the names and KQL types of its result's columns, and the hint to draw it.

    ``unpack`` names a dynamic column whose keys are to become columns of the result, which only the data can tell: see
    ``results.unpacked``. A timespan is text in the result. ``timely`` says that the query asked what time it is.
    """

    tree: exp.Query
    columns: tuple[tuple[str, str], ...]
    render: Render | None = None
    unpack: str | None = None
    conflict: str = "keep_source"  # what becomes of a key that is a column's name
    timely: bool = False


def lower(text: str, tables: Tables, *, now: datetime) -> Lowered:
    """Return the tree of a KQL text over some tables, with ``now()`` fixed."""
    script = parse(text)
    binder = Binder(tables, text, now.astimezone(UTC), OPERATORS)
    names = Names()
    for statement in script.statements:
        names = binder.declare(statement, names)
    if script.query is None:
        raise error_at(text, len(text.rstrip()), "the text has no query, only definitions", kind="no_query")
    place = Place(names, text)
    try:
        if binder.is_table(script.query, place) or _might_be_table(script.query, names):
            relation = binder.table(script.query, place)
        else:
            value = columns.settled(binder.bind(script.query, binder.scope(None, place)))
            relation = _single(binder, value)
        return _finished(binder, relation)
    except RecursionError:
        raise error_at(text, 0, "nested too deeply", kind="too_deep") from None


def _might_be_table(node: syntax.Expression, names: Names) -> bool:
    """Return whether a name alone is best read as a table, though there is none: the message then says so."""
    return isinstance(node, syntax.Name) and names.find(node.name) is None


def _single(binder: Binder, value: Value) -> Relation:
    column = Column("Column1", value.type, "Column1")
    return binder.steps.relation(exp.select(aliased(value.sql, column.key)), (column,), Relation(exp.Table(), "", ()))


def _finished(binder: Binder, relation: Relation) -> Lowered:
    """Write the last SELECT: in order, without hidden columns, with timespans as text."""
    if relation.order and not relation.is_plain:
        relation = binder.steps.closed(relation)
    if not relation.columns and relation.bag is None:
        raise binder.error(0, "the result has no columns", kind="no_columns")
    chosen = []
    for column in relation.columns:
        sql = relation.item(column)
        if column.type == "timespan":
            sql = convert(Value(sql, "timespan"), "string").sql
        elif column.type == "string":  # KQL's text is never null
            sql = never_null(Value(sql, "string"))
        elif column.type == "decimal":  # which a version alone is
            sql = cast(sql, "real")
        elif column.type == "vector":
            sql = call("tide_vector_to_dynamic", sql)
        chosen.append(aliased(sql, column.name))
    query = exp.select(*chosen).from_(relation.source.copy())
    for condition in relation.where:
        query = query.where(condition, copy=False)
    if relation.order:
        query = query.order_by(*relation.order_sql(), copy=False)
    tree = binder.steps.attach(query)
    render = Render(*binder.rendered) if binder.rendered else None
    unpack = relation.bag.name if relation.bag is not None and relation.bag.name in relation.by_name else None
    types = tuple((column.name, column.type) for column in relation.columns)
    conflict = relation.bag.conflict if relation.bag is not None else "keep_source"
    return Lowered(tree, types, render, unpack, conflict, binder.clock.was_read)
