"""Let those who read a table of the protocol's model plan, keep their snapshot, read its objects and let it go.

::

    idle ──head──▶ asked ──lease, or pin──▶ held ──list──▶ reading ─▶ … one object after the other … ─▶ done
                     └──expired──▶ idle, or told so
    in a log:      asked ──list──▶ seen ──lease──▶ put ──still retained?──▶ reading

A lease is of a process, on the oldest snapshot that something in it reads. It ends when the last one has read, or some
time after its process crashed; also under a reader that stalls, who is then told that the snapshot has expired if an
object is gone. A pin is a person's and never ends by itself. It does not model how leases are renewed.
"""

from __future__ import annotations

from tests.support.protocol_catalog import is_retained, visible
from tests.support.protocol_world import Actor, Cast, Kept, Next, Rules, Step, Turn, World, cold, set_actor

AS_OF = 2  # the time that a reader of the past asks for, in snapshots
USING = ("put", "held", "reading")


def ask(turn: Turn, actor: Actor) -> Next:
    """Find out which snapshot to read."""
    world, name = turn.world, turn.name
    if turn.role != "reader as of 2":
        asked = turn.to(actor._replace(phase="asked", sequence=world.head))
        yield Step(name, "reads the head:", world.head), asked
        return
    if world.head < AS_OF:
        return
    before = [sequence for sequence, _ in world.published if sequence <= AS_OF]
    if AS_OF not in before and (turn.rules.answers_no_hole or not before):
        yield Step(name, "is told that it has expired:", AS_OF), turn.to(Actor("gone", 0))
        return
    asked = turn.to(actor._replace(phase="asked", sequence=max(before)))
    if max(before) != AS_OF:
        asked = asked._replace(fault=f"{name} asked for snapshot {AS_OF} and was given {max(before)}")
    yield Step(name, "asks for the snapshot at a time:", AS_OF), asked


def keep(turn: Turn, actor: Actor) -> Next:
    """Keep the snapshot by a lease or a pin, in a transaction that sees it."""
    world, rules, sequence = turn.world, turn.rules, actor.sequence
    held = actor._replace(phase="held")
    if turn.role == "reader of a pin":
        if is_retained(world, sequence) or not rules.checks_retained:
            pinned = turn.to(held)._replace(pins=world.pins | {(turn.name, sequence)})
            yield Step(turn.name, "pins", sequence), pinned
        else:
            yield from _begin_again(turn, actor)
        return
    if turn.cast.log:
        yield from _keep_in_log(turn, actor)
        return
    mine = _of(world.leases, turn.process)
    if not rules.takes_lease or (rules.leases_oldest and mine and min(mine) <= sequence):
        yield Step(turn.name, "needs no other lease for", sequence), turn.to(held)
    elif actor.phase == "asked" and not rules.leases_at_once and is_retained(world, sequence):
        yield Step(turn.name, "sees that it is retained:", sequence), turn.to(actor._replace(phase="seen"))
    elif is_retained(world, sequence) or not rules.checks_retained or actor.phase == "seen":
        leases = _without(world.leases, turn.process) | {(turn.process, sequence)}
        yield Step(turn.name, "takes a lease on", sequence), turn.to(held)._replace(leases=leases)
    else:
        yield from _begin_again(turn, actor)


def _keep_in_log(turn: Turn, actor: Actor) -> Next:
    """Read the log to its end, where the snapshot is retained, and then put a lease that names this version of it."""
    world, sequence = turn.world, actor.sequence
    if actor.phase == "seen":
        leased = turn.to(actor._replace(phase="put" if turn.rules.looks_again else "reading"))
        versions = world.versions | {(turn.process, actor.version)}
        after = leased._replace(leases=world.leases | {(turn.process, sequence)}, versions=versions)
        yield Step(turn.name, "takes a lease on", sequence), after
    elif is_retained(world, sequence):
        found = frozenset(cold(visible(world.extents, sequence)))
        seen = turn.to(actor._replace(phase="seen", version=world.oldest, todo=found))
        yield Step(turn.name, "sees that it is retained, and lists", sequence), seen
    else:
        yield from _begin_again(turn, actor)


