"""Do in the protocol's model what the catalog does: show, publish and expire, each in one transaction.

Extents have the sequence that added and the one that removed them, as in the SQL catalog; so have hot batches, which
are no objects, and the united coverage of a table, which has no rows. A snapshot is retained while it is pinned or not
older than ``oldest``, which expiry moves on, and while it is not older than any lease. Rebasing and applying are the
engine's own functions. An observer notes what each commit was meant to do and what it did, in fields that no step
reads. It does not say who acts when: see ``protocol``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cache

from tests.support.protocol_world import (
    HOT,
    SCHEMA,
    SCOPE,
    UNIT,
    UNITED,
    Answer,
    Held,
    Names,
    Plan,
    Published,
    Rules,
    World,
    cold,
)
from tidelake.errors import TidelakeError
from tidelake.model.snapshot import (
    Action,
    AddExtent,
    AppendHot,
    Commit,
    DropHot,
    Extent,
    Fence,
    HotBatch,
    Manifest,
    RemoveExtent,
    Snapshot,
    UnitedCoverage,
    UpdateCoverage,
    inputs_of,
)


def visible(extents: Held, sequence: int) -> tuple[str, ...]:
    """Return the extents that a snapshot shows."""
    return tuple(sorted(name for name, added, gone in extents if added <= sequence and (not gone or gone > sequence)))


def is_retained(world: World, sequence: int) -> bool:
    """Whether the catalog still has a snapshot."""
    return any(each == sequence for each, _ in world.published)


def rows_of(extent: str) -> str:
    """Return the rows of an extent, which its name ends in."""
    return extent.partition("/")[2]


@cache
def rows_in(extents: Names | tuple[str, ...]) -> str:
    """Return the rows of some extents, in order."""
    return "".join(sorted("".join(map(rows_of, extents))))


def commit_of(plan: Plan) -> Commit:
    """Return a plan as the engine's own value."""
    fence = Fence(UNIT, plan.token) if plan.token else None
    adds = tuple(map(_added, plan.adds))
    actions = (*adds, *(DropHot(name) if HOT in name else RemoveExtent(name) for name in plan.removes))
    return Commit(plan.id, SCOPE, plan.base, actions, key=plan.key, fence=fence)


def _added(name: str) -> Action:
    if HOT in name:
        return AppendHot(HotBatch(name, len(rows_of(name)), b"", None, None, 1))
    if UNITED in name:
        return UpdateCoverage(UnitedCoverage(name, _united_at(name)))
    return AddExtent(extent_of(name))


def _united_at(name: str) -> int:
    """Return the snapshot that united coverage is of."""
    return int(name.partition(UNITED)[2].removesuffix("/"))


def united(names: Iterable[str]) -> str:
    """Return the united coverage among some names, "" if there is none."""
    return next((name for name in names if UNITED in name), "")


def extent_of(name: str) -> Extent:
    """Return an extent as the engine's own value."""
    return Extent(name, name, "tlm", 1, len(rows_of(name)), 1, None, None, 1)


def publish(world: World, plan: Plan, rules: Rules) -> tuple[World, Answer]:
    """Commit as the catalog does."""
    # 1. Swap.
    if rules.rebases_itself:
        plan = rebased(rules.rebase, plan, world.head, plan.removes) or plan
    if rules.compares_head and rules.swaps_at_once and plan.base != world.head:
        return world, "stale"
    # 2. Leave out what happened before.
    receipts = dict(world.receipts)
    if rules.finds_replays and (
        first := receipts.get(plan.id) or receipts.get(dict(world.keys).get(plan.key or "", ""))
    ):
        return world, first if rules.answers_first else world.head
    # 3. Check, and take away.
    if plan.token and is_fenced(world, plan, rules):
        return world, "fenced"
    live = visible(world.extents, world.head)
    if rules.checks_live and not set(plan.removes) <= set(live):
        return world, "not_live"
    adds, removes = _united_as(plan, united(live), rules)
    if rules.checks_pending and not world.pending.issuperset(cold(adds)):
        return world, "not_pending"
    # 4. Write.
    sequence = plan.base + 1
    left = frozenset(
        (name, added, sequence if name in removes and not gone else gone)
        for name, added, gone in world.extents
        if name not in removes or (rules.marks_flushed if HOT in name else rules.marks_removed)
    )
    taken_off = adds if rules.leaves_late_coverage else plan.adds
    after = world._replace(
        head=max(sequence, world.head),
        extents=left.union((name, sequence, 0) for name in adds),
        receipts=world.receipts | {(plan.id, sequence)},
        pending=world.pending.difference(taken_off),
    )
    if plan.key and rules.keeps_keys_with_commit:
        after = after._replace(keys=world.keys | {(plan.key, plan.id)})
    if rules.compares_head and rules.swaps_at_once and not rules.rebases_itself:
        after = after._replace(network=frozenset())  # what is still under way is built on an older snapshot
    return _observed(world, after, plan, rules), sequence


def is_fenced(world: World, plan: Plan, rules: Rules) -> bool:
    """Whether a commit acts for a piece of work that is another's by now, or nobody's."""
    is_over = world.unit[0] not in ("", "leased")
    return (rules.checks_fence and plan.token != world.token) or (rules.fences_dead and is_over)


def _united_as(plan: Plan, held: str, rules: Rules) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what a commit adds and takes away: united coverage comes in another's place, unless that is as new."""
    new = united(plan.adds)
    if not new or not held:
        return plan.adds, plan.removes
    if rules.keeps_newer_coverage and _united_at(held) >= _united_at(new):
        return tuple(name for name in plan.adds if name != new), plan.removes
    return plan.adds, (*plan.removes, held)


