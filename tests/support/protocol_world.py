"""The values of the protocol's model: who takes part, what is the case, what happened.

It does not say what happens next: see ``protocol``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from tidelake.model import rebase as rebasing
from tidelake.model import snapshot
from tidelake.model.schema import Schema
from tidelake.model.snapshot import Commit, Manifest, Scope

Phase: TypeAlias = Literal[
    "idle", "claimed", "registered", "ready", "compared", "behind", "unknown", "refused", "receipted", "done", "gone",
    "asked", "seen", "held", "reading",  # of who reads: has a sequence, has looked at it, keeps it, has a plan
    "foldered", "looked", "named", "aborting", "settling", "leaving", "left",  # of a Spark job
    "stocked", "sweeping", "below", "naming", "deleting", "forgetting", "orphans",  # of a collection
    "put",  # of who reads a log: has put a lease beside it
    "finished",  # of a worker: has done its piece
    "turned", "taking", "posted",  # of who may post a letter: has the turn, has taken letters, waits for its turn
]  # fmt: skip
Failure: TypeAlias = Literal["", "full", "deaf", "away"]
Role: TypeAlias = Literal[
    "writer", "writer without key", "compactor", "leased compactor", "deleter", "restorer", "job", "collector",
    "reader", "reader of a pin", "reader as of 2", "hot writer", "flusher", "uniter", "worker",
]  # fmt: skip
Roles: TypeAlias = tuple[tuple[str, Role], ...]  # with names
Answer: TypeAlias = int | Literal["stale", "fenced", "not_live", "not_pending"]  # the sequence of a receipt, or why not
Names: TypeAlias = frozenset[str]
Held: TypeAlias = frozenset[tuple[str, int, int]]  # extents: name, added, removed or 0
Kept: TypeAlias = frozenset[tuple[str, int]]  # snapshots that somebody keeps: who, sequence
Published: TypeAlias = tuple[tuple[int, Names], ...]  # the retained snapshots, and what each held at first
Unit: TypeAlias = tuple[Literal["", "queued", "leased", "done", "dead"], int, str]  # its state, attempts, owner
Question: TypeAlias = Literal["pending", "held", "garbage"]  # what a collection asks a catalog for names

SCOPE = Scope("t")
SCHEMA = Schema.of({"row": "string"})
SEED = "s0/s"  # the extent that is there in the beginning
HOT_SEED = "s0~/s"  # or its row, as a hot one
DOOMED = "s"  # the row that deleters delete
UNIT = "unit"
HOT, UNITED = "~", "+"  # in the name of a hot batch; of united coverage, with the snapshot it is of after it


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
    expires_in_holes: bool = True  # and of all of that, also between two that are kept
    expires_at_once: bool = True  # sees leases and lets go in one transaction
    heeds_leases: bool = True
    heeds_pins: bool = True
    keeps_pinned_extents: bool = True
    keeps_once_named: bool = True  # an object that something else still names is no garbage
    leases_end: bool = True  # by themselves, when nobody renews them
    answers_no_hole: bool = True  # with an older snapshot
    marks_flushed: bool = True  # and keeps for older snapshots the hot rows that are in an extent now
    keeps_newer_coverage: bool = True  # when an older one comes later
    leaves_late_coverage: bool = True  # registered, if a newer one is there
    # a log
    looks_again: bool = True  # whether the snapshot is still retained, once the lease is there
    heeds_versions: bool = True  # that leases name, before it offers what was given up after them
    reads_log_first: bool = True  # and then looks for leases
    # the queue of work
    buries_last: bool = True  # a unit whose last owner is gone
    fences_dead: bool = True  # whoever had a unit that is dead
    keeps_token: bool = True  # of a unit that is queued again
    # letters
    takes_before_commit: bool = True  # so that nobody takes a letter back that is being committed
    looks_for_taken: bool = True  # in the catalog, when its letter is gone
    is_unsure_of_taken: bool = True  # when it gives up, and its letter is gone
    # whoever commits
    registers_first: bool = True
    stays_registered: bool = True  # until the commit
    names_anew: bool = True  # each try has its own extent
    acknowledges_last: bool = True
    looks_when_unknown: bool = True
    looks_for_receipt: bool = True  # and does not take a moved head for an answer
    looks_when_refused: bool = True
    fails_at_once: bool = True  # when the catalog says that it cannot
    ends_by_deadline: bool = True
    # whoever rewrites
    plans_at_one_head: bool = True
    adds_with_removal: bool = True  # in one commit
    deletes_hot: bool = True  # rows, too
    begins_again: bool = True  # when its inputs are gone
    copies_anew: bool = True  # what is restored
    # whoever reads
    takes_lease: bool = True
    checks_retained: bool = True
    leases_at_once: bool = True  # sees the snapshot and keeps it in one transaction
    holds_to_end: bool = True
    leases_oldest: bool = True  # of the snapshots that a process reads
    frees_last: bool = True  # when nothing in the process reads any more
    tells_expired: bool = True
    # a Spark job
    registers_folder: bool = True
    names_before_look: bool = True
    looks_for_folder: bool = True
    keeps_committed: bool = True  # when it gives up what else is in its folder
    leaves_named: bool = True  # to the folder's collection when it gives up, and does not register them again
    asks_before_forgetting: bool = True  # whether it is in, if it does register them again
    # the collector
    lists_store_first: bool = True
    asks_pending_first: bool = True
    asks_held: bool = True
    heeds_folders: bool = True
    spares_named: bool = True  # in a folder that was given up
    spares_living: bool = True
    collects_below: bool = True
    finds_orphans: bool = True
    heeds_pending: bool = True
    heeds_retained: bool = True
    forgets_last: bool = True
    # the pure functions
    rebase: Callable[..., Commit] = rebasing.rebase
    apply: Callable[..., Manifest] = snapshot.apply


RULES = Rules()


@dataclass(frozen=True, slots=True)
class Cast:
    """Who takes part, and how often something goes wrong."""

    roles: Roles
    crashes: int = 0
    losses: int = 0  # of answers
    abandons: int = 0  # of registrations
    stalls: int = 0  # of readers, so that their leases run out
    failure: Failure = ""  # of the catalog, for good
    one_process: bool = False  # all readers are in one, with one lease
    attempts: int = 2  # of the one task of a Spark job
    log: bool = False  # the catalog is a log, with leases beside it
    tries: int = 0  # that a worker's unit has before it is dead
    revivals: int = 0  # of a dead unit
    starts_hot: bool = False  # the row that is there in the beginning is hot
    letters: bool = False  # writers wait for a turn, and leave their commits to whoever has it

    @property
    def collects(self) -> bool:
        """Whether collections take part, with all their steps."""
        return any(role == "collector" for _, role in self.roles)


class Plan(NamedTuple):
    """A commit, as its sender carries it about."""

    id: str
    base: int
    adds: tuple[str, ...]
    removes: tuple[str, ...] = ()
    key: str | None = None
    token: int = 0
    reads: tuple[str, ...] = ()  # objects
    takes: str = ""  # rows that are to be gone: what it means to do, for the observer…
    gives: str = ""  # …and rows that are to be there


class Actor(NamedTuple):
    """Somebody who commits, reads or collects, and how far the present try has got."""

    phase: Phase
    attempt: int
    plan: Plan | None = None
    token: int = 0
    sequence: int = 0  # of the receipt, or of the snapshot it works on
    late: bool = False  # the deadline has passed
    refused: bool = False  # the catalog said that it cannot
    unsure: bool = False  # a try had no answer
    todo: Names = frozenset()  # objects to read, to give up or to delete
    page: Names = frozenset()  # of the garbage list
    below: Names = frozenset()  # objects in folders on the page
    asks: tuple[Question, ...] = ()
    expired: bool = False  # its lease ran out
    version: int = 0  # of the log, at which its snapshot was retained
    taken: frozenset[Plan] = frozenset()  # letters of others, to be committed


class World(NamedTuple):
    """Everything that is the case. The last fields are the observer's."""

    actors: tuple[Actor, ...]
    crashes: int = 0  # left
    losses: int = 0
    abandons: int = 0
    stalls: int = 0
    failure: Failure = ""
    head: int = 1
    oldest: int = 1  # below it only what is pinned is retained
    pins: Kept = frozenset()
    leases: Kept = frozenset()  # by process
    looked: int = 0  # up to where expiry may go, if it has looked before
    extents: Held = frozenset({(SEED, 1, 0)})
    receipts: frozenset[tuple[str, int]] = frozenset()
    keys: frozenset[tuple[str, str]] = frozenset()  # key, commit
    pending: Names = frozenset()
    garbage: Names = frozenset()
    objects: Names = frozenset({SEED})
    token: int = 0  # of the last lease
    network: frozenset[Plan] = frozenset()  # sent and not answered
    listed: str = ""  # the object that the collector is about to delete
    tasks: Names = frozenset()  # objects that attempts of Spark's tasks are about to write
    versions: Kept = frozenset()  # of the log, that leases name, by process; a version is the oldest snapshot there
    given: Kept = frozenset()  # what expired, and the version that gave it up
    bound: int = 0  # the lowest version that a lease names, as the collector saw it
    unit: Unit = ("", 0, "")  # the piece of work, if there is one
    revivals: int = 0  # left
    turn: str = ""  # who may write
    letters: frozenset[Plan] = frozenset()
    published: Published = ((1, frozenset({SEED})),)
    taken: frozenset[tuple[str, int]] = frozenset()  # rows that were taken away on purpose, and when
    acknowledged: frozenset[tuple[str, int]] = frozenset({("s", 1)})  # row, and the sequence its writer was told
    deleted: frozenset[tuple[str, int]] = frozenset()  # row, and the sequence its deleter was told
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


