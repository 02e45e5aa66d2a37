"""Let Spark jobs write into folders of the protocol's model, and collections delete what nothing can reach.

A job::

    idle ──folder──▶ foldered ─▶ named ──folder still registered?──▶ ready ──commit──▶ receipted ─▶ settling
                        tasks write, at any time, also when nobody waits for them               (list, name, release)

A collection::

    idle ──list the store──▶ stocked ──give up──▶ sweeping ──page──▶ deleting ─▶ forgetting
                                                     └─ folders: list below, ask for names
         ──ask for names: pending, held, garbage──▶ orphans ──delete──▶ idle

Its first run may begin at any time, later ones when there is something to collect, so that in the end nothing may be
left. It does not model ages: whatever is nobody's is old enough.
"""

from __future__ import annotations

from tests.support.protocol_catalog import read_history
from tests.support.protocol_world import (
    Actor,
    Names,
    Next,
    Plan,
    Question,
    Step,
    Turn,
    World,
    folder_of,
    plan_of,
    release,
    without_named,
)

# a Spark job


def open_folder(turn: Turn, actor: Actor) -> Next:
    """Register a folder, and send out tasks."""
    folder = _folder(turn, actor)
    after = turn.to(actor._replace(phase="foldered", plan=Plan(folder, turn.world.head, ())))
    after = after._replace(tasks=after.tasks.union(_objects(turn, folder)))
    if turn.rules.registers_folder:
        after = after._replace(pending=after.pending | {folder})
    yield Step(turn.name, "registers the folder", folder), after


def steps_of_tasks(world: World) -> Next:
    """Let an attempt write its object, whether or not somebody still waits for it."""
    for name in sorted(world.tasks):
        is_late = without_named(frozenset({name}), world.pending | world.garbage)
        after = world._replace(tasks=world.tasks - {name}, objects=world.objects | {name})
        yield Step("a task", "writes", name), after._replace(overtaken=world.overtaken | is_late)


def choose(turn: Turn, actor: Actor) -> Next:
    """Take what one attempt wrote, and register it by name."""
    world, rules, folder = turn.world, turn.rules, _folder(turn, actor)
    for name in (name for name in _objects(turn, folder) if name not in world.tasks):
        plan = Plan(folder, world.head, (name,), key=turn.name, gives=turn.name)
        if rules.names_before_look:
            named = turn.to(actor._replace(phase="named", plan=plan))
            yield Step(turn.name, "registers by name", name), named._replace(pending=world.pending | {name})
        elif folder in world.pending:
            looked = actor._replace(phase="looked", plan=plan)
            yield Step(turn.name, "finds its folder registered:", folder), turn.to(looked)
        else:
            aborting = actor._replace(phase="aborting", plan=plan)
            yield Step(turn.name, "finds its folder given up:", folder), turn.to(aborting)


def look_for_folder(turn: Turn, actor: Actor) -> Next:
    """Go on only if the folder is still registered, now that the names are."""
    folder = _folder(turn, actor)
    if folder in turn.world.pending or not (turn.rules.looks_for_folder and turn.rules.registers_folder):
        yield Step(turn.name, "finds its folder registered:", folder), turn.to(actor._replace(phase="ready"))
    else:
        after = turn.give_up(plan_of(actor), given_up(turn, actor))
        yield Step(turn.name, "finds its folder given up:", folder), after


def name_late(turn: Turn, actor: Actor) -> Next:
    """Register by name after the look: a bug."""
    after = turn.to(actor._replace(phase="ready"))
    names = plan_of(actor).adds
    yield Step(turn.name, "registers by name", names[0]), after._replace(pending=after.pending.union(names))


def abort(turn: Turn, actor: Actor) -> Next:
    """Settle what is in the folder, but nothing that was named: it was released, or is in, or goes with the folder."""
    plan, rules = plan_of(actor), turn.rules
    is_in = plan.id in dict(turn.world.receipts) and rules.asks_before_forgetting
    kept = plan.adds if rules.leaves_named or is_in else tuple(sorted(actor.todo))
    settled = actor._replace(phase="settling", plan=plan._replace(adds=kept), sequence=0, todo=frozenset())
    yield Step(turn.name, "gives its job up:", plan.id), turn.to(settled)


def given_up(turn: Turn, actor: Actor) -> Actor:
    """Return a driver that is about to give up, with the names that it could release."""
    return actor._replace(phase="aborting", todo=turn.world.pending.intersection(plan_of(actor).adds))


def settle(turn: Turn, actor: Actor) -> Next:
    """List what is left in the folder, give it up by name, and then the folder: three steps."""
    world, folder = turn.world, _folder(turn, actor)
    if actor.phase == "settling":
        kept = plan_of(actor).adds if turn.rules.keeps_committed else ()
        left = frozenset(name for name in world.objects if folder_of(name) == folder and name not in kept)
        yield Step(turn.name, "lists what is left in", folder), turn.to(actor._replace(phase="leaving", todo=left))
    elif actor.phase == "leaving":
        after = turn.to(actor._replace(phase="left"))
        if not actor.todo & after.garbage:  # or else all of it is left to who collects the folder
            after = after._replace(pending=after.pending | actor.todo)
        yield Step(turn.name, "registers what is left in", folder), after
    else:
        over = Actor("done", 0) if actor.sequence else Actor("idle", actor.attempt + 1)
        yield Step(turn.name, "gives up the folder", folder), release(turn.to(over), *actor.todo, folder)


