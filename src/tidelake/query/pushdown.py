"""Push what a query asks down to the scans of its tables: which columns, which rows, at most how many.

A condition is asked of a scan only where every row it drops there could not matter above; the engine asks it again, so
the answer never depends on this. Columns that nothing above needs are taken out of subqueries. The rules:

- through a projection, a condition follows the columns it names, unless they are computed from chance;
- not through a limit; through groups and windows only on what rows are grouped or partitioned by;
- to both sides of a union, by position;
- to the side of an outer join that may be filled with nulls only if it is never true of nulls.

It does not plan or read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from sqlglot import exp

from tidelake.model.path_value import PathValue
from tidelake.pruning.topmost import Top
from tidelake.query.bind import Bound, Reference
from tidelake.query.conjuncts import Pushed, both, conjuncts_of, pushed, rejects_nulls
from tidelake.query.functions.declaration import PORTABLE
from tidelake.query.functions.registry import AGGREGATES, ROW_MAKERS
from tidelake.query.join_keys import JoinKey, Marks, cte_of, is_mark, key_of, marks_of
from tidelake.vectors.narrowing import Wanted

MAX_GROWTH = 1_000  # parts that a condition gains at one step on its way down; beyond, it is left to the engine
CHANCE = (exp.Rand, exp.Randn, exp.Uuid)
# Clauses that make other rows, or another order, of what a select reads.
_SHAPING = ("group", "having", "qualify", "distinct", "order", "sort", "cluster", "distribute", "laterals", "windows")
_ROW_MAKERS = (exp.Explode, exp.Posexplode, exp.Unnest, exp.Inline, exp.Stack)


@dataclass(frozen=True, slots=True)
class Ask:
    """What a query asks of one reference: columns by the names in the tree, a predicate, and a limit."""

    reference: Reference
    columns: tuple[str, ...]
    where: Pushed | None = None
    limit: int | None = None
    paths: tuple[PathValue, ...] = ()  # of dynamic columns that are not asked for as a whole
    top: tuple[str, Top] | None = None  # the time column of which only the first or last rows are needed
    nearest: Wanted | None = None  # the vector whose nearest rows are all that is needed
    counted: str | None = None  # the column that says of how many rows each is given, if equal ones may be one


@dataclass(slots=True)
class _Narrowing:
    """What was found so far: of each reference its columns, conditions and limit; of each CTE its name and uses."""

    references: Mapping[str, Reference]
    columns: dict[str, set[str]] = field(default_factory=dict)
    conditions: dict[str, list[Pushed]] = field(default_factory=dict)
    limits: dict[str, int | None] = field(default_factory=dict)
    uses: dict[int, list[_Use]] = field(default_factory=dict)  # of a CTE, by the id of its node
    common: dict[int, dict[str, exp.CTE]] = field(default_factory=dict)  # of a `with`, by the id of its node
    joined: dict[JoinKey, None] = field(default_factory=dict)
    grows: bool = False  # whether a condition was left where it is since it would grow


@dataclass(frozen=True, slots=True)
class _Use:
    """What one place needs of a subquery: output columns, or all (None), conditions on them, and a limit."""

    columns: frozenset[str] | None
    conditions: tuple[exp.Expr, ...] = ()
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Narrowed:
    """What each table is asked for, which rows joins drop, and whether a condition would grow too much on its way."""

    asks: tuple[Ask, ...]
    joined: tuple[JoinKey, ...]
    grows: bool


def push_down(bound: Bound) -> Narrowed:
    """Return what each table is asked for.

    Subqueries of the tree lose the columns that nothing needs.
    """
    found = _Narrowing(bound.references)
    _narrow(bound.tree, _Use(None), found)
    asks = tuple(
        Ask(
            reference,
            tuple(name for name in reference.types if name in found.columns.get(reference.name, ())),
            both(found.conditions.get(reference.name, ())),
            found.limits.get(reference.name),
        )
        for reference in bound.references.values()
    )
    return Narrowed(asks, tuple(found.joined), found.grows)


def _narrow(query: exp.Expr, use: _Use, found: _Narrowing) -> None:
    match query:
        case exp.Subquery():
            inner = query.this
            plain = not any(query.args.get(key) for key in ("limit", "offset", "order", "joins", "pivots"))
            _narrow(inner, use if plain else _Use(None), found)
        case exp.SetOperation():
            _narrow_union(query, use, found)
        case exp.Select():
            _narrow_select(query, use, found)
        case exp.Table():
            pass
        case _:
            for inner in _queries_in(query):
                _narrow(inner, _Use(None), found)
    _narrow_ctes(query, found)


def _narrow_ctes(query: exp.Expr, found: _Narrowing) -> None:
    """Narrow common tables once all that uses them is known; the later ones use the earlier."""
    with_ = query.args.get("with_")
    if with_ is None:
        return
    for cte in reversed(with_.expressions):
        uses = found.uses.get(id(cte), [])
        one = uses[0] if len(uses) == 1 and not with_.recursive and not cte.args["alias"].columns else _Use(None)
        if len(uses) > 1 and not with_.recursive and all(each.columns is not None for each in uses):
            one = _Use(frozenset().union(*(each.columns or () for each in uses)))
        _narrow(cte.this, one, found)


def _narrow_union(query: exp.SetOperation, use: _Use, found: _Narrowing) -> None:
    names = query.named_selects
    sides = (query.this, query.expression)
    limited = bool(query.args.get("limit") or query.args.get("offset"))
    is_all = isinstance(query, exp.Union) and not query.args.get("distinct") and not query.args.get("by_name")
    by_position = not query.args.get("by_name")
    ordered = {column.name for column in query.args["order"].find_all(exp.Column)} if query.args.get("order") else set()
    for side in sides:
        own = list(side.named_selects) if isinstance(side, exp.Query) else []
        if not by_position or len(own) != len(names) or len(set(names)) != len(names) or len(set(own)) != len(own):
            _narrow(side, _Use(None), found)
            continue
        to_own = dict(zip(names, own, strict=True))
        columns = None
        if is_all and use.columns is not None:
            columns = frozenset(to_own[name] for name in use.columns | ordered if name in to_own) or frozenset(own[:1])
        conditions = () if limited else tuple(_renamed(each, to_own) for each in use.conditions)
        _narrow(side, _Use(columns, conditions), found)


def _renamed(condition: exp.Expr, names: Mapping[str, str]) -> exp.Expr:
    changed = condition.copy()
    for column in changed.find_all(exp.Column):
        column.set("this", exp.to_identifier(names.get(column.name, column.name), quoted=True))
    return changed


def _narrow_select(select: exp.Select, use: _Use, found: _Narrowing) -> None:
    _drop_outputs(select, use.columns)
    from_ = select.args.get("from_")
    joins: list[exp.Join] = select.args.get("joins") or []
    sources = ([from_.this] if from_ is not None else []) + [join.this for join in joins]
    conditions = [*conjuncts_of(_condition(select)), *_translated(select, use.conditions, found)]
    marks = marks_of(select, sources, found.references, lambda inner: is_plain_select(inner, joins=True))
    limit = _limit_through(select, use, sources)
    if limit is not None and not all(_is_about(each, sources[0].alias_or_name) for each in conditions):
        limit = None  # a condition that only the engine asks, as one with a subquery, may drop the first rows
    nullable = _nullable(joins, len(sources))
    columns = _columns_beside(select, sources)
    for at, source in enumerate(sources):
        alias = source.alias_or_name
        asked = [each for each in (*conditions, *marks.asked) if _is_about(each, alias)]
        own = (*_join_conditions(joins, at), *marks.before.get(at, ()))
        before = [each for each in own if _is_about(each, alias)]
        needed = frozenset(column.name for column in columns if column.table == alias)
        _narrow_source(source, needed, asked, before, nullable[at], limit, found)
    for lateral in select.args.get("laterals") or []:
        for inner in _queries_in(lateral):
            _narrow(inner, _Use(None), found)
    for inner in _subqueries_beside(select, sources):
        _narrow(inner, _inner_use(inner, marks), found)


def _inner_use(query: exp.Expr, marks: Marks) -> _Use:
    """Return what a query inside an expression is needed for."""
    if isinstance(query.parent, exp.Exists):
        return _bare(query)
    return _Use(None, (marks.within[id(query)],) if id(query) in marks.within else ())


def _bare(query: exp.Expr) -> _Use:
    """Return what a query is needed for of which only matters whether it has rows; what it computes is taken out."""
    if isinstance(query, exp.Select) and is_plain_select(query, joins=True):
        query.set("expressions", [exp.Literal.number(1)])
    return _Use(frozenset())


def _narrow_source(
    source: exp.Expr,
    needed: frozenset[str],
    asked: Sequence[exp.Expr],
    before: Sequence[exp.Expr],
    nullable: bool,
    limit: int | None,
    found: _Narrowing,
) -> None:
    """Narrow one source: ``asked`` holds of the joined rows, ``before`` of the source's own."""
    reference = found.references.get(source.name) if isinstance(source, exp.Table) else None
    if reference is not None:
        for mark in (*asked, *before):
            if is_mark(mark) and (key := key_of(mark, reference, found.references)) is not None:
                found.joined[key] = None
        asked, before = ([each for each in several if not is_mark(each)] for several in (asked, before))
        parts = _pushable(asked, before, nullable, reference)
        found.columns.setdefault(reference.name, set()).update(needed & reference.types.keys())
        found.conditions.setdefault(reference.name, []).extend(parts)
        whole = len(parts) == len(asked) + len(before) and all(part.exact for part in parts)
        found.limits[reference.name] = limit if whole else None
        return
    kept = [*before, *(() if nullable else asked)]
    use = _Use(needed, tuple(_unqualified(each) for each in kept), limit if not asked and not before else None)
    if isinstance(source, exp.Table):
        cte = cte_of(source, found.common)
        if cte is not None:
            found.uses.setdefault(id(cte), []).append(use)
    else:
        _narrow(source, use, found)


