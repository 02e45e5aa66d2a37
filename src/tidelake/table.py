"""Append to a table and read from it: the noun that users hold.

An append is one commit: all of its rows become visible at once, or none. A small one is kept in the catalog as hot
rows, visible to every reader as soon as it is acknowledged; a flush turns hot rows into an extent. A large one is
written as extents, each registered as pending before its first byte. Rows that the schema cannot hold widen it in the
same commit. It does not do any of that itself: it passes its handle to the rooms that do (``write``, ``scan``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from tidelake.coverage.repair import RepairReport, repair
from tidelake.coverage.verbs import Series
from tidelake.dynamic.forms import check_form, stream_in_form, table_in_form
from tidelake.handle.all_users import AllUsers, all_users
from tidelake.handle.changes import changes
from tidelake.handle.table_handle import TableHandle
from tidelake.logical.frames import pandas_frame
from tidelake.model.predicate import Predicate
from tidelake.model.schema import DataType, Schema
from tidelake.model.snapshot import Extent, Snapshot
from tidelake.model.times import When
from tidelake.pruning.plan import ScanPlan
from tidelake.runtime.deferred import deferred
from tidelake.scan.extents import without_cases
from tidelake.scan.lookup import Found
from tidelake.scan.questions import Columns
from tidelake.write import upsert as upserting
from tidelake.write.alter import add_column
from tidelake.write.append import AppendReport, append
from tidelake.write.flush import FlushReport, flush
from tidelake.write.promote import Promotable, promotable, promote
from tidelake.write.upsert import DeleteKeysReport

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars
    from pyspark.sql import DataFrame, SparkSession

    from tidelake.catalog.protocol import Pin
    from tidelake.connectors import latest
    from tidelake.maintain import compact as compacting
    from tidelake.maintain import convert as converting
    from tidelake.maintain import delete as deleting
    from tidelake.maintain import expire as expiring
    from tidelake.maintain import restore as restoring
    from tidelake.maintain.compact import CompactReport
    from tidelake.maintain.delete import DeleteReport, ReplaceReport
    from tidelake.maintain.expire import ExpireReport
    from tidelake.maintain.restore import RestoreReport
    from tidelake.spark import frames
    from tidelake.spark import nearest as spark_nearest
    from tidelake.vectors import indexing
    from tidelake.vectors import nearest as finding
    from tidelake.vectors.indexing import IndexInfo, IndexReport
    from tidelake.vectors.nearest import Asking
else:
    latest = deferred("tidelake.connectors.latest")
    compacting, converting, deleting, expiring, restoring = (
        deferred(f"tidelake.maintain.{name}") for name in ("compact", "convert", "delete", "expire", "restore")
    )
    frames = deferred("tidelake.spark.frames")  # brings pyspark
    spark_nearest = deferred("tidelake.spark.nearest")
    indexing, finding = deferred("tidelake.vectors.indexing"), deferred("tidelake.vectors.nearest")


class Table:
    """A table at its newest snapshot, or pinned to an older one, which can then only be read."""

    def __init__(self, handle: TableHandle) -> None:
        self._handle = handle

    @property
    def handle(self) -> TableHandle:
        """What the table consists of, as a frozen value: its lake's handle, its name and id, the pinned snapshot."""
        return self._handle

    @property
    def lake(self) -> str:
        """Where the table's lake is, without a password."""
        return self.handle.lake.where

    @property
    def name(self) -> str:
        return self.handle.name

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot that reads see now."""
        return self.handle.snapshot

    @property
    def schema(self) -> Schema:
        return self.snapshot.schema

    def user(self, id: str) -> Table:
        """Hold the table of one user, with rows and a history of its own, if it was made with ``scope="user"``.

        Ids that differ are different users. An id is printable text in Unicode's composed form (NFC) without white
        space at its ends, whose folder name has at most 255 bytes; anything else is an InvalidInputError.
        """
        return Table(self.handle.of_user(id))

    def users(self, *, after: str = "") -> Iterator[str]:
        """Yield the ids of the users that have ever written, in their order, after one of them if told; in pages."""
        return self.handle.users(after)

    def pinned(self) -> Table:
        """Hold the table at the snapshot it has now, so that several reads agree."""
        return Table(self.handle.pinned())

    def showing(self, columns: Sequence[str], where: str | None = None) -> Table:
        """Hold the table as ``pinned`` does, with what is in the overflow column under these names as columns."""
        return Table(self.handle.showing(columns, where))

    def all_users(self) -> AllUsers:
        """Hold the rows of all users together, with whose they are as the column ``_user``: for operators.

        Its ``scan`` and ``to_arrow`` read one user after another, each at one snapshot.
        """
        return all_users(self.handle)

    @property
    def coverage(self) -> Series:
        """What the table holds and what is missing, if it was made with a bucket."""
        self.handle.check_user_given()
        return Series(self.handle, self.handle.coverage_store)

    def repair(self, *, thorough: bool = False) -> RepairReport:
        """Make lost or damaged coverage again, from extents' coverage or rows; see ``tidelake.coverage.repair``."""
        table = self.handle
        table.refuse_when_pinned()
        return repair(
            table.info, table.catalog, table.coordinator, table.coverage_store, thorough=thorough, user=table.scope.user
        )

    def append(self, rows: Any, *, key: str | None = None, insert_only: bool = False) -> AppendReport:
        """Append rows: an Arrow stream or table, a list of dicts, NDJSON bytes, or the path of a file.

        With an idempotency key, a second append of the same key changes nothing and gets the first answer. If the
        table was made with key columns, rows take the place of those with the same values there; with ``insert_only``
        an append that has a key which is there already is an AlreadyExistsError, and nothing is appended.
        """
        return append(self.handle, rows, key=key, insert_only=insert_only)

    def get(self, key: Any) -> dict[str, Any] | None:
        """Return the row with a key, or None: a value, a tuple of values, or a dict of the key columns."""
        return upserting.get(self.handle, key)

    def exists(self, keys: Any) -> list[Found]:
        """Say of each of some keys whether it is there, and who knew: hot rows, the manifest, or the extents."""
        return upserting.find(self.handle, keys)

    def delete_keys(self, keys: Any, *, key: str | None = None) -> DeleteKeysReport:
        """Delete the rows with these keys, each given as in ``get``; those that are not there are passed over.

        With an idempotency key, a second deletion of the same key changes nothing and gets the first answer.
        """
        return upserting.delete_keys(self.handle, keys, key=key)

    def changes(self, since: int | str | None = None, *, dynamic: str = "json") -> pa.RecordBatchReader:
        """Stream what has changed since a snapshot (number or id), or at all: one row for each key that changed.

        The column ``_op`` is ``insert``, ``update`` or ``delete``; a deleted row has its key alone. Ask again from the
        snapshot that the table was at to go on. The table needs key columns, and the snapshot must not have expired.
        """
        check_form(dynamic)
        return stream_in_form(changes(self.handle, since), dynamic)

    def flush(self) -> FlushReport:
        """Turn the hot rows into an extent. If another flush is faster, there is nothing left to do."""
        return flush(self.handle)

    def delete(
        self,
        where: Predicate | str | None = None,
        *,
        start: When | None = None,
        end: When | None = None,
        all: bool = False,
        purge: bool = False,
        dry_run: bool = False,
    ) -> DeleteReport:
        """Delete the rows that match, ``[start, end)`` of the time column, in one commit.

        Readers of older snapshots still see them until those expire. Without a condition or a range it must be said
        twice: ``all=True``. With ``purge`` older snapshots expire and the objects are deleted at once, also of what was
        deleted before. With ``dry_run`` nothing is changed, and the report says what would be.
        """
        return deleting.delete(self.handle, where, start=start, end=end, all=all, purge=purge, dry_run=dry_run)

    def replace(
        self,
        rows: Any,
        *,
        start: When,
        end: When,
        where: Predicate | str | None = None,
        key: str | None = None,
    ) -> ReplaceReport:
        """Swap the rows of ``[start, end)`` that match for others, in one commit: a backfill that may be repeated.

        Every new row must lie in the range and match, so that a second call replaces what the first one wrote.
        """
        return deleting.replace_rows(self.handle, rows, start=start, end=end, where=where, key=key)

    def compact(self) -> CompactReport:
        """Write small and overlapping extents again as few that are well filled and sorted; see ``maintain.choice``."""
        return compacting.compact(self.handle)

    def convert(self, format: str) -> CompactReport:
        """Have extents in another format, such as ``"tlm"``: new ones at once, and those there are written again.

        Each is a commit of its own; what stops goes on where it was. Tables with a key keep their format.
        """
        return converting.convert(self.handle, format)

    def expire(self, older_than: str | None = None, *, keep_last: int = 1) -> ExpireReport:
        """Forget snapshots that are older than ``"7d"``, say, or than the table's history; never the newest.

        Pinned snapshots and those that somebody reads now are kept, and so are the newest ``keep_last``.
        """
        return expiring.expire(self.handle, older_than, keep_last=keep_last)

    def pin(self, name: str) -> Pin:
        """Keep the snapshot that the table is at, by a name, until it is unpinned."""
        return expiring.pin(self.handle, name)

    def unpin(self, name: str) -> None:
        """Let a snapshot that was pinned go with the next expiry."""
        self.handle.catalog.unpin(self.handle.scope, name)

    def pins(self) -> list[Pin]:
        """List the pins of the table, the oldest snapshot's first."""
        return self.handle.catalog.pins(self.handle.scope)

    def undo(
        self, snapshot: int | str | None = None, *, key: str | None = None, commit: str | None = None
    ) -> RestoreReport:
        """Take back what one commit added, while it is still there: not flushed, compacted or deleted since.

        Appends that arrive together share a snapshot; one of them is named by its ``key``, or by the ``commit`` of its
        report. A key stays used: an append that comes again with it changes nothing.
        """
        return restoring.undo(self.handle, snapshot, key=key, commit=commit)

    def restore(self, snapshot: int | str | None = None, *, as_of: When | None = None) -> RestoreReport:
        """Publish an older snapshot, by number, id or time, as the newest; what came after it stays in the history."""
        return restoring.restore(self.handle, snapshot=snapshot, as_of=as_of)

    def plan(
        self,
        columns: Columns | None = None,
        where: Predicate | str | None = None,
        *,
        start: When | None = None,
        end: When | None = None,
        limit: int | None = None,
        ordered: bool = False,
        prune: bool = True,
    ) -> ScanPlan:
        """Return what a scan would read; ``explain()`` of the answer shows it."""
        return self.handle.plan(columns, where, start=start, end=end, limit=limit, ordered=ordered, prune=prune)

    def outline(
        self,
        columns: Columns | None = None,
        where: Predicate | str | None = None,
        *,
        start: When | None = None,
        end: When | None = None,
        limit: int | None = None,
        ordered: bool = False,
        stats: Iterable[str] = (),
    ) -> ScanPlan:
        """Plan as far as the catalog alone can tell: which extents, not yet which blocks; no object is read.

        Extents come with the statistics of the columns that ``where`` asks about, and of those in ``stats``.
        """
        return self.handle.outline(columns, where, start=start, end=end, limit=limit, ordered=ordered, stats=stats)

    def scan(
        self,
        columns: Columns | None = None,
        where: Predicate | str | None = None,
        *,
        start: When | None = None,
        end: When | None = None,
        limit: int | None = None,
        ordered: bool = False,
        prune: bool = True,
        dynamic: str = "json",
    ) -> pa.RecordBatchReader:
        """Stream the rows that match, ``[start, end)`` of the time column, in time order if asked.

        A time is RFC 3339 text, a datetime, a date, or a number since 1970: seconds, milliseconds, microseconds or
        nanoseconds by its size, here, in conditions and in rows that are appended alike.
        Dynamic values are JSON text, or CBOR bytes with ``dynamic="cbor"``. ``prune=False`` reads everything and gives
        the same rows; it is there to be compared with.
        """
        return self.handle.scan(
            columns, where, start=start, end=end, limit=limit, ordered=ordered, prune=prune, dynamic=dynamic
        )

    def create_index(self, column: str, *, metric: str = "cosine") -> IndexReport:
        """Index a column of vectors for ``nearest``, by ``cosine``, ``l2`` or ``dot``; needs faiss.

        A codebook is learned from a sample, and every extent gets a sidecar, as do those that are written from now on.
        """
        return indexing.create_index(self.handle, column, metric=metric)

    def drop_index(self, column: str) -> None:
        """Drop the index of a column; its objects go with the next collection."""
        indexing.drop_index(self.handle, column)

    def indexes(self) -> list[IndexInfo]:
        """List the indexes of the table's vectors: their state, size, and how many extents lack a sidecar."""
        return indexing.indexes(self.handle)

    def nearest(
        self,
        column: str,
        query: Any,
        *,
        k: int = 10,
        where: Predicate | str | None = None,
        start: When | None = None,
        end: When | None = None,
        columns: Sequence[str] | None = None,
        recall: float | None = None,
        probes: int | None = None,
        metric: str | None = None,
        dynamic: str = "json",
    ) -> pa.Table:
        """Return the ``k`` rows whose vectors are nearest to a query, nearest first, with their ``_distance``.

        Of a list of queries each gets its rows, with its number as ``_query``. Rows come from ``where`` and
        ``[start, end)`` alone, which are looked at first. The distance is that of the index's metric, or of ``metric``;
        of ``dot`` it is the product with its sign turned. ``recall`` says how many of the rows that are truly nearest
        are to be found, ``probes`` how many lists of the index are looked through; with ``recall=1``, or without an
        index, every row is measured. Rows without a vector, or without a distance, are never among the nearest.
        """
        return finding.nearest(
            self.handle, column, query, k=k, where=where, start=start, end=end, columns=columns, recall=recall,
            probes=probes, metric=metric, dynamic=dynamic,
        )  # fmt: skip

    def explain_nearest(self, column: str, query: Any, **asking: Unpack[Asking]) -> str:
        """Search as ``nearest`` does, and say what was looked at: lists, candidates, rows measured one by one."""
        return finding.explain(self.handle, column, query, **asking)

    def join_nearest(
        self, frame: DataFrame, column: str, by: str, *, columns: Sequence[str] | None = None, **asking: Unpack[Asking]
    ) -> DataFrame:
        """Return a Spark frame's rows, each with the rows whose vectors are nearest to its vector in ``by``.

        ``columns`` are of this table; ``_distance`` and the rest are as in ``nearest``. The frame's different vectors,
        at most 100,000, come to the driver, where the index finds what is near; without a vector nothing is near.
        """
        return spark_nearest.join_nearest(frame, self.handle, column, by, columns, **asking)

    def latest(
        self, columns: Sequence[str] | None = None, where: Predicate | str | None = None, *, dynamic: str = "json"
    ) -> pa.RecordBatchReader:
        """Stream the rows that the source of a synced table has now, as far as it was read.

        Of each key the latest change counts, by ``_tide_lsn``, and one that is a deletion is left out then. SQL and KQL
        say ``latest('crm.orders')``.
        """
        return latest.latest_rows(self.handle, columns, where, dynamic=dynamic)

    def to_arrow(
        self, columns: Columns | None = None, where: Predicate | str | None = None, *, dynamic: str = "json"
    ) -> pa.Table:
        """Read matching rows into one Arrow table; dynamic values as ``json``, ``struct`` or ``cbor``."""
        return table_in_form(self.scan(columns, where, dynamic="cbor"), dynamic)

    def to_polars(
        self, columns: Columns | None = None, where: Predicate | str | None = None, *, dynamic: str = "json"
    ) -> polars.DataFrame:
        """Read matching rows into a Polars frame; needs polars. Dynamic values as in ``to_arrow``."""
        import polars

        frame = polars.from_arrow(self.to_arrow(columns, where, dynamic=dynamic))
        assert isinstance(frame, polars.DataFrame)
        return frame

    def to_pandas(
        self, columns: Columns | None = None, where: Predicate | str | None = None, *, dynamic: str = "json"
    ) -> pandas.DataFrame:
        """Read matching rows into a pandas frame; needs pandas. Dynamic values as in ``to_arrow``."""
        return pandas_frame(self.to_arrow(columns, where, dynamic=dynamic))

    def to_duckdb(
        self,
        connection: duckdb.DuckDBPyConnection,
        columns: Columns | None = None,
        where: Predicate | str | None = None,
        *,
        dynamic: str = "json",
    ) -> duckdb.DuckDBPyRelation:
        """Return matching rows to DuckDB as a relation, streamed; needs duckdb. Dynamic values as in ``scan``."""
        return connection.from_arrow(without_cases(self.scan(columns, where, dynamic=dynamic), self.schema))

    def __len__(self) -> int:
        """Return how many rows the table has."""
        self.handle.check_user_given()
        return self.handle.count_rows()

    def __bool__(self) -> bool:
        """A table is something, also without rows."""
        return True

    def to_spark(
        self,
        columns: Sequence[str] | None = None,
        where: Predicate | str | None = None,
        *,
        spark: SparkSession | None = None,
        plain: bool = False,
    ) -> DataFrame:
        """Return matching rows to Spark as a frame; needs pyspark.

        With ``plain``, dates and wall clocks are TIMESTAMP, in UTC, and bytes and nested values VARIANT.
        """
        return frames.frame_of(self.handle, columns, where, spark, plain=plain)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Let any reader of Arrow streams read the whole table."""
        return self.scan().__arrow_c_stream__(requested_schema)

    def history(self, limit: int = 100) -> list[Snapshot]:
        """List snapshots, newest first."""
        return self.handle.catalog.history(self.handle.scope, limit=limit)

    def extents(self) -> list[Extent]:
        """List the extents that reads see now."""
        return self.handle.extents()

    def add_column(self, name: str, type: str | DataType) -> Schema:
        """Add a nullable column, or widen one: int to long to real, or anything but a vector to dynamic.

        A type that does not hold every value of the column is a SchemaError, and nothing is changed.
        """
        return add_column(self.handle, name, type)

    def promote(self, path: str, type: str | DataType, *, name: str | None = None) -> Schema:
        """Make a typed column of a dynamic path, ``attributes.http.status``.

        New rows are written to the column; in old rows the value stays where it is, and reads unite the two. The column
        is named like the path's last key unless told otherwise.
        """
        return promote(self.handle, path, type, name=name)

    def promotable(self) -> list[Promotable]:
        """List the dynamic paths that have settled on one type in the newest rows, the most frequent first.

        A path qualifies with a value of one scalar type in at least 100 of the last 1,000 rows, and no other in them.
        """
        return promotable(self.handle)

    @property
    def _title(self) -> str:
        return f"{self.name} of {self.handle.user!r}" if self.handle.user else self.name

    def _repr_html_(self) -> str:
        snapshot = self.snapshot
        rows = "".join(
            f"<tr><td>{escape(column.name)}</td><td>{escape(str(column.type))}</td></tr>" for column in snapshot.schema
        )
        head = f"<b>{escape(self._title)}</b> at snapshot {snapshot.sequence}: {len(self):,} rows"
        return f"<p>{head}</p><table><thead><tr><th>column</th><th>type</th></tr></thead><tbody>{rows}</tbody></table>"

    def __repr__(self) -> str:
        snapshot = self.snapshot
        totals = snapshot.totals
        if self.handle.is_of_users:
            return f"Table({self.name}, one for each user: {', '.join(map(str, snapshot.schema))})"
        what = "versions of rows" if snapshot.is_keyed else "rows"
        rows = f"{totals.rows + totals.hot_rows:,} {what} in {totals.extents:,} extents"
        hot = f" and {totals.hot_batches:,} hot batches" if totals.hot_batches else ""
        return (
            f"Table({self._title} at snapshot {snapshot.sequence}: {rows}{hot}; {', '.join(map(str, snapshot.schema))})"
        )
