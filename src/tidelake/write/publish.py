"""Publish a change of a table's rows, and with it what it changes of the table.

The schema and the settings belong to a table, so in a user's scope they are not part of the commit. They go first, in a
commit of their own to the table's shared scope, and the rows follow; killed in between, the table has a wider schema
than it needs yet. The rows are fitted to what the table has become by then, by the same rules by which a commit is
rebased: so two users that widen a table in different ways fare as two writers of one table. It does not write objects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tidelake.catalog.protocol import new_id
from tidelake.errors import ConflictError
from tidelake.handle.table_handle import TableHandle
from tidelake.model.rebase import rebase
from tidelake.model.schema import becoming_real
from tidelake.model.snapshot import Action, Claim, Commit, Fence, Receipt, Snapshot, UpdateTable, inputs_of

EXACT_TRIES = 50  # each lost to another commit of the same scope


def publish(
    table: TableHandle,
    head: Snapshot,
    actions: Sequence[Action],
    *,
    operation: str = "append",
    id: str | None = None,
    key: str | None = None,
    claims: tuple[Claim, ...] = (),
    fence: Fence | None = None,
    is_exact: bool = False,
    check: Callable[[Snapshot], None] | None = None,
) -> Receipt:
    """Commit actions that were built on a head, and give the receipt.

    What is exact is committed on top of that head or not at all. With a check, it is committed on top of the newest
    snapshot for which the check does not raise.
    """
    own = id or new_id()
    actions = prepared(table, head, actions)
    commit = Commit(own, head.scope, head.sequence, tuple(actions), operation, key, claims, fence, is_exact)
    return table.coordinator.commit(commit) if check is None else _checked(table, commit, check)


def prepared(table: TableHandle, head: Snapshot, actions: Sequence[Action]) -> Sequence[Action]:
    """Return the actions of a commit to the head's scope; what they change of a user's table is committed first."""
    return _after_table(table, actions) if head.scope.user else actions


def _checked(table: TableHandle, commit: Commit, check: Callable[[Snapshot], None]) -> Receipt:
    """Commit on top of a snapshot for which a check did not raise, the newest there is."""
    for left in reversed(range(EXACT_TRIES)):
        before = table.catalog.receipt(table.scope, commit_id=commit.id)
        if before is None and commit.key is not None:
            before = table.catalog.receipt(table.scope, key=commit.key)
        if before is not None:
            return before
        head = table.catalog.head(table.scope)
        check(head)
        live = table.catalog.live(table.scope, inputs_of(commit))
        try:
            return table.coordinator.commit(replace(rebase(commit, head, live=live), is_exact=True))
        except ConflictError as error:
            if error.kind != "moved" or not left:
                raise
    raise AssertionError("the last try returns or raises")


def _after_table(table: TableHandle, actions: Sequence[Action]) -> Sequence[Action]:
    """Commit what actions change of the table, and give the others, fitted to what it is then."""
    updates = [action for action in actions if isinstance(action, UpdateTable)]
    if not updates:
        return actions
    shared = table.info.scope
    before = table.catalog.head(shared)
    for wanted in updates:
        if wanted.schema is not None and (real := becoming_real(before.schema, wanted.schema)):
            raise ConflictError("a column cannot become real beside other users' rows", column=real[0], kind="schema")
    update = rebase(Commit(new_id(), shared, before.sequence, tuple(updates), "alter"), before, live=())
    if any(_changes(action, before) for action in update.actions):
        table.coordinator.commit(update)
        before = table.catalog.head(shared)
    whole = Commit(new_id(), shared, before.sequence, tuple(actions))
    fitted = rebase(whole, before, live=frozenset(inputs_of(whole)))
    return [action for action in fitted.actions if not isinstance(action, UpdateTable)]


def _changes(action: Action, head: Snapshot) -> bool:
    """Whether an update is not there already."""
    if not isinstance(action, UpdateTable):
        return False
    is_wider = action.schema is not None and action.schema != head.schema
    return is_wider or any(head.settings.get(name) != value for name, value in action.settings.items())
