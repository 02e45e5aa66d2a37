"""Model the commit protocol as a small world, and visit every state it can get into.

Writers append one row each, compactors merge all that is live, a collector gives up, expires and deletes. A step is one
thing that others can see. Between any two steps anybody else may act, anybody may crash, and a commit may arrive whose
sender has stopped waiting for the answer::

    idle ─▶ claimed ─▶ registered ─▶ ready ──commit──▶ receipted ─▶ done
           (leased only)              ▲ │ stale ─▶ behind ─▶ rebase
                                      └─┘ lost ─▶ unknown ─▶ look by id · refused ─▶ look by id

Rebasing and applying are the engine's own functions. The catalog is modelled as the SQL catalog keeps it, extents with
the sequence that added and the one that removed them, so that what it shows can be held against what ``apply`` gives.
An extent's name ends in the rows it holds: ``c1/abs`` is the first extent of compactor c, with the rows a, b and s.

``Rules`` are what the protocol does; one that is switched off is a bug, and ``explore`` must find what it breaks. An
observer notes what really happened, in fields that no step reads. It does not model time: whoever waits for a time may
find that it has come at once, or never.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal, NamedTuple, TypeAlias

from tidelake import snapshot
from tidelake.errors import TidelakeError
from tidelake.schema import Schema
from tidelake.snapshot import Action, AddExtent, Commit, Extent, Fence, Manifest, RemoveExtent, Scope, Snapshot

Phase: TypeAlias = Literal[
    "idle", "claimed", "registered", "ready", "compared", "behind", "unknown", "refused", "receipted", "done", "gone"
]
Role: TypeAlias = Literal["writer", "writer without key", "compactor", "leased compactor"]
Roles: TypeAlias = tuple[tuple[str, Role], ...]  # with names
Answer: TypeAlias = int | Literal["stale", "fenced", "not_live", "not_pending"]  # the sequence of a receipt, or why not
Names: TypeAlias = frozenset[str]
Held: TypeAlias = frozenset[tuple[str, int, int]]  # extents: name, added, removed or 0

SCOPE = Scope("t")
SCHEMA = Schema.of({"row": "string"})
SEED = "s0/s"  # the extent that is there in the beginning
UNIT = "unit"


@dataclass(frozen=True, slots=True)
class Rules:
    """What the protocol does."""

    # the catalog
    rebases_itself: bool = False  # while it holds the head still: the one choice that is not a bug
    compares_head: bool = True
    swaps_at_once: bool = True  # compares and publishes in one transaction
    finds_replays: bool = True
    answers_first: bool = True  # a replay gets the first receipt
    keeps_keys_with_commit: bool = True
    checks_live: bool = True
    checks_pending: bool = True
    checks_fence: bool = True
    marks_removed: bool = True  # and keeps for older snapshots what it removes
    expires_below_head: bool = True
    expires_unseen: bool = True  # lets go only of what no retained snapshot has
    # whoever commits
    registers_first: bool = True
    stays_registered: bool = True  # until the commit
    names_anew: bool = True  # each try has its own extent
    acknowledges_last: bool = True
    looks_when_unknown: bool = True
    looks_for_receipt: bool = True  # and does not take a moved head for an answer
    looks_when_refused: bool = True
    # the collector
    heeds_pending: bool = True
    heeds_retained: bool = True
    forgets_last: bool = True
    # the pure functions
    rebase: Callable[..., Commit] = snapshot.rebase
    apply: Callable[..., Manifest] = snapshot.apply


RULES = Rules()


@dataclass(frozen=True, slots=True)
class Cast:
    """Who takes part, and how often something goes wrong."""

    roles: Roles
    crashes: int = 0
    losses: int = 0  # of answers
    abandons: int = 0  # of registrations


class Plan(NamedTuple):
    """A commit, as its sender carries it about."""

    id: str
    base: int
    adds: str
    removes: tuple[str, ...]
    key: str | None
    token: int


class Actor(NamedTuple):
    """Somebody who commits, and how far the present try has got."""

    phase: Phase
    attempt: int
    plan: Plan | None = None
    token: int = 0
    sequence: int = 0  # of the receipt


class World(NamedTuple):
    """Everything that is the case. The last fields are the observer's."""

    actors: tuple[Actor, ...]
    crashes: int = 0  # left
    losses: int = 0
    abandons: int = 0
    head: int = 1
    oldest: int = 1
    extents: Held = frozenset({(SEED, 1, 0)})
    receipts: frozenset[tuple[str, int]] = frozenset()
    keys: frozenset[tuple[str, str]] = frozenset()  # key, commit
    pending: Names = frozenset()
    garbage: Names = frozenset()
    objects: Names = frozenset({SEED})
    token: int = 0  # of the last lease
    network: frozenset[Plan] = frozenset()  # sent and not answered
    listed: str = ""  # the object that the collector is about to delete
    published: tuple[Names, ...] = (frozenset({SEED}),)  # what each retained snapshot held when it was published
    acknowledged: frozenset[tuple[str, int]] = frozenset({("s", 1)})  # row, and the sequence its writer was told
    denied: Names = frozenset()  # commits whose senders were told that they did not happen
    overtaken: Names = frozenset()  # objects that were collected before they were written
    fault: str = ""


