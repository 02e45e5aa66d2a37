"""Drive a table with a key through all that changes it, and hold what it says against a plain dict for every snapshot.

Two handles of the lake take turns, so that what one of them remembers of hidden rows can be stale. The changes between
any two snapshots, applied to the first, must give the second.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

import tidelake
from tests.support.catalogs import fresh_schema
from tidelake import AlreadyExistsError, Lake, Table

COLUMNS = {"k": "string", "n": "long", "ts": "timestamp", "v": "long"}
NOON = "2026-01-01T12:00:00Z"
KEYS = st.tuples(st.sampled_from("abc"), st.integers(0, 5))
UPSERTS = st.lists(st.tuples(KEYS, st.integers(0, 9)), min_size=1, max_size=8)

Held = dict[tuple[str, int], int]


def keyed(key: tuple[str, int]) -> dict[str, Any]:
    return {"k": key[0], "n": key[1]}


class KeyedMachine(RuleBasedStateMachine):
    """A table with a key beside a dict."""

    opening: ClassVar[Callable[[], Lake]]  # of one lake, each time anew

    def __init__(self) -> None:
        super().__init__()
        self.lakes = [type(self).opening(), type(self).opening()]
        name = f"m.t{secrets.token_hex(4)}"
        self.lakes[0].create_table(name, COLUMNS, key=["k", "n"], flush_age="off", upkeep=False)
        self.tables = [lake.table(name) for lake in self.lakes]
        self.held: Held = {}
        self.past: dict[int, Held] = {}
        self.turn = 0

    def teardown(self) -> None:
        for lake in self.lakes:
            lake.close()

    @property
    def table(self) -> Table:
        self.turn = 1 - self.turn
        return self.tables[self.turn]

    def note(self) -> None:
        self.past[self.tables[0].snapshot.sequence] = dict(self.held)

    @initialize()
    def begin(self) -> None:
        self.note()

    @rule(rows=UPSERTS, cold=st.booleans())
    def upsert(self, rows: list[tuple[tuple[str, int], int]], cold: bool) -> None:
        table = self.table
        table.append([keyed(key) | {"ts": NOON, "v": value} for key, value in rows])
        self.held |= dict(rows)
        self.note()
        if cold:
            table.flush()
            self.note()

    @rule(rows=UPSERTS)
    def insert(self, rows: list[tuple[tuple[str, int], int]]) -> None:
        given = [keyed(key) | {"ts": NOON, "v": value} for key, value in rows]
        if any(key in self.held for key, _ in rows):
            with pytest.raises(AlreadyExistsError):
                self.table.append(given, insert_only=True)
        else:
            self.table.append(given, insert_only=True)
            self.held |= dict(rows)
        self.note()

    @rule(keys=st.lists(KEYS, min_size=1, max_size=4))
    def delete_keys(self, keys: list[tuple[str, int]]) -> None:
        self.table.delete_keys([keyed(key) for key in keys])
        for key in keys:
            self.held.pop(key, None)
        self.note()

    @rule(value=st.integers(0, 9))
    def delete_where(self, value: int) -> None:
        gone = [key for key, held in self.held.items() if held == value]
        assert self.table.delete(where=f"v == {value}").rows == len(gone)
        for key in gone:
            del self.held[key]
        self.note()

    @rule()
    def flush(self) -> None:
        self.table.flush()
        self.note()

    @rule()
    def compact(self) -> None:
        self.table.compact()
        self.note()

    @rule()
    def expire(self) -> None:
        self.table.expire("0s")
        oldest = self.tables[0].history()[-1].sequence
        self.past = {sequence: held for sequence, held in self.past.items() if sequence >= oldest}

    @rule(data=st.data())
    def restore(self, data: st.DataObject) -> None:
        sequence = data.draw(st.sampled_from(sorted(self.past)))
        self.table.restore(snapshot=sequence)
        self.held = dict(self.past[sequence])
        self.note()

    @rule(data=st.data())
    def look_back(self, data: st.DataObject) -> None:
        sequence = data.draw(st.sampled_from(sorted(self.past)))
        lake, name = self.lakes[self.turn], self.table.name
        assert self.rows_of(lake.table(name, snapshot=sequence)) == self.past[sequence]

    @rule(data=st.data())
    def replay(self, data: st.DataObject) -> None:
        sequence = data.draw(st.sampled_from(sorted(self.past)))
        held = dict(self.past[sequence])
        for row in self.table.changes(sequence).read_all().to_pylist():
            key = (row["k"], row["n"])
            if row["_op"] == "delete":
                del held[key]
            else:
                assert (key in held) == (row["_op"] == "update")
                held[key] = row["v"]
        assert held == self.held

    @rule(key=KEYS)
    def get(self, key: tuple[str, int]) -> None:
        table = self.table
        row = table.get(key)
        assert (None if row is None else row["v"]) == self.held.get(key)
        assert table.exists([keyed(key)])[0].exists == (key in self.held)

    @rule(value=st.integers(0, 9), key=KEYS)
    def ask(self, value: int, key: tuple[str, int]) -> None:
        table = self.table
        conditions: dict[str, Callable[[tuple[str, int], int], bool]] = {
            f"v == {value}": lambda k, v: v == value,
            f"n >= {key[1]} and v > {value}": lambda k, v: k[1] >= key[1] and v > value,
            f"k == '{key[0]}' or v == {value}": lambda k, v: k[0] == key[0] or v == value,
        }
        for where, meant in conditions.items():
            wanted = {k: v for k, v in self.held.items() if meant(k, v)}
            assert self.rows_of(table, where=where) == self.rows_of(table, where=where, prune=False) == wanted

    @invariant()
    def all_is_there(self) -> None:
        table = self.table
        assert self.rows_of(table) == self.held
        assert len(table) == len(self.held)
        sums = self.lakes[self.turn].sql(f"select count(*) as c, sum(v) as s, max(v) as m from {table.name}").to_arrow()
        values = list(self.held.values())
        assert sums.to_pylist() == [
            {"c": len(values), "s": sum(values) if values else None, "m": max(values, default=None)}
        ]

    def rows_of(self, table: Table, **asked: Any) -> Held:
        found = table.scan(["k", "n", "v"], **asked).read_all().to_pylist()
        held = {(row["k"], row["n"]): row["v"] for row in found}
        assert len(held) == len(found), "a key is there twice"
        return held


def run(opening: Callable[[], Lake], examples: int, steps: int) -> None:
    machine = type("Machine", (KeyedMachine,), {"opening": staticmethod(opening)})
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples, stateful_step_count=steps, deadline=None, suppress_health_check=checks, database=None
        ),
    )


def test_a_table_with_a_key_is_what_a_dict_is(tmp_path: Path) -> None:
    run(lambda: tidelake.connect(tmp_path / "lake", upkeep=False), examples=6, steps=15)


@pytest.mark.torture
@pytest.mark.parametrize("way", ["sqlite", "postgres"])
def test_for_long(way: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if way == "postgres":
        schema = fresh_schema(request.getfixturevalue("postgres"))
        run(lambda: tidelake.connect(schema, objects=tmp_path / "objects", upkeep=False), examples=40, steps=30)
    else:
        run(lambda: tidelake.connect(tmp_path / "lake", upkeep=False), examples=150, steps=50)
