"""Change a database at random, with its tables altered in between, from a seed.

It does not know who follows the changes.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

TABLES = ("accounts", "pairs")
MAX_KEY = 60


class Changes:
    """Random changes of two tables; the same seed and the same answers give the same changes."""

    def __init__(self, database: Any, seed: int, *, with_identity: bool = True) -> None:
        self.database, self._random, self._columns = database, random.Random(seed), 0
        self._has_identity = with_identity

    def make_tables(self) -> None:
        """Make both tables, with some rows."""
        self._do("CREATE TABLE accounts (id int PRIMARY KEY, n int, body text, amount numeric(12,2), at timestamptz)")
        self._do("CREATE TABLE pairs (a text, b int, n int, PRIMARY KEY (a, b))")
        for _ in range(10):
            self.change()

    def change(self) -> None:
        """Commit a transaction, or alter a table."""
        draw = self._random.random()
        if draw < 0.06:
            self.alter()
            return
        with self.database.transaction(force_rollback=self._random.random() < 0.08):
            for _ in range(self._random.choice((1, 1, 2, 5, 20))):
                self._do(self._statement())
                if draw > 0.97:
                    self.alter()

    def alter(self) -> None:
        """Alter a table: a column more, less, renamed, or of a wider type."""
        table = self._random.choice(TABLES)
        extra = [name for name in self._names(table) if name.startswith("x")]
        draw = self._random.random()
        if draw < 0.4 or not extra:
            self._columns += 1
            kind = self._random.choice(("int", "text", "int DEFAULT 7", "boolean", "text DEFAULT 'd'", "numeric(8,3)"))
            self._do(f"ALTER TABLE {table} ADD COLUMN x{self._columns} {kind}")
        elif draw < 0.6:
            self._do(f"ALTER TABLE {table} DROP COLUMN {self._random.choice(extra)}")
        elif draw < 0.75:
            self._columns += 1
            self._do(f"ALTER TABLE {table} RENAME COLUMN {self._random.choice(extra)} TO x{self._columns}")
        elif draw < 0.9:
            self._do(f"ALTER TABLE {table} ALTER COLUMN n TYPE bigint")
        elif self._has_identity:
            self._do(f"ALTER TABLE {table} REPLICA IDENTITY {self._random.choice(('FULL', 'DEFAULT'))}")

    def _statement(self) -> str:
        draw, key, number = self._random.random(), self._random.randrange(MAX_KEY), self._random.randrange(1000)
        if draw < 0.01:
            return f"TRUNCATE {self._random.choice(TABLES)}"
        if draw < 0.35:
            body = "NULL" if number < 100 else f"repeat('{number}-', {self._random.choice((1, 3, 4000))})"
            values = f"({key}, {number}, {body}, {number / 7:.2f}, '2026-01-01'::timestamptz + interval '{number} s')"
            insert = f"INSERT INTO accounts (id, n, body, amount, at) VALUES {values}"
            return f"{insert} ON CONFLICT (id) DO UPDATE SET n = excluded.n, body = excluded.body"
        if draw < 0.55:
            return f"UPDATE accounts SET n = {number}, amount = amount + 1 WHERE id BETWEEN {key} AND {key + 2}"
        if draw < 0.62:
            return f"DELETE FROM accounts WHERE id = {key}"
        if draw < 0.68:
            free = f"NOT EXISTS (SELECT 1 FROM accounts WHERE id = {key + MAX_KEY})"
            return f"UPDATE accounts SET id = {key + MAX_KEY} WHERE id = {key} AND {free}"
        if draw < 0.9:
            return (
                f"INSERT INTO pairs (a, b, n) VALUES ('k:{key % 7}%', {key}, {number}) "
                f"ON CONFLICT (a, b) DO UPDATE SET n = excluded.n"
            )
        return f"DELETE FROM pairs WHERE b = {key}"

    def _names(self, table: str) -> Sequence[str]:
        found = self.database.execute(
            "SELECT attname::text FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped",
            [table],
        )
        return [name for (name,) in found]

    def _do(self, statement: str) -> None:
        self.database.execute(statement.encode())


class MariaChanges(Changes):
    """The same in the words of MariaDB, whose alterations are transactions of their own."""

    def make_tables(self) -> None:
        self._do(
            "CREATE TABLE accounts (id int PRIMARY KEY, n int, body mediumtext, amount decimal(12,2), at datetime(6))"
        )
        self._do("CREATE TABLE pairs (a varchar(20), b int, n int, PRIMARY KEY (a, b))")
        for _ in range(10):
            self.change()

    def change(self) -> None:
        draw = self._random.random()
        if draw < 0.06:
            self.alter()
            return
        self._do("BEGIN")
        for _ in range(self._random.choice((1, 1, 2, 5, 20))):
            self._do(self._statement())
        self._do("ROLLBACK" if self._random.random() < 0.08 else "COMMIT")
        if draw > 0.99:
            self._do("FLUSH BINARY LOGS")

    def alter(self) -> None:
        table = self._random.choice(TABLES)
        extra = [name for name in self._names(table) if name.startswith("x")]
        draw = self._random.random()
        if draw < 0.08:
            self._do(f"TRUNCATE {table}")
        elif draw < 0.45 or not extra:
            self._columns += 1
            kind = self._random.choice(
                ("int", "text", "int DEFAULT 7", "boolean", "varchar(9) DEFAULT 'd' FIRST", "decimal(8,3)")
            )
            self._do(f"ALTER TABLE {table} ADD COLUMN x{self._columns} {kind}")
        elif draw < 0.6:
            self._do(f"ALTER TABLE {table} DROP COLUMN {self._random.choice(extra)}")
        elif draw < 0.75:
            self._columns += 1
            self._do(f"ALTER TABLE {table} RENAME COLUMN {self._random.choice(extra)} TO x{self._columns}")
        elif draw < 0.85:
            self._do(f"ALTER TABLE {table} MODIFY n bigint")
        elif draw < 0.93:
            self._columns += 1
            self._do(f"CREATE TABLE spare LIKE {table}")
            self._do(f"INSERT INTO spare SELECT * FROM {table} WHERE n % 2 = 0")
            self._do(f"RENAME TABLE {table} TO gone, spare TO {table}")
            self._do("DROP TABLE gone")
        else:
            self._do(f"ALTER TABLE {table} ENGINE = InnoDB")

    def _statement(self) -> str:
        draw, key, number = self._random.random(), self._random.randrange(MAX_KEY), self._random.randrange(1000)
        if draw < 0.35:
            body = "NULL" if number < 100 else f"repeat('{number}-', {self._random.choice((1, 3, 4000))})"
            values = f"({key}, {number}, {body}, {number / 7:.2f}, '2026-01-01' + INTERVAL {number} SECOND)"
            insert = f"INSERT INTO accounts (id, n, body, amount, at) VALUES {values}"
            return f"{insert} ON DUPLICATE KEY UPDATE n = values(n), body = values(body)"
        if draw < 0.55:
            return f"UPDATE accounts SET n = {number}, amount = amount + 1 WHERE id BETWEEN {key} AND {key + 2}"
        if draw < 0.62:
            return f"DELETE FROM accounts WHERE id = {key}"
        if draw < 0.68:
            return f"UPDATE IGNORE accounts SET id = {key + MAX_KEY} WHERE id = {key}"
        if draw < 0.9:
            return (
                f"INSERT INTO pairs (a, b, n) VALUES ('k:{key % 7}%%', {key}, {number}) "
                f"ON DUPLICATE KEY UPDATE n = values(n)"
            )
        return f"DELETE FROM pairs WHERE b = {key}"

    def _names(self, table: str) -> Sequence[str]:
        with self.database.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {table} LIMIT 0")
            return [column[0] for column in cursor.description]

    def _do(self, statement: str) -> None:
        with self.database.cursor() as cursor:
            cursor.execute(statement.replace("%%", "%"))
