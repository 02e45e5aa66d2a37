"""Hold a database beside a lake, and compare what the lake has with what the database has."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import orjson
import psycopg
import pymysql
import pytest

import tidelake
from tests.support.databases import Machine, mariadb_machine
from tests.support.servers import fresh_database
from tidelake.connectors.definition import SYSTEM_COLUMNS
from tidelake.connectors.sources import sources


@dataclass(frozen=True, slots=True)
class Shop:
    """A database of PostgreSQL, and the lake that is synced from it."""

    url: str
    database: Any
    lake: tidelake.Lake

    def __call__(self, *statements: str) -> None:
        for statement in statements:
            self.database.execute(statement.encode())

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return what the source has, as the lake would show it."""
        found = self.database.execute(f"SELECT * FROM {table}".encode())
        names = [column.name for column in found.description or ()]
        return sorted((_plain(dict(zip(names, row, strict=True))) for row in found), key=repr)

    def names(self, table: str) -> set[str]:
        """Return the columns that the source has."""
        found = self.database.execute(f"SELECT * FROM {table} LIMIT 0".encode())
        return {column.name for column in found.description or ()}

    def latest(self, table: str) -> list[dict[str, Any]]:
        """Return what the lake says that the source has, without columns that the source has not."""
        rows = self.lake.table(table).latest().read_all().to_pylist()
        own = [{name: value for name, value in row.items() if name not in SYSTEM_COLUMNS} for row in rows]
        return sorted(map(_plain, own), key=repr)

    def log(self, table: str) -> list[tuple[Any, ...]]:
        """Return what the lake has of every change: key, operation, in order."""
        rows = self.lake.table(table).to_arrow(list(SYSTEM_COLUMNS)).to_pylist()
        return [(row["_tide_pk"], row["_tide_op"]) for row in sorted(rows, key=lambda row: row["_tide_lsn"])]


@dataclass(frozen=True, slots=True)
class Market(Shop):
    """A database of MariaDB, and the lake that is synced from it."""

    def __call__(self, *statements: str) -> None:
        with self.database.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def rows(self, table: str) -> list[dict[str, Any]]:
        with self.database.cursor(pymysql.cursors.DictCursor) as cursor:
            cursor.execute(f"SELECT * FROM {table}")
            return sorted((_plain(dict(row)) for row in cursor.fetchall()), key=repr)

    def names(self, table: str) -> set[str]:
        with self.database.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {table} LIMIT 0")
            return {column[0] for column in cursor.description}


def market_of(machine: Machine, lake: tidelake.Lake, name: str | None = None) -> Market:
    """Open a database of a server; a new one unless it is named."""
    port, own = int(machine.url.rpartition(":")[2]), name or f"shop_{secrets.token_hex(4)}"
    database = pymysql.connect(host="127.0.0.1", port=port, user="root", autocommit=True)
    with database.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE IF NOT EXISTS {own}")
    database.select_db(own)
    return Market(f"{machine.url}/{own}", database, lake)


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


@pytest.fixture(scope="session")
def mariadb() -> Iterator[Machine]:
    """Run MariaDB, where it is installed."""
    with mariadb_machine() as machine:
        yield machine


@pytest.fixture
def market(mariadb: Machine, lake: tidelake.Lake) -> Iterator[Market]:
    """Yield a database of MariaDB and a lake, both empty."""
    found = market_of(mariadb, lake)
    yield found
    found.database.close()
