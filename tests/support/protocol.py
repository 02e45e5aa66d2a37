"""Model the commit protocol as a small world, and visit every state it can get into.

Writers append one row each, compactors merge all that is live, a collector gives up, expires and deletes. A step is one
thing that others can see; between any two steps anybody else may act, crash, or have a commit arrive late whose sender
has stopped waiting for the answer::

    idle ──▶ claimed ──▶ based ──▶ registered ──▶ ready ──commit──▶ receipted ──▶ done
              (leases)                             ▲ │ stale, or looked and not in: behind, then rebase
                                                   └─┘ lost: unknown, then look · refused: refused, then look

Rebasing and applying are the engine's own functions. The catalog is modelled as the SQL catalog keeps it, extents with
the sequence that added and the one that removed them, so that what it shows can be compared with what ``apply`` gives.
An extent's name ends in the rows it holds: ``c1/abs`` is the first extent of compactor c, with the rows a, b and s.

``Rules`` are what the protocol does; a rule that is switched off is a bug, and ``explore`` must find what it breaks. An
observer notes what really happened in fields that no step reads. It does not model time: whoever waits for a time may
find that it has come at once, or never.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

from tidelake import snapshot
from tidelake.errors import TidelakeError
from tidelake.schema import Schema
from tidelake.snapshot import AddExtent, Commit, Extent, Manifest, RemoveExtent, Scope, Snapshot

Phase: TypeAlias = Literal[
    "idle", "claimed", "based", "registered", "ready", "behind", "unknown", "refused", "receipted", "done", "gone"
]
Role: TypeAlias = Literal["writer", "writer without key", "compactor", "leased compactor"]
Names: TypeAlias = frozenset[str]
Step: TypeAlias = str  # what happened, for a person

SCOPE = Scope("t")
SCHEMA = Schema.of({"row": "string"})
SEED = "s0/s"  # the extent that is there in the beginning


@dataclass(frozen=True, slots=True)
class Rules:
    """What the protocol does. Each is needed: see the tests, which switch them off."""

    # the catalog
    compares_head: bool = True
    swaps_at_once: bool = True  # compares and publishes in one transaction
    finds_replays: bool = True
    answers_replays_first: bool = True  # with the first receipt, not with the newest snapshot
    keeps_keys_with_commit: bool = True
    checks_live: bool = True
    checks_pending: bool = True
    checks_fence: bool = True
    marks_removed: bool = True  # and does not delete what older snapshots have
    expires_below_head: bool = True
    expires_unseen: bool = True  # only what no retained snapshot has
    # whoever commits
    registers_first: bool = True
    stays_registered: bool = True  # until the commit
    names_anew: bool = True  # each try has its own extent
    acknowledges_after_commit: bool = True
    looks_when_unknown: bool = True
    looks_for_receipt: bool = True  # and does not guess from the head or the extents
    looks_when_refused: bool = True
    # the collector
    heeds_pending: bool = True
    heeds_retained: bool = True
    forgets_last: bool = True
    # the pure functions
    rebase: Callable[..., Commit] = snapshot.rebase
    apply: Callable[..., Manifest] = snapshot.apply


@dataclass(frozen=True, slots=True)
class Cast:
    """Who takes part, by name, and how much may go wrong."""

    roles: tuple[tuple[str, Role], ...]
    crashes: int
    losses: int
    abandons: int


class Plan(NamedTuple):
    """A commit, as its sender carries it about."""

    id: str
    base: int
    adds: str
    removes: tuple[str, ...]
    key: str | None
    token: int


class Actor(NamedTuple):
    """Somebody who commits: how far the present try has got."""

    phase: Phase
    attempt: int
    plan: Plan | None = None
    token: int = 0
    sequence: int = 0  # of the receipt


class World(NamedTuple):
    """Everything that is the case. The last fields are the observer's."""

    actors: tuple[Actor, ...]
    head: int = 1
    oldest: int = 1
    extents: frozenset[tuple[str, int, int]] = frozenset({(SEED, 1, 0)})  # name, added, removed or 0
    receipts: frozenset[tuple[str, int]] = frozenset()
    keys: frozenset[tuple[str, str]] = frozenset()  # key, commit
    pending: Names = frozenset()
    garbage: Names = frozenset()
    objects: Names = frozenset({SEED})
    token: int = 0
    network: frozenset[Plan] = frozenset()  # sent, unanswered
    swept: str = ""  # what the collector is about to do, and to which object
    crashes: int = 0  # left
    losses: int = 0
    abandons: int = 0
    published: tuple[Names, ...] = (frozenset({SEED}),)  # what each retained snapshot held when it was published
    acknowledged: frozenset[tuple[str, int]] = frozenset({("s", 1)})  # row, and the sequence its writer was told
    denied: Names = frozenset()  # commits whose senders were told that they did not happen
    overtaken: Names = frozenset()  # objects that were collected before they were written
    fault: str = ""