class Step(NamedTuple):
    """Something that happened; if it was a commit reaching the catalog, which one and what the catalog said."""

    who: str
    does: str
    what: object = ""
    plan: Plan | None = None
    answer: Answer | None = None

    def __str__(self) -> str:
        parts = [self.who, self.does, self.what]
        if self.plan is not None:
            parts += [self.plan.id, f"onto {self.plan.base}: {self.answer}"]
        return " ".join(str(part) for part in parts if part != "")


Next: TypeAlias = Iterator[tuple[Step, World]]


@dataclass(frozen=True, slots=True)
class Exploration:
    """What a search found: how much there was to see, and the way to a violation if there is one."""

    states: int
    steps: int
    endings: int
    violation: str | None = None
    trace: tuple[Step, ...] = ()

    def __str__(self) -> str:
        if self.violation is None:
            return f"{self.states:,} states, {self.steps:,} steps, {self.endings:,} endings"
        lines = [f"{at:>3}. {step}" for at, step in enumerate(self.trace, start=1)]
        return "\n".join([f"{self.violation}, after {len(self.trace)} steps:", *lines])


def explore(cast: Cast, rules: Rules = RULES, *, shortcuts: bool = True) -> Exploration:
    """Visit every state, nearest first, until one violates an invariant.

    The shortcut is not to try the orders that cannot matter; see ``next_steps``.
    """
    start = first_world(cast)
    parents: dict[World, World | None] = {start: None}
    waiting = deque([start])
    steps = endings = 0
    while waiting:
        world = waiting.popleft()
        found = violation(world)
        if found is None:
            before = steps
            for _, after in next_steps(world, cast, rules, shortcuts=shortcuts):
                steps += 1
                if after not in parents:
                    parents[after] = world
                    waiting.append(after)
            if steps == before:
                endings += 1
                found = stuck(world, cast)
        if found is not None:
            return Exploration(len(parents), steps, endings, found, _way_to(world, parents, cast, rules))
    return Exploration(len(parents), steps, endings)


def first_world(cast: Cast) -> World:
    """Give the state before anything has happened: one snapshot with one row."""
    return World(tuple(Actor("idle", 1) for _ in cast.roles), cast.crashes, cast.losses, cast.abandons)


def next_steps(world: World, cast: Cast, rules: Rules, *, shortcuts: bool = True) -> Next:
    """Give all that can happen next.

    Whose step nobody else can notice or disturb goes first: any other order leads to the same endings.
    """
    private = (at for at, actor in enumerate(world.actors) if shortcuts and _is_private(world, actor))
    urgent = next(private, None)
    for at, (name, role) in enumerate(cast.roles):
        if urgent is not None and at != urgent:
            continue
        actor = world.actors[at]
        yield from _ACTS[actor.phase](_Turn(world, at, name, role, rules), actor)
        if world.crashes and actor.phase not in ("idle", "done", "gone"):
            over = Actor("gone", 0) if role == "writer without key" else Actor("idle", actor.attempt + 1)
            yield Step(name, "crashes"), _set(world, at, over)._replace(crashes=world.crashes - 1)
    if urgent is None:
        for plan in world.network:
            after, answer = _publish(world._replace(network=world.network - {plan}), plan, rules)
            yield Step("the network", "delivers late", "", plan, answer), after
        yield from _sweep(world, rules)


