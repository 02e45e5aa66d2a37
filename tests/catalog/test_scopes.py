"""What every catalog with users promises of them: numbers once, due scopes by an index, sums, purging in pages."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.catalogs import SCHEMA, SQL_STORES, Ticking, announce, commit_of, extent, hot, open_sql, place_of
from tidelake.catalog.protocol import Pending
from tidelake.catalog.sql import sweep
from tidelake.catalog.sql.sql_catalog import SqlCatalog
from tidelake.catalog.users import Small
from tidelake.errors import AlreadyExistsError
from tidelake.model.snapshot import AddExtent, AppendHot, DropHot, Scope

SETTINGS = {"scope": "user", "flush_age": "1s", "history": "100s"}
SECOND = 1_000_000


@pytest.fixture
def clock() -> Ticking:
    return Ticking()


@pytest.fixture(params=SQL_STORES)
def catalog(request: pytest.FixtureRequest, tmp_path: Path, clock: Ticking) -> Iterator[SqlCatalog]:
    with open_sql(place_of(request.param, request, tmp_path), clock=clock) as opened:
        yield opened


def append(catalog: SqlCatalog, scope: Scope, *, cold: bool = False) -> str:
    """Commit a hot batch, or an extent, and return its id."""
    head = catalog.head(scope)
    added = AddExtent(extent()) if cold else AppendHot(hot())
    catalog.commit([announce(catalog, commit_of(scope, added, base=head.sequence))], onto=head)
    return added.extent.id if isinstance(added, AddExtent) else added.batch.id


def test_a_number_is_given_out_once_whoever_asks(catalog: SqlCatalog) -> None:
    scope = Scope(catalog.create_table("app.notes", SCHEMA, SETTINGS).id, "alice")
    found: list[str] = []

    def take() -> None:
        found.extend(catalog.register_segment(scope, folder="app/notes/alice", owner="me") for _ in range(5))

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == sorted(f"app/notes/alice/batch-{number}.parquet" for number in range(20))
    assert {each.key for each in catalog.pending()} == set(found)
    assert {each.scope for each in catalog.pending()} == {scope}
    catalog.forget_pending(found[:10])
    catalog.release_pending(found[10:])
    assert [each.key for each in catalog.garbage(before_us=2**62)] == sorted(found[10:])
    assert catalog.register_segment(scope, folder="app/notes/alice", owner="me").endswith("/batch-20.parquet")
    assert catalog.register_segment(scope, folder="app/notes/bob", owner="me") == "app/notes/bob/batch-0.parquet"


def test_a_number_that_is_registered_by_hand_is_not_given_out(catalog: SqlCatalog) -> None:
    scope = Scope(catalog.create_table("app.notes", SCHEMA, SETTINGS).id, "alice")
    catalog.register_pending([Pending("app/notes/alice/batch-41.parquet", scope, "me")])
    with pytest.raises(AlreadyExistsError):
        catalog.register_pending([Pending("app/notes/alice/batch-41.parquet", scope, "me")])
    assert catalog.register_segment(scope, folder="app/notes/alice", owner="me").endswith("/batch-42.parquet")
    catalog.register_pending([Pending("app/notes/alice/batch-7.parquet", scope, "me")])
    assert catalog.register_segment(scope, folder="app/notes/alice", owner="me").endswith("/batch-43.parquet")


def test_a_scope_is_due_when_it_may_need_something(catalog: SqlCatalog, clock: Ticking) -> None:
    info = catalog.create_table("app.notes", SCHEMA, SETTINGS)
    alice, bob = Scope(info.id, "alice"), Scope(info.id, "bob")
    began = clock.now_us
    batch = append(catalog, alice)
    append(catalog, bob, cold=True)
    assert [due.scope for due in catalog.due_scopes(info.id, before_us=began + SECOND // 2)] == [bob]
    both = catalog.due_scopes(info.id, before_us=began + 2 * SECOND)
    assert [due.scope for due in both] == [bob, alice]
    assert catalog.due_scopes(info.id, before_us=began + 2 * SECOND, after=both[0]) == both[1:]
    assert catalog.due_scopes(info.id, before_us=began + 2 * SECOND, limit=1) == both[:1]
    assert catalog.due_scopes("another", before_us=2**62) == []
    append(catalog, alice)  # it is due no later for it
    assert catalog.due_scopes(info.id, before_us=began + 2 * SECOND) == both
    catalog.look_again(both[0], sequence=1, at_us=None)
    catalog.look_again(both[1], sequence=1, at_us=None)  # its head has moved since it was looked at
    assert catalog.due_scopes(info.id, before_us=2**62) == both[1:]
    catalog.look_again(both[1], sequence=2, at_us=began + 50 * SECOND)
    assert catalog.due_scopes(info.id, before_us=began + 49 * SECOND) == []
    head = catalog.head(alice)
    flushed = commit_of(alice, AddExtent(extent()), DropHot(batch), base=head.sequence)
    catalog.commit([announce(catalog, flushed)], onto=head)
    (due,) = catalog.due_scopes(info.id, before_us=began + 49 * SECOND)
    assert due.scope == alice


def test_what_all_users_hold_is_summed_up(catalog: SqlCatalog) -> None:
    info = catalog.create_table("app.notes", SCHEMA, SETTINGS)
    for number in range(3):
        append(catalog, Scope(info.id, f"user-{number}"))
        append(catalog, Scope(info.id, f"user-{number}"), cold=True)
    catalog.pin(Scope(info.id, "user-1"), "kept", 1)
    found = catalog.totals(info.id, small=Small(1 << 30, 1 << 30, 1 << 30))
    assert (found.users, found.live.extents, found.live.rows, found.live.hot_batches) == (3, 3, 30, 3)
    assert (found.small_extents, found.snapshots, found.pins) == (3, 7, 1)
    assert catalog.totals(info.id).small_extents == 0
    head = catalog.head(Scope(info.id, "user-0"))
    full = replace(extent(), unpacked_bytes=1 << 30)
    catalog.commit([announce(catalog, commit_of(head.scope, AddExtent(full), base=head.sequence))], onto=head)
    assert catalog.totals(info.id, small=Small(1 << 30, 1 << 30, 1 << 30)).small_extents == 3
    assert catalog.totals(info.id, small=Small(1 << 30, 1 << 31, 1 << 30)).small_extents == 4


def test_a_table_of_many_users_is_purged_in_steps(catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "SCOPES_AT_ONCE", 4)
    info = catalog.create_table("app.notes", SCHEMA, SETTINGS)
    kept = catalog.create_table("app.kept", SCHEMA, SETTINGS)
    for number in range(11):
        append(catalog, Scope(info.id, f"user-{number:02}"), cold=True)
    append(catalog, Scope(kept.id, "user-00"), cold=True)
    held = {key for page in catalog.named_keys(table_id=info.id) for key in page.keys}
    assert len(held) == 11
    catalog.lease(Scope(info.id, "user-05"), owner="me", sequence=1, lease_us=60 * SECOND)
    catalog.drop_table("app.notes")
    first = catalog.purge_tables(before_us=2**62)
    assert 0 < len(first.keys) < 11  # what is read, and the rest of its step, waits
    assert [str(each) for each in catalog.dropped_tables(before_us=2**62)] == ["app.notes"]
    catalog.release_leases("me", [Scope(info.id, "user-05")])
    second = catalog.purge_tables(before_us=2**62)
    assert {*first.keys, *second.keys} == held | {"app/notes"}
    assert first.snapshots + second.snapshots == 12
    assert catalog.dropped_tables(before_us=2**62) == []
    assert list(catalog.scopes(info.id)) == []
    assert catalog.due_scopes(info.id, before_us=2**62) == []
    assert len(list(catalog.scopes(kept.id))) == 2
    assert len([key for page in catalog.named_keys() if page.why == "held" for key in page.keys]) == 1
