"""Check how commits get in: groups, rebases, retries, and answers that were lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest

from tests.support.catalogs import (
    SCHEMA,
    SQL_STORES,
    FaultyCatalog,
    PostgresProxy,
    announce,
    append,
    append_hot,
    commit_of,
    extent,
    fresh_schema,
    hot,
    open_sql,
    place_of,
    publish,
)
from tidelake.catalog.commit import Coordinator
from tidelake.catalog.protocol import Catalog, StaleHead
from tidelake.errors import (
    CommitUnknownError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
    OverlapError,
    StorageError,
    UnavailableError,
)
from tidelake.model.schema import DataType
from tidelake.model.snapshot import (
    AddExtent,
    AppendHot,
    Claim,
    Commit,
    DropHot,
    Held,
    Receipt,
    RecordOffset,
    RemoveExtent,
    Scope,
    Snapshot,
    UpdateTable,
)


@pytest.fixture(params=SQL_STORES)
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Catalog]:
    with open_sql(place_of(request.param, request, tmp_path)) as opened:
        yield opened


@pytest.fixture
def scope(catalog: Catalog) -> Scope:
    return catalog.create_table("obs.logs", SCHEMA, {}).scope


class Patience:
    """A clock that moves only by sleeping, and remembers every pause."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.pauses: list[float] = []

    def clock(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now_s += seconds


def coordinate(catalog: Any, patience: Patience | None = None, **words: Any) -> Coordinator:
    """Open a coordinator that does not really sleep."""
    patience = patience or Patience()
    return Coordinator(
        cast(Catalog, catalog), clock_s=patience.clock, sleep_s=patience.sleep, chance=lambda: 1.0, **words
    )


def adding(catalog: Catalog, scope: Scope, rows: int = 10, **words: Any) -> Commit:
    return announce(catalog, commit_of(scope, AddExtent(extent(rows)), **words))


class Gate:
    """Hold the first to come to a point until it is opened, so that others pile up behind."""

    def __init__(self, point: str) -> None:
        self._point = point
        self._opened = threading.Event()
        self.reached = threading.Event()

    def __call__(self, point: str) -> None:
        if point == self._point:
            self.reached.set()
            assert self._opened.wait(30)

    def open(self) -> None:
        self._opened.set()


def pile_up(catalog: Catalog, commits: list[Commit], coordinator_of: Callable[[Gate], Coordinator]) -> list[Any]:
    """Commit the first, and while it is under way all others, so that those share the next snapshot."""
    gate = Gate("coordinator.commit")
    coordinator = coordinator_of(gate)

    def answer(commit: Commit) -> Receipt | Exception:
        try:
            return coordinator.commit(commit)
        except Exception as error:
            return error

    with ThreadPoolExecutor(len(commits)) as threads:
        first = threads.submit(answer, commits[0])
        assert gate.reached.wait(30)
        rest = [threads.submit(answer, commit) for commit in commits[1:]]
        while len(coordinator._lanes.get(commits[0].scope, ())) < len(rest):
            pass
        gate.open()
        return [first.result(30), *(each.result(30) for each in rest)]


def test_a_lone_commit_gets_its_receipt(catalog: Catalog, scope: Scope) -> None:
    receipt = coordinate(catalog).commit(adding(catalog, scope, 7))
    assert (receipt.sequence, receipt.rows, receipt.extents, receipt.replayed) == (2, 7, 1, False)
    assert receipt.snapshot_id == catalog.head(scope).id


def test_one_writer_never_asks_for_the_head_again(catalog: Catalog, scope: Scope) -> None:
    heads = []

    class Counting(FaultyCatalog):
        def head(self, scope: Scope) -> Snapshot:
            heads.append(scope)
            return self._catalog.head(scope)

    coordinator = coordinate(Counting(catalog))
    for number in range(5):
        assert coordinator.commit(adding(catalog, scope)).sequence == number + 2
    assert len(heads) == 1
    assert coordinator.head(scope) == catalog.head(scope)


def test_commits_that_arrive_together_share_a_snapshot(catalog: Catalog, scope: Scope) -> None:
    commits = [adding(catalog, scope, n) for n in range(1, 9)]
    receipts = pile_up(catalog, commits, lambda gate: coordinate(catalog, at=gate))
    assert [(r.commit_id, r.rows) for r in receipts] == [(c.id, n) for n, c in enumerate(commits, 1)]
    assert [r.sequence for r in receipts] == [2] + [3] * 7
    assert catalog.head(scope).totals.extents == 8


def test_a_commit_that_a_rule_forbids_fails_alone_in_its_group(catalog: Catalog, scope: Scope) -> None:
    one = append(catalog, scope)
    wider = UpdateTable(SCHEMA.widen([("code", DataType.parse("long"))]))
    other = UpdateTable(SCHEMA.widen([("code", DataType.parse("string"))]))
    commits = [
        adding(catalog, scope),
        adding(catalog, scope),
        announce(catalog, commit_of(scope, RemoveExtent(one.id), AddExtent(extent()))),
        announce(catalog, commit_of(scope, RemoveExtent(one.id), AddExtent(extent()))),
        commit_of(scope, wider),
        commit_of(scope, other),
        commit_of(scope, AddExtent(extent())),  # nobody announced it
        announce(catalog, commit_of(scope, AddExtent(replace(extent(), id=one.id)))),
        adding(catalog, scope),
    ]
    answers = pile_up(catalog, commits, lambda gate: coordinate(catalog, at=gate))
    kinds = [answer.kind if isinstance(answer, Exception) else "in" for answer in answers]  # type: ignore[attr-defined]
    assert kinds == ["in", "in", "in", "not_live", "in", "schema", "not_pending", "added_twice", "in"]
    assert catalog.head(scope).totals.extents == 4


def test_groups_are_bounded(catalog: Catalog, scope: Scope, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelake.catalog.commit.MAX_GROUP", 3)
    commits = [adding(catalog, scope) for _ in range(8)]
    receipts = pile_up(catalog, commits, lambda gate: coordinate(catalog, at=gate))
    assert sorted(r.sequence for r in receipts) == [2, 3, 3, 3, 4, 4, 4, 5]


def test_scopes_do_not_wait_for_each_other(catalog: Catalog, scope: Scope) -> None:
    gate = Gate("coordinator.commit")
    held = threading.Event()

    def at(point: str) -> None:
        if not held.is_set():
            held.set()
            gate(point.replace("coordinator.head", "coordinator.commit"))

    coordinator = coordinate(catalog, at=at)
    with ThreadPoolExecutor(1) as threads:
        slow = threads.submit(coordinator.commit, commit_of(scope, AppendHot(hot())))
        assert gate.reached.wait(30)
        ann = Scope(scope.table_id, "ann")
        assert coordinator.commit(commit_of(ann, AppendHot(hot()))).sequence == 1
        gate.open()
        assert slow.result(30).sequence == 2


def test_many_threads_lose_nothing(catalog: Catalog, scope: Scope) -> None:
    coordinator = Coordinator(catalog)

    def work(number: int) -> list[int]:
        return [coordinator.commit(adding(catalog, scope, 1)).sequence for _ in range(10)]

    with ThreadPoolExecutor(8) as threads:
        sequences = [each for found in threads.map(work, range(8)) for each in found]
    head = catalog.head(scope)
    assert (len(sequences), head.totals.rows, len(catalog.extents(scope))) == (80, 80, 80)
    assert head.sequence == max(sequences) <= 81
    assert catalog.pending() == []


def test_a_lost_race_is_rebased_at_once_and_later_ones_after_a_pause(catalog: Catalog, scope: Scope) -> None:
    patience = Patience()
    races = [3]

    class Racing(FaultyCatalog):
        def commit(self, commits: Any, *, onto: Snapshot, rebase: bool = False) -> list[Receipt]:
            if races[0]:
                races[0] -= 1
                append(self._catalog, scope)
            return self._catalog.commit(commits, onto=onto)  # a store that cannot hold its head still

    receipt = coordinate(Racing(catalog), patience).commit(adding(catalog, scope))
    assert receipt.sequence == 5
    assert len(patience.pauses) == 2
    assert patience.pauses[0] < patience.pauses[1]


def test_what_a_coordinator_remembers_stays_true_among_other_writers(catalog: Catalog, scope: Scope) -> None:
    ours, theirs = coordinate(catalog), coordinate(catalog)
    for who in (ours, ours, theirs, ours, theirs, theirs, ours, ours, ours, theirs, ours, theirs, ours, ours):
        who.commit(adding(catalog, scope, 3))
    head = catalog.head(scope)
    assert (head.sequence, head.totals.extents, head.totals.rows) == (15, 14, 42)
    assert ours.head(scope) == head
    assert [s.totals.extents for s in catalog.history(scope)] == list(range(14, -1, -1))


def test_a_commit_that_never_gets_its_turn_is_unavailable(catalog: Catalog, scope: Scope) -> None:
    patience = Patience()

    class Losing(FaultyCatalog):
        def commit(self, commits: Any, *, onto: Snapshot, rebase: bool = False) -> list[Receipt]:
            raise StaleHead("commit lost the race", head=self._catalog.head(scope))

    with pytest.raises(UnavailableError, match="did not get its turn"):
        coordinate(Losing(catalog), patience, patience_s=5).commit(adding(catalog, scope))
    assert 5 <= patience.now_s < 5.5
    assert max(patience.pauses) <= 0.25


def test_a_compaction_that_lost_its_inputs_is_a_conflict_and_leaves_its_output_pending(
    catalog: Catalog, scope: Scope
) -> None:
    one = append(catalog, scope)
    coordinator = coordinate(catalog)
    coordinator.head(scope)
    publish(catalog, scope, RemoveExtent(one.id))
    ours = announce(catalog, commit_of(scope, RemoveExtent(one.id), AddExtent(extent()), base=2))
    with pytest.raises(ConflictError, match="no longer live"):
        coordinator.commit(ours)
    assert len(catalog.pending()) == 1


def test_a_compaction_built_on_what_this_process_has_not_seen_is_in(catalog: Catalog, scope: Scope) -> None:
    coordinator = coordinate(catalog)
    coordinator.commit(adding(catalog, scope))
    one, batch = append(catalog, scope), append_hot(catalog, scope)
    ours = announce(catalog, commit_of(scope, RemoveExtent(one.id), DropHot(batch.id), AddExtent(extent())))
    assert coordinator.commit(ours).sequence == 5
    assert coordinator.commit(adding(catalog, scope)).sequence == 6
    assert catalog.head(scope).totals.extents == 3


def test_a_users_commit_under_a_schema_this_process_has_not_seen_is_in(catalog: Catalog, scope: Scope) -> None:
    ann = Scope(scope.table_id, "ann")
    coordinator = coordinate(catalog)
    coordinator.commit(commit_of(ann, AppendHot(hot())))
    publish(catalog, scope, UpdateTable(SCHEMA.widen([("host", DataType.parse("string"))])))
    assert coordinator.commit(commit_of(ann, AppendHot(hot(version=2)))).sequence == 2


def test_a_commit_of_a_dropped_table_is_not_found(catalog: Catalog, scope: Scope) -> None:
    coordinator = coordinate(catalog)
    coordinator.commit(adding(catalog, scope))
    catalog.drop_table("obs.logs")
    with pytest.raises(NotFoundError, match="no such table, or it was dropped"):
        coordinator.commit(commit_of(scope, AppendHot(hot())))


def test_claims_are_judged_against_the_head_that_is_committed_on(catalog: Catalog, scope: Scope) -> None:
    judged = []

    def held_at(snapshot: Snapshot) -> Held:
        judged.append(snapshot.sequence)
        return lambda claim: snapshot.sequence > 2 and claim.first <= 5 <= claim.last

    coordinator = coordinate(catalog, held_at=held_at)
    assert coordinator.commit(adding(catalog, scope, claims=(Claim("e", 1, 9),))).sequence == 2
    append(catalog, scope)
    with pytest.raises(OverlapError, match="entity=e"):
        coordinator.commit(adding(catalog, scope, claims=(Claim("e", 5, 5),)))
    assert coordinator.commit(adding(catalog, scope, claims=(Claim("e", 6, 6),))).sequence == 4
    assert judged[0] == 1
    assert 3 in judged


# once


def test_a_replayed_key_gets_the_first_receipt(catalog: Catalog, scope: Scope) -> None:
    coordinator = coordinate(catalog)
    first = coordinator.commit(adding(catalog, scope, 7, key="k"))
    again = coordinator.commit(adding(catalog, scope, 9, key="k"))
    other = coordinate(catalog).commit(adding(catalog, scope, 9, key="k"))
    assert again == other == replace(first, replayed=True)
    assert coordinator.commit(adding(catalog, scope, 1)).sequence == 3


def test_a_replayed_flush_is_a_replay_and_not_a_conflict(catalog: Catalog, scope: Scope) -> None:
    batch = append_hot(catalog, scope)
    coordinator = coordinate(catalog)
    flush = announce(catalog, commit_of(scope, DropHot(batch.id), AddExtent(extent()), key="flush-1"))
    first = coordinator.commit(flush)
    again = announce(catalog, commit_of(scope, DropHot(batch.id), AddExtent(extent()), key="flush-1"))
    assert coordinator.commit(again) == replace(first, replayed=True)
    assert coordinator.commit(flush) == replace(first, replayed=True)
    batchwise = announce(catalog, commit_of(scope, AddExtent(extent()), RecordOffset("s", 1)))
    assert not coordinator.commit(batchwise).replayed


def test_threads_with_one_key_make_one_commit(catalog: Catalog, scope: Scope) -> None:
    commits = [adding(catalog, scope, n, key="k") for n in range(1, 7)]
    receipts = pile_up(catalog, commits, lambda gate: coordinate(catalog, at=gate))
    assert {replace(r, replayed=False) for r in receipts} == {receipts[0]}
    assert [r.replayed for r in receipts] == [False] + [True] * 5
    assert catalog.head(scope).totals.rows == 1


def test_one_commit_from_two_threads_is_one_commit(catalog: Catalog, scope: Scope) -> None:
    ours = adding(catalog, scope)
    first = adding(catalog, scope)
    receipts = pile_up(catalog, [first, ours, ours], lambda gate: coordinate(catalog, at=gate))
    assert receipts[1].sequence == receipts[2].sequence == 3
    assert catalog.head(scope).totals.extents == 2


# answers that were lost


@pytest.mark.parametrize("fault", ["lost", "undone", "before"])
def test_a_lost_answer_is_looked_up_before_anything_is_tried_again(catalog: Catalog, scope: Scope, fault: str) -> None:
    faulty = FaultyCatalog(catalog)
    faulty.plan = [fault]
    receipt = coordinate(faulty).commit(adding(catalog, scope, key="k"))
    assert (receipt.sequence, receipt.replayed) == (2, False)
    assert faulty.commits == {"lost": 1, "undone": 2, "before": 2}[fault]
    assert len(catalog.extents(scope)) == 1


def test_a_lost_answer_of_a_flush_is_found(catalog: Catalog, scope: Scope) -> None:
    batch = append_hot(catalog, scope)
    faulty = FaultyCatalog(catalog)
    faulty.plan = ["lost"]
    flush = announce(catalog, commit_of(scope, DropHot(batch.id), AddExtent(extent())))
    assert coordinate(faulty).commit(flush).sequence == 3


def test_lost_answers_again_and_again_make_one_commit(catalog: Catalog, scope: Scope) -> None:
    faulty = FaultyCatalog(catalog)
    faulty.plan = ["undone", "before", "undone", "lost"]
    faulty.silent_receipts = 2
    receipt = coordinate(faulty).commit(adding(catalog, scope))
    assert (receipt.sequence, receipt.replayed) == (2, False)
    assert catalog.head(scope).sequence == 2


def test_a_group_whose_answer_was_lost_is_all_found(catalog: Catalog, scope: Scope) -> None:
    faulty = FaultyCatalog(catalog)
    faulty.plan = ["ok", "lost"]
    commits = [adding(catalog, scope, n) for n in range(1, 6)]
    receipts = pile_up(catalog, commits, lambda gate: coordinate(faulty, at=gate))
    assert [(r.sequence, r.replayed) for r in receipts] == [(2, False)] + [(3, False)] * 4
    assert faulty.commits == 2


def test_an_outcome_nobody_can_tell_is_unknown(catalog: Catalog, scope: Scope) -> None:
    faulty = FaultyCatalog(catalog)
    faulty.plan = ["lost"]
    faulty.silent_receipts = 10**6
    patience = Patience()
    ours = adding(catalog, scope)
    with pytest.raises(CommitUnknownError, match=f"not known whether a commit happened commit={ours.id}"):
        coordinate(faulty, patience, patience_s=5).commit(ours)
    assert patience.now_s >= 5
    faulty.silent_receipts = 0
    again = coordinate(faulty).commit(ours)  # look, then act: the same commit again finds itself
    assert (again.sequence, again.replayed) == (2, True)


def test_an_outcome_stays_unknown_when_no_later_try_gets_through(catalog: Catalog, scope: Scope) -> None:
    faulty = FaultyCatalog(catalog)
    faulty.plan = ["undone", *["before"] * 1000]
    with pytest.raises(CommitUnknownError):
        coordinate(faulty, patience_s=5).commit(adding(catalog, scope))


def test_a_catalog_that_stays_away_is_a_storage_error(catalog: Catalog, scope: Scope) -> None:
    faulty = FaultyCatalog(catalog)
    faulty.plan = ["before"] * 1000
    with pytest.raises(StorageError, match="cannot be reached"):
        coordinate(faulty, patience_s=5).commit(adding(catalog, scope))
    assert catalog.head(scope).sequence == 1


def test_a_leader_that_is_interrupted_leaves_the_others_with_an_answer(catalog: Catalog, scope: Scope) -> None:
    class Interrupted(FaultyCatalog):
        def commit(self, commits: Any, *, onto: Snapshot, rebase: bool = False) -> list[Receipt]:
            if len(commits) > 1:
                raise KeyboardInterrupt
            return self._catalog.commit(commits, onto=onto, rebase=rebase)

    commits = [adding(catalog, scope) for _ in range(4)]
    gate = Gate("coordinator.commit")
    coordinator = coordinate(Interrupted(catalog), at=gate)
    answers: dict[str, BaseException] = {}

    def answer(commit: Commit) -> None:
        try:
            coordinator.commit(commit)
        except BaseException as error:
            answers[commit.id] = error

    threads = [threading.Thread(target=answer, args=(commit,)) for commit in commits]
    threads[0].start()
    assert gate.reached.wait(30)
    for thread in threads[1:]:
        thread.start()
    while len(coordinator._lanes.get(scope, ())) < 3:
        pass
    gate.open()
    for thread in threads:
        thread.join(30)
    kinds = sorted(type(error).__name__ for error in answers.values())
    assert kinds == ["CommitUnknownError", "CommitUnknownError", "KeyboardInterrupt"]
    assert coordinator.commit(adding(catalog, scope)).sequence == 3


def test_a_bug_reaches_every_commit_of_the_group(catalog: Catalog, scope: Scope) -> None:
    class Broken(FaultyCatalog):
        def commit(self, commits: Any, *, onto: Snapshot, rebase: bool = False) -> list[Receipt]:
            raise ZeroDivisionError("a bug")

    coordinator = coordinate(Broken(catalog))
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            coordinator.commit(adding(catalog, scope))


# a real server that goes away


def test_a_killed_backend_before_its_commit_is_tried_again(postgres: str) -> None:
    kills = []

    def at(point: str) -> None:
        if point == "transaction.written" and armed:
            armed.clear()
            with psycopg.connect(postgres, autocommit=True) as other:
                found = other.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE application_name = 'tidelake' AND state = 'idle in transaction'"
                ).fetchall()
                kills.append(len(found))

    armed: list[bool] = []
    with open_sql(fresh_schema(postgres), at=at) as catalog:
        scope = catalog.create_table("t", SCHEMA, {}).scope
        coordinator = Coordinator(catalog)
        coordinator.commit(adding(catalog, scope))
        ours = adding(catalog, scope)
        armed.append(True)
        receipt = coordinator.commit(ours)
        assert kills == [1]
        assert (receipt.sequence, receipt.replayed) == (3, False)
        assert len(catalog.extents(scope)) == 2


@pytest.mark.parametrize("delay_s", [0.0, 0.5])
def test_a_commit_whose_answer_the_network_lost_happened_once(postgres: str, delay_s: float) -> None:
    proxy = PostgresProxy(postgres)
    where = fresh_schema(postgres)
    scheme_and_host = where.rpartition("/")[0]
    with open_sql(where.replace(scheme_and_host, proxy.url.rpartition("/")[0]), at=proxy.at) as catalog:
        scope = catalog.create_table("t", SCHEMA, {}).scope
        ann = Scope(scope.table_id, "ann")
        coordinator = Coordinator(catalog)
        batch = append_hot(catalog, scope)
        flush = announce(catalog, commit_of(scope, DropHot(batch.id), AddExtent(extent())))
        for commit, sequence in ((adding(catalog, scope), 3), (flush, 4), (commit_of(ann, AppendHot(hot())), 1)):
            proxy.delay_s, proxy.will_cut = delay_s, True
            receipt = coordinator.commit(commit)
            assert not proxy.will_cut
            assert (receipt.commit_id, receipt.sequence, receipt.replayed) == (commit.id, sequence, False)
        assert catalog.head(scope).sequence == 4
        assert catalog.head(ann).sequence == 1
    proxy.close()


def test_a_connection_that_died_in_the_pool_is_replaced(postgres: str) -> None:
    with open_sql(fresh_schema(postgres)) as catalog:
        scope = catalog.create_table("t", SCHEMA, {}).scope
        append(catalog, scope)

        def kill() -> None:
            with psycopg.connect(postgres, autocommit=True) as other:
                other.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tidelake'"
                )

        kill()
        assert catalog.head(scope).sequence == 2
        kill()
        assert append(catalog, scope).added_seq == 3
        kill()
        assert len(catalog.history(scope)) == 3


def test_a_commit_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidInputError):
        commit_of(Scope("t"))
