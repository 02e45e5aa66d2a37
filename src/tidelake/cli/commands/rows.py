"""Commands that put rows in.

It does not start a JVM: files of any size are read here, in this process, a piece at a time.
"""

from __future__ import annotations

import io
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from tidelake.cli.commands.options import json_option, lake_options
from tidelake.cli.commands.progress import shown_progress
from tidelake.cli.commands.reading import READ_OPTIONS, read_options
from tidelake.errors import InvalidInputError, NotFoundError, StorageError, TidelakeError

if TYPE_CHECKING:
    from tidelake.ingest import FileRows
    from tidelake.lake import Lake
    from tidelake.write.append import AppendReport


def check_files(table: str, files: tuple[str, ...], **options: Any) -> None:
    """Look at the first rows of what is to be ingested, before a lake is made for it."""
    from tidelake.catalog.protocol import parse_table_name

    parse_table_name(table)
    for at, file in enumerate(files):
        rows = _rows_of(file, options)
        if at == 0:  # the table is made to fit it
            rows.schema()
        else:
            rows.check()


@click.command()
@click.argument("table")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@read_options
@click.option("--quarantine", type=click.Path(dir_okay=False), metavar="FILE",
              help="Where rows that are left out go; FILE.quarantine.ndjson, here, by default.")  # fmt: skip
@click.option("--once", is_flag=True, help="Leave out files whose bytes were ingested into this table before.")
@json_option
@lake_options(create=True, check=check_files, users=True)
def ingest(lake: Lake, table: str, files: tuple[str, ...], once: bool, as_json: bool, **options: Any) -> None:
    """Append files to a table, which is made if it is not there.

    FILE is JSON (lines, a list, or a document with a list), CSV, Parquet, Arrow, or any text, which is read line by
    line; compressed or not (gzip, zstd, bzip2); or - for standard input. What it holds, and where its times are, is
    found in it. Each file is one commit: all of its rows or none. docs/ingest.md has examples.

    \b
    Examples:
      tidelake ingest app.logs app.ndjson
      kubectl logs web | tidelake ingest app.logs -
      tidelake ingest web.access /var/log/nginx/access.log* --set host=web1
      tidelake ingest app.logs drop/*.ndjson.zst --once
    """
    import orjson

    for file in files:
        key = _key_of(file) if once else None
        rows = _rows_of(file, options)
        with shown_progress(file, rows):
            report = lake.ingest(table, rows, key=key)
        if as_json:
            shape = {"file": file, "rows": report.rows, "snapshot": report.snapshot, "extents": report.extents,
                     "replayed": report.replayed, "overflowed": report.overflowed,
                     "skipped": report.skipped, "changes": list(report.changes)}  # fmt: skip
            click.echo(orjson.dumps(shape))
        else:
            click.echo("\n  ".join([_told(file, table, report, rows), *report.changes]))
    sys.stdout.flush()
    _look_after(lake, table)


def _look_after(lake: Lake, table: str) -> None:
    """Give the table's upkeep a moment: who ingests now and then has no process in which it could go on."""
    from tidelake.maintain.background import at_parting

    with suppress(TidelakeError):  # the rows are in, and what is due stays due
        at_parting(lake.table(table).handle.whole)


@click.command()
@click.argument("table")
@lake_options(users=True)
def flush(lake: Lake, table: str) -> None:
    """Turn a table's hot rows into an extent.

    \b
    Example:
      tidelake flush app.logs --lake lake
    """
    report = lake.table(table).flush()
    extents = "1 extent" if report.extents == 1 else f"{report.extents} extents"
    click.echo(f"flushed {report.rows:,} rows of {table} into {extents}, snapshot {report.snapshot}")


def _rows_of(file: str, options: dict[str, Any]) -> FileRows:
    """Return the rows of a file or of standard input, which is opened once for all who look at it."""
    from tidelake.ingest import FileRows, ReadOptions

    held: dict[str, FileRows] = click.get_current_context().meta.setdefault("tidelake.rows", {})
    if file not in held:
        known = {name: options[name] for name in READ_OPTIONS}
        place = _standard_input() if file == "-" else Path(file)
        quarantine = options["quarantine"]
        held[file] = FileRows(place, ReadOptions(**known, quarantine=Path(quarantine) if quarantine else None))
    return held[file]


def _standard_input() -> BinaryIO:
    """Return standard input, or what was read of it before to know its bytes."""
    held: BinaryIO = click.get_current_context().meta.get("tidelake.input", sys.stdin.buffer)
    return held


def _key_of(file: str) -> str:
    """Return the SHA-256 of what is to be ingested, so that the same bytes count once."""
    import hashlib

    if file == "-":
        data = click.get_current_context().meta.setdefault("tidelake.input", io.BytesIO(sys.stdin.buffer.read()))
        return "sha256:" + hashlib.sha256(data.getbuffer()).hexdigest()
    rows = Path(file)
    try:
        with rows.open("rb") as opened:
            return "sha256:" + hashlib.file_digest(opened, "sha256").hexdigest()
    except FileNotFoundError:
        raise NotFoundError("no such file", path=rows) from None
    except IsADirectoryError:
        raise InvalidInputError("a folder is not a file: name the files in it", path=rows, kind="folder") from None
    except OSError as error:
        raise StorageError("the file cannot be read", path=rows, reason=error.strerror) from error


def _told(file: str, table: str, report: AppendReport, rows: FileRows) -> str:
    if report.replayed:
        return f"{file}: ingested before, in snapshot {report.snapshot} of {table}"
    where = "hot" if not report.extents else "1 extent" if report.extents == 1 else f"{report.extents} extents"
    spilled = f", {report.overflowed:,} values that fit no column are in _overflow" if report.overflowed else ""
    skipped = f", {report.skipped:,} left out: {rows.quarantine.path}" if report.skipped and rows.quarantine else ""
    count = "1 row" if report.rows == 1 else f"{report.rows:,} rows"
    return f"{file}: {count} into {table} ({where}), snapshot {report.snapshot}{spilled}{skipped}"
