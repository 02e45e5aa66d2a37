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
observer notes what really happened, in fields that no step reads.

A catalog may also fail for good, at any moment: ``full`` refuses every commit and says so, ``deaf`` takes none and says
nothing, ``away`` answers no question either. From then on every commit must end: once its deadline has passed there is
no way to go on for ever. Whoever has no answer then is told so, and does not come again. It does not model time:
whoever waits for a time may find that it has come at once, or never, but a deadline comes.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from functools import cache

from tests.support.protocol_failure import COMMITTING, OVER, steps_of_failure
from tests.support.protocol_world import (
    RULES,
    SCHEMA,
    SCOPE,
    UNIT,
    Actor,
    Answer,
    Cast,
    Exploration,
    Held,
    Names,
    Next,
    Phase,
    Plan,
    Rules,
    Step,
    Turn,
    World,
    plan_of,
    release,
    set_actor,
)
from tidelake.errors import TidelakeError
from tidelake.model.snapshot import Action, AddExtent, Commit, Extent, Fence, Manifest, RemoveExtent, Snapshot


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
    if cast.failure and (endless := _endless(parents, cast, rules)) is not None:
        way = _way_to(endless, parents, cast, rules)
        return Exploration(len(parents), steps, endings, "a commit goes on for ever after its deadline", way)
    return Exploration(len(parents), steps, endings)


def _endless(parents: dict[World, World | None], cast: Cast, rules: Rules) -> World | None:
    """Return a state from which somebody may go on for ever although every deadline has passed."""
    late = [
        world
        for world in parents
        if world.failure and all(actor.late or actor.phase not in COMMITTING for actor in world.actors)
    ]
    colours: dict[World, bool] = {}  # False while its ways are being tried, True when all of them end
    for start in late:
        if start in colours:
            continue
        colours[start] = False
        path = [(start, iter([after for _, after in next_steps(start, cast, rules)]))]
        while path:
            world, ways = path[-1]
            after = next(ways, None)
            if after is None:
                colours[world] = True
                path.pop()
            elif colours.get(after) is False:
                return after
            elif after not in colours:
                colours[after] = False
                path.append((after, iter([each for _, each in next_steps(after, cast, rules)])))
    return None


def first_world(cast: Cast) -> World:
    """Return the state before anything has happened: one snapshot with one row."""
    return World(tuple(Actor("idle", 1) for _ in cast.roles), cast.crashes, cast.losses, cast.abandons)


def next_steps(world: World, cast: Cast, rules: Rules, *, shortcuts: bool = True) -> Next:
    """Yield all that can happen next.

    Whose step nobody else can notice or disturb goes first: any other order leads to the same endings.
    """
    if world.failure:
        yield from steps_of_failure(world, cast, rules)
        return
    if cast.failure:
        yield Step("the catalog", "fails for good:", cast.failure), world._replace(failure=cast.failure)
    private = (at for at, actor in enumerate(world.actors) if shortcuts and _is_private(world, actor))
    urgent = next(private, None)
    for at, (name, role) in enumerate(cast.roles):
        if urgent is not None and at != urgent:
            continue
        actor = world.actors[at]
        yield from _ACTS[actor.phase](Turn(world, at, name, role, rules), actor)
        if world.crashes and actor.phase not in ("idle", "done", "gone"):
            over = Actor("gone", 0) if role == "writer without key" else Actor("idle", actor.attempt + 1)
            yield Step(name, "crashes"), set_actor(world, at, over)._replace(crashes=world.crashes - 1)
    if urgent is None:
        for plan in world.network:
            after, answer = _publish(world._replace(network=world.network - {plan}), plan, rules)
            yield Step("the network", "delivers late", "", plan, answer), after
        yield from _sweep(world, rules)


def violation(world: World) -> str | None:
    """Return which invariant a state breaks."""
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
    """Return who has not finished in a state after which nothing can happen."""
    for (name, role), actor in zip(cast.roles, world.actors, strict=True):
        if world.failure and actor.phase not in OVER:
            return f"{name} never ends: {actor.phase}"
        if not world.failure and role == "writer" and actor.phase != "done":
            return f"{name} is stuck: {actor.phase}"
    return None


def visible(extents: Held, sequence: int) -> tuple[str, ...]:
    """Return the extents that a snapshot shows."""
    return tuple(sorted(name for name, added, gone in extents if added <= sequence and (not gone or gone > sequence)))


def commit_of(plan: Plan) -> Commit:
    """Return a plan as the engine's own value."""
    removes = tuple(RemoveExtent(name) for name in plan.removes)
    fence = Fence(UNIT, plan.token) if plan.token else None
    actions: tuple[Action, ...] = (AddExtent(extent_of(plan.adds)), *removes)
    return Commit(plan.id, SCOPE, plan.base, actions, key=plan.key, fence=fence)


def extent_of(name: str) -> Extent:
    """Return an extent as the engine's own value."""
    return Extent(name, name, "tlm", 1, len(_rows_of(name)), 1, None, None, 1)


def _rest(turn: Turn, actor: Actor) -> Next:
    return iter(())


def _start(turn: Turn, actor: Actor) -> Next:
    if turn.role != "leased compactor":
        yield from _register(turn, actor)
        return
    token = turn.world.token + 1
    claimed = turn.to(actor._replace(phase="claimed", token=token))
    yield Step(turn.name, "leases the work with token", token), claimed._replace(token=token)


