"""Drive a table through all that changes it, and hold what it says against a plain list of rows for every snapshot.

Rows come hot and cold with fields that change their type, are flushed, deleted, replaced, taken back, restored,
compacted and retained; snapshots are pinned and expire; objects are collected as early as can be; the table is dropped
and made anew. Two handles of the lake take turns, so that what one of them remembers can be stale. It does not run two
changes at the same time.
"""

from __future__ import annotations

import gc
import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import pyarrow as pa
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

import tidelake
from tests.support.catalogs import fresh_schema
from tests.support.upkeep import check_store, make_small
from tidelake import Lake, Table, dynamic
from tidelake.errors import ConflictError, InvalidInputError, NotFoundError, QueryError
from tidelake.maintain.retention import retain

TABLE = "m.t"
HOUR = 3600
BASE = 1_700_000_000 // HOUR * HOUR
HOURS = 12
RETENTION_H = 6
COLUMNS = {"ts": "timestamp", "id": "long", "k": "string", "v": "int", "d": "dynamic"}
VALUES: dict[str, list[Any]] = {  # what fits, and what does not
    "v": [0, 7, -1, 2**40, 2.5, "seven", True, {"a": 1}, None],
    "x": [1, 2**40, 2.5, "fresh", {"deep": [1]}, None],
    "d": [{"x": 1}, {"x": "one", "y": [1, None]}, "plain", 5, None],
}
NOW: dict[str, Any] = {"abandoned_after": "0s", "orphan_after": "0s"}
WAYS = ("sqlite", "log", "postgres")

Row: TypeAlias = dict[str, Any]
Rows: TypeAlias = dict[int, Row]  # by their ids
Open: TypeAlias = Callable[[], Lake]

HOURS_OF_ROWS = st.integers(0, HOURS - 1)
CONDITIONS = ("k == 'a'", "not (k == 'a')", "id < 10", "k == 'b' and id >= 5", "v == 7", "v > 0", "d.x == 1", "x == 1",
              "v == 'seven' or k == 'c'", "k == 'nobody'", "id >= 0")  # fmt: skip
MEANT: dict[str, Callable[[Row], bool]] = {  # of those whose meaning is plain
    "k == 'a'": lambda row: row["k"] == "a",
    "not (k == 'a')": lambda row: row["k"] != "a",
    "id < 10": lambda row: row["id"] < 10,
    "k == 'b' and id >= 5": lambda row: row["k"] == "b" and row["id"] >= 5,
    "k == 'nobody'": lambda row: False,
    "id >= 0": lambda row: True,
}


