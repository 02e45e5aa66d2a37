"""Append to the tables that peers keep, as their own manuals say, so that commits can be measured beside ours.

Each peer is what makes a table, what opens it for appending in one process, and where it keeps what it knows about the
table. A handle stays open between appends, which is the fastest way for all of them. They are in the extra ``bench``;
one that is not installed is left out. It does not measure.
"""

from __future__ import annotations

import ctypes
import logging
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa

WARM_UP = 3  # appends, to a table of their own
RETRIES = 1_000  # of a commit that lost a race: none may fail

Append: TypeAlias = Callable[[pa.Table], object]


@dataclass(frozen=True, slots=True)
class Contender:
    """One way to keep a table in a folder."""

    name: str
    package: str
    create: Callable[[Path, pa.Schema], None]
    open: Callable[[Path], Append]
    knowledge: str  # the pattern of the files that say what the table consists of

    @property
    def is_installed(self) -> bool:
        return is_installed(self.package)


def is_installed(package: str) -> bool:
    """Whether a peer can be measured here."""
    try:
        return bool(version(package))
    except PackageNotFoundError:
        return False


def opened(folder: Path, contender: Contender, data: pa.Table, *, rows: int) -> Append:
    """Make a table and open it, after all that happens only once in a process has happened on another."""
    for place, appends in ((folder / "warm-up", WARM_UP), (folder / "table", 0)):
        place.mkdir(parents=True)
        contender.create(place, data.schema)
        append = contender.open(place)
        for at in range(appends):
            append(data.slice(at * rows, rows))
    return append


def synced(contender: Contender) -> Contender:
    """Return the same with its files on the disk when an append returns, as ours are."""

    def open_synced(folder: Path) -> Append:
        append = contender.open(folder)
        place = os.open(folder, os.O_RDONLY)
        sync = ctypes.CDLL(None, use_errno=True).syncfs

        def append_synced(rows: pa.Table) -> None:
            append(rows)
            if sync(place):
                raise OSError(ctypes.get_errno(), "syncfs failed")

        return append_synced

    return replace(contender, name=f"{contender.name}, synced", open=open_synced)


def _create_delta(folder: Path, schema: pa.Schema) -> None:
    from deltalake import DeltaTable

    DeltaTable.create(str(folder / "logs"), schema)


def _open_delta(folder: Path) -> Append:
    from deltalake import CommitProperties, DeltaTable, write_deltalake

    table = DeltaTable(str(folder / "logs"))
    properties = CommitProperties(max_commit_retries=RETRIES)
    return lambda rows: write_deltalake(table, rows, mode="append", commit_properties=properties)


def _iceberg_catalog(folder: Path) -> Any:
    from pyiceberg.catalog.sql import SqlCatalog

    return SqlCatalog("bench", uri=f"sqlite:///{folder}/catalog.sqlite", warehouse=f"file://{folder}")


def _create_iceberg(folder: Path, schema: pa.Schema) -> None:
    catalog = _iceberg_catalog(folder)
    catalog.create_namespace("bench")
    properties = {"commit.retry.num-retries": f"{RETRIES}", "commit.retry.min-wait-ms": "2"}
    catalog.create_table("bench.logs", schema, properties=properties)


def _open_iceberg(folder: Path) -> Append:
    from sqlalchemy.exc import OperationalError

    logging.getLogger("pyiceberg").setLevel(logging.ERROR)  # it tells of every lost race
    table = _iceberg_catalog(folder).load_table("bench.logs")

    def append(rows: pa.Table) -> None:
        for _ in range(RETRIES):
            try:
                table.append(rows)
                return
            except OperationalError:  # its SQLite gave up waiting for others
                time.sleep(0.01)
                table.refresh()

    return append


def _create_lance(folder: Path, schema: pa.Schema) -> None:
    import lance

    lance.write_dataset(schema.empty_table(), str(folder / "logs"))


def _open_lance(folder: Path) -> Append:
    import lance

    dataset = lance.dataset(str(folder / "logs"))

    def append(rows: pa.Table) -> None:
        nonlocal dataset
        dataset = lance.write_dataset(rows, dataset, mode="append")

    return append


PEERS = (
    Contender("delta-rs", "deltalake", _create_delta, _open_delta, "logs/_delta_log/**/*"),
    Contender("pyiceberg on SQLite", "pyiceberg", _create_iceberg, _open_iceberg, "bench/logs/metadata/**/*"),
    Contender("Lance", "pylance", _create_lance, _open_lance, "logs/_*/**/*"),
)
