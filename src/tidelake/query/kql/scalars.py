"""Bind KQL's expressions to columns, and write them as SQL.

KQL's rules for null hold: text is never null, a null compared with a value is unequal, and a condition that is null
keeps no row. Conditions of ``where`` are written in the plainest form that keeps the same rows, so that scans can use
them. It does not know tabular operators: a subclass does.
"""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, assert_never

from sqlglot import exp

from tidelake.query.functions.patterns import plain_groups
from tidelake.query.kql import syntax
from tidelake.query.kql.arithmetic import FOLDED, arithmetic_sql, as_number, common_types, folded, result_type
from tidelake.query.kql.conversions import convert, implicit
from tidelake.query.kql.scope import Closure, Scope, Unset, column_sql
from tidelake.query.kql.values import (
    NUMERIC,
    TEXTUAL,
    Value,
    any_of,
    call,
    cast,
    coalesced,
    json_of,
    literal,
    text,
    text_literal,
    unreadable,
)  # fmt: skip
from tidelake.query.long_lists import LONG, packed

_COMPARISONS: dict[str, type[exp.Binary]] = {"<": exp.LT, ">": exp.GT, "<=": exp.LTE, ">=": exp.GTE}
TEXT_FUNCTIONS = {
    "has": "tide_has", "has_cs": "tide_has_cs", "contains": "tide_contains", "contains_cs": "tide_contains_cs",
    "containscs": "tide_contains_cs", "startswith": "tide_startswith", "startswith_cs": "tide_startswith_cs",
    "endswith": "tide_endswith", "endswith_cs": "tide_endswith_cs", "hasprefix": "tide_hasprefix",
    "hasprefix_cs": "tide_hasprefix_cs", "hassuffix": "tide_hassuffix", "hassuffix_cs": "tide_hassuffix_cs",
    "matches": "tide_matches", "notcontains": "!tide_contains", "notcontainscs": "!tide_contains_cs",
}  # fmt: skip


class RowValue(Value):
    """An argument of a function that differs from row to row: no other rows can be asked with it."""

    __slots__ = ()

    @classmethod
    def of(cls, value: Value) -> Value:
        parts = value.sql.walk(prune=lambda part: isinstance(part, exp.Subquery))
        if not any(isinstance(part, exp.Column) for part in parts):
            return value
        return cls(value.sql, value.type, value.constant)


_YEAR_ONE = datetime(1, 1, 1, tzinfo=UTC)  # where times are counted from, as bins are


