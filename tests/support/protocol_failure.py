"""Let the catalog of the protocol's model fail for good, and follow those who wait for its answer.

It does not model what an answering catalog does: see ``protocol``.
"""

from __future__ import annotations

from tests.support.protocol_world import Actor, Cast, Next, Rules, Step, Turn, World, plan_of

OVER = ("idle", "claimed", "done", "gone")  # nobody waits for an answer
COMMITTING = ("ready", "compared", "behind", "unknown", "refused")


def steps_of_failure(world: World, cast: Cast, rules: Rules) -> Next:
    """Yield what can happen once the catalog has failed: those who have begun go on until they have an answer."""
    for at, (name, role) in enumerate(cast.roles):
        actor, turn = world.actors[at], Turn(world, at, name, role, rules)
        if actor.phase == "receipted":
            seen = turn.to(Actor("done", 0))
            if "writer" in role:
                seen = seen._replace(acknowledged=world.acknowledged | {(name, actor.sequence)})
            yield Step(name, "acknowledges snapshot", actor.sequence), seen
            continue
        if actor.phase == "registered":  # what it writes cannot be committed
            yield Step(name, "gives up before it commits"), turn.to(Actor("gone", 0))
            continue
        if actor.phase not in COMMITTING:
            continue
        if not actor.late:
            yield Step(name, "finds that its deadline has passed"), turn.to(actor._replace(late=True))
        yield from _fail(turn, actor)


def _fail(turn: Turn, actor: Actor) -> Next:
    """Take a step towards an answer from a catalog that has failed."""
    world, plan, rules = turn.world, plan_of(actor), turn.rules
    must_end = actor.late and rules.ends_by_deadline
    found = None if world.failure == "away" else dict(world.receipts).get(plan.id)
    match actor.phase:
        case "refused" | "unknown" if found is not None:
            told = actor._replace(phase="receipted", sequence=found)
            yield Step(turn.name, f"looks, and it is in {found}:", plan.id), turn.to(told)
        case "refused":
            yield from _told(turn, actor)
        case "unknown" if must_end:
            yield from _told(turn, actor)
        case "unknown" if world.failure != "away":
            yield Step(turn.name, "looks, and it is not in:", plan.id), turn.to(actor._replace(phase="behind"))
        case "unknown":
            yield Step(turn.name, "looks, and nobody answers"), turn.to(actor)
        case "behind" if must_end:
            yield from _told(turn, actor)
        case "behind":
            fitted = plan._replace(base=world.head)
            yield Step(turn.name, "tries again:", plan.id), turn.to(actor._replace(phase="ready", plan=fitted))
        case _:
            yield from _commit_to_failed(turn, actor)


def _commit_to_failed(turn: Turn, actor: Actor) -> Next:
    world, plan = turn.world, plan_of(actor)
    if actor.refused:
        fault = f"{plan.id} is tried again after the catalog said that it cannot"
        yield Step(turn.name, "commits again:", plan.id), world._replace(fault=fault)
    elif world.failure != "full":
        unsure = actor._replace(phase="unknown", unsure=True)
        yield Step(turn.name, "commits and gets no answer:", plan.id), turn.to(unsure)
    elif turn.rules.fails_at_once:
        yield Step(turn.name, "commits, and there is no room:", plan.id), turn.to(actor._replace(phase="refused"))
    else:
        puzzled = actor._replace(phase="unknown", unsure=True, refused=True)
        yield Step(turn.name, "takes a full disk for a lost answer:", plan.id), turn.to(puzzled)


def _told(turn: Turn, actor: Actor) -> Next:
    """End with an error: that the commit did not happen, or that nobody knows."""
    world, plan = turn.world, plan_of(actor)
    over = turn.to(Actor("gone", 0))
    if actor.unsure:
        yield Step(turn.name, "says that it is not known:", plan.id), over
    else:
        denied = over._replace(denied=world.denied | {plan.id})
        yield Step(turn.name, "says that it did not happen:", plan.id), denied
