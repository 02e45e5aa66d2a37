"""Open a lake and hold its tables: a catalog that says what is there, and a store that has the bytes.

::

    connect("lake")                                          a folder: SQLite catalog and objects inside it
    connect("postgresql://…", objects="s3://bucket/prefix")  for many machines
    connect("log:/data/prices")                              one table with its own transaction log

A folder is made on first use; one that holds something else is refused. What reads and writes rows brings compilers
with it, and is imported when a table is first held. It does not read or write rows: see ``table``.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from html import escape
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, Self, cast

from tidelake.catalog import Catalog, open_catalog
from tidelake.catalog.commit import Coordinator
from tidelake.catalog.protocol import At, nothing_at
from tidelake.errors import AlreadyExistsError, InvalidInputError, NotFoundError, redacted
from tidelake.model.schema import DataType, Schema
from tidelake.model.settings import FLUSH_AGE
from tidelake.model.snapshot import Snapshot
from tidelake.model.times import When, time_us
from tidelake.objects import ObjectStore, ensure_conditional_put, open_store
from tidelake.objects.protocol import DEADLINE_S
from tidelake.runtime.deferred import later
from tidelake.write.create import create_table
from tidelake.write.flush import Flusher

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidelake.catalog.log import log_catalog
    from tidelake.coverage.coverage_store import Holdings
    from tidelake.query.result import Result
    from tidelake.scan.extents import Footers
    from tidelake.table import AppendReport, Table
else:
    log_catalog = later("tidelake.catalog.log.log_catalog")

LOG_SCHEME = "log:"
FIRST_SEQUENCE = 1  # of a table that holds nothing yet


def connect(
    where: str | os.PathLike[str],
    *,
    objects: str | os.PathLike[str] | None = None,
    endpoint: str | None = None,
    key: str | None = None,
    secret: str | None = None,
    region: str | None = None,
    create: bool = True,
    deadline: float = DEADLINE_S,
) -> Lake:
    """Open a lake: a folder, a PostgreSQL address with an object store beside it, or the root of a log table.

    What is not there yet is made, unless told otherwise. When the catalog or the store stops answering, a call ends
    with an error within ``deadline`` seconds.
    """
    place = os.path.expanduser(os.fspath(where))  # ~ is the shell's word for one's home, and Python's nobody's
    if not 0 < deadline < math.inf:
        raise InvalidInputError("a deadline is a number of seconds above 0", deadline=deadline, kind="bad_deadline")
    store_options: dict[str, Any] = {"endpoint": endpoint, "key": key, "secret": secret, "region": region}
    store_options["deadline_s"] = deadline
    if place.startswith(LOG_SCHEME):
        store = open_store(place.removeprefix(LOG_SCHEME), create=create, **store_options)
        return Lake(log_catalog.open_log_catalog(store, create=create), store, place, deadline_s=deadline)
    if place.startswith(("postgresql://", "postgres://")):
        if objects is None:
            raise InvalidInputError("a postgresql catalog needs objects=, a folder or s3://bucket/prefix")
        store = open_store(objects, create=create, **store_options)
        if store.url.startswith("s3://"):
            ensure_conditional_put(store)
        return Lake(open_catalog(place, deadline_s=deadline), store, place, deadline_s=deadline)
    if "://" in place and not place.startswith("file://"):
        raise InvalidInputError(
            f"{place!r} is not a lake: give a folder, postgresql://… with objects=, or log:/root", kind="bad_address"
        )
    folder = Path(place.removeprefix("file://"))
    catalog = open_catalog(folder, create=create, deadline_s=deadline)
    store = open_store(folder if objects is None else objects, create=create, **store_options)
    return Lake(catalog, store, place, deadline_s=deadline)


class Lake:
    """A catalog and an object store; hold it open while you work, or use it in a ``with`` block."""

    def __init__(
        self,
        catalog: Catalog,
        store: ObjectStore,
        where: str,
        *,
        deadline_s: float = DEADLINE_S,
        at: At = nothing_at,
    ) -> None:
        self.catalog = catalog
        self.store = store
        self.where = redacted(where)
        self._address = where  # with its password, for processes that open the lake too
        self.coordinator = Coordinator(
            catalog,
            held_at=lambda snapshot: self.holdings.held_at(snapshot),
            completed=lambda commits, onto: self.holdings.completed(commits, onto),
            patience_s=deadline_s,
        )
        self.flusher = Flusher()
        self._at = at

    @cached_property
    def footers(self) -> Footers:
        """The footers of extents that this process has read."""
        from tidelake.scan.extents import Footers

        return Footers(self.store)

    @cached_property
    def holdings(self) -> Holdings:
        """What this process knows of the tables' coverage."""
        from tidelake.coverage.coverage_store import Holdings

        return Holdings(self.catalog, self.store, self.footers)

    def create_table(
        self,
        name: str,
        schema: Schema | Mapping[str, str | type | DataType],
        *,
        time: str | None = None,
        format: str | None = None,
        retention: str | None = None,
        flush_age: str = FLUSH_AGE,
        promote: bool = False,
        bucket: str | int | None = None,
        entity: str | Sequence[str] = (),
        coverage: str | None = None,
        index: str | None = None,
        timezone: str | None = None,
        schedule: str | None = None,
    ) -> Table:
        """Make a table. The time column is the one named, or the only timestamp there is.

        Hot rows are flushed in the background once the oldest is of ``flush_age``; ``"off"`` leaves that to others.
        With ``promote``, dynamic paths that have settled on one type become columns when an extent is written.

        With a ``bucket`` the table knows which time windows it holds of each ``entity``: ``coverage="exclusive"``
        refuses one that is held, ``"track"``, the default, takes it. An ``index`` of whole numbers may take the time's
        place. The format is ``tlm``, or in a transaction log ``parquet``, unless told otherwise.
        """
        create_table(
            self.catalog,
            name,
            schema,
            time=time,
            format=format,
            retention=retention,
            flush_age=flush_age,
            promote=promote,
            bucket=bucket,
            entity=entity,
            coverage=coverage,
            index=index,
            timezone=timezone,
            schedule=schedule,
        )
        return self.table(name)

    def table(self, name: str, *, as_of: When | None = None, snapshot: str | int | None = None) -> Table:
        """Hold a table as it is, or as it was at a time (``as_of``) or a snapshot (id or sequence)."""
        from tidelake.table import Table

        info = self.catalog.table(name)
        pinned = None if as_of is None and snapshot is None else self.snapshot(name, as_of=as_of, snapshot=snapshot)
        table = Table(
            self.catalog,
            self.store,
            self.coordinator,
            self.footers,
            info,
            pinned,
            flusher=self.flusher,
            holdings=self.holdings,
            at=self._at,
        )
        table._lake_address = self._address
        return table

    def snapshot(self, name: str, *, as_of: When | None = None, snapshot: str | int | None = None) -> Snapshot:
        """Give a table's newest snapshot, or the one at a time or with an id or a sequence."""
        scope = self.catalog.table(name).scope
        if as_of is not None and snapshot is not None:
            raise InvalidInputError("give as_of or snapshot, not both")
        if as_of is not None:
            return self.catalog.snapshot(scope, at_us=time_us(as_of))
        if isinstance(snapshot, int):
            return self.catalog.snapshot(scope, sequence=snapshot)
        return self.catalog.head(scope) if snapshot is None else self.catalog.snapshot(scope, snapshot_id=snapshot)

    def ingest(
        self,
        name: str,
        rows: Any,
        *,
        time: str | None = None,
        key: str | None = None,
        time_format: str | None = None,
        missing_time: str = "fail",
        lines: bool = False,
        delimiter: str | None = None,
        constants: Mapping[str, str] | None = None,
        skip_bad: bool = False,
        quarantine: str | os.PathLike[str] | None = None,
    ) -> AppendReport:
        """Append rows as ``Table.append`` does, to a table that is made to fit the first of them if it is not there.

        The time column is the one named, or found; ``time`` may also name a date and a time of day (``"Date+Time"``) or
        a path (``"System.TimeCreated"``). The other options are for files, as paths or open in binary: a
        ``time_format`` as ``strptime`` has it; what becomes of rows without a time (``missing_time``: ``"fail"``,
        ``"skip"`` or ``"now"``); ``lines`` to read text line by line whatever it looks like; the ``delimiter`` of CSV;
        ``constants`` that every row gets; ``skip_bad`` to pass over what cannot be read. Rows that are passed over are
        kept in the ``quarantine`` file, by default beside the program, and counted in the report.
        """
        from tidelake.ingest import FileRows, ReadOptions

        aside = None if quarantine is None else Path(quarantine)
        options = ReadOptions(
            time=time, time_format=time_format, missing_time=missing_time, lines=lines, delimiter=delimiter,
            constants=dict(constants or {}), skip_bad=skip_bad, quarantine=aside,
        )  # fmt: skip
        source = rows
        if isinstance(rows, str | os.PathLike):
            source = FileRows(Path(rows), options)
        elif isinstance(rows, bytes) and options != ReadOptions(time=time):
            source = FileRows(io.BytesIO(rows), options)
        elif isinstance(rows, io.RawIOBase | io.BufferedIOBase):
            source = FileRows(cast(BinaryIO, rows), options)
        elif not isinstance(rows, FileRows) and options != ReadOptions(time=time):
            raise InvalidInputError("these options are for files", got=type(rows).__name__, kind="bad_option")
        if not isinstance(source, FileRows):
            return self._ingest(name, source, time, key)
        try:
            report = self._ingest(name, source, time, key)
        except BaseException:
            source.abandon()
            raise
        source.finish()
        return report if source.quarantine is None else replace(report, skipped=source.quarantine.count)

    def _ingest(self, name: str, rows: Any, time: str | None, key: str | None) -> AppendReport:
        """Append rows to a table, which is made if need be; what fails or is stopped leaves none that was made."""
        try:
            table = self.table(name)
        except NotFoundError:
            rows, schema, found = self._fitting(rows, time)
            try:
                with suppress(AlreadyExistsError):  # another writer was as fast
                    self.create_table(name, schema, time=found)
                return self.table(name).append(rows, key=key)
            except BaseException:
                self._drop_unused(name)
                raise
        return table.append(rows, key=key)

    def _fitting(self, rows: Any, time: str | None) -> tuple[Any, Schema, str]:
        """Choose columns and the time column for rows; give all of them again, for some are read by then."""
        from tidelake.ingest import FileRows, first_rows, timed_schema

        if isinstance(rows, FileRows):
            return (rows, *rows.schema())
        sample, rows = first_rows(rows)
        return (rows, *timed_schema(sample, time=time))

    def _drop_unused(self, name: str) -> None:
        """Take away a table that was made for rows which did not come, unless others have used it since."""
        with suppress(Exception):  # what went wrong before is what the caller hears of
            if self.snapshot(name).sequence == FIRST_SEQUENCE:
                self.drop_table(name)

    def tables(self, namespace: str | None = None) -> list[str]:
        """List the names of the tables."""
        return [str(info) for info in self.catalog.tables(namespace)]

    def sql(self, text: str, *, engine: str = "auto", budget: Mapping[str, Any] | None = None) -> Result:
        """Ask in SQL, Spark's dialect; rows are read when the result is asked for them.

        Engines: ``local`` (in process), ``spark``, or ``auto``. A budget is a mapping with ``seconds``, ``memory`` and
        ``read``, such as ``{"seconds": 5, "memory": "1GB", "read": "200MB"}``.
        """
        from tidelake.query.session import run

        return run(self, text, language="sql", engine=engine, budget=budget)

    def kql(self, text: str, *, engine: str = "auto", budget: Mapping[str, Any] | None = None) -> Result:
        """Ask in KQL; otherwise as ``sql``."""
        from tidelake.query.session import run

        return run(self, text, language="kql", engine=engine, budget=budget)

    def drop_table(self, name: str) -> None:
        """Take a table away; what it held stays until it is collected."""
        self.catalog.drop_table(name)

    @property
    def spark(self) -> SparkSession:
        """The Spark session, ready to read and write tables; started when it is first asked for. Needs pyspark."""
        from tidelake.spark import session

        return session()

    def close(self) -> None:
        """Stop flushing in the background, and let go of connections. Hot rows stay hot, and lose nothing by it."""
        self.flusher.close()
        self.catalog.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><td>{escape(name)}</td></tr>" for name in self.tables())
        return f"<p>{escape(repr(self))}</p><table><thead><tr><th>table</th></tr></thead><tbody>{rows}</tbody></table>"

    def __repr__(self) -> str:
        return f"Lake({self.where!r}, objects={self.store.url!r})"