@dataclass(frozen=True, slots=True)
class Exploration:
    """What a search found: how much there was to see, and the way to a violation if there is one."""

    states: int
    steps: int
    endings: int
    violation: str | None = None
    trace: tuple[Step, ...] = ()

    def __str__(self) -> str:
        seen = f"{self.states:,} states, {self.steps:,} steps, {self.endings:,} endings"
        if self.violation is None:
            return seen
        return "\n".join([f"{self.violation}, after {len(self.trace)} steps", *(f"  {step}" for step in self.trace)])


def explore(cast: Cast, rules: Rules = Rules()) -> Exploration:  # noqa: B008 - a frozen value
    """Visit every state, nearest first, until one violates an invariant."""
    start = World(
        tuple(Actor("idle", 1) for _ in cast.roles),
        crashes=cast.crashes,
        losses=cast.losses,
        abandons=cast.abandons,
    )
    ways: dict[World, tuple[World | None, Step]] = {start: (None, "")}
    waiting = deque([start])
    steps = endings = 0
    while waiting:
        world = waiting.popleft()
        found = violation(world)
        is_end = True
        if found is None:
            for step, after in next_steps(world, cast, rules):
                steps += 1
                is_end = False
                if after not in ways:
                    ways[after] = world, step
                    waiting.append(after)
            if is_end:
                endings += 1
                found = wedged(world, cast)
        if found is not None:
            return Exploration(len(ways), steps, endings, found, _way(ways, world))
    return Exploration(len(ways), steps, endings)


def next_steps(world: World, cast: Cast, rules: Rules) -> Iterator[tuple[Step, World]]:
    """Give all that can happen next."""
    urgent = [at for at, actor in enumerate(world.actors) if _is_urgent(world, actor)][:1]
    for at, (name, role) in enumerate(cast.roles):
        if urgent and at not in urgent:
            continue
        actor = world.actors[at]
        for step, after in _act(_Turn(world, at, name, role, rules), actor):
            yield f"{name} {step}", after
        if world.crashes and actor.phase not in ("idle", "done", "gone"):
            over = Actor("gone", 0) if role == "writer without key" else Actor("idle", actor.attempt + 1)
            yield f"{name} crashes", _set(world, at, over)._replace(crashes=world.crashes - 1)
    if urgent:
        return
    for plan in world.network:
        arrived = world._replace(network=world.network - {plan})
        yield f"the commit {plan.id} arrives late", _publish(arrived, plan, rules)[0]
    yield from _sweep(world, rules)


def violation(world: World) -> str | None:
    """Say which invariant a state breaks."""
    if world.fault:
        return world.fault
    found, reachable = _history_violation(world.extents, world.oldest, world.head, world.published)
    if found is not None:
        return found
    if lost := reachable - world.objects:
        return f"a retained snapshot reaches {min(lost)}, which is deleted"
    for row, sequence in world.acknowledged:
        for at in range(max(sequence, world.oldest), world.head + 1):
            if row not in _rows(world.published[at - world.oldest]):
                return f"the acknowledged row {row} is not in snapshot {at}"
        if sequence > world.oldest and row in _rows(world.published[sequence - 1 - world.oldest]):
            return f"the row {row} was acknowledged for snapshot {sequence} and is in an earlier one"
    if lies := world.denied & {commit for commit, _ in world.receipts}:
        return f"the sender of {min(lies)} was told that it did not happen, and it did"
    if orphans := world.objects - reachable - world.pending - world.garbage - world.overtaken:
        return f"nobody will ever collect {min(orphans)}"
    return None


