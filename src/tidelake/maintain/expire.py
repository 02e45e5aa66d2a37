"""Forget older snapshots of a table, keep some by name, and purge what was deleted from the disk at once.

What only forgotten snapshots could reach goes to the garbage list, for collection. It does not forget the newest
snapshot, one that is pinned, or one that somebody reads now.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidelake.catalog.protocol import Pin, now_us
from tidelake.errors import InvalidInputError
from tidelake.handle.table_handle import TableHandle
from tidelake.maintain.collect import collect_garbage
from tidelake.model.settings import TableSettings
from tidelake.model.times import duration_us


@dataclass(frozen=True, slots=True)
class ExpireReport:
    """What an expiry let go: snapshots, and objects that wait for collection since."""

    snapshots: int
    objects: int

    def __str__(self) -> str:
        return f"{self.snapshots:,} snapshots expired, {self.objects:,} objects wait for collection"


@dataclass(frozen=True, slots=True)
class PurgeReport:
    """What a purge removed for good, and the snapshots that still hold older rows, with what keeps them."""

    snapshots: int
    objects: int
    bytes: int
    held_by: tuple[str, ...] = ()


def expire(table: TableHandle, older_than: str | None = None, *, keep_last: int = 1) -> ExpireReport:
    """Forget snapshots that are older than a duration, or than the table's history; as ``Table.expire`` says."""
    table.refuse_when_pinned()
    if keep_last < 1:
        raise InvalidInputError("the newest snapshot is always kept: keep_last is 1 or more", keep_last=keep_last)
    settings = TableSettings.of(table.catalog.head(table.scope).settings)
    age_us = settings.history_us if older_than is None else 0 if older_than == "0s" else duration_us(older_than)
    expired = table.catalog.expire_snapshots(table.scope, before_us=now_us() - age_us + 1, keep_last=keep_last)
    return ExpireReport(expired.snapshots, len(expired.keys))


def purge(table: TableHandle) -> PurgeReport:
    """Forget all older snapshots and delete what only they held, now."""
    before_us = now_us() + 1
    expired = table.catalog.expire_snapshots(table.scope, before_us=before_us)
    collected = collect_garbage(table.lake)
    table.catalog.shrink()
    held = [f"pin {pin.name!r} (snapshot {pin.sequence})" for pin in table.catalog.pins(table.scope)]
    if table.catalog.retained(table.scope, before_us=before_us).due:
        held.append("a reader that is at work")
    return PurgeReport(expired.snapshots, collected.total.objects, collected.total.bytes, tuple(held))


def pin(table: TableHandle, name: str) -> Pin:
    """Keep the snapshot that a table is at by a name."""
    return table.catalog.pin(table.scope, name, table.snapshot.sequence)