def plain(value: Any) -> Any:
    """Return a value in one form, whether its column was text, a number or dynamic when the row came."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return float(value) if isinstance(value, int | float) else value


def read(table: Table, where: str | None = None, *, prune: bool = True, **asked: Any) -> Rows:
    """Return the rows of a table by their ids, with what the overflow column holds in its place."""
    return rows_of(table.scan(None, where, prune=prune, dynamic="cbor", **asked).read_all())


def rows_of(found: pa.Table) -> Rows:
    """Return rows as they came, whatever became of their columns since."""
    rows: Rows = {}
    for raw in found.to_pylist():
        held = {} if raw.get("_overflow") is None else dynamic.decode(raw["_overflow"])
        row = {"id": raw["id"], "ts": raw["ts"], "k": raw["k"]}
        for name in VALUES:
            value = raw.get(name)
            value = dynamic.decode(value) if isinstance(value, bytes) else value
            row[name] = plain(held.get(name) if value is None else value)
        assert raw["id"] not in rows, "a row is there twice"
        rows[raw["id"]] = row
    return rows


def at_hour(hour: float) -> datetime:
    return datetime.fromtimestamp(BASE + hour * HOUR, UTC)


class UpkeepMachine(RuleBasedStateMachine):
    """A table, the rows that each snapshot of it must have, and which snapshots may have expired."""

    fresh: ClassVar[Callable[[], Open]]
    comes_back: ClassVar[bool]  # a table whose name was dropped
    has_entities: ClassVar[bool]  # more than one, in a table's coverage
    steps: ClassVar[int] = 0

    def __init__(self) -> None:
        super().__init__()
        opened = type(self).fresh()
        self.lakes = [opened(), opened()]
        self.turns = count()
        self.ids, self.names = count(), count()
        self.readers: list[tuple[pa.RecordBatchReader, Rows]] = []

    @initialize(form=st.sampled_from(("tlm2", "tlm3", "parquet")), clustered=st.booleans(), covered=st.booleans())
    def make(self, form: str, clustered: bool, covered: bool) -> None:
        """Make the table, of a new kind."""
        words: dict[str, Any] = {"bucket": "1h"} if covered else {}
        if covered and self.has_entities:
            words["entity"] = "k"
        self.covered, self.kind = covered, {"format": form, "cluster_by": ["k"] if clustered else [], **words}
        self.create()

    def create(self) -> None:
        self.lake.create_table(
            TABLE, COLUMNS, time="ts", retention=f"{RETENTION_H}h", flush_age="off", upkeep=False, **self.kind
        )
        self.rows: Rows = {}
        self.expired = self.table.snapshot.sequence  # snapshots before this one may be gone…
        self.states: list[Rows] = [{}] * (self.expired + 1)  # by sequence
        self.pins: dict[str, int] = {}  # …but not these
        self.keys: list[tuple[str, list[Row]]] = []
        self.limit_h: float | None = None
        self.is_collected = False

    @property
    def lake(self) -> Lake:
        return self.lakes[next(self.turns) % 2]

    @property
    def table(self) -> Table:
        return self.lake.table(TABLE)

    def now_holds(self, rows: Rows) -> None:
        """Note which rows the snapshots have that came since the last step."""
        self.rows, self.is_collected = rows, False
        head = self.table.snapshot.sequence
        self.states += [rows] * (head + 1 - len(self.states))

    def new_rows(self, data: st.DataObject, size: int, low: int = 0, high: int = HOURS) -> list[Row]:
        """Draw rows with ids of their own, within some hours."""
        chance = data.draw(st.randoms(use_true_random=False))
        tastes = {name: chance.sample(pool, 2) for name, pool in VALUES.items()}
        first = chance.randrange(low, high)
        return [
            {
                "id": next(self.ids),
                "ts": at_hour(min(first + chance.random() * chance.choice((1, 4)), high - 0.001)),
                "k": chance.choice("abc"),
                **{name: chance.choice(taste) for name, taste in tastes.items()},
            }
            for _ in range(size)
        ]

    def as_read(self, rows: list[Row]) -> Rows:
        return {row["id"]: {**row, **{name: plain(row[name]) for name in VALUES}} for row in rows}

    @rule(data=st.data(), size=st.sampled_from((1, 3, 6, 9, 14, 25)))
    def append(self, data: st.DataObject, size: int) -> None:
        rows = self.new_rows(data, size)
        key = f"k{next(self.names)}" if size == 3 else None
        self.table.append(rows, key=key)
        if key is not None:
            assert self.table.append(rows, key=key).replayed
        self.now_holds(self.rows | self.as_read(rows))

    @rule()
    def flush(self) -> None:
        self.table.flush()
        assert self.table.snapshot.totals.hot_rows == 0
        self.now_holds(self.rows)

    @rule(where=st.sampled_from(CONDITIONS))
    def delete_by_condition(self, where: str) -> None:
        where = self.asked(where)
        meant = read(self.table, where, prune=False)
        if where in MEANT:
            assert set(meant) == {each for each, row in self.rows.items() if MEANT[where](row)}
        assert self.table.delete(where, dry_run=True).rows == len(meant)
        assert self.table.delete(where).rows == len(meant)
        self.now_holds({each: row for each, row in self.rows.items() if each not in meant})

    @rule(start=HOURS_OF_ROWS, length=st.sampled_from((0.5, 1, 3)))
    def delete_range(self, start: int, length: float) -> None:
        low, high = at_hour(start), at_hour(start + length)
        left = {each: row for each, row in self.rows.items() if not low <= row["ts"] < high}
        assert self.table.delete(start=low, end=high).rows == len(self.rows) - len(left)
        self.now_holds(left)

    @rule()
    def delete_everything(self) -> None:
        assert self.table.delete(all=True).rows == len(self.rows)
        self.now_holds({})

    @rule(data=st.data(), start=HOURS_OF_ROWS, length=st.integers(1, 4), size=st.sampled_from((0, 2, 12)))
    def replace(self, data: st.DataObject, start: int, length: int, size: int) -> None:
        rows = self.new_rows(data, size, start, start + length)
        low, high, key = at_hour(start), at_hour(start + length), f"r{next(self.names)}"
        left = {each: row for each, row in self.rows.items() if not low <= row["ts"] < high}
        report = self.table.replace(rows, start=low, end=high, key=key)
        assert (report.rows, report.replaced) == (size, len(self.rows) - len(left))
        if size:
            assert self.table.replace(rows, start=low, end=high, key=key).replayed
        self.now_holds(left | self.as_read(rows))

    @rule(data=st.data())
    def undo(self, data: st.DataObject) -> None:
        sequence = data.draw(st.integers(1, len(self.states)))
        try:
            report = self.table.undo(sequence)
        except NotFoundError:
            assert sequence >= len(self.states) or self.may_be_gone(sequence)
            return
        except (ConflictError, InvalidInputError) as error:
            if error.kind not in ("rewritten", "not_an_append") and "added no rows" not in str(error):
                raise
            return
        added = self.states[sequence].keys() - self.states[sequence - 1].keys()
        assert report.rows_removed == len(added)
        self.now_holds({each: row for each, row in self.rows.items() if each not in added})

    @rule(data=st.data(), by_time=st.booleans())
    def restore(self, data: st.DataObject, by_time: bool) -> None:
        sequence = data.draw(st.integers(0, len(self.states) - 1))
        try:
            if by_time:
                at_us = self.lake.snapshot(TABLE, snapshot=sequence).committed_us
                self.table.restore(as_of=at_us)
            else:
                self.table.restore(sequence)
        except NotFoundError:
            assert self.may_be_gone(sequence)
            return
        self.now_holds(self.states[sequence])

    @rule()
    def compact(self) -> None:
        self.table.compact()
        self.now_holds(self.rows)

    @rule(hour=st.integers(-1, HOURS))
    def retain(self, hour: int) -> None:
        before = at_hour(hour)
        report = retain(self.table.handle, at_us=(BASE + (hour + RETENTION_H) * HOUR) * 1_000_000)
        left = read(self.table)
        assert {each for each, row in self.rows.items() if row["ts"] >= before} <= left.keys() <= self.rows.keys()
        assert report.rows == len(self.rows) - len(left)
        self.now_holds({each: self.rows[each] for each in left})

    @rule(data=st.data())
    def begin_to_read(self, data: st.DataObject) -> None:
        sequence = data.draw(st.integers(0, len(self.states) - 1))
        try:
            reader = self.lake.table(TABLE, snapshot=sequence).scan(dynamic="cbor")
        except NotFoundError:
            assert self.may_be_gone(sequence)
        else:
            self.readers.append((reader, self.states[sequence]))

    @precondition(lambda self: self.readers)
    @rule()
    def end_reading(self) -> None:
        """Read on at a snapshot, whatever has been deleted or collected since."""
        reader, rows = self.readers.pop()
        assert rows_of(reader.read_all()) == rows

    @rule(keep_last=st.sampled_from((1, 1, 3)))
    def expire(self, keep_last: int) -> None:
        self.let_go()
        self.table.expire("0s", keep_last=keep_last)
        self.expired = max(self.expired, len(self.states) - keep_last)
        self.is_collected = False
        self.check_all_snapshots()

    @rule(data=st.data())
    def pin(self, data: st.DataObject) -> None:
        sequence, name = data.draw(st.integers(0, len(self.states) - 1)), f"p{next(self.names)}"
        try:
            self.lake.table(TABLE, snapshot=sequence).pin(name)
        except NotFoundError:
            assert self.may_be_gone(sequence)
        else:
            self.pins[name] = sequence

    @precondition(lambda self: self.pins)
    @rule(data=st.data())
    def unpin(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.pins)))
        self.table.unpin(name)
        if self.pins.pop(name) not in self.pins.values():
            self.is_collected = False

    @rule()
    def collect(self) -> None:
        self.let_go()
        self.lake.collect(dry_run=True, **NOW)
        self.lake.collect(**NOW)
        assert self.readers or [*self.lake.catalog.pending(), *self.lake.catalog.garbage(before_us=2**60)] == []
        self.is_collected = not self.readers
        self.check_all_snapshots()

    @rule()
    def purge(self) -> None:
        """Delete some rows for good: no snapshot that is not pinned has them."""
        self.let_go()
        report = self.table.delete("k == 'c'", purge=True)
        assert report.purged is not None
        assert self.readers or len(report.purged.held_by) == len(self.pins), report.purged
        self.now_holds({each: row for each, row in self.rows.items() if row["k"] != "c"})
        self.expired = len(self.states) - 1

    @rule(name=st.sampled_from(("v", "x", "fresh")), kind=st.sampled_from(("long", "real", "dynamic")))
    def widen(self, name: str, kind: str) -> None:
        try:
            self.table.add_column(name, kind)
        except tidelake.SchemaError:
            return
        self.now_holds(self.rows)

    @precondition(lambda self: self.comes_back)
    @rule(is_purged=st.booleans())
    def drop_and_create(self, is_purged: bool) -> None:
        self.readers.clear()
        self.let_go()
        self.lake.drop_table(TABLE, purge=is_purged)
        with pytest.raises(NotFoundError):
            _ = self.table
        self.create()

    def let_go(self) -> None:
        """Give leases back that nobody needs any more, as both handles do by themselves after some seconds."""
        gc.collect()  # what an error's traceback holds is given back then
        for lake in self.lakes:
            lake.handle.leases.let_go()

    def asked(self, where: str) -> str:
        """Return a condition, or another if the table has no such column yet, or has it as another type."""
        try:
            self.table.outline(where=where)
        except QueryError:
            return "k == 'a'"
        return where

    def may_be_gone(self, sequence: int) -> bool:
        return sequence < self.expired and sequence not in self.pins.values()

    @invariant()
    def holds(self) -> None:
        """Compare the newest rows, some questions, and one older snapshot."""
        if not hasattr(self, "states"):
            return
        type(self).steps += 1
        turn, table = next(self.turns), self.table
        assert table.snapshot.sequence == len(self.states) - 1
        assert read(table) == self.rows
        assert len(table) == len(self.rows)
        where = self.asked(CONDITIONS[turn % len(CONDITIONS)])
        pruned = read(table, where)
        assert pruned == read(table, where, prune=False)
        if where in MEANT:
            assert pruned == {each: row for each, row in self.rows.items() if MEANT[where](row)}
        low, high = at_hour(turn % HOURS), at_hour(turn % HOURS + 2)
        window = {each: row for each, row in self.rows.items() if low <= row["ts"] < high}
        assert read(table, start=low, end=high) == read(table, start=low, end=high, prune=False) == window
        self.check_coverage(table)
        self.check_snapshot(turn % len(self.states))
        check_store(self.lake, quiet=self.is_collected)

    def check_coverage(self, table: Table) -> None:
        """Compare the windows that are held with those that rows lie in."""
        if not self.covered:
            return
        limit = table.coverage.expired_before
        held = set()
        for run in table.coverage.held(at_hour(-1), at_hour(HOURS + 9)).to_pylist():
            first = int(run["start"].timestamp()) // HOUR
            held |= {(run.get("k"), first + at) for at in range(run["buckets"])}
        rows = [row for row in self.rows.values() if limit is None or row["ts"] >= limit]
        assert held == {(row["k"] if self.has_entities else None, int(row["ts"].timestamp()) // HOUR) for row in rows}

    def check_snapshot(self, sequence: int) -> None:
        """Read one snapshot, by number and by time; it has its rows, or has expired as a whole."""
        try:
            past = self.lake.table(TABLE, snapshot=sequence)
        except NotFoundError:
            assert self.may_be_gone(sequence), f"snapshot {sequence} is gone"
            return
        assert read(past) == self.states[sequence]
        assert len(past) == len(self.states[sequence])
        found = self.lake.snapshot(TABLE, as_of=past.snapshot.committed_us)
        assert found.committed_us == past.snapshot.committed_us
        assert found.sequence >= sequence

    def check_all_snapshots(self) -> None:
        for sequence in range(len(self.states)):
            self.check_snapshot(sequence)
        for name, sequence in self.pins.items():
            assert sequence in [pin.sequence for pin in self.table.pins() if pin.name == name]

    def teardown(self) -> None:
        for lake in self.lakes:
            lake.close()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    make_small(monkeypatch)


def run(request: pytest.FixtureRequest, folder: Path, way: str, *, examples: int, steps: int, seed: int = 0) -> int:
    """Drive tables of one sort of lake; return how many steps were checked."""
    server = request.getfixturevalue("postgres") if way == "postgres" else ""

    def fresh() -> Open:
        place = folder / secrets.token_hex(6)
        if way == "postgres":
            address = fresh_schema(server)
            return lambda: tidelake.connect(address, objects=place, upkeep=False)
        return lambda: tidelake.connect(f"{'log:' * (way == 'log')}{place}", upkeep=False)

    class Machine(UpkeepMachine):
        comes_back = has_entities = way != "log"

    Machine.fresh = staticmethod(fresh)
    limits = settings(
        max_examples=examples,
        stateful_step_count=steps,
        derandomize=seed == 0,
        database=None,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(Machine, settings=limits)
    return Machine.steps


@pytest.mark.usefixtures("small")
def test_table_shows_the_rows_of_a_plain_list_whatever_is_done_to_it(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    assert run(request, tmp_path, "sqlite", examples=1, steps=30) > 15


@pytest.mark.torture
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("way", WAYS)
def test_table_shows_the_rows_of_a_plain_list_for_long(
    request: pytest.FixtureRequest, tmp_path: Path, way: str
) -> None:
    steps = run(request, tmp_path, way, examples=60, steps=40, seed=1)
    print(f"{steps:,} steps on {way}")
    assert steps > 1000
