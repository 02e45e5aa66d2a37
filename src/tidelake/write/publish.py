"""Publish a change of a table's rows, and with it what it changes of the table.

The schema and the settings belong to a table, so in a user's scope they are not part of the commit. They go first, in a
commit of their own to the table's shared scope, and the rows follow; killed in between, the table has a wider schema
than it needs yet. The rows are fitted to what the table has become by then, by the same rules by which a commit is
rebased: so two users that widen a table in different ways fare as two writers of one table. It does not write objects.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelake.catalog.protocol import new_id
from tidelake.errors import ConflictError
from tidelake.handle.table_handle import TableHandle
from tidelake.model.schema import becoming_real
from tidelake.model.snapshot import Action, Claim, Commit, Fence, Receipt, Snapshot, UpdateTable, inputs_of, rebase


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
) -> Receipt:
    """Commit actions that were built on a head, and give the receipt."""
    own = id or new_id()
    if head.scope.user:
        actions = _after_table(table, actions)
    commit = Commit(own, head.scope, head.sequence, tuple(actions), operation, key, claims, fence)
    return table.coordinator.commit(commit)


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