def wedged(world: World, cast: Cast) -> str | None:
    """Say who is stuck in a state after which nothing can happen."""
    for (name, role), actor in zip(cast.roles, world.actors, strict=True):
        if role == "writer" and actor.phase != "done":
            return f"{name} is stuck: {actor.phase}"
    return None


def visible(extents: frozenset[tuple[str, int, int]], sequence: int) -> tuple[str, ...]:
    """Give the extents that a snapshot shows."""
    return tuple(sorted(name for name, added, gone in extents if added <= sequence and (not gone or gone > sequence)))


class _Turn(NamedTuple):
    """Whose turn it is, in which world."""

    world: World
    at: int
    name: str
    role: Role
    rules: Rules


def _act(turn: _Turn, actor: Actor) -> Iterator[tuple[Step, World]]:
    world, rules = turn.world, turn.rules
    match actor.phase:
        case "idle" if turn.role == "leased compactor":
            token = world.token + 1
            claimed = actor._replace(phase="claimed", token=token)
            yield f"leases the work, token {token}", _set(world, turn.at, claimed)._replace(token=token)
        case "idle" | "claimed":
            yield from _begin(turn, actor)
        case "based":
            yield from _register(turn, actor)
        case "registered":
            yield from _write(turn, actor)
        case "ready":
            yield from _commit(turn, actor)
        case "behind":
            yield from _rebase(turn, actor)
        case "unknown":
            yield from _look(turn, actor)
        case "refused":
            yield from _face_refusal(turn, actor)
        case "receipted":
            yield from _acknowledge(turn, actor)
        case "done" | "gone":
            pass


def _begin(turn: _Turn, actor: Actor) -> Iterator[tuple[Step, World]]:
    world = turn.world
    removes: tuple[str, ...] = ()
    rows = turn.name
    key = turn.name if turn.role == "writer" else None
    if "compactor" in turn.role:
        removes = visible(world.extents, world.head)
        if len(removes) < 2:
            return
        rows = "".join(sorted("".join(map(_rows_of, removes))))
    own = f"{turn.name}{actor.attempt}"
    adds = f"{own if turn.rules.names_anew else turn.name}/{rows}"
    plan = Plan(own, world.head, adds, removes, key, actor.token)
    yield from _register(turn, actor._replace(phase="based", plan=plan))


def _is_urgent(world, actor):
    match actor.phase:
        case "receipted": return True
        case "registered": return not world.abandons and actor.plan.adds in world.pending
        case "refused" | "unknown": return not any(p.id == actor.plan.id for p in world.network)
        case _: return False


def _register(turn: _Turn, actor: Actor) -> Iterator[tuple[Step, World]]:
    world, plan = turn.world, _plan(actor)
    if not turn.rules.registers_first:
        if plan.adds not in world.objects:
            after = _set(world, turn.at, actor._replace(phase="registered"))
            yield f"writes {plan.adds}", after._replace(objects=world.objects | {plan.adds})
        return
    if turn.rules.names_anew and plan.adds in world.pending | world.garbage:
        return
    after = _set(world, turn.at, actor._replace(phase="registered"))
    yield f"registers {plan.adds}", after._replace(pending=world.pending | {plan.adds})


