"""Drive catalogs and coordinators through random work, and hold all they say against plain lists of rows.

Two processes, each with a catalog and a coordinator of its own, work on the same tables: append, flush, widen, compact,
expire, collect, lose answers, crash at any point and come back. The lists say which rows each snapshot must have; rows
are numbers, each appended once, so one that is lost or doubled shows. Objects are kept in a dict, so one that is
deleted too early shows as well. It does not run two commits at the same time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import ClassVar, cast

import orjson
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.support.catalogs import SQL_STORES, FaultyCatalog, Ticking, open_sql, place_of
from tidelake.catalog import Catalog, Pending
from tidelake.catalog.commit import Coordinator
from tidelake.catalog.log.log_catalog import open_log_catalog
from tidelake.catalog.protocol import StepHook, no_hook
from tidelake.errors import ConflictError, NotFoundError
from tidelake.model.schema import DataType, Schema
from tidelake.model.snapshot import (
    Action,
    AddExtent,
    AppendHot,
    Commit,
    DropHot,
    Extent,
    HotBatch,
    Manifest,
    Receipt,
    RecordOffset,
    RemoveExtent,
    Scope,
    UpdateTable,
)

SCHEMA = Schema.of({"row": "long"})
EXAMPLES = {"sqlite": 24, "postgres": 5, "log": 15}
STEPS = 60

# A crash at these points is after the commit; at the others, before.
AFTER = ("transaction.committed", "commit.end", "log.published", "log.followed", "log.pointed", "log.end")
BEFORE = ("commit.begin", "transaction.begun", "commit.swapped", "transaction.written", "log.begin")

Open = Callable[[Ticking, StepHook], Catalog]


@dataclass(frozen=True, slots=True)
class Shot:
    """What one snapshot must show: its extents and hot batches with their rows, and the added columns."""

    sequence: int
    at_us: int
    schema: Schema
    extents: dict[str, list[int]] = field(default_factory=dict)
    hot: dict[str, list[int]] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)

    @property
    def rows(self) -> list[int]:
        return sorted(row for held in (self.extents, self.hot) for rows in held.values() for row in rows)


class Crash(BaseException):
    """The process ends here."""


@dataclass(slots=True)
class Process:
    """A catalog, with a door that can lose answers, and the coordinator that commits through it."""

    catalog: Catalog
    faulty: FaultyCatalog
    coordinator: Coordinator


processes = st.integers(0, 1)
small = st.integers(0, 3)
faults = st.sampled_from(["ok", "ok", "ok", "before", "lost", "undone"])


class CatalogMachine(RuleBasedStateMachine):
    """Any order of the rules; after each, every scope's head must be as the lists say."""

    fresh: ClassVar[Callable[[], Open]]
    users: ClassVar[tuple[str, ...]]

    def __init__(self) -> None:
        super().__init__()
        self.clock = Ticking()
        self.crash_at = ""
        self.opened: list[Catalog] = []
        self.open = type(self).fresh()
        self.names, self.numbers = count(1), count(1)
        self.processes = [self._start(), self._start()]
        self.past: dict[Scope, list[Shot]] = {}
        self.objects: dict[str, list[int]] = {}
        self.pending: set[str] = set()
        self.garbage: set[str] = set()
        self.begun: list[Commit] = []  # whose extents are written, to be committed later
        self.answered: list[tuple[Commit, Receipt]] = []
        self.offsets: dict[tuple[Scope, str], int] = {}

    @initialize()
    def create(self) -> None:
        info = self.processes[0].catalog.create_table("t", SCHEMA, {})
        head = self.processes[0].catalog.head(info.scope)
        for user in self.users:
            self.past[Scope(info.id, user)] = []
        self.past[info.scope] = [Shot(1, head.committed_us, SCHEMA)]

    # writing

    @rule(process=processes, scope=small, rows=st.integers(1, 3), keyed=st.booleans(), fault=faults)
    def append(self, process: int, scope: int, rows: int, keyed: bool, fault: str) -> None:
        commit = self._append(process, scope, rows, key=self._name("key") if keyed else None)
        self._publish(process, commit, fault=fault)

    @rule(process=processes, scope=small, rows=st.integers(1, 3), fault=faults)
    def append_hot(self, process: int, scope: int, rows: int, fault: str) -> None:
        where = self._scope(scope)
        self._publish(process, self._commit(where, self._hot(where, rows)), fault=fault)

    @rule(process=processes, scope=small, stream=st.sampled_from("xy"), batch=st.integers(0, 6))
    def append_stream(self, process: int, scope: int, stream: str, batch: int) -> None:
        where = self._scope(scope)
        commit = self._commit(where, self._hot(where, 1), RecordOffset(stream, batch))
        if batch > self.offsets.get((where, stream), -1):
            self._publish(process, commit)
            self.offsets[where, stream] = batch
        else:
            assert self.processes[process].coordinator.commit(commit).replayed

    @rule(process=processes, scope=small, fault=faults)
    def flush(self, process: int, scope: int, fault: str) -> None:
        where = self._scope(scope)
        hot = self._last(where).hot
        if hot:
            added = self._write(process, where, [row for rows in hot.values() for row in rows])
            self._publish(process, self._commit(where, added, *(DropHot(batch) for batch in hot)), fault=fault)

    @rule(process=processes, scope=small, at=small, first=small, fault=faults)
    def compact(self, process: int, scope: int, at: int, first: int, fault: str) -> None:
        """Compact all but the first extents of a snapshot that may be old by now."""
        where = self._scope(scope)
        shot = self._recent(where, at)
        inputs = list(shot.extents)[first % max(len(shot.extents), 1) :]
        if not inputs or not all(_key(name) in self.objects for name in inputs):
            return
        added = self._write(process, where, [row for name in inputs for row in shot.extents[name]])
        removed = (RemoveExtent(name) for name in inputs)
        commit = self._commit(where, added, *removed, base=shot.sequence)
        if set(inputs) <= self._last(where).extents.keys():
            self._publish(process, commit, fault=fault)
        else:
            self._is_refused(process, commit, "not_live")

    @rule(process=processes, at=small, name=st.sampled_from("uvw"), kind=st.sampled_from(["int", "long"]), fault=faults)
    def widen(self, process: int, at: int, name: str, kind: str, fault: str) -> None:
        """Add or widen a column of a schema that may be old by now."""
        shot = self._recent(self._scope(0), at)
        wanted = UpdateTable(shot.schema.widen([(name, DataType.parse(kind))]))
        if wanted.schema != shot.schema:
            commit = self._commit(self._scope(0), wanted, base=shot.sequence)
            self._publish(process, commit, fault=fault, columns={name: kind})

    @precondition(lambda self: self.answered)
    @rule(process=processes, at=st.integers(0, 20))
    def repeat(self, process: int, at: int) -> None:
        """Commit again what is in, as one who lost the answer does, and then other rows with the same key."""
        first, receipt = self.answered[at % len(self.answered)]
        coordinator = self.processes[process].coordinator
        assert coordinator.commit(first) == replace(receipt, replayed=True)
        if first.key is not None:
            commit = replace(self._append(process, first.scope, 1, key=first.key), base=first.base)
            assert coordinator.commit(commit) == replace(receipt, replayed=True)
            self._release(process, commit)

    @rule(process=processes, scope=small, point=st.sampled_from(AFTER + BEFORE), again=processes)
    def crash_while_appending(self, process: int, scope: int, point: str, again: int) -> None:
        """Lose a process at a point of a commit, come back, and append the same with the same key."""
        commit = self._append(process, scope, 2, key=self._name("key"))
        self.crash_at = point
        try:
            receipt = self.processes[process].coordinator.commit(commit)
            happened = True
        except Crash:
            happened = point in AFTER
        finally:
            self.crash_at = ""
        self.processes[process] = self._start()
        found = self.processes[again].catalog.receipt(commit.scope, key=commit.key)
        assert (found is not None) == happened
        if found is not None:
            receipt = replace(found, replayed=False)
            self._note(commit, receipt)
        retried = replace(self._append(again, commit.scope, 2, key=commit.key), base=commit.base)
        if found is None:
            self._publish(again, retried)
        else:
            assert self.processes[again].coordinator.commit(retried) == found
            self._release(again, retried)

    # upkeep

    @rule(process=processes, scope=small, at=small)
    def expire(self, process: int, scope: int, at: int) -> None:
        where = self._scope(scope)
        if not self.past[where]:
            return
        kept = self._recent(where, at)
        before = [shot for shot in self.past[where] if shot.sequence < kept.sequence]
        self.past[where] = [shot for shot in self.past[where] if shot.sequence >= kept.sequence]
        retained = {name for shot in self.past[where] for name in shot.extents}
        unreachable = {_key(name) for shot in before for name in shot.extents if name not in retained}
        expired = self.processes[process].catalog.expire_snapshots(where, before_us=kept.at_us)
        assert (expired.snapshots, set(expired.keys)) == (len(before), unreachable)
        self.garbage |= unreachable

    @rule(process=processes)
    def abandon(self, process: int) -> None:
        given_up = self.processes[process].catalog.abandon_pending(before_us=self.clock.now_us + 1)
        assert set(given_up) == self.pending
        self.garbage |= self.pending
        self.pending.clear()

    @rule(process=processes, scope=small)
    def begin(self, process: int, scope: int) -> None:
        """Write an extent, and commit it another time, or never."""
        self.begun.append(self._append(process, scope, 1, key=None))

    @precondition(lambda self: self.begun)
    @rule(process=processes, at=small)
    def commit_late(self, process: int, at: int) -> None:
        """Commit an extent that was announced a while ago, and may be abandoned by now."""
        commit = self.begun.pop(at % len(self.begun))
        if _keys(commit) <= self.pending:
            self._publish(process, commit)
        else:
            self._is_refused(process, commit, "not_pending")

    @rule(process=processes, limit=st.integers(1, 5))
    def collect(self, process: int, limit: int) -> None:
        catalog = self.processes[process].catalog
        listed = [each.key for each in catalog.garbage(before_us=self.clock.now_us + 1, limit=limit)]
        assert len(listed) == min(limit, len(self.garbage))
        assert self.garbage.issuperset(listed)
        for key in listed:
            del self.objects[key]
        catalog.forget_garbage(listed)
        self.garbage.difference_update(listed)

    @rule(process=processes, crash=st.booleans())
    def reopen(self, process: int, crash: bool) -> None:
        if not crash:
            self.processes[process].catalog.close()
        self.processes[process] = self._start()

    # reading

    @rule(process=processes, scope=small, at=st.integers(0, 20), later_us=st.integers(0, 9))
    def read_older(self, process: int, scope: int, at: int, later_us: int) -> None:
        """Read a retained snapshot by its sequence and by a time before the next one, and how it differs from now."""
        where, catalog = self._scope(scope), self.processes[process].catalog
        old, now = self._recent(where, at), self._last(where)
        if old.sequence:
            self._compare(old, catalog.manifest(where, sequence=old.sequence))
            seen = [shot for shot in self.past[where] if shot.at_us <= old.at_us + later_us]
            assert catalog.snapshot(where, at_us=old.at_us + later_us).sequence == seen[-1].sequence
        found = catalog.changes(where, after=old.sequence, upto=now.sequence)
        assert [each.id for each in found.added] == [name for name in now.extents if name not in old.extents]
        assert [each.id for each in found.appended] == [name for name in now.hot if name not in old.hot]
        assert set(found.removed) == old.extents.keys() - now.extents.keys()
        assert set(found.dropped) == old.hot.keys() - now.hot.keys()

    @rule(process=processes, scope=small, at=st.integers(0, 20), row=st.integers(0, 60), span=st.integers(1, 20))
    def read_by_time(self, process: int, scope: int, at: int, row: int, span: int) -> None:
        """List what may hold some rows, whose times are their numbers."""
        where, catalog = self._scope(scope), self.processes[process].catalog
        shot = self._recent(where, at)
        listed = catalog.extents(where, sequence=shot.sequence, start_ns=row, end_ns=row + span)
        names = [extent.id for extent in listed]
        needed = {name for name, rows in shot.extents.items() if min(rows) < row + span and max(rows) >= row}
        assert len(set(names)) == len(names)
        assert needed <= set(names) <= shot.extents.keys()

    @invariant()
    def heads_are_as_expected(self) -> None:
        for where in self.past:
            self._compare(self._last(where), self.processes[0].catalog.manifest(where))

    def teardown(self) -> None:
        for process in self.processes:
            for where, shots in self.past.items():
                history = process.catalog.history(where)
                assert [snapshot.sequence for snapshot in history] == [shot.sequence for shot in reversed(shots)]
                for shot in shots:
                    self._compare(shot, process.catalog.manifest(where, sequence=shot.sequence))
                if shots and shots[0].sequence > 1:
                    with pytest.raises(NotFoundError):
                        process.catalog.manifest(where, sequence=shots[0].sequence - 1)
            assert {each.key for each in process.catalog.pending()} == self.pending
            assert {each.key for each in process.catalog.garbage(before_us=2**62)} == self.garbage
        for catalog in self.opened:
            catalog.close()

    def _start(self) -> Process:
        """Open what a process needs. What it had before is left as a crash leaves it, until the end of the run."""
        catalog = self.open(self.clock, self._at)
        self.opened.append(catalog)
        faulty = FaultyCatalog(catalog)
        return Process(catalog, faulty, Coordinator(cast(Catalog, faulty), sleep_s=lambda seconds: None))

    def _at(self, point: str) -> None:
        if point == self.crash_at:
            self.crash_at = ""
            raise Crash(point)

    def _name(self, kind: str) -> str:
        return f"{kind}-{next(self.names):06}"

    def _scope(self, at: int) -> Scope:
        return list(self.past)[at % len(self.past)]

    def _last(self, scope: Scope) -> Shot:
        return self.past[scope][-1] if self.past[scope] else Shot(0, 0, SCHEMA)

    def _recent(self, scope: Scope, at: int) -> Shot:
        """Return the last retained snapshot, or an earlier one."""
        shots = self.past[scope]
        return shots[-1 - at % len(shots)] if shots else self._last(scope)

    def _commit(self, scope: Scope, *actions: Action, base: int | None = None, key: str | None = None) -> Commit:
        return Commit(
            self._name("commit"), scope, self._last(scope).sequence if base is None else base, actions, key=key
        )

    def _append(self, process: int, scope: int | Scope, rows: int, *, key: str | None) -> Commit:
        where = self._scope(scope) if isinstance(scope, int) else scope
        return self._commit(where, self._write(process, where, [next(self.numbers) for _ in range(rows)]), key=key)

    def _write(self, process: int, scope: Scope, rows: list[int]) -> AddExtent:
        """Announce an object and write it."""
        name = self._name("extent")
        self.processes[process].catalog.register_pending([Pending(_key(name), scope, "test")])
        self.pending.add(_key(name))
        self.objects[_key(name)] = rows
        return AddExtent(Extent(name, _key(name), "tlm", 8 * len(rows), len(rows), 1, min(rows), max(rows), 1))

    def _hot(self, scope: Scope, rows: int) -> AppendHot:
        held = [next(self.numbers) for _ in range(rows)]
        return AppendHot(HotBatch(self._name("batch"), rows, orjson.dumps(held), min(held), max(held), 1))

    def _publish(
        self, process: int, commit: Commit, *, fault: str = "ok", columns: dict[str, str] | None = None
    ) -> None:
        """Commit, whatever becomes of the first answer, and note what must be there now."""
        self.processes[process].faulty.plan = [fault]
        receipt = self.processes[process].coordinator.commit(commit)
        assert not receipt.replayed
        self._note(commit, receipt, columns or {})

    def _note(self, commit: Commit, receipt: Receipt, columns: dict[str, str] | None = None) -> None:
        last = self._last(commit.scope)
        extents, hot, wider = dict(last.extents), dict(last.hot), dict(last.columns)
        for action in commit.actions:
            match action:
                case AddExtent(added):
                    extents[added.id] = self.objects[added.key]
                    self.pending.remove(added.key)
                case AppendHot(batch):
                    hot[batch.id] = orjson.loads(batch.payload)
                case RemoveExtent(name):
                    del extents[name]
                case DropHot(name):
                    del hot[name]
                case _:
                    pass
        for name, kind in (columns or {}).items():
            wider[name] = "long" if "long" in (kind, wider.get(name)) else kind
        assert (receipt.commit_id, receipt.sequence) == (commit.id, last.sequence + 1)
        assert receipt.committed_us > last.at_us
        schema = self.processes[0].catalog.snapshot(commit.scope, sequence=receipt.sequence).schema
        self.past[commit.scope].append(Shot(receipt.sequence, receipt.committed_us, schema, extents, hot, wider))
        self.answered.append((commit, receipt))

    def _is_refused(self, process: int, commit: Commit, kind: str) -> None:
        with pytest.raises(ConflictError) as refused:
            self.processes[process].coordinator.commit(commit)
        assert refused.value.kind == kind
        self._release(process, commit)

    def _release(self, process: int, commit: Commit) -> None:
        keys = _keys(commit)
        assert set(self.processes[process].catalog.release_pending(keys)) == keys & self.pending
        self.garbage |= keys & self.pending
        self.pending -= keys

    def _compare(self, shot: Shot, found: Manifest) -> None:
        snapshot = found.snapshot
        assert snapshot.sequence == shot.sequence
        rows = [row for extent in found.extents.values() for row in self.objects[extent.key]]
        rows += [row for batch in found.hot.values() for row in orjson.loads(batch.payload)]
        assert sorted(rows) == shot.rows
        assert snapshot.totals.rows + snapshot.totals.hot_rows == len(rows)
        assert (snapshot.totals.extents, snapshot.totals.hot_batches) == (len(shot.extents), len(shot.hot))
        if not snapshot.scope.user:
            assert {column.name: str(column.type) for column in snapshot.schema} == {"row": "long", **shot.columns}


