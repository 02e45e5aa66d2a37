"""Check what every catalog promises, on each store: one contract, whatever keeps it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.catalogs import (
    SCHEMA,
    SQL_STORES,
    Ticking,
    announce,
    append,
    append_hot,
    commit_of,
    extent,
    hot,
    open_sql,
    place_of,
    publish,
)
from tidelake.catalog.contributions import Contribution
from tidelake.catalog.log.log_catalog import open_log_catalog
from tidelake.catalog.protocol import Catalog, Changes, Expired, HotHeader, Pending, StaleHead, new_id
from tidelake.errors import AlreadyExistsError, ConflictError, InvalidInputError, NotFoundError, SchemaError
from tidelake.model.predicate import And, Equals, InSet, Not, Or, Predicate, Range, StringHas, TimeRange
from tidelake.model.rebase import rebase
from tidelake.model.schema import DataType
from tidelake.model.snapshot import (
    Action,
    AddExtent,
    AppendHot,
    Claim,
    Counts,
    DropHot,
    Extent,
    HotBatch,
    Manifest,
    RecordOffset,
    RemoveExtent,
    Scope,
    UnitedCoverage,
    UpdateCoverage,
    UpdateTable,
    apply,
)


@pytest.fixture
def clock() -> Ticking:
    return Ticking()


LOG_STORES = {"log": "local_store", "log-s3": "s3_store"}

# A log keeps one table of one scope; test_catalog_log shows how it refuses the rest.
NEEDS_MORE_THAN_A_LOG = {
    "test_a_name_is_taken_until_its_table_is_dropped",
    "test_a_table_takes_another_name_and_the_place_of_one_that_has_it",
    "test_tables_are_listed_by_namespace_and_name",
    "test_users_have_their_own_head_and_share_the_table",
    "test_a_users_first_commit_is_swapped_like_any_other",
    "test_a_users_head_follows_the_tables_schema",
    "test_keys_of_one_scope_mean_nothing_in_another",
    "test_a_dropped_table_is_kept_until_it_is_purged",
}


@pytest.fixture(params=(*SQL_STORES, *LOG_STORES))
def catalog(request: pytest.FixtureRequest, tmp_path: Path, clock: Ticking) -> Iterator[Catalog]:
    if request.param in SQL_STORES:
        with open_sql(place_of(request.param, request, tmp_path), clock=clock) as opened:
            yield opened
        return
    if request.node.originalname in NEEDS_MORE_THAN_A_LOG:
        pytest.skip("a log keeps one table of one scope")
    with open_log_catalog(request.getfixturevalue(LOG_STORES[request.param]), create=True, clock=clock) as opened:
        yield opened


@pytest.fixture
def scope(catalog: Catalog) -> Scope:
    return catalog.create_table("obs.logs", SCHEMA, {"time": "ts"}).scope


def ids_of(extents: list[Extent]) -> list[str]:
    return [each.id for each in extents]


# tables


def test_a_new_table_has_one_snapshot_with_its_schema(catalog: Catalog) -> None:
    info = catalog.create_table("obs.logs", SCHEMA, {"time": "ts"})
    assert str(info) == "obs.logs"
    head = catalog.head(info.scope)
    assert (head.sequence, head.parent_id, head.operation, head.totals) == (1, None, "create", Counts())
    assert (head.schema, head.settings) == (SCHEMA, {"time": "ts"})
    assert catalog.manifest(info.scope) == Manifest(head)
    assert catalog.table("obs.logs") == info
    assert catalog.tables() == [info]
    assert list(catalog.scopes(info.id)) == [info.scope]
    assert catalog.schema(info.id, 1) == SCHEMA


def test_a_name_is_taken_until_its_table_is_dropped(catalog: Catalog) -> None:
    info = catalog.create_table("obs.logs", SCHEMA, {})
    with pytest.raises(AlreadyExistsError, match=r"the table exists table=obs\.logs"):
        catalog.create_table("obs.logs", SCHEMA, {})
    assert catalog.drop_table("obs.logs").dropped_us is not None
    with pytest.raises(NotFoundError, match=r"no such table table=obs\.logs"):
        catalog.drop_table("obs.logs")
    again = catalog.create_table("obs.logs", SCHEMA, {})
    assert again.id != info.id
    assert catalog.tables() == [again]


def test_a_table_takes_another_name_and_the_place_of_one_that_has_it(catalog: Catalog) -> None:
    old = catalog.create_table("obs.logs", SCHEMA, {})
    new = catalog.create_table("obs.staged", SCHEMA, {"time": "ts"})
    with pytest.raises(AlreadyExistsError, match=r"the table exists table=obs\.logs"):
        catalog.rename_table("obs.staged", "obs.logs")
    assert catalog.tables() == [old, new]
    renamed = catalog.rename_table("obs.staged", "obs.logs", replace=True)
    assert renamed == catalog.table("obs.logs") == replace(new, name="logs")
    assert catalog.tables() == [renamed]
    assert catalog.head(new.scope).settings == {"time": "ts"}
    assert [each.id for each in catalog.dropped_tables(before_us=2**62)] == [old.id]
    with pytest.raises(NotFoundError, match=r"no such table table=obs\.staged"):
        catalog.rename_table("obs.staged", "obs.logs", replace=True)
    assert catalog.table("obs.logs") == renamed  # what was to be replaced by nothing is still there
    assert catalog.rename_table("obs.logs", "logs").namespace == "default"
    assert catalog.rename_table("logs", "default.logs", replace=True) == catalog.table("logs")


def test_a_dropped_table_takes_no_commits(catalog: Catalog, scope: Scope) -> None:
    head = catalog.head(scope)
    ours = announce(catalog, commit_of(scope, AddExtent(extent()), base=head.sequence))
    catalog.drop_table("obs.logs")
    with pytest.raises(NotFoundError, match="no such table, or it was dropped"):
        catalog.commit([ours], onto=head)
    with pytest.raises(NotFoundError):
        catalog.head(scope)
    user = Scope(scope.table_id, "ann")
    with pytest.raises(NotFoundError):
        catalog.commit([commit_of(user, AppendHot(hot()))], onto=replace(head, scope=user, sequence=0, id=""))


def test_tables_are_listed_by_namespace_and_name(catalog: Catalog) -> None:
    for name in ("b.y", "b.x", "z", "a.q"):
        catalog.create_table(name, SCHEMA, {})
    assert [str(info) for info in catalog.tables()] == ["a.q", "b.x", "b.y", "default.z"]
    assert [str(info) for info in catalog.tables("b")] == ["b.x", "b.y"]
    assert catalog.table("z") == catalog.table("default.z")


def test_a_hostile_name_is_refused(catalog: Catalog) -> None:
    for name in ("", ".", "a.", ".b", "a.b.c", "a b", "a/b", "../x", "a;b", "naïve", "x" * 129, "1a", "a.b\n", "a'b"):
        with pytest.raises(InvalidInputError, match="is not a table name"):
            catalog.create_table(name, SCHEMA, {})
        with pytest.raises(InvalidInputError, match="is not a table name"):
            catalog.table(name)


def test_what_is_not_there_is_not_found(catalog: Catalog, scope: Scope) -> None:
    with pytest.raises(NotFoundError, match="no such table"):
        catalog.table("obs.nothing")
    with pytest.raises(NotFoundError, match="no such table"):
        catalog.head(Scope(new_id()))
    with pytest.raises(NotFoundError, match="no such schema version"):
        catalog.schema(scope.table_id, 2)
    for wrong in ({"sequence": 9}, {"snapshot_id": "nobody"}, {"at_us": 1}):
        with pytest.raises(NotFoundError, match="no such snapshot"):
            catalog.snapshot(scope, **wrong)
    with pytest.raises(InvalidInputError, match="exactly one"):
        catalog.snapshot(scope)
    with pytest.raises(InvalidInputError, match="exactly one"):
        catalog.snapshot(scope, sequence=1, at_us=1)
    with pytest.raises(NotFoundError, match="no such snapshot"):
        catalog.extents(scope, sequence=2)


# commits


def test_a_commit_publishes_a_snapshot_and_answers_with_a_receipt(catalog: Catalog, scope: Scope) -> None:
    head = catalog.head(scope)
    added, batch = extent(10), hot(3)
    ours = announce(catalog, commit_of(scope, AddExtent(added), AppendHot(batch), base=1))
    (receipt,) = catalog.commit([ours], onto=head)
    new = catalog.head(scope)
    assert (receipt.commit_id, receipt.snapshot_id, receipt.sequence) == (ours.id, new.id, 2)
    assert (receipt.rows, receipt.extents, receipt.replayed) == (13, 1, False)
    assert (new.parent_id, new.operation, new.committed_us) == (head.id, "append", receipt.committed_us)
    assert catalog.extents(scope) == [replace(added, added_seq=2)]
    assert catalog.hot(scope) == [replace(batch, added_seq=2)]


def test_a_commit_on_an_old_snapshot_is_stale_and_changes_nothing(catalog: Catalog, scope: Scope) -> None:
    old = catalog.head(scope)
    append(catalog, scope)
    before = catalog.manifest(scope)
    ours = announce(catalog, commit_of(scope, AddExtent(extent()), base=old.sequence))
    with pytest.raises(StaleHead, match="commit lost the race") as stale:
        catalog.commit([ours], onto=old)
    assert stale.value.head == catalog.head(scope)
    assert catalog.manifest(scope) == before
    assert [each.key for each in catalog.pending()] == [ours.actions[0].extent.key]  # type: ignore[union-attr]
    fitted = rebase(ours, stale.value.head, live=())
    assert catalog.commit([fitted], onto=stale.value.head)[0].sequence == 3


def test_a_commit_that_may_be_rebased_lands_or_says_stale(catalog: Catalog, scope: Scope) -> None:
    old = catalog.head(scope)
    append(catalog, scope)
    ours = announce(catalog, commit_of(scope, AddExtent(extent()), base=old.sequence))
    try:
        (receipt,) = catalog.commit([ours], onto=old, rebase=True)
    except StaleHead as stale:
        (receipt,) = catalog.commit([rebase(ours, stale.head, live=())], onto=stale.head)
    assert receipt.sequence == 3
    assert len(catalog.extents(scope)) == 2


def test_a_commit_with_claims_is_never_rebased_by_the_store(catalog: Catalog, scope: Scope) -> None:
    old = catalog.head(scope)
    append(catalog, scope)
    ours = announce(catalog, commit_of(scope, AddExtent(extent()), base=1, claims=(Claim("e", 1, 2),)))
    with pytest.raises(StaleHead):
        catalog.commit([ours], onto=old, rebase=True)


def test_a_commit_on_a_snapshot_that_has_expired_is_stale(catalog: Catalog, scope: Scope, clock: Ticking) -> None:
    old = catalog.head(scope)
    for _ in range(3):
        append_hot(catalog, scope)
    catalog.expire_snapshots(scope, before_us=clock.now_us + 1000)
    ours = announce(catalog, commit_of(scope, AddExtent(extent()), base=1))
    with pytest.raises(StaleHead) as stale:
        catalog.commit([ours], onto=old)
    assert stale.value.head.sequence == catalog.head(scope).sequence == 4


def test_several_commits_share_a_snapshot_and_each_has_its_receipt(catalog: Catalog, scope: Scope) -> None:
    head = catalog.head(scope)
    commits = [announce(catalog, commit_of(scope, AddExtent(extent(n)), base=1, key=f"k{n}")) for n in (1, 2, 3)]
    receipts = catalog.commit(commits, onto=head)
    assert [(r.commit_id, r.sequence, r.rows) for r in receipts] == [(c.id, 2, n) for n, c in enumerate(commits, 1)]
    for commit, receipt in zip(commits, receipts, strict=True):
        assert catalog.receipt(scope, commit_id=commit.id) == replace(receipt, replayed=True)
        assert catalog.receipt(scope, key=commit.key) == replace(receipt, replayed=True)
    assert len(catalog.history(scope)) == 2


def test_what_each_commit_of_a_snapshot_added_is_known(catalog: Catalog, scope: Scope, clock: Ticking) -> None:
    adding: list[tuple[list[Extent], list[HotBatch]]] = [
        ([extent(5, times=(9, 9)), extent(5, times=(1, 1))], []),
        ([], []),
        ([extent(7)], [hot(2), hot(3)]),
        ([], [hot(3)]),
    ]
    catalog.register_pending([Pending(e.key, scope, "test") for extents, _ in adding for e in extents])
    commits = [
        commit_of(scope, UpdateTable(None, {"n": n}), *map(AddExtent, extents), *map(AppendHot, batches), base=1)
        for n, (extents, batches) in enumerate(adding)
    ]
    catalog.commit(commits, onto=catalog.head(scope))
    expected = [
        Contribution(commit.id, tuple(e.id for e in extents), tuple(batch.id for batch in batches))
        for commit, (extents, batches) in zip(commits, adding, strict=True)
    ]
    assert catalog.contributions(scope, sequence=2) == expected
    assert catalog.contributions(scope, sequence=1) == []
    replayed = commits[0]
    fresh = commit_of(scope, AppendHot(hot(1)), base=2)
    catalog.commit([replace(replayed, base=2), fresh], onto=catalog.head(scope))
    (alone,) = catalog.contributions(scope, sequence=3)
    assert (alone.commit_id, alone.extents, len(alone.hot)) == (fresh.id, (), 1)
    publish(catalog, scope, *(RemoveExtent(e.id) for extents, _ in adding for e in extents), operation="delete")
    publish(catalog, scope, *(DropHot(batch.id) for _, batches in adding for batch in batches), operation="delete")
    catalog.expire_receipts(before_us=clock())
    assert catalog.contributions(scope, sequence=2) == expected
    assert [c.extents + c.hot for c in catalog.contributions(scope, sequence=5)] == [()]
    catalog.expire_snapshots(scope, before_us=clock())
    with pytest.raises(NotFoundError):
        catalog.contributions(scope, sequence=2)


def test_a_compaction_needs_all_its_inputs_live(catalog: Catalog, scope: Scope) -> None:
    one, two = append(catalog, scope), append(catalog, scope)
    publish(catalog, scope, RemoveExtent(one.id), operation="retention")
    before = catalog.manifest(scope)
    head = catalog.head(scope)
    ours = announce(
        catalog,
        commit_of(scope, RemoveExtent(one.id), RemoveExtent(two.id), AddExtent(extent(level=1)), base=head.sequence),
    )
    with pytest.raises(ConflictError, match="no longer live") as error:
        catalog.commit([ours], onto=head)
    assert (error.value.kind, error.value.facts["commit"], error.value.facts["input"]) == ("not_live", ours.id, one.id)
    assert catalog.manifest(scope) == before
    assert catalog.live(scope, [one.id, two.id, "nobody"]) == {two.id}


def test_hot_rows_become_an_extent_in_one_commit(catalog: Catalog, scope: Scope) -> None:
    one, two = append_hot(catalog, scope), append_hot(catalog, scope)
    cold = extent(6)
    publish(catalog, scope, DropHot(one.id), DropHot(two.id), AddExtent(cold), operation="flush")
    assert catalog.hot(scope) == []
    assert ids_of(catalog.extents(scope)) == [cold.id]
    assert catalog.head(scope).totals == Counts(extents=1, rows=6, bytes=600)
    assert catalog.hot(scope, sequence=3) == [replace(one, removed_seq=4), replace(two, removed_seq=4)]
    with pytest.raises(ConflictError, match="no longer live"):
        publish(catalog, scope, DropHot(one.id))


def test_hot_batches_are_listed_without_their_rows_and_read_by_id(catalog: Catalog, scope: Scope) -> None:
    one, two = append_hot(catalog, scope, 2), append_hot(catalog, scope, 5)
    past = catalog.head(scope).sequence
    publish(catalog, scope, DropHot(one.id), operation="delete")
    unbounded = replace(hot(1), min_ts_ns=None, max_ts_ns=None)
    publish(catalog, scope, AppendHot(unbounded))
    assert catalog.hot_headers(scope) == [HotHeader(two.id, 5, 5, 6), HotHeader(unbounded.id, 1, None, None)]
    assert [header.id for header in catalog.hot_headers(scope, sequence=past)] == [one.id, two.id]
    assert catalog.hot_headers(scope, sequence=1) == []
    assert [batch.id for batch in catalog.hot(scope, ids=[two.id, one.id, "none"])] == [two.id]
    assert catalog.hot(scope, ids=[]) == []
    older = catalog.hot(scope, sequence=past, ids=[one.id])
    assert [(batch.id, batch.payload) for batch in older] == [(one.id, one.payload)]


def test_nothing_is_added_twice(catalog: Catalog, scope: Scope) -> None:
    added = append(catalog, scope)
    batch = append_hot(catalog, scope)
    before = catalog.manifest(scope)
    with pytest.raises(InvalidInputError, match="added twice"):
        publish(catalog, scope, AddExtent(replace(extent(), id=added.id)))
    with pytest.raises(InvalidInputError, match="added twice"):
        publish(catalog, scope, AppendHot(replace(hot(), id=batch.id)))
    assert catalog.manifest(scope) == before


def test_two_commits_of_one_call_cannot_take_the_same_extent(catalog: Catalog, scope: Scope) -> None:
    one = append(catalog, scope)
    head = catalog.head(scope)
    commits = [
        announce(catalog, commit_of(scope, RemoveExtent(one.id), AddExtent(extent()), base=head.sequence))
        for _ in range(2)
    ]
    with pytest.raises(ConflictError, match="no longer live") as error:
        catalog.commit(commits, onto=head)
    assert error.value.facts["commit"] == commits[1].id
    assert ids_of(catalog.extents(scope)) == [one.id]


def test_commits_built_on_something_else_are_refused(catalog: Catalog, scope: Scope) -> None:
    head = catalog.head(scope)
    with pytest.raises(InvalidInputError, match="another snapshot"):
        catalog.commit([commit_of(scope, AppendHot(hot()), base=7)], onto=head)
    with pytest.raises(InvalidInputError, match="another snapshot"):
        catalog.commit([commit_of(Scope("other"), AppendHot(hot()), base=1)], onto=head)
    with pytest.raises(InvalidInputError, match="nothing to commit"):
        catalog.commit([], onto=head)
    with pytest.raises(SchemaError, match="no such schema version"):
        publish(catalog, scope, AppendHot(hot(version=2)))


def test_a_schema_widens_with_the_data_and_old_snapshots_keep_theirs(catalog: Catalog, scope: Scope) -> None:
    append(catalog, scope)
    wider = SCHEMA.widen([("host", DataType.parse("string"))])
    publish(catalog, scope, UpdateTable(wider, {"retention": "30d"}), AddExtent(extent(version=2)))
    widest = wider.widen([("region", DataType.parse("string")), ("level", DataType.parse("long"))])
    publish(catalog, scope, UpdateTable(settings={"retention": None}))
    publish(catalog, scope, UpdateTable(widest))
    history = catalog.history(scope)
    assert [(s.schema.version, dict(s.settings)) for s in history] == [
        (3, {"time": "ts"}),
        (2, {"time": "ts"}),
        (2, {"time": "ts", "retention": "30d"}),
        (1, {"time": "ts"}),
        (1, {"time": "ts"}),
    ]
    assert history[0] == catalog.head(scope)
    assert [catalog.schema(scope.table_id, version) for version in (1, 2, 3)] == [SCHEMA, wider, widest]
    assert [e.schema_version for e in catalog.extents(scope)] == [1, 2]


def test_two_steps_of_widening_in_one_snapshot_keep_both_versions(catalog: Catalog, scope: Scope) -> None:
    two = SCHEMA.widen([("a", DataType.parse("string"))])
    three = two.widen([("b", DataType.parse("string"))])
    actions: list[Action] = [UpdateTable(two), AddExtent(extent(version=2))]
    publish(catalog, scope, *actions, UpdateTable(three), AddExtent(extent(version=3)))
    assert catalog.schema(scope.table_id, 2) == two
    assert catalog.head(scope).schema == three


def test_a_narrowing_is_refused_and_changes_nothing(catalog: Catalog, scope: Scope) -> None:
    narrower = replace(SCHEMA, columns=SCHEMA.columns[:2], version=2)
    with pytest.raises(SchemaError, match="not the next version"):
        publish(catalog, scope, UpdateTable(narrower))
    assert catalog.head(scope).schema == SCHEMA


def test_united_coverage_that_lost_to_a_newer_one_stays_registered(catalog: Catalog, scope: Scope) -> None:
    newer, older = UnitedCoverage("data/c/2.cov", 2), UnitedCoverage("data/c/1.cov", 1)
    for each in (newer, older):
        publish(catalog, scope, UpdateCoverage(each))
        assert catalog.head(scope).coverage == newer
    assert [each.key for each in catalog.pending()] == [older.key]
    assert catalog.release_pending([older.key]) == [older.key]
    assert [each.key for each in catalog.garbage(before_us=2**60)] == [older.key]


def test_coverage_goes_with_its_snapshot(catalog: Catalog, scope: Scope) -> None:
    publish(catalog, scope, UpdateCoverage(UnitedCoverage("c/2", 1)))
    append(catalog, scope)
    publish(catalog, scope, UpdateCoverage(UnitedCoverage("c/4", 3)))
    assert [s.coverage for s in catalog.history(scope)] == [
        UnitedCoverage("c/4", 3),
        UnitedCoverage("c/2", 1),
        UnitedCoverage("c/2", 1),
        None,
    ]


def test_what_is_not_json_is_refused_and_changes_nothing(catalog: Catalog, scope: Scope) -> None:
    before = catalog.manifest(scope)
    with pytest.raises(InvalidInputError, match="cannot be kept as JSON"):
        publish(catalog, scope, AddExtent(extent(stats={"level": {"min": object()}})))
    with pytest.raises(InvalidInputError, match="cannot be kept as JSON"):
        publish(catalog, scope, UpdateTable(settings={"x": {1, 2}}))
    assert catalog.manifest(scope) == before


def test_the_longest_keys_are_kept(catalog: Catalog, scope: Scope) -> None:
    key, stream = "é" * 512, "ü" * 512
    publish(catalog, scope, AppendHot(hot()), RecordOffset(stream, 1), key=key)
    assert catalog.receipt(scope, key=key) is not None
    assert catalog.manifest(scope).offsets == {stream: 1}


# users


def test_users_have_their_own_head_and_share_the_table(catalog: Catalog, scope: Scope) -> None:
    ann, bob = Scope(scope.table_id, "ann"), Scope(scope.table_id, "bob")
    start = catalog.head(ann)
    assert (start.sequence, start.id, start.schema, start.settings) == (0, "", SCHEMA, {"time": "ts"})
    assert (catalog.extents(ann), catalog.hot(ann), catalog.history(ann)) == ([], [], [])
    assert catalog.manifest(ann) == Manifest(start)
    one = append(catalog, ann)
    append_hot(catalog, ann)
    two = append(catalog, bob)
    assert ids_of(catalog.extents(ann)) == [one.id]
    assert ids_of(catalog.extents(bob)) == [two.id]
    assert catalog.extents(scope) == []
    assert (catalog.head(ann).sequence, catalog.head(bob).sequence, catalog.head(scope).sequence) == (2, 1, 1)
    assert set(catalog.scopes(scope.table_id)) == {scope, ann, bob}


def test_a_users_first_commit_is_swapped_like_any_other(catalog: Catalog, scope: Scope) -> None:
    ann = Scope(scope.table_id, "ann")
    start = catalog.head(ann)
    append(catalog, ann)
    with pytest.raises(StaleHead) as stale:
        catalog.commit([commit_of(ann, AppendHot(hot()))], onto=start)
    assert stale.value.head.sequence == 1


def test_a_users_head_follows_the_tables_schema(catalog: Catalog, scope: Scope) -> None:
    ann = Scope(scope.table_id, "ann")
    append(catalog, ann)
    wider = SCHEMA.widen([("host", DataType.parse("string"))])
    publish(catalog, scope, UpdateTable(wider, {"retention": "1d"}))
    assert catalog.head(ann).schema == wider
    assert catalog.head(ann).settings["retention"] == "1d"
    publish(catalog, ann, AddExtent(extent(version=2)))
    assert [s.schema.version for s in catalog.history(ann)] == [2, 1]


def test_a_hostile_user_is_refused(catalog: Catalog, scope: Scope) -> None:
    for user in (" x", "a\nb", "a\x00b", "x" * 300):
        own = Scope(scope.table_id, user)
        start = replace(catalog.head(scope), scope=own, sequence=0, id="")
        with pytest.raises(InvalidInputError, match="not a user id"):
            catalog.commit([commit_of(own, AppendHot(hot()))], onto=start)


# once


def test_a_commit_happens_once_by_its_id(catalog: Catalog, scope: Scope) -> None:
    head = catalog.head(scope)
    ours = announce(catalog, commit_of(scope, AddExtent(extent()), base=1))
    (first,) = catalog.commit([ours], onto=head)
    new = catalog.head(scope)
    (again,) = catalog.commit([replace(ours, base=new.sequence)], onto=new)
    assert again == replace(first, replayed=True)
    assert catalog.head(scope) == new


def test_a_commit_happens_once_by_its_key(catalog: Catalog, scope: Scope) -> None:
    first = publish(catalog, scope, AddExtent(extent(7)), key="batch-1")
    other = publish(catalog, scope, AddExtent(extent(5)))
    again = publish(catalog, scope, AddExtent(extent(9)), key="batch-1")
    assert again == replace(first, replayed=True)
    assert catalog.head(scope).sequence == other.sequence
    assert catalog.receipt(scope, key="batch-1") == again
    assert catalog.receipt(scope, key="batch-2") is None
    assert catalog.receipt(scope, commit_id="nobody") is None


def test_keys_of_one_scope_mean_nothing_in_another(catalog: Catalog, scope: Scope) -> None:
    ann = Scope(scope.table_id, "ann")
    publish(catalog, scope, AppendHot(hot()), key="k")
    assert catalog.receipt(ann, key="k") is None
    assert not publish(catalog, ann, AppendHot(hot()), key="k").replayed


def test_a_streams_batch_happens_once(catalog: Catalog, scope: Scope) -> None:
    first = publish(catalog, scope, AddExtent(extent(7)), RecordOffset("s", 4))
    second = publish(catalog, scope, AddExtent(extent(8)), RecordOffset("s", 9))
    assert publish(catalog, scope, AddExtent(extent()), RecordOffset("s", 4)) == replace(first, replayed=True)
    assert publish(catalog, scope, AddExtent(extent()), RecordOffset("s", 9)) == replace(second, replayed=True)
    skipped = publish(catalog, scope, AddExtent(extent()), RecordOffset("s", 6))
    assert (skipped.replayed, skipped.rows) == (True, 0)
    assert not publish(catalog, scope, AddExtent(extent()), RecordOffset("t", 0)).replayed
    assert catalog.manifest(scope).offsets == {"s": 9, "t": 0}
    assert len(catalog.extents(scope)) == 3


def test_a_stream_that_says_where_it_goes_on_goes_on_only_there(catalog: Catalog, scope: Scope) -> None:
    assert catalog.positions(scope, ["s"]) == {}
    publish(catalog, scope, AppendHot(hot()), RecordOffset("s", 4, after=-1))
    for after in (-1, 2):
        with pytest.raises(ConflictError, match="another reader") as refused:
            publish(catalog, scope, AppendHot(hot()), RecordOffset("s", 9, after=after))
        assert refused.value.kind == "stream_moved"
    publish(catalog, scope, AppendHot(hot()), RecordOffset("s", 9, after=4), RecordOffset("t", 0, after=-1))
    assert catalog.positions(scope, ["s", "t", "u"]) == {"s": 9, "t": 0}
    assert catalog.head(scope).totals.hot_batches == 2


def test_twins_in_one_call_get_one_answer(catalog: Catalog, scope: Scope) -> None:
    head = catalog.head(scope)
    commits = [announce(catalog, commit_of(scope, AddExtent(extent(n)), base=1, key="k")) for n in (1, 2)]
    commits.append(commits[0])
    commits.append(commit_of(scope, AppendHot(hot()), RecordOffset("s", 1), base=1))
    commits.append(commit_of(scope, AppendHot(hot()), RecordOffset("s", 1), base=1))
    receipts = catalog.commit(commits, onto=head)
    assert [(r.commit_id, r.replayed) for r in receipts] == [
        (commits[0].id, False),
        (commits[0].id, True),
        (commits[0].id, True),
        (commits[3].id, False),
        (commits[3].id, True),
    ]
    assert (len(catalog.extents(scope)), len(catalog.hot(scope))) == (1, 1)


def test_a_replay_in_a_group_is_left_out_and_the_rest_fitted_again(catalog: Catalog, scope: Scope) -> None:
    publish(catalog, scope, AppendHot(hot()), key="k")
    head = catalog.head(scope)
    two = SCHEMA.widen([("a", DataType.parse("string"))])
    three = two.widen([("b", DataType.parse("string"))])
    replay = commit_of(scope, UpdateTable(two), base=2, key="k")
    after_it = announce(catalog, commit_of(scope, UpdateTable(three), AddExtent(extent(version=3)), base=2))
    receipts = catalog.commit([replay, after_it], onto=head)
    assert [r.replayed for r in receipts] == [True, False]
    assert catalog.head(scope).schema.version == 2
    assert catalog.extents(scope)[0].schema_version == 2


def test_receipts_expire_and_then_a_key_is_new(catalog: Catalog, scope: Scope, clock: Ticking) -> None:
    publish(catalog, scope, AppendHot(hot()), key="old")
    clock.now_us += 1_000_000
    publish(catalog, scope, AppendHot(hot()), key="new")
    assert catalog.expire_receipts(before_us=clock.now_us - 500_000) == 1
    assert catalog.receipt(scope, key="old") is None
    assert catalog.receipt(scope, key="new") is not None
    assert not publish(catalog, scope, AppendHot(hot()), key="old").replayed
    with pytest.raises(InvalidInputError, match="by its id or by its key"):
        catalog.receipt(scope)


def test_a_streams_batch_stays_in_after_its_receipt_expired(catalog: Catalog, scope: Scope, clock: Ticking) -> None:
    publish(catalog, scope, AppendHot(hot()), RecordOffset("s", 4))
    catalog.expire_receipts(before_us=clock.now_us + 1000)
    assert publish(catalog, scope, AppendHot(hot()), RecordOffset("s", 4)).replayed
    assert len(catalog.hot(scope)) == 1


# time travel


def test_every_retained_snapshot_reads_as_it_was(catalog: Catalog, scope: Scope) -> None:
    kept = [catalog.manifest(scope)]
    one = append(catalog, scope)
    kept.append(catalog.manifest(scope))
    append(catalog, scope)
    kept.append(catalog.manifest(scope))
    publish(catalog, scope, RemoveExtent(one.id), AddExtent(extent(level=1)), operation="compact")
    for then in kept:
        sequence = then.snapshot.sequence
        now = catalog.manifest(scope, sequence=sequence)
        assert now.snapshot == then.snapshot
        assert {e.id: replace(e, removed_seq=None) for e in now.extents.values()} == then.extents
        assert catalog.snapshot(scope, sequence=sequence) == then.snapshot
        assert catalog.snapshot(scope, snapshot_id=then.snapshot.id) == then.snapshot
        assert catalog.snapshot(scope, at_us=then.snapshot.committed_us) == then.snapshot
        assert catalog.snapshot(scope, at_us=then.snapshot.committed_us + 1) == then.snapshot


def test_history_goes_back_in_pages_along_the_ancestry(catalog: Catalog, scope: Scope) -> None:
    for _ in range(5):
        append_hot(catalog, scope)
    history = catalog.history(scope)
    assert [s.sequence for s in history] == [6, 5, 4, 3, 2, 1]
    assert [s.parent_id for s in history[:-1]] == [s.id for s in history[1:]]
    assert catalog.history(scope, limit=2) == history[:2]
    assert catalog.history(scope, limit=2, before=5) == history[2:4]


def test_changes_say_what_differs_between_two_snapshots(catalog: Catalog, scope: Scope) -> None:
    one, batch = append(catalog, scope), append_hot(catalog, scope)
    two = append(catalog, scope)
    publish(catalog, scope, RemoveExtent(one.id), RemoveExtent(two.id), DropHot(batch.id), AddExtent(extent()))
    (merged,) = catalog.extents(scope)
    kept = append_hot(catalog, scope)
    assert catalog.changes(scope, after=2, upto=6) == Changes((merged,), (one.id,), (kept,), ())
    assert catalog.changes(scope, after=4, upto=5) == Changes((merged,), (one.id, two.id), (), (batch.id,))
    assert catalog.changes(scope, after=0, upto=6) == Changes((merged,), (), (kept,), ())
    assert catalog.changes(scope, after=6, upto=6) == Changes((), (), (), ())
    with pytest.raises(InvalidInputError, match="changes go forward"):
        catalog.changes(scope, after=3, upto=2)
    with pytest.raises(NotFoundError):
        catalog.changes(scope, after=2, upto=99)


def test_catalog_agrees_with_apply_over_a_random_life(catalog: Catalog, scope: Scope) -> None:
    rng = random.Random(11)
    model = catalog.manifest(scope)
    kept = {1: model}
    for number in range(40):
        actions: list[Action] = [
            AddExtent(extent(rng.randrange(50), stats={"level": {"min": number, "max": number + 5}}))
            for _ in range(rng.randrange(3))
        ]
        actions += [AppendHot(hot(rng.randrange(9))) for _ in range(rng.randrange(2))]
        actions += [RemoveExtent(item) for item in rng.sample(sorted(model.extents), min(len(model.extents), 1))]
        actions += [DropHot(item) for item in rng.sample(sorted(model.hot), min(len(model.hot), rng.randrange(2)))]
        if number % 7 == 0:
            actions.append(UpdateTable(model.snapshot.schema.widen([(f"c{number}", DataType.parse("long"))])))
        if number % 5 == 0:
            actions += [UpdateTable(settings={"n": number}), UpdateCoverage(UnitedCoverage(f"c/{number}", number))]
        actions.append(RecordOffset(f"s{number % 3}", number))
        ours = announce(catalog, commit_of(scope, *actions, base=model.snapshot.sequence))
        (receipt,) = catalog.commit([ours], onto=model.snapshot)
        model = apply(model, [ours], snapshot_id=receipt.snapshot_id, at_us=receipt.committed_us)
        assert catalog.manifest(scope) == model
        kept[model.snapshot.sequence] = model
    for sequence, then in kept.items():
        now = catalog.manifest(scope, sequence=sequence)
        assert now.snapshot == then.snapshot
        assert {e.id: replace(e, removed_seq=None) for e in now.extents.values()} == then.extents
        assert {b.id: replace(b, removed_seq=None) for b in now.hot.values()} == then.hot


# listing


def test_listing_finds_extents_by_time_with_closed_ends(catalog: Catalog, scope: Scope) -> None:
    single = append(catalog, scope, times=(500, 500))
    early = append(catalog, scope, times=(-300, -200))
    wide = append(catalog, scope, times=(100, 900))
    unbounded = append(catalog, scope, times=(None, None))
    half = append(catalog, scope, times=(600, None))
    end = append(catalog, scope, times=(2**63 - 2, 2**63 - 1))

    def found(start: int | None, stop: int | None) -> set[str]:
        return set(ids_of(catalog.extents(scope, start_ns=start, end_ns=stop)))

    everything = {single.id, early.id, wide.id, unbounded.id, half.id, end.id}
    assert found(None, None) == everything
    assert found(500, 501) == {single.id, wide.id, unbounded.id}
    assert found(501, 600) == {wide.id, unbounded.id}
    assert found(900, 901) == {wide.id, unbounded.id, half.id}
    assert found(901, 902) == {unbounded.id, half.id}
    assert found(None, -200) == {early.id, unbounded.id}
    assert found(-200, -199) == {early.id, unbounded.id}
    assert found(-199, 100) == {unbounded.id}
    assert found(None, 0) == {early.id, unbounded.id}
    assert found(2**63 - 1, None) == {unbounded.id, half.id, end.id}
    assert found(-(2**80), 2**80) == everything


def test_listing_is_in_order_of_time(catalog: Catalog, scope: Scope) -> None:
    made = [append(catalog, scope, times=times) for times in ((5, 9), (1, 3), (None, 2), (1, 2))]
    assert ids_of(catalog.extents(scope)) == [made[at].id for at in (2, 3, 1, 0)]


STATS = {
    "low": {
        "service": {"min": "alpha", "max": "beta"},
        "level": {"min": 1, "max": 5},
        "load": {"min": 0.1, "max": 0.3},
    },
    "high": {"service": {"min": "mu", "max": "zeta"}, "level": {"min": 6, "max": 9}, "load": {"min": 0.4, "max": 9.5}},
    "odd": {"service": {"min": "é", "max": None}, "level": {"min": "?"}, "load": {"max": {"real": "inf"}}},
    "none": {},
}


LEAVES_OUT: list[tuple[Predicate, set[str]]] = [
    (Equals("service", "beta"), {"high", "odd"}),
    (Equals("service", "betamax"), {"low", "high", "odd"}),
    (Equals("service", "Zeta"), {"low", "high", "odd"}),  # text goes by its bytes: capitals first
    (Equals("service", "é"), {"low", "high"}),
    (InSet("service", ("a", "alphab")), {"high", "odd"}),
    (Equals("level", 5), {"high"}),
    (Equals("level", 6), {"low"}),
    (Range("level", low=6), {"low"}),
    (Range("level", high=5, include_high=False), {"high"}),
    (Range("level", low=10), {"low", "high"}),
    (Equals("load", 0.1 + 0.2), {"low", "high"}),
    (Equals("load", 0.3), {"high"}),
    (Range("load", low=1), {"low"}),
    (Range("load", low=2**53 + 1), {"low", "high"}),
    (And((Equals("level", 5), Equals("load", 0.4))), {"low", "high"}),
    (And((StringHas("service", "x"), Equals("level", 6))), {"low"}),
    (TimeRange("level", 6, 7), {"low"}),
    # what cannot be told keeps everything
    (Equals("level", "5"), set()),
    (Equals("level", 5.5), set()),
    (Equals("level", True), set()),
    (Equals("level", 2**70), set()),
    (Equals("service", 5), set()),
    (Equals("load", float("nan")), set()),
    (Equals("nothing", 5), set()),
    (Equals("service", "a\x00"), set()),
    (InSet("level", (1, "a")), set()),
    (InSet("level", ()), set()),
    (Not(Equals("level", 5)), set()),
    (Or((Equals("level", 5), Equals("level", 6))), set()),
    (StringHas("service", "beta"), set()),
    (Equals('a"b', 1), set()),
]


def test_listing_leaves_out_only_what_bounds_exclude(catalog: Catalog, scope: Scope) -> None:
    names = {append(catalog, scope, stats=stats).id: name for name, stats in STATS.items()}

    def left_out(where: Predicate) -> set[str]:
        return set(STATS) - {names[each.id] for each in catalog.extents(scope, where=where)}

    assert {repr(where): left_out(where) for where, _ in LEAVES_OUT} == {repr(where): out for where, out in LEAVES_OUT}


def test_listing_gives_the_statistics_that_are_asked_for(catalog: Catalog, scope: Scope) -> None:
    stats = {"service": {"distinct": ["a\x00b", "é"], "min": "a\x00b"}, "level": {"min": 1, "max": 2**62}}
    append(catalog, scope, stats=stats)
    assert catalog.extents(scope)[0].column_stats == stats
    assert catalog.extents(scope, stats=["level", "other"])[0].column_stats == {"level": stats["level"]}
    assert catalog.extents(scope, stats=[])[0].column_stats == {}


def test_listing_gives_the_extents_that_are_named(catalog: Catalog, scope: Scope) -> None:
    one, two, three = (append(catalog, scope, stats={"level": {"min": n}}, times=(n, n)) for n in (30, 20, 10))
    publish(catalog, scope, RemoveExtent(three.id), operation="delete")
    assert catalog.extents(scope, ids=[one.id, three.id, "none"]) == [one]
    assert [each.id for each in catalog.extents(scope, sequence=4, ids=[one.id, three.id])] == [three.id, one.id]
    assert catalog.extents(scope, ids=[one.id, two.id], start_ns=15, end_ns=25, stats=()) == [
        replace(two, column_stats={})
    ]
    assert catalog.extents(scope, ids=[]) == []
    assert catalog.extents_by_id(scope, [one.id, three.id, "none"], sequence=5, stats=()) == [
        replace(one, column_stats={})
    ]
    assert [e.id for e in catalog.extents_by_id(scope, [one.id, three.id], sequence=4, stats=())] == [three.id, one.id]
    pages = list(catalog.extent_pages(scope, sequence=4, stats=()))
    assert {extent.id for page in pages for extent in page} == {each.id for each in catalog.extents(scope, sequence=4)}


def test_listing_prunes_an_old_snapshot_too(catalog: Catalog, scope: Scope) -> None:
    one = append(catalog, scope, times=(0, 10), stats={"level": {"min": 1, "max": 1}})
    two = append(catalog, scope, times=(0, 10), stats={"level": {"min": 2, "max": 2}})
    publish(catalog, scope, RemoveExtent(one.id), RemoveExtent(two.id), AddExtent(extent()))
    words = {"sequence": 3, "start_ns": 5, "where": Equals("level", 2)}
    assert ids_of(catalog.extents(scope, **words)) == [two.id]  # type: ignore[arg-type]


# in and out


def test_an_extent_is_committed_only_while_it_is_pending(catalog: Catalog, scope: Scope, clock: Ticking) -> None:
    head = catalog.head(scope)
    ours = commit_of(scope, AddExtent(extent()), base=1)
    with pytest.raises(ConflictError, match="not registered as pending") as error:
        catalog.commit([ours], onto=head)
    assert (error.value.kind, error.value.facts["commit"]) == ("not_pending", ours.id)
    announce(catalog, ours)
    (waiting,) = catalog.pending()
    assert (waiting.scope, waiting.owner, waiting.since_us) == (scope, "test", clock.now_us)
    catalog.commit([ours], onto=head)
    assert catalog.pending() == []


def test_an_extent_given_up_is_garbage_and_cannot_be_committed(catalog: Catalog, scope: Scope, clock: Ticking) -> None:
    early = announce(catalog, commit_of(scope, AddExtent(extent()), base=1))
    clock.now_us += 1000
    late = announce(catalog, commit_of(scope, AddExtent(extent()), base=1))
    key = early.actions[0].extent.key  # type: ignore[union-attr]
    assert catalog.abandon_pending(before_us=clock.now_us - 500) == [key]
    head = catalog.head(scope)
    with pytest.raises(ConflictError, match="was given up"):
        catalog.commit([early], onto=head)
    assert not catalog.commit([late], onto=head)[0].replayed
    (garbage,) = catalog.garbage(before_us=clock.now_us + 1000)
    assert (garbage.key, garbage.table_id, garbage.reason) == (key, scope.table_id, "abandoned")
    with pytest.raises(AlreadyExistsError, match="is garbage"):
        catalog.register_pending([Pending(key, scope, "late")])
    catalog.forget_garbage([key])
    assert catalog.garbage(before_us=clock.now_us + 1000) == []


def test_a_writer_releases_what_it_will_not_commit(catalog: Catalog, scope: Scope, clock: Ticking) -> None:
    ours = announce(catalog, commit_of(scope, AddExtent(extent()), AddExtent(extent()), base=1))
    keys = [action.extent.key for action in ours.actions if isinstance(action, AddExtent)]
    assert catalog.release_pending([keys[0], "data/other"]) == [keys[0]]
    assert [each.key for each in catalog.pending(table_id=scope.table_id)] == [keys[1]]
    assert catalog.pending(table_id="other") == []
    assert [each.key for each in catalog.garbage(before_us=clock.now_us + 1000)] == [keys[0]]


def test_a_key_is_announced_once(catalog: Catalog, scope: Scope) -> None:
    catalog.register_pending([Pending("data/a", scope, "me")])
    with pytest.raises(AlreadyExistsError, match="announced already"):
        catalog.register_pending([Pending("data/b", scope, "me"), Pending("data/a", scope, "me")])
    assert [each.key for each in catalog.pending()] == ["data/a"]


def test_expiring_lets_go_of_what_only_old_snapshots_reach(catalog: Catalog, scope: Scope, clock: Ticking) -> None:
    publish(catalog, scope, UpdateCoverage(UnitedCoverage("c/1", 1)))
    one = append(catalog, scope, coverage_key="c/one")
    kept = append(catalog, scope)
    batch = append_hot(catalog, scope)
    publish(catalog, scope, RemoveExtent(one.id), AddExtent(extent(level=1)), UpdateCoverage(UnitedCoverage("c/2", 5)))
    two = extent()
    publish(catalog, scope, DropHot(batch.id), AddExtent(two))
    in_force = catalog.head(scope)
    clock.now_us += 1_000_000
    publish(catalog, scope, RemoveExtent(two.id), AddExtent(extent(level=1)))
    append(catalog, scope)
    head = catalog.manifest(scope)

    expired = catalog.expire_snapshots(scope, before_us=clock.now_us - 500_000)
    assert expired == Expired(6, expired.keys)
    assert set(expired.keys) == {"c/1", one.key, "c/one"}
    assert {each.key for each in catalog.garbage(before_us=clock.now_us + 1000)} == set(expired.keys)
    assert [s.sequence for s in catalog.history(scope)] == [9, 8, in_force.sequence]
    assert catalog.manifest(scope) == head
    assert {two.id, kept.id} <= set(ids_of(catalog.extents(scope, sequence=in_force.sequence)))
    assert two.id not in ids_of(catalog.extents(scope, sequence=8))
    assert catalog.hot(scope, sequence=7) == []
    for gone in ({"sequence": 6}, {"at_us": in_force.committed_us - 1}):
        with pytest.raises(NotFoundError):
            catalog.snapshot(scope, **gone)  # type: ignore[arg-type]
    with pytest.raises(NotFoundError, match="expired"):
        catalog.extents(scope, sequence=6)
    with pytest.raises(NotFoundError, match="expired"):
        catalog.changes(scope, after=6, upto=9)
    assert catalog.expire_snapshots(scope, before_us=clock.now_us - 500_000) == Expired(0, ())


def test_expiring_never_lets_go_of_the_head(catalog: Catalog, scope: Scope, clock: Ticking) -> None:
    append(catalog, scope)
    head = catalog.manifest(scope)
    assert catalog.expire_snapshots(scope, before_us=clock.now_us + 10**12) == Expired(1, ())
    assert catalog.manifest(scope) == head
    assert append(catalog, scope).added_seq == 3
    assert catalog.expire_snapshots(scope, before_us=0) == Expired(0, ())
    assert catalog.expire_snapshots(Scope(scope.table_id, "nobody"), before_us=10**15) == Expired(0, ())


def test_a_dropped_table_is_kept_until_it_is_purged(catalog: Catalog, scope: Scope, clock: Ticking) -> None:
    ann = Scope(scope.table_id, "ann")
    keys = {append(catalog, scope).key, append(catalog, ann, coverage_key="c/ann").key, "c/ann", "c/all"}
    publish(catalog, scope, UpdateCoverage(UnitedCoverage("c/all", 2)))
    append_hot(catalog, ann)
    keys.add(announce(catalog, commit_of(scope, AddExtent(extent()))).actions[0].extent.key)  # type: ignore[union-attr]
    catalog.drop_table("obs.logs")
    other = catalog.create_table("obs.logs", SCHEMA, {}).scope
    kept = append(catalog, other)
    assert catalog.purge_tables(before_us=0) == Expired(0, ())
    purged = catalog.purge_tables(before_us=clock.now_us)
    assert (purged.snapshots, set(purged.keys)) == (5, keys)
    assert {(g.key, g.reason) for g in catalog.garbage(before_us=clock.now_us + 1000)} == {(k, "dropped") for k in keys}
    assert list(catalog.scopes(scope.table_id)) == []
    assert catalog.pending() == []
    assert catalog.extents(other) == [kept]
    assert catalog.purge_tables(before_us=clock.now_us) == Expired(0, ())


def test_garbage_is_listed_oldest_first_and_in_pages(catalog: Catalog, scope: Scope, clock: Ticking) -> None:
    for number in range(5):
        catalog.register_pending([Pending(f"data/{number}", scope, "me")])
        catalog.release_pending([f"data/{number}"])
        clock.now_us += 1000
    assert [g.key for g in catalog.garbage(before_us=clock.now_us, limit=2)] == ["data/0", "data/1"]
    assert len(catalog.garbage(before_us=clock.now_us - 2500)) == 3