def violation(world: World) -> str | None:
    """Say which invariant a state breaks."""
    if world.fault:
        return world.fault
    found, reachable = _read_history(world.extents, world.oldest, world.head, world.published)
    if found is not None:
        return found
    if not reachable <= world.objects:
        return f"a retained snapshot reaches {min(reachable - world.objects)}, which is deleted"
    for row, sequence in world.acknowledged:
        for at in range(max(sequence, world.oldest), world.head + 1):
            if row not in _rows(world.published[at - world.oldest]):
                return f"the acknowledged row {row} is not in snapshot {at}"
        if sequence > world.head:
            return f"the row {row} was acknowledged for snapshot {sequence}, which is not there"
        if sequence > world.oldest and row in _rows(world.published[sequence - 1 - world.oldest]):
            return f"the row {row} was acknowledged for snapshot {sequence} and is in an earlier one"
    if world.denied and (lies := world.denied.intersection(commit for commit, _ in world.receipts)):
        return f"the sender of {min(lies)} was told that it did not happen, and it did"
    if orphans := world.objects - reachable - world.pending - world.garbage - world.overtaken:
        orphans -= {actor.plan.adds for actor in world.actors if actor.plan is not None}
        if orphans:
            return f"nobody will ever collect {min(orphans)}"
    return None


def stuck(world: World, cast: Cast) -> str | None:
    """Say who has not finished in a state after which nothing can happen."""
    for (name, role), actor in zip(cast.roles, world.actors, strict=True):
        if role == "writer" and actor.phase != "done":
            return f"{name} is stuck: {actor.phase}"
    return None


def visible(extents: Held, sequence: int) -> tuple[str, ...]:
    """Give the extents that a snapshot shows."""
    return tuple(sorted(name for name, added, gone in extents if added <= sequence and (not gone or gone > sequence)))


def commit_of(plan: Plan) -> Commit:
    """Give a plan as the engine's own value."""
    removes = tuple(RemoveExtent(name) for name in plan.removes)
    fence = Fence(UNIT, plan.token) if plan.token else None
    actions: tuple[Action, ...] = (AddExtent(extent_of(plan.adds)), *removes)
    return Commit(plan.id, SCOPE, plan.base, actions, key=plan.key, fence=fence)


def extent_of(name: str) -> Extent:
    """Give an extent as the engine's own value."""
    return Extent(name, name, "tlm", 1, len(_rows_of(name)), 1, None, None, 1)


class _Turn(NamedTuple):
    """Whose turn it is, in which world."""

    world: World
    at: int
    name: str
    role: Role
    rules: Rules

    def to(self, actor: Actor) -> World:
        return _set(self.world, self.at, actor)

    def give_up(self, plan: Plan, actor: Actor) -> World:
        """Leave an extent to the collector, unless it is published."""
        return _set(_release(self.world, plan.adds), self.at, actor)


def _rest(turn: _Turn, actor: Actor) -> Next:
    return iter(())


def _start(turn: _Turn, actor: Actor) -> Next:
    if turn.role != "leased compactor":
        yield from _register(turn, actor)
        return
    token = turn.world.token + 1
    claimed = turn.to(actor._replace(phase="claimed", token=token))
    yield Step(turn.name, "leases the work with token", token), claimed._replace(token=token)


