"""Write out a pivot as the aggregates it stands for.

Every value that is listed becomes a column for each aggregate, over the rows that have that value; where there are none
it is null. Rows are grouped by the columns that the pivot does not name. It does not know how sources are joined.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from tidelake.query.sql.parse import error_of, text_of


def write_out_pivot(source: exp.Expr, names: Sequence[str] | None, text: str) -> exp.Expr:
    """Replace a source that is pivoted by a subquery that groups it, and return that."""
    (pivot,) = source.args["pivots"]
    if pivot.args.get("unpivot") or len(source.args["pivots"]) != 1:
        raise error_of(
            text, pivot, "unpivot is not supported: use union all of one select a column", kind="unsupported"
        )
    if names is None or len(pivot.args["fields"]) != 1 or not isinstance(pivot.args["fields"][0], exp.In):
        raise error_of(text, pivot, "the columns of what is pivoted are not known: list them", kind="unsupported")
    chosen = pivot.args["fields"][0]
    keys = list(chosen.this.expressions) if isinstance(chosen.this, exp.Tuple) else [chosen.this.unnest()]
    used = {column.name for each in (*pivot.expressions, *keys) for column in each.find_all(exp.Column)}
    groups = [exp.column(name, quoted=True) for name in names if name not in used]
    alias = pivot.args.get("alias") or source.args.get("alias")
    inner = source.copy()
    inner.set("pivots", None)
    inner.set("joins", None)
    if not inner.alias_or_name:
        inner.set("alias", exp.TableAlias(this=exp.to_identifier("pivoted", quoted=True)))
    columns = [column for value in chosen.expressions for column in _columns(value, keys, pivot.expressions)]
    select = exp.Select(expressions=[*groups, *columns]).from_(inner)
    if groups:
        select = select.group_by(*(group.copy() for group in groups))
    named = exp.TableAlias(this=alias.this.copy()) if alias is not None and alias.this is not None else None
    made = exp.Subquery(this=select, alias=named, joins=source.args.get("joins"))
    source.replace(made)
    return made


def _columns(value: exp.Expr, keys: Sequence[exp.Expr], aggregates: Sequence[exp.Expr]) -> list[exp.Expr]:
    """Return the columns of one value, one an aggregate, named by the value and, of several, by the aggregate too."""
    bare = value.this if isinstance(value, exp.PivotAlias | exp.Alias) else value
    parts = list(bare.expressions) if isinstance(bare, exp.Tuple) else [bare]
    shown = value.alias if isinstance(value, exp.PivotAlias | exp.Alias) else "_".join(map(_shown, parts))
    if isinstance(bare, exp.Tuple) and not isinstance(value, exp.PivotAlias | exp.Alias):
        shown = "{" + ", ".join(map(_shown, parts)) + "}"
    holds = exp.and_(
        *(exp.NullSafeEQ(this=key.copy(), expression=part.copy()) for key, part in zip(keys, parts, strict=True))
    )
    found: list[exp.Expr] = []
    for aggregate in aggregates:
        name = aggregate.alias if isinstance(aggregate, exp.Alias) else text_of(aggregate)
        made = _filtered(aggregate.unalias().copy(), holds)
        rows = exp.Filter(this=exp.Count(this=exp.Star()), expression=exp.Where(this=holds.copy()))
        some = exp.GT(this=rows, expression=exp.Literal.number(0))
        choice = exp.Case(ifs=[exp.If(this=some, true=made)])
        found.append(exp.alias_(choice, shown if len(aggregates) == 1 else f"{shown}_{name}", quoted=True))
    return found


def _filtered(node: exp.Expr, holds: exp.Expr) -> exp.Expr:
    """Let every aggregate of an expression see only the rows that a condition holds for."""
    held = exp.Paren(this=node)
    for aggregate in list(held.find_all(exp.AggFunc)):
        if aggregate.find_ancestor(exp.AggFunc) is None:
            aggregate.replace(exp.Filter(this=aggregate.copy(), expression=exp.Where(this=holds.copy())))
    return held


def _shown(value: exp.Expr) -> str:
    return str(value.this) if isinstance(value, exp.Literal) else text_of(value)
