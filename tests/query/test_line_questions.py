"""Ask many random questions about lines of logs, of every way in which rows are kept, and of plain Python and DuckDB.

The same rows lie in extents of the third body, of the second, of every format mixed, and hot; they are asked before and
after rows are deleted and put together anew, and at an older snapshot, each question twice: the second time from what
is kept in memory.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

import tidelake
from tests.support.line_questions import FLAVOURS, Asked, Passes, Row, condition, lines, sql_condition
from tidelake.format import postings
from tidelake.write import stager
from tidelake.write.alter import change_settings

ROWS, PART, HOT_PART = 3_300, 1_100, 300  # of a table and of an append, and of one that stays hot
COLUMNS = {"ts": "timestamp", "n": "long", "line": "string", "host": "string"}
TABLES = ("third", "second", "mixed", "hot")
FORMATS = ("tlm2", "tlm3", "parquet")  # of what is mixed, in turn
GONE: tuple[tuple[str, Passes], ...] = (
    ("line contains 'rack'", lambda row: "rack" in (row["line"] or "").lower()),
    ("line contains 'worker' or n < 40", lambda row: "worker" in (row["line"] or "").lower() or row["n"] < 40),
    ("n >= 700 and n < 1500", lambda row: 700 <= row["n"] < 1500),
)


@pytest.mark.parametrize("flavour", ["log", "odd"])
def test_questions_about_lines_have_the_answers_of_plain_python(
    flavour: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(tmp_path, 1, flavour, 2, monkeypatch)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(2, 12))
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_many_questions_about_lines_have_the_answers_of_plain_python(
    flavour: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(tmp_path, seed, flavour, 15, monkeypatch)


def check(folder: Path, seed: int, flavour: str, questions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask of new rows, once some are deleted, and once what is left is compacted."""
    monkeypatch.setattr(stager, "BLOCK_ROWS", 450)  # so that extents have several blocks, each of which has postings
    monkeypatch.setattr(postings, "MIN_ROWS", 256)
    chance = random.Random(f"{seed} {flavour}")
    rows = made(chance, flavour)
    engine = duckdb.connect()
    with tidelake.connect(folder, upkeep=False) as lake:
        filled(lake, rows)
        before, whole = {name: lake.table(name).snapshot.sequence for name in TABLES}, rows
        for step in ("new", "deleted", "compacted"):
            known = [row["line"] for row in rows]
            for _ in range(questions):
                ask_kql(lake, rows, condition(chance, known))
                ask_sql(lake, rows, sql_condition(chance, known), engine)
            where, gone = chance.choice(GONE)
            for name in TABLES:
                if step == "new":
                    lake.table(name).delete(where)
                elif step == "deleted":
                    lake.table(name).compact()
            rows = [row for row in rows if not gone(row)] if step == "new" else rows
        ask_sql(lake, whole, sql_condition(chance, [row["line"] for row in whole]), engine, before)


def made(chance: random.Random, flavour: str) -> list[Row]:
    known = lines(chance, flavour, ROWS)
    return [
        {"ts": 1_700_000_000_000_000 + n * 1000, "n": n, "line": line, "host": f"h{n % 3}"}
        for n, line in enumerate(known)
    ]


def filled(lake: tidelake.Lake, rows: list[Row]) -> None:
    for name in TABLES:
        table = lake.create_table(
            name, COLUMNS, time="ts", format="tlm2" if name == "second" else "tlm3", flush_age="off"
        )
        step = HOT_PART if name == "hot" else PART
        for start in range(0, ROWS, step):
            if name == "mixed":
                change_settings(table.handle, {"format": FORMATS[start // PART]})
            table.append(rows[start : start + step])
    assert {each.format for each in lake.table("mixed").extents()} == {"tlm", "tlm3", "parquet"}
    assert not lake.table("hot").extents()


def ask_kql(lake: tidelake.Lake, rows: list[Row], asked: Asked) -> None:
    wanted = [row["n"] for row in rows if asked.passes(row)]
    hosts = sorted(Counter(f"h{n % 3}" for n in wanted).items())

    def answer(name: str, rest: str) -> pa.Table:
        return lake.kql(f"{name} | where {asked.text} | {rest}").to_arrow()

    for name in TABLES:
        for _ in range(1 if name == "hot" else 2):
            assert sorted(answer(name, "project n, line")["n"].to_pylist()) == wanted, (name, asked.text)
            assert answer(name, "count").column(0).to_pylist() == [len(wanted)], (name, asked.text)
        assert answer(name, "take 7 | count").column(0).to_pylist() == [min(7, len(wanted))], (name, asked.text)
        grouped = answer(name, "summarize c = count() by host").to_pylist()
        assert sorted((row["host"], row["c"]) for row in grouped) == hosts, (name, asked.text)


def ask_sql(
    lake: tidelake.Lake,
    rows: list[Row],
    where: str,
    engine: duckdb.DuckDBPyConnection,
    snapshots: dict[str, int] | None = None,
) -> None:
    plain = pa.table({"n": [row["n"] for row in rows], "line": pa.array([row["line"] for row in rows], pa.utf8())})
    engine.register("plain", plain)
    wanted = [row[0] for row in engine.execute(f"select n from plain where {where} order by n").fetchall()]
    left = set(wanted)
    said = Counter(template(row["line"]) for row in rows if row["n"] in left)

    def answer(shown: str, name: str, rest: str = "") -> pa.Table:
        read = name if snapshots is None else f"{name} version as of {snapshots[name]}"
        return lake.sql(f"select {shown} from {read} where {where} {rest}", engine="local").to_arrow()

    for name in TABLES:
        for _ in range(1 if name == "hot" else 2):
            assert answer("n", name, "order by n")["n"].to_pylist() == wanted, (name, where)
            assert answer("count(*)", name).column(0).to_pylist() == [len(wanted)], (name, where)
        found = answer("message_template(line) as t, count(*) as c", name, "group by 1").to_pylist()
        assert {row["t"]: row["c"] for row in found} == said, (name, where)


def template(line: str | None) -> str | None:
    return None if line is None else re.sub("[A-Za-z]*[0-9][0-9A-Za-z]*", "<*>", line)