def _key(name: str) -> str:
    return f"data/{name}"


def _keys(commit: Commit) -> set[str]:
    return {action.extent.key for action in commit.actions if isinstance(action, AddExtent)}


@pytest.fixture(params=[*SQL_STORES, "log"])
def fresh(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Open]:
    """Return what makes a new place for a catalog, and how to open it there."""
    store: str = request.param
    folders = (tmp_path / f"{number}" for number in count())

    def make() -> Open:
        folder = next(folders)
        folder.mkdir()
        if store == "log":
            return lambda clock, at: open_log_catalog(folder, create=True, clock=clock, at=at)
        place = place_of(store, request, folder)
        return lambda clock, at: open_sql(place, clock=clock, at=at)

    return make


def test_catalog_shows_the_rows_of_a_plain_list_whatever_happens(
    request: pytest.FixtureRequest, fresh: Callable[[], Open]
) -> None:
    store = request.node.callspec.params["fresh"]

    class Machine(CatalogMachine):
        users = ("",) if store == "log" else ("", "u")

    Machine.fresh = staticmethod(fresh)
    limits = settings(
        max_examples=EXAMPLES[store],
        stateful_step_count=STEPS,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(Machine, settings=limits)


def test_registration_is_good_for_one_extent_only(fresh: Callable[[], Open]) -> None:
    """Or else the object that two extents share would be garbage as soon as one of them is gone."""
    with fresh()(Ticking(), no_hook) as catalog:
        scope = catalog.create_table("t", SCHEMA, {}).scope
        head = catalog.head(scope)
        twins = [AddExtent(Extent(name, "data/shared", "tlm", 8, 1, 1, 0, 0, 1)) for name in ("one", "two")]
        catalog.register_pending([Pending("data/shared", scope, "test")])
        in_one = [Commit("a", scope, head.sequence, tuple(twins))]
        in_two = [Commit("a", scope, head.sequence, (twins[0],)), Commit("b", scope, head.sequence, (twins[1],))]
        for commits in (in_one, in_two):
            with pytest.raises(ConflictError) as refused:
                catalog.commit(commits, onto=head)
            assert (refused.value.kind, refused.value.facts["commit"]) == ("not_pending", commits[-1].id)
        assert catalog.head(scope) == head
