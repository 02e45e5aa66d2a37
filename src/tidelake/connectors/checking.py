"""Refuse, in words, what cannot be synced, whatever the kind of its source.

It does not ask sources.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tidelake.connectors.definition import SYSTEM_COLUMNS, SourceDefinition
from tidelake.connectors.protocol import SourceTable
from tidelake.errors import InvalidInputError, NotFoundError
from tidelake.model.lexer import did_you_mean

RESERVED = ("_overflow", "_seq", "_deleted", *SYSTEM_COLUMNS)


def check_tables(tables: Sequence[str], keys: Mapping[str, Sequence[str]], instead: str = "") -> None:
    """Raise InvalidInputError for a table that is not there, or whose rows cannot be told apart.

    ``keys`` has all tables with the columns that name a row, and ``instead`` says what else may be one.
    """
    for name in tables:
        if name not in keys:
            raise no_source_table(name, keys)
        if not keys[name]:
            raise InvalidInputError(
                f"the table has no primary key{instead}: rows cannot be told apart. ALTER TABLE … ADD PRIMARY KEY",
                table=name, kind="no_primary_key",
            )  # fmt: skip


def no_source_table(name: str, known: Iterable[str]) -> InvalidInputError:
    """Return the error of a table that a source has not, with what may be meant."""
    alike = [each for each in known if each.rpartition(".")[2].lower() == name.rpartition(".")[2].lower()]
    meant = f": is it {alike[0]}?" if alike else did_you_mean(name, known)
    return InvalidInputError(f"the source has no such table{meant}", table=name, kind="no_source_table")


def check_columns(tables: Iterable[SourceTable]) -> None:
    """Raise InvalidInputError for a column whose name a synced table needs itself."""
    for each in tables:
        if taken := [name for name in each.columns if name.lower() in RESERVED]:
            raise InvalidInputError(
                "a synced table has this column itself", table=each.name, column=taken[0], kind="reserved_column"
            )


def lost(definition: SourceDefinition, words: str, kind: str, **facts: object) -> NotFoundError:
    """Return the error of a source that has forgotten what was not read yet, with the way on."""
    name = definition.name
    return NotFoundError(
        f"{words}: read its tables again with tidelake sync run {name} --resync", source=name, kind=kind, **facts
    )
