"""Lower the operators that choose, add, filter and order: each row stays a row.

It does not group or join.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from sqlglot import exp

from tidelake.model.lexer import did_you_mean
from tidelake.query.kql import syntax
from tidelake.query.kql.binder import Binder, Place, rows_query
from tidelake.query.kql.naming import name_of, unique
from tidelake.query.kql.packed_functions import PARTS, parts_of
from tidelake.query.kql.relations import OrderKey, Relation, aliased, fresh_key, keyed
from tidelake.query.kql.scope import Scope, column_sql
from tidelake.query.kql.values import Column, Value, call, cast, literal, text
from tidelake.query.kql.varied_functions import SORTS
from tidelake.query.kql.windows import hoisted

MAX_TAKE = 2**62
_CLR_NAMES = {
    "string": "System.String", "long": "System.Int64", "int": "System.Int32", "real": "System.Double",
    "bool": "System.SByte", "datetime": "System.DateTime", "timespan": "System.TimeSpan", "dynamic": "System.Object",
    "guid": "System.Guid", "decimal": "System.Data.SqlTypes.SqlDecimal", "vector": "System.Object",
}  # fmt: skip


def rebuilt(relation: Relation, chosen: Sequence[tuple[Column, exp.Expr | None]]) -> Relation:
    """Return a relation with other columns; None is a column of the source as it stands. The order is kept."""
    columns = tuple(column for column, _ in chosen)
    items = {column.key: sql for column, sql in chosen if sql is not None}
    kept = {column.key for column, sql in chosen if sql is None}
    hidden = list(relation.hidden)
    order: list[OrderKey] = []
    for key in relation.order:
        if key.key in kept or any(key.key == column.key for column in hidden):
            order.append(key)
            continue
        alias = fresh_key("order", [*(c.key for c in columns), *(c.key for c in hidden)])
        hidden.append(Column("", "", alias))
        items[alias] = column_sql(key.key, relation.alias)
        order.append(replace(key, key=alias))
    taken = {column.key.lower() for column in columns}
    for column in relation.hidden:
        if column.key.lower() in taken:
            raise AssertionError(f"hidden column {column.key} is taken")
    bag = relation.bag if relation.bag in columns else None
    return replace(relation, columns=columns, hidden=tuple(hidden), items=items, order=tuple(order), bag=bag)


def assigned(
    b: Binder, relation: Relation, nodes: Iterable[syntax.Expression], place: Place
) -> list[tuple[str, Value, bool]]:
    """Bind ``name = value`` items: names, values, and whether the author gave the name."""
    scope = b.scope(relation, place)
    found: list[tuple[str, Value, bool]] = []
    for node in nodes:
        value = settled(b.bind(node, scope))
        inner = node.value if isinstance(node, syntax.Named) else node
        if isinstance(inner, syntax.Call) and inner.name in PARTS and scope.names.find(inner.name) is None:
            names = node.names if isinstance(node, syntax.Named) else ()
            default = f"{inner.name}_{name_of(inner.arguments[0]) or ''}"
            for at, (part, each) in enumerate(parts_of(value, inner.name)):
                if not names or at < len(names):
                    found.append((names[at] if names else f"{default}_{part}", each, bool(names)))
            continue
        if isinstance(inner, syntax.Call) and inner.name in SORTS and (parts := _sorted_parts(b, inner, value, scope)):
            names = node.names if isinstance(node, syntax.Named) else ()
            found += [
                (names[at] if names else name, each, bool(names))
                for at, (name, each) in enumerate(parts)
                if not names or at < len(names)
            ]
            continue
        if isinstance(node, syntax.Named) and len(node.names) > 1:
            array = value if value.type == "dynamic" else None
            if array is None:
                raise b.error(node.at, "several names need a value of several parts")
            found += [
                (name, Value(call("tide_at", array.sql, exp.Literal.number(at)), "dynamic"), True)
                for at, name in enumerate(node.names)
            ]
            continue
        name = name_of(node)
        found.append((name or "", value, isinstance(node, syntax.Named | syntax.Name)))
    return found


def _sorted_parts(b: Binder, node: syntax.Call, value: Value, scope: Scope) -> list[tuple[str, Value]]:
    """Return the arrays that a sort of several gives, with their names; of one, nothing."""
    if len(node.arguments) < 2 or scope.names.find(node.name) is not None:
        return []
    count = len(node.arguments) - (b.bind(node.arguments[-1], scope).type == "bool")
    if count < 2:
        return []
    return [
        (
            f"{name_of(argument) or f'array{at}'}_sorted",
            Value(call("tide_at", value.sql, exp.Literal.number(at)), "dynamic"),
        )
        for at, argument in enumerate(node.arguments[:count])
    ]


def settled(value: Value) -> Value:
    """Give a constant the full width of its type, for it becomes a column."""
    if value.is_constant and value.type in ("long", "int", "timespan") and not isinstance(value.sql, exp.Cast):
        return Value(cast(value.sql, value.type), value.type, value.constant)
    return value


def where(b: Binder, relation: Relation, operator: syntax.Operator, place: Place) -> Relation:
    relation = b.steps.plain(relation)
    wide, (condition,) = hoisted(b, relation, operator.items, place, whole=True)
    kept = wide.filtered(b.condition(condition, b.scope(wide, place)))
    return kept if wide is relation else _keep(b, kept, relation.columns)


def extend(b: Binder, relation: Relation, operator: syntax.Operator, place: Place) -> Relation:
    if not operator.items:
        return replace(relation, serialized=True)
    relation = b.steps.plain(relation)
    if operator.name == "serialize":
        relation = replace(relation, serialized=True)
    chosen: dict[str, tuple[Column, exp.Expr | None]] = {c.name: (c, None) for c in relation.columns}
    relation, items = hoisted(b, relation, operator.items, place)
    for name, value, given in assigned(b, relation, items, place):
        final = name if given else unique(name or "Column1", chosen) if name else _numbered(chosen)
        old = chosen.get(final)
        taken = [*(column.key for column, _ in chosen.values()), *(column.key for column in relation.hidden)]
        key = old[0].key if old else fresh_key(final, taken)
        chosen[final] = (Column(final, value.type, key), value.sql)
    return rebuilt(relation, list(chosen.values()))


def _numbered(taken: Iterable[str]) -> str:
    used, count = set(taken), 1
    while f"Column{count}" in used:
        count += 1
    return f"Column{count}"


def project(b: Binder, relation: Relation, operator: syntax.Operator, place: Place) -> Relation:
    relation, nodes = hoisted(b, b.steps.plain(relation), operator.items, place)
    chosen: dict[str, tuple[Column, exp.Expr | None]] = {}
    taken = [column.key for column in relation.hidden]
    for node, (name, value, given) in _with_nodes(b, relation, nodes, place):
        if (
            isinstance(node, syntax.Name)
            and (held := relation.by_name.get(node.name))
            and held.key.lower() not in map(str.lower, taken)
        ):
            chosen[held.name] = (held, None)
            taken.append(held.key)
            continue
        final = name if given and name not in chosen else unique(name, chosen) if name else _numbered(chosen)
        key = fresh_key(final, taken)
        taken.append(key)
        chosen[final] = (Column(final, value.type, key), value.sql)
    return rebuilt(relation, list(chosen.values()))


def _with_nodes(
    b: Binder, relation: Relation, nodes: Sequence[syntax.Expression], place: Place
) -> list[tuple[Any, Any]]:
    found: list[tuple[Any, Any]] = []
    for node in nodes:
        if isinstance(node, syntax.Wildcard):
            matched = matching(b, relation, node)
            found += [
                (syntax.Name(c.name, node.at), entry)
                for c in matched
                for entry in assigned(b, relation, [syntax.Name(c.name, node.at)], place)
            ]
        else:
            found += [(node, entry) for entry in assigned(b, relation, [node], place)]
    return found


def print_row(b: Binder, relation: Relation, operator: syntax.Operator, place: Place) -> Relation:
    entries = assigned(b, relation, operator.items, place)
    names: list[str] = []
    for index, (name, _, _) in enumerate(entries):
        is_named = index < len(operator.items) and isinstance(operator.items[index], syntax.Named)
        names.append(unique(name if is_named or len(entries) > len(operator.items) else f"print_{index}", names))
    columns = keyed((name, value.type) for name, (_, value, _) in zip(names, entries, strict=True))
    query = exp.select(*(aliased(value.sql, c.key) for c, (_, value, _) in zip(columns, entries, strict=True)))
    return replace(b.steps.relation(query, columns, relation), serialized=True)


def matching(b: Binder, relation: Relation, node: syntax.Expression) -> list[Column]:
    """Return the columns that a name, perhaps with stars, stands for."""
    match node:
        case syntax.Wildcard(pattern):
            escaped = re.sub(r"([\[\]?])", r"[\1]", pattern)
            return [column for column in relation.columns if fnmatchcase(column.name, escaped)]
        case syntax.Name(name, at):
            if column := relation.by_name.get(name):
                return [column]
            if relation.bag is not None:
                return []
            hint = did_you_mean(name, relation.by_name)
            raise b.error(
                at, f"unknown column '{name}'{hint}", kind="unknown_name", name=name, tables=",".join(relation.tables)
            )
        case _:
            raise b.error(node.at, "expected a column's name")


def project_away(b: Binder, relation: Relation, operator: syntax.Operator, place: Place) -> Relation:
    gone = {column.name for node in operator.items for column in matching(b, relation, node)}
    kept = [column for column in relation.columns if column.name not in gone]
    if not kept and relation.bag is None:
        raise b.error(operator.at, "project-away leaves no columns")
    return _keep(b, relation, kept)


def project_keep(b: Binder, relation: Relation, operator: syntax.Operator, place: Place) -> Relation:
    kept = {column.name for node in operator.items for column in matching(b, relation, node)}
    return _keep(b, relation, [column for column in relation.columns if column.name in kept])


def project_reorder(b: Binder, relation: Relation, operator: syntax.Operator, place: Place) -> Relation:
    first: dict[str, Column] = {}
    named = {node.name for node, _ in operator.items if isinstance(node, syntax.Name)}
    for node, order in operator.items:
        found = matching(b, relation, node)
        if isinstance(node, syntax.Wildcard):
            found = [column for column in found if column.name not in named]
        if order:
            found = sorted(found, key=lambda column: column.name, reverse=order.endswith("desc"))
        first.update({column.name: column for column in found if column.name not in first})
    rest = [column for column in relation.columns if column.name not in first]
    return _keep(b, relation, [*first.values(), *rest])


def project_by_names(b: Binder, relation: Relation, operator: syntax.Operator, place: Place) -> Relation:
    """Choose columns by constants that hold their names, which may have stars; names of no column are left out."""
    chosen: dict[str, Column] = {}
    for node in operator.items:
        found = b.constant(node, b.scope(None, place), "a column's name")
        for name in found if isinstance(found, list) else [found]:
            pattern = re.sub(r"([\[\]?])", r"[\1]", str(name))
            chosen.update({c.name: c for c in relation.columns if fnmatchcase(c.name, pattern)})
    if not chosen:
        raise b.error(operator.at, "project-by-names leaves no columns")
    return _keep(b, relation, list(chosen.values()))


def _keep(b: Binder, relation: Relation, columns: Sequence[Column]) -> Relation:
    """Choose columns as they stand; what was computed stays computed."""
    if not relation.is_plain:
        relation = b.steps.closed(relation)
    return rebuilt(relation, [(column, None) for column in columns])


def project_rename(b: Binder, relation: Relation, operator: syntax.Operator, place: Place) -> Relation:
    renames: dict[str, str] = {}
    for node in operator.items:
        if not isinstance(node, syntax.Named):
            raise b.error(node.at, "expected new = old")
        if isinstance(node.value, syntax.Name) and relation.bag is not None and node.value.name not in relation.by_name:
            relation = extend(b, relation, syntax.Operator("extend", (node,), node.at, {}, {}), place)
            continue
        old = matching(b, relation, node.value)[0]
        renames[old.name] = node.names[0]
    columns = [replace(column, name=renames.get(column.name, column.name)) for column in relation.columns]
    if len({column.name for column in columns}) < len(columns):
        raise b.error(operator.at, "project-rename would give two columns one name")
    return replace(relation, columns=tuple(columns))


def sort(b: Binder, relation: Relation, operator: syntax.Operator, place: Place) -> Relation:
    return ordered_by(b, relation, operator.items, place)


def ordered_by(b: Binder, relation: Relation, orderings: Sequence[syntax.Ordering], place: Place) -> Relation:
    """Put rows in an order; what is no plain column becomes a hidden one."""
    relation = b.steps.plain(relation)
    keys: list[OrderKey] = []
    hidden: list[tuple[Column, exp.Expr]] = []
    scope = b.scope(relation, place)
    for ordering in orderings:
        node = ordering.value.value if isinstance(ordering.value, syntax.Named) else ordering.value
        column = relation.by_name.get(node.name) if isinstance(node, syntax.Name) else None
        if column is not None and column.type not in ("dynamic", "vector"):
            keys.append(OrderKey(column.key, ordering.descending, ordering.nulls_first))
            continue
        value = b.bind(node, scope)
        if value.type in ("dynamic", "vector"):
            value = Value(call("tide_sort_key", value.sql), "string")
        taken = [*(c.key for c in relation.columns), *(c.key for c in relation.hidden), *(c.key for c, _ in hidden)]
        made = Column("", "", fresh_key("order", taken))
        hidden.append((made, value.sql))
        keys.append(OrderKey(made.key, ordering.descending, ordering.nulls_first))
    held = (*relation.partition, *(column for column, _ in hidden))
    items = {column.key: sql for column, sql in hidden}
    return replace(relation, hidden=held, items={**relation.items, **items}, order=tuple(keys), serialized=True)


def take(b: Binder, relation: Relation, operator: syntax.Operator, place: Place) -> Relation:
    count = _count(b, operator, place)
    return limited(b, relation, count, operator.items[0].at)


def sample(b: Binder, relation: Relation, operator: syntax.Operator, place: Place) -> Relation:
    """Keep some rows by chance, in no order."""
    count = _count(b, operator, place)
    relation = replace(b.steps.plain(relation), order=(), serialized=False)
    key = Column("", "", fresh_key("chance", [c.key for c in (*relation.columns, *relation.hidden)]))
    hidden = (*relation.partition, key)
    drawn = replace(
        relation, hidden=hidden, items={key.key: call("tide_rand")}, order=(OrderKey(key.key, False, True),)
    )
    kept = limited(b, drawn, count, operator.items[0].at)
    return replace(kept, order=(), hidden=tuple(c for c in kept.hidden if c.key != key.key))


def top(b: Binder, relation: Relation, operator: syntax.Operator, place: Place) -> Relation:
    count = _count(b, operator, place)
    return limited(b, ordered_by(b, relation, operator.parts["by"], place), count, operator.items[0].at)


def _count(b: Binder, operator: syntax.Operator, place: Place) -> Any:
    """Return how many rows an operator keeps: a number, or the SQL of one that the data tells."""
    value = b.bind(operator.items[0], b.scope(None, place))
    if value.is_constant:
        return value.constant
    return b.expect(value, "long", b.scope(None, place), operator.items[0].at, f"the count of {operator.name}").sql


def limited(b: Binder, relation: Relation, count: Any, at: int) -> Relation:
    """Keep the first rows: of each part, where the pipeline runs part by part."""
    known = not isinstance(count, exp.Expr)
    if known and (not isinstance(count, int) or isinstance(count, bool) or not 0 <= count < MAX_TAKE):
        raise b.error(at, "expected a number of rows, zero or more")
    if not relation.is_plain:
        relation = b.steps.closed(relation)
    if known and not relation.partition:
        query = relation.select(ordered=True).limit(count, copy=False)
        return b.steps.relation(query, relation.columns, relation)
    number = Column("", "", fresh_key("place", [c.key for c in (*relation.columns, *relation.hidden)]))
    parts = [column_sql(column.key, relation.alias) for column in relation.partition]
    order = exp.Order(expressions=relation.order_sql() or [exp.Ordered(this=exp.Null())])
    window = exp.Window(this=exp.RowNumber(), partition_by=parts, order=order)
    query = relation.select().select(aliased(window, number.key), copy=False)
    stepped = b.steps.relation(query, relation.columns, relation)
    most = exp.Literal.number(count) if known else count
    return stepped.filtered(exp.LTE(this=column_sql(number.key, stepped.alias), expression=most))


def getschema(b: Binder, relation: Relation, operator: syntax.Operator, place: Place) -> Relation:
    columns = keyed(
        [("ColumnName", "string"), ("ColumnOrdinal", "long"), ("DataType", "string"), ("ColumnType", "string")]
    )
    rows = [
        [
            literal(c.name, "string").sql,
            exp.Literal.number(at),
            literal(_CLR_NAMES[c.type], "string").sql,
            literal(c.type, "string").sql,
        ]
        for at, c in enumerate(relation.columns)
    ]
    source, alias = b.steps.add(rows_query(columns, rows))
    made = Relation(source, alias, columns, serialized=True)
    return replace(made, order=(OrderKey(columns[1].key, False, True),))


def same(b: Binder, relation: Relation, operator: syntax.Operator, place: Place) -> Relation:
    return relation


def render(b: Binder, relation: Relation, operator: syntax.Operator, place: Place) -> Relation:
    b.rendered = (operator.items[0], dict(operator.parts["properties"]))
    return relation


def with_terms(node: syntax.Expression, *, cased: bool = False) -> syntax.Expression:
    """Return a condition in which a bare text means that any column holds it."""
    match node:
        case syntax.Literal("string", str(term), at):
            return term_anywhere(term, at, cased=cased)
        case syntax.Wildcard("*", at):
            return syntax.Literal("bool", True, at)
        case syntax.Junction(kind, parts, at):
            return syntax.Junction(kind, tuple(with_terms(part, cased=cased) for part in parts), at)
        case syntax.Call("not", (inner,), at):
            return syntax.Call("not", (with_terms(inner, cased=cased),), at)
        case _:
            return node


def term_anywhere(term: str, at: int, *, cased: bool = False) -> syntax.Expression:
    """Return the condition that any column's text holds a term; stars stand for any letters."""
    star = syntax.Wildcard("*", at)
    if term == "*":
        return syntax.Literal("bool", True, at)
    core = term.strip("*")
    if "*" in core:
        pattern = ("" if cased else "(?i)") + ".*".join(re.escape(part) for part in term.strip("*").split("*"))
        return syntax.Binary("matches", star, syntax.Literal("string", pattern, at), at)
    kind = {(True, True): "contains", (True, False): "hassuffix", (False, True): "hasprefix"}.get(
        (term.startswith("*"), term.endswith("*")), "has"
    )
    return syntax.Binary(f"{kind}_cs" if cased else kind, star, syntax.Literal("string", core, at), at)


def text_key(value: Value) -> exp.Expr:
    """Return what rows are grouped or joined by: text with null as empty."""
    if value.type in ("string", "guid"):
        return text(value)
    return call("tide_to_string_from_dynamic", value.sql) if value.type == "dynamic" else value.sql
