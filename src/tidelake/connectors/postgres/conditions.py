"""Write predicates as SQL of PostgreSQL, as far as both mean the same.

What is written keeps every row that the predicate keeps, and may keep more; the second answer says whether it keeps
exactly those, so that a limit may be asked of the source too. Values are literals that psycopg quotes. What a type's
text or order makes doubtful is left to whoever has the rows. It does not ask anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from psycopg import sql

from tidelake.connectors.postgres.types import PgType
from tidelake.model.predicate import And, Equals, InSet, IsNull, Or, Predicate, Range, TimeRange

Condition = tuple[sql.Composable, bool]

_NUMBERS = ("int2", "int4", "int8", "oid", "float8", "numeric")
_TEXTS = ("text", "varchar", "name")
_TIMES = ("date", "timestamp", "timestamptz")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def condition_of(where: Predicate | None, types: Mapping[str, PgType]) -> Condition | None:
    """Return a predicate as a condition; None if nothing of it can be asked of the source."""
    match where:
        case And(parts):
            found = [condition for part in parts if (condition := condition_of(part, types)) is not None]
            if not found:
                return None
            is_exact = len(found) == len(parts) and all(exact for _, exact in found)
            return sql.SQL("({})").format(sql.SQL(" AND ").join(each for each, _ in found)), is_exact
        case Or(parts):
            several = [condition_of(part, types) for part in parts]
            known = [each for each in several if each is not None]
            if len(known) != len(several):
                return None
            joined = sql.SQL(" OR ").join(each for each, _ in known)
            return sql.SQL("({})").format(joined), all(exact for _, exact in known)
        case IsNull(column) if column in types:
            # What does not fit its type here is null here, and is not there.
            return (sql.SQL("{} IS NULL").format(sql.Identifier(column)), True) if _is_whole(types[column]) else None
        case Equals(column, value) if column in types:
            return _compared(column, types[column], "=", value)
        case InSet(column, values) if column in types and values:
            return condition_of(Or(tuple(Equals(column, value) for value in values)), types) if len(values) > 1 else (
                condition_of(Equals(column, values[0]), types))  # fmt: skip
        case Range(column, low, high, with_low, with_high) if column in types:
            bounds = [(">=" if with_low else ">", low), ("<=" if with_high else "<", high)]
            return _all([_compared(column, types[column], sign, value) for sign, value in bounds if value is not None])
        case TimeRange(column, start_ns, end_ns) if column in types:
            times = [(">=", start_ns), ("<", end_ns)]
            return _all([
                _compared(column, types[column], sign, _EPOCH + timedelta(microseconds=ns // 1000))
                for sign, ns in times if ns is not None and ns % 1000 == 0
            ])  # fmt: skip
    return None


def _all(parts: list[Condition | None]) -> Condition | None:
    known = [each for each in parts if each is not None]
    if not known or len(known) != len(parts):
        return None
    return sql.SQL("({})").format(sql.SQL(" AND ").join(each for each, _ in known)), all(exact for _, exact in known)


def _is_whole(kind: PgType) -> bool:
    """Whether every value of a type fits its column here."""
    return kind.element is None and kind.name in ("int2", "int4", "int8", "oid", "float8", "bool", *_TEXTS, "uuid")


def _compared(column: str, kind: PgType, sign: str, value: Any) -> Condition | None:
    if kind.element is not None:
        return None
    name, literal = sql.Identifier(column), sql.Literal(value)
    if kind.name in _NUMBERS and isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        if kind.name == "numeric" and kind.modifier < 0:
            return None  # a text here
        return sql.SQL("{} {} {}").format(name, sql.SQL(sign), literal), kind.name != "numeric"
    if kind.name == "bool" and isinstance(value, bool) and sign == "=":
        return sql.SQL("{} = {}").format(name, literal), True
    if kind.name in _TEXTS and isinstance(value, str) and "\x00" not in value:
        exactly = sql.SQL('{}::text COLLATE "C" {} {}').format(name, sql.SQL(sign), literal)
        if sign != "=":
            return exactly, True
        return sql.SQL("({} = {} AND {})").format(name, literal, exactly), True  # the first may use an index
    if kind.name == "uuid" and isinstance(value, str) and sign == "=":
        return sql.SQL("{}::text = {}").format(name, literal), True
    if kind.name in _TIMES and isinstance(value, datetime | date):
        return _timed(name, kind, sign, value)
    return None


def _timed(name: sql.Identifier, kind: PgType, sign: str, value: datetime | date) -> Condition | None:
    is_time = isinstance(value, datetime)
    if kind.name == "date" and is_time:
        return None
    if kind.name == "timestamptz" and not (is_time and value.tzinfo is not None):  # type: ignore[union-attr]
        return None
    if kind.name == "timestamp" and (not is_time or value.tzinfo is not None):  # type: ignore[union-attr]
        return None
    return sql.SQL("{} {} {}").format(name, sql.SQL(sign), sql.Literal(value)), False
