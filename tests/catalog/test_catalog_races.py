"""Run every order of the steps of two commits that race, on each store."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.catalogs import SCHEMA, SQL_STORES, announce, append, commit_of, extent, hot, open_sql, place_of
from tests.support.stepping import Run, Worker, every_order
from tidelake.catalog.commit import Coordinator
from tidelake.catalog.protocol import new_id
from tidelake.catalog.sql.sql_catalog import SqlCatalog
from tidelake.errors import ConflictError
from tidelake.model.schema import DataType
from tidelake.model.snapshot import AddExtent, AppendHot, Commit, RemoveExtent, Scope, UpdateTable

# Where a commit stops: it has the head; it is about to swap; it has swapped; it is about to COMMIT.
POINTS = {
    "sqlite": ("coordinator.head", "coordinator.commit", "commit.swapped", "transaction.written"),
    "postgres": ("coordinator.head", "transaction.begun", "commit.swapped", "transaction.written"),
}


class World:
    """One store, one table for each run, and each worker with a catalog of its own, like a process."""

    def __init__(self, store: str, where: str) -> None:
        self.points = POINTS[store]
        self.catalog = open_sql(where)
        self.scope = Scope("")
        self._hooks: dict[str, Callable[[str], None]] = {}
        self._catalogs = {name: open_sql(where, at=self._hook(name)) for name in ("a", "b")}

    def close(self) -> None:
        for catalog in (self.catalog, *self._catalogs.values()):
            catalog.close()

    def waits(self, mine: str, other: str) -> bool:
        """Would one who is about to swap wait for one who has?"""
        return mine == self.points[1] and other in self.points[2:]

    def runs(self, build: Callable[[SqlCatalog, Scope], Mapping[str, Commit]]) -> Iterator[Run]:
        """Run two commits on a new table in every order."""

        def fresh() -> Mapping[str, Worker]:
            self.scope = self.catalog.create_table(f"t{new_id()}", SCHEMA, {}).scope
            return {name: self._worker(name, commit) for name, commit in build(self.catalog, self.scope).items()}

        return every_order(fresh, self.points, self.waits)

    def _worker(self, name: str, commit: Commit) -> Worker:
        def work(at: Callable[[str], None]) -> object:
            self._hooks[name] = at
            return Coordinator(self._catalogs[name], at=at, sleep_s=lambda _: None).commit(commit)

        return work

    def _hook(self, name: str) -> Callable[[str], None]:
        return lambda point: self._hooks[name](point) if name in self._hooks else None


@pytest.fixture(params=SQL_STORES)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    made = World(request.param, place_of(request.param, request, tmp_path))
    yield made
    made.close()


def test_two_appends_are_both_in_whatever_the_order(world: World) -> None:
    added: dict[str, Commit] = {}

    def build(catalog: SqlCatalog, scope: Scope) -> Mapping[str, Commit]:
        for name in ("a", "b"):
            added[name] = announce(catalog, commit_of(scope, AddExtent(extent(1)), AppendHot(hot(1)), base=1))
        return added

    orders = set()
    for run in world.runs(build):
        orders.add(tuple(run.order))
        assert [outcome.error for outcome in run.outcomes.values()] == [None, None], run.order
        manifest = world.catalog.manifest(world.scope)
        assert manifest.snapshot.sequence == 3, run.order
        assert manifest.snapshot.totals.rows == 2, run.order
        assert {e.added_seq for e in manifest.extents.values()} == {2, 3}, run.order
        sequences = {outcome.result.commit_id: outcome.result.sequence for outcome in run.outcomes.values()}
        assert sorted(sequences.values()) == [2, 3]
        for name, commit in added.items():
            assert manifest.extents[commit.actions[0].extent.id].added_seq == sequences[commit.id], (name, run.order)  # type: ignore[union-attr]
    assert len(orders) > 20


def test_of_two_compactions_of_the_same_extents_one_is_in(world: World) -> None:
    def build(catalog: SqlCatalog, scope: Scope) -> Mapping[str, Commit]:
        inputs = [append(catalog, scope), append(catalog, scope)]
        taken = [RemoveExtent(each.id) for each in inputs]
        return {
            name: announce(catalog, commit_of(scope, *taken, AddExtent(extent(20, level=1)), base=3)) for name in "ab"
        }

    winners = set()
    for run in world.runs(build):
        failed = {name: outcome.error for name, outcome in run.outcomes.items() if outcome.error}
        assert len(failed) == 1, run.order
        ((loser, error),) = failed.items()
        assert isinstance(error, ConflictError)
        assert error.kind == "not_live"
        winners.add({"a": "b", "b": "a"}[loser])
        manifest = world.catalog.manifest(world.scope)
        assert (manifest.snapshot.sequence, manifest.snapshot.totals.rows) == (4, 20), run.order
        assert len(world.catalog.pending(table_id=world.scope.table_id)) == 1
    assert winners == {"a", "b"}


def test_an_append_never_conflicts_with_a_compaction(world: World) -> None:
    def build(catalog: SqlCatalog, scope: Scope) -> Mapping[str, Commit]:
        inputs = [append(catalog, scope), append(catalog, scope)]
        taken = [RemoveExtent(each.id) for each in inputs]
        return {
            "a": announce(catalog, commit_of(scope, AddExtent(extent(5)), base=3)),
            "b": announce(catalog, commit_of(scope, *taken, AddExtent(extent(20, level=1)), base=3)),
        }

    for run in world.runs(build):
        assert [outcome.error for outcome in run.outcomes.values()] == [None, None], run.order
        manifest = world.catalog.manifest(world.scope)
        assert (manifest.snapshot.sequence, manifest.snapshot.totals.rows) == (5, 25), run.order


def test_two_widenings_merge_whatever_the_order(world: World) -> None:
    def build(catalog: SqlCatalog, scope: Scope) -> Mapping[str, Commit]:
        commits = {}
        for name in "ab":
            wider = UpdateTable(SCHEMA.widen([(name, DataType.parse("long"))]))
            commits[name] = announce(catalog, commit_of(scope, wider, AddExtent(extent(version=2)), base=1))
        return commits

    for run in world.runs(build):
        assert [outcome.error for outcome in run.outcomes.values()] == [None, None], run.order
        head = world.catalog.head(world.scope)
        assert set(head.schema.names) == {*SCHEMA.names, "a", "b"}, run.order
        assert [column.id for column in head.schema] == [1, 2, 3, 4, 5, 6]
        assert sorted(e.schema_version for e in world.catalog.extents(world.scope)) == [2, 3], run.order


def test_the_same_key_from_two_writers_is_one_commit(world: World) -> None:
    def build(catalog: SqlCatalog, scope: Scope) -> Mapping[str, Commit]:
        return {name: announce(catalog, commit_of(scope, AddExtent(extent()), base=1, key="k")) for name in "ab"}

    for run in world.runs(build):
        receipts = [outcome.result for outcome in run.outcomes.values()]
        assert sorted(receipt.replayed for receipt in receipts) == [False, True], run.order
        assert len({replace(receipt, replayed=False) for receipt in receipts}) == 1, run.order
        assert len(world.catalog.extents(world.scope)) == 1, run.order


def test_a_users_first_two_commits_are_both_in(world: World) -> None:
    def build(catalog: SqlCatalog, scope: Scope) -> Mapping[str, Commit]:
        ann = Scope(scope.table_id, "ann")
        return {name: commit_of(ann, AppendHot(hot(1))) for name in "ab"}

    for run in world.runs(build):
        assert [outcome.error for outcome in run.outcomes.values()] == [None, None], run.order
        head = world.catalog.head(Scope(world.scope.table_id, "ann"))
        assert (head.sequence, head.totals.hot_rows) == (2, 2), run.order