class Scalars:
    """Bind expressions over rows."""

    @abstractmethod
    def bind_call(self, node: syntax.Call, scope: Scope) -> Value:
        """Bind a call of a function, built in or not."""

    @abstractmethod
    def bind_query(self, node: syntax.Expression, scope: Scope) -> tuple[exp.Expr, str] | None:
        """Bind an expression that is a table: a query for its first column, and that column's type."""

    @abstractmethod
    def resolve(self, name: str, scope: Scope, at: int) -> object | None:
        """Return what ``let`` bound to a name."""

    def bind(self, node: syntax.Expression, scope: Scope) -> Value:
        """Return an expression's SQL, type and, where it is known, value."""
        match node:
            case syntax.Literal():
                return self._literal(node, scope)
            case syntax.Name():
                return self._name(node, scope)
            case syntax.Call():
                return self.bind_call(node, scope)
            case syntax.Member() | syntax.Index():
                return self._path(node, scope)
            case syntax.Unary():
                return self._unary(node, scope)
            case syntax.Binary():
                return self._binary(node, scope, filtering=False)
            case syntax.Junction() | syntax.Among() | syntax.Between():
                return self._logic(node, scope)
            case syntax.Named():
                return self.bind(node.value, scope)
            case syntax.Wildcard():
                raise scope.error(node.at, "'*' cannot stand here")
            case syntax.TypeName():
                if len(node.columns) != 1:
                    raise scope.error(node.at, "typeof takes one type here")
                return literal(node.columns[0][1], "string")
            case syntax.Function():
                raise scope.error(node.at, "a function cannot stand where a value is expected")
            case syntax.DataTable() | syntax.ExternalData() | syntax.Pipe():
                raise scope.error(node.at, "a table cannot stand where a value is expected: use toscalar(…)")
            case _:
                assert_never(node)

    def condition(self, node: syntax.Expression, scope: Scope) -> exp.Expr:
        """Return a condition of ``where``: any form that is true for the same rows."""
        match node:
            case syntax.Junction(kind, parts, _):
                join = exp.and_ if kind == "and" else exp.or_
                return join(*(self.condition(part, scope) for part in parts))
            case syntax.Binary():
                return self._as_condition(self._binary(node, scope, filtering=True), scope, node.at)
            case syntax.Among():
                return self._among(node, scope, filtering=True).sql
            case _:
                return self._as_condition(self.bind(node, scope), scope, node.at)

    def _as_condition(self, value: Value, scope: Scope, at: int) -> exp.Expr:
        if value.type == "bool":
            return value.sql
        if value.type in ("dynamic", *NUMERIC):
            return convert(value, "bool").sql
        raise scope.error(at, f"a condition must be bool, this is {value.type}", kind="type")

    def expect(self, value: Value, kind: str, scope: Scope, at: int, what: str) -> Value:
        """Return a value as a type, or say that it is not of it."""
        found = implicit(value, kind)
        if found is None:
            raise scope.error(at, f"{what} must be {kind}, this is {value.type}", kind="type")
        return found

    def constant(self, node: syntax.Expression, scope: Scope, what: str) -> Any:
        """Return the value of an expression that must be known before the query runs."""
        value = self.bind(node, scope)
        if not value.is_constant:
            raise scope.error(node.at, f"{what} must be a constant")
        return value.constant

    def _literal(self, node: syntax.Literal, scope: Scope) -> Value:
        if isinstance(node.value, syntax.Unreadable):
            raise scope.error(node.at, f"not a {node.type}: {node.value.text}", kind="type")
        if node.type != "dynamic":
            return literal(node.value, node.type)
        if (bad := unreadable(node.value)) is not None:
            raise scope.error(bad.at, f"not a {bad.type}: {bad.value.text}", kind="type")
        return literal(json_of(node.value), node.type)

    def _name(self, node: syntax.Name, scope: Scope) -> Value:
        if column := scope.column(node.name):
            if scope.aggregates:
                raise scope.error(
                    node.at, f"'{node.name}' stands outside an aggregate and is not a key of 'by'", kind="not_grouped"
                )
            return column
        found = self.resolve(node.name, scope, node.at)
        if isinstance(found, Value):
            if scope.source and isinstance(found, RowValue):
                hint = "a query within a value is asked once: use join"
                raise scope.error(node.at, f"'{node.name}' differs from row to row, and {hint}", kind="unsupported")
            return found
        if isinstance(found, Closure):
            return self.bind_call(syntax.Call(node.name, (), node.at), scope)
        if isinstance(found, Unset):
            hint = f"declare query_parameters({node.name}:{found.type} = …) gives it one"
            raise scope.error(node.at, f"query parameter '{node.name}' has no value: {hint}", kind="no_value")
        if found is not None:
            raise scope.error(node.at, f"'{node.name}' is a table, and a value is expected: use toscalar(…)")
        if node.name.startswith("$") and node.name[1:] in scope.sides:
            raise scope.error(node.at, f"name a column of {node.name}")
        raise scope.unknown(node.name, node.at)

    def _path(self, node: syntax.Member | syntax.Index, scope: Scope) -> Value:
        """Follow a path into a dynamic value: steps that are known become one path, as scans can use."""
        steps: list[str] = []
        at: syntax.Expression = node
        while isinstance(at, syntax.Member | syntax.Index):
            if isinstance(at, syntax.Member):
                named = at.base.name if isinstance(at.base, syntax.Name) else ""
                if named.startswith("$") and (side := scope.sides.get(named[1:])):
                    return self._step(self.bind(syntax.Name(at.name, at.at), side), steps)
                steps.append(f".{at.name}")
            else:
                index = self.bind(at.index, scope)
                if not index.is_constant or (isinstance(index.constant, int) and index.constant < 0):
                    return self._step(self._dynamic_step(at, index, scope), steps)
                steps.append(f"[{index.constant}]" if isinstance(index.constant, int) else f".{index.constant}")
            at = at.base
        base = self.bind(at, scope)
        if base.type == "string" and steps and steps[-1].startswith("["):
            base = Value(call("tide_parse_json", base.sql), "dynamic")
        if base.type not in ("dynamic", "vector"):
            raise scope.error(node.at, f"only a dynamic value has members, this is {base.type}", kind="type")
        return self._step(convert(base, "dynamic"), steps)

    def _step(self, base: Value, steps: list[str]) -> Value:
        if not steps:
            return base
        path = "".join(reversed(steps)).removeprefix(".")
        return Value(call("tide_get", base.sql, text_literal(path)), "dynamic")

    def _dynamic_step(self, node: syntax.Index, index: Value, scope: Scope) -> Value:
        base = self.expect(self.bind(node.base, scope), "dynamic", scope, node.at, "what is indexed")
        if index.type in ("int", "long"):
            return Value(call("tide_at", base.sql, index.sql), "dynamic")
        key = self.expect(index, "string", scope, node.at, "a key")
        return Value(call("tide_key", base.sql, key.sql), "dynamic")

    def _unary(self, node: syntax.Unary, scope: Scope) -> Value:
        value = self.bind(node.operand, scope)
        if value.type == "dynamic":
            value = convert(value, "real")
        if value.type not in (*NUMERIC, "timespan"):
            raise scope.error(node.at, f"'{node.operator}' needs a number, this is {value.type}", kind="type")
        if node.operator == "+":
            return value
        if value.type == "int":
            value = Value(cast(value.sql, "long"), "long", value.constant)
        if value.is_constant:
            return literal(None if value.is_null else -value.constant, value.type)
        return Value(exp.Neg(this=exp.Paren(this=value.sql)), value.type)

    def _binary(self, node: syntax.Binary, scope: Scope, *, filtering: bool) -> Value:
        if isinstance(node.left, syntax.Wildcard):
            return self._any_column(node, scope)
        left, right = self.bind(node.left, scope), self.bind(node.right, scope)
        name = node.operator
        if name in ("+", "-", "*", "/", "%"):
            return self._arithmetic(name, left, right, scope, node.at)
        if name.lstrip("!") in TEXT_FUNCTIONS:
            return self._text_operation(node, left, right, scope, filtering)
        if name in ("=~", "!~"):
            return self._fold_equal(left, right, scope, node, filtering)
        if "like" in name:
            raise scope.error(
                node.at, f"operator '{name}' is not supported: use has, contains or matches regex", kind="unsupported"
            )
        return self._compare(name, left, right, scope, node.at, filtering=filtering)

    def _any_column(self, node: syntax.Binary, scope: Scope) -> Value:
        """Bind ``* has "x"``: true if any column's text holds it."""
        parts: list[exp.Expr] = []
        for name in scope.columns:
            column = scope.column(name)
            if column is None or (column.type not in ("string", "dynamic", "guid") and node.operator != "has"):
                continue
            replaced = syntax.Binary(node.operator, syntax.Name(name, node.at), node.right, node.at)
            if column.type not in ("string", "dynamic", "guid"):
                continue
            parts.append(self._binary(replaced, scope, filtering=False).sql)
        return Value(any_of(parts) if parts else exp.false(), "bool")

    def _text_operation(self, node: syntax.Binary, left: Value, right: Value, scope: Scope, filtering: bool) -> Value:
        function = TEXT_FUNCTIONS[node.operator.lstrip("!")]
        negated = node.operator.startswith("!") != function.startswith("!")
        subject = self.expect_text(left, scope, node.at, f"the left side of '{node.operator}'")
        sought = self.expect_text(right, scope, node.at, f"the right side of '{node.operator}'")
        if function == "tide_matches" and sought.is_constant and sought.constant:
            sought = literal(plain_groups(sought.constant), "string")
        found: exp.Expr = call(function.lstrip("!"), subject.sql, sought.sql)
        if negated:
            return Value(exp.Not(this=coalesced(found, exp.false())), "bool")
        return Value(found if filtering else coalesced(found, exp.false()), "bool")

    def expect_text(self, value: Value, scope: Scope, at: int, what: str) -> Value:
        """Return a value as text: any scalar has one where a text operator asks for it."""
        if value.type in TEXTUAL:
            return Value(value.sql, "string", value.constant)
        if value.type in ("dynamic", "vector", *NUMERIC, "bool", "datetime", "timespan"):
            return convert(value, "string")
        raise scope.error(at, f"{what} must be string, this is {value.type}", kind="type")

    def _fold_equal(self, left: Value, right: Value, scope: Scope, node: syntax.Binary, filtering: bool) -> Value:
        sides = [self.expect_text(side, scope, node.at, f"a side of '{node.operator}'") for side in (left, right)]
        one, other = (_lowered(side) for side in sides)
        return self._compare("==" if node.operator == "=~" else "!=", one, other, scope, node.at, filtering=filtering)

    def _compare(self, name: str, left: Value, right: Value, scope: Scope, at: int, *, filtering: bool) -> Value:
        may_be_nan = (left if name in (">", ">=") else right).type in ("real", "dynamic")
        left, right = (_apart(side) for side in self._alike(left, right, scope, at, name))
        if left.is_constant and right.is_constant and left.constant is not None and right.constant is not None:
            return literal(FOLDED[name](left.constant, right.constant), "bool")
        if left.type in TEXTUAL:
            return Value(_compare_text(name, left, right, filtering), "bool")
        if name in _COMPARISONS:
            found: exp.Expr = _COMPARISONS[name](this=left.sql, expression=right.sql)
            greater = left if name in (">", ">=") else right
            if may_be_nan and greater.type == "real" and not greater.is_constant:
                # To engines it is the greatest, to KQL it is neither more nor less than anything.
                number = exp.LTE(this=greater.sql.copy(), expression=literal(math.inf, "real").sql)
                found = exp.Paren(this=exp.and_(found, number))
            return Value(found, "bool")
        return Value(_equality(name, left, right, filtering), "bool")

    def _alike(self, left: Value, right: Value, scope: Scope, at: int, what: str) -> tuple[Value, Value]:
        """Return two values as one type, as KQL does before it compares."""
        if left.type == right.type:
            return (convert(left, "string"), convert(right, "string")) if left.type == "dynamic" else (left, right)
        for kind in common_types(left, right):
            one, other = implicit(left, kind), implicit(right, kind)
            if one is not None and other is not None:
                return one, other
        kinds = {left.type, right.type}
        if what in ("==", "!=", "in") and kinds & {*TEXTUAL} and kinds & {*NUMERIC, "bool"}:
            return _plain_numbers(left, right) or (convert(left, "string"), convert(right, "string"))
        fitting = {"datetime": "todatetime", "timespan": "totimespan"}
        wanted = next((fitting[kind] for kind in sorted(kinds) if kind in fitting), "tostring")
        hint = f": use {wanted}(…)" if "string" in kinds else ""
        raise scope.error(at, f"cannot use '{what}' with {left.type} and {right.type}{hint}", kind="type")

    def _arithmetic(self, name: str, left: Value, right: Value, scope: Scope, at: int) -> Value:
        given = (left.type, right.type)
        left, right = (as_number(left, right), as_number(right, left))
        if name in ("/", "%") and (left.type, right.type) == ("datetime", "timespan"):
            left = self._arithmetic("-", left, literal(_YEAR_ONE, "datetime"), scope, at)
        kind = result_type(name, left.type, right.type)
        if kind is None:
            hint = ": use todatetime(…), totimespan(…) or toreal(…)" if "dynamic" in given else ""
            raise scope.error(at, f"cannot use '{name}' with {given[0]} and {given[1]}{hint}", kind="type")
        if left.is_constant and right.is_constant:
            return folded(name, left, right, kind, scope, at)
        return Value(arithmetic_sql(name, left, right, kind), kind)

    def _logic(self, node: syntax.Junction | syntax.Among | syntax.Between, scope: Scope) -> Value:
        match node:
            case syntax.Junction(kind, parts, _):
                join = exp.and_ if kind == "and" else exp.or_
                sides = [self._as_condition(self.bind(part, scope), scope, part.at) for part in parts]
                return Value(exp.Paren(this=join(*sides)), "bool")
            case syntax.Among():
                return self._among(node, scope, filtering=False)
            case syntax.Between():
                return self._between(node, scope)

    def _between(self, node: syntax.Between, scope: Scope) -> Value:
        subject, low, high = (self.bind(part, scope) for part in (node.operand, node.low, node.high))
        if subject.type == "datetime" and high.type == "timespan":
            high = self._arithmetic("+", low, high, scope, node.at)
        above = self._compare(">=", subject, low, scope, node.at, filtering=True)
        below = self._compare("<=", subject, high, scope, node.at, filtering=True)
        found: exp.Expr = exp.Paren(this=exp.and_(above.sql, below.sql))
        return Value(exp.Not(this=found) if node.negated else found, "bool")

    def _among(self, node: syntax.Among, scope: Scope, *, filtering: bool) -> Value:
        negated, name = node.operator.startswith("!"), node.operator.lstrip("!")
        left = self.bind(node.left, scope) if not isinstance(node.left, syntax.Wildcard) else None
        if left is None:
            parts = [
                self._among(
                    syntax.Among(node.operator, syntax.Name(column, node.at), node.options, node.at),
                    scope,
                    filtering=False,
                ).sql
                for column, held in scope.columns.items()
                if held.type in ("string", "dynamic")
            ]
            return Value(any_of(parts) if parts else exp.false(), "bool")
        if name in ("has_any", "has_all"):
            found = self._has_several(node, name, left, scope)
        else:
            found = self._in(node, left, scope, folded=name.endswith("~"))
        if negated:
            return Value(exp.Not(this=coalesced(found, exp.false())), "bool")
        return Value(found if filtering else coalesced(found, exp.false()), "bool")

    def _has_several(self, node: syntax.Among, name: str, left: Value, scope: Scope) -> exp.Expr:
        subject = self.expect_text(left, scope, node.at, f"the left side of '{name}'").sql
        parts: list[exp.Expr] = []
        if name == "has_any" and len(node.options) == 1 and (found := self.bind_query(node.options[0], scope)):
            query, held = found
            column = Value(column_sql("v", "o"), held)
            words = self.expect_text(column, scope, node.at, "an option")
            return call("tide_has_any_terms", subject, _subquery_of(query, call("tide_terms", words.sql)))
        constants, arrays = self._options(node, scope, "string")
        if constants or not arrays:
            terms = [text_literal(str(word.constant)) for word in constants if word.constant is not None]
            empty: exp.Expr = exp.Boolean(this=name == "has_all")
            single = "tide_has" if len(terms) == 1 else f"tide_{name}"
            parts.append(call(single, subject, *terms) if terms else empty)
        parts += [call(f"tide_{name}_of", subject, array) for array in arrays]
        return any_of(parts) if name == "has_any" else exp.and_(*parts)

    def _options(self, node: syntax.Among, scope: Scope, kind: str) -> tuple[list[Value], list[exp.Expr]]:
        """Return the options that are known, and those that are arrays of the engine."""
        constants: list[Value] = []
        arrays: list[exp.Expr] = []
        for option in node.options:
            if found := self.bind_query(option, scope):
                query, held = found
                column = Value(column_sql("v", "o"), held)
                arrays.append(_list_subquery(query, self.expect_text(column, scope, option.at, "an option")))
                continue
            value = self.bind(option, scope)
            if value.type == "dynamic" and value.is_constant:
                constants += _items(value.constant)
            elif value.type == "dynamic":
                arrays.append(value.sql)
            elif value.is_constant:
                constants.append(convert(value, kind) if kind == "string" else value)
            else:
                arrays.append(call("tide_pack_array", convert(value, "dynamic").sql))
        return ([convert(value, "string") for value in constants] if kind == "string" else constants), arrays

    def _in(self, node: syntax.Among, left: Value, scope: Scope, *, folded: bool) -> exp.Expr:
        if not folded and (long := _long_list(node, left)) is not None:
            return long
        parts: list[exp.Expr] = []
        constants: list[Value] = []
        for option in node.options:
            if found := self.bind_query(option, scope):
                parts.append(self._in_query(left, *found, folded=folded, scope=scope, at=option.at))
                continue
            value = self.bind(option, scope)
            if value.type == "dynamic" and value.is_constant:
                constants += _items(value.constant)
            elif value.type == "dynamic":
                subject = self.expect_text(left, scope, option.at, "the left side of 'in'")
                function = "tide_in_array_folded" if folded else "tide_in_array"
                parts.append(call(function, text(subject), value.sql))
            else:
                constants.append(value)
        if constants:
            parts.append(self._in_list(left, constants, scope, node.at, folded=folded))
        return any_of(parts) if parts else exp.false()

    def _in_list(self, left: Value, options: Sequence[Value], scope: Scope, at: int, *, folded: bool) -> exp.Expr:
        if left.type == "dynamic":
            kind = "string" if any(option.type in TEXTUAL for option in options) else "real"
            left = convert(left, kind)
        if folded:
            left = _lowered(self.expect_text(left, scope, at, "the left side of 'in~'"))
        items: list[exp.Expr] = []
        has_empty = False
        for option in options:
            if option.is_null:
                continue
            one, other = self._alike(left, option, scope, at, "in")
            if left.type in TEXTUAL and option.type not in (*TEXTUAL, "dynamic"):
                other = convert(option, "string")
            left = one if one.type != left.type and one.type in ("real", "long", "datetime") else left
            items.append(_lowered(other).sql if folded else other.sql)
            has_empty |= other.constant == ""
        if not items:
            return exp.false()
        subject = text(left) if has_empty else left.sql
        return exp.In(this=subject, expressions=items)

    def _in_query(self, left: Value, query: exp.Expr, held: str, *, folded: bool, scope: Scope, at: int) -> exp.Expr:
        inner = Value(column_sql("v", "o"), held)
        one, other = self._alike(left, inner, scope, at, "in") if left.type != held else (left, inner)
        if one.type == "dynamic":
            one, other = convert(one, "string"), convert(other, "string")
        if folded:
            one, other = (_lowered(self.expect_text(side, scope, at, "a side of 'in~'")) for side in (one, other))
        subject, option = (text(one), text(other)) if one.type in TEXTUAL else (one.sql, other.sql)
        select = exp.select(exp.alias_(option, "v", quoted=True)).from_(
            exp.Subquery(this=query, alias=exp.TableAlias(this=exp.to_identifier("o", quoted=True)))
        )
        if one.type not in TEXTUAL:
            select = select.where(exp.Not(this=exp.Is(this=option.copy(), expression=exp.Null())))
        return exp.In(this=subject, query=exp.Subquery(this=select))


