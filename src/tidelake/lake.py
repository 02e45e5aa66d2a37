"""Open a lake and hold its tables: a catalog that says what is there, and a store that has the bytes.

::

    connect("lake")                                          a folder: SQLite catalog and objects inside it
    connect("postgresql://…", objects="s3://bucket/prefix")  for many machines
    connect("log:/data/prices")                              one table with its own transaction log

A folder is made on first use; one that holds something else is refused. It does not read or write rows: see ``table``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tidelake.catalog import Catalog, open_catalog
from tidelake.catalog.log import open_log_catalog
from tidelake.commit import Coordinator
from tidelake.errors import InvalidInputError, SchemaError
from tidelake.format import segment_format
from tidelake.objects import ObjectStore, open_store, probe_conditional_put
from tidelake.scan import Footers
from tidelake.schema import DataType, Schema
from tidelake.snapshot import Snapshot
from tidelake.table import Table, TableSettings
from tidelake.times import duration_us, time_us

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG_SCHEME = "log:"


def connect(
    where: str | os.PathLike[str],
    *,
    objects: str | os.PathLike[str] | None = None,
    endpoint: str | None = None,
    key: str | None = None,
    secret: str | None = None,
    region: str | None = None,
    create: bool = True,
) -> Lake:
    """Open a lake: a folder, a PostgreSQL address with an object store beside it, or the root of a log table.

    What is not there yet is made, unless told otherwise.
    """
    place = os.fspath(where)
    store_options: dict[str, Any] = {"endpoint": endpoint, "key": key, "secret": secret, "region": region}
    if place.startswith(LOG_SCHEME):
        store = open_store(place.removeprefix(LOG_SCHEME), create=create, **store_options)
        return Lake(open_log_catalog(store, create=create), store, place)
    if place.startswith(("postgresql://", "postgres://")):
        if objects is None:
            raise InvalidInputError("a postgresql catalog needs objects=, a folder or s3://bucket/prefix")
        store = open_store(objects, create=create, **store_options)
        if store.url.startswith("s3://"):
            probe_conditional_put(store)
        return Lake(open_catalog(place), store, place)
    if "://" in place and not place.startswith("file://"):
        raise InvalidInputError(
            f"{place!r} is not a lake: give a folder, postgresql://… with objects=, or log:/root", kind="bad_address"
        )
    folder = Path(place.removeprefix("file://"))
    catalog = open_catalog(folder, create=create)
    return Lake(catalog, open_store(folder if objects is None else objects, create=create, **store_options), place)


class Lake:
    """A catalog and an object store; hold it open while you work, or use it in a ``with`` block."""

    def __init__(self, catalog: Catalog, store: ObjectStore, where: str) -> None:
        self.catalog = catalog
        self.store = store
        self.where = where
        self.coordinator = Coordinator(catalog)
        self.footers = Footers(store)

    def create_table(
        self,
        name: str,
        schema: Schema | Mapping[str, str | DataType],
        *,
        time: str | None = None,
        format: str = "tlm",
        retention: str | None = None,
    ) -> Table:
        """Make a table. The time column is the one named, or the only timestamp there is."""
        columns = schema if isinstance(schema, Schema) else Schema.of(schema)
        settings = TableSettings(time=_time_of(columns, time), format=segment_format(format).name, retention=retention)
        if retention is not None:
            duration_us(retention)
        self.catalog.create_table(name, columns, settings.to_json())
        return self.table(name)

    def table(
        self, name: str, *, as_of: str | datetime | int | None = None, snapshot: str | int | None = None
    ) -> Table:
        """Hold a table as it is, or as it was at a time (``as_of``) or a snapshot (id or sequence)."""
        info = self.catalog.table(name)
        pinned: Snapshot | None = None
        if as_of is not None and snapshot is not None:
            raise InvalidInputError("give as_of or snapshot, not both")
        if as_of is not None:
            pinned = self.catalog.snapshot(info.scope, at_us=time_us(as_of))
        elif isinstance(snapshot, int):
            pinned = self.catalog.snapshot(info.scope, sequence=snapshot)
        elif snapshot is not None:
            pinned = self.catalog.snapshot(info.scope, snapshot_id=snapshot)
        table = Table(self.catalog, self.store, self.coordinator, self.footers, info, pinned)
        table.lake = self.where
        return table

    def tables(self, namespace: str | None = None) -> list[str]:
        """List the names of the tables."""
        return [str(info) for info in self.catalog.tables(namespace)]

    def drop_table(self, name: str) -> None:
        """Take a table away; what it held stays until it is collected."""
        self.catalog.drop_table(name)

    @property
    def spark(self) -> SparkSession:
        """The Spark session, ready to read and write tables; started when it is first asked for. Needs pyspark."""
        from tidelake.spark import session

        return session()

    def close(self) -> None:
        """Let go of connections."""
        self.catalog.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Lake({self.where!r}, objects={self.store.url!r})"


def _time_of(schema: Schema, name: str | None) -> str | None:
    if name is not None:
        if schema[name].type.kind != "timestamp":
            raise SchemaError("the time column must be a timestamp", column=name, type=schema[name].type)
        return name
    times = [column.name for column in schema if column.type.kind == "timestamp"]
    if len(times) > 1:
        raise SchemaError("several timestamps: name the time column with time=", columns=", ".join(times))
    return times[0] if times else None
