"""Ask a scan for equal rows once, with how many they are, where a query only counts rows by what they have at a path.

Such a query computes from one path of one table, row by row, and then groups and counts: ``count(*)`` becomes the sum
of a column of the scan, and all else sees fewer rows with the same values. Least and most values are the same of them.
Any other aggregate, a chance, a window, a join or a subquery leaves the query as it is. It does not read.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from tidelake.query.kql.relations import BY_CHANCE
from tidelake.query.prepared import Prepared
from tidelake.query.pushdown import CHANCE, aggregates_in, makes_rows

ROWS = "tide:rows"
_OTHER_SHAPES = ("joins", "laterals", "windows", "qualify", "distinct", "sort", "cluster", "distribute")
_GROUPINGS = ("grouping_sets", "rollup", "cube", "all", "totals")


def with_rows_counted(prepared: Prepared) -> Prepared:
    """Return the query with its rows counted by the scan, or as it is."""
    if len(prepared.asks) != 1:
        return prepared
    ask = prepared.asks[0]
    if ask.columns or ask.limit is not None or len({(each.column, each.path) for each in ask.paths}) != 1:
        return prepared
    tables = [table for table in prepared.tree.find_all(exp.Table) if table.name == ask.reference.name]
    select = tables[0].find_ancestor(exp.Select) if len(tables) == 1 else None
    if select is None or select.args["from_"].this is not tables[0] or not _only_counts(select):
        return prepared
    alias = exp.to_identifier(tables[0].alias_or_name, quoted=True)
    for count in list(select.find_all(exp.Count)):
        rows = exp.Sum(this=exp.column(exp.to_identifier(ROWS, quoted=True), table=alias.copy()))
        whole = exp.Cast(this=rows, to=exp.DataType.build("bigint"))
        count.replace(exp.Coalesce(this=whole, expressions=[exp.Literal.number(0)]))
    return replace(prepared, asks=(replace(ask, counted=ROWS),))


def _only_counts(select: exp.Select) -> bool:
    """Whether a select groups and counts rows, and all else in it is the same of rows that are equal."""
    group = select.args.get("group")
    if any(select.args.get(key) for key in _OTHER_SHAPES) or (group and any(group.args.get(key) for key in _GROUPINGS)):
        return False
    inner = [node for part in select.args.values() for each in _nodes(part) for node in each.find_all(exp.Query)]
    parts = [each for key, part in select.args.items() if key not in ("from_", "with_") for each in _nodes(part)]
    if any(node is not select for node in inner) or any(part.find(exp.Window, *CHANCE) for part in parts):
        return False
    if any(makes_rows(part) or any(call.name in BY_CHANCE for call in part.find_all(exp.Anonymous)) for part in parts):
        return False
    aggregates = [call for part in parts for call in aggregates_in(part)]
    if not all(_is_alike(call) for call in aggregates):
        return False
    return any(isinstance(call, exp.Count) for call in aggregates)


def _nodes(part: object) -> list[exp.Expr]:
    several = part if isinstance(part, list) else [part]
    return [each for each in several if isinstance(each, exp.Expr)]


def _is_alike(call: exp.Expr) -> bool:
    """Whether an aggregate is known of rows that are given once with their number."""
    if isinstance(call.parent, exp.Filter) or call.args.get("expressions"):
        return False
    if isinstance(call, exp.Count):
        return isinstance(call.this, exp.Star | exp.Literal)
    return isinstance(call, exp.Min | exp.Max)
