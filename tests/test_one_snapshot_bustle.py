"""Ask a table that is written, flushed and rewritten all the time: every answer is that of one snapshot.

Each question reads the table several times and gives an answer with the snapshot that it is of; the same one, asked
afterwards of the table held at that snapshot, must have the same answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner

from tests.support.bustle import TABLE, bustle, make_table, rewritten
from tidelake.cli.main import main
from tidelake.lake import Lake
from tidelake.query.result import Result

Answer = tuple[int, Any]  # the snapshot, and what was asked of it
Question = Callable[[Lake, str], Answer]  # gets the text that names the table, or the table held at a snapshot


@pytest.fixture
def lake(lake: Lake) -> Lake:
    make_table(lake)
    return lake


def self_join(lake: Lake, table: str) -> Answer:
    text = (
        f"select (select count(*) from {table} a) as a, (select count(*) from {table} b where n > -1000000) as b, "
        f"(select count(*) from {table} a full join {table} b on a.n = b.n where a.n is null or b.n is null) as odd, "
        f"(select count(*) - count(distinct n) from {table}) as twice"
    )
    return _one(lake.sql(text, engine="local"))


def union_of_counts(lake: Lake, table: str) -> Answer:
    text = f"select count(*) as c from {table} union all select count(n) from {table} where ts >= '2026-01-01'"
    return _one(lake.sql(text, engine="local"))


def _one(result: Result) -> Answer:
    sequences = {plan.snapshot.sequence for plan in result.plans}
    assert len(sequences) == 1
    rows = result.to_arrow().to_pylist()
    assert rows == result.to_arrow().to_pylist()
    return sequences.pop(), rows


def export(lake: Lake, table: str) -> Answer:
    """Export a query twice over, as a stream and as a table."""
    result = lake.sql(f"select n, device from {table} order by n", engine="local")
    (sequence,) = {plan.snapshot.sequence for plan in result.plans}
    streamed, held = result.to_reader().read_all(), result.to_arrow()
    assert streamed == held
    return sequence, held["n"].to_pylist()


def _held(lake: Lake, table: str) -> Any:
    name, _, version = table.partition(" version as of ")
    return lake.table(name, snapshot=int(version)) if version else lake.table(name)


def receipt(lake: Lake, table: str) -> Answer:
    found = _held(lake, table).coverage.receipt()
    return found.snapshot, found


def report(lake: Lake, table: str) -> Answer:
    found = _held(lake, table).coverage.report()
    return found.snapshot, (found.ratio, found.entities, found.strips)


def promotable(lake: Lake, table: str) -> Answer:
    held = _held(lake, table).pinned()
    return held.snapshot.sequence, held.promotable()


QUESTIONS: list[Question] = [self_join, union_of_counts, export, receipt, report, promotable]


def ask_all(lake: Lake, seed: int, rounds: int) -> None:
    answers: list[tuple[Question, Answer]] = []
    first = lake.table(TABLE).snapshot.sequence
    with bustle(lake, seed, others=[rewritten]):
        for _ in range(rounds):
            answers += [(question, question(lake, TABLE)) for question in QUESTIONS]
            run = CliRunner().invoke(main, ["coverage", TABLE, "--lake", lake.where, "--json"])
            shown = json.loads(run.output)
            assert shown["ratio"] == lake.table(TABLE, snapshot=shown["snapshot"]).coverage.ratio()
    assert lake.table(TABLE).snapshot.sequence > first + 2 * rounds  # it was busy indeed
    for question, (sequence, answer) in answers:
        again = question(lake, f"{TABLE} version as of {sequence}")
        assert again == (sequence, answer), question.__name__
    numbers = lake.table(TABLE).to_arrow(["n"])["n"].to_pylist()
    assert len(numbers) == len(set(numbers))


def test_every_answer_is_of_one_snapshot(lake: Lake) -> None:
    ask_all(lake, seed=7, rounds=3)


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(4))
def test_every_answer_is_of_one_snapshot_for_long(lake: Lake, seed: int) -> None:
    ask_all(lake, seed, rounds=40)
