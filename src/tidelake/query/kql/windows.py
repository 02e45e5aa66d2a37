"""Bind the functions that look at the rows around: row_number, prev, next, row_cumsum, row_rank, row_window_session.

Rows must be in order. SQL cannot put a window into a window or into a condition, so what stands there is hoisted: it
becomes a column of a step before, under a name that no author can write. A restart becomes a count of restarts so far,
which parts the window. Sessions depend on where the one before began, so they are found by a fold over all rows in
order. It does not know operators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from sqlglot import exp

from tidelake.query.kql import syntax
from tidelake.query.kql.relations import Relation, aliased, fresh_key
from tidelake.query.kql.scope import Scope, column_sql
from tidelake.query.kql.values import Column, Value, call, coalesced
from tidelake.query.kql.values import cast as cast_sql

if TYPE_CHECKING:
    from tidelake.query.kql.arguments import Arguments
    from tidelake.query.kql.binder import Binder, Place

WINDOWS = (
    "row_number",
    "prev",
    "next",
    "row_cumsum",
    "row_rank",
    "row_rank_dense",
    "row_rank_min",
    "row_window_session",
)
HOISTED = "$w"  # how the name of a hoisted column begins
_RESTARTS = {"row_number": 1, "row_cumsum": 1, "row_rank": 1, "row_rank_dense": 1, "row_rank_min": 1}


def hoisted(
    b: Binder, relation: Relation, nodes: Sequence[syntax.Expression], place: Place, *, whole: bool = False
) -> tuple[Relation, list[syntax.Expression]]:
    """Move what cannot stand in one SELECT into steps before it; ``whole`` moves every window."""
    if not relation.serialized or not any(_holds_window(node) for node in nodes):
        return relation, list(nodes)
    hoisting = _Hoisting(b, relation, place)
    found = [hoisting.visit(node, inside=whole) for node in nodes]
    return hoisting.relation, found


class _Hoisting:
    def __init__(self, b: Binder, relation: Relation, place: Place) -> None:
        self.b, self.relation, self.place = b, relation, place

    def visit(self, node: syntax.Expression, *, inside: bool) -> syntax.Expression:
        if not (isinstance(node, syntax.Call) and node.name in WINDOWS):
            rest: syntax.Expression = _mapped(node, lambda each: self.visit(each, inside=inside))
            return rest
        arguments = tuple(self.visit(each, inside=True) for each in node.arguments)
        made: syntax.Expression = replace(node, arguments=arguments)
        if node.name == "row_window_session":
            return self._session(replace(node, arguments=arguments))
        place = _RESTARTS.get(node.name)
        if place is not None and len(arguments) > place:
            made = self._parted(replace(node, arguments=arguments), place)
        return self._column(made) if inside else made

    def _parted(self, node: syntax.Call, place: int) -> syntax.Call:
        """Turn a restart into the number of restarts so far, which is what the window is parted by."""
        again = syntax.Call("iff", (node.arguments[place], _number(1, node.at), _number(0, node.at)), node.at)
        so_far = self._column(syntax.Call("row_cumsum", (self._column(again),), node.at))
        kept = (*node.arguments[:place], syntax.Named((HOISTED,), so_far, node.at))
        return replace(node, arguments=kept)

    def _column(self, node: syntax.Expression) -> syntax.Name:
        """Make an expression a column, and give its name."""
        relation = self.b.steps.closed(self.relation)
        value = self.b.bind(node, self.b.scope(relation, self.place))
        return self._added(relation, value, node.at)

    def _added(self, relation: Relation, value: Value, at: int) -> syntax.Name:
        name = f"{HOISTED}{len(relation.columns)}"
        key = fresh_key("hoisted", [column.key for column in (*relation.columns, *relation.hidden)])
        column = Column(name, value.type, key)
        wider = replace(relation, columns=(*relation.columns, column), items={**relation.items, key: value.sql})
        self.relation = self.b.steps.closed(wider)
        return syntax.Name(name, at)

    def _session(self, node: syntax.Call) -> syntax.Name:
        if len(node.arguments) not in (3, 4):
            raise self.b.error(node.at, "row_window_session takes 3 to 4 arguments", kind="arity")
        if self.relation.partition:
            raise self.b.error(
                node.at, "row_window_session cannot stand in a partition: use its restart", kind="unsupported"
            )
        subject, first, between, *restart = node.arguments
        kind = self.b.bind(subject, self.b.scope(self.b.steps.closed(self.relation), self.place)).type
        if kind not in ("datetime", "long", "int", "timespan"):
            raise self.b.error(node.at, f"row_window_session cannot use {kind}", kind="type")
        number = syntax.Call("tolong", (subject,), node.at)
        shown = [self._column(number), self._column(syntax.Call("row_number", (), node.at))]
        shown += [self._column(restart[0])] if restart else []
        relation = self.relation
        spans = [self.b.bind(each, self.b.scope(None, self.place)) for each in (first, between)]
        value, place, *again = (column_sql(relation.by_name[name.name].key, relation.alias) for name in shown)
        starts = again[0] if again else exp.false()
        packed = call("tide_pack_array", *(call("tide_to_dynamic_from_long", part) for part in (place, value)),
                      call("tide_to_dynamic_from_bool", coalesced(starts, exp.false())))  # fmt: skip
        order = exp.Ordered(this=place.copy(), desc=False, nulls_first=True)
        listed = call("tide_to_json", call("tide_make_list_ordered_whole", packed, exp.Null(), order))
        found = call("tide_session_starts", listed, *(span.sql for span in spans))
        return self._joined(relation, call("tide_long_pairs", found), place, kind, node.at)

    def _joined(self, relation: Relation, pairs: exp.Expr, place: exp.Expr, kind: str, at: int) -> syntax.Name:
        """Give each row what a fold over all rows found for its place."""
        folded, name = self.b.steps.add(exp.select(aliased(pairs, "pairs")).from_(relation.source.copy()))
        each = call("tide_explode", column_sql("pairs", name))
        exploded, name = self.b.steps.add(exp.select(aliased(each, "pair")).from_(folded))
        pair = column_sql("pair", name)
        start: exp.Expr = call("tide_pair_item", pair, exp.Literal.number(1))
        start = call("tide_to_datetime_from_long", start) if kind == "datetime" else start
        key = fresh_key("hoisted", [column.key for column in (*relation.columns, *relation.hidden)])
        query = relation.select().select(aliased(start, key), copy=False)
        same = exp.EQ(this=call("tide_pair_item", pair, exp.Literal.number(0)), expression=place.copy())
        query.append("joins", exp.Join(this=exploded, on=same))
        column = Column(f"{HOISTED}{len(relation.columns)}", kind, key)
        self.relation = self.b.steps.relation(query, (*relation.columns, column), relation)
        return syntax.Name(column.name, at)


def bind_window(node: syntax.Call, args: Arguments, scope: Scope) -> Value:
    """Bind a function that looks at the rows around; its restart, if any, has been hoisted."""
    if scope.windows is None:
        raise scope.error(node.at, f"{node.name} needs rows in order: put sort or serialize before it")
    part = node.arguments and node.arguments[-1]
    parts = [args[len(args) - 1].sql] if isinstance(part, syntax.Named) and part.names == (HOISTED,) else []
    count = len(args) - len(parts)
    parts = [*scope.parts, *parts]
    order = exp.Order(expressions=[key.copy() for key in scope.windows or (exp.Ordered(this=exp.Null()),)])

    def over(function: exp.Expr, by: exp.Order = order, **more: Any) -> exp.Window:
        return exp.Window(this=function, order=by, partition_by=[each.copy() for each in parts], **more)

    match node.name:
        case "row_number" if count <= 1:
            start = args.as_type(0, "long").sql if count else exp.Literal.number(1)
            before = exp.Sub(this=over(exp.RowNumber()), expression=exp.Literal.number(1))
            return Value(exp.Paren(this=exp.Add(this=before, expression=start)), "long")
        case "prev" | "next" if 1 <= count <= 3:
            offset = args[1].sql if count > 1 else exp.Literal.number(1)
            function = (exp.Lag if node.name == "prev" else exp.Lead)(this=args[0].sql, offset=offset)
            if count > 2:
                function.set("default", args.as_type(2, args[0].type).sql)
            return Value(over(function), args[0].type)
        case "row_cumsum" if count == 1:
            spec = exp.WindowSpec(kind="ROWS", start="UNBOUNDED", start_side="PRECEDING", end="CURRENT ROW")
            kind = "real" if args[0].type in ("real", "decimal", "dynamic") else args[0].type
            summed = over(exp.Sum(this=args.as_type(0, kind).sql), spec=spec)
            return Value(cast_sql(summed, "real" if kind == "real" else "long"), kind)
        case "row_rank" | "row_rank_dense" | "row_rank_min" if count == 1:
            rank = exp.Anonymous(this="RANK" if node.name == "row_rank_min" else "DENSE_RANK")
            by = exp.Order(expressions=[exp.Ordered(this=args[0].sql, desc=_falls(args[0].sql, scope))])
            return Value(over(rank, by), "long")
    raise scope.error(node.at, f"{node.name} takes another number of arguments", kind="arity")


def _falls(sql: exp.Expr, scope: Scope) -> bool:
    """Return whether rows are sorted by something in descending order: then ranks follow that."""
    return any(
        isinstance(key, exp.Ordered) and key.this == sql and bool(key.args.get("desc")) for key in scope.windows or ()
    )


def _number(value: int, at: int) -> syntax.Literal:
    return syntax.Literal("long", value, at)


def _holds_window(node: object) -> bool:
    if isinstance(node, syntax.Call) and node.name in WINDOWS:
        return True
    return any(_holds_window(each) for each in _parts(node))


def _parts(node: object) -> list[object]:
    if isinstance(node, syntax.Pipe | syntax.Function | syntax.DataTable) or not is_dataclass(node):
        return []
    found: list[object] = []
    for field in fields(node):
        held = getattr(node, field.name)
        found += held if isinstance(held, tuple) else [held]
    return found


def _mapped(node: Any, change: Callable[[Any], Any]) -> Any:
    """Return a node with its parts changed; queries within it stay as they are."""
    if isinstance(node, syntax.Pipe | syntax.Function | syntax.DataTable | type) or not is_dataclass(node):
        return node
    changes: dict[str, Any] = {}
    for field in fields(node):
        held = getattr(node, field.name)
        if isinstance(held, tuple):
            changes[field.name] = tuple(change(each) if is_dataclass(each) else each for each in held)
        elif is_dataclass(held):
            changes[field.name] = change(held)
    changed: Any = replace(cast("Any", node), **changes)
    return changed
