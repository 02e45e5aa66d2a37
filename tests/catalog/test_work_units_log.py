"""Check that the work units of a log table keep the contract of every catalog's."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.catalog import test_work_units as contract
from tests.support.catalogs import SCHEMA, Ticking
from tidelake.catalog.log.log_catalog import open_log_catalog
from tidelake.catalog.work_queue import WorkQueue
from tidelake.errors import ConflictError
from tidelake.objects import ObjectStore


@pytest.fixture
def clock() -> Ticking:
    return Ticking()


@pytest.fixture
def work(memory_store: ObjectStore, clock: Ticking) -> WorkQueue:
    catalog = open_log_catalog(memory_store, create=True, clock=clock)
    catalog.create_table("t", SCHEMA, {})
    return catalog.work


test_a_unit_goes_from_queued_to_done = contract.test_a_unit_goes_from_queued_to_done
test_an_open_unit_is_not_enqueued_twice = contract.test_an_open_unit_is_not_enqueued_twice
test_units_are_claimed_in_order = contract.test_units_are_claimed_by_priority_then_age_and_only_of_the_kinds_asked
test_a_unit_is_not_claimed_before_its_time = contract.test_a_unit_is_not_claimed_before_its_time
test_a_lost_lease_is_fenced = contract.test_a_lease_that_ran_out_goes_to_the_next_and_the_first_is_fenced
test_a_failed_unit_is_tried_again = contract.test_a_failed_unit_is_tried_again_later_and_then_is_dead
test_a_unit_whose_owners_all_died_is_dead = contract.test_a_unit_whose_owners_all_died_is_dead
test_a_dead_unit_is_not_revived_beside_an_open_one = contract.test_a_dead_unit_is_not_revived_beside_an_open_one
test_a_unit_needs_a_kind_and_a_key = contract.test_a_unit_needs_a_kind_and_a_key


def test_many_claim_at_once_and_no_unit_goes_to_two(memory_store: ObjectStore, work: WorkQueue, clock: Ticking) -> None:
    for number in range(12):
        work.enqueue("compact", str(number), {})

    def drain(owner: int) -> list[str]:
        own = open_log_catalog(memory_store, clock=clock).work
        found = []
        while unit := own.claim(["compact"], owner=str(owner), lease_us=10**9):
            own.complete(unit)
            found.append(unit.id)
            with pytest.raises(ConflictError, match="the lease on a work unit is lost"):
                own.complete(unit)
        return found

    with ThreadPoolExecutor(4) as pool:
        taken = Counter(unit for found in pool.map(drain, range(4)) for unit in found)
    assert set(taken.values()) == {1}
    assert len(taken) == 12
    assert {unit.state for unit in work.units()} == {"done"}


def test_units_of_a_log_outlive_a_checkpoint(memory_store: ObjectStore, work: WorkQueue, clock: Ticking) -> None:
    for number in range(101):
        work.enqueue("compact", str(number), {"n": number})
    again = open_log_catalog(memory_store, clock=clock).work
    assert again.units(limit=1000) == work.units(limit=1000)
    assert again.forget(before_us=2**60) == 0
