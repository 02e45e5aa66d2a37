"""Check the values of a table's state: apply, rebase, gather, and their JSON."""

from __future__ import annotations

import random
from dataclasses import replace

import orjson
import pytest

from tests.support.catalogs import SCHEMA, commit_of, extent, hot
from tidelake.errors import ConflictError, CorruptError, InvalidInputError, OverlapError, SchemaError
from tidelake.model.rebase import gather, rebase
from tidelake.model.schema import DataType, Schema
from tidelake.model.snapshot import (
    Action,
    AddExtent,
    AppendHot,
    Claim,
    Commit,
    Counts,
    DropHot,
    Fence,
    Manifest,
    RecordOffset,
    RemoveExtent,
    Scope,
    Snapshot,
    UnitedCoverage,
    UpdateCoverage,
    UpdateTable,
    advance,
    apply,
    empty_snapshot,
    first_snapshot,
    from_document,
    keys_of,
    make_id,
    receipt_of,
    to_document,
)

SCOPE = Scope("t1")
FIRST = Manifest(first_snapshot(SCOPE, SCHEMA, {"time": "ts"}, snapshot_id="s1", at_us=100))


def step(manifest: Manifest, *actions: Action, **words: object) -> Manifest:
    commit = commit_of(SCOPE, *actions, base=manifest.snapshot.sequence, **words)
    at_us = manifest.snapshot.committed_us + 10
    return apply(manifest, [commit], snapshot_id=f"s{manifest.snapshot.sequence + 1}", at_us=at_us)


def widened(schema: Schema, *names: str, kind: str = "string") -> Schema:
    return schema.widen([(name, DataType.parse(kind)) for name in names])


def test_apply_adds_what_a_commit_adds_and_counts_it() -> None:
    added, batch = extent(10), hot(3)
    after = step(FIRST, AddExtent(added), AppendHot(batch))
    counts = Counts(extents=1, rows=10, bytes=1000, hot_batches=1, hot_rows=3, hot_bytes=len(batch.payload))
    assert after == Manifest(
        Snapshot(SCOPE, 2, "s2", "s1", 110, "append", SCHEMA, {"time": "ts"}, counts, counts, Counts()),
        {added.id: replace(added, added_seq=2)},
        {batch.id: replace(batch, added_seq=2)},
    )


def test_apply_takes_away_what_a_compaction_removes() -> None:
    one, two, merged = extent(10), extent(20), extent(30, level=1)
    before = step(FIRST, AddExtent(one), AddExtent(two))
    after = step(before, RemoveExtent(one.id), RemoveExtent(two.id), AddExtent(merged), operation="compact")
    assert list(after.extents) == [merged.id]
    assert after.snapshot.totals == Counts(extents=1, rows=30, bytes=3000)
    assert after.snapshot.removed == Counts(extents=2, rows=30, bytes=3000)
    assert after.snapshot.operation == "compact"


def test_apply_turns_hot_rows_into_an_extent_in_a_flush() -> None:
    batch, cold = hot(3), extent(3)
    after = step(step(FIRST, AppendHot(batch)), DropHot(batch.id), AddExtent(cold))
    assert (list(after.hot), list(after.extents)) == ([], [cold.id])
    assert after.snapshot.totals == Counts(extents=1, rows=3, bytes=300)


def test_apply_refuses_what_is_not_strict() -> None:
    added = extent()
    before = step(FIRST, AddExtent(added))
    with pytest.raises(InvalidInputError, match="an id is added twice"):
        step(before, AddExtent(added))
    with pytest.raises(ConflictError, match="no longer live"):
        step(before, RemoveExtent("other"))
    with pytest.raises(ConflictError, match="no longer live"):
        step(before, RemoveExtent(added.id), RemoveExtent(added.id))
    with pytest.raises(ConflictError, match="no longer live"):
        step(before, DropHot("other"))
    new = extent()
    with pytest.raises(ConflictError, match="no longer live") as error:
        step(before, AddExtent(new), RemoveExtent(new.id))
    assert error.value.kind == "not_live"
    with pytest.raises(SchemaError, match="no such schema version"):
        step(before, AddExtent(extent(version=2)))
    with pytest.raises(ConflictError, match="another snapshot"):
        apply(before, [commit_of(SCOPE, AddExtent(extent()), base=1)], snapshot_id="x", at_us=1)


def test_apply_gives_several_commits_one_snapshot() -> None:
    commits = [commit_of(SCOPE, AddExtent(extent(n)), base=1, operation="append") for n in (1, 2)]
    commits.append(commit_of(SCOPE, AppendHot(hot()), base=1, operation="write"))
    after = apply(FIRST, commits, snapshot_id="s2", at_us=200)
    assert after.snapshot.sequence == 2
    assert after.snapshot.operation == "append+write"
    receipts = [receipt_of(commit, after.snapshot) for commit in commits]
    assert [(receipt.sequence, receipt.rows, receipt.extents) for receipt in receipts] == [
        (2, 1, 1),
        (2, 2, 1),
        (2, 3, 0),
    ]


