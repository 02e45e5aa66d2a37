"""Read rows of MySQL or MariaDB for one query: the columns, conditions and limit that it asks for.

It is done in a read-only transaction. Only tables that were attached are ever named, and only as quoted identifiers.
What is sent as a condition keeps every row that the predicate keeps, and may keep more; a limit goes with it only where
it keeps exactly those. Texts are compared byte by byte, since collations are not ours. It does not keep anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pymysql.converters import escape_string

from tidelake.connectors.in_place import TIMEOUT_S, gathered, limit_sent
from tidelake.connectors.mysql.catalog import MyCatalog, identifier
from tidelake.connectors.mysql.connecting import connect, database_of, told_apart
from tidelake.connectors.mysql.copying import copied, undecoded
from tidelake.connectors.mysql.types import INTEGERS, TEXTS, MyType
from tidelake.connectors.protocol import SourceTable
from tidelake.model.predicate import And, Equals, InSet, IsNull, Or, Predicate, Range

Condition = tuple[str, bool]


@dataclass(frozen=True, slots=True)
class MysqlReader:
    """A server of MySQL or MariaDB, as queries read it."""

    url: str

    def describe(self, table: str) -> SourceTable:
        """Return a table's columns in the lake's types."""
        with told_apart(), connect(self.url) as connection:
            return MyCatalog(connection).described(table)

    def tables(self) -> list[str]:
        """Return the names of all tables."""
        with told_apart(), connect(self.url) as connection:
            return list(MyCatalog(connection).tables(database_of(self.url)))

    def read(
        self, table: str, columns: Sequence[str], where: Predicate | None, limit: int | None
    ) -> tuple[list[pa.RecordBatch], str]:
        """Return rows that may match, and what was asked of the source."""
        with told_apart(), connect(self.url) as connection:
            types = MyCatalog(connection).columns(table)
        found = condition_of(where, types)
        rest = "" if found is None else f" WHERE {found[0]}"
        if (most := limit_sent(limit, where, is_exact=found is not None and found[1])) is not None:
            rest += f" LIMIT {int(most)}"
        asked = {name: types[name] for name in columns}
        with told_apart(), connect(self.url, **undecoded(), read_timeout=TIMEOUT_S) as connection:
            MyCatalog(connection).rows("START TRANSACTION READ ONLY")
            batches = gathered(table, copied(connection, table, asked, rest))
        return batches, f"SELECT {', '.join(map(identifier, columns))} FROM {table}{rest}"


def condition_of(where: Predicate | None, types: Mapping[str, MyType]) -> Condition | None:
    """Return a predicate as a condition; None if nothing of it can be asked of the source."""
    match where:
        case And(parts):
            found = [each for part in parts if (each := condition_of(part, types)) is not None]
            if not found:
                return None
            is_exact = len(found) == len(parts) and all(exact for _, exact in found)
            return f"({' AND '.join(text for text, _ in found)})", is_exact
        case Or(parts):
            several = [condition_of(part, types) for part in parts]
            known = [each for each in several if each is not None]
            if not known or len(known) != len(several):
                return None
            return f"({' OR '.join(text for text, _ in known)})", all(exact for _, exact in known)
        case IsNull(column) if column in types and types[column].name in (*INTEGERS, *TEXTS):
            return (f"{identifier(column)} IS NULL", True) if not types[column].is_flag else None
        case Equals(column, value) if column in types:
            return _compared(column, types[column], "=", value)
        case InSet(column, values) if column in types and values:
            return condition_of(Or(tuple(Equals(column, value) for value in values)), types)
        case Range(column, low, high, with_low, with_high) if column in types:
            bounds = [(">=" if with_low else ">", low), ("<=" if with_high else "<", high)]
            both = [_compared(column, types[column], sign, value) for sign, value in bounds if value is not None]
            kept = [each for each in both if each is not None]
            if not kept or len(kept) != len(both):
                return None
            return f"({' AND '.join(text for text, _ in kept)})", all(exact for _, exact in kept)
    return None


def _compared(column: str, kind: MyType, sign: str, value: Any) -> Condition | None:
    name = identifier(column)
    if kind.name in INTEGERS and not kind.is_flag and isinstance(value, int) and not isinstance(value, bool):
        return f"{name} {sign} {value}", True
    if kind.name == "double" and isinstance(value, int | float) and not isinstance(value, bool) and value == value:
        return (f"{name} {sign} {float(value)!r}", True) if abs(value) < 1e300 else None
    if kind.name in TEXTS and isinstance(value, str) and "\x00" not in value:
        literal = f"_utf8mb4'{escape_string(value)}'"
        exactly = f"CAST(CONVERT({name} USING utf8mb4) AS BINARY) {sign} CAST({literal} AS BINARY)"
        return exactly, True
    return None
