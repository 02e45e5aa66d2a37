"""Know which objects of coded vectors are in use: no catalog lists them, they go where their extents go.

A codebook is in use while the settings of a table name it, also of one that was dropped and not purged. A sidecar is in
use while its extent is, and its codebook. It does not delete.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tidelake.catalog.protocol import Catalog, Garbage
from tidelake.errors import NotFoundError
from tidelake.model.settings import VECTOR_INDEX, columns_under
from tidelake.objects import vector_sidecar_key


@dataclass(frozen=True, slots=True)
class CodedVectors:
    """The codebooks that tables name, when this was asked."""

    codebooks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by the id of a table

    @classmethod
    def named_by(cls, catalog: Catalog, table_ids: Iterable[str]) -> CodedVectors:
        """Ask the tables of a catalog; one that is gone by now names none."""
        found = {}
        for table_id in table_ids:
            try:
                found[table_id] = codebooks_in(catalog.settings(table_id))
            except NotFoundError:
                continue
        return cls({table_id: keys for table_id, keys in found.items() if keys})

    @property
    def keys(self) -> list[str]:
        """The keys of all codebooks."""
        return sorted({key for keys in self.codebooks.values() for key in keys})

    @property
    def endings(self) -> list[str]:
        """How the names of sidecars end, after those of their extents."""
        return [vector_sidecar_key("", key) for key in self.keys]

    def sidecars_of(self, garbage: Iterable[Garbage]) -> Iterator[tuple[str, Garbage]]:
        """Name the sidecars that extents may have which are to be deleted."""
        for each in garbage:
            for codebook in self.codebooks.get(each.table_id, ()):
                yield vector_sidecar_key(each.key, codebook), each


def codebooks_in(settings: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the keys of the codebooks that settings name."""
    return tuple(told["codebook"] for _, told in columns_under(VECTOR_INDEX, settings))
