"""Bind the functions that are about columns or queries rather than values, such as toscalar and pack_all.

It does not know tables: a subclass does.
"""

from __future__ import annotations

from abc import abstractmethod

from sqlglot import exp

from tidelake.query.kql import syntax
from tidelake.query.kql.arguments import Arguments
from tidelake.query.kql.conversions import convert
from tidelake.query.kql.naming import name_of
from tidelake.query.kql.relations import BY_CHANCE
from tidelake.query.kql.scalars import Scalars
from tidelake.query.kql.scope import Scope, column_sql
from tidelake.query.kql.values import Value, call, cast, coalesced, literal, text_literal
from tidelake.query.kql.windows import WINDOWS, bind_window

SPECIAL = ("toscalar", "materialize", "column_ifexists", "columnifexists", "iscolumnexists", "column_names_of",
           "estimate_data_size", "pack_all", "bag_pack_columns", "table", "database", "cluster", "view",
           *WINDOWS)  # fmt: skip
_SIZES = {"bool": 1, "int": 4, "long": 8, "real": 8, "datetime": 8, "timespan": 8, "guid": 16, "decimal": 34}


class Specials(Scalars):
    """Bind calls that need more than the values of their arguments."""

    @abstractmethod
    def arguments(self, node: syntax.Call, scope: Scope) -> Arguments:
        """Bind the arguments of a call."""

    @abstractmethod
    def columns_of(self, node: syntax.Expression, scope: Scope) -> list[str]:
        """Return the names of a table's columns."""

    def special(self, node: syntax.Call, scope: Scope) -> Value:
        match node.name, node.arguments:
            case "toscalar", (argument,):
                return self._toscalar(argument, scope)
            case "materialize", (argument,):
                return self.bind(argument, scope)
            case (("column_ifexists" | "columnifexists"), (name, fallback)):
                return self._column_if_exists(name, fallback, scope)
            case "iscolumnexists", (name,):
                return literal(self.constant(name, scope, "a column's name") in scope.columns, "bool")
            case "column_names_of", (table,):
                return literal(self.columns_of(table, scope), "dynamic")
            case "estimate_data_size", (_, *_):
                return self._data_size(node, scope)
            case "pack_all", (() | (_,)) as arguments:
                filled = bool(arguments) and self.constant(arguments[0], scope, "whether to leave out what is empty")
                return self._pack_all(scope, filled=filled is True)
            case (window, _) if window in WINDOWS:
                return bind_window(node, self.arguments(node, scope), scope)
            case "bag_pack_columns", (_, *_):
                pairs = [
                    (name_of(each) or "", convert(self.bind(each, scope), "dynamic").sql) for each in node.arguments
                ]
                return Value(
                    call("tide_pack", *(part for name, sql in pairs for part in (text_literal(name), sql))), "dynamic"
                )
        if node.name in ("table", "database", "cluster", "view"):
            raise scope.error(node.at, "a table cannot stand where a value is expected", kind="type")
        raise scope.error(node.at, f"{node.name} takes another number of arguments", kind="arity")

    def _toscalar(self, node: syntax.Expression, scope: Scope) -> Value:
        found = self.bind_query(node, scope)
        if found is None:
            value = self.bind(node, scope)
            if not any(part.name in BY_CHANCE for part in value.sql.find_all(exp.Anonymous)):
                return value
            inner = exp.select(exp.alias_(value.sql, "v", quoted=True)).subquery("o")
            once = exp.Max(this=column_sql("v", "o"))  # an aggregate: what is none may be asked for each row
            found = exp.select(exp.alias_(once, "v", quoted=True)).from_(inner), value.type
        query, kind = found
        assert isinstance(query, exp.Select)
        return Value(exp.Subquery(this=query.limit(1)), kind)

    def _column_if_exists(self, name: syntax.Expression, fallback: syntax.Expression, scope: Scope) -> Value:
        wanted = name.name if isinstance(name, syntax.Name) else self.constant(name, scope, "a column's name")
        column = scope.columns.get(str(wanted))
        return self.bind(syntax.Name(column.name, name.at), scope) if column else self.bind(fallback, scope)

    def _pack_all(self, scope: Scope, *, filled: bool) -> Value:
        parts: list[exp.Expr] = []
        for name in scope.columns:
            value = scope.column(name)
            if value is not None:
                parts += [text_literal(name), convert(value, "dynamic").sql]
        packed = call("tide_pack", *parts)
        return Value(call("tide_bag_filled", packed) if filled else packed, "dynamic")

    def _data_size(self, node: syntax.Call, scope: Scope) -> Value:
        """Sum the bytes of some columns: what a type takes, and of texts and bags what they are long."""
        values: list[Value] = []
        for argument in node.arguments:
            if isinstance(argument, syntax.Wildcard):
                values += [found for name in scope.columns if (found := scope.column(name)) is not None]
            else:
                values.append(self.bind(argument, scope))
        total: exp.Expr = exp.Literal.number(0)
        for value in values:
            size: exp.Expr = exp.Literal.number(_SIZES.get(value.type, 0))
            if value.type not in _SIZES:
                held = call("tide_to_json", value.sql) if value.type == "dynamic" else convert(value, "string").sql
                size = coalesced(call("tide_string_size", held), exp.Literal.number(0))
            total = exp.Add(this=total, expression=size)
        return Value(cast(exp.Paren(this=total), "long"), "long")