def test_time_rises_along_a_scope_when_the_clock_stands_still() -> None:
    after = apply(FIRST, [commit_of(SCOPE, AddExtent(extent()), base=1)], snapshot_id="s2", at_us=5)
    assert after.snapshot.committed_us == 101


def test_settings_merge_and_none_removes_one() -> None:
    after = step(FIRST, UpdateTable(settings={"retention": "30d", "time": None}))
    assert after.snapshot.settings == {"retention": "30d"}


def test_a_stream_moves_forward_only() -> None:
    after = step(FIRST, RecordOffset("s", 7))
    assert after.offsets == {"s": 7}
    with pytest.raises(ConflictError) as error:
        step(after, RecordOffset("s", 7))
    assert error.value.kind == "replayed"


def test_older_coverage_does_not_replace_newer() -> None:
    after = step(FIRST, UpdateCoverage(UnitedCoverage("c/2", 2)))
    after = step(after, UpdateCoverage(UnitedCoverage("c/1", 1)))
    assert after.snapshot.coverage == UnitedCoverage("c/2", 2)


def test_an_append_rebases_onto_anything() -> None:
    ours = commit_of(SCOPE, AddExtent(extent()), base=1)
    one = extent()
    theirs = step(step(FIRST, AddExtent(one)), RemoveExtent(one.id), AddExtent(extent(level=1)))
    assert rebase(ours, theirs.snapshot, live=theirs.live) == replace(ours, base=3)


def test_a_commit_that_fits_already_is_rebased_to_itself() -> None:
    wider = widened(SCHEMA, "host")
    ours = commit_of(SCOPE, UpdateTable(wider), AddExtent(extent(version=2)), base=1)
    assert rebase(ours, FIRST.snapshot, live=()) == ours


@pytest.mark.parametrize("flush", [False, True])
def test_a_compaction_or_flush_whose_inputs_are_gone_cannot_be_rebased(flush: bool) -> None:
    one, batch = extent(), hot()
    before = step(FIRST, AddExtent(one), AppendHot(batch))
    take: Action = DropHot(batch.id) if flush else RemoveExtent(one.id)
    ours = commit_of(SCOPE, take, AddExtent(extent()), base=2)
    assert rebase(ours, before.snapshot, live=before.live) == ours
    theirs = step(before, take, AddExtent(extent()))
    with pytest.raises(ConflictError, match="no longer live") as error:
        rebase(ours, theirs.snapshot, live=theirs.live)
    assert (error.value.kind, error.value.facts["commit"]) == ("not_live", ours.id)


def test_two_widenings_merge_and_the_later_takes_the_earlier_ids() -> None:
    theirs = step(FIRST, UpdateTable(widened(SCHEMA, "host")))
    ours = commit_of(
        SCOPE, AddExtent(extent(1)), UpdateTable(widened(SCHEMA, "region")), AddExtent(extent(2, version=2)), base=1
    )
    fitted = rebase(ours, theirs.snapshot, live=())
    after = apply(theirs, [fitted], snapshot_id="s3", at_us=300)
    assert after.snapshot.schema.version == 3
    assert [(c.id, c.name) for c in after.snapshot.schema][-2:] == [(5, "host"), (6, "region")]
    assert [e.schema_version for e in after.extents.values()] == [1, 3]


def test_a_widening_that_is_there_already_is_left_out() -> None:
    theirs = step(
        step(FIRST, UpdateTable(widened(SCHEMA, "host"))), UpdateTable(widened(widened(SCHEMA, "host"), "region"))
    )
    batch = hot(version=2)
    ours = commit_of(SCOPE, UpdateTable(widened(SCHEMA, "region")), AppendHot(batch), base=1)
    assert rebase(ours, theirs.snapshot, live=()).actions == (AppendHot(replace(batch, schema_version=3)),)


def test_a_commit_of_nothing_but_a_widening_that_is_there_already_changes_nothing() -> None:
    wider = UpdateTable(widened(SCHEMA, "host"))
    theirs = step(FIRST, wider)
    fitted = rebase(commit_of(SCOPE, wider, base=1), theirs.snapshot, live=())
    after = apply(theirs, [fitted], snapshot_id="s3", at_us=1)
    assert after.snapshot.schema == theirs.snapshot.schema