def _register(turn: Turn, actor: Actor) -> Next:
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


def _write(turn: Turn, actor: Actor) -> Next:
    world, plan, rules = turn.world, plan_of(actor), turn.rules
    if not world.objects.issuperset(plan.removes):
        yield Step(turn.name, "finds an input deleted"), turn.give_up(plan, Actor("gone", 0))
        return
    after = turn.to(actor._replace(phase="ready"))
    if not rules.registers_first:
        yield Step(turn.name, "registers", plan.adds), after._replace(pending=world.pending | {plan.adds})
        return
    after = _written(after, plan)
    if not rules.stays_registered:
        after = release(after, plan.adds)
    if not rules.acknowledges_last and plan.key:
        after = after._replace(acknowledged=after.acknowledged | {(turn.name, plan.base + 1)})
    yield Step(turn.name, "writes", plan.adds), after


def _commit(turn: Turn, actor: Actor) -> Next:
    world, plan, rules = turn.world, plan_of(actor), turn.rules
    if world.losses:
        sent = turn.to(actor._replace(phase="unknown", unsure=True))
        sent = sent._replace(network=world.network | {plan}, losses=world.losses - 1)
        yield Step(turn.name, "commits and gets no answer:", plan.id), sent
    if not rules.swaps_at_once and plan.base == world.head:
        yield Step(turn.name, "finds that the head is still", plan.base), turn.to(actor._replace(phase="compared"))
    else:
        yield from _commit_now(turn, actor)


def _commit_now(turn: Turn, actor: Actor) -> Next:
    after, answer = _publish(turn.world, plan_of(actor), turn.rules)
    if isinstance(answer, int):
        told = actor._replace(phase="receipted", sequence=answer)
    else:
        told = actor._replace(phase="behind" if answer == "stale" else "refused")
    yield Step(turn.name, "commits", "", actor.plan, answer), set_actor(after, turn.at, told)


def _rebase(turn: Turn, actor: Actor) -> Next:
    world = turn.world
    fitted = _rebased(turn.rules.rebase, plan_of(actor), world.head, visible(world.extents, world.head))
    if fitted is None:
        yield Step(turn.name, "cannot rebase onto", world.head), turn.to(actor._replace(phase="refused"))
    else:
        yield Step(turn.name, "rebases onto", world.head), turn.to(actor._replace(phase="ready", plan=fitted))


def _find_out(turn: Turn, actor: Actor) -> Next:
    """Look what became of a commit whose answer was lost, or stop waiting and tell the caller that it is not known."""
    world, plan, rules = turn.world, plan_of(actor), turn.rules
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


def _face_refusal(turn: Turn, actor: Actor) -> Next:
    """Yield the caller that a commit did not happen, unless it did."""
    world, plan = turn.world, plan_of(actor)
    found = dict(world.receipts).get(plan.id)
    if found is not None and turn.rules.looks_when_refused:
        told = actor._replace(phase="receipted", sequence=found)
        yield Step(turn.name, f"looks, and it is in {found}:", plan.id), turn.to(told)
        return
    over = Actor("idle", actor.attempt + 1) if "writer" in turn.role else Actor("gone", 0)
    denied = turn.give_up(plan, over)._replace(denied=world.denied | {plan.id})
    yield Step(turn.name, "says that it did not happen:", plan.id), denied


def _acknowledge(turn: Turn, actor: Actor) -> Next:
    world, plan = turn.world, plan_of(actor)
    if plan.key and not turn.rules.keeps_keys_with_commit and plan.key not in dict(world.keys):
        yield Step(turn.name, "records its key", plan.key), world._replace(keys=world.keys | {(plan.key, plan.id)})
        return
    after = turn.give_up(plan, Actor("done", 0))  # after a replay, an extent is left that nobody wants
    if "writer" in turn.role:
        after = after._replace(acknowledged=world.acknowledged | {(turn.name, actor.sequence)})
    yield Step(turn.name, "acknowledges snapshot", actor.sequence), after


_ACTS: dict[Phase, Callable[[Turn, Actor], Next]] = {
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
    """Return whether an actor's next step neither changes nor reads what another's step reads or changes."""
    match actor.phase:
        case "receipted":
            return True
        case "registered":
            return not world.abandons and plan_of(actor).adds in world.pending and not plan_of(actor).removes
        case "refused" | "unknown":
            return all(plan.id != plan_of(actor).id for plan in world.network)
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
            yield Step(who, "abandons", name), release(world, name)._replace(abandons=world.abandons - 1)
    if world.oldest < world.head or not rules.expires_below_head:
        yield Step(who, "expires snapshot", world.oldest), _expire(world, rules)
    if not world.listed:
        for name in sorted(_collectable(world, rules)):
            yield Step(who, "lists", name), world._replace(listed=name)
        return
    name = world.listed
    is_unwritten = any(actor.phase == "registered" and plan_of(actor).adds == name for actor in world.actors)
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


def _written(world: World, plan: Plan) -> World:
    return world._replace(objects=world.objects | {plan.adds})


def _rows_of(extent: str) -> str:
    return extent.partition("/")[2]


@cache
def _rows(extents: Names) -> str:
    return "".join(map(_rows_of, extents))


@cache
def _read_history(extents: Held, oldest: int, head: int, published: tuple[Names, ...]) -> tuple[str | None, Names]:
    """Return what is wrong with the retained snapshots, if anything, and what they reach."""
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