class Turn(NamedTuple):
    """Whose turn it is, in which world."""

    world: World
    at: int
    name: str
    role: Role
    rules: Rules
    process: str = ""
    cast: Cast = Cast(())

    def to(self, actor: Actor) -> World:
        return set_actor(self.world, self.at, actor)

    def give_up(self, plan: Plan, actor: Actor) -> World:
        """Leave extents to the collector, unless they are published."""
        return set_actor(release(self.world, *plan.adds), self.at, actor)


def set_actor(world: World, at: int, actor: Actor) -> World:
    return world._replace(actors=(*world.actors[:at], actor, *world.actors[at + 1 :]))


def release(world: World, *names: str) -> World:
    given_up = world.pending.intersection(names)
    if not given_up:
        return world
    return world._replace(pending=world.pending - given_up, garbage=world.garbage | given_up)


def plan_of(actor: Actor) -> Plan:
    assert actor.plan is not None
    return actor.plan


def cold(names: Iterable[str]) -> tuple[str, ...]:
    """Return those that are objects, not hot rows in the catalog."""
    return tuple(name for name in names if HOT not in name)


def folder_of(name: str) -> str:
    """Return the folder of a Spark job in which an object lies, if it does."""
    return name.partition(".")[0] if "." in name else ""


def without_named(found: Names, names: Names) -> Names:
    """Return the objects that have none of these names and lie in none of these folders."""
    return frozenset(name for name in found if name not in names and folder_of(name) not in names)
