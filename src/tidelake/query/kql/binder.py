"""Bind a KQL query to tables: names to columns, calls to functions, pipelines to steps.

``Binder`` knows names and functions; each tabular operator is a rule in a module of its own. It does not run anything.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlglot import exp

from tidelake.errors import InvalidInputError, NotFoundError, QueryError
from tidelake.model.lexer import did_you_mean, tables_there_are
from tidelake.query.kql import advice, syntax
from tidelake.query.kql.advice import refusal
from tidelake.query.kql.aggregates import AGGREGATES, EXTREMES, SEVERAL
from tidelake.query.kql.arguments import Arguments
from tidelake.query.kql.conversions import convert, implicit
from tidelake.query.kql.expressions import PLACES
from tidelake.query.kql.mistakes import error_at
from tidelake.query.kql.patterns import Declared, Use, case_of, use_of
from tidelake.query.kql.relations import Relation, Steps, keyed
from tidelake.query.kql.scalar_functions import FUNCTIONS
from tidelake.query.kql.scalars import RowValue
from tidelake.query.kql.scope import Clock, Closure, Deferred, Names, Scope, Unset, column_sql
from tidelake.query.kql.specials import SPECIAL, Specials
from tidelake.query.kql.values import (
    Column,
    Value,
    call,
    convert_text_limit,
    json_of,
    literal,
    text_literal,
    type_of,
)
from tidelake.query.tables import ANSWER_PLACES, ANSWERS, Answering, Outside, Tables

MAX_NODES = 20_000  # parts of one bound expression: functions that call functions can double it each time
MAX_CALLS = 5_000  # calls of the author's own functions, each of which is written out


@dataclass(frozen=True, slots=True)
class Place:
    """Where a part of the query stands: the names it can see, and the rows that stand before a pipeline, if any."""

    names: Names
    text: str


OperatorRule = Callable[["Binder", Relation, syntax.Operator, Place], Relation]


class Binder(Specials):
    """Bind one query."""

    def __init__(self, tables: Tables, text: str, now: datetime, rules: Mapping[str, OperatorRule]) -> None:
        self.tables = tables
        self.text = text
        self.clock = Clock(now)
        self.rules = rules
        self.steps = Steps()
        self.calls = 0
        self.rendered: Any = None
        self.no_names = Names()

    # names

    def error(self, at: int, message: str, *, kind: str = "bind", **facts: object) -> QueryError:
        return error_at(self.text, min(at, len(self.text)), message, kind=kind, **facts)

    def scope(self, relation: Relation | None, place: Place, **changes: Any) -> Scope:
        """Return what an expression over a relation's rows can see."""
        if relation is None:
            return Scope({}, "", place.names, self.text, self.clock, **changes)
        columns = relation.by_name
        scope = Scope(
            columns, relation.alias, place.names, self.text, self.clock, tables=relation.tables, bag=relation.bag
        )
        if relation.serialized:
            parts = tuple(column_sql(column.key, relation.alias) for column in relation.partition)
            scope = replace(scope, windows=tuple(relation.order_sql()), parts=parts)
        return replace(scope, **changes) if changes else scope

    def resolve(self, name: str, scope: Scope, at: int) -> object | None:
        return self.resolve_name(name, Place(scope.names, self.text), at)

    def resolve_name(self, name: str, place: Place, at: int, *, wants_table: bool = False) -> object | None:
        """Return what ``let`` bound to a name: a value, rows, or a function."""
        found = place.names.find(name)
        if isinstance(found, Deferred):
            inner = Place(found.names, self.text)
            bound: object
            if self.is_table(found.expression, inner) or (wants_table and _is_bare(found.expression, found.names)):
                bound = self.steps.closed(self.table(found.expression, inner))
            else:
                bound = self.bind(found.expression, self.scope(None, inner))
            place.names.replace(name, bound)
            return bound
        return found

    def is_table(self, node: syntax.Expression, place: Place) -> bool:
        """Return whether an expression is a table."""
        if use_of(node, place.names) is not None:
            return True
        match node:
            case syntax.Pipe() | syntax.DataTable() | syntax.ExternalData():
                return True
            case syntax.Name(name):
                found = place.names.find(name)
                if isinstance(found, Deferred):
                    return self.is_table(found.expression, Place(found.names, self.text))
                if isinstance(found, Closure):
                    return self._gives_table(name, (), place)
                return isinstance(found, Relation) if found is not None else self._exists(name)
            case syntax.Call(name, arguments):
                return self._gives_table(name, arguments, place)
            case syntax.Member(base, _):
                return _is_database(base) or self._exists(_dotted(node) or "")
            case _:
                return False

    def _gives_table(self, name: str, arguments: tuple[syntax.Expression, ...], place: Place) -> bool:
        if name in ("table", "external_table", "materialized_view") or self._is_answer(name, place):
            return True
        if name == "materialize":
            return bool(arguments) and self.is_table(arguments[0], place)
        found = place.names.find(name)
        if isinstance(found, Closure) and found.function.body.query is not None:
            inner = Names(found.names)
            for parameter in found.function.parameters:
                stand_in: object = (
                    Relation(exp.Table(), "", ()) if parameter.type == "table" else literal(None, parameter.type)
                )
                inner.own[parameter.name] = stand_in
            for statement in found.function.body.statements:
                inner = self.declare(statement, inner)
            return self.is_table(found.function.body.query, Place(inner, self.text))
        if found is not None or name in FUNCTIONS or name in SPECIAL or name in AGGREGATES:
            return False
        return self._exists(name)

    def _exists(self, name: str) -> bool:
        try:
            return bool(name) and self.tables.columns(name) is not None
        except NotFoundError:
            return False

    def declare(self, statement: syntax.Let | syntax.Other, names: Names) -> Names:
        """Add what a statement binds to the names."""
        match statement:
            case syntax.Let(name, syntax.Function() as function):
                return Names(names, {name: Closure(function, names, self.text)})
            case syntax.Let(name, syntax.Pattern() as pattern):
                return Names(names, {name: Declared(pattern, names)})
            case syntax.Let(name, value):
                assert not isinstance(value, syntax.Pattern)
                return Names(names, {name: Deferred(value, names, self.text)})
            case syntax.Other("restrict", _, at):
                raise self.error(
                    at, "restrict access is not supported: nothing would be restricted", kind="unsupported"
                )
            case syntax.Other(_, parameters):
                own: dict[str, object] = {
                    each.name: Deferred(each.default, names, self.text) if each.default else Unset(each.type)
                    for each in parameters
                }
                return Names(names, own) if own else names

    # tables

    def table(self, node: syntax.Expression, place: Place, given: Relation | None = None) -> Relation:
        """Return the rows of an expression that is a table."""
        if (use := use_of(node, place.names)) is not None:
            return self._pattern_table(use, place)
        match node:
            case syntax.Pipe(source, operators):
                empty = isinstance(source, syntax.Name) and not source.name
                relation = given or Relation(exp.Table(), "", ()) if empty else self.table(source, place)
                return self.pipeline(relation, operators, place)
            case syntax.Name(name, at):
                return self._named_table(name, place, at)
            case syntax.DataTable() | syntax.Call() | syntax.Member() | syntax.ExternalData():
                return self._table_from(node, place)
            case syntax.Index(base, syntax.Literal("string", str(name)), at) if _is_database(base):
                return self._named_table(name, place, at)
            case _:
                raise self.error(node.at, "expected a table here")

    def _pattern_table(self, use: Use, place: Place) -> Relation:
        """Return the rows of the query that a declared pattern has for some arguments."""
        scope = self.scope(None, place)
        values = tuple(self.constant(each, scope, "an argument of a pattern") for each in use.call.arguments)
        found = case_of(use, values)
        if found is None or found[0].query is None:
            raise self.error(use.call.at, f"pattern '{use.call.name}' has no case for these arguments", kind="no_case")
        body, held = found
        kinds = {each.name: each.type for each in use.declared.pattern.parameters}
        own: dict[str, object] = {name: literal(value, kinds.get(name, "string")) for name, value in held.items()}
        inner = Names(use.declared.names, own)
        for statement in body.statements:
            inner = self.declare(statement, inner)
        assert body.query is not None
        return self.steps.closed(self.table(body.query, Place(inner, self.text)))

    def pipeline(self, relation: Relation, operators: tuple[syntax.Operator, ...], place: Place) -> Relation:
        """Send rows through operators, one after the other."""
        for operator in operators:
            rule = self.rules.get(operator.name)
            if rule is None:
                refused = refusal("operator", operator.name, advice.OPERATORS)
                raise self.error(operator.at, refused, kind="unsupported")
            if operator.name == "as":
                place = Place(Names(place.names, {operator.items[0]: relation}), place.text)
            relation = rule(self, relation, operator, place)
            if len(self.steps.steps) > 2_000:
                raise self.error(operator.at, "the query has too many steps", kind="too_large")
        return relation

    def _named_table(self, name: str, place: Place, at: int) -> Relation:
        found = self.resolve_name(name, place, at, wants_table=True)
        if isinstance(found, Relation):
            return found
        if isinstance(found, Closure):
            return self._invoked(found, name, (), place, at, None)
        if found is not None:
            raise self.error(at, f"'{name}' is a value, and a table is expected", kind="type")
        return self.stored(name, at, place)

    def stored(self, name: str, at: int, place: Place) -> Relation:
        """Return the rows of a table of the lake."""
        try:
            held = self.tables.columns(name)
        except NotFoundError:
            hint = did_you_mean(name, [*self.tables.names(), *place.names.all_names()])
            hint = hint or tables_there_are(self.tables.names())
            raise self.error(at, f"unknown table '{name}'{hint}", kind="unknown_table", name=name) from None
        namespace, _, short = name.rpartition(".")
        alias = exp.TableAlias(this=exp.to_identifier(short, quoted=True))
        db = exp.to_identifier(namespace, quoted=True) if namespace else None
        source = exp.Table(this=exp.to_identifier(short, quoted=True), db=db, alias=alias)
        columns = keyed((column, type_of(kind)) for column, kind in held.items())
        return Relation(source, short, columns, tables=(name,))

    def _table_from(self, node: syntax.Expression, place: Place) -> Relation:
        match node:
            case syntax.DataTable(columns, values, at):
                return self._datatable(columns, values, at, place)
            case syntax.ExternalData():
                return self._external(node, place)
            case syntax.Member(base, name, at):
                dotted = _dotted(node)
                if _is_database(base):
                    return self._database_table(base, name, at, place)
                if dotted is not None:
                    return self.stored(dotted, node.at if not isinstance(base, syntax.Name) else base.at, place)
            case syntax.Call(name, arguments, at):
                return self._called_table(name, arguments, at, place)
        raise self.error(node.at, "expected a table here")

    def _is_answer(self, name: str, place: Place) -> bool:
        return name in ANSWERS and isinstance(self.tables, Answering) and place.names.find(name) is None

    def _answered(self, name: str, arguments: tuple[syntax.Expression, ...], at: int, place: Place) -> Relation:
        """Return an answer about a table's coverage: ``gaps('m.cpu', start, end)``."""
        assert isinstance(self.tables, Answering)
        if not 1 <= len(arguments) <= len(ANSWER_PLACES):
            raise self.error(at, f"{name} takes {', '.join(ANSWER_PLACES)}", kind="arguments")
        scope = self.scope(None, place)
        values = [self.constant(each, scope, f"an argument of {name}") for each in arguments]
        try:
            found = self.tables.answer(name, dict(zip(ANSWER_PLACES, values, strict=False)))
        except NotFoundError as error:
            raise self.error(at, str(error), kind="unknown_table") from None
        return self.stored(found, at, place)

    def _external(self, node: syntax.ExternalData, place: Place) -> Relation:
        """Return the rows of data outside the lake: they are read as text, and converted as ``tostring``'s kin do."""
        if not isinstance(self.tables, Outside):
            raise self.error(
                node.at, "externaldata is not supported here: load the data into a table", kind="unsupported"
            )
        scope = self.scope(None, place)
        addresses = [str(self.constant(each, scope, "an address")) for each in node.addresses]
        options = {
            name: each.name
            if isinstance(each, syntax.Name) and _is_bare(each, place.names)
            else self.constant(each, scope, name)
            for name, each in node.options
        }
        try:
            name = self.tables.external([column for column, _ in node.columns], addresses, options)
        except InvalidInputError as error:
            raise self.error(node.at, error.message, kind=error.kind) from error
        held = self.stored(name, node.at, place)
        columns: list[Column] = []
        items: dict[str, exp.Expr] = {}
        for column, (_, kind) in zip(held.columns, node.columns, strict=True):
            columns.append(replace(column, type=kind))
            text = Value(column_sql(column.key, held.alias), "string")
            if kind == "dynamic":
                items[column.key] = call("tide_parse_json", text.sql)
            elif kind != "string":
                items[column.key] = convert(text, kind).sql
        return self.steps.closed(replace(held, columns=tuple(columns), items=items))

    def _database_table(self, base: syntax.Expression, name: str, at: int, place: Place) -> Relation:
        database = base.arguments[-1] if isinstance(base, syntax.Call) and base.arguments else None
        namespace = self.constant(database, self.scope(None, place), "a database's name") if database else None
        return self.stored(f"{namespace}.{name}" if namespace else name, at, place)

    def _called_table(self, name: str, arguments: tuple[syntax.Expression, ...], at: int, place: Place) -> Relation:
        found = place.names.find(name)
        if isinstance(found, Closure):
            return self._invoked(found, name, arguments, place, at, None)
        if self._is_answer(name, place):
            return self._answered(name, arguments, at, place)
        match name, arguments:
            case (("table" | "external_table" | "materialized_view"), (base, argument)) if _is_database(base):
                named = str(self.constant(argument, self.scope(None, place), "a table's name"))
                return self._database_table(base, named, at, place)
            case "materialize", (argument,):
                return self.steps.closed(self.table(argument, place))
            case (("table" | "materialized_view"), (argument, *_)):
                return self._named_table(
                    str(self.constant(argument, self.scope(None, place), "a table's name")), place, at
                )
        if self._exists(name):
            return self.stored(name, at, place)
        if name in advice.FUNCTIONS:
            raise self.error(at, refusal("function", name, advice.FUNCTIONS), kind="unsupported")
        if name in FUNCTIONS or name in AGGREGATES or name in SPECIAL:
            raise self.error(at, f"'{name}' gives a value, and a table is expected", kind="type")
        hint = did_you_mean(name, [*place.names.all_names(), *self.tables.names()])
        raise self.error(at, f"unknown function '{name}'{hint}", kind="unknown_table", name=name)

    def _datatable(self, columns: Any, values: Any, at: int, place: Place) -> Relation:
        if len(values) % max(len(columns), 1) or (values and not columns):
            raise self.error(at, f"a datatable of {len(columns)} columns cannot have {len(values)} values")
        scope = self.scope(None, place)
        typed = keyed((name, kind) for name, kind in columns)
        rows: list[list[exp.Expr]] = []
        for start in range(0, len(values), max(len(columns), 1)):
            row = values[start : start + len(columns)]
            rows.append([self._cell(node, column.type, scope) for node, column in zip(row, typed, strict=True)])
        return self.constant_rows(typed, rows)

    def _cell(self, node: syntax.Expression, kind: str, scope: Scope) -> exp.Expr:
        value = self.bind(node, scope)
        if kind == "dynamic":
            return self._dynamic_cell(value, scope, node.at)
        if value.is_null:
            return literal("" if kind == "string" else None, kind).sql
        found = implicit(value, kind) or convert(value, kind)
        if found.is_null and value.constant is not None:
            raise scope.error(node.at, f"not a {kind}", kind="type")
        return found.sql

    def _dynamic_cell(self, value: Value, scope: Scope, at: int) -> exp.Expr:
        """Return a dynamic cell as JSON text, which is read when the rows are."""
        if not value.is_constant:
            raise scope.error(at, "a value of a datatable must be a constant")
        if value.constant is None:
            return literal(None, "string").sql
        if value.type == "string":
            return value.sql
        if value.type in ("datetime", "timespan"):
            return text_literal(json.dumps(convert(value, "string").constant))
        return text_literal(json.dumps(json_of(value.constant)))

    def constant_rows(self, columns: tuple[Column, ...], rows: list[list[exp.Expr]]) -> Relation:
        """Return rows that the query itself holds."""
        source, alias = self.steps.add(rows_query(columns, rows))
        return Relation(source, alias, columns, serialized=True)

    # functions

    def _invoked(
        self,
        closure: Closure,
        name: str,
        arguments: tuple[syntax.Expression, ...],
        place: Place,
        at: int,
        given: Relation | None,
    ) -> Relation:
        inner = self._parameters(closure, name, arguments, self.scope(None, place), at, given)
        query = closure.function.body.query
        if query is None:
            raise self.error(at, f"function '{name}' gives nothing")
        return self.steps.closed(self.table(query, inner))

    def invoke(self, node: syntax.Call, given: Relation, place: Place) -> Relation:
        """Call a function with rows as its first argument."""
        found = place.names.find(node.name)
        if not isinstance(found, Closure):
            raise self.error(
                node.at,
                f"unknown function '{node.name}'{did_you_mean(node.name, place.names.all_names())}",
                kind="unknown_table",
                name=node.name,
            )
        return self._invoked(found, node.name, node.arguments, place, node.at, given)

    def _parameters(
        self,
        closure: Closure,
        name: str,
        arguments: tuple[syntax.Expression, ...],
        scope: Scope,
        at: int,
        given: Relation | None,
    ) -> Place:
        """Bind a function's parameters to what it is called with."""
        self.calls += 1
        if self.calls > MAX_CALLS:
            raise self.error(at, "the query calls its functions too often", kind="too_large")
        inner = Names(closure.names)
        parameters = list(closure.function.parameters)
        place = Place(scope.names, self.text)
        if given is not None:
            if not parameters or parameters[0].type != "table":
                raise self.error(at, f"function '{name}' does not take a table first")
            inner.own[parameters.pop(0).name] = given
        named = {node.names[0]: node.value for node in arguments if isinstance(node, syntax.Named)}
        ordered = [node for node in arguments if not isinstance(node, syntax.Named)]
        if len(ordered) > len(parameters):
            raise self.error(at, f"function '{name}' takes {len(parameters)} arguments, not {len(ordered)}")
        for index, parameter in enumerate(parameters):
            node = ordered[index] if index < len(ordered) else named.get(parameter.name, parameter.default)
            if node is None:
                raise self.error(at, f"function '{name}' needs its argument '{parameter.name}'")
            if parameter.type == "table":
                inner.own[parameter.name] = self.steps.closed(self.table(node, place))
                continue
            value = self.bind(node, scope)
            bound = implicit(value, parameter.type)
            if bound is None:
                raise self.error(
                    node.at,
                    f"argument '{parameter.name}' of '{name}' must be {parameter.type}, this is {value.type}",
                    kind="type",
                )
            inner.own[parameter.name] = RowValue.of(bound)
        names: Names = inner
        for statement in closure.function.body.statements:
            names = self.declare(statement, names)
        return Place(names, self.text)

    def bind_query(self, node: syntax.Expression, scope: Scope) -> tuple[exp.Expr, str] | None:
        place = Place(scope.names, self.text)
        if isinstance(node, syntax.Name) and node.name in scope.columns:
            return None
        if not self.is_table(node, place):
            return None
        relation = self.steps.plain(self.table(node, place))
        if not relation.columns:
            raise self.error(node.at, "the table has no columns")
        first = relation.columns[0]
        relation = replace(self.steps.closed(relation), columns=(first,), hidden=(), order=())
        query = exp.select(exp.alias_(relation.item(first), "v", quoted=True)).from_(relation.source.copy())
        return query, first.type

    def columns_of(self, node: syntax.Expression, scope: Scope) -> list[str]:
        return [column.name for column in self.table(node, Place(scope.names, self.text)).columns]

    def bind_call(self, node: syntax.Call, scope: Scope) -> Value:
        found = scope.names.find(node.name)
        if isinstance(found, Closure):
            return self._called(found, node, scope)
        if node.name in SPECIAL:
            return self.special(node, scope)
        if scope.aggregates and node.name in AGGREGATES:
            return self._aggregate(node, scope)
        if scope.aggregates and node.name in EXTREMES:  # within an expression it is the extreme itself
            return self._aggregate(syntax.Call(EXTREMES[node.name], node.arguments[:1], node.at), scope)
        if function := FUNCTIONS.get(node.name):
            arguments = self.arguments(node, scope)
            self._check_count(node, len(arguments), function.least, function.most, scope)
            try:
                return convert_text_limit(function.rule(arguments), scope, node.at)
            except (ValueError, TypeError, OverflowError, AttributeError) as error:
                if isinstance(error, QueryError):
                    raise
                raise scope.error(node.at, f"{node.name} cannot use these arguments", kind="type") from error
        if node.name in AGGREGATES or node.name in SEVERAL:
            raise scope.error(node.at, f"'{node.name}' is an aggregate: it belongs in summarize")
        if node.name in advice.FUNCTIONS:
            raise scope.error(node.at, refusal("function", node.name, advice.FUNCTIONS), kind="unsupported")
        known = [*FUNCTIONS, *AGGREGATES, *SPECIAL, *scope.names.all_names()]
        hint = did_you_mean(node.name, known)
        raise scope.error(node.at, f"unknown function '{node.name}'{hint}", kind="unknown_function", name=node.name)

    def _called(self, closure: Closure, node: syntax.Call, scope: Scope) -> Value:
        inner = self._parameters(closure, node.name, node.arguments, scope, node.at, None)
        query = closure.function.body.query
        if query is None:
            raise scope.error(node.at, f"function '{node.name}' gives nothing")
        if self.is_table(query, inner):
            raise scope.error(
                node.at, f"'{node.name}' gives a table, and a value is expected: use toscalar(…)", kind="type"
            )
        value = self.bind(query, self.scope(None, inner))
        if sum(1 for _ in value.sql.walk()) > MAX_NODES:
            raise scope.error(node.at, "the expression grows too large", kind="too_large")
        return value

    def arguments(self, node: syntax.Call, scope: Scope) -> Arguments:
        values = tuple(self.bind(argument, scope) for argument in node.arguments)
        return Arguments(node.name, values, scope, node.at, tuple(argument.at for argument in node.arguments))

    def _check_count(self, node: syntax.Call, count: int, least: int, most: int, scope: Scope) -> None:
        if not least <= count <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            raise scope.error(node.at, f"{node.name} takes {wanted} arguments, not {count}", kind="arity")

    def _aggregate(self, node: syntax.Call, scope: Scope) -> Value:
        aggregate = AGGREGATES[node.name]
        self._check_count(node, len(node.arguments), aggregate.least, aggregate.most, scope)
        rows = replace(scope, aggregates=False)
        arguments = self.arguments(node, rows)
        return aggregate.rule(arguments)


