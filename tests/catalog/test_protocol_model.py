"""Show that the commit protocol keeps its promises in every order of events, and that each of its rules is needed.

A small world is searched to the end: first with the protocol as it is, which must break nothing, then with one rule
after the other switched off, and each time the search must find what that breaks. Walks through the world are then
taken on real catalogs, which must answer as the model says. It does not test the coordinator's threads.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

import tidelake
from tests.support.catalogs import SQL_STORES, Ticking, announce, open_sql, place_of
from tests.support.protocol import explore, first_world, next_steps
from tests.support.protocol_bugs import (
    ALL,
    BUGS,
    COLLEAGUE,
    COLLECTOR,
    COMPACTOR,
    COWORKER,
    DELETER,
    FLUSHER,
    HISTORIAN,
    HOT_WRITER,
    JOB,
    LEASED,
    OTHER,
    OTHER_UNITER,
    PINNER,
    READER,
    RESTORER,
    RIVALS,
    SECOND,
    UNITER,
    WORKER,
    WRITER,
)
from tests.support.protocol_catalog import commit_of, extent_of, visible
from tests.support.protocol_steps import STEPS, WITHOUT_PLACE
from tests.support.protocol_world import (
    RULES,
    SCHEMA,
    SEED,
    Answer,
    Cast,
    Failure,
    Plan,
    Role,
    Rules,
    Step,
    World,
)
from tidelake.catalog import Catalog, Pending, StaleHead
from tidelake.catalog.log.log_catalog import open_log_catalog
from tidelake.errors import ConflictError, NotFoundError
from tidelake.model.snapshot import AddExtent, Commit, Fence

LONGEST_TRACE = 20  # a counterexample that a person can follow

EVERYBODY = Cast((*ALL, ("d", "leased compactor"), ("e", "leased compactor")), crashes=2, losses=2, abandons=2)
UPKEEPERS = Cast(
    (
        WRITER, ("b", "hot writer"), COMPACTOR, DELETER, RESTORER, FLUSHER, UNITER, OTHER_UNITER, JOB, READER, SECOND,
        PINNER, HISTORIAN,
    ),
    crashes=1, losses=1, abandons=1, stalls=1,
)  # fmt: skip
WALKS = {"sqlite": 8, "postgres": 3, "log": 3}
UPKEEP_WALKS = {"sqlite": 12, "postgres": 6}
LEASE_US = 10**12  # longer than a walk
REBASES_ITSELF = replace(RULES, rebases_itself=True)

WORLDS = {
    "a crash and an abandoned extent": (Cast(ALL, crashes=1, abandons=1), RULES),
    "everything, with one writer": (Cast((WRITER, COMPACTOR), crashes=1, losses=1, abandons=1), RULES),
    "everything, with one writer, rebased inside": (
        Cast((WRITER, COMPACTOR), crashes=1, losses=1, abandons=1),
        REBASES_ITSELF,
    ),
    "a lost answer, rebased inside": (Cast(ALL, losses=1), REBASES_ITSELF),
    "rival compactors": (Cast(RIVALS, losses=1), RULES),
    "rival compactors, rebased inside": (Cast(RIVALS, losses=1), REBASES_ITSELF),
    "a lease that is taken over": (Cast(LEASED, losses=1), RULES),
    "a lease that is taken over, rebased inside": (Cast(LEASED, losses=1), REBASES_ITSELF),
}
FAILING_WORLDS = {
    f"{name}, the catalog {failure}": (replace(cast, failure=failure), rules)
    for failure in ("full", "deaf", "away")
    for name, cast, rules in (
        ("everybody", Cast(ALL), RULES),
        ("a lost answer, with one writer", Cast((WRITER, COMPACTOR), losses=1), RULES),
        ("a lost answer, rebased inside", Cast((WRITER, COMPACTOR), losses=1), REBASES_ITSELF),
    )
}
RIVAL: tuple[str, Role] = ("f", "deleter")
UPKEEP_WORLDS = {
    "a delete and a crash": (Cast((WRITER, COMPACTOR, DELETER), crashes=1), RULES),
    "a delete, a lost answer and an abandoned extent": (
        Cast((WRITER, COMPACTOR, DELETER), losses=1, abandons=1),
        RULES,
    ),
    "a delete, rebased inside": (Cast((WRITER, COMPACTOR, DELETER), losses=1), REBASES_ITSELF),
    "two deletes and a reader": (Cast((WRITER, DELETER, RIVAL, READER)), RULES),
    "a restored snapshot": (Cast((WRITER, COMPACTOR, DELETER, RESTORER)), RULES),
    "a restored snapshot and a lost answer": (Cast((WRITER, DELETER, RESTORER), losses=1), RULES),
    "a restored snapshot and a pin": (Cast((WRITER, DELETER, RESTORER, PINNER)), RULES),
    "a lease, a pin and a crash": (Cast((WRITER, COMPACTOR, READER, PINNER), crashes=1), RULES),
    "a pin, and a time that has expired": (Cast((WRITER, COMPACTOR, DELETER, PINNER, HISTORIAN)), RULES),
    "readers that stall": (Cast((WRITER, COMPACTOR, READER, SECOND), stalls=1), RULES),
    "readers of one process": (Cast((WRITER, COMPACTOR, READER, SECOND), stalls=1, one_process=True), RULES),
    "two collections and a crash": (Cast((WRITER, COLLECTOR, COLLEAGUE), crashes=1), RULES),
    "a collection and an abandoned extent": (Cast((WRITER, COLLECTOR), crashes=1, abandons=1), RULES),
    "two collections and a compaction": (Cast((WRITER, COMPACTOR, COLLECTOR, COLLEAGUE)), RULES),
    "a collection, a reader and a crash": (Cast((WRITER, COMPACTOR, READER, COLLECTOR), crashes=1), RULES),
    "a collection and a delete": (Cast((WRITER, COMPACTOR, DELETER, COLLECTOR)), RULES),
    "a job": (Cast((JOB, COLLECTOR)), RULES),
    "a job and a crash": (Cast((JOB, COLLECTOR), crashes=1, attempts=1), RULES),
    "a job and an abandoned folder": (Cast((JOB, COLLECTOR), abandons=1, attempts=1), RULES),
    "a job and a lost answer": (Cast((JOB, COLLECTOR), losses=1, attempts=1), RULES),
    "a job, a lost answer and an abandoned extent": (
        Cast((JOB, COLLECTOR), losses=1, abandons=1, attempts=1),
        RULES,
    ),
    "a job and two collections": (Cast((JOB, COLLECTOR, COLLEAGUE), attempts=1), RULES),
    "a job and a compaction": (Cast((JOB, COMPACTOR, COLLECTOR), attempts=1), RULES),
    "hot rows, a flush, a delete and a crash": (
        Cast((HOT_WRITER, FLUSHER, DELETER), crashes=1, starts_hot=True),
        RULES,
    ),
    "hot rows, a flush, a compaction and a reader": (Cast((HOT_WRITER, FLUSHER, COMPACTOR, READER)), RULES),
    "hot rows, a flush and a lost answer": (Cast((HOT_WRITER, FLUSHER), losses=1, abandons=1), RULES),
    "hot rows, a flush and a restored snapshot": (Cast((HOT_WRITER, FLUSHER, DELETER, RESTORER)), RULES),
    "hot rows, a flush and a collection": (Cast((HOT_WRITER, FLUSHER, COLLECTOR), crashes=1), RULES),
    "two flushes": (Cast((HOT_WRITER, FLUSHER, ("g", "flusher")), losses=1), RULES),
    "united coverage, twice, and a reader": (Cast((WRITER, UNITER, OTHER_UNITER, READER)), RULES),
    "united coverage and a lost answer": (Cast((UNITER, OTHER_UNITER), losses=1), RULES),
    "united coverage and a collection": (Cast((WRITER, UNITER, COLLECTOR)), RULES),
    "a log, a reader and a crash": (Cast((WRITER, COMPACTOR, READER), crashes=1, log=True), RULES),
    "a log and a reader that stalls": (Cast((WRITER, COMPACTOR, READER), stalls=1, log=True), RULES),
    "a log, a pin and a delete": (Cast((WRITER, DELETER, READER, PINNER), log=True), RULES),
    "a log with hot rows": (Cast((HOT_WRITER, FLUSHER, DELETER, READER), log=True), RULES),
    "a piece of work that is tried twice": (Cast((WRITER, WORKER, COWORKER), crashes=1, tries=2), RULES),
    "a piece of work that is revived": (Cast((WRITER, WORKER, COWORKER), tries=1, revivals=1), RULES),
    "a piece of work and a delete": (Cast((WRITER, WORKER, DELETER), tries=1), RULES),
    "letters and a crash": (Cast((WRITER, ("b", "hot writer")), crashes=1, letters=True), REBASES_ITSELF),
}
LARGE_WORLDS = {
    "a crash and a lost answer": (Cast(ALL, crashes=1, losses=1), RULES),
    "a lost answer and an abandoned extent": (Cast(ALL, losses=1, abandons=1), RULES),
    "united coverage and two lost answers": (Cast((WRITER, UNITER, OTHER_UNITER), losses=2), RULES),
    "a log and readers that stall": (Cast((WRITER, COMPACTOR, READER, SECOND), stalls=1, log=True), RULES),
    "united coverage, a collection and a crash": (Cast((WRITER, UNITER, COLLECTOR), crashes=1), RULES),
    "a piece of work, a delete and a lost answer": (Cast((WRITER, WORKER, DELETER), losses=1, tries=1), RULES),
    "letters of three": (Cast((WRITER, OTHER, ("d", "hot writer")), crashes=1, letters=True), REBASES_ITSELF),
    "letters, a compaction and an abandoned extent": (
        Cast((WRITER, OTHER, COMPACTOR), abandons=1, letters=True),
        REBASES_ITSELF,
    ),
    "a delete, a crash and a lost answer": (Cast((WRITER, COMPACTOR, DELETER), crashes=1, losses=1), RULES),
    "two deletes, a compaction and a reader": (Cast((WRITER, COMPACTOR, DELETER, RIVAL, READER)), RULES),
    "two collections, a crash and an abandoned extent": (
        Cast((WRITER, COLLECTOR, COLLEAGUE), crashes=1, abandons=1),
        RULES,
    ),
    "two attempts and a crash": (Cast((JOB, COLLECTOR), crashes=1), RULES),
    "two attempts and an abandoned folder": (Cast((JOB, COLLECTOR), abandons=1), RULES),
    "everything": (Cast(ALL, crashes=1, losses=1, abandons=1), RULES),
    "two crashes": (Cast(ALL, crashes=2), RULES),
    "two lost answers": (Cast(ALL, losses=2), RULES),
    "two lost answers, rebased inside": (Cast(ALL, losses=2), REBASES_ITSELF),
    "a crash and a lost answer, rebased inside": (Cast(ALL, crashes=1, losses=1), REBASES_ITSELF),
    "rival compactors that crash": (Cast(RIVALS, crashes=1, losses=1, abandons=1), RULES),
    "a lease that is lost in a crash": (Cast(LEASED, crashes=1, losses=1, abandons=1), RULES),
    **{
        f"a crash and a lost answer, the catalog {failure}": (
            Cast((WRITER, COMPACTOR), crashes=1, losses=1, abandons=1, failure=failure),
            RULES,
        )
        for failure in ("full", "deaf", "away")
    },
    **{f"a lost answer, the catalog {failure}": (Cast(ALL, losses=1, failure=failure), RULES) for failure in ("deaf",)},
}


# Of the worlds below those that have the most orders; others have each of their parts.
LONG = (
    "a crash and an abandoned extent", "a delete, a lost answer and an abandoned extent",
    "a job, a lost answer and an abandoned extent", "everything, with one writer, rebased inside",
)  # fmt: skip


@pytest.mark.parametrize(
    ("cast", "rules"),
    [
        pytest.param(*world, id=name, marks=[pytest.mark.torture] * (name in LONG))
        for name, world in (WORLDS | UPKEEP_WORLDS).items()
    ],
)
def test_protocol_keeps_every_invariant_in_every_order(cast: Cast, rules: Rules) -> None:
    found = explore(cast, rules)
    print(found)
    assert found.violation is None, str(found)
    assert found.endings > 0


@pytest.mark.parametrize(("cast", "rules"), FAILING_WORLDS.values(), ids=FAILING_WORLDS)
def test_every_commit_ends_when_the_catalog_fails_for_good(cast: Cast, rules: Rules) -> None:
    found = explore(cast, rules)
    print(found)
    assert found.violation is None, str(found)
    assert found.endings > 0


@pytest.mark.parametrize("failure", ["deaf", "away"])
def test_without_a_deadline_a_commit_goes_on_for_ever(failure: Failure) -> None:
    found = explore(Cast(ALL, failure=failure), replace(RULES, ends_by_deadline=False))
    assert found.violation == "a commit goes on for ever after its deadline"


@pytest.mark.torture
@pytest.mark.parametrize(("cast", "rules"), LARGE_WORLDS.values(), ids=LARGE_WORLDS)
def test_protocol_keeps_every_invariant_in_a_larger_world(cast: Cast, rules: Rules) -> None:
    found = explore(cast, rules)
    print(found)
    assert found.violation is None, str(found)


@pytest.mark.parametrize(
    "cast",
    [
        Cast(ALL, crashes=1),
        Cast(ALL, losses=1),
        Cast(ALL, abandons=1),
        Cast((WRITER, COMPACTOR, DELETER, READER)),
        Cast((WRITER, COMPACTOR, COLLECTOR), abandons=1),
    ],
    ids=repr,
)
def test_search_ends_the_same_when_it_takes_no_shortcuts(cast: Cast) -> None:
    short, long = explore(cast), explore(cast, shortcuts=False)
    assert (short.violation, short.endings) == (long.violation, long.endings)
    assert short.states < long.states


@pytest.mark.parametrize(("broken", "cast", "expected"), BUGS.values(), ids=BUGS)
def test_search_finds_the_damage_when_a_rule_is_broken(broken: dict[str, Any], cast: Cast, expected: str) -> None:
    found = explore(cast, replace(RULES, **broken))
    print(found)
    assert found.violation is not None
    assert expected in found.violation
    assert len(found.trace) <= LONGEST_TRACE


def test_every_rule_is_broken_once() -> None:
    rules = {field.name for field in fields(Rules)} - {"rebases_itself"}
    assert {name for broken, _, _ in BUGS.values() for name in broken} - {"rebases_itself"} == rules


def test_every_named_step_of_the_engine_has_a_place_in_the_model() -> None:
    named = _named_steps()
    assert "rewrite.committed" in named
    assert named - STEPS.keys() - WITHOUT_PLACE.keys() == set()
    assert STEPS.keys() & WITHOUT_PLACE.keys() == set()


def test_every_step_that_the_engine_names_happens_in_the_model() -> None:
    walks = (
        _walk(cast, rules, random.Random(seed))
        for cast, rules in [(EVERYBODY, RULES), *UPKEEP_WORLDS.values()]
        for seed in range(15 if cast.letters else 5)
    )
    taken = {step.does for walk in walks for _, step, _ in walk}
    assert {text for text in STEPS.values() if not any(does.startswith(text) for does in taken)} == set()


@pytest.mark.parametrize(
    ("store", "rules"),
    [*((store, rules) for store in SQL_STORES for rules in (RULES, REBASES_ITSELF)), ("log", RULES)],
    ids=["sqlite", "sqlite that rebases", "postgres", "postgres that rebases", "log"],
)
def test_catalog_answers_as_the_model_says(
    request: pytest.FixtureRequest, tmp_path: Path, store: str, rules: Rules
) -> None:
    answers: set[Answer | None] = set()
    for seed in range(WALKS[store]):
        folder = tmp_path / f"{seed}"
        folder.mkdir()
        with _open(store, request, folder) as catalog:
            mirror = _Mirror(catalog, rules)
            for before, step, after in _walk(EVERYBODY, rules, random.Random(seed)):
                answers.add(step.answer)
                mirror.follow(before, step, after)
    expected = {"fenced", "not_pending", "not_live" if rules.rebases_itself else "stale"}
    assert expected <= answers  # or else the walks were too short to show anything


@pytest.mark.parametrize("store", SQL_STORES)
def test_catalog_keeps_and_expires_as_the_model_says(
    request: pytest.FixtureRequest, tmp_path: Path, store: str
) -> None:
    taken: set[str] = set()
    holes = 0
    for seed in range(UPKEEP_WALKS[store]):
        folder = tmp_path / f"{seed}"
        folder.mkdir()
        with _open(store, request, folder) as catalog:
            mirror = _Mirror(catalog, RULES)
            for before, step, after in _walk(UPKEEPERS, RULES, random.Random(seed)):
                taken.add(step.does)
                holes += after.published[-1][0] - after.published[0][0] >= len(after.published)
                mirror.follow(before, step, after)
    assert {"takes a lease on", "pins", "unpins", "is told that it has expired:"} <= taken
    assert any(does.endswith("to keep hot") for does in taken)
    assert holes > 0


def _named_steps() -> set[str]:
    """Return the names of all steps at which a test can stop the engine."""
    calls = (
        node
        for path in Path(tidelake.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("at", "_at")
    )
    given = (call.args[0].value for call in calls if call.args and isinstance(call.args[0], ast.Constant))
    return {name for name in given if isinstance(name, str) and re.fullmatch(r"[a-z]+\.[a-z_]+", name)}


def _open(store: str, request: pytest.FixtureRequest, folder: Path) -> Catalog:
    if store in SQL_STORES:
        return open_sql(place_of(store, request, folder))
    return open_log_catalog(folder, create=True, clock=Ticking())


def _walk(cast: Cast, rules: Rules, chance: random.Random) -> Iterator[tuple[World, Step, World]]:
    world = first_world(cast)
    while steps := list(next_steps(world, cast, rules, shortcuts=False)):
        step, after = chance.choice(steps)
        yield world, step, after
        world = after


def _kept(world: World) -> tuple[object, ...]:
    """Return what a catalog keeps of a world."""
    kept = (world.oldest, world.pins, len(world.published))
    return *kept, world.extents, world.receipts, world.keys, world.pending, world.garbage


class _Mirror:
    """Do in a catalog what a step did in the model, and compare. Its sequences are one ahead: a table is made first."""

    def __init__(self, catalog: Catalog, rules: Rules) -> None:
        self._catalog, self._rules = catalog, rules
        self._scope = catalog.create_table("t", SCHEMA, {}).scope
        self._unit = catalog.work.enqueue("compact", "t", {}, max_attempts=100).id
        head = catalog.head(self._scope)
        seed = Commit("s0", self._scope, head.sequence, (AddExtent(extent_of(SEED)),))
        catalog.commit([announce(catalog, seed)], onto=head)
        self._heads = {1: catalog.head(self._scope)}  # by the model's sequences
        catalog.expire_snapshots(self._scope, before_us=self._heads[1].committed_us)

    def follow(self, before: World, step: Step, after: World) -> None:
        """Take the same step, and find the same answer and the same state."""
        catalog = self._catalog
        for name in after.pending - before.pending:
            catalog.register_pending([Pending(name, self._scope, step.who)])
        if after.token > before.token:
            unit = catalog.work.claim(["compact"], owner=step.who, lease_us=1)
            assert unit is not None
            assert unit.token == after.token
        if step.plan is not None:
            assert self._commit(step.plan) == step.answer, str(step)
            self._heads.setdefault(after.head, catalog.head(self._scope))
        self._keep(before, step, after)
        if step.who == "expiry":
            catalog.expire_snapshots(self._scope, before_us=self._heads[after.oldest].committed_us)
        catalog.release_pending(before.pending & after.garbage)
        catalog.forget_garbage(before.garbage - after.garbage)
        if step.plan is not None or _kept(before) != _kept(after):
            self._compare(after)

    def _keep(self, before: World, step: Step, after: World) -> None:
        """Pin and lease as a step did, or be told that the snapshot has expired."""
        catalog, scope = self._catalog, self._scope
        for name, sequence in after.pins - before.pins:
            catalog.pin(scope, name, sequence + 1)
        for name, _ in before.pins - after.pins:
            catalog.unpin(scope, name)
        for owner, sequence in after.leases - before.leases:
            catalog.lease(scope, owner=owner, sequence=sequence + 1, lease_us=LEASE_US)
        for owner in {owner for owner, _ in before.leases} - {owner for owner, _ in after.leases}:
            catalog.release_leases(owner, [scope])
        if step.does == "is told that it has expired:":
            assert isinstance(step.what, int)
            with pytest.raises(NotFoundError):
                catalog.lease(scope, owner=step.who, sequence=step.what + 1, lease_us=LEASE_US)

    def _commit(self, plan: Plan) -> int | str:
        onto = self._heads[plan.base]
        commit = replace(commit_of(plan), scope=self._scope, base=onto.sequence)
        if plan.token:
            commit = replace(commit, fence=Fence(self._unit, plan.token))
        try:
            return self._catalog.commit([commit], onto=onto, rebase=self._rules.rebases_itself)[0].sequence - 1
        except StaleHead as stale:
            return "stale" if stale.head == self._catalog.head(self._scope) else "another head"
        except ConflictError as error:
            return error.kind

    def _compare(self, world: World) -> None:
        catalog, scope = self._catalog, self._scope
        retained = [sequence for sequence, _ in world.published]
        assert [header.sequence - 1 for header in catalog.history(scope)] == retained[::-1]
        for sequence in range(world.head + 1):
            if sequence not in retained:
                with pytest.raises(NotFoundError):
                    catalog.manifest(scope, sequence=sequence + 1)
                continue
            held = catalog.manifest(scope, sequence=sequence + 1)
            whole = held.snapshot.coverage
            shown = {*held.live, whole.key} if whole is not None else held.live
            assert tuple(sorted(shown)) == visible(world.extents, sequence)
            assert held.snapshot == self._heads[sequence]
            assert catalog.snapshot(scope, at_us=held.snapshot.committed_us) == held.snapshot
        for sequence in {*range(1, world.head)}.difference(retained):
            with pytest.raises(NotFoundError):
                catalog.snapshot(scope, at_us=self._heads[sequence].committed_us)
        assert {(each.name, each.sequence - 1) for each in catalog.pins(scope)} == world.pins
        assert {each.key for each in catalog.pending()} == world.pending
        assert {each.key for each in catalog.garbage(before_us=2**62)} == world.garbage
        for commit_id, sequence in world.receipts:
            receipt = catalog.receipt(scope, commit_id=commit_id)
            assert receipt is not None
            assert receipt.sequence == sequence + 1
        for key, commit_id in world.keys:
            assert catalog.receipt(scope, key=key) == catalog.receipt(scope, commit_id=commit_id)