def _pushable(
    asked: Sequence[exp.Expr], before: Sequence[exp.Expr], nullable: bool, reference: Reference
) -> list[Pushed]:
    own = (pushed(each, reference.types, reference.spelled) for each in before)
    joined = (pushed(each, reference.types, reference.spelled) for each in asked)
    kept = [each for each in joined if each is not None and (not nullable or rejects_nulls(each.predicate))]
    return [*(each for each in own if each is not None), *kept]


def _condition(select: exp.Select) -> exp.Expr | None:
    where = select.args.get("where")
    return None if where is None else where.this


def _drop_outputs(select: exp.Select, needed: frozenset[str] | None) -> None:
    """Take out the columns that nothing above needs; at least one stays."""
    if needed is None or select.args.get("distinct"):
        return
    order = select.args.get("order")
    inside = {column.name for column in order.find_all(exp.Column) if not column.table} if order is not None else set()
    for key in ("having", "qualify"):
        if (clause := select.args.get(key)) is not None:
            inside |= {column.name for column in clause.find_all(exp.Column) if not column.table}
    kept = [
        each
        for each in select.expressions
        if each.alias_or_name in needed or each.alias_or_name in inside or makes_rows(each)
    ]
    if len(kept) < len(select.expressions):
        aggregates = any(map(may_aggregate, select.expressions))
        if not kept or (aggregates and not select.args.get("group") and not any(map(may_aggregate, kept))):
            kept = [*kept, *(e for e in select.expressions if may_aggregate(e) or not aggregates)][: len(kept) + 1]
        select.set("expressions", kept)


