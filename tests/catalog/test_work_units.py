"""Check that a work unit has one owner at a time, and that one who lost it cannot commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.catalogs import (
    SCHEMA,
    SQL_STORES,
    Ticking,
    announce,
    append,
    commit_of,
    extent,
    hot,
    open_sql,
    place_of,
    publish,
)
from tidelake.catalog.commit import Coordinator
from tidelake.catalog.protocol import Catalog
from tidelake.catalog.sql.sql_catalog import SqlCatalog
from tidelake.catalog.work_queue import WorkQueue, WorkUnit
from tidelake.errors import ConflictError, InvalidInputError, NotFoundError
from tidelake.model.snapshot import AddExtent, AppendHot, Fence, RemoveExtent

LEASE_US = 1_000_000


@pytest.fixture
def clock() -> Ticking:
    return Ticking()


@pytest.fixture(params=SQL_STORES)
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return place_of(request.param, request, tmp_path)


@pytest.fixture
def catalog(where: str, clock: Ticking) -> Iterator[SqlCatalog]:
    with open_sql(where, clock=clock) as opened:
        yield opened


@pytest.fixture
def work(catalog: Catalog) -> WorkQueue:
    return catalog.work


def claim(work: WorkQueue, owner: str = "me", *kinds: str) -> WorkUnit | None:
    return work.claim(kinds or ("compact",), owner=owner, lease_us=LEASE_US)


def claimed(work: WorkQueue, owner: str = "me") -> WorkUnit:
    unit = claim(work, owner)
    assert unit is not None
    return unit


def test_a_unit_goes_from_queued_to_done(work: WorkQueue, clock: Ticking) -> None:
    queued = work.enqueue("compact", "t1", {"table": "obs.logs", "inputs": ["a"]})
    assert (queued.state, queued.attempts, queued.token, queued.owner) == ("queued", 0, 0, None)
    assert work.units() == [queued]
    leased = claimed(work)
    assert leased == replace(
        queued,
        state="leased",
        attempts=1,
        token=1,
        owner="me",
        lease_until_us=leased.lease_until_us,
        updated_us=leased.updated_us,
    )
    assert claim(work) is None
    work.complete(leased)
    assert [unit.state for unit in work.units()] == ["done"]
    assert claim(work) is None
    assert work.forget(before_us=clock.now_us + 1) == 1
    assert work.units() == []


def test_an_open_unit_is_not_enqueued_twice(work: WorkQueue) -> None:
    first = work.enqueue("compact", "t1", {"n": 1})
    assert work.enqueue("compact", "t1", {"n": 2}) == first
    assert work.enqueue("retain", "t1", {"n": 2}) != first
    leased = claimed(work)
    assert work.enqueue("compact", "t1", {"n": 3}) == leased
    work.complete(leased)
    assert work.enqueue("compact", "t1", {"n": 4}).payload == {"n": 4}


def test_units_are_claimed_by_priority_then_age_and_only_of_the_kinds_asked(work: WorkQueue) -> None:
    for key, priority in (("a", 0), ("b", 5), ("c", 5)):
        work.enqueue("compact", key, {}, priority=priority)
    work.enqueue("retain", "d", {}, priority=9)
    assert [claimed(work).key for _ in range(3)] == ["b", "c", "a"]
    unit = claim(work, "me", "compact", "retain")
    assert unit is not None
    assert unit.key == "d"


def test_a_unit_is_not_claimed_before_its_time(work: WorkQueue, clock: Ticking) -> None:
    work.enqueue("compact", "a", {}, delay_us=5000)
    assert claim(work) is None
    clock.now_us += 5000
    assert claimed(work).key == "a"


def test_a_lease_that_ran_out_goes_to_the_next_and_the_first_is_fenced(work: WorkQueue, clock: Ticking) -> None:
    work.enqueue("compact", "a", {})
    slow = claimed(work, "slow")
    clock.now_us += LEASE_US // 2
    slow = work.heartbeat(slow, lease_us=LEASE_US)
    clock.now_us += LEASE_US // 2 + 1000
    assert claim(work, "quick") is None
    clock.now_us += LEASE_US
    quick = claimed(work, "quick")
    assert (quick.token, quick.attempts, quick.owner) == (2, 2, "quick")
    for act in (
        lambda: work.heartbeat(slow, lease_us=1),
        lambda: work.complete(slow),
        lambda: work.fail(slow, "late", delay_us=0),
    ):
        with pytest.raises(ConflictError, match="lease on a work unit is lost") as error:
            act()
        assert error.value.kind == "fenced"
    work.complete(quick)


def test_a_failed_unit_is_tried_again_later_and_then_is_dead(work: WorkQueue, clock: Ticking) -> None:
    work.enqueue("compact", "a", {}, max_attempts=2)
    again = work.fail(claimed(work), "first\x00 trouble", delay_us=5000)
    assert (again.state, again.error, again.owner) == ("queued", "first trouble", None)
    assert claim(work) is None
    clock.now_us += 5000
    dead = work.fail(claimed(work), "second trouble", delay_us=0)
    assert (dead.state, dead.attempts) == ("dead", 2)
    assert claim(work) is None
    assert work.units(state="dead") == [dead]
    assert work.units(state="queued") == work.units(kind="other") == []
    revived = work.revive(dead.id)
    assert (revived.state, revived.attempts) == ("queued", 0)
    assert claimed(work).token == 3
    with pytest.raises(NotFoundError, match="no such dead work unit"):
        work.revive(dead.id)


def test_a_unit_whose_owners_all_died_is_dead(work: WorkQueue, clock: Ticking) -> None:
    work.enqueue("compact", "a", {}, max_attempts=2)
    work.enqueue("compact", "b", {}, priority=-1)
    for _ in range(2):
        claimed(work)
        clock.now_us += LEASE_US + 1
    assert claimed(work).key == "b"
    (dead,) = work.units(state="dead")
    assert (dead.key, dead.error) == ("a", "the lease ran out")


def test_a_dead_unit_is_not_revived_beside_an_open_one(work: WorkQueue) -> None:
    work.enqueue("compact", "a", {}, max_attempts=1)
    dead = work.fail(claimed(work), "trouble", delay_us=0)
    work.enqueue("compact", "a", {})
    with pytest.raises(ConflictError, match="same key is open"):
        work.revive(dead.id)


def test_a_unit_needs_a_kind_and_a_key(work: WorkQueue) -> None:
    for kind, key, attempts in (("", "a", 1), ("a", "", 1), ("a", "b\n", 1), ("a", "b", 0)):
        with pytest.raises(InvalidInputError, match="a work unit needs"):
            work.enqueue(kind, key, {}, max_attempts=attempts)


def test_many_claim_at_once_and_no_unit_goes_to_two(where: str, catalog: SqlCatalog, clock: Ticking) -> None:
    for number in range(40):
        catalog.work.enqueue("compact", f"u{number}", {})

    def drain(owner: int) -> list[str]:
        taken = []
        with open_sql(where, clock=clock) as own:
            while (unit := claim(own.work, str(owner))) is not None:
                taken.append(unit.id)
                own.work.complete(unit)
        return taken

    with ThreadPoolExecutor(4) as threads:
        taken = [each for found in threads.map(drain, range(4)) for each in found]
    assert (len(taken), Counter(taken).most_common(1)[0][1]) == (40, 1)


def test_many_enqueue_one_key_at_once_and_it_is_one_unit(where: str, catalog: SqlCatalog) -> None:
    def enqueue(_: int) -> str:
        return catalog.work.enqueue("compact", "same", {}).id

    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(enqueue, range(32)))) == 1


def test_a_worker_that_lost_its_lease_cannot_commit(catalog: SqlCatalog, clock: Ticking) -> None:
    scope = catalog.create_table("t", SCHEMA, {}).scope
    inputs = [append(catalog, scope), append(catalog, scope)]
    catalog.work.enqueue("compact", "t", {})
    slow = claimed(catalog.work, "slow")
    clock.now_us += LEASE_US + 1000
    quick = claimed(catalog.work, "quick")
    coordinator = Coordinator(catalog)

    def compaction(unit: WorkUnit) -> object:
        taken = [RemoveExtent(each.id) for each in inputs]
        fence = Fence(unit.id, unit.token)
        return coordinator.commit(announce(catalog, commit_of(scope, *taken, AddExtent(extent(20)), fence=fence)))

    with pytest.raises(ConflictError, match="lease on a work unit is lost") as error:
        compaction(slow)
    assert error.value.kind == "fenced"
    assert catalog.head(scope).sequence == 3
    compaction(quick)
    assert catalog.head(scope).totals.extents == 1
    catalog.work.complete(quick)
    with pytest.raises(ConflictError, match="lease on a work unit is lost"):
        publish(catalog, scope, AppendHot(hot()), fence=Fence(quick.id, quick.token))


def test_a_fenced_commit_fails_alone_in_its_group(catalog: SqlCatalog) -> None:
    scope = catalog.create_table("t", SCHEMA, {}).scope
    head = catalog.head(scope)
    fenced = commit_of(scope, AppendHot(hot()), base=1, fence=Fence("nobody", 1))
    with pytest.raises(ConflictError) as error:
        catalog.commit([commit_of(scope, AppendHot(hot()), base=1), fenced], onto=head)
    assert error.value.facts["commit"] == fenced.id
    assert catalog.head(scope) == head
