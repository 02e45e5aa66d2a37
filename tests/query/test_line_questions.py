"""Ask many random questions about lines of logs, of every way in which rows are kept, and of plain Python and DuckDB.

The same rows lie in extents of the third body, of the second, of every format mixed, and hot; they are asked before and
after rows are deleted and put together anew, each question twice: the second time from what is kept in memory.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import tidelake
from tests.support.line_questions import FLAVOURS, Asked, Row, condition, lines, sql_condition
from tidelake.format import postings
from tidelake.write import stager
from tidelake.write.alter import change_settings

ROWS, PART = 3_300, 1_100  # of a table and of an append: fewer would stay hot
COLUMNS = {"ts": "timestamp", "n": "long", "line": "string", "host": "string"}
TABLES = ("third", "second", "mixed", "hot")


@contextmanager
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Write extents of several blocks each of which has postings."""
    monkeypatch.setattr(stager, "BLOCK_ROWS", 450)
    monkeypatch.setattr(postings, "MIN_ROWS", 256)
    yield


def made(chance: random.Random, flavour: str) -> list[Row]:
    known = lines(chance, flavour, ROWS)
    return [
        {"ts": 1_700_000_000_000_000 + n * 1000, "n": n, "line": line, "host": f"h{n % 3}"}
        for n, line in enumerate(known)
    ]


def filled(lake: tidelake.Lake, rows: list[Row]) -> None:
    for name in TABLES:
        form = {"third": "tlm3", "second": "tlm2"}.get(name, "tlm3")
        table = lake.create_table(name, COLUMNS, time="ts", format=form, flush_age="off")
        step = 300 if name == "hot" else PART
        for start in range(0, ROWS, step):
            if name == "mixed":
                change_settings(table.handle, {"format": ("tlm2", "tlm3", "parquet")[start // PART]})
            table.append(rows[start : start + step])
    assert {each.format for each in lake.table("mixed").extents()} == {"tlm", "tlm3", "parquet"}
    assert not lake.table("hot").extents()


def ask_kql(lake: tidelake.Lake, rows: list[Row], asked: Asked) -> None:
    wanted = [row["n"] for row in rows if asked.passes(row)]
    hosts = sorted((host, sum(f"h{n % 3}" == host for n in wanted)) for host in {f"h{n % 3}" for n in wanted})
    where = f"where {asked.text}"
    for name in TABLES:
        for _ in range(2):
            found = lake.kql(f"{name} | {where} | project n, line").to_arrow()
            assert sorted(found["n"].to_pylist()) == wanted, (name, asked.text)
            assert lake.kql(f"{name} | {where} | count").to_arrow().column(0).to_pylist() == [len(wanted)], (name, where)
            if name == "hot":
                break
        limited = lake.kql(f"{name} | {where} | take 7 | count").to_arrow().column(0).to_pylist()
        assert limited == [min(7, len(wanted))], (name, asked.text)
        grouped = lake.kql(f"{name} | {where} | summarize c = count() by host").to_arrow().to_pylist()
        assert sorted((row["host"], row["c"]) for row in grouped) == hosts, (name, asked.text)


def ask_sql(lake: tidelake.Lake, rows: list[Row], where: str, engine: duckdb.DuckDBPyConnection) -> None:
    t = pa.table({"n": [row["n"] for row in rows], "line": pa.array([row["line"] for row in rows], pa.utf8())})
    engine.register("plain", t)
    wanted = [row[0] for row in engine.execute(f"select n from plain where {where} order by n").fetchall()]
    for name in TABLES:
        for _ in range(2):
            found = lake.sql(f"select n from {name} where {where} order by n", engine="local").to_arrow()
            assert found["n"].to_pylist() == wanted, (name, where)
            counted = lake.sql(f"select count(*) from {name} where {where}", engine="local").to_arrow()
            assert counted.column(0).to_pylist() == [len(wanted)], (name, where)
    left = set(wanted)
    said = Counter(_template(row["line"]) for row in rows if row["n"] in left)
    for name in TABLES:
        text = f"select message_template(line) as t, count(*) as c from {name} where {where} group by 1"
        found = lake.sql(text, engine="local").to_arrow().to_pylist()
        assert {row["t"]: row["c"] for row in found} == said, (name, where)


def _template(line: str | None) -> str | None:
    return None if line is None else re.sub("[A-Za-z]*[0-9][0-9A-Za-z]*", "<*>", line)


def check(folder: Path, seed: int, flavour: str, questions: int) -> None:
    chance = random.Random(f"{seed} {flavour}")
    rows = made(chance, flavour)
    engine = duckdb.connect()
    with tidelake.connect(folder, upkeep=False) as lake:
        filled(lake, rows)
        for step in ("new", "deleted", "compacted"):
            known = [row["line"] for row in rows]
            for _ in range(questions):
                ask_kql(lake, rows, condition(chance, known))
                ask_sql(lake, rows, sql_condition(chance, known), engine)
            if step == "new":
                gone = chance.choice(("line has 'rack'", "line has 'worker'", "n >= 700 and n < 1500", "n % 7 = 3"))
                left = {row["n"] for row in lake.sql(f"select n from second where not coalesce({_sql(gone)}, false)")
                        .to_arrow().to_pylist()}  # fmt: skip
                for name in TABLES:
                    lake.table(name).delete(gone if "%" not in gone else "n < 900")
                rows = [row for row in rows if row["n"] in left]
            if step == "deleted":
                for name in TABLES:
                    lake.table(name).compact()


def _sql(gone: str) -> str:
    if " has " in gone:
        return f"has(line, {gone.split()[-1]})"
    return "n < 900" if "%" in gone else gone


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_questions_about_lines_have_the_answers_of_plain_python(
    flavour: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_blocks(monkeypatch):
        check(tmp_path, 1, flavour, 3)