def _long_list(node: syntax.Among, left: Value) -> exp.Expr | None:
    """Return the test for a long list of literals of the left side's own type, which needs no look at each."""
    options = [option for option in node.options if isinstance(option, syntax.Literal)]
    kind = "string" if left.type == "string" else "long" if left.type in ("int", "long") else ""
    if len(options) < LONG or len(options) < len(node.options) or any(each.type != kind for each in options):
        return None
    values = [option.value for option in options]
    held = packed(values)
    return None if held is None else exp.In(this=text(left) if "" in values else left.sql, expressions=[held])


def _plain_numbers(left: Value, right: Value) -> tuple[Value, Value] | None:
    """Compare a number with a text that is the plain form of one as numbers, which a scan can use."""
    for number, words in ((left, right), (right, left)):
        if (
            number.type in ("int", "long")
            and words.is_constant
            and re.fullmatch(r"0|-?[1-9]\d{0,17}", words.constant or "")
        ):
            value = literal(int(words.constant), "long")
            return (number, value) if number is left else (value, number)
    return None


def _list_subquery(query: exp.Expr, value: Value) -> exp.Expr:
    return _subquery_of(query, call("tide_make_list", value.sql))


def _subquery_of(query: exp.Expr, aggregate: exp.Expr) -> exp.Expr:
    select = exp.select(exp.alias_(aggregate, "v", quoted=True)).from_(
        exp.Subquery(this=query, alias=exp.TableAlias(this=exp.to_identifier("o", quoted=True)))
    )
    return exp.Subquery(this=select)


