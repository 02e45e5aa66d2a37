"""Hand out the one piece of work of the protocol's model, a compaction, to workers that may fail, crash or stall.

::

    queued ──claim──▶ leased ──commit, fenced──▶ … ──complete──▶ done
       ▲                │ └─ its lease ran out: claimed again, or dead after its last attempt
       └──── fail ──────┴─ after its last attempt ─▶ dead ── a person revives it ──▶ queued

A lease may run out at any time. Its token rises with every claim. It does not model how long anybody waits.
"""

from __future__ import annotations

from tests.support.protocol_world import Actor, Next, Step, Turn, World


def claim(turn: Turn, actor: Actor) -> Next:
    """Lease the piece, if it is queued or its lease ran out; after its last attempt nobody has it any more."""
    world, (state, attempts, _) = turn.world, turn.world.unit
    if state not in ("queued", "leased"):
        return
    if attempts < turn.cast.tries:
        token = world.token + 1
        claimed = turn.to(actor._replace(phase="claimed", token=token))
        after = claimed._replace(token=token, unit=("leased", attempts + 1, turn.name))
        yield Step(turn.name, "leases the work with token", token), after
    elif turn.rules.buries_last:
        yield Step(turn.name, "finds that the last lease ran out"), world._replace(unit=("dead", attempts, ""))


def complete(turn: Turn, actor: Actor) -> Next:
    """Close the piece, unless it is another's by now."""
    if _has(turn, actor):
        after = turn.to(Actor("done", 0))._replace(unit=("done", turn.world.unit[1], ""))
        yield Step(turn.name, "completes the work"), after
    else:
        yield Step(turn.name, "is told that it lost the work"), turn.to(Actor("idle", actor.attempt + 1))


def failed(turn: Turn, actor: Actor, after: World) -> World:
    """Give the piece back for another attempt, or to the dead letters."""
    _, attempts, _ = after.unit
    if not _has(turn, actor):
        return after
    return after._replace(unit=("queued" if attempts < turn.cast.tries else "dead", attempts, ""))


def steps_of_persons(world: World, keeps_token: bool) -> Next:
    """Let a person queue a dead piece again."""
    if world.unit[0] == "dead" and world.revivals:
        token = world.token if keeps_token else 0
        after = world._replace(unit=("queued", 0, ""), token=token, revivals=world.revivals - 1)
        yield Step("a person", "revives the work"), after


def _has(turn: Turn, actor: Actor) -> bool:
    return turn.world.unit[0] == "leased" and turn.world.token == actor.token
