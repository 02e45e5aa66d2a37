"""Run the pipeline's jobs on Spark: load files, copy between tables, rewrite a table.

Each is one commit on its table, made by the driver from what tasks wrote; see ``writing`` for why a failure leaves
nothing half visible. Bad records of files go to a table of their own, before the good ones are committed. It does not
watch for new files: see ``drops``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tidelake.catalog.protocol import new_id, now_us
from tidelake.coverage.sidecar import encode
from tidelake.errors import InvalidInputError, NotFoundError
from tidelake.format import segment_format
from tidelake.handle.lake_handle import LakeHandle, OpenLake
from tidelake.handle.table_handle import TableHandle
from tidelake.ingest import Coerced
from tidelake.model.schema import Schema
from tidelake.model.settings import SHARED, USER, TableSettings
from tidelake.model.snapshot import Action, Receipt, RemoveExtent, Snapshot, UpdateTable
from tidelake.scan.extents import scan
from tidelake.spark import register, session
from tidelake.spark.files import Bad, Piece, PieceReader, cut_pieces, list_files, sample_schema
from tidelake.spark.places import Place
from tidelake.spark.progress import watched
from tidelake.spark.reading import Split, Tickets, cut_splits
from tidelake.spark.types import table_type
from tidelake.spark.writing import (
    Extents,
    Job,
    Written,
    commit_written,
    forget_folder,
    give_up,
    register_folder,
)
from tidelake.write.append import append
from tidelake.write.create import create_table
from tidelake.write.drift import exact_columns
from tidelake.write.naming import job_folder
from tidelake.write.stager import EXTENT_BYTES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# The last line of a Python traceback inside what Spark says of a failed task, or what it says of a failed plan.
_TASK_ERROR = re.compile(
    r"^(?:.*Python data source [\w ]+: )?(?:tidelake\.errors\.)?(\w*(?:Error|Exception|CorruptExtent)): (.+)$",
    re.MULTILINE,
)
QUARANTINE = {"ts": "timestamp", "file": "string", "line": "long", "reason": "string", "record": "string"}


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What a load did."""

    table: str
    files: int
    rows: int
    quarantined: int
    snapshot: int
    replayed: bool = False
    left_out: int = 0  # rows of time windows that the table held


@dataclass(frozen=True, slots=True)
class RewriteReport:
    """What a rewrite did; nothing if the table changed under it."""

    table: str
    rows: int
    before: int
    after: int
    snapshot: int


@dataclass(frozen=True, slots=True)
class _Done:
    """What one task of a load gives back."""

    written: Written
    bad: tuple[Bad, ...]
    file: int


def load(
    lake: OpenLake,
    table: str,
    paths: str | Sequence[str],
    *,
    format: str | None = None,
    schema: Mapping[str, str] | None = None,
    time: str | None = None,
    key: str | None = None,
    quarantine: str | None = None,
    only_missing: bool = False,
    extent_bytes: int = EXTENT_BYTES,
    spark: SparkSession | None = None,
    master: str | None = None,
) -> LoadReport:
    """Load files into a table, which is made if it is not there: its schema is the one given, or found in the first.

    Paths are files, folders or globs that every worker can read, on a disk or in a bucket: ``s3://bucket/logs/*.csv``
    is read with the endpoint and the credentials of the lake, or of the environment. With a key a second load of it
    changes nothing. With ``only_missing``, rows of time windows that the table holds when the load begins are left out.
    Through one user's lake, the table is theirs, and so is the one of bad records.
    """
    own = lake.handle
    outside = Place.of_handle(own).outside
    files = list_files([paths] if isinstance(paths, str) else list(paths), outside)
    pieces = [
        piece for at, path in enumerate(files) for piece in cut_pieces(path, format=format, file=at, outside=outside)
    ]
    target, wider = target_of(own, table, pieces, schema, time, user=lake.user_id)
    if key is not None and (receipt := target.catalog.receipt(target.scope, key=key)):
        return LoadReport(target.name, len(files), receipt.rows, 0, receipt.sequence, replayed=True)
    held = held_windows(target) if only_missing else None
    done = run_pieces(session_of(spark, master), target, wider, pieces, extent_bytes=extent_bytes, held=held)
    bad = [each for one in done.tasks for each in one.bad]
    try:
        set_aside(own, quarantine or f"{target.name}_quarantine", bad, key, user=target.user or None)
        receipt = done.commit(done.tasks, key=key)
    finally:
        done.close()
    sequence = receipt.sequence if receipt else target.snapshot.sequence
    rows = receipt.rows if receipt else 0
    left_out = sum(one.written.left_out for one in done.tasks)
    return LoadReport(target.name, len(files), rows, len(bad), sequence, bool(receipt and receipt.replayed), left_out)


