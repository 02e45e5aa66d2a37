"""Hold the rows between two operators of a pipeline, as a SELECT that is not yet written.

A relation is a source, conditions on it, and what each column is. Operators that only filter, add or choose columns
change it in place of nesting; the others close it into a named step, a CTE. Rows keep the order of the last ``sort``:
the order is carried, in hidden columns if need be, and written where it counts: at ``take``, in windows and at the end.
It does not know KQL.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from tidelake.model.schema import fresh_name
from tidelake.query.kql.scope import column_sql
from tidelake.query.kql.values import Column

BY_CHANCE = ("tide_rand", "tide_new_guid")
MAX_STEPS = 500  # a query of more steps is a mistake, and engines plan each


@dataclass(frozen=True, slots=True)
class OrderKey:
    """A column that rows are sorted by, by its name in SQL."""

    key: str
    descending: bool
    nulls_first: bool

    def sql(self, source: str) -> exp.Expr:
        return exp.Ordered(this=column_sql(self.key, source), desc=self.descending, nulls_first=self.nulls_first)


@dataclass(frozen=True, slots=True)
class Relation:
    """Rows in the making; ``items`` has the SQL of columns that are more than a column of the source."""

    source: exp.Expr
    alias: str
    columns: tuple[Column, ...]
    hidden: tuple[Column, ...] = ()
    items: dict[str, exp.Expr] = field(default_factory=dict)
    where: tuple[exp.Expr, ...] = ()
    order: tuple[OrderKey, ...] = ()
    tables: tuple[str, ...] = ()
    bag: Column | None = None
    partition: tuple[Column, ...] = ()
    serialized: bool = False

    @property
    def is_plain(self) -> bool:
        return not self.items

    @property
    def by_name(self) -> dict[str, Column]:
        return {column.name: column for column in self.columns}

    def item(self, column: Column) -> exp.Expr:
        return self.items.get(column.key) or column_sql(column.key, self.alias)

    def filtered(self, condition: exp.Expr) -> Relation:
        return replace(self, where=(*self.where, condition))

    def select(self, *, ordered: bool = False) -> exp.Select:
        """Write the rows as a SELECT of all columns, the hidden ones too."""
        chosen = [*self.columns, *self.hidden]
        query = exp.select(*(aliased(self.item(column), column.key) for column in chosen)).from_(self.source.copy())
        for condition in self.where:
            query = query.where(condition, copy=False)
        if ordered and self.order:
            query = query.order_by(*(self.order_sql()), copy=False)
        return query

    def order_sql(self) -> list[exp.Expr]:
        return [key.sql(self.alias) for key in self.order]


def aliased(sql: exp.Expr, key: str) -> exp.Expr:
    return exp.alias_(sql.copy(), key, quoted=True, copy=False)


class Steps:
    """The named steps of a query so far."""

    def __init__(self) -> None:
        self.steps: list[tuple[str, exp.Query]] = []

    def add(self, query: exp.Query) -> tuple[exp.Expr, str]:
        """Name a query; give how to read from it, and under which alias."""
        name = f"kql_{len(self.steps) + 1}"
        self.steps.append((name, query))
        return table_sql(name), name

    def relation(self, query: exp.Query, columns: Sequence[Column], old: Relation, *, ordered: bool = True) -> Relation:
        """Close a query into a step, and give its rows; the order of the old ones holds unless told otherwise."""
        source, alias = self.add(query)
        kept = {column.key for column in (*columns, *old.hidden)}
        order = old.order if ordered and all(key.key in kept for key in old.order) else ()
        return Relation(
            source,
            alias,
            tuple(columns),
            old.hidden if order else old.partition,
            order=order,
            tables=old.tables,
            bag=old.bag if old.bag in columns else None,
            partition=old.partition,
            serialized=ordered and old.serialized,
        )

    def closed(self, relation: Relation) -> Relation:
        """Return a relation whose columns are all plain columns of its source, and that has no conditions."""
        if relation.is_plain and not relation.where:
            return relation
        return self.relation(relation.select(), relation.columns, relation)

    def plain(self, relation: Relation) -> Relation:
        """Return a relation whose columns are all plain; its conditions may stand."""
        return relation if relation.is_plain else self.closed(relation)

    def attach(self, query: exp.Query) -> exp.Query:
        """Put the steps that a query needs, and those that they need, before it."""
        needed = _tables_in(query)
        kept: list[tuple[str, exp.Query]] = []
        for name, step in reversed(self.steps):
            if name in needed:
                kept.append((name, step))
                needed |= _tables_in(step)
        for name, step in reversed(kept):
            by_chance = any(node.name in BY_CHANCE for node in step.find_all(exp.Anonymous))
            query = query.with_(name, step, materialized=True if by_chance else None, copy=False)  # drawn once
        return query


def _tables_in(query: exp.Query) -> set[str]:
    return {table.name for table in query.find_all(exp.Table) if not table.db}


def table_sql(name: str) -> exp.Expr:
    return exp.Table(this=exp.to_identifier(name, quoted=True))


def fresh_key(name: str, taken: Iterable[str]) -> str:
    """Return a name for SQL, where case does not tell names apart."""
    return fresh_name(name, taken)


def keyed(columns: Iterable[tuple[str, str]], taken: Iterable[str] = ()) -> tuple[Column, ...]:
    """Give columns of names and types their names in SQL."""
    used = list(taken)
    found: list[Column] = []
    for name, kind in columns:
        key = fresh_key(name, used)
        used.append(key)
        found.append(Column(name, kind, key))
    return tuple(found)