def _register(turn: _Turn, actor: Actor) -> Next:
    """Read the head, decide on a commit, and announce its extent."""
    world, rules = turn.world, turn.rules
    removes: tuple[str, ...] = ()
    rows = turn.name
    if "compactor" in turn.role:
        removes = visible(world.extents, world.head)
        if len(removes) < 2:
            return
        rows = "".join(sorted("".join(map(_rows_of, removes))))
    own = f"{turn.name}{actor.attempt}"
    key = turn.name if turn.role == "writer" else None
    plan = Plan(own, world.head, f"{own if rules.names_anew else turn.name}/{rows}", removes, key, actor.token)
    after = turn.to(actor._replace(phase="registered", plan=plan))
    if rules.registers_first:
        announced = after._replace(pending=world.pending | {plan.adds})
        yield Step(turn.name, f"reads snapshot {world.head} and registers", plan.adds), announced
    else:
        yield Step(turn.name, f"reads snapshot {world.head} and writes", plan.adds), _written(after, plan)


def _write(turn: _Turn, actor: Actor) -> Next:
    world, plan, rules = turn.world, _plan(actor), turn.rules
    if not world.objects.issuperset(plan.removes):
        yield Step(turn.name, "finds an input deleted"), turn.give_up(plan, Actor("gone", 0))
        return
    after = turn.to(actor._replace(phase="ready"))
    if not rules.registers_first:
        yield Step(turn.name, "registers", plan.adds), after._replace(pending=world.pending | {plan.adds})
        return
    after = _written(after, plan)
    if not rules.stays_registered:
        after = _release(after, plan.adds)
    if not rules.acknowledges_last and plan.key:
        after = after._replace(acknowledged=after.acknowledged | {(turn.name, plan.base + 1)})
    yield Step(turn.name, "writes", plan.adds), after


def _commit(turn: _Turn, actor: Actor) -> Next:
    world, plan, rules = turn.world, _plan(actor), turn.rules
    if world.losses:
        sent = turn.to(actor._replace(phase="unknown"))
        sent = sent._replace(network=world.network | {plan}, losses=world.losses - 1)
        yield Step(turn.name, "commits and gets no answer:", plan.id), sent
    if not rules.swaps_at_once and plan.base == world.head:
        yield Step(turn.name, "finds that the head is still", plan.base), turn.to(actor._replace(phase="compared"))
    else:
        yield from _commit_now(turn, actor)


def _commit_now(turn: _Turn, actor: Actor) -> Next:
    after, answer = _publish(turn.world, _plan(actor), turn.rules)
    if isinstance(answer, int):
        told = actor._replace(phase="receipted", sequence=answer)
    else:
        told = actor._replace(phase="behind" if answer == "stale" else "refused")
    yield Step(turn.name, "commits", "", actor.plan, answer), _set(after, turn.at, told)


def _rebase(turn: _Turn, actor: Actor) -> Next:
    world = turn.world
    fitted = _rebased(turn.rules.rebase, _plan(actor), world.head, visible(world.extents, world.head))
    if fitted is None:
        yield Step(turn.name, "cannot rebase onto", world.head), turn.to(actor._replace(phase="refused"))
    else:
        yield Step(turn.name, "rebases onto", world.head), turn.to(actor._replace(phase="ready", plan=fitted))


def _find_out(turn: _Turn, actor: Actor) -> Next:
    """Look what became of a commit whose answer was lost, or stop waiting and tell the caller that it is not known."""
    world, plan, rules = turn.world, _plan(actor), turn.rules
    again = Actor("idle", actor.attempt + 1)
    if not rules.looks_when_unknown:
        yield Step(turn.name, "takes it for failed:", plan.id), turn.give_up(plan, again)
        return
    found = dict(world.receipts).get(plan.id)
    if not rules.looks_for_receipt:
        found = plan.base + 1 if world.head > plan.base else None
    if found is None:
        yield Step(turn.name, "looks, and it is not in:", plan.id), turn.to(actor._replace(phase="behind"))
    else:
        told = actor._replace(phase="receipted", sequence=found)
        yield Step(turn.name, f"looks, and it is in {found}:", plan.id), turn.to(told)
    over = Actor("gone", 0) if turn.role == "writer without key" else again
    yield Step(turn.name, "gives up on", plan.id), turn.give_up(plan, over)


