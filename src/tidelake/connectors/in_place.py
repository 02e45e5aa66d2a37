"""Define what reads tables of a source for one query, and how much it may read.

What is read lives for one query, and is bounded: larger questions are for a synced copy. It does not know kinds of
sources: see ``attached``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import pyarrow as pa

from tidelake.connectors.protocol import SourceTable
from tidelake.errors import UnavailableError
from tidelake.model.predicate import Predicate

TIMEOUT_S = 60
MAX_BYTES = 256 << 20


class Reader(Protocol):
    """What reads tables of a kind of source in place."""

    def describe(self, table: str) -> SourceTable:
        """Return a table's columns in the lake's types."""
        ...

    def tables(self) -> list[str]:
        """Return the names of all tables."""
        ...

    def read(
        self, table: str, columns: Sequence[str], where: Predicate | None, limit: int | None
    ) -> tuple[list[pa.RecordBatch], str]:
        """Return rows that may match, and what was asked of the source."""
        ...


def gathered(table: str, batches: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return the rows that a source sends; UnavailableError if they are too many for one question."""
    found, size = list[pa.RecordBatch](), 0
    for batch in batches:
        found.append(batch)
        size += batch.nbytes
        if size > MAX_BYTES:
            raise UnavailableError(
                "the source has too many rows for one question: ask for fewer, or sync the table",
                table=table, bytes=MAX_BYTES, kind="read_budget",
            )  # fmt: skip
    return found


def limit_sent(limit: int | None, where: Predicate | None, *, is_exact: bool) -> int | None:
    """Return the limit that a source may be asked for: none where it sends rows that a condition drops here."""
    return limit if where is None or is_exact else None
