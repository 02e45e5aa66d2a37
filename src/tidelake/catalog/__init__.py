"""Keep what tables consist of: one Catalog protocol, and the stores behind it."""

from tidelake.catalog.protocol import (
    Catalog,
    Changes,
    Expired,
    Garbage,
    Pending,
    StaleHead,
    TableInfo,
    WorkQueue,
    WorkUnit,
)

__all__ = [
    "Catalog",
    "Changes",
    "Expired",
    "Garbage",
    "Pending",
    "StaleHead",
    "TableInfo",
    "WorkQueue",
    "WorkUnit",
]