def rows_query(columns: tuple[Column, ...], rows: list[list[exp.Expr]]) -> exp.Query:
    """Write rows as SQL: a VALUES list, or no rows of the right types."""
    typed = [exp.alias_(literal(None, column.type).sql, column.key, quoted=True) for column in columns]
    if not rows:
        none = [exp.alias_(exp.Literal.number(1), "none", quoted=True)]
        return exp.select(*(typed or none)).where(exp.false())
    tuples = [exp.Tuple(expressions=cells) for cells in rows]
    keys = [exp.to_identifier(f"c{index}", quoted=True) for index, _ in enumerate(columns)]
    values = exp.Values(expressions=tuples, alias=exp.TableAlias(this=exp.to_identifier("v"), columns=keys))
    chosen = []
    for index, column in enumerate(columns):
        cell: exp.Expr = exp.column(exp.to_identifier(f"c{index}", quoted=True), table="v")
        if column.type == "dynamic":
            cell = call("tide_parse_json", cell)
        else:
            cell = exp.Cast(this=cell, to=literal(None, column.type).sql.args["to"].copy())
        chosen.append(exp.alias_(cell, column.key, quoted=True))
    return exp.select(*chosen).from_(values)


def _is_bare(node: syntax.Expression, names: Names) -> bool:
    """Return whether an expression is a name alone that nothing is bound to: a table that does not exist."""
    return isinstance(node, syntax.Name) and names.find(node.name) is None


def _is_database(node: syntax.Expression) -> bool:
    return isinstance(node, syntax.Call) and node.name in PLACES


def _dotted(node: syntax.Expression) -> str | None:
    match node:
        case syntax.Name(name):
            return name
        case syntax.Member(base, name):
            before = _dotted(base)
            return None if before is None else f"{before}.{name}"
        case _:
            return None
