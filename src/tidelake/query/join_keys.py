"""Find where rows of one table do not matter unless another table has the value of one of their columns.

Such is an equality of two columns that every row of the answer meets: of an inner or semi join, of a condition on
joined rows, of ``IN`` and ``EXISTS``; of an outer or anti join only for the side whose unmatched rows vanish. A row
without a partner, and one whose column is null, can then be left out before the join. The values that a column can have
are those of the table's column that it is, however it got there; which rows may be left out is a condition, a *mark*,
that is pushed down like any other. It does not read rows, and does not decide whether leaving them out is worth it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from sqlglot import exp

from tidelake.query.bind import Reference
from tidelake.query.conjuncts import conjuncts_of

_MARK = "tide_joined"
_ALIKE = ({"int", "long"}, {"string"}, {"timestamp"})  # kinds whose values are equal as scans and engines see them
MAX_STEPS = 64  # subqueries that a column is followed through


class JoinKey(NamedTuple):
    """Rows of ``large`` whose column has no value that the column of ``small`` has do not matter."""

    small: str  # the name of a reference
    small_column: str
    large: str
    large_column: str


@dataclass(frozen=True, slots=True)
class Marks:
    """The marks of one select: on joined rows, on rows of a source before it is joined, and on outputs of ``IN``."""

    asked: list[exp.Expr] = field(default_factory=list)
    before: dict[int, list[exp.Expr]] = field(default_factory=dict)  # by the place of the source
    within: dict[int, exp.Expr] = field(default_factory=dict)  # by the id of the query


def marks_of(
    select: exp.Select,
    sources: Sequence[exp.Expr],
    references: Mapping[str, Reference],
    is_plain: Callable[[exp.Select], bool],
) -> Marks:
    """Return what may be left out of the sources of a select; ``is_plain`` says what has rows only if its source has.

    Equalities of a WHERE hold of joined rows, and are never true of what an outer join fills with nulls, so they mark
    both sides whatever the joins are; the other column may be one of a query around the select.
    """
    found, places = Marks(), {source.alias_or_name: at for at, source in enumerate(sources)}

    def mark(into: list[exp.Expr], large: exp.Column, small: exp.Column) -> None:
        if (origin := _origin_of(small, references)) is not None:
            into.append(_mark(large, origin))

    where = select.args.get("where")
    for condition in conjuncts_of(None if where is None else where.this):
        for large, small in _equal(condition):
            if large.table in places:
                mark(found.asked, large, small)
        if isinstance(condition, exp.Exists):
            inner = _select_in(condition.this)
            if inner is not None and is_plain(inner):
                own = {source.alias_or_name for source in sources_of(inner)}
                for large, small in _equalities(_where(inner)):
                    if large.table in places and large.table not in own and small.table in own:
                        mark(found.asked, large, small)
        if isinstance(condition, exp.In) and isinstance(condition.this, exp.Column):
            inner = _select_in(condition.args.get("query"))
            if inner is None or len(inner.expressions) != 1 or condition.this.table not in places:
                continue
            output = inner.expressions[0].unalias()
            if isinstance(output, exp.Column):
                mark(found.asked, condition.this, output)
            if (origin := _origin_of(condition.this, references)) is not None:
                name = exp.column(exp.to_identifier(inner.expressions[0].alias_or_name, quoted=True))
                found.within[id(condition.args["query"])] = _mark(name, origin)
    joins: list[exp.Join] = select.args.get("joins") or []
    for at, join in enumerate(joins, len(sources) - len(joins)):
        for large, small in _equalities(join.args.get("on")):
            if large.table not in places or small.table not in places or join.args.get("using"):
                continue
            is_joined = places[large.table] == at and places[small.table] < at
            match _kind_of(join):
                case "inner":
                    mark(found.asked, large, small)
                case "left" if is_joined:
                    mark(found.before.setdefault(at, []), large, small)
                case "right" if places[small.table] == at and places[large.table] < at:
                    mark(found.asked, large, small)
    return found


def key_of(condition: exp.Expr, large: Reference, references: Mapping[str, Reference]) -> JoinKey | None:
    """Return what a mark says of a table's rows, or None if that is nothing a scan can be asked."""
    column, small, name = (condition.expressions[0], *(str(each.this) for each in condition.expressions[1:]))
    if not isinstance(column, exp.Column) or column.name not in large.types or small == large.name:
        return None
    kinds = [large.types[column.name], references[small].types[name]]
    if any(kind.logical is not None for kind in kinds):
        return None
    is_alike = any({kind.kind for kind in kinds} <= alike for alike in _ALIKE)
    return JoinKey(small, name, large.name, column.name) if is_alike else None