def _face_refusal(turn: _Turn, actor: Actor) -> Next:
    """Tell the caller that a commit did not happen, unless it did."""
    world, plan = turn.world, _plan(actor)
    found = dict(world.receipts).get(plan.id)
    if found is not None and turn.rules.looks_when_refused:
        told = actor._replace(phase="receipted", sequence=found)
        yield Step(turn.name, f"looks, and it is in {found}:", plan.id), turn.to(told)
        return
    over = Actor("idle", actor.attempt + 1) if "writer" in turn.role else Actor("gone", 0)
    denied = turn.give_up(plan, over)._replace(denied=world.denied | {plan.id})
    yield Step(turn.name, "says that it did not happen:", plan.id), denied


def _acknowledge(turn: _Turn, actor: Actor) -> Next:
    world, plan = turn.world, _plan(actor)
    if plan.key and not turn.rules.keeps_keys_with_commit and plan.key not in dict(world.keys):
        yield Step(turn.name, "records its key", plan.key), world._replace(keys=world.keys | {(plan.key, plan.id)})
        return
    after = turn.give_up(plan, Actor("done", 0))  # after a replay, an extent is left that nobody wants
    if "writer" in turn.role:
        after = after._replace(acknowledged=world.acknowledged | {(turn.name, actor.sequence)})
    yield Step(turn.name, "acknowledges snapshot", actor.sequence), after


_ACTS: dict[Phase, Callable[[_Turn, Actor], Next]] = {
    "idle": _start,
    "claimed": _register,
    "registered": _write,
    "ready": _commit,
    "compared": _commit_now,
    "behind": _rebase,
    "unknown": _find_out,
    "refused": _face_refusal,
    "receipted": _acknowledge,
    "done": _rest,
    "gone": _rest,
}


def _is_private(world: World, actor: Actor) -> bool:
    """Tell whether an actor's next step neither changes nor reads what another's step reads or changes."""
    match actor.phase:
        case "receipted":
            return True
        case "registered":
            return not world.abandons and _plan(actor).adds in world.pending and not _plan(actor).removes
        case "refused" | "unknown":
            return all(plan.id != _plan(actor).id for plan in world.network)
        case _:
            return False


def _publish(world: World, plan: Plan, rules: Rules) -> tuple[World, Answer]:
    """Commit as the catalog does."""
    # 1. Swap.
    if rules.rebases_itself:
        plan = _rebased(rules.rebase, plan, world.head, plan.removes) or plan
    if rules.compares_head and rules.swaps_at_once and plan.base != world.head:
        return world, "stale"
    # 2. Leave out what happened before.
    receipts = dict(world.receipts)
    if rules.finds_replays and (
        first := receipts.get(plan.id) or receipts.get(dict(world.keys).get(plan.key or "", ""))
    ):
        return world, first if rules.answers_first else world.head
    # 3. Check, and take away.
    if rules.checks_fence and plan.token and plan.token != world.token:
        return world, "fenced"
    if rules.checks_live and not set(plan.removes) <= set(visible(world.extents, world.head)):
        return world, "not_live"
    if rules.checks_pending and plan.adds not in world.pending:
        return world, "not_pending"
    # 4. Write.
    sequence = plan.base + 1
    left = frozenset(
        (name, added, sequence if name in plan.removes and not gone else gone)
        for name, added, gone in world.extents
        if rules.marks_removed or name not in plan.removes
    )
    after = world._replace(
        head=max(sequence, world.head),
        extents=left | {(plan.adds, sequence, 0)},
        receipts=world.receipts | {(plan.id, sequence)},
        pending=world.pending - {plan.adds},
    )
    if plan.key and rules.keeps_keys_with_commit:
        after = after._replace(keys=world.keys | {(plan.key, plan.id)})
    if rules.compares_head and rules.swaps_at_once and not rules.rebases_itself:
        after = after._replace(network=frozenset())  # what is still under way is built on an older snapshot
    return _observed(world, after, plan, rules), sequence