def _translated(select: exp.Select, conditions: Iterable[exp.Expr], found: _Narrowing) -> list[exp.Expr]:
    """Return conditions on what a select gives as conditions on what it reads, those for which that is the same."""
    if select.args.get("limit") or select.args.get("offset") or makes_rows(select):
        return []
    outputs = {each.alias_or_name: each.unalias() for each in select.expressions}
    group = select.args.get("group")
    windows = [window for window in select.find_all(exp.Window) if window.find_ancestor(exp.Select) is select]
    aggregated = group is not None or any(
        aggregate.find_ancestor(exp.Select) is select and not isinstance(aggregate.parent, exp.Window)
        for aggregate in aggregates_in(select)
    )
    if group is not None and any(group.args.get(key) for key in ("grouping_sets", "rollup", "cube", "all")):
        return []
    kept = []
    for condition in conditions:
        used = {column.name for column in condition.find_all(exp.Column)}
        if not used or not used <= outputs.keys():
            continue
        sources = [outputs[name] for name in used]
        if any(may_aggregate(source) or source.find(exp.Window, exp.Query, *CHANCE) for source in sources):
            continue
        if aggregated and (group is None or not all(source in group.expressions for source in sources)):
            continue
        if (aggregated or select.args.get("distinct")) and any(source.find(exp.Anonymous) for source in sources):
            continue  # what is grouped by a dynamic value is its text
        if any(source not in (window.args.get("partition_by") or []) for window in windows for source in sources):
            continue
        if grows_within(condition, outputs):
            kept.append(substituted(condition, outputs))
        else:
            found.grows = True
    return kept


