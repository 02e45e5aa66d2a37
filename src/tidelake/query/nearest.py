"""Find what a query orders by the distance of a vector and limits, so that an index may find the rows for it.

It must be one table, perhaps through selects that only filter and compute, ordered by one distance from a constant
vector, nearest first, and limited, where all conditions are asked of the table as they are. The engine still orders and
limits what the index finds, so an index decides which rows are looked at and nothing else. An order by anything else,
``… + 0`` included, is an engine's work alone. A vector from which no row has a distance is refused. It does not search.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import orjson
from sqlglot import exp

from tidelake.errors import QueryError
from tidelake.query.bind import Bound, Reference
from tidelake.query.conjuncts import conjuncts_of, pushed
from tidelake.query.join_keys import cte_of
from tidelake.query.pushdown import Ask, is_plain_select, substituted
from tidelake.vectors.definition import MAX_K, IndexMetric
from tidelake.vectors.narrowing import Wanted

# Of each function: by which metric it measures, and whether the nearest rows have the largest values.
_MEASURES: dict[str, tuple[IndexMetric, bool]] = {
    "tide_cosine_distance": ("cosine", False),
    "tide_cosine_similarity": ("cosine", True),
    "tide_series_cosine": ("cosine", True),
    "tide_l2_distance": ("l2", False),
    "tide_inner_product": ("dot", True),
}
MAX_STEPS = 16  # selects between an order and its table


def with_nearest(bound: Bound, asks: Sequence[Ask]) -> tuple[Ask, ...]:
    """Return what is asked of tables, with the vectors whose nearest rows are all that is needed."""
    wanted: dict[str, Wanted] = {}
    for select in bound.tree.find_all(exp.Select):
        found = _nearest_in(select, bound)
        if found is not None:
            wanted[found[0].name] = found[1]
    return tuple(replace(ask, nearest=wanted.get(ask.reference.name)) for ask in asks)


def _nearest_in(select: exp.Select, bound: Bound) -> tuple[Reference, Wanted] | None:
    order, rows = select.args.get("order"), rows_of(select)
    if order is None or rows is None or len(order.expressions) != 1:
        return None
    ordered = order.expressions[0]
    bare = select.copy()
    for clause in ("order", "limit", "offset", "with_"):
        bare.set(clause, None)
    if not isinstance(ordered, exp.Ordered) or not is_plain_select(bare):
        return None
    outputs = {each.alias_or_name: each.unalias() for each in select.expressions}
    reached = followed(select, ordered.this.copy().transform(output_of, outputs), bound)
    if reached is None:
        return None
    reference, alias, key = reached
    return _measured(key, alias, reference, rows, is_falling=bool(ordered.args.get("desc")))


def output_of(node: exp.Expr, outputs: Mapping[str, exp.Expr]) -> exp.Expr:
    """Return what a select computes under a name that is no column of its source."""
    is_own = isinstance(node, exp.Column) and not node.table and node.name in outputs
    return outputs[node.name].copy() if is_own else node


def followed(select: exp.Select, key: exp.Expr, bound: Bound) -> tuple[Reference, str, exp.Expr] | None:
    """Follow an order down to its table, with what it orders by; None if rows may be lost on the way there."""
    conditions: list[exp.Expr] = []
    for _ in range(MAX_STEPS):
        where = select.args.get("where")
        conditions += conjuncts_of(None if where is None else where.this)
        source = select.args["from_"].this
        reference = bound.references.get(source.name) if isinstance(source, exp.Table) else None
        if reference is not None:
            asked = (pushed(each, reference.types, reference.spelled) for each in conditions)
            is_exact = all(each is not None and each.exact for each in asked)
            return (reference, source.alias_or_name, key) if is_exact and _is_alone(source, bound) else None
        inner = _inner(source, bound)
        if inner is None or not is_plain_select(inner):
            return None
        outputs = {each.alias_or_name: each.unalias() for each in inner.expressions}
        try:
            key, conditions = substituted(key, outputs), [substituted(each, outputs) for each in conditions]
        except KeyError:
            return None
        select = inner
    return None


def _inner(source: exp.Expr, bound: Bound) -> exp.Select | None:
    """Return the select that a source is, if nothing else reads it."""
    if isinstance(source, exp.Subquery):
        is_plain = not any(source.args.get(key) for key in ("limit", "offset", "order", "joins", "pivots"))
        return source.this if is_plain and isinstance(source.this, exp.Select) else None
    cte = cte_of(source) if isinstance(source, exp.Table) and _is_alone(source, bound) else None
    return cte.this if cte is not None and isinstance(cte.this, exp.Select) else None


def _is_alone(table: exp.Table, bound: Bound) -> bool:
    """Whether a name stands in one place of a query."""
    return sum(each.name == table.name for each in bound.tree.find_all(exp.Table)) == 1


def _measured(
    key: exp.Expr, alias: str, reference: Reference, rows: int, *, is_falling: bool
) -> tuple[Reference, Wanted] | None:
    """Return which vectors a table is asked for, if an order is by the distance from a constant one."""
    name = str(key.this).lower() if isinstance(key, exp.Anonymous) else ""
    if name not in _MEASURES or len(key.expressions) != 2:
        return None
    metric, is_likeness = _MEASURES[name]
    for subject, constant in (key.expressions, key.expressions[::-1]):
        column, query = _plain(subject), _numbers(constant)
        if isinstance(column, exp.Column) and column.table == alias and query and is_falling == is_likeness:
            own = reference.spelled.get(column.name)
            if own is not None and reference.types[column.name].kind == "vector":
                if name != "tide_series_cosine":  # whose arrays may have any lengths
                    _check(own, reference.types[column.name].dimension or 0, metric, query)
                return reference, Wanted(own, metric, query, rows)
    return None


def _check(column: str, size: int, metric: IndexMetric, query: tuple[float, ...]) -> None:
    """Raise QueryError for a vector from which no row has a distance: any rows would be taken for the nearest."""
    if len(query) != size:
        words = f"no row has a distance from this vector: it needs as many numbers as the column's have, {size}"
        raise QueryError(words, column=column, found=len(query), kind="bad_query_vector")
    if metric == "cosine" and not any(query):
        words = "no row has a distance from this vector: zeros have no direction, and so no cosine distance"
        raise QueryError(words, column=column, kind="bad_query_vector")


def _plain(node: exp.Expr) -> exp.Expr:
    """Return a vector that is given to a function of dynamic values as what it is."""
    is_wrapped = isinstance(node, exp.Anonymous) and str(node.this).lower() == "tide_vector_to_dynamic"
    return node.expressions[0] if is_wrapped else node


def _numbers(node: exp.Expr) -> tuple[float, ...] | None:
    """Return the numbers of a constant vector; None if it is none."""
    if isinstance(node, exp.Anonymous) and str(node.this).lower() == "tide_parse_json":
        return _numbers_in_json(node.expressions[0])
    if isinstance(node, exp.Cast):
        return _numbers(node.this)
    if not isinstance(node, exp.Array):
        return None
    found = [_number(each) for each in node.expressions]
    return tuple(each for each in found if each is not None) if None not in found else None


def _numbers_in_json(node: exp.Expr) -> tuple[float, ...] | None:
    if not isinstance(node, exp.Literal) or not node.is_string:
        return None
    try:
        found = orjson.loads(node.this)
    except orjson.JSONDecodeError:
        return None
    fits = isinstance(found, list) and all(type(each) in (int, float) for each in found)
    return tuple(map(float, found)) if fits else None


def _number(node: exp.Expr) -> float | None:
    if isinstance(node, exp.Neg):
        inner = _number(node.this)
        return None if inner is None else -inner
    if isinstance(node, exp.Cast | exp.Paren):
        return _number(node.this)
    return float(node.this) if isinstance(node, exp.Literal) and not node.is_string else None


def rows_of(select: exp.Select) -> int | None:
    """Return how many rows a select reads of what it orders; None if that is not said, or too many."""
    found = 0
    for key in ("limit", "offset"):
        clause = select.args.get(key)
        count = None if clause is None else clause.expression
        if clause is not None and not (isinstance(count, exp.Literal) and not count.is_string and count.is_int):
            return None
        found += int(count.this) if count is not None else 0
    return found if select.args.get("limit") is not None and 1 <= found <= MAX_K else None
