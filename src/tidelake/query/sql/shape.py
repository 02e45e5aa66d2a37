"""Spell out what Spark's SQL leaves unsaid, so that both engines and the binder see one shape.

Columns of ``VALUES`` are ``col1``, ``col2``, …, those of ``range`` and of generators such as ``explode`` have Spark's
names; ``smallint('2')`` is a cast; a table's alias that renames columns becomes a subquery; ``WITH ROLLUP``, ``a, b
GROUPING SETS (…)`` and ``grouping__id`` take the one form that every engine reads. It does not know tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from sqlglot import exp

from tidelake.query.functions.declaration import OURS

_TYPE_CALLS = {
    "tinyint": "TINYINT", "smallint": "SMALLINT", "bigint": "BIGINT", "int": "INT", "float": "FLOAT",
    "double": "DOUBLE", "boolean": "BOOLEAN", "decimal": "DECIMAL(10, 0)", "date": "DATE", "timestamp": "TIMESTAMP",
    "binary": "BINARY", "string": "STRING",
}  # fmt: skip
_GENERATED = {
    "explode": ["col"], "explode_outer": ["col"], "posexplode": ["pos", "col"], "posexplode_outer": ["pos", "col"],
}  # fmt: skip
_SHIFTS = (exp.BitwiseLeftShift, exp.BitwiseRightShift)
_WEAKER = (exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor)


def shaped(tree: exp.Expr) -> exp.Expr:
    """Return a tree in the one shape, changed in place."""
    held = exp.Subquery(this=tree)  # so that the root can be replaced too
    for values in list(held.find_all(exp.Values)):
        _name_values(values)
    for row in list(held.find_all(exp.Tuple)):
        _name_struct(row)
    for node in list(held.find_all(exp.Anonymous, exp.Neg, exp.Lateral, exp.Table, exp.Join, exp.Group, *_SHIFTS)):
        match node:
            case exp.Anonymous():
                _type_call(node)
            case exp.Neg():
                _signed_literal(node)
            case exp.Table() | exp.Lateral():
                _name_table(node)
            case exp.Join():
                _complete_join(node)
            case exp.Group():
                _one_grouping(node)
            case _:
                _shift_first(node)
    return cast(exp.Expr, held.this)


def _name_values(values: exp.Values) -> None:
    """Name the columns of listed rows, which the last row may hold as an alias, and make a query of them."""
    alias = values.args.get("alias") or exp.TableAlias()
    rows = values.expressions
    last = rows[-1]
    cell = last.expressions[-1] if isinstance(last, exp.Tuple) and len(last.expressions) == 1 else None
    if isinstance(cell, exp.Alias):  # VALUES 1, 2 AS t(a) is read as if t named the 2
        alias.set("this", cell.args["alias"])
        cell.replace(cell.this)
    first = rows[0].expressions if isinstance(rows[0], exp.Tuple) else [rows[0]]
    named = [each.alias if isinstance(each, exp.Alias) else f"col{at}" for at, each in enumerate(first, start=1)]
    for row in rows:
        for each in list(row.expressions):
            if isinstance(each, exp.Alias):
                each.replace(each.this)
    if not alias.columns:
        alias.set("columns", [exp.to_identifier(name) for name in named])
    if isinstance(values.parent, exp.From | exp.Join) or values.arg_key == "from_":
        values.set("alias", alias)
        return
    made = values.copy()
    made.set("alias", exp.TableAlias(this=exp.to_identifier("listed"), columns=alias.columns))
    outer = values.args.get("alias")
    select = exp.select("*").from_(made)
    values.replace(exp.Subquery(this=select, alias=outer) if outer is not None and outer.this else select)


def _name_struct(node: exp.Tuple) -> None:
    """Read (1 as a, 2 as b) as a struct."""
    if node.expressions and all(isinstance(each, exp.Alias) for each in node.expressions):
        fields = [exp.PropertyEQ(this=each.args["alias"], expression=each.this) for each in node.expressions]
        node.replace(exp.Struct(expressions=fields))


def _type_call(node: exp.Anonymous) -> None:
    kind = _TYPE_CALLS.get(str(node.this).lower())
    if kind is not None and len(node.expressions) == 1:
        node.replace(exp.cast(node.expressions[0], kind, dialect="spark"))


def _signed_literal(node: exp.Neg) -> None:
    """Read a number of a type with its sign, such as -128y: the least one of a type does not fit without."""
    made = node.this
    if isinstance(made, exp.Cast) and isinstance(made.this, exp.Literal) and made.to.this in exp.DataType.INTEGER_TYPES:
        made.this.replace(exp.Literal(this=f"-{made.this.this}", is_string=made.this.is_string))
        node.replace(made)


def _shift_first(node: exp.Expr) -> None:
    """Let a shift bind tighter than ``&``, as in Spark."""
    weaker = node.this
    if isinstance(weaker, _WEAKER):
        kept, shifted = weaker.this, weaker.expression
        node.replace(
            type(weaker)(this=kept.copy(), expression=type(node)(this=shifted.copy(), expression=node.expression))
        )


def _name_table(node: exp.Table | exp.Lateral) -> None:
    """Make a subquery of a table whose alias renames its columns, and of a function that gives rows."""
    alias = node.args.get("alias")
    inner = node.this
    if isinstance(node, exp.Table) and isinstance(inner, exp.Identifier):
        if isinstance(alias, exp.TableAlias) and alias.columns:
            table = node.copy()
            table.set("alias", None)
            table.set("joins", None)
            made = exp.Subquery(this=exp.select("*").from_(table), alias=alias.copy(), joins=node.args.get("joins"))
            node.replace(made)
        return
    if isinstance(node, exp.Lateral) and (node.args.get("view") or isinstance(inner, exp.Subquery)):
        return
    names = _names_of_generated(inner)
    if names is None:
        return
    source = exp.Table(this=inner.copy(), alias=exp.TableAlias(this=exp.to_identifier("made"), columns=_named(names)))
    columns = [exp.column(name, table="made").as_(name) for name in names]
    query = exp.Subquery(this=exp.select(*columns).from_(source))
    outer = alias.copy() if isinstance(alias, exp.TableAlias) else None
    if isinstance(node, exp.Lateral):
        node.replace(exp.Lateral(this=query, alias=outer))
    else:
        query.set("alias", outer)
        query.set("joins", node.args.get("joins"))
        node.replace(query)


def _named(names: Sequence[str]) -> list[exp.Identifier]:
    return [exp.to_identifier(name, quoted=True) for name in names]


def _names_of_generated(call: exp.Expr) -> list[str] | None:
    """Return the names that Spark gives to the columns of a function that gives rows."""
    name = (
        str(call.this).lower().removeprefix(OURS)
        if isinstance(call, exp.Anonymous)
        else call.sql_name().lower()
        if isinstance(call, exp.Func)
        else ""
    )
    if name == "range":
        return ["id"]
    if name in _GENERATED:
        argument = call.expressions[0] if isinstance(call, exp.Anonymous) else call.this
        names = _GENERATED[name]
        return [*names[:-1], "key", "value"] if isinstance(argument, exp.VarMap | exp.Map) else names
    return None


def _complete_join(join: exp.Join) -> None:
    """Give a join of one side a condition, and a cross join that has one its other name."""
    if join.args.get("kind") in ("SEMI", "ANTI") and not join.args.get("on") and not join.args.get("using"):
        join.set("on", exp.true())
    if join.args.get("kind") == "CROSS" and join.args.get("on") is not None:
        join.set("kind", "INNER")


def _one_grouping(group: exp.Group) -> None:
    """Write every grouping by sets as one element after GROUP BY, with columns for their numbers."""
    select = group.parent
    keys = [_by_number(key, select) for key in group.expressions]
    for kind, made in (("rollup", exp.Rollup), ("cube", exp.Cube)):
        found = group.args.get(kind) or []
        if found and not any(each.expressions for each in found):  # a, b WITH ROLLUP
            group.set("expressions", [made(expressions=keys)])
            group.set(kind, None)
            break
    else:
        if group.expressions and group.args.get("grouping_sets"):  # a, b GROUPING SETS (…)
            group.set("expressions", group.args["grouping_sets"])
            group.set("grouping_sets", None)
    for sets in group.find_all(exp.GroupingSets, exp.Rollup, exp.Cube):
        for each in list(sets.expressions):
            for part in (
                each.expressions
                if isinstance(each, exp.Tuple)
                else [each.this]
                if isinstance(each, exp.Paren)
                else [each]
            ):
                numbered = _by_number(part, select)
                if numbered is not part:
                    part.replace(numbered.copy())
    if isinstance(select, exp.Select) and group.find(exp.GroupingSets, exp.Rollup, exp.Cube) is not None:
        listed = [key for key in keys if not isinstance(key, exp.GroupingSets | exp.Rollup | exp.Cube)]
        _grouping_ids(select, listed or _keys_of(group))
    if isinstance(select, exp.Select):
        _type_constants(select)


def _type_constants(select: exp.Select) -> None:
    """Return a number that a select names a type: where the name is grouped by, a bare number would mean a place."""
    for each in select.expressions:
        if isinstance(each, exp.Alias) and isinstance(each.this, exp.Literal) and each.this.is_int:
            each.set("this", exp.cast(each.this.copy(), "INT" if abs(int(each.this.this)) < 2**31 else "BIGINT"))


def _by_number(key: exp.Expr, select: exp.Expr | None) -> exp.Expr:
    if isinstance(key, exp.Literal) and key.is_int and isinstance(select, exp.Select):
        at = int(key.this) - 1
        if 0 <= at < len(select.expressions) and not isinstance(select.expressions[at], exp.Star):
            return cast(exp.Expr, select.expressions[at].unalias().copy())
    return key


def _keys_of(group: exp.Group) -> list[exp.Expr]:
    """Return the keys of all sets, each once, in the order in which they are first named."""
    found: list[exp.Expr] = []
    for element in (
        *group.expressions,
        *(group.args.get("rollup") or []),
        *(group.args.get("cube") or []),
        *(group.args.get("grouping_sets") or []),
    ):
        parts: list[exp.Expr] = []
        stack = [element]
        while stack:
            each = stack.pop(0)
            if isinstance(each, exp.GroupingSets | exp.Rollup | exp.Cube | exp.Tuple):
                stack = [*each.expressions, *stack]
            elif isinstance(each, exp.Paren):
                stack = [each.this, *stack]
            else:
                parts.append(each)
        for part in parts:
            if part not in found:
                found.append(part)
    return found


def _grouping_ids(select: exp.Select, keys: Sequence[exp.Expr]) -> None:
    """Name the keys of every ``grouping_id()`` and ``grouping__id``."""
    for node in list(select.find_all(exp.Column, exp.Anonymous, exp.GroupingId)):
        is_column = isinstance(node, exp.Column) and node.name.lower() == "grouping__id" and not node.table
        is_call = isinstance(node, exp.GroupingId) and not node.expressions
        is_bare = isinstance(node, exp.Anonymous) and str(node.this).lower() == "grouping_id" and not node.expressions
        if is_column or is_call or is_bare:
            made: exp.Expr = exp.GroupingId(expressions=[key.copy() for key in keys]) if keys else exp.Literal.number(0)
            if isinstance(node.parent, exp.Select) and node.arg_key == "expressions" and is_column:
                made = exp.alias_(made, "grouping__id")
            node.replace(made)
