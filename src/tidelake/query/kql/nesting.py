"""Lower ``top-nested``, ``top-hitters`` and ``reduce``: the greatest groups, and within each of them the greatest.

Each level is grouped over the rows whose groups above were chosen. What was not chosen at a level is, where that level
or one below asks for ``others``, one more group under their label, and null where a level does not ask. It does not
choose rows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from tidelake.query.kql import syntax
from tidelake.query.kql.binder import Binder, Place
from tidelake.query.kql.columns import limited, ordered_by, settled
from tidelake.query.kql.conversions import convert
from tidelake.query.kql.grouping import Output, group_keys, grouped, summarize
from tidelake.query.kql.joining import united
from tidelake.query.kql.naming import name_of, unique
from tidelake.query.kql.relations import Relation, aliased, fresh_key, keyed
from tidelake.query.kql.scope import column_sql
from tidelake.query.kql.values import Column, Value, call, literal, text, text_literal


@dataclass(frozen=True, slots=True)
class _Level:
    """One level: how many groups it keeps, the key in the rows, its aggregate, and what the others are called."""

    most: int | None
    key: Column
    output: Output
    descending: bool
    others: Value | None


def top_nested(b: Binder, relation: Relation, operator: syntax.Operator, place: Place) -> Relation:
    rows, levels = _levels(b, relation, operator, place)
    chosen: list[Relation] = []
    for at, level in enumerate(levels):
        within = rows.filtered(_among(rows, chosen[-1], levels[:at])) if chosen else rows
        chosen.append(_greatest(b, within, levels[: at + 1], level))
    parts = [("", _gathered(b, levels, chosen, len(levels), rows))]
    for at in range(len(levels)):
        if any(level.others is not None for level in levels[at:]):
            outside = rows.filtered(exp.Not(this=_among(rows, chosen[at], levels[: at + 1])))
            outside = outside.filtered(_among(rows, chosen[at - 1], levels[:at])) if at else outside
            parts.append(("", _gathered(b, levels, chosen, at, outside)))
    return united(b, parts, None, inner=False, at=operator.at)


def _levels(b: Binder, relation: Relation, operator: syntax.Operator, place: Place) -> tuple[Relation, list[_Level]]:
    """Return the rows with the keys of all levels as columns, and the levels."""
    if relation.partition:
        raise b.error(operator.at, "top-nested cannot stand in a partition: add a level instead", kind="unsupported")
    relation = b.steps.plain(relation)
    keys = group_keys(b, relation, [value for _, value, _, _ in operator.items], place)
    taken = [column.key for column in (*relation.columns, *relation.hidden)]
    columns: list[Column] = []
    for name, value in keys:
        kind = "string" if value.type == "dynamic" else value.type  # a key's JSON is its text
        columns.append(Column(name, kind, fresh_key("level", [*taken, *(c.key for c in columns)])))
    query = relation.select()
    for column, (_, value) in zip(columns, keys, strict=True):
        query = query.select(aliased(value.sql, column.key), copy=False)
    rows = b.steps.relation(query, relation.columns, replace(relation, order=(), hidden=()), ordered=False)
    scope = b.scope(rows, place, aggregates=True)
    levels: list[_Level] = []
    for (count, _, others, ordering), column in zip(operator.items, columns, strict=True):
        node = ordering.value
        inner = node.value if isinstance(node, syntax.Named) else node
        given = node.names[0] if isinstance(node, syntax.Named) else f"aggregated_{column.name}"
        name = unique(given, [c.name for c in columns] + [level.output.name for level in levels])
        label = convert(b.bind(others, b.scope(None, place)), column.type) if others is not None else None
        output = Output(name, settled(b.bind(inner, scope)))
        levels.append(_Level(_number(b, count, place), column, output, ordering.descending, label))
    return rows, levels


def _number(b: Binder, node: syntax.Expression | None, place: Place) -> int | None:
    if node is None:
        return None
    found = b.constant(node, b.scope(None, place), "the count of top-nested")
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        raise b.error(node.at, "expected a number of groups, zero or more")
    return found


def _key(level: _Level, alias: str) -> Value:
    return Value(column_sql(level.key.key, alias), level.key.type)


def _greatest(b: Binder, rows: Relation, levels: Sequence[_Level], level: _Level) -> Relation:
    """Group rows by the keys so far, and keep the greatest within each group above."""
    keys = [(f"k{at}", _key(each, rows.alias)) for at, each in enumerate(levels)]
    made = grouped(b, rows, keys, [replace(level.output, name="value")])
    if level.most is None:
        return made
    *above, own = (column_sql(column.key, made.alias) for column in made.columns[:-1])
    value = column_sql(made.columns[-1].key, made.alias)
    order = exp.Order(expressions=[exp.Ordered(this=value, desc=level.descending, nulls_first=False),
                                   exp.Ordered(this=own, nulls_first=True)])  # fmt: skip
    window = exp.Window(this=exp.RowNumber(), partition_by=above, order=order)
    place = fresh_key("place", [column.key for column in made.columns])
    stepped = b.steps.relation(made.select().select(aliased(window, place), copy=False), made.columns, made)
    most = exp.Literal.number(level.most)
    return b.steps.closed(stepped.filtered(exp.LTE(this=column_sql(place, stepped.alias), expression=most)))


def _among(rows: Relation, chosen: Relation, levels: Sequence[_Level]) -> exp.Expr:
    """Return that a row belongs to one of the chosen groups."""
    pairs = [
        exp.NullSafeEQ(this=column_sql(column.key, chosen.alias), expression=_key(level, rows.alias).sql)
        for column, level in zip(chosen.columns, levels, strict=False)
    ]
    inner = exp.select(exp.alias_(exp.Literal.number(1), "one")).from_(chosen.source.copy()).where(exp.and_(*pairs))
    return exp.Exists(this=inner)


def _gathered(b: Binder, levels: Sequence[_Level], chosen: Sequence[Relation], cut: int, rows: Relation) -> Relation:
    """Return the result's rows whose groups were chosen above a level, and not from there on."""
    columns: list[Column] = []
    items: dict[str, exp.Expr] = {}
    base, joins = _chain(b, levels, chosen, cut, rows)
    for at, level in enumerate(levels):
        held = joins[at] if at < cut else None
        if held is not None:
            key_sql, value_sql = (
                column_sql(held.columns[at].key, held.alias),
                column_sql(held.columns[-1].key, held.alias),
            )
        elif level.others is not None:
            key_sql, value_sql = level.others.sql, column_sql(f"value_{at}", base.alias)
        else:
            key_sql, value_sql = literal(None, level.key.type).sql, literal(None, level.output.value.type).sql
        for name, kind, sql in ((level.key.name, level.key.type, key_sql),
                                (level.output.name, level.output.value.type, value_sql)):  # fmt: skip
            key = fresh_key(name, [column.key for column in columns])
            columns.append(Column(name, kind, key))
            items[key] = sql
    query = exp.select(*(aliased(items[column.key], column.key) for column in columns)).from_(base.source.copy())
    for at, held in enumerate(joins):
        pairs = [
            exp.NullSafeEQ(this=column_sql(held.columns[each].key, held.alias), expression=_base_key(base, each))
            for each in range(at + 1)
        ]
        if held is not base:
            query.append("joins", exp.Join(this=held.source.copy(), on=exp.and_(*pairs)))
    return b.steps.relation(query, columns, Relation(exp.Table(), "", (), tables=rows.tables), ordered=False)