def copy(
    lake: OpenLake,
    source: str,
    target: str,
    *,
    query: str = "select * from source",
    key: str | None = None,
    spark: SparkSession | None = None,
    master: str | None = None,
) -> LoadReport:
    """Append what a query makes of a table to another, which is made if it is not there.

    The query is Spark SQL and calls the table ``source``, which it reads at the snapshot that is newest now. Through
    one user's lake, the tables are theirs.
    """
    engine = session_of(spark, master)
    own = lake.handle
    place = Place.of_handle(own)
    held = TableHandle.seen_by(own, source, lake.user_id)
    snapshot = held.snapshot
    pinned = {**place.options(), **user_option(held), "table": source, "snapshot": str(snapshot.sequence)}
    engine.read.format("tidelake").options(**pinned).load().createOrReplaceTempView("source")
    made = engine.sql(query)
    wanted = _make_target(own, target, made, TableSettings.of(snapshot.settings), lake.user_id)
    options = {**place.options(), **user_option(wanted), "table": target, "key": key or f"copy-{new_id()}"}
    with watched(engine, f"copy {source} to {target}"):
        made.write.format("tidelake").options(**options).mode("append").save()
    receipt = wanted.catalog.receipt(wanted.scope, key=options["key"])
    if receipt is None:
        return LoadReport(wanted.name, 0, 0, 0, wanted.snapshot.sequence)
    return LoadReport(wanted.name, 0, receipt.rows, 0, receipt.sequence)


