"""Check that what a process reads stays, with few writes, and that it is given back."""

from __future__ import annotations

import gc
import os
import pickle
import threading
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

import tidelake
from tests.support.catalogs import FaultyCatalog
from tidelake.catalog.protocol import Expired
from tidelake.errors import NotFoundError, StorageError
from tidelake.handle.leases import LEASE_S, LINGER_S, LeaseKeeper
from tidelake.model.snapshot import Scope
from tidelake.scan.extents import scan

EVER = 2**60
WITHIN_S = 30


class Counting(FaultyCatalog):
    """A catalog that counts leases, and refuses them when told to."""

    def __init__(self, catalog: Any) -> None:
        super().__init__(catalog)
        self.leased: list[int] = []
        self.released = 0
        self.error: Exception | None = None

    def lease(self, scope: Scope, *, owner: str, sequence: int, lease_us: int) -> None:
        if self.error is not None:
            raise self.error
        self._catalog.lease(scope, owner=owner, sequence=sequence, lease_us=lease_us)
        self.leased.append(sequence)

    def release_leases(self, owner: str, scopes: Collection[Scope]) -> None:
        self.released += len(scopes)
        self._catalog.release_leases(owner, scopes)


class Holder:
    """Anything that uses a snapshot."""


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[tidelake.Lake]:
    with tidelake.connect(tmp_path / "lake") as opened:
        yield opened


@pytest.fixture
def table(lake: tidelake.Lake) -> tidelake.Table:
    made = lake.create_table("t", {"ts": "timestamp", "n": "long"}, flush_age="off")
    for day in (1, 2, 3):
        made.append([{"ts": f"2026-03-0{day}", "n": n} for n in range(3000)])
    return made


@pytest.fixture
def counting(lake: tidelake.Lake) -> Counting:
    return Counting(lake.catalog)


def rewrite(table: tidelake.Table) -> None:
    """Put another extent in the place of all."""
    table.delete("n < 10")


def count(table: tidelake.Table) -> int:
    return sum(batch.num_rows for batch in table.scan())


def expire(table: tidelake.Table) -> Expired:
    return table.handle.catalog.expire_snapshots(table.handle.scope, before_us=EVER)


def collect(table: tidelake.Table) -> int:
    """Delete what the catalog offers as garbage."""
    catalog, store = table.handle.catalog, table.handle.store
    keys = [each.key for each in catalog.garbage(before_us=EVER)]
    store.delete(keys)
    catalog.forget_garbage(keys)
    return len(keys)


def test_a_scan_that_is_being_read_keeps_its_snapshot(table: tidelake.Table) -> None:
    rows = table.scan()
    first = rows.read_next_batch()
    rewrite(table)
    expire(table)
    assert collect(table) == 0
    assert first.num_rows + sum(batch.num_rows for batch in rows) == 9000
    del rows, first
    gc.collect()
    assert expire(table).snapshots > 0
    assert collect(table) > 0
    assert count(table) == 8970


def test_a_pinned_table_keeps_its_snapshot_while_it_lives(table: tidelake.Table) -> None:
    pinned = table.pinned()
    rewrite(table)
    expire(table)
    collect(table)
    assert count(pinned) == 9000
    del pinned
    gc.collect()
    assert expire(table).snapshots > 0


def test_what_is_used_no_more_is_let_go_below_what_is_used(table: tidelake.Table) -> None:
    count(table.pinned())  # an older snapshot, read and let go of
    rewrite(table)
    newer = table.pinned()
    assert count(newer)
    gc.collect()
    expire(table)
    assert len(table.history()) == 1
    assert count(newer)


def test_nothing_is_held_once_queries_are_answered(lake: tidelake.Lake, table: tidelake.Table) -> None:
    assert list(lake.sql("select count(*) as many from t where n > 5")) == [{"many": 8982}]
    assert list(lake.kql("t | where n > 5 | count")) == [{"Count": 8982}]
    assert count(table) == 9000
    gc.collect()
    keeper = lake.handle.leases
    keeper._heed()
    assert [leased.uses for leased in keeper._scopes.values()] == [{}]


def test_a_plan_does_not_take_its_lease_along(table: tidelake.Table) -> None:
    plan = table.plan()
    assert plan.held is not None
    assert pickle.loads(pickle.dumps(plan)).held is None


def test_one_who_reads_often_writes_once_in_half_a_lease(
    counting: Counting, table: tidelake.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LeaseKeeper, "_start", lambda self: None)  # the thread's steps are taken here
    now = [1000.0]
    keeper, scope = LeaseKeeper(counting, lambda: now[0]), table.handle.scope
    for _ in range(100):
        keeper.hold(scope, 4, Holder())
        now[0] += LEASE_S / 250
    assert counting.leased == [4]
    kept = Holder()
    keeper.hold(scope, 3, kept)  # an older one: it was not covered
    keeper.hold(scope, 4, Holder())
    assert counting.leased == [4, 3]
    now[0] += LEASE_S * 0.6
    keeper._look_after()
    assert counting.leased == [4, 3, 3]
    other = Holder()
    keeper.hold(scope, 4, other)
    del kept
    now[0] += LEASE_S * 0.6
    keeper._look_after()
    assert counting.leased == [4, 3, 3, 4]
    del other
    keeper.hold(scope, 4, Holder())
    now[0] += LINGER_S / 2
    keeper._look_after()
    assert counting.released == 0
    now[0] += LEASE_S
    keeper._look_after()
    keeper._look_after()
    assert (counting.leased, counting.released) == ([4, 3, 3, 4], 1)
    keeper.close()