def _observed(before: World, after: World, plan: Plan, rules: Rules) -> World:
    """Note what the new snapshot holds by the engine's own function, or why it should not have been published."""
    live = visible(before.extents, before.head)
    if plan.token and plan.token != before.token:
        return after._replace(fault=f"{plan.id} was published after its lease was lost")
    if not set(plan.removes) <= set(live):
        return after._replace(fault=f"{plan.id} was published and its inputs were not live")
    if plan.base != before.head:
        return after  # the history shows what became of the snapshot that was there
    held = _applied(rules.apply, plan, before.head, live)
    if isinstance(held, str):
        return after._replace(fault=f"{plan.id} was published and cannot be applied: {held}")
    return after._replace(published=(*before.published, held))


def _sweep(world: World, rules: Rules) -> Next:
    """Give up registrations, expire snapshots, and delete what is garbage, one object at a time."""
    who = "the collector"
    if world.abandons:
        for name in sorted(world.pending):
            yield Step(who, "abandons", name), _release(world, name)._replace(abandons=world.abandons - 1)
    if world.oldest < world.head or not rules.expires_below_head:
        yield Step(who, "expires snapshot", world.oldest), _expire(world, rules)
    if not world.listed:
        for name in sorted(_collectable(world, rules)):
            yield Step(who, "lists", name), world._replace(listed=name)
        return
    name = world.listed
    is_unwritten = any(actor.phase == "registered" and _plan(actor).adds == name for actor in world.actors)
    overtaken = world.overtaken | {name} if is_unwritten else world.overtaken
    deleted = world._replace(listed="", objects=world.objects - {name}, overtaken=overtaken)
    yield Step(who, "deletes and forgets", name), deleted._replace(garbage=world.garbage - {name})
    if world.crashes:
        half = deleted if rules.forgets_last else world._replace(listed="", garbage=world.garbage - {name})
        yield Step(who, "crashes half way through", name), half._replace(crashes=world.crashes - 1)


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
    if world.oldest == world.head:
        gone = world.extents
    return world._replace(
        oldest=oldest,
        extents=world.extents - gone,
        garbage=world.garbage | {name for name, _, _ in gone},
        published=world.published[oldest - world.oldest :],
    )


def _set(world: World, at: int, actor: Actor) -> World:
    return world._replace(actors=(*world.actors[:at], actor, *world.actors[at + 1 :]))


def _written(world: World, plan: Plan) -> World:
    return world._replace(objects=world.objects | {plan.adds})


def _release(world: World, name: str) -> World:
    if name not in world.pending:
        return world
    return world._replace(pending=world.pending - {name}, garbage=world.garbage | {name})


def _plan(actor: Actor) -> Plan:
    assert actor.plan is not None
    return actor.plan


def _rows_of(extent: str) -> str:
    return extent.partition("/")[2]


@cache
def _rows(extents: Names) -> str:
    return "".join(map(_rows_of, extents))


@cache
def _read_history(extents: Held, oldest: int, head: int, published: tuple[Names, ...]) -> tuple[str | None, Names]:
    """Say what is wrong with the retained snapshots, if anything, and what they reach."""
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


@cache
def _rebased(rebase: Callable[..., Commit], plan: Plan, head: int, live: tuple[str, ...]) -> Plan | None:
    try:
        commit = rebase(commit_of(plan), _snapshot_at(head), live=live)
    except TidelakeError:
        return None
    removes = tuple(action.extent_id for action in commit.actions if isinstance(action, RemoveExtent))
    return plan._replace(base=commit.base, removes=removes)


@cache
def _applied(apply: Callable[..., Manifest], plan: Plan, head: int, live: tuple[str, ...]) -> Names | str:
    manifest = Manifest(_snapshot_at(head), {name: extent_of(name) for name in live})
    try:
        return frozenset(apply(manifest, [commit_of(plan)], snapshot_id=f"{head + 1}", at_us=head + 1).extents)
    except TidelakeError as error:
        return str(error)


def _snapshot_at(sequence: int) -> Snapshot:
    return Snapshot(SCOPE, sequence, f"{sequence}", None, sequence, "append", SCHEMA, {})


def _way_to(world: World, parents: dict[World, World | None], cast: Cast, rules: Rules) -> tuple[Step, ...]:
    steps: list[Step] = []
    while (before := parents[world]) is not None:
        steps.append(next(step for step, after in next_steps(before, cast, rules) if after == world))
        world = before
    return tuple(reversed(steps))
