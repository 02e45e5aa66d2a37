"""Let writers of the protocol's model wait for their turn, and leave their commits to whoever has it.

::

    ready ──the turn is free──▶ turned ──takes letters──▶ taking ──commits them and its own──▶ receipted
      └──it is another's──▶ posted ── its turn comes, the letter is there: takes it back ──▶ turned
                               │   └─ the letter is gone: looks for its receipt ──▶ receipted, or ready
                               └─ its deadline comes: takes it back, or does not know

A turn ends with its process, and with it what was taken and not committed. A letter whose sender is dead is dropped.
What shares a transaction is published here as one snapshot after the other. It does not model the file.
"""

from __future__ import annotations

from tests.support.protocol_catalog import publish
from tests.support.protocol_world import Actor, Next, Step, Turn, plan_of, set_actor


def wait(turn: Turn, actor: Actor) -> Next:
    """Take the turn if it is free, or else leave a letter."""
    world, plan = turn.world, plan_of(actor)
    if not world.turn:
        yield Step(turn.name, "takes the turn"), turn.to(actor._replace(phase="turned"))._replace(turn=turn.name)
    else:
        posted = turn.to(actor._replace(phase="posted"))
        yield Step(turn.name, "posts a letter:", plan.id), posted._replace(letters=world.letters | {plan})


def take(turn: Turn, actor: Actor) -> Next:
    """Take the letters of the living, and drop the others."""
    world = turn.world
    alive = frozenset(each.plan for each in world.actors if each.phase == "posted")
    taken = actor._replace(phase="taking", taken=world.letters & alive)
    left = frozenset() if turn.rules.takes_before_commit else world.letters & alive
    yield Step(turn.name, "takes letters:", len(taken.taken)), turn.to(taken)._replace(letters=left)


def commit_all(turn: Turn, actor: Actor) -> Next:
    """Commit what was taken and one's own, in one transaction, and pass the turn on."""
    world, plan = turn.world, plan_of(actor)
    for each in sorted(actor.taken):
        world, _ = publish(world, each, turn.rules)  # one that is refused is dropped
    after, answer = publish(world._replace(letters=world.letters - actor.taken, turn=""), plan, turn.rules)
    told = actor._replace(phase="receipted", sequence=answer) if isinstance(answer, int) else None
    own = told or actor._replace(phase="refused")
    yield Step(turn.name, "commits all:", plan.id), set_actor(after, turn.at, own._replace(taken=frozenset()))


def come_to_turn(turn: Turn, actor: Actor) -> Next:
    """Take the letter back when one's turn comes, or when the deadline does."""
    world, plan, rules = turn.world, plan_of(actor), turn.rules
    left, is_there = world.letters - {plan}, plan in world.letters
    found = dict(world.receipts).get(plan.id)
    if not world.turn:
        if is_there:
            turned = turn.to(actor._replace(phase="turned"))
            yield Step(turn.name, "takes its letter back:", plan.id), turned._replace(turn=turn.name, letters=left)
        elif found is not None or not rules.looks_for_taken:
            told = actor._replace(phase="receipted", sequence=found or world.head)
            yield Step(turn.name, "finds its letter committed:", plan.id), turn.to(told)
        else:
            yield Step(turn.name, "finds its letter lost:", plan.id), turn.to(actor._replace(phase="ready"))
    over = turn.give_up(plan, Actor("gone", 0))._replace(letters=left)
    if is_there and actor.unsure and rules.is_unsure_of_taken:  # of a letter before this one
        yield Step(turn.name, "says that it is not known:", plan.id), over
    elif is_there or not rules.is_unsure_of_taken:
        denied = over._replace(denied=world.denied | {plan.id})
        yield Step(turn.name, "says that it did not happen:", plan.id), denied
    else:
        unsure = actor._replace(phase="unknown", unsure=True)
        yield Step(turn.name, "stops waiting, and does not know:", plan.id), turn.to(unsure)
