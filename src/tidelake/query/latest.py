"""Find what a query orders by a table's time and limits, so that a plan leaves out what is too old or too new for it.

It must be one table, perhaps through selects that only filter and compute, ordered by its time column first, where all
conditions are asked of the table as they are. The engine still orders and limits. It does not plan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from tidelake.pruning.topmost import Top
from tidelake.query.bind import Bound, Reference
from tidelake.query.nearest import followed, output_of, rows_of
from tidelake.query.pushdown import Ask, is_plain_select


def with_latest(bound: Bound, asks: Sequence[Ask]) -> tuple[Ask, ...]:
    """Return what is asked of tables, with the column by which only the first or last rows are needed."""
    wanted: dict[str, tuple[str, Top]] = {}
    for select in bound.tree.find_all(exp.Select):
        found = _latest_in(select, bound)
        if found is not None:
            wanted[found[0].name] = found[1:]
    return tuple(replace(ask, top=wanted.get(ask.reference.name)) for ask in asks)


def _latest_in(select: exp.Select, bound: Bound) -> tuple[Reference, str, Top] | None:
    order, rows = select.args.get("order"), rows_of(select)
    if order is None or rows is None or not isinstance(order.expressions[0], exp.Ordered):
        return None
    ordered = order.expressions[0]
    bare = select.copy()
    for clause in ("order", "limit", "offset", "with_"):
        bare.set(clause, None)
    if not is_plain_select(bare):
        return None
    outputs = {each.alias_or_name: each.unalias() for each in select.expressions}
    reached = followed(select, ordered.this.copy().transform(output_of, outputs), bound)
    if reached is None:
        return None
    reference, alias, key = reached
    if not isinstance(key, exp.Column) or key.table != alias or key.name not in reference.types:
        return None
    kind = reference.types[key.name]
    if kind.kind != "timestamp" or kind.logical is not None:
        return None
    return reference, reference.spelled[key.name], Top(rows, newest=bool(ordered.args.get("desc")))
