"""Recognise queries that only pick columns and rows of one table, which a scan answers without an engine.

All conditions must be such that the scan keeps exactly the rows they keep, and columns of types that readers and
engines see alike. It does not read.
"""

from __future__ import annotations

from sqlglot import exp

from tidelake.model.schema import DataType
from tidelake.query.bind import Bound
from tidelake.query.conjuncts import conjuncts_of, pushed
from tidelake.query.pushdown import Ask, is_plain_select

_ALIKE = frozenset(("bool", "int", "long", "real", "string", "timestamp"))
_LOGICAL_ALIKE = frozenset(("date", "decimal"))


def picked(bound: Bound, asks: tuple[Ask, ...]) -> tuple[str, ...] | None:
    """Return the columns that a query gives, by their names in its tree, or None if it does more than pick them."""
    tree = bound.tree
    if len(asks) != 1 or not isinstance(tree, exp.Select) or tree.args.get("with_") is not None:
        return None
    if not is_plain_select(tree):
        return None
    source = tree.args["from_"].this
    reference = asks[0].reference
    if not isinstance(source, exp.Table) or source.name != reference.name or source.args.get("sample"):
        return None
    outputs = [each.unalias() for each in tree.expressions]
    names = [each.name for each in outputs if isinstance(each, exp.Column) and each.table == source.alias_or_name]
    if len(names) != len(outputs) or not all(
        name in reference.types and _is_alike(reference.types[name]) for name in names
    ):
        return None
    where = tree.args.get("where")
    for condition in conjuncts_of(None if where is None else where.this):
        found = pushed(condition, reference.types, reference.spelled)
        if found is None or not found.exact:
            return None
    return tuple(names)


def _is_alike(kind: DataType) -> bool:
    if kind.logical is not None:
        return kind.logical.kind in _LOGICAL_ALIKE
    return kind.kind in _ALIKE