def _write(turn: _Turn, actor: Actor) -> Iterator[tuple[Step, World]]:
    world, plan, rules = turn.world, _plan(actor), turn.rules
    if not rules.registers_first:
        after = _set(world, turn.at, actor._replace(phase="ready"))
        yield f"registers {plan.adds}", after._replace(pending=world.pending | {plan.adds})
        return
    if not world.objects.issuperset(plan.removes):
        yield "finds an input deleted", _give_up(world, turn.at, plan, Actor("gone", 0))
        return
    after = _set(world, turn.at, actor._replace(phase="ready"))._replace(objects=world.objects | {plan.adds})
    if not rules.stays_registered:
        after = _release(after, plan.adds)
    if not rules.acknowledges_after_commit and plan.key:
        after = after._replace(acknowledged=after.acknowledged | {(turn.name, plan.base + 1)})
    yield f"writes {plan.adds}", after


def _commit(turn: _Turn, actor: Actor) -> Iterator[tuple[Step, World]]:
    world, plan, rules = turn.world, _plan(actor), turn.rules
    if world.losses:
        lost = _set(world, turn.at, actor._replace(phase="unknown"))
        sent = lost._replace(network=world.network | {plan}, losses=world.losses - 1)
        yield f"commits {plan.id} onto {plan.base} and gets no answer", sent
    after, answer = _publish(world, plan, rules)
    if isinstance(answer, int):
        told = actor._replace(phase="receipted", sequence=answer)
        yield f"commits {plan.id} onto {plan.base}: snapshot {answer}", _set(after, turn.at, told)
    else:
        step = f"commits {plan.id} onto {plan.base}: {answer}"
        yield step, _set(after, turn.at, actor._replace(phase="behind" if answer == "stale" else "refused"))


def _rebase(turn: _Turn, actor: Actor) -> Iterator[tuple[Step, World]]:
    world = turn.world
    fitted = _rebased(turn.rules.rebase, _plan(actor), world.head, visible(world.extents, world.head))
    if fitted is None:
        yield "cannot rebase", _set(world, turn.at, actor._replace(phase="refused"))
    else:
        after = actor._replace(phase="ready", plan=fitted)
        yield f"rebases onto {world.head}", _set(world, turn.at, after)


def _look(turn: _Turn, actor: Actor) -> Iterator[tuple[Step, World]]:
    """Find out what became of a commit whose answer was lost, or stop waiting."""
    world, plan, rules = turn.world, _plan(actor), turn.rules
    if not rules.looks_when_unknown:
        again = Actor("idle", actor.attempt + 1)
        yield "takes it for failed", _give_up(world, turn.at, plan, again)
        return
    if rules.looks_for_receipt:
        found = dict(world.receipts).get(plan.id, 0)
    else:
        found = plan.base + 1 if world.head > plan.base else 0
    if found:
        told = actor._replace(phase="receipted", sequence=found)
        yield f"looks for {plan.id}: snapshot {found}", _set(world, turn.at, told)
    else:
        yield f"looks for {plan.id}: not in", _set(world, turn.at, actor._replace(phase="behind"))
    over = Actor("idle", actor.attempt + 1) if turn.role != "writer without key" else Actor("gone", 0)
    yield "gives up waiting", _give_up(world, turn.at, plan, over)


def _face_refusal(turn: _Turn, actor: Actor) -> Iterator[tuple[Step, World]]:
    """Tell the caller that it did not happen, unless it did."""
    world, plan = turn.world, _plan(actor)
    found = dict(world.receipts).get(plan.id, 0) if turn.rules.looks_when_refused else 0
    if found:
        told = actor._replace(phase="receipted", sequence=found)
        yield f"looks for {plan.id}: snapshot {found}", _set(world, turn.at, told)
        return
    over = Actor("idle", actor.attempt + 1) if "writer" in turn.role else Actor("gone", 0)
    after = _give_up(world, turn.at, plan, over)
    yield f"says that {plan.id} did not happen", after._replace(denied=world.denied | {plan.id})


def _acknowledge(turn: _Turn, actor: Actor) -> Iterator[tuple[Step, World]]:
    world, plan = turn.world, _plan(actor)
    if plan.key and not turn.rules.keeps_keys_with_commit and plan.key not in dict(world.keys):
        yield f"records the key {plan.key}", world._replace(keys=world.keys | {(plan.key, plan.id)})
        return
    after = _give_up(world, turn.at, plan, Actor("done", 0))  # a replay leaves an extent that nobody wants
    if "writer" in turn.role:
        after = after._replace(acknowledged=world.acknowledged | {(turn.name, actor.sequence)})
    yield "acknowledges", after


