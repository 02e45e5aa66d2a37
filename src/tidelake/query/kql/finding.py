"""Lower ``find`` and ``search``, which look for rows in several tables.

A column that the condition names and only some tables have is null in the others. What ``find`` shows depends on the
tables: columns that the condition names and those that every table has come as they are, the rest is packed into a bag,
unless ``project`` says which to show; ``search`` shows all. It does not rank what it finds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass, replace

from sqlglot import exp

from tidelake.query.kql import syntax
from tidelake.query.kql.binder import Binder, Place
from tidelake.query.kql.columns import rebuilt, with_terms
from tidelake.query.kql.conversions import convert
from tidelake.query.kql.joining import branches_of, united
from tidelake.query.kql.relations import Relation, fresh_key
from tidelake.query.kql.values import Column, Value, call, literal, text_literal

PACK = "pack_"


def find(b: Binder, relation: Relation, operator: syntax.Operator, place: Place) -> Relation:
    nodes = operator.parts.get("in") or (syntax.Wildcard("*", operator.at),)
    branches = [found for node in nodes for found in branches_of(b, node, place, 0)]
    condition = with_terms(operator.items[0])
    used = [name for name in names_in(condition) if any(name in rows.by_name for _, rows in branches)]
    if used and not any(isinstance(node, syntax.Wildcard) for node in nodes_in(condition)):
        branches = [(label, rows) for label, rows in branches if any(name in rows.by_name for name in used)]
    kinds = _kinds(rows for _, rows in branches)
    kept = []
    for label, rows in branches:
        wide = _widened(b, rows, used, kinds)
        filtered = wide.filtered(b.condition(condition, b.scope(wide, place)))
        kept.append((label, _shown(b, filtered, rows, operator, _chosen(b, operator, branches, used))))
    source = str(operator.settings.get("withsource") or operator.settings.get("with_source") or "source_")
    return united(b, kept, source, inner=False, at=operator.at)


def search(b: Binder, relation: Relation, operator: syntax.Operator, place: Place) -> Relation:
    """Keep rows of which any text holds a term; a bare text in the condition is such a term."""
    cased = operator.settings.get("kind") == "case_sensitive"
    condition = with_terms(operator.items[0], cased=cased)
    if relation.alias:
        relation = b.steps.plain(relation)
        return relation.filtered(b.condition(condition, b.scope(relation, place)))
    nodes = operator.parts.get("in") or (syntax.Wildcard("*", operator.at),)
    branches = [found for node in nodes for found in branches_of(b, node, place, 0)]
    kinds = _kinds(rows for _, rows in branches)
    used = [name for name in names_in(condition) if name in kinds]
    kept = []
    for label, rows in branches:
        wide = _widened(b, rows, used, kinds)
        filtered = b.steps.closed(wide.filtered(b.condition(condition, b.scope(wide, place))))
        own = tuple(column for column in filtered.columns if column.name in rows.by_name)
        kept.append((label, replace(filtered, columns=own)))
    return united(b, kept, "$table", inner=False, at=operator.at)


def _kinds(relations: Iterable[Relation]) -> dict[str, str]:
    found: dict[str, str] = {}
    for relation in relations:
        for column in relation.columns:
            found.setdefault(column.name, column.type)
    return found


def _widened(b: Binder, rows: Relation, names: Sequence[str], kinds: dict[str, str]) -> Relation:
    """Give a table the columns that the condition names and only others have: they are null."""
    rows = b.steps.plain(rows)
    columns: list[tuple[Column, exp.Expr | None]] = [(column, None) for column in rows.columns]
    for name in names:
        if name not in rows.by_name:
            key = fresh_key(name, [column.key for column, _ in columns])
            columns.append((Column(name, kinds[name], key), literal(None, kinds[name]).sql))
    return rows if len(columns) == len(rows.columns) else b.steps.closed(rebuilt(rows, columns))


def _chosen(
    b: Binder, operator: syntax.Operator, branches: Sequence[tuple[str, Relation]], used: Sequence[str]
) -> list[tuple[str, str]]:
    """Return which columns come as they are, with the type that the author wants of each, if any."""
    if "project" in operator.parts:
        kinds = _kinds(rows for _, rows in branches)
        chosen = [(name, kind) for name, kind in operator.parts["project"] if name]
        for name, _ in chosen:
            if name not in kinds:
                tables = ",".join(table for _, rows in branches for table in rows.tables)
                raise b.error(
                    operator.at, f"no table has a column '{name}'", kind="unknown_name", name=name, tables=tables
                )
        return [(name, kind or kinds[name]) for name, kind in chosen]
    common = [name for name in branches[0][1].by_name if all(name in rows.by_name for _, rows in branches)] or []
    every = dict.fromkeys(name for _, rows in branches for name in rows.by_name)
    return [(name, "") for name in every if name in used or name in common]


def _shown(
    b: Binder, rows: Relation, own: Relation, operator: syntax.Operator, chosen: Sequence[tuple[str, str]]
) -> Relation:
    scope = b.scope(rows, Place(b.no_names, b.text))
    columns: list[tuple[Column, exp.Expr | None]] = []
    for name, kind in chosen:
        held = rows.by_name.get(name)
        if held is None and not kind:
            continue
        value = Value(rows.item(held), held.type) if held is not None else literal(None, kind)
        value = convert(value, kind) if kind and kind != value.type else value
        key = fresh_key(name, [column.key for column, _ in columns])
        columns.append((Column(name, value.type, key), value.sql))
    packs = "project" not in operator.parts or any(not name for name, _ in operator.parts["project"])
    if packs:
        parts: list[exp.Expr] = []
        for column in own.columns:
            value_of = scope.column(column.name)
            if column.name not in dict(chosen) and value_of is not None:
                parts += [text_literal(column.name), convert(value_of, "dynamic").sql]
        bag = call("tide_pack", *parts) if parts else literal({}, "dynamic").sql
        columns.append((Column(PACK, "dynamic", fresh_key(PACK, [column.key for column, _ in columns])), bag))
    return b.steps.closed(rebuilt(replace(rows, order=(), hidden=()), columns))


def nodes_in(node: object) -> Iterator[object]:
    """Walk over the parts of an expression; queries within it are not entered."""
    if isinstance(node, tuple):
        for each in node:
            yield from nodes_in(each)
    elif is_dataclass(node) and not isinstance(node, syntax.Pipe):
        yield node
        for field in fields(node):
            yield from nodes_in(getattr(node, field.name))


def names_in(node: syntax.Expression) -> list[str]:
    """Return the names that an expression uses, in order."""
    return list(dict.fromkeys(each.name for each in nodes_in(node) if isinstance(each, syntax.Name)))