def test_two_steps_of_widening_in_one_commit_are_both_carried_over() -> None:
    two = widened(SCHEMA, "a")
    three = widened(two, "b")
    ours = commit_of(
        SCOPE,
        UpdateTable(two),
        AddExtent(extent(version=2)),
        UpdateTable(three),
        AddExtent(extent(version=3)),
        base=1,
    )
    theirs = step(FIRST, UpdateTable(widened(SCHEMA, "x")))
    after = apply(theirs, [rebase(ours, theirs.snapshot, live=())], snapshot_id="s3", at_us=1)
    assert [e.schema_version for e in after.extents.values()] == [3, 4]
    assert after.snapshot.schema.names[-3:] == ("x", "a", "b")


def test_widenings_that_contradict_are_a_conflict() -> None:
    theirs = step(FIRST, UpdateTable(widened(SCHEMA, "code", kind="string")))
    ours = commit_of(SCOPE, UpdateTable(widened(SCHEMA, "code", kind="long")), base=1)
    with pytest.raises(ConflictError, match="do not merge") as error:
        rebase(ours, theirs.snapshot, live=())
    assert error.value.kind == "schema"


def test_a_claim_on_a_window_that_is_held_is_an_overlap() -> None:
    ours = commit_of(SCOPE, AddExtent(extent()), base=1, claims=(Claim("dev-1", 10, 20),))
    assert rebase(ours, FIRST.snapshot, live=(), held=lambda claim: claim.first > 20)
    with pytest.raises(OverlapError, match=r"entity=dev-1 buckets=10\.\.20"):
        rebase(ours, FIRST.snapshot, live=(), held=lambda claim: claim.last >= 20)


def test_gather_fits_commits_after_each_other_and_parts_those_forbidden() -> None:
    one = extent()
    before = step(FIRST, AddExtent(one))
    add = commit_of(SCOPE, UpdateTable(widened(SCHEMA, "a")), AddExtent(extent(version=2)), base=1)
    compact = commit_of(SCOPE, RemoveExtent(one.id), AddExtent(extent()), base=2)
    again = commit_of(SCOPE, RemoveExtent(one.id), AddExtent(extent()), base=2)
    other = commit_of(SCOPE, UpdateTable(widened(SCHEMA, "b")), AddExtent(extent(version=2)), base=1)
    wrong = commit_of(SCOPE, AddExtent(extent(version=9)), base=1)
    accepted, refused = gather([add, compact, again, other, wrong], before.snapshot, live=before.live)
    assert [commit.id for commit in accepted] == [add.id, compact.id, other.id]
    assert [(commit.id, error.kind) for commit, error in refused] == [(again.id, "not_live"), (wrong.id, "schema")]
    after = apply(before, accepted, snapshot_id="s3", at_us=1)
    assert after.snapshot.schema.names[-2:] == ("a", "b")
    assert after.snapshot.schema.version == 3


def test_gather_lets_one_of_two_claims_on_a_window_through() -> None:
    claims = [(Claim("e", 1, 5),), (Claim("e", 5, 9),), (Claim("f", 5, 9),), (Claim("e", 6, 9),)]
    commits = [commit_of(SCOPE, AddExtent(extent()), base=1, claims=claim) for claim in claims]
    accepted, refused = gather(commits, FIRST.snapshot, live=())
    assert [commits.index(replace(commit, base=1)) for commit in accepted] == [0, 2, 3]
    assert [error.kind for _, error in refused] == ["overlap"]


def test_advance_agrees_with_apply_over_a_random_life() -> None:
    rng = random.Random(7)
    manifest = FIRST
    for number in range(200):
        actions: list[Action] = [AddExtent(extent(rng.randrange(50))) for _ in range(rng.randrange(3))]
        actions += [AppendHot(hot(rng.randrange(9))) for _ in range(rng.randrange(3))]
        taken = rng.sample(sorted(manifest.extents), min(len(manifest.extents), rng.randrange(3)))
        dropped = rng.sample(sorted(manifest.hot), min(len(manifest.hot), rng.randrange(3)))
        actions += [RemoveExtent(item) for item in taken] + [DropHot(item) for item in dropped]
        actions.append(RecordOffset("s", number))
        manifest = step(manifest, *actions)
        rows = sum(e.row_count for e in manifest.extents.values())
        assert manifest.snapshot.totals == Counts(
            len(manifest.extents),
            rows,
            rows * 100,
            len(manifest.hot),
            sum(b.rows for b in manifest.hot.values()),
            sum(len(b.payload) for b in manifest.hot.values()),
        )


def test_a_user_follows_the_table_and_cannot_change_it() -> None:
    scope = Scope("t1", "ann")
    start = empty_snapshot(scope, SCHEMA, {"time": "ts"})
    after = advance(start, [commit_of(scope, AppendHot(hot()))], removed=Counts(), snapshot_id="u1", at_us=9)
    assert (after.sequence, after.parent_id, after.settings) == (1, None, {"time": "ts"})
    with pytest.raises(InvalidInputError, match="a user's scope cannot change its table"):
        commit_of(scope, UpdateTable(settings={"x": 1}))