def aggregates_in(node: exp.Expr) -> Iterator[exp.Expr]:
    """Return the calls that make one row of many, or may: a function that is not known might."""
    for call in node.find_all(exp.AggFunc, exp.Anonymous):
        name = str(call.this).lower() if isinstance(call, exp.Anonymous) else ""
        if not isinstance(call, exp.Anonymous) or name in AGGREGATES or not name.startswith(PORTABLE):
            yield call


def may_aggregate(node: exp.Expr) -> bool:
    """Whether an expression holds a call that makes one row of many, or may."""
    return next(aggregates_in(node), None) is not None


def makes_rows(node: exp.Expr) -> bool:
    """Whether an expression holds a call that makes many rows of one."""
    calls = node.find_all(exp.Anonymous)
    return node.find(*_ROW_MAKERS) is not None or any(str(call.this).lower() in ROW_MAKERS for call in calls)


def grows_within(condition: exp.Expr, outputs: Mapping[str, exp.Expr]) -> bool:
    """Whether a condition stays small with what a select computes put in its place: each step may double it."""
    room = MAX_GROWTH
    for column in condition.find_all(exp.Column):
        room -= sum(1 for _ in islice(outputs[column.name].walk(), 2, room + 3)) if column.name in outputs else 0
        if room < 0:
            return False
    return True


def substituted(condition: exp.Expr, outputs: Mapping[str, exp.Expr]) -> exp.Expr:
    """Put what a select computes in the place of its columns' names; KeyError if it has no such column."""

    def put(node: exp.Expr) -> exp.Expr:
        return outputs[node.name].copy() if isinstance(node, exp.Column) else node

    return condition.copy().transform(put)


def is_plain_select(select: exp.Select, *, aggregates: bool = False, joins: bool = False) -> bool:
    """Return whether a select only filters and computes from one source, row by row, or may aggregate all of it."""
    if select.args.get("from_") is None or select.args.get("limit") or select.args.get("offset"):
        return False
    if (select.args.get("joins") and not joins) or any(select.args.get(key) for key in _SHAPING):
        return False
    where = select.args.get("where")
    parts = [*select.expressions, *([where] if where is not None and not joins else [])]
    if any(makes_rows(part) or part.find(exp.Window, exp.Query, *CHANCE) for part in parts):
        return False
    return aggregates or not any(map(may_aggregate, parts))


