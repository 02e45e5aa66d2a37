"""Watch a folder into which files are dropped, and stream any Spark source into a table.

::

    {root}/{namespace}/{table}/{file}            a file to load; what begins with . or _ is passed over
    {root}/_done/{namespace}/{table}/{file}      where it goes once its rows are committed
    {root}/_bad/{namespace}/{table}/{file}       where it goes if it cannot be loaded, with {file}.reason beside it

Each file is one commit under the SHA-256 of its bytes, so a file that comes again, under whatever name and after
whatever crash, changes nothing. A file that cannot be loaded stops no other: the files of its round are loaded one by
one, and it is set aside with its reason. Only what is no file's fault (a store or a catalog that is away, a lost
cluster) ends the watch. Move files in when they are whole. It does not read files: see ``files``.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidelake.errors import (
    CommitUnknownError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    TidelakeError,
    UnavailableError,
)
from tidelake.handle.lake_handle import OpenLake
from tidelake.handle.table_handle import TableHandle
from tidelake.spark import register, session
from tidelake.spark.files import cut_pieces, kind_of
from tidelake.spark.jobs import run_pieces, set_aside, target_of, told_by_task, user_option
from tidelake.spark.places import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

DONE, BAD = "_done", "_bad"
REASON = ".reason"  # added to the name of a file that was set aside
MAX_FILES = 1000  # of one table in one round, so that the first ones do not wait for the last


@dataclass(frozen=True, slots=True)
class DropReport:
    """What one round did with one table's files."""

    table: str
    files: int
    rows: int
    replayed: int
    quarantined: int
    set_aside: int = 0
    reason: str = ""  # why the first of them was


def stream(
    source: Callable[[SparkSession], DataFrame],
    lake: OpenLake,
    table: str,
    *,
    checkpoint: str,
    every: str | None = "1 second",
    spark: SparkSession | None = None,
    master: str | None = None,
) -> StreamingQuery:
    """Start a query that appends any Structured Streaming source to a table, each batch once.

    ``source`` gets the session and gives a streaming frame. Without ``every`` the query stops at what is there now.
    Through one user's lake, the table is theirs.
    """
    engine = register(spark) if spark is not None else session(master)
    frame = source(engine)
    if not frame.isStreaming:
        raise InvalidInputError("the source is not a stream: use spark.readStream", table=table)
    options = {**Place.of_lake(lake).options(), "table": table}
    if lake.user_id is not None:
        options |= user_option(TableHandle.seen_by(lake.handle, table, lake.user_id))
    writer = frame.writeStream.format("tidelake").options(**options)
    writer = writer.option("checkpointLocation", checkpoint).outputMode("append")
    return (writer.trigger(processingTime=every) if every else writer.trigger(availableNow=True)).start()


def watch(
    lake: OpenLake,
    root: str | os.PathLike[str],
    *,
    every_s: float = 1.0,
    once: bool = False,
    done: str = "move",
    spark: SparkSession | None = None,
    master: str | None = None,
) -> Iterator[DropReport]:
    """Load files as they are dropped, and give a report for each table that got some; for ever, or one round.

    A loaded file is moved to ``_done``, deleted or kept, as ``done`` says. One that cannot be loaded is moved to
    ``_bad``, or stays where it is if files are kept; the reason is written to ``_bad`` either way. Through one user's
    lake, tables are theirs.
    """
    folder = Path(root)
    if not folder.is_dir():
        raise NotFoundError("no such folder", path=folder)
    if done not in ("move", "delete", "keep"):
        raise InvalidInputError("done is move, delete or keep", got=done)
    engine = register(spark) if spark is not None else session(master)
    kept: set[tuple[str, int, int]] = set()
    while True:
        for table, files in sorted(_dropped(folder, kept).items()):
            report, reasons = _load_or_set_aside(engine, lake, table, files[:MAX_FILES])
            for file in files[:MAX_FILES]:
                if file in reasons:
                    _set_aside(folder, file, reasons[file], done, kept)
                else:
                    _put_away(folder, file, done, kept)
            yield report
        if once:
            return
        time.sleep(every_s)


def _load_or_set_aside(
    engine: SparkSession, lake: OpenLake, table: str, files: list[Path]
) -> tuple[DropReport, dict[Path, str]]:
    """Load files of one table, and return a report and the reason for each file that cannot be loaded."""
    try:
        return _load_round(engine, lake, table, files), {}
    except Exception as error:
        reason = _fault_of_file(error)
        if reason is None:
            raise
        if len(files) == 1:
            return DropReport(table, 1, 0, 0, 0, 1, reason), {files[0]: reason}
    parts = [_load_or_set_aside(engine, lake, table, [file]) for file in files]  # one by one, to tell which
    reasons = {file: why for _, found in parts for file, why in found.items()}
    told = [report for report, _ in parts]
    rows, replayed, bad = (sum(getattr(each, name) for each in told) for name in ("rows", "replayed", "quarantined"))
    return DropReport(table, len(files), rows, replayed, bad, len(reasons), next(iter(reasons.values()), "")), reasons


