"""Append rows of any source to a table, which is made to fit the first of them if it is not there.

A table that was made for rows which did not come is dropped again, unless others have used it since. It does not read
files itself: see ``tidelake.ingest``.
"""

from __future__ import annotations

import io
import os
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, cast

from tidelake.catalog.names import check_user
from tidelake.errors import AlreadyExistsError, InvalidInputError, NotFoundError
from tidelake.handle.lake_handle import LakeHandle
from tidelake.handle.table_handle import TableHandle
from tidelake.ingest import FileRows, ReadOptions, first_rows, timed_schema
from tidelake.model.schema import Schema
from tidelake.model.settings import SHARED, USER
from tidelake.write.append import AppendReport, append
from tidelake.write.create import create_table

FIRST_SEQUENCE = 1  # of a table that holds nothing yet


def ingest(
    lake: LakeHandle,
    name: str,
    rows: Any,
    options: ReadOptions,
    *,
    key: str | None = None,
    user: str | None = None,
    or_shared: bool = False,
) -> AppendReport:
    """Append rows as ``Lake.ingest`` says; options but the time column's name are for files.

    A table that is shared takes the rows of a user too if ``or_shared``.
    """
    if or_shared:
        with suppress(NotFoundError):
            user = user if lake.has_users(lake.catalog.table(name)) else None
    source = rows
    if isinstance(rows, str | os.PathLike):
        source = FileRows(Path(rows), options)
    elif isinstance(rows, bytes) and options != ReadOptions(time=options.time):
        source = FileRows(io.BytesIO(rows), options)
    elif isinstance(rows, io.RawIOBase | io.BufferedIOBase):
        source = FileRows(cast(BinaryIO, rows), options)
    elif not isinstance(rows, FileRows) and options != ReadOptions(time=options.time):
        raise InvalidInputError("these options are for files", got=type(rows).__name__, kind="bad_option")
    if not isinstance(source, FileRows):
        return _ingest(lake, name, source, options.time, key, user)
    try:
        report = _ingest(lake, name, source, options.time, key, user)
    except BaseException:
        source.abandon()
        raise
    source.finish()
    return report if source.quarantine is None else replace(report, skipped=source.quarantine.count)


def _ingest(
    lake: LakeHandle, name: str, rows: Any, time: str | None, key: str | None, user: str | None
) -> AppendReport:
    """Append rows to a table, which is made if need be; what fails or is stopped leaves none that was made."""
    if user is not None:
        check_user(user)
    try:
        table = TableHandle.open(lake, name, user=user)
    except NotFoundError:
        rows, schema, found = _fitting(rows, time)
        try:
            with suppress(AlreadyExistsError):  # another writer was as fast
                create_table(lake.catalog, name, schema, time=found, scope=SHARED if user is None else USER)
            return append(TableHandle.open(lake, name, user=user), rows, key=key)
        except BaseException:
            _drop_unused(lake, name)
            raise
    return append(table, rows, key=key)


def _fitting(rows: Any, time: str | None) -> tuple[Any, Schema, str]:
    """Choose columns and the time column for rows; return all of them again, for some are read by then."""
    if isinstance(rows, FileRows):
        return (rows, *rows.schema())
    sample, rows = first_rows(rows)
    return (rows, *timed_schema(sample, time=time))


def _drop_unused(lake: LakeHandle, name: str) -> None:
    """Drop a table that was made for rows which did not come, unless others have used it since."""
    with suppress(Exception):  # what went wrong before is what the caller hears of
        info = lake.catalog.table(name)
        if lake.snapshot(name).sequence == FIRST_SEQUENCE and len(list(islice(lake.catalog.scopes(info.id), 2))) == 1:
            lake.catalog.drop_table(name)
