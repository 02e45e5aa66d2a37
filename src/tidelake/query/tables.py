"""Define which tables a query may name, and their columns.

It does not read data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from tidelake.model.schema import DataType

# What may be asked about a table as if it were a table, and what an answer takes besides its first places.
ANSWER_PLACES = ("table", "start", "end")
ANSWERS: Mapping[str, frozenset[str]] = {
    "gaps": frozenset({"entity", "schedule", "least"}),
    "missing": frozenset({"entity", "schedule", "at_most"}),
    "held": frozenset({"entity"}),
    "coverage": frozenset({"entity", "schedule"}),
    "latest": frozenset(),  # of a synced table, what its source had when it was last read
    "live": frozenset(),  # the table of a source itself
}


class Tables(Protocol):
    """The tables that a query can see, by name: ``logs`` or ``obs.logs``."""

    def columns(self, name: str) -> Mapping[str, DataType]:
        """Return a table's columns in order; NotFoundError if there is no such table."""
        ...

    def names(self) -> Sequence[str]:
        """Return the names of all tables, for suggestions."""
        ...


@runtime_checkable
class Answering(Tables, Protocol):
    """Tables that can be asked what they hold and what is missing."""

    def answer(self, kind: str, words: Mapping[str, Any]) -> str:
        """Find an answer, and give the name under which it can be read like a table."""
        ...


@runtime_checkable
class Outside(Tables, Protocol):
    """Tables that can also read data from outside the lake."""

    def external(self, columns: Sequence[str], addresses: Sequence[str], options: Mapping[str, Any]) -> str:
        """Read addresses as columns of text, and give the name under which they can be read like a table."""
        ...