def _limit_through(select: exp.Select, use: _Use, sources: Sequence[exp.Expr]) -> int | None:
    """Return how many rows of its one source a select needs at most, where that is so plain a matter."""
    if len(sources) != 1 or any(select.args.get(key) for key in _SHAPING):
        return None
    if any(may_aggregate(each) or each.find(exp.Window) or makes_rows(each) for each in select.expressions):
        return None
    own, offset = _whole(select.args.get("limit")), _whole(select.args.get("offset"))
    if select.args.get("limit") is not None and own is None:
        return None
    if select.args.get("offset") is not None and offset is None:
        return None
    least = min((each for each in (own, use.limit) if each is not None), default=None)
    return None if least is None else least + (offset or 0)


def _whole(clause: exp.Expr | None) -> int | None:
    count = None if clause is None else clause.expression
    return int(count.this) if isinstance(count, exp.Literal) and not count.is_string and count.is_int else None


def _nullable(joins: Sequence[exp.Join], sources: int) -> list[bool]:
    """Return of each source whether some join may fill it with nulls."""
    found = [False] * sources
    first = sources - len(joins)
    for number, join in enumerate(joins):
        at, side = first + number, str(join.args.get("side") or "").upper()
        if side in ("LEFT", "FULL"):
            found[at] = True
        if side in ("RIGHT", "FULL"):
            found[:at] = [True] * at
    return found


def _join_conditions(joins: Sequence[exp.Join], at: int) -> list[exp.Expr]:
    """Return the parts of the join's own condition that may be asked of the source it brings in."""
    if at == 0:
        return []
    join = joins[at - 1] if at - 1 < len(joins) else None
    if join is None:
        return []
    side = str(join.args.get("side") or "").upper()
    return [] if side in ("RIGHT", "FULL") else list(conjuncts_of(join.args.get("on")))


def _is_about(condition: exp.Expr, alias: str) -> bool:
    columns = list(condition.find_all(exp.Column))
    return bool(columns) and all(each.table == alias for each in columns) and condition.find(exp.Query) is None


def _unqualified(condition: exp.Expr) -> exp.Expr:
    changed = condition.copy()
    for column in changed.find_all(exp.Column):
        column.set("table", None)
    return changed


def _columns_beside(select: exp.Select, sources: Sequence[exp.Expr]) -> list[exp.Column]:
    """Return the columns that a select names, inner queries included, but not those that its sources name inside."""
    skipped = {id(source) for source in sources} | {id(select.args.get("with_"))}
    aliases: dict[int, set[str]] = {}
    named = (node for node in select.walk(prune=lambda node: id(node) in skipped) if isinstance(node, exp.Column))
    return [column for column in named if not _is_of_inner(column, select, aliases)]


def _is_of_inner(column: exp.Column, select: exp.Select, aliases: dict[int, set[str]]) -> bool:
    """Whether a query inside a select has a source of the name that a column is of, and so the column is that one's."""
    inner = column.find_ancestor(exp.Select)
    while inner is not None and inner is not select:
        if id(inner) not in aliases:
            from_ = inner.args.get("from_")
            own = [*([] if from_ is None else [from_.this]), *(join.this for join in inner.args.get("joins") or [])]
            aliases[id(inner)] = {source.alias_or_name for source in own}
        if column.table in aliases[id(inner)]:
            return True
        inner = inner.find_ancestor(exp.Select)
    return False


def _subqueries_beside(select: exp.Select, sources: Sequence[exp.Expr]) -> list[exp.Expr]:
    """Return the queries that stand inside a select's expressions, not among its sources or its common tables."""
    skipped = {id(source) for source in sources}
    return [
        inner
        for key, value in select.args.items()
        if key not in ("with_", "laterals") and value
        for part in (value if isinstance(value, list) else [value])
        if isinstance(part, exp.Expr)
        for inner in _queries_in(part, skipped)
    ]


def _queries_in(node: exp.Expr, skipped: frozenset[int] | set[int] = frozenset()) -> list[exp.Expr]:
    """Return the outermost queries within a node."""
    if id(node) in skipped:
        return []
    if isinstance(node, exp.Select | exp.SetOperation | exp.Subquery):
        return [node]
    return [query for child in node.iter_expressions() for query in _queries_in(child, skipped)]
