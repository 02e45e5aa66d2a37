"""Hold a database beside a lake, and compare what the lake has with what the database has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import orjson
import psycopg
import pytest

import tidelake
from tests.support.servers import fresh_database
from tidelake.connectors.definition import SYSTEM_COLUMNS
from tidelake.connectors.sources import sources


@dataclass(frozen=True, slots=True)
class Shop:
    """A database of PostgreSQL, and the lake that is synced from it."""

    url: str
    database: psycopg.Connection[Any]
    lake: tidelake.Lake

    def __call__(self, *statements: str) -> None:
        for statement in statements:
            self.database.execute(statement.encode())

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return what the source has, as the lake would show it."""
        found = self.database.execute(f"SELECT * FROM {table}".encode())
        names = [column.name for column in found.description or ()]
        return sorted((_plain(dict(zip(names, row, strict=True))) for row in found), key=repr)

    def latest(self, table: str) -> list[dict[str, Any]]:
        """Return what the lake says that the source has, without columns that the source has not."""
        rows = self.lake.table(table).latest().read_all().to_pylist()
        own = [{name: value for name, value in row.items() if name not in SYSTEM_COLUMNS} for row in rows]
        return sorted(map(_plain, own), key=repr)

    def log(self, table: str) -> list[tuple[Any, ...]]:
        """Return what the lake has of every change: key, operation, in order."""
        rows = self.lake.table(table).to_arrow(list(SYSTEM_COLUMNS)).to_pylist()
        return [(row["_tide_pk"], row["_tide_op"]) for row in sorted(rows, key=lambda row: row["_tide_lsn"])]


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Leave out nulls, so that a column that was dropped is no column, and write values alike."""
    return {name: _value(value) for name, value in sorted(row.items()) if value is not None}


def _value(value: Any) -> Any:
    if isinstance(value, dict | list):
        return orjson.dumps(value).decode()
    return str(value) if isinstance(value, Decimal) or type(value).__name__ == "UUID" else value


@pytest.fixture
def shop(postgres: str, lake: tidelake.Lake) -> Iterator[Shop]:
    """Yield a database and a lake, both empty; what a test leaves at the source is taken away."""
    url = fresh_database(postgres)
    with psycopg.connect(url, autocommit=True) as database:
        yield Shop(url, database, lake)
    for each in sources(lake.handle):
        each.remove()