def look_again(turn: Turn, actor: Actor) -> Next:
    """Read the log to its end once more: what gives the snapshot up comes after the lease, or it is gone."""
    if is_retained(turn.world, actor.sequence):
        yield (
            Step(turn.name, "sees that it is still retained:", actor.sequence),
            turn.to(actor._replace(phase="reading")),
        )
        return
    for step, after in _begin_again(turn, actor):
        yield step, _leased(after, _without(turn.world.leases, turn.process))


def plan(turn: Turn, actor: Actor) -> Next:
    """List the extents of the snapshot."""
    world, sequence = turn.world, actor.sequence
    if is_retained(world, sequence):
        found = frozenset(cold(visible(world.extents, sequence)))
        planned = turn.to(actor._replace(phase="reading", todo=found))
        if not turn.rules.holds_to_end:
            planned = planned._replace(leases=_without(world.leases, turn.process))
        yield Step(turn.name, "lists the extents of", sequence), planned
    elif actor.expired:
        yield Step(turn.name, "is told that it has expired:", sequence), turn.to(Actor("gone", 0))
    else:
        fault = f"{turn.name} keeps snapshot {sequence}, which has expired"
        yield Step(turn.name, "lists the extents of", sequence), world._replace(fault=fault)


def read(turn: Turn, actor: Actor) -> Next:
    """Read one object of the plan, or let the snapshot go when all are read."""
    world = turn.world
    if not actor.todo:
        yield from _let_go(turn, actor)
        return
    name = min(actor.todo)
    if name in world.objects:
        yield Step(turn.name, "reads", name), turn.to(actor._replace(todo=actor.todo - {name}))
    elif not actor.expired:
        fault = f"{turn.name} keeps snapshot {actor.sequence} and finds {name} deleted"
        yield Step(turn.name, "reads", name), world._replace(fault=fault)
    elif turn.rules.tells_expired:
        yield Step(turn.name, "is told that it has expired:", actor.sequence), turn.to(Actor("gone", 0))
    else:
        yield Step(turn.name, "goes on without", name), world._replace(fault=f"{turn.name} answers without {name}")


def steps_of_leases(world: World, cast: Cast, rules: Rules) -> Next:
    """Let leases run out: those that nobody renews, and those of readers that stall."""
    for lease in sorted(world.leases):
        using = [
            at
            for at, (name, role) in enumerate(cast.roles)
            if process_of(cast, name) == lease[0] and "reader" in role and world.actors[at].phase in USING
        ]
        after = _leased(world, world.leases - {lease})
        if using and world.stalls:
            for at in using:
                after = set_actor(after, at, after.actors[at]._replace(expired=True))
            yield Step(lease[0], "stalls, and its lease runs out:", lease[1]), after._replace(stalls=world.stalls - 1)
        elif not using and rules.leases_end:
            yield Step("time", "ends the lease of", lease[0]), after


def process_of(cast: Cast, name: str) -> str:
    """Return the process in which somebody runs."""
    return "process" if cast.one_process else name


def _let_go(turn: Turn, actor: Actor) -> Next:
    world, over = turn.world, turn.to(Actor("done", 0))
    if turn.role == "reader of a pin":
        yield Step(turn.name, "unpins", actor.sequence), over._replace(pins=world.pins - {(turn.name, actor.sequence)})
        return
    leases = _without(world.leases, turn.process)
    others = [each.sequence for each in over.actors if each.phase in USING] if turn.process != turn.name else []
    if others and turn.rules.frees_last and _of(world.leases, turn.process):
        leases |= {(turn.process, min(others))}
    yield Step(turn.name, "has read and lets go of", actor.sequence), _leased(over, leases)


def _begin_again(turn: Turn, actor: Actor) -> Next:
    """Face an expired snapshot: who wanted the newest looks for a newer one."""
    again = Actor("gone", 0) if turn.role == "reader as of 2" else Actor("idle", actor.attempt)
    yield Step(turn.name, "is told that it has expired:", actor.sequence), turn.to(again)


def _leased(world: World, leases: Kept) -> World:
    """Return a world with these leases, and the versions of a log that they name."""
    owners = {who for who, _ in leases}
    return world._replace(leases=leases, versions=frozenset(each for each in world.versions if each[0] in owners))


def _of(kept: Kept, process: str) -> list[int]:
    return [sequence for who, sequence in kept if who == process]


def _without(kept: Kept, process: str) -> Kept:
    return frozenset(each for each in kept if each[0] != process)
