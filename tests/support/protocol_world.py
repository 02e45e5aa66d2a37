"""The values of the protocol's model: who takes part, what is the case, what happened.

It does not say what happens next: see ``protocol``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from tidelake.model import snapshot
from tidelake.model.schema import Schema
from tidelake.model.snapshot import Commit, Manifest, Scope

Phase: TypeAlias = Literal[
    "idle", "claimed", "registered", "ready", "compared", "behind", "unknown", "refused", "receipted", "done", "gone"
]
Failure: TypeAlias = Literal["", "full", "deaf", "away"]
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
    fails_at_once: bool = True  # when the catalog says that it cannot
    ends_by_deadline: bool = True
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
    failure: Failure = ""  # of the catalog, for good


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
    late: bool = False  # the deadline has passed
    refused: bool = False  # the catalog said that it cannot
    unsure: bool = False  # a try had no answer


class World(NamedTuple):
    """Everything that is the case. The last fields are the observer's."""

    actors: tuple[Actor, ...]
    crashes: int = 0  # left
    losses: int = 0
    abandons: int = 0
    failure: Failure = ""
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


class Turn(NamedTuple):
    """Whose turn it is, in which world."""

    world: World
    at: int
    name: str
    role: Role
    rules: Rules

    def to(self, actor: Actor) -> World:
        return set_actor(self.world, self.at, actor)

    def give_up(self, plan: Plan, actor: Actor) -> World:
        """Leave an extent to the collector, unless it is published."""
        return set_actor(release(self.world, plan.adds), self.at, actor)


def set_actor(world: World, at: int, actor: Actor) -> World:
    return world._replace(actors=(*world.actors[:at], actor, *world.actors[at + 1 :]))


def release(world: World, name: str) -> World:
    if name not in world.pending:
        return world
    return world._replace(pending=world.pending - {name}, garbage=world.garbage | {name})


def plan_of(actor: Actor) -> Plan:
    assert actor.plan is not None
    return actor.plan
