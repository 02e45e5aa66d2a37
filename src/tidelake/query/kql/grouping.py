"""Lower the operators that group rows: summarize, count, distinct, make-series.

It does not join.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from tidelake.query.kql import syntax
from tidelake.query.kql.binder import Binder, Place
from tidelake.query.kql.columns import limited, matching, settled, text_key
from tidelake.query.kql.conversions import convert
from tidelake.query.kql.naming import name_of, nameless, unique
from tidelake.query.kql.relations import OrderKey, Relation, aliased, fresh_key, keyed
from tidelake.query.kql.scope import Scope, column_sql
from tidelake.query.kql.values import NUMERIC, Column, Value, call, cast, literal

_ARGS = {"arg_max": "tide_arg_max", "arg_min": "tide_arg_min", "argmax": "tide_arg_max", "argmin": "tide_arg_min"}

_PERCENTILES = {
    "percentiles": "percentile", "percentiles_array": "percentile", "percentilesw": "percentilew",
    "percentilesw_array": "percentilew",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Output:
    """A column of the result: its SQL over the rows, or a field of an aggregate that gives several."""

    name: str
    value: Value
    field: str | None = None


def summarize(b: Binder, relation: Relation, operator: syntax.Operator, place: Place) -> Relation:
    relation = b.steps.plain(relation)
    if relation.order and re.search(r"'make_?list", repr(operator.items)):
        relation = _ranked(b, relation)
    keys = group_keys(b, relation, operator.parts.get("by", ()), place)
    outputs = _outputs(b, relation, operator.items, place, [name for name, _ in keys])
    return grouped(b, relation, keys, outputs)


def _ranked(b: Binder, relation: Relation) -> Relation:
    """Number rows in their order, so that a list can keep it: the number is the only key of the order from here."""
    rank = Column("", "", fresh_key("place", [c.key for c in (*relation.columns, *relation.hidden)]))
    window = exp.Window(this=exp.RowNumber(), order=exp.Order(expressions=relation.order_sql()))
    query = relation.select().select(aliased(window, rank.key), copy=False)
    made = b.steps.relation(query, relation.columns, relation)
    return replace(made, hidden=(*relation.partition, rank), order=(OrderKey(rank.key, False, True),))


def group_keys(
    b: Binder, relation: Relation, nodes: Sequence[syntax.Expression], place: Place
) -> list[tuple[str, Value]]:
    """Bind what rows are grouped by."""
    scope = b.scope(relation, place)
    found: list[tuple[str, Value]] = []
    for node in nodes:
        if isinstance(node, syntax.Wildcard):
            found += [(column.name, _key(scope.column(column.name))) for column in matching(b, relation, node)]
            continue
        name = name_of(node) or nameless(held for held, _ in found)
        value = settled(b.bind(node, scope))
        found.append((unique(name, [held for held, _ in found]), _key(value)))
    return found


def _key(value: Value | None) -> Value:
    assert value is not None
    if value.type in ("dynamic", "vector"):
        return Value(call("tide_to_json", convert(value, "dynamic").sql), "dynamic")
    return Value(text_key(value), value.type)


def _outputs(
    b: Binder, relation: Relation, nodes: Sequence[syntax.Expression], place: Place, taken: list[str]
) -> list[Output]:
    scope = b.scope(relation, place, aggregates=True)
    found: list[Output] = []

    def add(name: str | None, value: Value, field: str | None = None, *, given: bool = False) -> None:
        names = [*taken, *(output.name for output in found)]
        final = unique(name or nameless(names), names)
        found.append(Output(final, value, field))

    for node in nodes:
        inner = node.value if isinstance(node, syntax.Named) else node
        names = node.names if isinstance(node, syntax.Named) else ()
        if isinstance(inner, syntax.Call) and inner.name in _ARGS:
            for name, value, field in _arg_extreme(b, relation, inner, names, scope, taken):
                add(name, value, field)
        elif (
            isinstance(inner, syntax.Call)
            and inner.name in ("take_any", "any")
            and (len(inner.arguments) > 1 or any(isinstance(each, syntax.Wildcard) for each in inner.arguments))
        ):
            for name, value, field in _any_row(b, relation, inner, names, scope, taken):
                add(name, value, field)
        elif isinstance(inner, syntax.Call) and inner.name in _PERCENTILES:
            _percentiles(b, inner, names, scope, add)
        else:
            add(names[0] if names else name_of(inner), settled(b.bind(inner, scope)))
    return found


def _arg_extreme(
    b: Binder, relation: Relation, node: syntax.Call, names: Sequence[str], scope: Scope, taken: list[str]
) -> list[tuple[str, Value, str]]:
    """Bind arg_max and arg_min: the extreme, and the other columns of its row, from one aggregate."""
    if not node.arguments:
        raise scope.error(node.at, f"{node.name} needs what is greatest or least", kind="arity")
    rows = replace(scope, aggregates=False)
    by = b.bind(node.arguments[0], rows)
    chosen = _row_columns(b, relation, node.arguments[1:], rows, [*taken, name_of(node.arguments[0]) or ""])
    first = name_of(node.arguments[0]) or ("max_" if node.name.endswith("max") else "min_")
    fields = [(first, by), *chosen]
    weight = convert(by, "string").sql if by.type in ("dynamic", "vector") else by.sql
    row = _row(fields)
    aggregate = call(_ARGS[node.name], row, weight)
    return _fields(fields, names, aggregate)


def _any_row(
    b: Binder, relation: Relation, node: syntax.Call, names: Sequence[str], scope: Scope, taken: list[str]
) -> list[tuple[str, Value, str]]:
    rows = replace(scope, aggregates=False)
    fields = _row_columns(b, relation, node.arguments, rows, taken)
    if node.name == "any":
        fields = [(f"any_{name}", value) for name, value in fields]
    return _fields(fields, names, call("tide_any", _row(fields)))


def _row_columns(
    b: Binder, relation: Relation, nodes: Sequence[syntax.Expression], scope: Scope, taken: Sequence[str]
) -> list[tuple[str, Value]]:
    found: list[tuple[str, Value]] = []
    for node in nodes:
        if isinstance(node, syntax.Wildcard):
            for column in matching(b, relation, node):
                value = scope.column(column.name)
                if column.name not in taken and value is not None:
                    found.append((column.name, value))
        else:
            found.append((name_of(node) or f"Column{len(found) + 1}", b.bind(node, scope)))
    return found


def _row(fields: Sequence[tuple[str, Value]]) -> exp.Expr:
    return call("tide_row", *(value.sql for _, value in fields))


def _fields(
    fields: Sequence[tuple[str, Value]], names: Sequence[str], aggregate: exp.Expr
) -> list[tuple[str, Value, str]]:
    return [
        (names[at] if at < len(names) else name, Value(aggregate, value.type), f"f{at}")
        for at, (name, value) in enumerate(fields)
    ]


def _percentiles(b: Binder, node: syntax.Call, names: Sequence[str], scope: Scope, add: Any) -> None:
    single = _PERCENTILES[node.name]
    given = 2 if single == "percentilew" else 1
    if len(node.arguments) <= given:
        raise scope.error(node.at, f"{node.name} needs what is ranked and the percentiles", kind="arity")
    subjects, shares = node.arguments[:given], list(node.arguments[given:])
    shares = [each for share in shares for each in _shares(b, share, scope)]
    first = name_of(subjects[0]) or ""
    values: list[Value] = []
    for at, share in enumerate(shares):
        value = b.bind(syntax.Call(single, (*subjects, share), node.at), scope)
        values.append(value)
        if not node.name.endswith("_array"):
            label = b.constant(share, replace(scope, aggregates=False), "a percentile")
            add(names[at] if at < len(names) else f"percentile_{first}_{label}".replace(".", "_"), value)
    if node.name.endswith("_array"):
        packed = call("tide_pack_array", *(convert(value, "dynamic").sql for value in values))
        add(names[0] if names else f"percentiles_{first}", Value(packed, "dynamic"))


def _shares(b: Binder, node: syntax.Expression, scope: Scope) -> list[syntax.Expression]:
    """Return the percentiles that an argument says: one, or those of an array."""
    value = b.constant(node, replace(scope, aggregates=False), "a percentile")
    if not isinstance(value, list):
        return [node]
    return [syntax.Literal("real" if isinstance(each, float) else "long", each, node.at) for each in value]


def grouped(b: Binder, relation: Relation, keys: Sequence[tuple[str, Value]], outputs: Sequence[Output]) -> Relation:
    """Write a GROUP BY; aggregates that give several columns are taken apart in a step after it."""
    columns = keyed([*((name, value.type) for name, value in keys), *((o.name, o.value.type) for o in outputs)])
    parts = list(relation.partition)
    parsed = {c.key for c, (_, value) in zip(columns, keys, strict=False) if value.type == "dynamic"}
    query = exp.select().from_(relation.source.copy())
    for condition in relation.where:
        query = query.where(condition, copy=False)
    shared: dict[str, str] = {}
    later: dict[str, tuple[str, str]] = {}
    for column, (_, value) in zip(columns, keys, strict=False):
        query = query.select(aliased(value.sql, column.key), copy=False)
    for column, output in zip(columns[len(keys) :], outputs, strict=True):
        if output.field is None:
            query = query.select(aliased(output.value.sql, column.key), copy=False)
            continue
        text = output.value.sql.sql()
        if text not in shared:
            shared[text] = fresh_key("row", [*(c.key for c in columns), *shared.values()])
            query = query.select(aliased(output.value.sql, shared[text]), copy=False)
        later[column.key] = (shared[text], output.field)
    for part in parts:
        query = query.select(aliased(column_sql(part.key, relation.alias), part.key), copy=False)
    by = [value.sql.copy() for _, value in keys] + [column_sql(part.key, relation.alias) for part in parts]
    if by:
        query = query.group_by(*by, copy=False)
    elif not outputs:
        query = query.select(exp.alias_(exp.Literal.number(1), "none"), copy=False).limit(1)
    made = b.steps.relation(
        query, columns, replace(relation, order=(), hidden=relation.partition, bag=None), ordered=False
    )
    if not later and not parsed:
        return made
    items: dict[str, exp.Expr] = {}
    for column in columns:
        if column.key in later:
            row, field = later[column.key]
            items[column.key] = call("tide_field", column_sql(row, made.alias), literal(field, "string").sql)
        elif column.key in parsed:
            items[column.key] = call("tide_parse_json", column_sql(column.key, made.alias))
    return b.steps.closed(replace(made, items=items))


def count(b: Binder, relation: Relation, operator: syntax.Operator, place: Place) -> Relation:
    relation = b.steps.plain(relation)
    name = operator.items[0] if operator.items else "Count"
    return grouped(b, relation, [], [Output(name, Value(exp.Count(this=exp.Star()), "long"))])


def distinct(b: Binder, relation: Relation, operator: syntax.Operator, place: Place) -> Relation:
    relation = b.steps.plain(relation)
    return grouped(b, relation, group_keys(b, relation, operator.items, place), [])


def sample_distinct(b: Binder, relation: Relation, operator: syntax.Operator, place: Place) -> Relation:
    amount = b.constant(operator.items[0], b.scope(None, place), "the count of sample-distinct")
    relation = b.steps.plain(relation)
    return limited(b, grouped(b, relation, group_keys(b, relation, operator.items[1:], place), []), amount, operator.at)


def make_series(b: Binder, relation: Relation, operator: syntax.Operator, place: Place) -> Relation:
    """Lower make-series: groups by bin, then one row a group with arrays that have a value for every bin."""
    relation = b.steps.closed(relation)
    scope = b.scope(relation, place)
    axis_node = operator.parts["on"]
    axis = b.bind(axis_node, scope)
    step = b.bind(operator.parts["step"], b.scope(None, place))
    if axis.type not in (*NUMERIC, "datetime", "timespan"):
        hint = f"this is {axis.type}: use todatetime(…) or toreal(…)"
        raise b.error(axis_node.at, f"the axis of make-series must be a time or a number, {hint}", kind="type")
    start, bins = _bins(b, relation, axis, step, operator, place)
    asked = bool(start.find(exp.Subquery) or bins.find(exp.Subquery))
    if asked and relation.partition:
        raise b.error(operator.at, "make-series in a partition needs constant from and to", kind="unsupported")
    if asked:
        relation, start, bins = _bounded(b, relation, start, bins)
        axis = b.bind(axis_node, b.scope(relation, place))
    keys = group_keys(b, relation, operator.parts.get("by", ()), place)
    index = Value(call(f"tide_bin_index_{_sort(axis)}", axis.sql, start, step.sql), "long")
    items = [item for item, _ in operator.items]
    outputs = _outputs(b, relation, items, place, [name for name, _ in keys])
    inside = exp.and_(
        exp.GTE(this=index.sql.copy(), expression=exp.Literal.number(0)),
        exp.LT(this=index.sql.copy(), expression=bins.copy()),
    )
    bounds = [("series start", Value(cast(start, axis.type), axis.type)), ("series bins", Value(bins, "long"))]
    if operator.settings.get("kind") == "nonempty" and not keys and not asked:  # one series, even of no rows
        bounds = []
    by_bin = grouped(b, relation.filtered(inside), [*keys, *bounds, ("bin index", index)], outputs)
    if bounds:
        start, bins = (column_sql(by_bin.columns[len(keys) + at].key, by_bin.alias) for at in range(2))
    defaults = [
        _default(b, default, output, place) for (_, default), output in zip(operator.items, outputs, strict=True)
    ]
    name = name_of(axis_node) or "Column1"
    return _dense(b, by_bin, (len(keys), len(bounds)), defaults, _Axis(start, bins, step, axis, name))


def _bounded(b: Binder, relation: Relation, start: exp.Expr, bins: exp.Expr) -> tuple[Relation, exp.Expr, exp.Expr]:
    """Make bounds that only the data tells columns of every row, for no lambda may hold a query."""
    taken = [column.key for column in (*relation.columns, *relation.hidden)]
    first, count = fresh_key("series_start", taken), fresh_key("series_bins", taken)
    query = relation.select().select(aliased(start, first), aliased(bins, count), copy=False)
    made = b.steps.relation(query, relation.columns, relation)
    return made, column_sql(first, made.alias), column_sql(count, made.alias)


def _sort(axis: Value) -> str:
    return {"datetime": "datetime", "long": "long", "int": "long", "timespan": "long"}.get(axis.type, "real")


def _default(b: Binder, node: syntax.Expression | None, output: Output, place: Place) -> Value:
    if node is None:
        return literal(
            0 if output.value.type in ("long", "int", "timespan") else 0.0 if output.value.type == "real" else None,
            output.value.type,
        )
    return convert(b.bind(node, b.scope(None, place)), output.value.type)


def _bins(
    b: Binder, relation: Relation, axis: Value, step: Value, operator: syntax.Operator, place: Place
) -> tuple[exp.Expr, exp.Expr]:
    """Return where the series begins, and how many bins it has."""
    sort = _sort(axis)

    def bound(word: str, kind: type[exp.AggFunc]) -> exp.Expr:
        if word in operator.parts:
            return b.expect(
                b.bind(operator.parts[word], b.scope(None, place)),
                axis.type,
                b.scope(None, place),
                operator.at,
                f"'{word}'",
            ).sql
        query = exp.select(exp.alias_(kind(this=axis.sql.copy()), "v", quoted=True)).from_(relation.source.copy())
        found: exp.Expr = exp.Subquery(this=query)
        if kind is exp.Min:
            return call(
                {"datetime": "tide_bin_datetime", "long": "tide_bin_long"}.get(sort, "tide_bin_real"), found, step.sql
            )
        return found

    start, end = bound("from", exp.Min), bound("to", exp.Max)
    if "closed" in operator.parts:  # the older form: bins begin where bin() has them, and the end counts
        start = call(
            {"datetime": "tide_bin_datetime", "long": "tide_bin_long"}.get(sort, "tide_bin_real"), start, step.sql
        )
    elif "to" in operator.parts:
        return start, call(f"tide_bin_count_{sort}", start, end, step.sql)
    last = call(f"tide_bin_index_{sort}", end, start, step.sql)
    return start, exp.Paren(this=exp.Add(this=last, expression=exp.Literal.number(1)))


@dataclass(frozen=True, slots=True)
class _Axis:
    """The axis of a series: where it begins, how many bins it has, and how wide they are."""

    start: exp.Expr
    bins: exp.Expr
    step: Value
    value: Value
    name: str


def _dense(b: Binder, rows: Relation, counts: tuple[int, int], defaults: Sequence[Value], axis: _Axis) -> Relation:
    """Return one row a group, with an array for each aggregate and one for the axis.

    ``counts`` says how many columns are keys, and how many after them are the bounds.
    """
    keys, bounds = counts
    place = column_sql(rows.columns[keys + bounds].key, rows.alias)
    by = [
        (column.name, Value(column_sql(column.key, rows.alias), column.type))
        for column in rows.columns[: keys + bounds]
    ]
    outputs: list[Output] = []
    for column, default in zip(rows.columns[keys + bounds + 1 :], defaults, strict=True):
        value = column_sql(column.key, rows.alias)
        outputs.append(Output(column.name, Value(call("tide_series", place, value, axis.bins, default.sql), "dynamic")))
    made = grouped(b, rows, [(n, Value(_key(v).sql, v.type)) for n, v in by], outputs)
    start, bins = axis.start, axis.bins
    if bounds:
        start, bins = (column_sql(made.columns[keys + at].key, made.alias) for at in range(2))
    steps = call(f"tide_series_axis_{_sort(axis.value)}", start, bins, axis.step.sql)
    made = replace(made, columns=(*made.columns[:keys], *made.columns[keys + bounds :]))
    column = Column(
        unique(axis.name, [c.name for c in made.columns]),
        "dynamic",
        fresh_key(axis.name, [c.key for c in made.columns]),
    )
    return b.steps.closed(replace(made, columns=(*made.columns, column), items={**made.items, column.key: steps}))