def test_values_refuse_nonsense() -> None:
    with pytest.raises(InvalidInputError, match="at least one action"):
        Commit("c", SCOPE, 1, ())
    with pytest.raises(InvalidInputError, match="ends before it begins"):
        AddExtent(extent(times=(5, 4)))
    with pytest.raises(InvalidInputError, match="negative"):
        AddExtent(extent(-1))
    for key in ("", "a\nb", "a\x1fb", "é" * 513):
        with pytest.raises(InvalidInputError, match="idempotency key"):
            commit_of(SCOPE, AppendHot(hot()), key=key)
        with pytest.raises(InvalidInputError, match="stream"):
            RecordOffset(key, 1)
    with pytest.raises(InvalidInputError, match="numbered from 0"):
        RecordOffset("s", -1)


def test_keys_of_streams_and_callers_never_meet() -> None:
    by_key = commit_of(SCOPE, AppendHot(hot()), key="s7")
    by_stream = commit_of(SCOPE, AppendHot(hot()), RecordOffset("s", 7))
    assert not set(keys_of(by_key)) & set(keys_of(by_stream))


def test_ids_sort_by_time() -> None:
    assert make_id(1, 2**76 - 1) < make_id(2, 0)
    assert len(make_id(1_800_000_000_000_000, 5)) == 32


def everything() -> Commit:
    return commit_of(
        SCOPE,
        AddExtent(extent(stats={"service": {"distinct": ["a"], "tokens": None}})),
        RemoveExtent("e1"),
        UpdateTable(widened(SCHEMA, "a"), {"retention": "30d", "old": None}),
        UpdateCoverage(UnitedCoverage("c/1", 4)),
        AppendHot(hot()),
        DropHot("h1"),
        RecordOffset("stream", 3),
        base=4,
        key="batch-1",
        claims=(Claim("dev-1", -5, 7),),
        fence=Fence("u1", 2),
    )


def test_documents_are_read_as_they_were_written() -> None:
    commit = everything()
    manifest = step(step(FIRST, AddExtent(extent()), AppendHot(hot())), RecordOffset("s", 1))
    assert from_document(Commit, orjson.loads(orjson.dumps(to_document(commit)))) == commit
    assert from_document(Manifest, orjson.loads(orjson.dumps(to_document(manifest)))) == manifest
    assert from_document(Snapshot, orjson.loads(orjson.dumps(to_document(manifest.snapshot)))) == manifest.snapshot


def test_a_commit_keeps_its_stored_shape() -> None:
    document = to_document(Commit("c1", SCOPE, 3, (DropHot("h1"), RecordOffset("s", 2)), key="k"))
    assert document == {
        "tidelake": "commit",
        "version": 1,
        "id": "c1",
        "scope": {"table_id": "t1", "user": ""},
        "base": 3,
        "actions": [{"type": "DropHot", "batch_id": "h1"}, {"type": "RecordOffset", "stream": "s", "batch": 2}],
        "operation": "append",
        "key": "k",
        "claims": [],
        "fence": None,
    }


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"tidelake": "manifest"}, "not a stored commit"),
        ({"version": 0}, "not a stored commit version=0"),
        ({"version": True}, "not a stored commit version=True"),
        ({"base": "4"}, "expected int, found str at=Commit.base"),
        ({"base": True}, "expected int, found bool at=Commit.base"),
        ({"extra": 1}, "missing or unknown field 'extra'"),
        ({"actions": [{"type": "Explode"}]}, "type must be one of AddExtent"),
        ({"actions": [{"type": "DropHot"}]}, "missing or unknown field 'batch_id'"),
        ({"actions": []}, "at least one action"),
        ({"key": "a\nb"}, "idempotency key"),
        ({"scope": None}, "not an object at=Commit.scope"),
        ({"fence": {"unit_id": "u", "token": 1.5}}, "expected int, found float at=Commit.fence.token"),
    ],
)
def test_a_document_that_is_wrong_is_corrupt(change: dict[str, object], says: str) -> None:
    with pytest.raises(CorruptError) as error:
        from_document(Commit, {**to_document(everything()), **change})
    assert says in str(error.value)


def test_a_payload_that_is_not_base64_is_corrupt() -> None:
    document = to_document(commit_of(SCOPE, AppendHot(hot())))
    document["actions"][0]["batch"]["payload"] = "*"
    with pytest.raises(CorruptError, match=r"not base64 at=Commit\.actions\[0\]\.batch\.payload"):
        from_document(Commit, document)


def test_a_document_of_a_newer_version_is_refused_plainly() -> None:
    with pytest.raises(InvalidInputError, match="written by a newer tidelake version=2 reads=1"):
        from_document(Commit, {**to_document(everything()), "version": 2})
