"""Open a lake and hold its tables: a catalog that says what is there, and a store that has the bytes.

::

    connect("lake")                                          a folder: SQLite catalog and objects inside it
    connect("postgresql://…", objects="s3://bucket/prefix")  for many machines
    connect("log:/data/prices")                              one table with its own transaction log

A folder is made on first use; one that holds something else is refused. What reads and writes rows brings compilers
with it, and is imported when a table is first held. It does not read or write rows: see ``table``.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidelake.catalog.names import check_user
from tidelake.errors import InvalidInputError
from tidelake.handle.lake_handle import LakeHandle
from tidelake.handle.opening import open_lake
from tidelake.model.schema import DataType, Schema
from tidelake.model.settings import HISTORY, SHARED
from tidelake.model.snapshot import Snapshot
from tidelake.model.times import When
from tidelake.objects.protocol import DEADLINE_S
from tidelake.runtime.closing import Closing
from tidelake.runtime.deferred import deferred
from tidelake.write.create import create_table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from tidelake import ingest as sources
    from tidelake import spark as spark_module
    from tidelake import table as table_module
    from tidelake.connectors import attached as attaching
    from tidelake.connectors import listing as source_listing
    from tidelake.connectors import sources as connecting
    from tidelake.connectors.runner import SyncReport
    from tidelake.connectors.sources import SyncedSource
    from tidelake.handle import table_handle
    from tidelake.handle.table_handle import TableHandle
    from tidelake.maintain import background, worker
    from tidelake.maintain import collect as collecting
    from tidelake.maintain import status as health
    from tidelake.maintain.collect import CollectReport
    from tidelake.maintain.worker import MaintainReport
    from tidelake.manifest import listing
    from tidelake.query import session
    from tidelake.query.promql import asking as promql_module
    from tidelake.query.promql.answer import PromAnswer
    from tidelake.query.result import Result
    from tidelake.table import Table
    from tidelake.write import ingest as ingesting
    from tidelake.write.append import AppendReport
else:  # what reads rows, and the engines, are imported when they are first used
    table_module, table_handle = deferred("tidelake.table"), deferred("tidelake.handle.table_handle")
    collecting = deferred("tidelake.maintain.collect")
    sources, ingesting = deferred("tidelake.ingest"), deferred("tidelake.write.ingest")
    session, spark_module = deferred("tidelake.query.session"), deferred("tidelake.spark")
    promql_module = deferred("tidelake.query.promql.asking")
    health, worker = deferred("tidelake.maintain.status"), deferred("tidelake.maintain.worker")
    attaching = deferred("tidelake.connectors.attached")
    connecting, source_listing = deferred("tidelake.connectors.sources"), deferred("tidelake.connectors.listing")
    background, listing = deferred("tidelake.maintain.background"), deferred("tidelake.manifest.listing")

LOOK_AFTER_S = 20.0  # a write, what is due is done in the background


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
    upkeep: bool = True,
    cache: str | os.PathLike[str] | None = None,
    adopt: Mapping[str, Sequence[str]] | None = None,
) -> Lake:
    """Open a lake: a folder, a PostgreSQL address with an object store beside it, or the root of a log table.

    What is not there yet is made, unless told otherwise. When the catalog or the store stops answering, a call ends
    with an error within ``deadline`` seconds. Tables that are written to are looked after in the background, unless
    ``upkeep`` is False. Copies of manifests that this machine keeps are in the folder ``cache``; by default beside the
    catalog of a lake in a folder, and otherwise where ``TIDELAKE_CACHE`` says or in the user's cache folder.

    A folder without a catalog that holds tables of segments with their ``manifest.json`` is adopted: ``adopt`` names
    the key columns of such tables, if neither their manifests nor their statistics tell.
    """
    handle = open_lake(
        where, objects=objects, endpoint=endpoint, key=key, secret=secret, region=region, create=create,
        deadline=deadline, after_write=_look_after if upkeep else None, cache=cache,
        adopt=adopt,
    )  # fmt: skip
    return Lake(handle)


def _look_after(table: TableHandle, head: Snapshot) -> None:
    """Have a table looked after some time after a write, in the background."""
    if head.settings.get("upkeep") is not False:
        whole = table.whole  # of many users, what is due is found by an index
        table.lake.flusher.notice(("upkeep", whole.place), lambda: background.step(whole), LOOK_AFTER_S)


class Lake(Closing):
    """A catalog and an object store; hold it open while you work, or use it in a ``with`` block."""

    def __init__(self, handle: LakeHandle, user: str | None = None) -> None:
        self._handle, self._user = handle, user
        self.catalog, self.store, self.where = handle.catalog, handle.store, handle.where

    @property
    def handle(self) -> LakeHandle:
        """What the lake consists of, as a frozen value: its catalog, its store, and what this process knows of them."""
        return self._handle

    def user(self, id: str) -> Lake:
        """Hold the lake as one user sees it: where each user has a table, it is theirs, and no other can be named.

        What it reads and writes with is this lake's; closing one closes both.
        """
        if self._user is not None:
            raise InvalidInputError("this is one user's lake already", kind="has_user")
        return Lake(self._handle, check_user(id))

    @property
    def user_id(self) -> str | None:
        """The user whose lake this is, as ``user`` gives it; None if it is nobody's."""
        return self._user

    def create_table(
        self,
        name: str,
        schema: Schema | Mapping[str, str | type | DataType],
        *,
        time: str | None = None,
        format: str | None = None,
        retention: str | None = None,
        flush_age: str | None = None,
        promote: bool = False,
        history: str = HISTORY,
        cluster_by: Sequence[str] = (),
        upkeep: bool = True,
        scope: str = SHARED,
        key: str | Sequence[str] = (),
        flush_rows: int | None = None,
        compaction: Mapping[str, int] | None = None,
        bucket: str | int | None = None,
        entity: str | Sequence[str] = (),
        coverage: str | None = None,
        index: str | None = None,
        timezone: str | None = None,
        schedule: str | None = None,
    ) -> Table:
        """Make a table. The time column is the one named, or the only timestamp there is.

        With ``scope="user"`` each user has a table of their own, ``lake.table(name).user("alice")``.

        Hot rows are flushed in the background once the oldest is of ``flush_age``, by default 60 seconds, or a day
        where each user has a table; ``"off"`` leaves that to others.
        With ``promote``, dynamic paths that have settled on one type become columns when an extent is written.

        Rows older than ``retention`` by their time column leave, snapshots older than ``history`` expire, compaction
        sorts by the ``cluster_by`` columns before time; whoever writes does due upkeep by the way unless ``upkeep`` is
        False.

        With a ``key``, an append takes the place of rows with the same values in those columns, and readers see the
        newest. Its last segments are united by the limits in ``compaction``: ``min_segments`` (5) that are small,
        ``max_segments`` (8) at a time, and ``max_rows`` below which one is small (25,000, or 10,000 of a user). More
        hot rows than ``flush_rows`` are flushed whatever their age.

        With a ``bucket`` the table knows which time windows it holds of each ``entity``: ``coverage="exclusive"``
        refuses one that is held, ``"track"``, the default, takes it. An ``index`` of whole numbers may take the time's
        place. The format is ``tlm``, or in a transaction log ``parquet``, unless told otherwise; ``tlm`` is the body of
        extents that suits most tables, ``tlm2`` and ``tlm3`` are one body for good.
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
            history=history,
            cluster_by=cluster_by,
            upkeep=upkeep,
            scope=scope,
            key=key,
            flush_rows=flush_rows,
            compaction=compaction,
            bucket=bucket,
            entity=entity,
            coverage=coverage,
            index=index,
            timezone=timezone,
            schedule=schedule,
        )
        return self.table(name)

    def table(
        self, name: str, *, as_of: When | None = None, snapshot: str | int | None = None, user: str | None = None
    ) -> Table:
        """Hold a table as it is, or as it was at a time (``as_of``) or a snapshot (id or sequence).

        Of a table that was made with ``scope="user"``, it is the table of one ``user``; without one it can be described
        and altered, and lists its users.
        """
        handles, own = table_handle.TableHandle, self._own_user(user)
        find = handles.open if self._user is None else handles.seen_by
        return table_module.Table(find(self.handle, name, user=own, as_of=as_of, snapshot=snapshot))

    def snapshot(
        self, name: str, *, as_of: When | None = None, snapshot: str | int | None = None, user: str | None = None
    ) -> Snapshot:
        """Return a table's newest snapshot, or the one at a time or with an id or a sequence; or that of a user."""
        own = self._own_user(user)
        if self._user is not None and not self.handle.has_users(self.catalog.table(name)):
            own = None
        return self.handle.snapshot(name, as_of=as_of, snapshot=snapshot, user=own)

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
        user: str | None = None,
    ) -> AppendReport:
        """Append rows as ``Table.append`` does, to a table that is made to fit the first of them if it is not there.

        The time column is the one named, or found; ``time`` may also name a date and a time of day (``"Date+Time"``) or
        a path (``"System.TimeCreated"``). The other options are for files, as paths or open in binary: a
        ``time_format`` as ``strptime`` has it; what becomes of rows without a time (``missing_time``: ``"fail"``,
        ``"skip"`` or ``"now"``); ``lines`` to read text line by line whatever it looks like; the ``delimiter`` of CSV;
        ``constants`` that every row gets; ``skip_bad`` to pass over what cannot be read. Rows that are passed over are
        kept in the ``quarantine`` file, by default beside the program, and counted in the report. The rows of a
        ``user`` go to that user's table; a table that is made for them has one for each user.
        """
        aside = None if quarantine is None else Path(quarantine)
        options = sources.ReadOptions(
            time=time, time_format=time_format, missing_time=missing_time, lines=lines, delimiter=delimiter,
            constants=dict(constants or {}), skip_bad=skip_bad, quarantine=aside,
        )  # fmt: skip
        own = self._own_user(user)
        return ingesting.ingest(self.handle, name, rows, options, key=key, user=own, or_shared=self._user is not None)

    def tables(self, namespace: str | None = None) -> list[str]:
        """List the names of the tables."""
        return self.handle.tables(namespace)

    def sql(
        self, text: str, *, engine: str = "auto", budget: Mapping[str, Any] | None = None, user: str | None = None
    ) -> Result:
        """Ask in SQL, Spark's dialect; rows are read when the result is asked for them.

        Where each user has a table, that of ``user`` is meant; or the one that the text names first, by
        ``SET tide.user = 'alice';``.

        Engines: ``local`` (in process), ``spark``, or ``auto``. A budget is a mapping with ``seconds``, ``memory`` and
        ``read``, such as ``{"seconds": 5, "memory": "1GB", "read": "200MB"}``.
        """
        return session.run(self, text, language="sql", engine=engine, budget=budget, user=self._own_user(user))

    def kql(
        self, text: str, *, engine: str = "auto", budget: Mapping[str, Any] | None = None, user: str | None = None
    ) -> Result:
        """Ask in KQL; otherwise as ``sql``, but that a text names no user."""
        return session.run(self, text, language="kql", engine=engine, budget=budget, user=self._own_user(user))

    def promql(
        self,
        text: str,
        *,
        time: When | None = None,
        start: When | None = None,
        end: When | None = None,
        step: str | float | None = None,
        table: str | Mapping[str, Any] = "prom_samples",
        lookback: str | float = "5m",
        budget: Mapping[str, Any] | None = None,
        user: str | None = None,
    ) -> PromAnswer:
        """Ask in PromQL: an instant query at ``time``, by default now, or a range query from ``start`` to ``end``.

        A ``step``, by default a minute, is text such as ``30s`` or a number of seconds; a sample stands for its series
        as long as ``lookback`` says.

        The table is what remote write makes, or any other: ``{"table": "m.cpu", "time": "ts", "labels": ["host"],
        "value": "usage", "name": None}``. Labels are columns, or the keys of a dynamic one. With a column for the
        ``name`` there is one value column; without, each value column is a metric of its name. What is not said is
        found in the table's schema. Budgets are as in ``sql``; needs ``tidelake[promql]``.
        """
        return promql_module.ask(
            self, text, time=time, start=start, end=end, step=step, table=table, lookback=lookback, budget=budget,
            user=self._own_user(user),
        )  # fmt: skip

    def _own_user(self, user: str | None) -> str | None:
        """Return the user that is meant, who of one user's lake is that user."""
        if self._user is None or user in (None, self._user):
            return user if self._user is None else self._user
        raise InvalidInputError("this is another user's lake", kind="has_user")

    def drop_table(self, name: str, *, purge: bool = False) -> None:
        """Take a table away; what it held stays until it is collected, or goes at once with ``purge``."""
        info = self.catalog.drop_table(name)
        if purge:
            self.catalog.purge_tables(before_us=(info.dropped_us or 0) + 1, table_id=info.id)
            collecting.collect_garbage(self.handle)

    def collect(
        self,
        *,
        dry_run: bool = False,
        abandoned_after: str = "1d",
        dropped_after: str = "0s",
        orphan_after: str = "1d",
        all_orphans: bool = False,
    ) -> CollectReport:
        """Delete the objects that nothing can reach, and return what was deleted, what was left, and why.

        These go: what expired snapshots held; what writers left behind that are gone, or that registered it longer ago
        than ``abandoned_after``; what tables held that were dropped longer ago than ``dropped_after``; objects that
        nothing names, and unfinished writes, if they are older than ``orphan_after``. If there are many of those that
        nothing names, more than others, they stay unless ``all_orphans``: it may be another lake's store. With
        ``dry_run`` nothing is changed, and the report's ``objects`` lists what would be deleted.
        """
        return collecting.collect(
            self.handle, dry_run=dry_run, abandoned_after=abandoned_after, dropped_after=dropped_after,
            orphan_after=orphan_after, all_orphans=all_orphans,
        )  # fmt: skip

    def maintain(self, tables: Collection[str] | None = None, *, seconds: float | None = None) -> MaintainReport:
        """Do the upkeep that is due now, in all tables or some: flush, retain, compact, expire, collect."""
        return worker.maintain(self.handle, tables, seconds=seconds)

    def status(self) -> pa.Table:
        """Return the health of every table, one row each: shape, hot rows, snapshots, garbage, what is due."""
        return health.status(self.handle)

    def manifests(
        self, table: str | None = None, *, user: str | None = None, state: str | None = None, limit: int = 1_000
    ) -> pa.Table:
        """Return the states of manifests, one row for each scope of tables with users or keys, at most ``limit``.

        States are ``in_sync``, ``pending_write``, ``syncing``, ``stale`` and ``error``; those other than ``in_sync``
        are found by an index that this machine keeps of the scopes that it has worked on. SQL and KQL see the same as
        the table ``system.manifest``.
        """
        own = self._own_user(user)
        return listing.list_manifests(
            self.handle.manifests, self.catalog, table=table, user=own if self._user is None else None, state=state,
            limit=limit, seen_by=self._user,
        )  # fmt: skip

    def sync(
        self,
        url: str,
        tables: Sequence[str] | Mapping[str, str] | None = None,
        *,
        into: str | None = None,
        name: str | None = None,
        mode: str = "log",
        follow: bool = False,
        **options: Any,
    ) -> SyncReport:
        """Copy tables of another database, and then every change of them, into tables of this lake.

        The first call keeps the source under a name, by default that of the namespace ``into``; a later one, or
        ``lake.source(name).run()`` on any node, goes on from where the tables are. Tables are the source's names, or a
        mapping from those to the lake's; without, all that have a primary key. Of ``mode`` ``log``, a table has a row
        for each change and ``table.latest()`` gives the current state; of ``upsert``, it has the current state alone.
        A password is written as ``${NAME}``, a variable of the environment. With ``follow`` it goes on until stopped.
        """
        self._refuse_of_user()
        found = connecting.define(self.handle, url, tables, into=into, name=name, mode=mode, options=options)
        return found.run(follow=follow)

    def attach(self, name: str, url: str, tables: Sequence[str] | Mapping[str, str] | None = None) -> list[str]:
        """Let queries read tables of another database in place, as ``name.table``; nothing is copied.

        Columns, conditions and limits of a query go to the source, in a read-only transaction. Where the lake has a
        table of the same name, as a synced one, that is meant, and ``live('name.table')`` means the source. Return the
        names that can be read now. A password is written as ``${NAME}``, a variable of the environment.
        """
        self._refuse_of_user()
        return sorted(attaching.attach(self.handle, name, url, tables).tables.values())

    def detach(self, name: str) -> None:
        """Forget what was attached under a name."""
        self._refuse_of_user()
        attaching.detach(self.handle, name)

    def source(self, name: str) -> SyncedSource:
        """Hold a source that is kept under a name: run, pause, resume or remove it."""
        self._refuse_of_user()
        return connecting.SyncedSource(self.handle, name)

    def sources(self) -> pa.Table:
        """Return how the sources do, a row for each table that they fill; SQL and KQL: ``system.sources``."""
        self._refuse_of_user()
        return source_listing.list_sources(self.store)

    def _refuse_of_user(self) -> None:
        if self._user is not None:
            raise InvalidInputError("sources are those of the whole lake", kind="has_user")

    @property
    def spark(self) -> SparkSession:
        """The Spark session, ready to read and write tables; started when it is first asked for. Needs pyspark."""
        return spark_module.session()

    def close(self) -> None:
        """Stop flushing in the background, and let go of connections. Hot rows stay hot, and lose nothing by it."""
        self.handle.close()

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><td>{escape(name)}</td></tr>" for name in self.tables())
        return f"<p>{escape(repr(self))}</p><table><thead><tr><th>table</th></tr></thead><tbody>{rows}</tbody></table>"

    def __repr__(self) -> str:
        user = f", user={self._user!r}" if self._user is not None else ""
        return f"Lake({self.where!r}, objects={self.store.url!r}{user})"