def _items(constant: Any) -> list[Value]:
    """Return the values of a dynamic constant: those of a list, or itself."""
    return [_item(item) for item in (constant if isinstance(constant, list) else [constant])]


def _item(value: Any) -> Value:
    match value:
        case bool():
            return literal(value, "bool")
        case int():
            return literal(value, "long")
        case float():
            return literal(value, "real")
        case str() | None:
            return literal(value, "string")
        case _:
            return literal(value, "dynamic")


def _apart(value: Value) -> Value:
    """Put a condition in brackets, for SQL does not compare one that stands bare."""
    if value.type != "bool" or value.is_constant or isinstance(value.sql, exp.Column | exp.Paren | exp.Func):
        return value
    return Value(exp.Paren(this=value.sql), "bool", value.constant)


def _lowered(value: Value) -> Value:
    """Return a text in small letters: by the engine, where it has others than Python, as of a sigma or a dotted I."""
    if value.is_constant and (value.is_null or str(value.constant).isascii()):
        return literal(None if value.is_null else str(value.constant).lower(), "string")
    return Value(exp.Lower(this=value.sql), "string")


def _compare_text(name: str, left: Value, right: Value, filtering: bool) -> exp.Expr:
    """Compare texts, of which none is null: plainly where a non-empty constant makes that the same."""
    plain = name == "==" and filtering and any(side.is_constant and side.constant for side in (left, right))
    sides = (left.sql, right.sql) if plain else (text(left), text(right))
    kinds: dict[str, type[exp.Binary]] = {**_COMPARISONS, "==": exp.EQ, "!=": exp.NEQ}
    return kinds[name](this=sides[0], expression=sides[1])


def _equality(name: str, left: Value, right: Value, filtering: bool) -> exp.Expr:
    if name == "==" and filtering:
        return exp.EQ(this=left.sql, expression=right.sql)
    distinct = exp.NullSafeNEQ if name == "!=" else exp.NullSafeEQ
    found = exp.Paren(this=distinct(this=left.sql, expression=right.sql))
    if any(side.is_constant and side.constant is not None for side in (left, right)):
        return found
    both_null = exp.and_(*(exp.Is(this=side.sql.copy(), expression=exp.Null()) for side in (left, right)))
    return exp.Case(ifs=[exp.If(this=both_null, true=cast(exp.Null(), "bool"))], default=found)
