"""Open a source by its kind; the library of each kind is imported when one is opened.

It does not run sources.
"""

from __future__ import annotations

from importlib import import_module

from tidelake.connectors.definition import SourceDefinition
from tidelake.connectors.protocol import Source
from tidelake.errors import InvalidInputError, not_installed

_SOURCES = {
    "postgres": ("tidelake.connectors.postgres.reading", "PostgresSource"),
    "mysql": ("tidelake.connectors.mysql.reading", "MysqlSource"),
    "mongo": ("tidelake.connectors.mongo.reading", "MongoSource"),
}


def open_source(definition: SourceDefinition) -> Source:
    """Return the source, not connected yet."""
    if definition.kind not in _SOURCES:
        raise InvalidInputError(
            "there is no way to sync such a source", source_kind=definition.kind, known=", ".join(_SOURCES),
            kind="bad_kind",
        )  # fmt: skip
    module, name = _SOURCES[definition.kind]
    try:
        found: Source = getattr(import_module(module), name)(definition)
    except ModuleNotFoundError as error:
        raise not_installed(error) or error from error
    return found