def rewrite(
    lake: OpenLake,
    table: str,
    *,
    format: str | None = None,
    block_rows: int | None = None,
    extent_bytes: int = EXTENT_BYTES,
    spark: SparkSession | None = None,
    master: str | None = None,
) -> RewriteReport:
    """Write a table's extents anew: in another format, with other blocks, or larger. Rows stay as they are.

    Rows that come meanwhile are not touched: what is taken away is what was read, of one snapshot. If an extent goes
    meanwhile, nothing is changed and a ConflictError says so.
    """
    engine = session_of(spark, master)
    held = TableHandle.open(lake.handle, table)
    if format is not None:
        segment_format(format)
    plan = replace(held.plan(), hot=())
    snapshot, extents = plan.snapshot, [task.extent for task in plan.tasks]
    settings = {**snapshot.settings, **({"format": format} if format else {})}
    job = job_of(held, snapshot, settings, extent_bytes, block_rows)
    splits = [split for split in cut_splits(plan, held.footers, extent_bytes // 4) if isinstance(split, Split)]
    register_folder(held, job.folder)
    written: list[Written] = []
    try:
        with watched(engine, f"rewrite {held.name}"):
            written = _run(engine, splits, _rewriter(job))
        removed: list[Action] = [RemoveExtent(extent.id) for extent in extents]
        if format is not None:
            removed.insert(0, UpdateTable(None, {"format": format}))
        receipt = commit_written(held, job.id, job.folder, written, operation="rewrite", removed=removed)
    except BaseException:
        give_up(held, job.folder, written)
        raise
    sequence = receipt.sequence if receipt else snapshot.sequence
    rows = sum(message.rows for message in written)
    after = TableHandle.open(held.lake, table, snapshot=sequence).snapshot.totals.extents
    return RewriteReport(held.name, rows, len(extents), after, sequence)


@dataclass(slots=True)
class Loaded:
    """What the tasks of a load wrote, to be committed in one commit or in one for each file."""

    table: TableHandle
    job: Job
    tasks: list[_Done] = field(default_factory=list)
    _settled: list[str] = field(default_factory=list)  # committed, or given up by name

    def commit(self, tasks: Iterable[_Done], *, key: str | None) -> Receipt | None:
        """Publish what some tasks wrote."""
        messages = [one.written for one in tasks]
        keys = [key for message in messages for key in message.keys]
        commit_id = new_id()
        catalog, scope = self.table.catalog, self.table.scope
        try:
            receipt = commit_written(self.table, commit_id, self.job.folder, messages, key=key, keep_folder=True)
        except BaseException:  # it may have happened all the same: see give_up
            released = catalog.release_pending(keys)
            self._settled.extend(keys if catalog.receipt(scope, commit_id=commit_id) else released)
            raise
        self._settled.extend(keys)
        return receipt

    def close(self) -> None:
        """Give up what was not committed."""
        forget_folder(self.table, self.job.folder, self._settled)


def run_pieces(
    engine: SparkSession,
    table: TableHandle,
    schema: Schema,
    pieces: Sequence[Piece],
    *,
    extent_bytes: int = EXTENT_BYTES,
    held: bytes | None = None,
) -> Loaded:
    """Read pieces of files in tasks, each writing extents of its own; rows of windows that are held are left out."""
    snapshot = table.snapshot
    job = replace(job_of(table, snapshot, snapshot.settings, extent_bytes), schema=schema, held=held)
    register_folder(table, job.folder)
    loaded = Loaded(table, job)
    try:
        with watched(engine, f"load {table.name}"):
            loaded.tasks = _run(engine, pieces, _loader(job))
    except BaseException:
        loaded.close()
        raise
    return loaded


def told_by_task(error: Exception) -> list[tuple[str, str]]:
    """Return the names and texts of the Python errors in what Spark says of a failed task."""
    told = _TASK_ERROR.findall(str(error)) if type(error).__module__.partition(".")[0] in ("py4j", "pyspark") else []
    return [(name, text) for name, text in told if not name.startswith(("Py4J", "PySpark", "Spark"))]


def held_windows(table: TableHandle) -> bytes:
    """Return what a table covers now, for tasks that leave it out."""
    snapshot = table.snapshot
    rules = table.coverage_store.rules(snapshot)
    if rules is None:
        raise InvalidInputError("the table keeps no coverage: create it with bucket=", table=table.name)
    return encode(table.coverage_store.at(snapshot), rules.index)


def set_aside(lake: LakeHandle, table: str, bad: Sequence[Bad], key: str | None, *, user: str | None = None) -> None:
    """Append bad records to their table, which is made when there is a first one; a user's to a table of that user."""
    if not bad:
        return
    try:
        held = TableHandle.open(lake, table, user=user)
    except NotFoundError:
        held = _created(lake, table, QUARANTINE, time="ts", user=user)
    now = now_us()
    rows = pa.table(
        {
            "ts": pa.array([now] * len(bad), pa.timestamp("us", tz="UTC")),
            "file": [each.file for each in bad],
            "line": pa.array([each.line for each in bad], pa.int64()),
            "reason": [each.reason for each in bad],
            "record": [each.record for each in bad],
        }
    )
    append(held, rows, key=None if key is None else f"{key}:quarantine")


def _loader(job: Job) -> Callable[[Piece], _Done]:
    def load_piece(piece: Piece) -> _Done:
        extents = Extents(job.place.open_objects(job.objects), job)
        rules = replace(job.rules, max_new_columns=0)  # tasks must agree; other keys go to the overflow column
        reader = PieceReader(piece, job.schema, rules, job.place.outside)
        for coerced in reader.read():
            extents.take(coerced)
        return _Done(extents.finish(), tuple(reader.bad), piece.file)

    return load_piece


def _rewriter(job: Job) -> Callable[[Split], Written]:
    def rewrite_split(split: Split) -> Written:
        store = job.place.open_objects(job.objects)
        extents = Extents(store, job)
        for batch in scan(split.plan, Tickets(store, split.tickets)):
            extents.take(Coerced(batch, job.schema, 0))
        return extents.finish(inline_bytes=0)

    return rewrite_split


def _run(engine: SparkSession, work: Sequence[Any], do: Callable[[Any], Any]) -> list[Any]:
    """Do pieces of work in tasks, one each, and give what came of them in order.

    Of several attempts of a task Spark gives the result of one.
    """
    return engine.sparkContext.parallelize(work, len(work)).map(do).collect() if work else []


def job_of(
    table: TableHandle,
    snapshot: Snapshot,
    settings: Mapping[str, Any],
    extent_bytes: int,
    block_rows: int | None = None,
) -> Job:
    """Return a job that writes to a table, with a folder of its own."""
    id = new_id()
    folder = job_folder(table, TableSettings.of(settings), id)
    place = Place.of_handle(table.lake)
    return Job(
        id, place, table.store.url, table.name, folder, snapshot.schema, dict(settings),
        table.catalog.layout, extent_bytes, block_rows,
        exact=exact_columns(table.catalog, snapshot, snapshot.schema.names),
    )  # fmt: skip


def target_of(
    lake: LakeHandle,
    name: str,
    pieces: Sequence[Piece],
    schema: Mapping[str, str] | None = None,
    time: str | None = None,
    *,
    user: str | None = None,
) -> tuple[TableHandle, Schema]:
    """Find the table or make it; and its schema with the columns that the first file has and the table lacks."""
    if not pieces:
        raise InvalidInputError("the files are empty", table=name)
    outside = Place.of_handle(lake).outside
    try:
        table = TableHandle.seen_by(lake, name, user)
        table.check_user_given()
    except NotFoundError:
        found = (Schema.of(schema), time) if schema else sample_schema(pieces[0], time, outside)
        table = _created(lake, name, found[0], time=found[1], user=user)
        return table, table.schema
    held = table.schema
    if schema is not None:
        return table, held.widen(Schema.of(schema).columns)
    sampled, _ = sample_schema(pieces[0], None, outside)
    known = {name.lower() for name in held.names}
    fresh = [(column.name, column.type) for column in sampled if column.name.lower() not in known]
    return table, held.widen(fresh)


def user_option(table: TableHandle) -> dict[str, str]:
    """Return the option that names the user whose table it is, if it is one's."""
    return {"user": table.user} if table.user else {}


def _make_target(
    lake: LakeHandle, name: str, frame: DataFrame, settings: TableSettings, user: str | None
) -> TableHandle:
    try:
        return TableHandle.seen_by(lake, name, user)
    except NotFoundError:
        kinds = {column.name: table_type(column.dataType, column.name) for column in frame.schema}
        time = settings.time if settings.time in kinds else None
        return _created(lake, name, kinds, time=time, format=None if user else settings.format, user=user)


def _created(
    lake: LakeHandle,
    name: str,
    schema: Schema | Mapping[str, Any],
    *,
    time: str | None,
    format: str | None = None,
    user: str | None = None,
) -> TableHandle:
    create_table(lake.catalog, name, schema, time=time, format=format, scope=SHARED if user is None else USER)
    return TableHandle.open(lake, name, user=user)


def session_of(spark: SparkSession | None, master: str | None) -> SparkSession:
    """Return the session that was given, made ready, or one on a master."""
    return register(spark) if spark is not None else session(master)
