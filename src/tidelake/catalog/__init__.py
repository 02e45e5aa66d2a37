"""Keep what tables consist of: one Catalog protocol, and the stores behind it."""

from __future__ import annotations

from pathlib import Path

from tidelake.catalog.protocol import Catalog, Changes, Expired, Garbage, NamedKeys, Pending, Pin, StaleHead, TableInfo
from tidelake.catalog.sql.sql_catalog import SqlCatalog
from tidelake.catalog.work_queue import WorkQueue, WorkUnit
from tidelake.errors import InvalidInputError, NotFoundError, StorageError
from tidelake.objects.protocol import DEADLINE_S

CATALOG_FILE = "catalog.sqlite"

__all__ = [
    "Catalog",
    "Changes",
    "Expired",
    "Garbage",
    "NamedKeys",
    "Pending",
    "Pin",
    "StaleHead",
    "TableInfo",
    "WorkQueue",
    "WorkUnit",
    "open_catalog",
]


def open_catalog(where: str | Path, *, create: bool = True, deadline_s: float = DEADLINE_S) -> Catalog:
    """Open the catalog of a lake: ``postgresql://…``, or the one inside a folder, which is made if need be.

    A folder that holds anything but a lake is InvalidInputError; one that holds nothing is NotFoundError unless it may
    be made.
    """
    if isinstance(where, str) and "://" in where:
        return SqlCatalog(where, deadline_s=deadline_s)
    folder = Path(where)
    file = folder / CATALOG_FILE
    try:
        if not file.exists():
            held = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
            if held and not file.exists():  # unless another has just made it
                raise InvalidInputError("not a lake", folder=folder, kind="not_a_lake")
            if not held and not create:
                raise NotFoundError("no lake here", folder=folder)
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError("the lake's folder cannot be used", folder=folder, reason=error.strerror) from error
    return SqlCatalog(file, deadline_s=deadline_s)
