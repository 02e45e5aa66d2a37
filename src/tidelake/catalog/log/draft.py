"""Turn commits into the next entry of a log, or say why that cannot be.

Pure but for two questions that the caller answers: which receipt a commit got before, and whether an object is
announced. It does not append the entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tidelake.catalog.commit import answers_of, passed_over, refitted
from tidelake.catalog.log.entries import Change, Covered, Done, Entry, Mark, Named
from tidelake.catalog.log.metadata import bucket_of, meta_of
from tidelake.catalog.log.state import LogState, keys_held
from tidelake.catalog.log.work import check_fence
from tidelake.catalog.protocol import TableInfo
from tidelake.errors import ConflictError, InvalidInputError
from tidelake.model.schema import Schema
from tidelake.model.snapshot import (
    AddExtent,
    AppendHot,
    Commit,
    Counts,
    DropHot,
    Receipt,
    RecordOffset,
    RemoveExtent,
    Snapshot,
    UpdateTable,
    advance,
    check_positions,
    count_of,
    coverage_keys_of,
    first_snapshot,
    has_positions,
    inputs_of,
    keys_of,
    make_id,
    receipt_of,
)


@dataclass(frozen=True, slots=True)
class Draft:
    """The entry that would publish some commits, none if all of them happened before, and the answers after it."""

    entry: Entry | None
    answers: list[Receipt]
    keys: tuple[str, ...] = ()  # of the extents it adds, and of coverage


@dataclass(frozen=True, slots=True)
class Drafter:
    """What a draft needs to know besides the state of the log."""

    receipt: Callable[[LogState, Commit], Receipt | None]  # what it got, if it happened before
    is_pending: Callable[[LogState, str], bool]  # whether a key may be committed

    def draft(self, state: LogState, commits: Sequence[Commit], *, at_us: int, salt: int) -> Draft:
        """Fit commits, built on the head, into an entry."""
        replayed = self._find_replayed(state, commits)
        fresh = [commit for at, commit in enumerate(commits) if at not in replayed]
        if not fresh:
            return Draft(None, answers_of(commits, replayed, {}))
        if replayed:
            fresh = refitted(fresh, state.head)
        for commit in fresh:
            check_fence(state, commit)
            _check_new(state, commit)
        removed = _removed_by(state, fresh)
        keys = self._check_pending(state, fresh)
        snapshot_id = make_id(state.version + 1, salt)
        snapshot = advance(state.head, fresh, removed=removed, snapshot_id=snapshot_id, at_us=at_us)
        receipts = {commit.id: receipt_of(commit, snapshot) for commit in fresh}
        changes = tuple(_changes(state, fresh, snapshot))
        entry = Entry(
            state.version + 1, snapshot_id, snapshot.committed_us, changes, _mark_of(snapshot, fresh, receipts)
        )
        late = passed_over(fresh, snapshot)
        taken = tuple(key for key in keys if key not in late)
        return Draft(entry, answers_of(commits, replayed, receipts), taken)

    def _find_replayed(self, state: LogState, commits: Sequence[Commit]) -> dict[int, Receipt | int]:
        """Return which commits happened before, by position: the first receipt, or the position of its twin here."""
        found: dict[int, Receipt | int] = {}
        here: dict[tuple[str, str], int] = {}
        last: dict[str, int] = {}
        for at, commit in enumerate(commits):
            marks = [("id", commit.id), *(("key", key) for key in keys_of(commit))]
            offsets = {action.stream: action.batch for action in commit.actions if isinstance(action, RecordOffset)}
            twin = next((here[mark] for mark in marks if mark in here), None)
            if (first := self.receipt(state, commit)) is not None:
                found[at] = first
            elif twin is not None:
                found[at] = twin
            elif not has_positions(commit) and any(
                batch <= last.get(s, state.offsets.get(s, -1)) for s, batch in offsets.items()
            ):
                head = state.head  # its receipt is forgotten
                found[at] = Receipt(commit.id, head.id, head.sequence, head.committed_us, 0, 0, replayed=True)
            else:
                check_positions(commit.actions, {**state.offsets, **last})
                here |= dict.fromkeys(marks, at)
                last |= offsets
        return found

    def _check_pending(self, state: LogState, commits: Sequence[Commit]) -> tuple[str, ...]:
        taken: dict[str, None] = {}
        added = ((commit.id, a.extent.key) for commit in commits for a in commit.actions if isinstance(a, AddExtent))
        for commit_id, key in added:
            if key in taken or not self.is_pending(state, key):  # an object has one owner
                raise ConflictError(
                    "an extent is not registered as pending, or was given up",
                    commit=commit_id,
                    key=key,
                    kind="not_pending",
                )
            taken[key] = None
        covered = {key: commit.id for commit in commits for key in coverage_keys_of(commit)}
        unknown = [key for key in covered if not self.is_pending(state, key)]
        held = frozenset(keys_held(state) if unknown else ())
        for key in unknown:
            if key not in held:  # what a retained snapshot holds already may be named again
                raise ConflictError(
                    "coverage is not registered as pending, or was given up",
                    commit=covered[key],
                    key=key,
                    kind="not_pending",
                )
        return (*taken, *covered)


def creation(info: TableInfo, schema: Schema, settings: Mapping[str, object], *, salt: int) -> Entry:
    """Return the entry that creates a table."""
    meta = meta_of(schema, settings, created_us=info.created_us)
    first = first_snapshot(info.scope, schema, settings, snapshot_id=make_id(1, salt), at_us=info.created_us)
    named = Named(info.id, info.namespace, info.name)
    return Entry(1, first.id, first.committed_us, (meta,), _mark_of(first, (), {}), table=named)


def _mark_of(snapshot: Snapshot, commits: Sequence[Commit], receipts: Mapping[str, Receipt]) -> Mark:
    actions = [action for commit in commits for action in commit.actions]
    return Mark(
        sequence=snapshot.sequence,
        parent_id=snapshot.parent_id,
        operation=snapshot.operation,
        schema_version=snapshot.schema.version,
        totals=snapshot.totals,
        added=snapshot.added,
        removed=snapshot.removed,
        coverage=snapshot.coverage,
        commits=tuple(_done(commit, receipts[commit.id]) for commit in commits),
        hot=tuple(replace(a.batch, added_seq=0, removed_seq=None) for a in actions if isinstance(a, AppendHot)),
        dropped=tuple(action.batch_id for action in actions if isinstance(action, DropHot)),
    )


def _done(commit: Commit, receipt: Receipt) -> Done:
    offsets = tuple(action for action in commit.actions if isinstance(action, RecordOffset))
    return Done(commit.id, commit.key, receipt.rows, receipt.extents, offsets, commit.parts)


def _changes(state: LogState, commits: Sequence[Commit], snapshot: Snapshot) -> Iterator[Change]:
    """Yield what commits do in the original's words; the table's coverage comes last, once it is known."""
    schema, settings, body = state.head.schema, state.head.settings, state.meta
    for action in (action for commit in commits for action in commit.actions):
        match action:
            case UpdateTable(widened, changed):
                schema = widened or schema
                settings = {name: value for name, value in {**settings, **changed}.items() if value is not None}
                meta = meta_of(schema, settings, created_us=state.info.created_us, before=body)
                body = meta.body
                yield meta
            case AddExtent(extent):
                yield AddExtent(replace(extent, added_seq=0, removed_seq=None))
            case RemoveExtent():
                yield action
            case _:
                pass  # the mark has it
    coverage, bucket = snapshot.coverage, bucket_of(settings.get("bucket"))
    if coverage is not None and coverage != state.head.coverage and bucket is not None:
        yield Covered(bucket, coverage.key)


def _check_new(state: LogState, commit: Commit) -> None:
    for action in commit.actions:
        item = action.extent.id if isinstance(action, AddExtent) else None
        item = action.batch.id if isinstance(action, AppendHot) else item
        if item is not None and (state.extents.knows(item) or state.hot.knows(item)):
            raise InvalidInputError("an id is added twice", id=item, kind="added_twice")


def _removed_by(state: LogState, commits: Sequence[Commit]) -> Counts:
    """Count what commits take away, all of it live and each thing once, or ConflictError."""
    removed, taken = Counts(), set[str]()
    for commit in commits:
        for item in inputs_of(commit):
            if item in taken or not (item in state.extents or item in state.hot):
                raise ConflictError("an input is no longer live", commit=commit.id, input=item, kind="not_live")
            taken.add(item)
            removed += count_of(state.extents[item] if item in state.extents else state.hot[item])
    return removed
