"""Model the commit protocol and upkeep as a small world, and visit every state it can get into.

Writers append one row each, compactors merge all that is live, deleters take the first row away, restorers publish the
first snapshot again, flushers turn hot rows into an extent, uniters unite coverage. ``protocol_catalog`` has the
catalog, ``protocol_expiry`` expiry and a collector that deletes, ``protocol_letters`` writers that wait for their turn,
``protocol_queue`` pieces of work, ``protocol_readers`` those who read, ``protocol_upkeep`` Spark jobs and collections
with all their steps. A step is one thing that others can see. Between any two steps anybody else may act, anybody may
crash, and a commit may arrive whose sender has stopped waiting for the answer::

    idle ─▶ claimed ─▶ registered ─▶ ready ──commit──▶ receipted ─▶ done
           (leased only)              ▲ │ stale ─▶ behind ─▶ rebase
           (asked: rewrites)          └─┘ lost ─▶ unknown ─▶ look by id · refused ─▶ look by id

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

from tests.support import protocol_letters as letters
from tests.support import protocol_queue as queue
from tests.support import protocol_readers as readers
from tests.support import protocol_upkeep as upkeep
from tests.support.protocol_catalog import (
    is_retained,
    publish,
    read_history,
    rebased,
    rows_in,
    rows_of,
    visible,
)
from tests.support.protocol_expiry import steps_of_expiry, steps_of_sweep
from tests.support.protocol_failure import COMMITTING, OVER, steps_of_failure
from tests.support.protocol_world import (
    DOOMED,
    HOT,
    HOT_SEED,
    RULES,
    UNITED,
    Actor,
    Cast,
    Exploration,
    Next,
    Phase,
    Plan,
    Role,
    Rules,
    Step,
    Turn,
    World,
    cold,
    plan_of,
    release,
    set_actor,
    without_named,
)


def explore(cast: Cast, rules: Rules = RULES, *, shortcuts: bool = True) -> Exploration:
    """Visit every state, nearest first, until one violates an invariant.

    The shortcut is not to try the orders that cannot matter; see ``next_steps``.
    """
    start = first_world(cast)
    parents: dict[World, World | None] = {start: None}
    edges: dict[World, list[World]] = {}  # backwards, where it must be possible to come to rest
    at_rest: list[World] = []
    waiting = deque([start])
    steps = endings = 0
    while waiting:
        world = waiting.popleft()
        found = violation(world, cast)
        if found is None:
            before = steps
            for _, after in next_steps(world, cast, rules, shortcuts=shortcuts):
                steps += 1
                if cast.collects:
                    edges.setdefault(after, []).append(world)
                if after not in parents:
                    parents[after] = world
                    waiting.append(after)
            if steps == before:
                endings += 1
                at_rest.append(world)
                found = stuck(world, cast)
        if found is not None:
            return Exploration(len(parents), steps, endings, found, _way_to(world, parents, cast, rules))
    if cast.failure and (endless := _endless(parents, cast, rules)) is not None:
        way = _way_to(endless, parents, cast, rules)
        return Exploration(len(parents), steps, endings, "a commit goes on for ever after its deadline", way)
    if cast.collects and (restless := _restless(parents, edges, at_rest)) is not None:
        way = _way_to(restless, parents, cast, rules)
        return Exploration(len(parents), steps, endings, "there is no way to come to rest", way)
    return Exploration(len(parents), steps, endings)


def _restless(
    parents: dict[World, World | None], edges: dict[World, list[World]], at_rest: list[World]
) -> World | None:
    """Return a state, the nearest, from which there is no way to an ending."""
    reaching, waiting = set(at_rest), list(at_rest)
    while waiting:
        for before in edges.get(waiting.pop(), ()):
            if before not in reaching:
                reaching.add(before)
                waiting.append(before)
    return next((world for world in parents if world not in reaching), None)


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
    actors = tuple(Actor("idle", 1) for _ in cast.roles)
    start = World(actors, cast.crashes, cast.losses, cast.abandons, cast.stalls, revivals=cast.revivals)
    if cast.starts_hot:
        held = frozenset({HOT_SEED})
        start = start._replace(extents=frozenset({(HOT_SEED, 1, 0)}), published=((1, held),), objects=frozenset())
    return start._replace(unit=("queued", 0, "")) if cast.tries else start


def next_steps(world: World, cast: Cast, rules: Rules, *, shortcuts: bool = True) -> Next:
    """Yield all that can happen next.

    Whose step nobody else can notice or disturb goes first: any other order leads to the same endings.
    """
    if world.failure:
        yield from steps_of_failure(world, cast, rules)
        return
    if cast.failure:
        yield Step("the catalog", "fails for good:", cast.failure), world._replace(failure=cast.failure)
    private = (at for at, actor in enumerate(world.actors) if shortcuts and _is_private(world, actor, cast))
    urgent = next(private, None)
    for at, (name, role) in enumerate(cast.roles):
        if urgent is not None and at != urgent:
            continue
        actor = world.actors[at]
        turn = Turn(world, at, name, role, rules, readers.process_of(cast, name), cast)
        yield from _ACTS[actor.phase](turn, actor)
        if world.crashes and actor.phase not in ("idle", "done", "gone"):
            crashed = set_actor(world, at, _crashed(role, actor))._replace(crashes=world.crashes - 1)
            yield Step(name, "crashes"), crashed._replace(turn="") if world.turn == name else crashed
    if urgent is None:
        for plan in world.network:
            after, answer = publish(world._replace(network=world.network - {plan}), plan, rules)
            yield Step("the network", "delivers late", "", plan, answer), after
        yield from upkeep.steps_of_tasks(world)
        yield from readers.steps_of_leases(world, cast, rules)
        yield from queue.steps_of_persons(world, rules.keeps_token)
        yield from steps_of_expiry(world, cast, rules)
        yield from steps_of_sweep(world, cast, rules)


def violation(world: World, cast: Cast) -> str | None:
    """Return which invariant a state breaks."""
    if world.fault:
        return world.fault
    found, reachable = read_history(world.extents, world.published)
    if found is not None:
        return found
    if not reachable <= world.objects:
        return f"a retained snapshot reaches {min(reachable - world.objects)}, which is deleted"
    held = dict(world.published)
    for row, sequence in world.acknowledged:
        if sequence > world.head:
            return f"the row {row} was acknowledged for snapshot {sequence}, which is not there"
        until = min((at for each, at in world.taken if each == row and at > sequence), default=world.head + 1)
        for at in range(sequence, until):
            if at in held and row not in rows_in(held[at]):
                return f"the acknowledged row {row} is not in snapshot {at}"
        if sequence - 1 in held and row in rows_in(held[sequence - 1]):
            return f"the row {row} was acknowledged for snapshot {sequence} and is in an earlier one"
    for row, sequence in world.deleted:
        if sequence in held and row in rows_in(held[sequence]):
            return f"the row {row} is in snapshot {sequence}, which was to be without it"
    if world.denied and (lies := world.denied.intersection(commit for commit, _ in world.receipts)):
        return f"the sender of {min(lies)} was told that it did not happen, and it did"
    if not cast.collects and (
        orphans := without_named(world.objects - reachable, world.pending | world.garbage | world.overtaken)
    ):
        orphans = orphans.difference(*(actor.plan.adds for actor in world.actors if actor.plan is not None))
        if orphans:
            return f"nobody will ever collect {min(orphans)}"
    return None


def stuck(world: World, cast: Cast) -> str | None:
    """Return who has not finished in a state after which nothing can happen."""
    for (name, role), actor in zip(cast.roles, world.actors, strict=True):
        if world.failure and actor.phase not in OVER:
            return f"{name} never ends: {actor.phase}"
        is_told = cast.letters and actor.phase == "gone"  # that it did not happen, or that it is not known
        if not world.failure and role in ("writer", "hot writer", "job") and actor.phase != "done" and not is_told:
            return f"{name} is stuck: {actor.phase}"
    if world.failure:
        return None
    if world.leases:
        return f"the lease of {min(world.leases)[0]} never ends"
    if world.unit[0] in ("queued", "leased"):
        return f"the work is never over: {world.unit[0]}"
    if world.turn:
        return f"the turn of {world.turn} is never over"
    if cast.collects:
        _, reachable = read_history(world.extents, world.published)
        if left := (world.objects - reachable) | world.pending | world.garbage:
            return f"{min(left)} is never collected"
    return None


def _rest(turn: Turn, actor: Actor) -> Next:
    return iter(())


def _start(turn: Turn, actor: Actor) -> Next:
    world = turn.world
    match turn.role:
        case "leased compactor":
            token = world.token + 1
            claimed = turn.to(actor._replace(phase="claimed", token=token))
            yield Step(turn.name, "leases the work with token", token), claimed._replace(token=token)
        case "worker":
            yield from queue.claim(turn, actor)
        case "job":
            yield from upkeep.open_folder(turn, actor)
        case "collector":
            yield from upkeep.list_store(turn, actor)
        case "reader" | "reader of a pin" | "reader as of 2" | "deleter" | "flusher":
            yield from readers.ask(turn, actor)
        case "restorer":
            if world.head > 1:
                yield from readers.ask(turn, actor)
        case _:
            yield from _register(turn, actor)


def _go_on(turn: Turn, actor: Actor) -> Next:
    """Work on the snapshot that was the head."""
    if turn.role not in ("deleter", "restorer", "flusher"):
        yield from readers.keep(turn, actor)
    elif is_retained(turn.world, actor.sequence):
        yield from _register(turn, actor)
    else:
        yield Step(turn.name, "finds its snapshot expired:", actor.sequence), turn.to(Actor("idle", actor.attempt))


def _register(turn: Turn, actor: Actor) -> Next:
    """Decide on a commit, and announce its extents."""
    world, rules = turn.world, turn.rules
    own = f"{turn.name}{actor.attempt}"
    plan = _plan(turn, actor, own if rules.names_anew else turn.name)
    if plan is None:
        if turn.role == "worker":
            yield Step(turn.name, "finds nothing to do"), turn.to(actor._replace(phase="finished"))
        return
    if not (plan.adds or plan.removes):
        idle = turn.to(Actor("gone" if plan.id == "expired" else "done", 0))
        if turn.role == "deleter":
            idle = idle._replace(deleted=world.deleted | {(DOOMED, plan.base)})
        yield Step(turn.name, "finds nothing to do"), idle
        return
    after = turn.to(actor._replace(phase="registered", plan=plan._replace(id=own)))
    what = " ".join(plan.adds)
    if not cold(plan.adds) and plan.adds:
        hot = set_actor(after, turn.at, after.actors[turn.at]._replace(phase="ready"))
        yield Step(turn.name, f"plans at snapshot {plan.base} to keep hot", what), hot
    elif rules.registers_first:
        announced = after._replace(pending=world.pending.union(cold(plan.adds)))
        yield Step(turn.name, f"plans at snapshot {plan.base} and registers", what), announced
    else:
        yield Step(turn.name, f"plans at snapshot {plan.base} and writes", what), _written(after, plan)


def _plan(turn: Turn, actor: Actor, named: str) -> Plan | None:
    """Return what somebody is about to commit; None if it is not the time, nothing if there is nothing to do."""
    world = turn.world
    base = actor.sequence or world.head
    live = visible(world.extents, base)
    newest = live if turn.rules.plans_at_one_head else visible(world.extents, world.head)
    match turn.role:
        case "compactor" | "leased compactor" | "worker":
            small = tuple(name for name in cold(live) if rows_of(name))
            merged = (f"{named}/{rows_in(small)}",)
            return Plan(named, base, merged, small, token=actor.token, reads=small) if len(small) > 1 else None
        case "flusher":
            warm, meant = (tuple(name for name in each if HOT in name) for each in (live, newest))
            return Plan(named, base, (f"{named}/{rows_in(warm)}",), meant) if warm else None
        case "uniter":
            return Plan(named, base, (f"{named}{UNITED}{base}/",), reads=cold(live))
        case "deleter":
            touched, meant = (tuple(e for e in each if DOOMED in rows_of(e)) for each in (live, newest))
            if not turn.rules.deletes_hot:
                touched, meant = cold(touched), cold(meant)
            kept = rows_in(touched).replace(DOOMED, "")
            added = (f"{named}/{kept}",) if kept else ()
            return Plan(named, base, added, meant, reads=cold(touched), takes=DOOMED if touched else "")
        case "restorer" if not is_retained(world, 1):
            return Plan("expired", base, ())
        case "restorer":
            then = (*visible(world.extents, 1), *(name for name in live if not rows_of(name)))
            back = tuple(name for name in then if name not in live)
            gone = tuple(name for name in newest if name not in then)
            copies = tuple(f"{named}/{rows_of(name)}" for name in back) if turn.rules.copies_anew else back
            was, wanted = Counter(rows_in(live)), Counter(rows_in(then))
            takes, gives = ("".join(each.elements()) for each in (was - wanted, wanted - was))
            return Plan(named, base, copies, gone, reads=cold(back), takes=takes, gives=gives)
    key = turn.name if turn.role in ("writer", "hot writer") else None
    kind = HOT if turn.role == "hot writer" else ""
    return Plan(named, base, (f"{named}{kind}/{turn.name}",), key=key, gives=turn.name)


def _write(turn: Turn, actor: Actor) -> Next:
    world, plan, rules = turn.world, plan_of(actor), turn.rules
    if not world.objects.issuperset(plan.reads):
        over = Actor("idle", actor.attempt + 1) if turn.role in ("deleter", "worker") else Actor("gone", 0)
        given_up = turn.give_up(plan, over)
        if turn.role == "worker":
            given_up = queue.failed(turn, actor, given_up)
        yield Step(turn.name, "finds an input deleted"), given_up
        return
    after = turn.to(actor._replace(phase="ready"))
    if not rules.registers_first:
        yield Step(turn.name, "registers", plan.adds), after._replace(pending=world.pending.union(cold(plan.adds)))
        return
    after = _written(after, plan)
    if not rules.stays_registered:
        after = release(after, *plan.adds)
    if not rules.acknowledges_last and plan.key:
        after = after._replace(acknowledged=after.acknowledged | {(turn.name, plan.base + 1)})
    if not rules.adds_with_removal and plan.removes:
        after = set_actor(after, turn.at, actor._replace(phase="ready", plan=plan._replace(adds=())))
    yield Step(turn.name, "reads and writes" if plan.reads else "writes", " ".join(plan.adds)), after


def _commit(turn: Turn, actor: Actor) -> Next:
    world, plan, rules = turn.world, plan_of(actor), turn.rules
    if turn.cast.letters and "writer" in turn.role:
        yield from letters.wait(turn, actor)
        return
    if world.losses:
        sent = turn.to(actor._replace(phase="unknown", unsure=True))
        sent = sent._replace(network=world.network | {plan}, losses=world.losses - 1)
        yield Step(turn.name, "commits and gets no answer:", plan.id), sent
    if not rules.swaps_at_once and plan.base == world.head:
        yield Step(turn.name, "finds that the head is still", plan.base), turn.to(actor._replace(phase="compared"))
    else:
        yield from _commit_now(turn, actor)


def _commit_now(turn: Turn, actor: Actor) -> Next:
    after, answer = publish(turn.world, plan_of(actor), turn.rules)
    if isinstance(answer, int):
        told = actor._replace(phase="receipted", sequence=answer)
    else:
        told = actor._replace(phase="behind" if answer == "stale" else "refused")
    yield Step(turn.name, "commits", "", actor.plan, answer), set_actor(after, turn.at, told)


def _rebase(turn: Turn, actor: Actor) -> Next:
    world, plan = turn.world, plan_of(actor)
    live = visible(world.extents, world.head)
    fitted = rebased(turn.rules.rebase, plan, world.head, live)
    if fitted is None and not turn.rules.begins_again:
        fitted = plan._replace(base=world.head, removes=tuple(name for name in plan.removes if name in live))
        if not (fitted.adds or fitted.removes):
            satisfied = actor._replace(phase="receipted", sequence=world.head)
            yield Step(turn.name, "takes it for done:", plan.id), turn.to(satisfied)
            return
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
    over = Actor("gone", 0) if turn.role in ("writer without key", "deleter", "restorer") else again
    if turn.role == "job":
        over = upkeep.given_up(turn, actor)
    yield Step(turn.name, "gives up on", plan.id), turn.give_up(plan, over)


def _face_refusal(turn: Turn, actor: Actor) -> Next:
    """Yield the caller that a commit did not happen, unless it did."""
    world, plan = turn.world, plan_of(actor)
    found = dict(world.receipts).get(plan.id)
    if found is not None and turn.rules.looks_when_refused:
        told = actor._replace(phase="receipted", sequence=found)
        yield Step(turn.name, f"looks, and it is in {found}:", plan.id), turn.to(told)
        return
    over = Actor("gone", 0) if "compactor" in turn.role else Actor("idle", actor.attempt + 1)
    if turn.role == "job":
        over = upkeep.given_up(turn, actor)
    denied = turn.give_up(plan, over)._replace(denied=world.denied | {plan.id})
    if turn.role == "worker":
        denied = queue.failed(turn, actor, denied)
    yield Step(turn.name, "says that it did not happen:", plan.id), denied


def _acknowledge(turn: Turn, actor: Actor) -> Next:
    world, plan = turn.world, plan_of(actor)
    if plan.key and not turn.rules.keeps_keys_with_commit and plan.key not in dict(world.keys):
        yield Step(turn.name, "records its key", plan.key), world._replace(keys=world.keys | {(plan.key, plan.id)})
        return
    over = actor._replace(phase="settling") if turn.role == "job" else Actor("done", 0)
    if turn.role == "worker":
        over = Actor("finished", actor.attempt, token=actor.token)
    after = turn.give_up(plan, over)  # after a replay, an extent is left that nobody wants
    if "writer" in turn.role or turn.role == "job":
        after = after._replace(acknowledged=world.acknowledged | {(turn.name, actor.sequence)})
    if turn.role == "deleter":
        after = after._replace(deleted=world.deleted | {(DOOMED, actor.sequence)})
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
    "asked": _go_on,
    "seen": readers.keep,
    "held": readers.plan,
    "reading": readers.read,
    "foldered": upkeep.choose,
    "looked": upkeep.name_late,
    "named": upkeep.look_for_folder,
    "aborting": upkeep.abort,
    "settling": upkeep.settle,
    "leaving": upkeep.settle,
    "left": upkeep.settle,
    "stocked": upkeep.give_up_ownerless,
    "sweeping": upkeep.take_page,
    "below": upkeep.list_below,
    "naming": upkeep.ask_for_names,
    "deleting": upkeep.delete_page,
    "forgetting": upkeep.forget_page,
    "orphans": upkeep.delete_orphans,
    "put": readers.look_again,
    "finished": queue.complete,
    "turned": letters.take,
    "taking": letters.commit_all,
    "posted": letters.come_to_turn,
}


def _crashed(role: Role, actor: Actor) -> Actor:
    """Return how somebody goes on after a crash: who has a key, or works on nobody's behalf, begins again."""
    if role == "collector":
        return Actor("idle", actor.attempt)
    return Actor("gone", 0) if role == "writer without key" or "reader" in role else Actor("idle", actor.attempt + 1)


def _is_private(world: World, actor: Actor, cast: Cast) -> bool:
    """Return whether an actor's next step neither changes nor reads what another's step reads or changes."""
    match actor.phase:
        case "receipted":
            return True
        case "registered":
            plan = plan_of(actor)
            return not (cast.collects or world.abandons or plan.reads) and world.pending.issuperset(plan.adds)
        case "refused" | "unknown":
            return all(plan.id != plan_of(actor).id for plan in world.network)
        case _:
            return False


def _written(world: World, plan: Plan) -> World:
    return world._replace(objects=world.objects.union(cold(plan.adds)))


def _way_to(world: World, parents: dict[World, World | None], cast: Cast, rules: Rules) -> tuple[Step, ...]:
    steps: list[Step] = []
    while (before := parents[world]) is not None:
        steps.append(next(step for step, after in next_steps(before, cast, rules) if after == world))
        world = before
    return tuple(reversed(steps))
