"""Let queries read tables of other databases in place: ``lake.attach("crm", url)``, then ``crm.orders``.

An attachment is kept in the lake beside the sources, under ``live-NAME``, with the tables that may be read; no other is
reachable. A table of the lake comes first where both have a name; ``live('crm.orders')`` always means the source, also
of a synced table without an attachment. Columns, conditions and limits go to the source; rows that it sends are looked
at again here. It does not change anything at a source.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module

import pyarrow as pa

from tidelake.catalog.protocol import new_id, parse_table_name
from tidelake.connectors import registry
from tidelake.connectors.checking import no_source_table
from tidelake.connectors.definition import SourceDefinition, kind_of, target_tables
from tidelake.connectors.in_place import Reader
from tidelake.errors import InvalidInputError, NotFoundError, not_installed
from tidelake.handle.lake_handle import LakeHandle
from tidelake.ingest import Rules, coerce_arrow
from tidelake.model.predicate import Predicate, columns_of
from tidelake.model.schema import OVERFLOW_COLUMN, Schema
from tidelake.model.snapshot import HotBatch, Scope, Snapshot
from tidelake.pruning.plan import Question
from tidelake.scan.footers import Footers
from tidelake.scan.hot import hot_payload
from tidelake.scan.scannable import RowsAtHand

# What reads each kind of source: imported when one is read, since it brings a library.
_READERS = {
    "postgres": ("tidelake.connectors.postgres.federating", "PostgresReader"),
    "mysql": ("tidelake.connectors.mysql.federating", "MysqlReader"),
}
PREFIX = "live-"


def attach(
    lake: LakeHandle, name: str, url: str, tables: Sequence[str] | Mapping[str, str] | None = None
) -> SourceDefinition:
    """Keep which tables of a source queries may read, as ``name.table``, in place of what the name had before."""
    parse_table_name(f"{name}.any")
    probe = SourceDefinition(f"{PREFIX}{name}", kind_of(url), url, {}, id=secrets.token_hex(4))
    reader = reader_of(probe)
    there = reader.tables()
    asked = there if tables is None else [tables] if isinstance(tables, str) else list(tables)
    for each in asked:
        if each not in there:
            raise no_source_table(each, there)
    targets = target_tables(tables if isinstance(tables, Mapping) else asked, name)
    if probe.name in registry.names(lake.store):
        return registry.change(lake.store, probe.name, lambda held: replace(held, url=url, tables=targets))
    return registry.add(lake.store, replace(probe, tables=targets))


def detach(lake: LakeHandle, name: str) -> None:
    """Forget an attachment."""
    registry.remove(lake.store, f"{PREFIX}{name}")


def attached_tables(lake: LakeHandle) -> list[str]:
    """Return the names under which tables of sources can be read."""
    names = [name for name in registry.names(lake.store) if name.startswith(PREFIX)]
    return sorted(table for name in names for table in registry.read(lake.store, name).tables.values())


def attached_table(lake: LakeHandle, name: str, *, is_live: bool = False) -> LiveRows | None:
    """Return a table of a source that queries may read under a name; with ``is_live``, also that of a synced table."""
    own = name if "." in name else f"default.{name}"
    kept = sorted(registry.names(lake.store), key=lambda each: not each.startswith(PREFIX))
    for source in kept:
        if not source.startswith(PREFIX) and not is_live:
            continue
        definition = registry.read(lake.store, source)
        for table, target in definition.tables.items():
            if target.lower() == own.lower():
                return LiveRows.of(definition, table, target, lake.footers)
    return None


def live_table(lake: LakeHandle, name: str) -> LiveRows:
    """Return a table of a source; NotFoundError if there is none of the name."""
    found = attached_table(lake, name, is_live=True)
    if found is None:
        raise NotFoundError("no source has a table of this name: attach one", table=name, kind="no_table")
    return found


def reader_of(definition: SourceDefinition) -> Reader:
    """Return what reads a source in place."""
    if definition.kind not in _READERS:
        raise InvalidInputError(
            "queries read PostgreSQL and MySQL in place: sync other sources", source_kind=definition.kind,
            kind="bad_kind",
        )  # fmt: skip
    module, name = _READERS[definition.kind]
    try:
        reader: Reader = getattr(import_module(module), name)(definition.url)
    except ModuleNotFoundError as error:
        raise not_installed(error) or error from error
    return reader


@dataclass(frozen=True, slots=True)
class LiveRows(RowsAtHand):
    """A table of a source, as a query scans it: read when the query is planned, and only what it asks for."""

    name: str
    source_table: str
    reader: Reader
    snapshot: Snapshot
    footers: Footers

    @classmethod
    def of(cls, definition: SourceDefinition, table: str, name: str, footers: Footers) -> LiveRows:
        """Describe a table of a source."""
        reader = reader_of(definition)
        schema = Schema.of(dict(reader.describe(table).columns))
        own = new_id()
        return cls(name, table, reader, Snapshot(Scope(own), 1, own, None, 0, "live", schema, {}), footers)

    def batches_for(self, question: Question, where: Predicate | None) -> tuple[Sequence[HotBatch], str]:
        """Read from the source what is asked for."""
        needed = {*question.columns, *(() if where is None else columns_of(where))}
        for name, computed in question.computed.items():
            needed.discard(name)
            needed.add(getattr(computed, "column", name))
        names = [name for name in self.schema.names if name in needed] or [self.schema.names[0]]
        batches, asked = self.reader.read(self.source_table, names, where, question.limit)
        return [self._hot(batch) for batch in batches if batch.num_rows], f"at the source: {asked}"

    def _hot(self, batch: pa.RecordBatch) -> HotBatch:
        own = Schema(tuple(self.schema[name] for name in batch.schema.names))
        fitted = coerce_arrow(batch, own, Rules()).batch
        if OVERFLOW_COLUMN in fitted.schema.names and OVERFLOW_COLUMN not in own:
            fitted = fitted.drop_columns([OVERFLOW_COLUMN])
        return HotBatch(new_id(), batch.num_rows, hot_payload(fitted), None, None, self.schema.version)
