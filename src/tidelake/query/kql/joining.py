"""Lower the operators that bring tables together: join, lookup, union.

It does not group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from sqlglot import exp

from tidelake.catalog.protocol import DEFAULT_NAMESPACE
from tidelake.errors import QueryError
from tidelake.query.kql import syntax
from tidelake.query.kql.binder import Binder, Place
from tidelake.query.kql.conversions import convert, implicit
from tidelake.query.kql.naming import unique
from tidelake.query.kql.relations import Relation, aliased, fresh_key
from tidelake.query.kql.scope import Closure, Scope, column_sql
from tidelake.query.kql.values import TEXTUAL, Column, Value, literal, text

KINDS = {
    "innerunique": "inner", "inner": "inner", "leftouter": "left", "rightouter": "right", "fullouter": "full",
    "leftsemi": "semi", "rightsemi": "semi", "leftanti": "anti", "anti": "anti", "leftantisemi": "anti",
    "rightanti": "anti", "rightantisemi": "anti",
}  # fmt: skip


def join(b: Binder, relation: Relation, operator: syntax.Operator, place: Place) -> Relation:
    settings = {**operator.settings, **operator.parts.get("late", {})}
    default = "leftouter" if operator.name == "lookup" else "innerunique"
    kind = str(settings.get("kind", default))
    allowed = ("leftouter", "inner") if operator.name == "lookup" else tuple(KINDS)
    if kind not in allowed:
        raise b.error(operator.at, f"unknown kind of {operator.name} '{kind}': one of {', '.join(allowed)}")
    if "where" in operator.parts and kind in ("inner", "innerunique"):
        return _joined_where(b, relation, operator, place)
    if "on" not in operator.parts:
        raise b.error(operator.at, f"{operator.name} needs 'on' and what must be equal")
    left = b.steps.closed(relation)
    right = b.steps.closed(b.table(operator.items[0], place))
    right = _other_alias(b, left, right)
    pairs = [pair for node in operator.parts["on"] for pair in _pairs(b, node, left, right, place)]
    if kind.startswith("right") and kind != "rightouter":
        left, right, pairs = right, left, [(other, one) for one, other in pairs]
    if kind == "innerunique":
        left = _unique_rows(b, left, [one for one, _ in pairs])
        pairs = [(_moved(one, left), other) for one, other in pairs]
    condition = exp.and_(*(_equal(one, other) for one, other in pairs))
    if KINDS[kind] in ("semi", "anti"):
        return _filtered(b, left, right, condition, negated=KINDS[kind] == "anti")
    dropped = _key_names(operator, right) if operator.name == "lookup" else set()
    return _joined(b, left, right, condition, KINDS[kind], dropped)


def _joined_where(b: Binder, relation: Relation, operator: syntax.Operator, place: Place) -> Relation:
    """Join each row with each for which a condition on both holds."""
    left = b.steps.closed(relation)
    right = _other_alias(b, left, b.steps.closed(b.table(operator.items[0], place)))
    pairs = b.steps.plain(_joined(b, left, right, exp.true(), "inner", set()))
    return pairs.filtered(b.condition(operator.parts["where"], b.scope(pairs, place)))


def _other_alias(b: Binder, left: Relation, right: Relation) -> Relation:
    """Return the right side an alias of its own, for a table may be joined with itself."""
    if left.alias.lower() != right.alias.lower():
        return right
    alias = f"{right.alias}_right"
    source = right.source.copy()
    source.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
    return replace(right, source=source, alias=alias)


def _pairs(
    b: Binder, node: syntax.Expression, left: Relation, right: Relation, place: Place
) -> list[tuple[Value, Value]]:
    """Bind what must be equal: a column of both sides, or ``$left.a == $right.b``."""
    if isinstance(node, syntax.Junction) and node.operator == "and":
        return [pair for part in node.parts for pair in _pairs(b, part, left, right, place)]
    sides = {"left": b.scope(left, place), "right": b.scope(right, place)}
    if isinstance(node, syntax.Name):
        return [(_column(b, node, sides["left"]), _column(b, node, sides["right"]))]
    if not (isinstance(node, syntax.Binary) and node.operator == "=="):
        raise b.error(node.at, "join conditions are columns of both sides, or $left.a == $right.b, with 'and' between")
    one, other = node.left, node.right
    if _side(one) == "right" or _side(other) == "left":
        one, other = other, one
    both = b.scope(None, place, sides=sides)
    return [
        (b.bind(one, both if _side(one) else sides["left"]), b.bind(other, both if _side(other) else sides["right"]))
    ]


def _side(node: syntax.Expression) -> str | None:
    while isinstance(node, syntax.Member | syntax.Index):
        node = node.base
    if isinstance(node, syntax.Call) and node.arguments:
        return _side(node.arguments[0])
    return node.name[1:] if isinstance(node, syntax.Name) and node.name in ("$left", "$right") else None


def _column(b: Binder, node: syntax.Name, scope: Scope) -> Value:
    found = scope.column(node.name)
    if found is None:
        raise scope.unknown(node.name, node.at)
    return found


def _moved(value: Value, relation: Relation) -> Value:
    """Return a value over a step that has the same columns under another alias."""
    sql = value.sql.copy()
    for column in sql.find_all(exp.Column):
        column.set("table", exp.to_identifier(relation.alias, quoted=True))
    return Value(sql, value.type, value.constant)


def _equal(one: Value, other: Value) -> exp.Expr:
    if one.type != other.type:
        kind = (
            "string" if "dynamic" in (one.type, other.type) or one.type in TEXTUAL or other.type in TEXTUAL else "real"
        )
        one, other = (implicit(side, kind) or convert(side, kind) for side in (one, other))
    if one.type == "dynamic":
        one, other = convert(one, "string"), convert(other, "string")
    sides = (text(one), text(other)) if one.type in TEXTUAL else (one.sql, other.sql)
    return exp.EQ(this=sides[0], expression=sides[1])


def _unique_rows(b: Binder, relation: Relation, keys: Sequence[Value]) -> Relation:
    """Keep one row of those with equal keys, as ``innerunique`` does with its left side."""
    number = fresh_key("place", [column.key for column in (*relation.columns, *relation.hidden)])
    parts = [
        text(key) if key.type in TEXTUAL else convert(key, "string").sql if key.type == "dynamic" else key.sql
        for key in keys
    ]
    parts += [column_sql(column.key, relation.alias) for column in relation.partition]
    order = exp.Order(expressions=relation.order_sql() or [exp.Ordered(this=exp.Null())])
    window = exp.Window(this=exp.RowNumber(), partition_by=parts, order=order)
    step = b.steps.relation(relation.select().select(aliased(window, number), copy=False), relation.columns, relation)
    return b.steps.closed(step.filtered(exp.EQ(this=column_sql(number, step.alias), expression=exp.Literal.number(1))))


def _filtered(b: Binder, left: Relation, right: Relation, condition: exp.Expr, *, negated: bool) -> Relation:
    inner = exp.select(exp.alias_(exp.Literal.number(1), "one")).from_(right.source.copy()).where(condition)
    exists: exp.Expr = exp.Exists(this=inner)
    return b.steps.closed(left.filtered(exp.Not(this=exists) if negated else exists))


def _key_names(operator: syntax.Operator, right: Relation) -> set[str]:
    names: set[str] = set()

    def visit(node: syntax.Expression) -> None:
        match node:
            case syntax.Name(name):
                names.add(name)
            case syntax.Junction(_, parts):
                for part in parts:
                    visit(part)
            case syntax.Binary("==", one, other):
                for side in (one, other):
                    if isinstance(side, syntax.Member) and _side(side) == "right":
                        names.add(side.name)

    for node in operator.parts["on"]:
        visit(node)
    return names


def _joined(b: Binder, left: Relation, right: Relation, condition: exp.Expr, kind: str, dropped: set[str]) -> Relation:
    columns: list[Column] = []
    chosen: list[exp.Expr] = []
    for relation in (left, right):
        for column in relation.columns:
            if relation is right and column.name in dropped:
                continue
            name = column.name
            if relation is right and name in left.by_name:  # a name that neither side has
                name = unique(name, [*(held.name for held in columns), *right.by_name])
            key = fresh_key(name, [held.key for held in columns])
            columns.append(replace(column, name=name, key=key))
            chosen.append(aliased(column_sql(column.key, relation.alias), key))
    chosen += [aliased(column_sql(part.key, left.alias), part.key) for part in left.partition]
    source = exp.Join(this=right.source.copy(), on=condition)
    if kind != "inner":
        source.set("side", kind.upper())
    query = exp.select(*chosen).from_(left.source.copy())
    query.append("joins", source)
    tables = tuple(dict.fromkeys((*left.tables, *right.tables)))
    bag = left.bag if left.bag in columns else right.bag if right.bag in columns else None
    joined = b.steps.relation(query, columns, replace(left, order=(), hidden=left.partition), ordered=False)
    return replace(joined, tables=tables, bag=bag)


def union(b: Binder, relation: Relation, operator: syntax.Operator, place: Place) -> Relation:
    settings = operator.settings
    if relation.partition:
        raise b.error(operator.at, "union cannot stand in a partition: put it before or after", kind="unsupported")
    fuzzy = str(settings.get("isfuzzy", "false")).lower() == "true"
    branches: list[tuple[str, Relation]] = [(_source_name(relation, 0), relation)] if relation.alias else []
    failed: QueryError | None = None
    for node in operator.items:
        try:
            branches += branches_of(b, node, place, len(branches))
        except QueryError as error:
            if not fuzzy or error.kind != "unknown_table":
                raise
            failed = error
    if not branches:
        raise failed or b.error(operator.at, "union needs tables")
    source = settings.get("withsource") or settings.get("with_source")
    return united(b, branches, str(source) if source else None, inner=settings.get("kind") == "inner", at=operator.at)


def branches_of(b: Binder, node: syntax.Expression, place: Place, count: int) -> list[tuple[str, Relation]]:
    if isinstance(node, syntax.Wildcard):
        listed = [name.removeprefix(f"{DEFAULT_NAMESPACE}.") for name in b.tables.names()]
        names = [name for name in listed if fnmatchcase(name, node.pattern)]
        views = [name for name in place.names.all_names() if _is_view(name, place) and fnmatchcase(name, node.pattern)]
        if not names and not views:
            raise b.error(node.at, f"no table matches '{node.pattern}'", kind="unknown_table", name=node.pattern)
        found = [(name, b.stored(name, node.at, place)) for name in names]
        return found + [(name, b.table(syntax.Name(name, node.at), place)) for name in reversed(views)]
    table = b.table(node, place)
    if isinstance(node, syntax.Name):
        return [(node.name, table)]
    if isinstance(node, syntax.Pipe) and node.operators[-1].name == "as":
        return [(str(node.operators[-1].items[0]), table)]
    return [(_source_name(table, count) if isinstance(node, syntax.Member) else f"union_arg{count}", table)]


def _is_view(name: str, place: Place) -> bool:
    held = place.names.find(name)
    return isinstance(held, Closure) and held.function.is_view


def _source_name(relation: Relation, count: int) -> str:
    """Return the table that rows are of, or their place among the branches."""
    return relation.tables[0] if len(relation.tables) == 1 else f"union_arg{count}"


def united(
    b: Binder, branches: Sequence[tuple[str, Relation]], source: str | None, *, inner: bool, at: int
) -> Relation:
    """Put rows under each other, by the names of their columns; one name with two types is two columns."""
    sources = _united_columns([relation for _, relation in branches], inner=inner)
    columns = [column for column, _ in sources]
    label_column = None
    if source:
        name = unique(source, [c.name for c in columns])
        label_column = Column(name, "string", fresh_key(name, [c.key for c in columns]))
        columns = [label_column, *columns]
    queries = [_branch(label, relation, sources, label_column) for label, relation in branches]
    query: Any = queries[0]
    for other in queries[1:]:
        query = exp.Union(this=query, expression=other, distinct=False)
    tables = tuple(dict.fromkeys(name for _, relation in branches for name in relation.tables))
    bags = [relation.bag for _, relation in branches if relation.bag is not None]
    made = b.steps.relation(
        query, columns, replace(branches[0][1], order=(), hidden=(), partition=(), bag=None), ordered=False
    )
    bag = next((c for c in columns if bags and c.name == bags[0].name), None)
    return replace(made, tables=tables, bag=bag)


def _united_columns(relations: Sequence[Relation], *, inner: bool) -> list[tuple[Column, str]]:
    """Return the columns of a union, each with the name that it has in the branches.

    A name that comes with several types is one column for each, with the type in its name; a name that some branch has
    already stays that branch's.
    """
    kinds: dict[str, list[str]] = {}
    for relation in relations:
        for column in relation.columns:
            held = kinds.setdefault(column.name, [])
            if column.type not in held:
                held.append(column.type)
    found: list[tuple[Column, str]] = []
    conflicts = {c.name: c.conflict for relation in relations for c in relation.columns if c.conflict != "keep_source"}
    plain = [name for name, types in kinds.items() if len(types) == 1]
    for name, types in kinds.items():
        if inner and not all(name in relation.by_name for relation in relations):
            continue
        for kind in types:
            taken = [column.name for column, _ in found]
            final = name if len(types) == 1 else unique(f"{name}_{kind}", [*taken, *plain])
            key = fresh_key(final, [column.key for column, _ in found])
            found.append((Column(final, kind, key, conflicts.get(name, "keep_source")), name))
    return found


def _branch(
    label: str, relation: Relation, sources: Sequence[tuple[Column, str]], label_column: Column | None
) -> exp.Query:
    chosen: list[exp.Expr] = []
    if label_column is not None:
        chosen.append(aliased(literal(label, "string").sql, label_column.key))
    for column, name in sources:
        held = relation.by_name.get(name)
        sql = relation.item(held) if held is not None and held.type == column.type else literal(None, column.type).sql
        chosen.append(aliased(sql, column.key))
    query = exp.select(*chosen).from_(relation.source.copy())
    for condition in relation.where:
        query = query.where(condition, copy=False)
    return query