_NOT_THE_FILES = (StorageError, UnavailableError, ConflictError, CommitUnknownError)


def _fault_of_file(error: Exception) -> str | None:
    """Return why a file cannot be loaded, or None if the failure is not the file's."""
    if isinstance(error, TidelakeError):
        return None if isinstance(error, _NOT_THE_FILES) else str(error)
    if isinstance(error, OSError | UnicodeError):
        return f"{type(error).__name__}: {error}"
    told = told_by_task(error)
    if not told or any(name in {cls.__name__ for cls in _NOT_THE_FILES} for name, _ in told):
        return None
    name, text = told[-1]
    return text if name in ("InvalidInputError", "SchemaError", "OverlapError") else f"{name}: {text}"


def _load_round(engine: SparkSession, lake: OpenLake, table: str, files: list[Path]) -> DropReport:
    """Load files of one table in one Spark job, and commit them file by file."""
    keys = {at: f"sha256:{_digest(file)}" for at, file in enumerate(files)}
    fresh = _fresh(lake, table, keys)
    pieces = [piece for at in fresh for piece in cut_pieces(str(files[at].resolve()), file=at)]
    if not pieces:
        return DropReport(table, len(files), 0, len(files) - len(fresh), 0)
    held, schema = target_of(lake.handle, table, pieces, user=lake.user_id)
    loaded = run_pieces(engine, held, schema, pieces)
    rows = quarantined = 0
    try:
        for at in fresh:
            tasks = [one for one in loaded.tasks if one.file == at]
            bad = [each for one in tasks for each in one.bad]
            set_aside(lake.handle, f"{held.name}_quarantine", bad, keys[at], user=held.user or None)
            receipt = loaded.commit(tasks, key=keys[at])
            rows += 0 if receipt is None or receipt.replayed else receipt.rows
            quarantined += len(bad)
    finally:
        loaded.close()
    return DropReport(held.name, len(files), rows, len(files) - len(fresh), quarantined)


def _fresh(lake: OpenLake, table: str, keys: dict[int, str]) -> list[int]:
    """Return the files whose bytes are not in yet, each of several equal ones once."""
    try:
        held = TableHandle.seen_by(lake.handle, table, lake.user_id)
    except NotFoundError:
        return list({key: at for at, key in reversed(keys.items())}.values())[::-1]
    first = {key: at for at, key in reversed(keys.items())}
    return sorted(at for key, at in first.items() if held.catalog.receipt(held.scope, key=key) is None)


def _dropped(folder: Path, kept: set[tuple[str, int, int]]) -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for file in sorted(folder.glob("*/*/*")):
        parts = file.relative_to(folder).parts
        if any(part.startswith((".", "_")) for part in parts) or not file.is_file() or kind_of(file.name) is None:
            continue
        if _mark(file) not in kept:
            found.setdefault(f"{parts[0]}.{parts[1]}", []).append(file)
    return found


def _put_away(folder: Path, file: Path, done: str, kept: set[tuple[str, int, int]]) -> None:
    if done == "delete":
        file.unlink(missing_ok=True)
    elif done == "keep":
        kept.add(_mark(file))
    else:
        os.replace(file, _free_place(folder / DONE / file.relative_to(folder)))


def _set_aside(folder: Path, file: Path, reason: str, done: str, kept: set[tuple[str, int, int]]) -> None:
    """Write why a file was not loaded, then move the file beside it: a crash between the two leaves it to be tried."""
    target = _free_place(folder / BAD / file.relative_to(folder))
    target.with_name(target.name + REASON).write_text(reason + "\n")
    if done == "keep":
        kept.add(_mark(file))
    else:
        os.replace(file, target)


def _free_place(wanted: Path) -> Path:
    """Return a path in an existing folder that no file has: an earlier one of the same name is not replaced."""
    wanted.parent.mkdir(parents=True, exist_ok=True)
    number, place = 1, wanted
    while place.exists():
        number += 1
        place = wanted.with_name(f"{wanted.name}.{number}")
    return place


def _mark(file: Path) -> tuple[str, int, int]:
    status = file.stat()
    return str(file), status.st_size, status.st_mtime_ns


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
