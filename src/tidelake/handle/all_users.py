"""Read the rows of all users of a table, one user after another, for operators: whose a row is stands in ``_user``.

Each user's rows are those of one snapshot, the newest when its turn comes. No more is in memory than of one user. It
does not write.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tidelake.dynamic.forms import table_in_form
from tidelake.errors import ConflictError, InvalidInputError
from tidelake.handle.table_handle import TableHandle
from tidelake.model.predicate import Predicate
from tidelake.model.snapshot import Scope, empty_snapshot
from tidelake.model.times import When

USER_COLUMN = "_user"
NOBODY = " "  # which is no user id


@dataclass(frozen=True, slots=True)
class AllUsers:
    """The rows of all users of a table, with whose they are as the column ``_user``."""

    table: TableHandle

    def scan(
        self,
        columns: list[str] | None = None,
        where: Predicate | str | None = None,
        *,
        start: When | None = None,
        end: When | None = None,
        limit: int | None = None,
        dynamic: str = "json",
    ) -> pa.RecordBatchReader:
        """Stream the rows that match, as ``Table.scan`` does, the users in their order."""
        wanted = None if columns is None else [name for name in columns if name != USER_COLUMN]
        read = wanted if wanted or wanted is None else [self.table.schema.names[0]]  # rows are counted by something
        asked: dict[str, Any] = {"start": start, "end": end, "dynamic": dynamic}
        plain = self._nobody().scan(read, where, **asked).schema
        names = plain.names if wanted is None else wanted
        schema = pa.schema([*(plain.field(name) for name in names), pa.field(USER_COLUMN, pa.string())])

        def batches() -> Iterator[pa.RecordBatch]:
            left = limit
            for user in self.table.users():
                if left is not None and left <= 0:
                    return
                with self.table.of_user(user).scan(read, where, limit=left, **asked) as reader:
                    if reader.schema.types != plain.types:
                        raise ConflictError(
                            "the schema changed while all users were read: read again", table=self.table.name,
                            kind="schema",
                        )  # fmt: skip
                    for batch in reader:
                        whose = pa.repeat(pa.scalar(user), batch.num_rows)
                        arrays = [*(batch.column(name) for name in names), whose]
                        left = None if left is None else left - batch.num_rows
                        yield pa.RecordBatch.from_arrays(arrays, schema=schema)

        return pa.RecordBatchReader.from_batches(schema, batches())

    def _nobody(self) -> TableHandle:
        """Return the table of a user who cannot be, which has no rows and the schema of all."""
        head = self.table.snapshot
        scope = Scope(self.table.info.id, NOBODY)
        empty = empty_snapshot(scope, head.schema, head.settings)
        return TableHandle(self.table.lake, self.table.info, empty, user=NOBODY)

    def to_arrow(
        self, columns: list[str] | None = None, where: Predicate | str | None = None, *, dynamic: str = "json"
    ) -> pa.Table:
        """Read matching rows of all users into one Arrow table."""
        return table_in_form(self.scan(columns, where, dynamic="cbor"), dynamic)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Let any reader of Arrow streams read all rows."""
        return self.scan().__arrow_c_stream__(requested_schema)


def all_users(table: TableHandle) -> AllUsers:
    """Hold the rows of all users; InvalidInputError for a shared table, and for one user's."""
    table.users()
    check_no_user_column(table)
    return AllUsers(table)


def check_no_user_column(table: TableHandle) -> None:
    """Refuse a table that has a column of the name under which its users would stand."""
    if USER_COLUMN in table.schema:
        raise InvalidInputError(
            f"the table has a column {USER_COLUMN}: its users have no place beside it", table=table.name, kind="taken"
        )
