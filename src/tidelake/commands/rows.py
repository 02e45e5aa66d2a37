"""Commands that put rows in.

It does not start a JVM: files of any size are read here, in this process, a piece at a time.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidelake.commands.options import json_option, lake_options
from tidelake.errors import InvalidInputError, NotFoundError, SchemaError, StorageError

if TYPE_CHECKING:
    from tidelake.lake import Lake

PROGRESS_BYTES = 32 << 20  # a file that is likely to take more than a second


def check_files(table: str, files: tuple[str, ...], time: str | None, **_: Any) -> None:
    """Look at the first rows of what is to be ingested, before a lake is made for it."""
    from tidelake.catalog.protocol import parse_table_name
    from tidelake.ingest import first_rows, timed_schema

    parse_table_name(table)
    for at, file in enumerate(files):
        with _named(file):
            sample, _ = first_rows(_rows_of(file))
            if at == 0:  # the table is made to fit it
                timed_schema(sample, time=time)


@click.command()
@click.argument("table")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--time", metavar="COLUMN", help="The time column of a table that is made; found by its name otherwise.")
@click.option("--once", is_flag=True, help="Leave out files whose bytes were ingested into this table before.")
@json_option
@lake_options(create=True, check=check_files)
def ingest(lake: Lake, table: str, files: tuple[str, ...], time: str | None, once: bool, as_json: bool) -> None:
    """Append files to a table, which is made if it is not there.

    FILE is NDJSON (.ndjson, .jsonl, .json), CSV, Parquet or Arrow, the first two also compressed (.gz, .zst, .bz2), or
    - for NDJSON from standard input. Each file is one commit: all of its rows or none.

    \b
    Examples:
      tidelake ingest app.logs app.ndjson
      kubectl logs web | tidelake ingest app.logs -
      tidelake ingest app.logs drop/*.ndjson.zst --once
    """
    import orjson

    for file in files:
        rows = _rows_of(file)
        key = _key_of(rows) if once else None
        with _progress(file, rows), _named(file):
            report = lake.ingest(table, rows, time=time, key=key)
        if as_json:
            shape = {"file": file, "rows": report.rows, "snapshot": report.snapshot, "extents": report.extents,
                     "replayed": report.replayed, "overflowed": report.overflowed}  # fmt: skip
            click.echo(orjson.dumps(shape))
        else:
            click.echo(_told(file, table, report))


@click.command()
@click.argument("table")
@lake_options()
def flush(lake: Lake, table: str) -> None:
    """Turn a table's hot rows into an extent.

    \b
    Example:
      tidelake flush app.logs --lake lake
    """
    report = lake.table(table).flush()
    extents = "1 extent" if report.extents == 1 else f"{report.extents} extents"
    click.echo(f"flushed {report.rows:,} rows of {table} into {extents}, snapshot {report.snapshot}")


def _rows_of(file: str) -> bytes | Path:
    """Give a file's path, or what standard input holds, which can be read once and is kept."""
    if file != "-":
        return Path(file)
    held: bytes = click.get_current_context().meta.setdefault("tidelake.input", b"")
    if not held:
        held = click.get_current_context().meta["tidelake.input"] = sys.stdin.buffer.read()
    return held


@contextmanager
def _named(file: str) -> Iterator[None]:
    """Say which file is wrong, and what to do with JSON that is not a line an object."""
    try:
        yield
    except (InvalidInputError, SchemaError) as error:
        message, near = error.message, str(error.facts.get("near", "")).strip("'\"")
        if error.facts.get("line") == 1 and near.startswith("["):
            message += ": the file is a list, make it lines with jq -c '.[]'"
        elif error.facts.get("line") == 1 and near == "{":
            message += ": give each object its own line, with jq -c ."
        facts = error.facts if "path" in error.facts else {**error.facts, "file": file}
        raise type(error)(message, kind=error.kind, **facts) from error


def _key_of(rows: bytes | Path) -> str:
    """Give the SHA-256 of what is to be ingested, so that the same bytes count once."""
    import hashlib

    if isinstance(rows, bytes):
        return "sha256:" + hashlib.sha256(rows).hexdigest()
    try:
        with rows.open("rb") as file:
            return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        raise NotFoundError("no such file", path=rows) from None
    except IsADirectoryError:
        raise InvalidInputError("a folder is not a file: name the files in it", path=rows, kind="folder") from None
    except OSError as error:
        raise StorageError("the file cannot be read", path=rows, reason=error.strerror) from error


def _told(file: str, table: str, report: Any) -> str:
    if report.replayed:
        return f"{file}: ingested before, in snapshot {report.snapshot} of {table}"
    where = "hot" if not report.extents else "1 extent" if report.extents == 1 else f"{report.extents} extents"
    spilled = f", {report.overflowed:,} values that fit no column are in _overflow" if report.overflowed else ""
    rows = "1 row" if report.rows == 1 else f"{report.rows:,} rows"
    return f"{file}: {rows} into {table} ({where}), snapshot {report.snapshot}{spilled}"


def _progress(file: str, rows: Any) -> Any:
    """Show on a terminal that a large file is under way."""
    from contextlib import nullcontext

    large = isinstance(rows, bytes) or (rows.exists() and rows.stat().st_size > PROGRESS_BYTES)
    if not large or not sys.stderr.isatty():
        return nullcontext()
    from rich.console import Console

    return Console(stderr=True).status(f"ingesting {file}")