def _folder(turn: Turn, actor: Actor) -> str:
    return f"{turn.name}{actor.attempt}"


def _objects(turn: Turn, folder: str) -> list[str]:
    """Return what the attempts of a job's task write."""
    return [f"{folder}.{each + 1}/{turn.name}" for each in range(turn.cast.attempts)]


# a collection


def list_store(turn: Turn, actor: Actor) -> Next:
    """Begin a collection."""
    world = turn.world
    if actor.attempt > 1 and not (world.garbage or _ownerless(world) or _unnamed(world)):
        return
    if turn.rules.lists_store_first:
        found = world.objects
        yield Step(turn.name, "lists the store"), turn.to(actor._replace(phase="stocked", todo=found))
    else:
        named = world.pending | world.garbage | {name for name, _, _ in world.extents}
        yield Step(turn.name, "asks for all names"), turn.to(actor._replace(phase="stocked", todo=named))


def give_up_ownerless(turn: Turn, actor: Actor) -> Next:
    """Give up the registrations of those who are gone."""
    world = turn.world
    doomed = _ownerless(world) if turn.rules.spares_living else world.pending
    after = release(turn.to(actor._replace(phase="sweeping")), *doomed)
    yield Step(turn.name, "gives up registrations"), after


def take_page(turn: Turn, actor: Actor) -> Next:
    """Take what is on the garbage list now."""
    world = turn.world
    if not world.garbage:
        yield Step(turn.name, "finds no garbage"), turn.to(_asking(turn, actor))
        return
    has_folders = any("/" not in name for name in world.garbage) and turn.rules.collects_below
    taken = actor._replace(phase="below" if has_folders else "deleting", page=world.garbage)
    yield Step(turn.name, "takes a page of garbage"), turn.to(taken)


def list_below(turn: Turn, actor: Actor) -> Next:
    """List what lies in folders that were given up; what is named by itself is none of it."""
    found = frozenset(name for name in turn.world.objects if folder_of(name) in actor.page)
    listed = actor._replace(phase="deleting", below=found)
    if found and turn.rules.spares_named:
        listed = listed._replace(phase="naming", asks=_questions(turn))
    yield Step(turn.name, "lists the folders on it"), turn.to(listed)


def ask_for_names(turn: Turn, actor: Actor) -> Next:
    """Ask the catalog one question, and spare what it names."""
    world, question, left = turn.world, actor.asks[0], actor.asks[1:]
    found = actor.below if actor.page else actor.todo
    match question:
        case "pending":
            found = without_named(found, world.pending) if turn.rules.heeds_folders else found - world.pending
        case "held":
            found = found.difference(name for name, _, _ in world.extents)
        case "garbage":
            found -= world.garbage
    left = left if found else ()
    if actor.page:
        asked = actor._replace(below=found, asks=left, phase="naming" if left else "deleting")
    elif found:
        asked = actor._replace(todo=found, asks=left, phase="naming" if left else "orphans")
    else:
        asked = Actor("idle", 2)
    yield Step(turn.name, "asks for names:", question), turn.to(asked)


def delete_page(turn: Turn, actor: Actor) -> Next:
    """Delete the objects of the page, and those in its folders."""
    doomed = actor.page | actor.below
    left = actor.todo - doomed if turn.rules.lists_store_first else actor.todo
    deleted = turn.to(actor._replace(phase="forgetting", below=frozenset(), todo=left))
    yield Step(turn.name, "deletes the page"), _deleted(deleted, doomed)


def forget_page(turn: Turn, actor: Actor) -> Next:
    """Take the page off the garbage list."""
    after = turn.to(_asking(turn, actor._replace(page=frozenset())))
    yield Step(turn.name, "forgets the page"), after._replace(garbage=after.garbage - actor.page)


def delete_orphans(turn: Turn, actor: Actor) -> Next:
    """Delete what was listed and nothing names."""
    doomed = actor.todo if turn.rules.lists_store_first else without_named(turn.world.objects, actor.todo)
    yield Step(turn.name, "deletes orphans"), _deleted(turn.to(Actor("idle", 2)), doomed)


def _asking(turn: Turn, actor: Actor) -> Actor:
    if not turn.rules.finds_orphans:
        return Actor("idle", 2)
    if not turn.rules.lists_store_first:
        return actor._replace(phase="orphans")
    return actor._replace(phase="naming", asks=_questions(turn)) if actor.todo else Actor("idle", 2)


def _questions(turn: Turn) -> tuple[Question, ...]:
    if not turn.rules.asks_held:
        return ("pending", "garbage")
    return ("pending", "held", "garbage") if turn.rules.asks_pending_first else ("held", "pending", "garbage")


def _deleted(world: World, doomed: Names) -> World:
    return world._replace(objects=world.objects - doomed)


def _ownerless(world: World) -> Names:
    """Return the registrations whose owners are gone."""
    owned: set[str] = set()
    for actor in world.actors:
        if actor.plan is not None:
            owned.update(actor.plan.adds)
            owned.add(actor.plan.id)
        if actor.phase == "left":
            owned.update(actor.todo)
    return frozenset(name for name in world.pending if name not in owned)


def _unnamed(world: World) -> Names:
    _, reachable = read_history(world.extents, world.published)
    return without_named(world.objects - reachable, world.pending | world.garbage)
