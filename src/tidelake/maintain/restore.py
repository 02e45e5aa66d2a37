"""Bring back an older state: take back what one commit added, or publish a whole older snapshot as a new one.

Nothing is rewritten in the past: both are new commits, and both can be restored from in turn. The schema stays as wide
as it is. It does not bring back what has expired.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from tidelake.catalog.contributions import Contribution
from tidelake.catalog.protocol import new_id
from tidelake.errors import ConflictError, InvalidInputError, NotFoundError
from tidelake.format import segment_format
from tidelake.handle.table_handle import TableHandle
from tidelake.maintain.rewrite import Rewrite, at_newest_head
from tidelake.model.snapshot import AddExtent, AppendHot, Counts, Extent, Receipt, Snapshot
from tidelake.model.times import When

MOST_NAMED = 10  # commits in a message


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """What undoing or restoring changed: rows and extents that are gone, and that are there again."""

    rows_removed: int
    rows_restored: int
    extents_removed: int
    extents_restored: int
    snapshot: int


def undo(
    table: TableHandle, snapshot: int | str | None = None, *, key: str | None = None, commit: str | None = None
) -> RestoreReport:
    """Take back what one commit added, as ``Table.undo`` says."""
    if [snapshot, key, commit].count(None) != 2:
        raise InvalidInputError("name what to take back by one of snapshot, key and commit", table=table.name)

    def attempt(head: Snapshot) -> RestoreReport:
        receipt = None if snapshot is not None else _receipt(table, key=key, commit=commit)
        past = _retained(table, snapshot=snapshot if receipt is None else receipt.sequence)
        if past.removed != Counts():
            raise InvalidInputError(
                "the snapshot took rows away or moved them: restore the snapshot before it",
                table=table.name, snapshot=past.sequence, operation=past.operation, kind="not_an_append",
            )  # fmt: skip
        added = _contribution(table, past, receipt)
        extents = _extents(table, head, ids=added.extents)
        hot = table.hot(head, added.hot)
        if (len(extents), len(hot)) != (len(added.extents), len(added.hot)):
            raise ConflictError(
                "what the commit added was flushed, compacted or deleted since: delete its rows by a condition, or "
                "restore an older snapshot",
                table=table.name, snapshot=past.sequence, kind="rewritten",
            )  # fmt: skip
        rewrite = Rewrite(table, head, "undo")
        rewrite.take_away(extents, hot)
        removed = rewrite.removed
        return RestoreReport(removed.rows + removed.hot_rows, 0, removed.extents, 0, rewrite.commit().sequence)

    return at_newest_head(table, attempt)


def restore(table: TableHandle, *, snapshot: int | str | None = None, as_of: When | None = None) -> RestoreReport:
    """Publish an older snapshot as the newest, as ``Table.restore`` says."""
    if (snapshot is None) == (as_of is None):
        raise InvalidInputError("give the snapshot to restore, or a time as as_of", table=table.name)

    def attempt(head: Snapshot) -> RestoreReport:
        past = _retained(table, snapshot=snapshot, as_of=as_of)
        then, now = ({extent.id: extent for extent in _extents(table, each)} for each in (past, head))
        then_hot, now_hot = ({batch.id for batch in table.hot_headers(each)} for each in (past, head))
        ids = then.keys() - now.keys()
        back = _extents(table, past, stats=None, ids=ids) if ids else []
        hot_back = table.hot(past, then_hot - now_hot)
        rewrite = Rewrite(table, head, "restore")
        rewrite.take_away((now[each] for each in now if each not in then), table.hot(head, now_hot - then_hot))
        if rewrite.is_empty and not back and not hot_back:
            return RestoreReport(0, 0, 0, 0, head.sequence)
        rewrite.add(*(AppendHot(replace(batch, id=new_id(), added_seq=0, removed_seq=None)) for batch in hot_back))
        try:
            for extent in back:
                rewrite.add(AddExtent(_copied(rewrite, extent)))
        except BaseException:
            rewrite.give_up()
            raise
        removed, added = rewrite.removed, rewrite.added
        receipt = rewrite.commit()
        return RestoreReport(
            removed.rows + removed.hot_rows, added.rows + added.hot_rows, removed.extents, added.extents,
            receipt.sequence,
        )  # fmt: skip

    return at_newest_head(table, attempt)


def _receipt(table: TableHandle, *, key: str | None, commit: str | None) -> Receipt:
    """Return the receipt of the commit with a key or an id; NotFoundError if there is none."""
    found = table.catalog.receipt(table.scope, key=key, commit_id=commit)
    if found is None:
        raise NotFoundError(
            "no commit has this key or id, or it was forgotten", table=table.name, key=key, commit=commit,
            kind="no_commit",
        )  # fmt: skip
    return found


def _contribution(table: TableHandle, past: Snapshot, receipt: Receipt | None) -> Contribution:
    """Return what the commit of a receipt added to a snapshot, or the only one that added anything."""
    everyone = shared = table.catalog.contributions(table.scope, sequence=past.sequence)
    if receipt is not None:
        shared = [each for each in shared if each.commit_id == receipt.commit_id]
        if not shared and any(receipt.commit_id.startswith(f"{each.commit_id}-") for each in everyone):
            raise InvalidInputError(
                "its rows share a commit with those of other requests: undo the snapshot, or delete by a condition",
                table=table.name, snapshot=past.sequence, commit=receipt.commit_id, kind="shared_commit",
            )  # fmt: skip
        if not shared:
            raise NotFoundError(
                "the commit is another table's, or another user's", table=table.name, commit=receipt.commit_id
            )
    found = [each for each in shared if each.extents or each.hot]
    if not found:
        raise InvalidInputError("the commit added no rows", table=table.name, snapshot=past.sequence)
    if len(found) > 1:
        named = ", ".join(each.commit_id for each in found[:MOST_NAMED])
        raise InvalidInputError(
            f"{len(found)} commits that arrived together share the snapshot: name one by the key of its append, or by "
            f"its id as commit: {named}{', …' if len(found) > MOST_NAMED else ''}",
            table=table.name, snapshot=past.sequence, commits=len(found), kind="shared_snapshot",
        )  # fmt: skip
    return found[0]


def _copied(rewrite: Rewrite, extent: Extent) -> Extent:
    """Copy an extent's object under a new name: an extent that left a table does not come back under its own."""
    table, extent_id = rewrite.table, new_id()
    name = rewrite.name(extent_id, segment_format(extent.format).suffix)
    name.put(name.key, table.store.get(extent.key))
    copy = replace(extent, id=extent_id, key=name.key, added_seq=0, removed_seq=None, coverage_key=None)
    rules = table.coverage_store.rules(rewrite.head)
    if rules is None:
        return copy
    covered = table.coverage_store.of_extent(extent, rules)
    covered_at = table.coverage_store.write_extent(table.info, extent_id, covered, rules)
    rewrite.announced(covered_at)
    return replace(copy, coverage_key=covered_at)


def _extents(
    table: TableHandle,
    snapshot: Snapshot,
    *,
    stats: Collection[str] | None = (),
    ids: Collection[str] | None = None,
) -> list[Extent]:
    """List the extents of a snapshot, or some of them, without their statistics unless those are asked for."""
    return table.catalog.extents(table.scope, sequence=snapshot.sequence, stats=stats, ids=ids)


def _retained(table: TableHandle, *, snapshot: int | str | None = None, as_of: When | None = None) -> Snapshot:
    try:
        return table.lake.snapshot(table.name, snapshot=snapshot, as_of=as_of, user=table.user or None)
    except NotFoundError as error:
        raise NotFoundError(
            "the snapshot has expired, or never was: see history", table=table.name, snapshot=snapshot or as_of,
            kind="expired",
        ) from error  # fmt: skip