def is_mark(condition: exp.Expr) -> bool:
    """Whether a condition is a mark."""
    return isinstance(condition, exp.Anonymous) and condition.this == _MARK


def sources_of(select: exp.Select) -> Iterator[exp.Expr]:
    """Yield what a select reads."""
    if (from_ := select.args.get("from_")) is not None:
        yield from_.this
    for join in select.args.get("joins") or []:
        yield join.this


def cte_of(table: exp.Table, known: dict[int, dict[str, exp.CTE]] | None = None) -> exp.CTE | None:
    """Return the common table that a name stands for; ``known`` keeps the names of each ``with`` for the next time."""
    names = {} if known is None else known
    node: exp.Expr | None = table
    while node is not None:
        with_ = node.args.get("with_")
        if with_ is not None:
            if id(with_) not in names:
                names[id(with_)] = {cte.alias: cte for cte in reversed(with_.expressions)}
            if (found := names[id(with_)].get(table.name)) is not None:
                return found
        node = node.parent
    return None


def _kind_of(join: exp.Join) -> str:
    """Return what becomes of unmatched rows: of both sides they vanish (inner), or only of the left or right one."""
    side, kind = (str(join.args.get(key) or "").upper() for key in ("side", "kind"))
    if join.args.get("method"):
        return ""
    if (side == "" and kind in ("", "INNER", "CROSS")) or (side in ("", "LEFT") and kind == "SEMI"):
        return "inner"
    if (side == "LEFT" and kind in ("", "OUTER")) or (side in ("", "LEFT") and kind == "ANTI"):
        return "left"
    return "right" if side == "RIGHT" and kind in ("", "OUTER") else ""


def _mark(column: exp.Column, origin: tuple[str, str]) -> exp.Expr:
    return exp.Anonymous(this=_MARK, expressions=[column.copy(), *map(exp.Literal.string, origin)])


def _where(select: exp.Select) -> exp.Expr | None:
    where = select.args.get("where")
    return None if where is None else where.this


def _equalities(condition: exp.Expr | None) -> Iterator[tuple[exp.Column, exp.Column]]:
    for part in conjuncts_of(condition):
        yield from _equal(part)


def _equal(condition: exp.Expr) -> Iterator[tuple[exp.Column, exp.Column]]:
    """Yield both orders of two columns of different sources that are equal."""
    if not isinstance(condition, exp.EQ):
        return
    left, right = condition.this.unnest(), condition.expression.unnest()
    if isinstance(left, exp.Column) and isinstance(right, exp.Column) and left.table != right.table:
        yield left, right
        yield right, left


def _select_in(query: object) -> exp.Select | None:
    while isinstance(query, exp.Subquery):
        query = query.this
    return query if isinstance(query, exp.Select) else None


def _origin_of(
    column: exp.Column, references: Mapping[str, Reference], steps: int = MAX_STEPS
) -> tuple[str, str] | None:
    """Return the table's column whose values are all that a column can have, by the name of its reference."""
    select = column.find_ancestor(exp.Select)
    while select is not None:
        for source in sources_of(select):
            if source.alias_or_name == column.table:
                return _origin_in(source, column.name, references, steps - 1)
        select = select.find_ancestor(exp.Select)
    return None


def _origin_in(source: exp.Expr, name: str, references: Mapping[str, Reference], steps: int) -> tuple[str, str] | None:
    query: object = None
    if isinstance(source, exp.Table):
        if source.name in references:
            return (source.name, name) if name in references[source.name].types else None
        cte = cte_of(source)
        with_ = None if cte is None else cte.find_ancestor(exp.With)
        if cte is not None and with_ is not None and not with_.recursive and not cte.args["alias"].columns:
            query = cte.this
    elif isinstance(source, exp.Subquery) and not any(source.args.get(key) for key in ("joins", "pivots")):
        alias = source.args.get("alias")
        query = None if alias is not None and alias.columns else source.this
    inner = _select_in(query)
    outputs = [] if inner is None else [each for each in inner.expressions if each.alias_or_name == name]
    if len(outputs) != 1 or steps <= 0:
        return None
    output = outputs[0].unalias()
    return _origin_of(output, references, steps) if isinstance(output, exp.Column) else None
