"""Define what names mean at a place in a query: columns, and what ``let`` bound.

It does not turn expressions into SQL.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from sqlglot import exp

from tidelake.errors import QueryError
from tidelake.model.lexer import did_you_mean
from tidelake.query.kql import syntax
from tidelake.query.kql.mistakes import error_at
from tidelake.query.kql.values import Column, Value, call, text_literal

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, slots=True)
class Closure:
    """A function that ``let`` bound, with the names it can see."""

    function: syntax.Function
    names: Names
    text: str


@dataclass(frozen=True, slots=True)
class Deferred:
    """An expression that ``let`` bound and nobody used yet: bound when it is, in its own place."""

    expression: syntax.Expression
    names: Names
    text: str


@dataclass(frozen=True, slots=True)
class Unset:
    """A parameter of the query that nobody gave a value."""

    type: str


Binding = "Value | Relation | Closure | Deferred | Unset"


@dataclass(slots=True)
class Names:
    """The names that ``let`` bound, the inner before the outer."""

    outer: Names | None = None
    own: dict[str, object] = field(default_factory=dict)

    def find(self, name: str) -> object | None:
        at: Names | None = self
        while at is not None:
            if name in at.own:
                return at.own[name]
            at = at.outer
        return None

    def replace(self, name: str, value: object) -> None:
        """Put what a deferred expression turned out to be in its place."""
        at: Names | None = self
        while at is not None:
            if name in at.own:
                at.own[name] = value
                return
            at = at.outer

    def all_names(self) -> list[str]:
        found = list(self.own)
        return found + (self.outer.all_names() if self.outer else [])


@dataclass(slots=True)
class Clock:
    """The time at which a query is asked, and whether it looked at it."""

    time: datetime
    was_read: bool = False

    def now(self) -> datetime:
        self.was_read = True
        return self.time


@dataclass(frozen=True, slots=True)
class Scope:
    """What an expression can see: the columns of its rows, under the SQL name of where they come from."""

    columns: Mapping[str, Column]
    source: str
    names: Names
    text: str
    clock: Clock
    aggregates: bool = False
    windows: tuple[exp.Expr, ...] | None = None
    parts: tuple[exp.Expr, ...] = ()  # what tells the parts of a pipeline that runs part by part
    sides: Mapping[str, Scope] = field(default_factory=dict)
    tables: tuple[str, ...] = ()
    bag: Column | None = None

    def error(self, at: int, message: str, *, kind: str = "bind", **facts: object) -> QueryError:
        return error_at(self.text, min(at, len(self.text)), message, kind=kind, **facts)

    def column(self, name: str) -> Value | None:
        column = self.columns.get(name)
        if column is not None and self.bag is not None and self.bag.conflict == "replace_source" and column != self.bag:
            hint = "rename the column before bag_unpack, or give bag_unpack a schema"
            message = f"'{name}' may be a key of the bag or the column that it would replace: {hint}"
            raise self.error(0, message, kind="unsupported")
        if column is not None:
            return Value(column_sql(column.key, self.source), column.type)
        if self.bag is not None and self.names.find(name) is None:  # a bag was unpacked: its keys are columns
            return Value(call("tide_key", column_sql(self.bag.key, self.source), text_literal(name)), "dynamic")
        return None

    def unknown(self, name: str, at: int) -> QueryError:
        known = [*self.columns, *self.names.all_names()]
        hint = did_you_mean(name, known)
        return self.error(
            at, f"unknown column or name '{name}'{hint}", kind="unknown_name", name=name, tables=",".join(self.tables)
        ).about(name)


def column_sql(key: str, source: str) -> exp.Expr:
    return exp.column(exp.to_identifier(key, quoted=True), table=exp.to_identifier(source, quoted=True))