def _publish(world: World, plan: Plan, rules: Rules) -> tuple[World, int | str]:
    """Commit as the catalog does; give the sequence of a receipt, or why not."""
    # 1. Swap.
    if rules.compares_head and plan.base != world.head:
        return world, "stale"
    # 2. Leave out what happened before.
    receipts = dict(world.receipts)
    if rules.finds_replays:
        first = receipts.get(plan.id) or receipts.get(dict(world.keys).get(plan.key or "", ""))
        if first:
            return world, first if rules.answers_replays_first else world.head
    # 3. Check, and take away.
    live = visible(world.extents, world.head)
    if rules.checks_fence and plan.token and plan.token != world.token:
        return world, "fenced"
    if rules.checks_live and not set(plan.removes) <= set(live):
        return world, "not live"
    if rules.checks_pending and plan.adds not in world.pending:
        return world, "not pending"
    # 4. Write.
    sequence = plan.base + 1
    kept = frozenset(
        (name, added, sequence if name in plan.removes and not gone else gone)
        for name, added, gone in world.extents
        if rules.marks_removed or name not in plan.removes
    )
    after = world._replace(
        head=max(sequence, world.head),
        extents=kept | {(plan.adds, sequence, 0)},
        receipts=world.receipts | {(plan.id, sequence)},
        pending=world.pending - {plan.adds},
    )
    if plan.key and rules.keeps_keys_with_commit:
        after = after._replace(keys=world.keys | {(plan.key, plan.id)})
    return _observed(world, after, plan, rules), sequence


def _observed(before: World, after: World, plan: Plan, rules: Rules) -> World:
    """Note what a snapshot holds by the engine's own function, and what should never have been published."""
    if plan.token and plan.token != before.token:
        return after._replace(fault=f"{plan.id} was published after its lease was lost")
    if plan.base != before.head:
        return after  # a snapshot that was there is there no more, as the history shows
    if not set(plan.removes) <= set(visible(before.extents, before.head)):
        return after._replace(fault=f"{plan.id} was published and its inputs were not live")
    held = _applied(rules.apply, plan, before.head, visible(before.extents, before.head))
    if isinstance(held, str):
        return after._replace(fault=f"{plan.id} was published and cannot be applied: {held}")
    return after._replace(published=(*before.published, held))


def _sweep(world: World, rules: Rules) -> Iterator[tuple[Step, World]]:
    """Give up registrations, expire snapshots, and delete what is garbage, one object at a time."""
    if world.abandons:
        for name in sorted(world.pending):
            after = _release(world, name)
            yield f"the collector gives up {name}", after._replace(abandons=world.abandons - 1)
    if world.oldest < world.head or not rules.expires_below_head:
        yield f"the collector expires snapshot {world.oldest}", _expire(world, rules)
    name = world.swept
    if not name:
        for found in sorted(_collectable(world, rules)):
            yield f"the collector lists {found}", world._replace(swept=found)
        return
    writing = any(actor.phase == "registered" and _plan(actor).adds == name for actor in world.actors)
    overtaken = world.overtaken | {name} if writing else world.overtaken
    deleted = world._replace(swept="", objects=world.objects - {name}, overtaken=overtaken)
    yield f"the collector deletes {name}", deleted._replace(garbage=world.garbage - {name})
    if world.crashes:
        after = deleted if rules.forgets_last else world._replace(swept="", garbage=world.garbage - {name})
        yield f"the collector crashes between deleting and forgetting {name}", after._replace(crashes=world.crashes - 1)


def _collectable(world: World, rules: Rules) -> Names:
    found = world.garbage
    if not rules.heeds_pending:
        found |= world.objects - {name for name, _, _ in world.extents}
    if not rules.heeds_retained:
        found |= {name for name, _, gone in world.extents if gone}
    return found