def _base_key(base: Relation, at: int) -> exp.Expr:
    return column_sql(base.columns[at].key, base.alias)


def _chain(
    b: Binder, levels: Sequence[_Level], chosen: Sequence[Relation], cut: int, rows: Relation
) -> tuple[Relation, list[Relation]]:
    """Return what a part of the result is read from: the last chosen groups, or others grouped by the keys above."""
    if cut == len(levels):
        return chosen[-1], list(chosen)
    keys = [(f"k{at}", _key(level, rows.alias)) for at, level in enumerate(levels[:cut])]
    outputs = [
        replace(level.output, name=f"value_{at}")
        for at, level in enumerate(levels)
        if at >= cut and level.others is not None
    ]
    made = grouped(b, rows, keys, [*outputs, Output("others_count", Value(exp.Count(this=exp.Star()), "long"))])
    count = column_sql(made.by_name["others_count"].key, made.alias)
    some = b.steps.closed(made.filtered(exp.GT(this=count, expression=exp.Literal.number(0))))
    return some, list(chosen[:cut])


def reduce_by(b: Binder, relation: Relation, operator: syntax.Operator, place: Place) -> Relation:
    """Group texts that are alike: those that have the same frequent words, what differs being a star."""
    if relation.partition:
        raise b.error(operator.at, "reduce cannot stand in a partition", kind="unsupported")
    scope, outside = b.scope(relation := b.steps.plain(relation), place), b.scope(None, place)
    given = {name: b.constant(node, outside, name) for name, node in operator.parts["with"].items()}
    share, letters = given.get("threshold", 0.1), str(given.get("characters", ""))
    if set(given) - {"threshold", "characters"} or not isinstance(share, int | float) or not 0 < share <= 1:
        raise b.error(operator.at, "reduce has a threshold above 0 and up to 1, and characters that part words")
    subject = text(b.expect_text(b.bind(operator.items[0], scope), scope, operator.at, "what reduce groups"))
    listed = call("tide_to_json", call("tide_make_list", subject, exp.Literal.number(2**31 - 1)))
    options = text_literal(json.dumps([share, letters]))
    query = exp.select(aliased(call("tide_reduced", listed, options), "found")).from_(relation.source.copy())
    for condition in relation.where:
        query = query.where(condition, copy=False)
    folded, alias = b.steps.add(query)
    each = exp.select(aliased(call("tide_explode", call("tide_items_bag", column_sql("found", alias))), "item"))
    source, alias = b.steps.add(each.from_(folded))
    columns = keyed([("Pattern", "string"), ("Count", "long"), ("Representative", "string")])
    item = column_sql("item", alias)
    items = {
        column.key: convert(Value(call("tide_at", item, exp.Literal.number(at)), "dynamic"), column.type).sql
        for at, column in enumerate(columns)
    }
    return b.steps.closed(Relation(source, alias, columns, items=items))


def top_hitters(b: Binder, relation: Relation, operator: syntax.Operator, place: Place) -> Relation:
    """Count or sum by a value, and keep the greatest; here the count is exact."""
    count, value = operator.items
    weight: Any = operator.parts.get("by")
    counted = ("count", value) if weight is None else ("sum", weight)
    name = f"approximate_{counted[0]}_{name_of(counted[1]) or ''}"
    at = operator.at
    total = syntax.Call("sum", (weight,), at) if weight is not None else syntax.Call("count", (), at)
    named = syntax.Named((name,), total, at)
    made = summarize(b, relation, syntax.Operator("summarize", (named,), at, {"by": (value,)}, {}), place)
    by = syntax.Ordering(syntax.Name(name, at), True, False)
    most = b.constant(count, b.scope(None, place), "the count of top-hitters")
    return limited(b, ordered_by(b, made, (by,), place), most, count.at)
