"""Watch a folder into which files are dropped, and stream any Spark source into a table.

::

    {root}/{namespace}/{table}/{file}            a file to load; what begins with . or _ is passed over
    {root}/_done/{namespace}/{table}/{file}      where it goes once its rows are committed

Each file is one commit under the SHA-256 of its bytes, so a file that comes again, under whatever name and after
whatever crash, changes nothing. Move files in when they are whole. It does not read files: see ``files``.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tidelake.errors import InvalidInputError, NotFoundError
from tidelake.lake import Lake
from tidelake.spark import register, session
from tidelake.spark.files import cut_pieces, kind_of
from tidelake.spark.jobs import run_pieces, set_aside, target_of
from tidelake.spark.places import Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

DONE = "_done"
MOST_FILES = 1000  # of one table in one round, so that the first ones do not wait for the last


@dataclass(frozen=True, slots=True)
class DropReport:
    """What one round did with one table's files."""

    table: str
    files: int
    rows: int
    replayed: int
    quarantined: int


def stream(
    source: Callable[[SparkSession], DataFrame],
    lake: Lake,
    table: str,
    *,
    checkpoint: str,
    every: str | None = "1 second",
    spark: SparkSession | None = None,
    master: str | None = None,
) -> StreamingQuery:
    """Start a query that appends any Structured Streaming source to a table, each batch once.

    ``source`` gets the session and gives a streaming frame. Without ``every`` the query stops at what is there now.
    """
    engine = register(spark) if spark is not None else session(master)
    frame = source(engine)
    if not frame.isStreaming:
        raise InvalidInputError("the source is not a stream: use spark.readStream", table=table)
    writer = frame.writeStream.format("tidelake").options(**Place.of_lake(lake).options(), table=table)
    writer = writer.option("checkpointLocation", checkpoint).outputMode("append")
    return (writer.trigger(processingTime=every) if every else writer.trigger(availableNow=True)).start()


def watch(
    lake: Lake,
    root: str | os.PathLike[str],
    *,
    every_s: float = 1.0,
    once: bool = False,
    done: str = "move",
    spark: SparkSession | None = None,
    master: str | None = None,
) -> Iterator[DropReport]:
    """Load files as they are dropped, and give a report for each table that got some; for ever, or one round.

    A loaded file is moved to ``_done``, deleted or kept, as ``done`` says.
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
            yield _load_round(engine, lake, table, files[:MOST_FILES])
            for file in files[:MOST_FILES]:
                _put_away(folder, file, done, kept)
        if once:
            return
        time.sleep(every_s)


def _load_round(engine: SparkSession, lake: Lake, table: str, files: list[Path]) -> DropReport:
    """Load files of one table in one Spark job, and commit them file by file."""
    keys = {at: f"sha256:{_digest(file)}" for at, file in enumerate(files)}
    fresh = _fresh(lake, table, keys)
    pieces = [piece for at in fresh for piece in cut_pieces(str(files[at].resolve()), file=at)]
    if not pieces:
        return DropReport(table, len(files), 0, len(files) - len(fresh), 0)
    held, schema = target_of(lake, table, pieces)
    loaded = run_pieces(engine, lake, held, schema, pieces)
    rows = quarantined = 0
    try:
        for at in fresh:
            tasks = [one for one in loaded.tasks if one.file == at]
            bad = [each for one in tasks for each in one.bad]
            set_aside(lake, f"{held.name}_quarantine", bad, keys[at])
            receipt = loaded.commit(tasks, key=keys[at])
            rows += 0 if receipt is None or receipt.replayed else receipt.rows
            quarantined += len(bad)
    finally:
        loaded.close()
    return DropReport(held.name, len(files), rows, len(files) - len(fresh), quarantined)


def _fresh(lake: Lake, table: str, keys: dict[int, str]) -> list[int]:
    """Give the files whose bytes are not in yet, each of several equal ones once."""
    try:
        held = lake.table(table)
    except NotFoundError:
        return list({key: at for at, key in reversed(keys.items())}.values())[::-1]
    first = {key: at for at, key in reversed(keys.items())}
    return sorted(at for key, at in first.items() if held._catalog.receipt(held._info.scope, key=key) is None)


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
        target = folder / DONE / file.relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        os.replace(file, target)


def _mark(file: Path) -> tuple[str, int, int]:
    status = file.stat()
    return str(file), status.st_size, status.st_mtime_ns


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