def _expire(world: World, rules: Rules) -> World:
    oldest = min(world.oldest + 1, world.head)
    seen_from = oldest if rules.expires_unseen else oldest + 1
    gone = frozenset(extent for extent in world.extents if 0 < extent[2] <= seen_from)
    if not rules.expires_below_head and world.oldest == world.head:
        gone = world.extents
    return world._replace(
        oldest=oldest,
        extents=world.extents - gone,
        garbage=world.garbage | {extent[0] for extent in gone},
        published=world.published[oldest - world.oldest :],
    )


def _set(world: World, at: int, actor: Actor) -> World:
    return world._replace(actors=(*world.actors[:at], actor, *world.actors[at + 1 :]))


def _give_up(world: World, at: int, plan: Plan, actor: Actor) -> World:
    """Leave an extent to the collector, unless it is published."""
    return _set(_release(world, plan.adds), at, actor)


def _release(world: World, name: str) -> World:
    if name not in world.pending:
        return world
    return world._replace(pending=world.pending - {name}, garbage=world.garbage | {name})


def _plan(actor: Actor) -> Plan:
    assert actor.plan is not None
    return actor.plan


def _rows_of(extent: str) -> str:
    return extent.partition("/")[2]


@lru_cache(maxsize=None)
def _rows(extents: Names) -> str:
    return "".join(map(_rows_of, extents))


@lru_cache(maxsize=None)
def _history_violation(
    extents: frozenset[tuple[str, int, int]], oldest: int, head: int, published: tuple[Names, ...]
) -> tuple[str | None, Names]:
    """Say what is wrong with the retained snapshots, and what they reach."""
    reachable: set[str] = set()
    for sequence, held in zip(range(oldest, head + 1), published, strict=True):
        shown = visible(extents, sequence)
        reachable.update(shown)
        if set(shown) != held:
            return f"snapshot {sequence} held {sorted(held)} and shows {list(shown)}", frozenset()
        row, times = Counter("".join(map(_rows_of, shown))).most_common(1)[0]
        if times > 1:
            return f"the row {row} is {times} times in snapshot {sequence}", frozenset()
    return None, frozenset(reachable)


@lru_cache(maxsize=None)
def _rebased(rebase: Callable[..., Commit], plan: Plan, head: int, live: tuple[str, ...]) -> Plan | None:
    try:
        commit = rebase(_commit_of(plan), _snapshot_at(head), live=live)
    except TidelakeError:
        return None
    removes = tuple(action.extent_id for action in commit.actions if isinstance(action, RemoveExtent))
    return plan._replace(base=commit.base, removes=removes)


@lru_cache(maxsize=None)
def _applied(apply: Callable[..., Manifest], plan: Plan, head: int, live: tuple[str, ...]) -> Names | str:
    manifest = Manifest(_snapshot_at(head), {name: _extent_of(name) for name in live})
    try:
        return frozenset(apply(manifest, [_commit_of(plan)], snapshot_id=f"{head + 1}", at_us=head + 1).extents)
    except TidelakeError as error:
        return str(error)


def _commit_of(plan: Plan) -> Commit:
    removes = tuple(RemoveExtent(name) for name in plan.removes)
    return Commit(plan.id, SCOPE, plan.base, (AddExtent(_extent_of(plan.adds)), *removes), key=plan.key)


def _extent_of(name: str) -> Extent:
    return Extent(name, name, "tlm", 1, len(_rows_of(name)), 1, None, None, 1)


def _snapshot_at(sequence: int) -> Snapshot:
    return Snapshot(SCOPE, sequence, f"{sequence}", None, sequence, "append", SCHEMA, {})


def _way(ways: dict[World, tuple[World | None, Step]], world: World) -> tuple[Step, ...]:
    steps: list[Step] = []
    at: World | None = world
    while at is not None:
        at, step = ways[at]
        steps.append(step)
    return tuple(reversed(steps[:-1]))


_unused: Any = None
