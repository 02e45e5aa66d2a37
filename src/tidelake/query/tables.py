"""Say which tables a query may name, and their columns.

It does not read data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tidelake.schema import DataType


class Tables(Protocol):
    """The tables that a query can see, by name: ``logs`` or ``obs.logs``."""

    def columns(self, name: str) -> Mapping[str, DataType]:
        """Give a table's columns in order; NotFoundError if there is no such table."""
        ...

    def names(self) -> Sequence[str]:
        """Give the names of all tables, for suggestions."""
        ...