def test_what_is_held_is_given_back_when_it_is_closed(counting: Counting, table: tidelake.Table) -> None:
    keeper, holder = LeaseKeeper(counting), Holder()
    keeper.hold(table.handle.scope, 2, holder)
    assert expire(table) == Expired(1, ())
    keeper.close()
    assert (counting.released, expire(table)) == (1, Expired(2, ()))
    keeper.hold(table.handle.scope, 2, holder)
    assert counting.leased == [2]


def test_an_expired_snapshot_is_not_held_and_says_so(lake: tidelake.Lake, table: tidelake.Table) -> None:
    old = lake.table("t", snapshot=2)
    expire(table)
    with pytest.raises(NotFoundError, match="expired") as error:
        old.scan()
    assert error.value.kind == "expired"


def test_the_newest_is_read_again_if_it_expired_before_it_was_held(
    table: tidelake.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold, raced = LeaseKeeper.hold, list[int]()

    def late(self: LeaseKeeper, scope: Scope, sequence: int, holder: object) -> None:
        if not raced:
            raced.append(sequence)
            table.append([{"ts": "2026-03-04", "n": 1}])
            expire(table)
        hold(self, scope, sequence, holder)

    monkeypatch.setattr(LeaseKeeper, "hold", late)
    assert (count(table), raced) == (9001, [4])


def test_a_reader_whose_lease_was_lost_is_told_to_read_again(lake: tidelake.Lake, table: tidelake.Table) -> None:
    """As after a long suspension of the process."""
    plan = table.plan()
    rewrite(table)
    lake.catalog.release_leases(lake.handle.leases.owner, [table.handle.scope])
    expire(table)
    assert collect(table) > 0
    lake.handle.footers.renew_after_fork()
    with pytest.raises(NotFoundError, match="has expired while it was read: read again") as error:
        for _ in scan(plan, lake.handle.footers):
            pass
    assert error.value.kind == "expired"
    lake.handle.leases.close()


def test_an_object_that_is_missing_otherwise_is_not_called_expired(lake: tidelake.Lake, table: tidelake.Table) -> None:
    lake.store.delete([extent.key for extent in table.extents()])
    lake.handle.footers.renew_after_fork()
    with pytest.raises(NotFoundError) as error:
        table.scan().read_all()
    assert error.value.kind != "expired"


def test_a_catalog_that_gives_no_lease_is_read_without(counting: Counting, table: tidelake.Table) -> None:
    now = [1000.0]
    keeper, scope = LeaseKeeper(counting, lambda: now[0]), table.handle.scope
    counting.error = StorageError("the catalog cannot be written", kind="read_only")
    holder = Holder()
    keeper.hold(scope, 4, holder)
    counting.error = None
    keeper.hold(scope, 4, holder)
    assert counting.leased == []
    now[0] += LEASE_S
    keeper.hold(scope, 4, holder)
    assert counting.leased == [4]
    keeper.close()


def test_a_lease_for_a_time_is_taken_once(counting: Counting, table: tidelake.Table) -> None:
    now = [1000.0]
    keeper, scope = LeaseKeeper(counting, lambda: now[0]), table.handle.scope
    for sequence in (3, 3, 4, 2):
        keeper.hold_for(scope, sequence, 3600)
    assert counting.leased == [3, 2]
    now[0] += 1200
    keeper.hold_for(scope, 4, 3600)
    assert counting.leased == [3, 2, 4]
    assert expire(table) == Expired(1, ())
    with pytest.raises(NotFoundError):
        keeper.hold_for(scope, 1, 3600)


def test_a_forked_child_holds_leases_of_its_own(lake: tidelake.Lake, table: tidelake.Table) -> None:
    keeper, rows = lake.handle.leases, table.scan()
    rows.read_next_batch()
    owner = keeper.owner
    child = os.fork()
    if child == 0:
        held = [leased.sequence for leased in keeper._scopes.values()]
        found = count(table)
        os._exit(0 if (held, found, keeper.owner != owner) == ([None], 9000, True) else 1)
    deadline = time.monotonic() + 30
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert ended == (child, 0)
    assert [leased.sequence for leased in keeper._scopes.values()] == [4]


def test_who_begins_to_read_while_a_lease_is_given_back_has_one(table: tidelake.Table, lake: tidelake.Lake) -> None:
    begun, go_on = threading.Event(), threading.Event()

    class Slow(Counting):
        def release_leases(self, owner: str, scopes: Collection[Scope]) -> None:
            begun.set()
            assert go_on.wait(WITHIN_S)
            super().release_leases(owner, scopes)

    slow = Slow(lake.catalog)
    keeper, scope, reader = LeaseKeeper(slow), table.handle.scope, Holder()
    past = table.snapshot.sequence
    keeper.hold(scope, past, Holder())
    letting_go = threading.Thread(target=keeper.let_go)
    letting_go.start()
    assert begun.wait(WITHIN_S)
    reading = threading.Thread(target=keeper.hold, args=(scope, past, reader))
    reading.start()
    reading.join(0.1)  # it waits, or has taken a lease that is about to be given back
    go_on.set()
    for thread in (letting_go, reading):
        thread.join(WITHIN_S)
    rewrite(table)
    expire(table)
    assert lake.snapshot("t", snapshot=past).sequence == past
    keeper.close()