def _observed(before: World, after: World, plan: Plan, rules: Rules) -> World:
    """Note what the new snapshot holds by the engine's own function, or why it should not have been published."""
    live = visible(before.extents, before.head)
    state, _, owner = before.unit
    is_lost = state != "" and not (state == "leased" and plan.id.startswith(owner))
    if plan.token and (plan.token != before.token or is_lost):
        return after._replace(fault=f"{plan.id} was published after its lease was lost")
    if not set(plan.removes) <= set(live):
        return after._replace(fault=f"{plan.id} was published and its inputs were not live")
    if plan.base != before.head:
        return after  # the history shows what became of the snapshot that was there
    held = _applied(rules.apply, plan, before.head, live)
    if isinstance(held, str):
        return after._replace(fault=f"{plan.id} was published and cannot be applied: {held}")
    old, new = Counter(rows_in(live)), Counter(rows_in(held))
    if max(new.values(), default=1) == 1 and new != old - Counter(plan.takes) + Counter(plan.gives):
        meant = f"to take [{plan.takes}] and give [{plan.gives}]"
        did = f"took [{_text(old - new)}] and gave [{_text(new - old)}]"
        return after._replace(fault=f"{plan.id} was {meant} and {did}")
    return after._replace(
        published=(*before.published, (plan.base + 1, held)),
        taken=before.taken.union((row, plan.base + 1) for row in plan.takes),
    )


def bound_of(world: World, rules: Rules) -> int:
    """Return up to which snapshot the next step of expiry may go."""
    leased = [sequence for _, sequence in world.leases] if rules.heeds_leases else []
    return min([world.oldest + 1, world.head, *leased])


def expire(world: World, oldest: int, rules: Rules, *, is_log: bool = False) -> World:
    """Let go of the snapshots below one, but for pinned ones, and of what no other can see."""
    pinned = {sequence for _, sequence in world.pins} if rules.heeds_pins else set()
    kept = tuple((sequence, held) for sequence, held in world.published if sequence >= oldest or sequence in pinned)
    gone = _unseen(world.extents, tuple(sequence for sequence, _ in kept), oldest, rules)
    if world.oldest == world.head and not rules.expires_below_head:
        gone = world.extents
    left = world.extents - gone
    named = {name for name, _, _ in left} if rules.keeps_once_named else set()
    given = frozenset(cold(name for name, _, _ in gone)) - named
    return world._replace(
        oldest=max(oldest, world.oldest),
        looked=0,
        extents=left,
        garbage=world.garbage | given,
        given=world.given.union((name, oldest) for name in given) if is_log else world.given,
        published=kept,
    )


@cache
def _unseen(extents: Held, retained: tuple[int, ...], oldest: int, rules: Rules) -> Held:
    """Return the extents that leave with the snapshots that are not retained any more."""
    if not rules.expires_unseen:
        return frozenset(extent for extent in extents if 0 < extent[2] <= oldest + 1)
    if not rules.keeps_pinned_extents:
        return frozenset(extent for extent in extents if 0 < extent[2] <= oldest)
    if not rules.expires_in_holes:
        return frozenset(extent for extent in extents if 0 < extent[2] <= min(retained))
    return frozenset(
        (name, added, gone)
        for name, added, gone in extents
        if gone and not any(added <= sequence < gone for sequence in retained)
    )


@cache
def read_history(extents: Held, published: Published) -> tuple[str | None, Names]:
    """Return what is wrong with the retained snapshots, if anything, and what they reach."""
    reachable: set[str] = set()
    for sequence, held in published:
        shown = visible(extents, sequence)
        reachable.update(shown)
        if set(shown) != held:
            return f"snapshot {sequence} held {sorted(held)} and shows {list(shown)}", frozenset()
        for row, times in Counter(rows_in(shown)).most_common(1):
            if times > 1:
                return f"the row {row} is {times} times in snapshot {sequence}", frozenset()
    if unseen := {name for name, _, _ in extents} - reachable:
        return f"no snapshot sees {min(unseen)}, and it stays", frozenset()
    return None, frozenset(cold(reachable))


@cache
def rebased(rebase: Callable[..., Commit], plan: Plan, head: int, live: tuple[str, ...]) -> Plan | None:
    """Fit a plan to a newer snapshot as the engine does, or return None if it does not fit."""
    try:
        commit = rebase(commit_of(plan), _snapshot_at(head), live=live)
    except TidelakeError:
        return None
    return plan._replace(base=commit.base, removes=inputs_of(commit))


@cache
def _applied(apply: Callable[..., Manifest], plan: Plan, head: int, live: tuple[str, ...]) -> Names | str:
    actions = [_added(name) for name in live]
    extents = {action.extent.id: action.extent for action in actions if isinstance(action, AddExtent)}
    hot = {action.batch.id: action.batch for action in actions if isinstance(action, AppendHot)}
    coverage = next((action.coverage for action in actions if isinstance(action, UpdateCoverage)), None)
    manifest = Manifest(replace(_snapshot_at(head), coverage=coverage), extents, hot)
    try:
        after = apply(manifest, [commit_of(plan)], snapshot_id=f"{head + 1}", at_us=head + 1)
        whole = after.snapshot.coverage
        return after.live | ({whole.key} if whole is not None else set())
    except TidelakeError as error:
        return str(error)


def _snapshot_at(sequence: int) -> Snapshot:
    return Snapshot(SCOPE, sequence, f"{sequence}", None, sequence, "append", SCHEMA, {})


def _text(rows: Counter[str]) -> str:
    return "".join(sorted(rows.elements()))
