"""Let snapshots of the protocol's model expire, and delete what is garbage, in a database and beside a log.

A database sees leases and lets go in one transaction. In a log, where a lease is an object of its own, it is in steps::

    expiry       looks for leases ─▶ appends the entry that lets go, of nothing that is pinned by then
    a collector  reads the log: what was given up, and at which version ─▶ looks for leases ─▶ deletes

What was given up after a version that a lease names is left alone. The version of the model's log is its oldest
retained snapshot: only expiry gives up what a reader may know. It does not have a collection's own steps: see
``protocol_upkeep``.
"""

from __future__ import annotations

from tests.support.protocol_catalog import bound_of, expire
from tests.support.protocol_world import Cast, Names, Next, Rules, Step, World, plan_of, release

NO_LEASE = 99  # above every version


def steps_of_expiry(world: World, cast: Cast, rules: Rules) -> Next:
    """Let the oldest snapshot go, or those that are not pinned any more."""
    who, oldest = "expiry", bound_of(world, rules)
    if (cast.log or not rules.expires_at_once) and not world.looked:
        if not cast.log or oldest > world.oldest:
            yield Step(who, "looks how far it may go:", oldest), world._replace(looked=oldest)
        return
    oldest = world.looked or oldest
    pinned = {sequence for _, sequence in world.pins} if rules.heeds_pins else set()
    if cast.log:
        oldest = min(oldest, *pinned) if pinned else oldest
    unwanted = any(each < oldest and each not in pinned for each, _ in world.published)
    if rules.expires_below_head and oldest <= world.oldest and not unwanted:
        if cast.log:
            yield Step(who, "may not let go of anything"), world._replace(looked=0)
        return
    after = expire(world, oldest, rules, is_log=cast.log)
    yield Step(who, "lets go of snapshots before", oldest), after


def steps_of_sweep(world: World, cast: Cast, rules: Rules) -> Next:
    """Give up registrations, and delete what is garbage, one object at a time, where no collection takes part."""
    who = "the collector"
    if world.abandons:
        for name in sorted(world.pending):
            yield Step(who, "abandons", name), release(world, name)._replace(abandons=world.abandons - 1)
    if cast.collects:
        return
    if cast.log and not (world.listed and world.bound):
        yield from _choose_in_log(world, rules)
        return
    if not world.listed:
        for name in sorted(_collectable(world, rules)):
            yield Step(who, "lists", name), world._replace(listed=name)
        return
    name = world.listed
    is_unwritten = any(actor.phase == "registered" and name in plan_of(actor).adds for actor in world.actors)
    overtaken = world.overtaken | {name} if is_unwritten else world.overtaken
    deleted = world._replace(listed="", bound=0, objects=world.objects - {name}, overtaken=overtaken)
    yield Step(who, "deletes and forgets", name), deleted._replace(garbage=world.garbage - {name})
    if world.crashes:
        half = deleted if rules.forgets_last else world._replace(listed="", bound=0, garbage=world.garbage - {name})
        yield Step(who, "crashes half way through", name), half._replace(crashes=world.crashes - 1)


def _choose_in_log(world: World, rules: Rules) -> Next:
    """Take two steps towards an object to delete: read the log, and look for leases."""
    who = "the collector"
    bound = min((version for _, version in world.versions), default=NO_LEASE) if rules.heeds_versions else NO_LEASE
    if not rules.reads_log_first and not world.bound:
        yield Step(who, "looks for leases"), world._replace(bound=bound)
    elif not world.listed:
        for name in sorted(world.garbage):
            found = world._replace(listed=name)
            is_kept = world.bound and _is_kept(world, name, world.bound)
            yield Step(who, "reads the log, which gave up", name), world._replace(bound=0) if is_kept else found
    elif _is_kept(world, world.listed, bound):
        yield Step(who, "finds a lease, and leaves alone", world.listed), world._replace(listed="")
    else:
        yield Step(who, "finds no lease that keeps", world.listed), world._replace(bound=bound)


def _is_kept(world: World, name: str, bound: int) -> bool:
    return dict(world.given).get(name, 0) > bound


def _collectable(world: World, rules: Rules) -> Names:
    found = world.garbage
    if not rules.heeds_pending:
        found |= world.objects - {name for name, _, _ in world.extents}
    if not rules.heeds_retained:
        found |= {name for name, _, gone in world.extents if gone}
    return found
