"""Ask questions that read a table several times while a writer never rests: each reads one snapshot."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner

import tidelake
from tests.support.restless import restless
from tidelake.cli.main import main
from tidelake.lake import Lake
from tidelake.table import Table


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    with tidelake.connect(tmp_path / "lake") as lake:
        table = lake.create_table(
            "m.cpu",
            {"ts": "timestamp", "device": "string", "n": "long", "tags": "dynamic"},
            time="ts",
            bucket="1m",
            entity="device",
            flush_age="off",
        )
        table.append(rows(0, 300))
        table.flush()
        yield lake


def rows(first: int, count: int) -> list[dict[str, Any]]:
    return [
        {"ts": f"2026-01-01T{n // 60 % 24:02}:{n % 60:02}:00Z", "device": f"d{n % 3}", "n": n, "tags": {"a": n}}
        for n in range(first, first + count)
    ]


def more(table: Table, at: int) -> None:
    """Append rows of minutes that are held, and of some that are not."""
    table.append(rows(20 * at, 10) + rows(300 + 10 * at, 10))
    if at % 2:
        table.flush()


def test_receipt_counts_the_rows_of_the_snapshot_it_names(lake: Lake) -> None:
    with restless(lake, "m.cpu", more) as made:
        receipt = lake.table("m.cpu").coverage.receipt()
    assert made
    held = lake.table("m.cpu", snapshot=receipt.snapshot)
    assert held.coverage.receipt() == receipt
    assert receipt.rows == held.to_arrow().num_rows
    assert set(receipt.extents) == {extent.id for extent in held.extents()}


def test_receipt_is_verified_against_one_snapshot(lake: Lake) -> None:
    table = lake.table("m.cpu")
    receipt = table.coverage.receipt("d1", "2026-01-01", "2026-01-01T02:00:00Z")
    with restless(lake, "m.cpu", more) as made:
        assert table.coverage.verify(receipt)  # the first look is at the snapshot of the receipt
    assert made
    assert not table.coverage.verify(receipt)


def test_query_reads_one_snapshot_however_its_tables_are_spelled(lake: Lake) -> None:
    table = lake.create_table("t", {"ts": "timestamp", "n": "long"}, time="ts", flush_age="off")
    table.append([{"ts": "2026-01-01T00:00:00Z", "n": n} for n in range(5)])

    def write(held: Table, at: int) -> None:
        held.append([{"ts": "2026-01-01T00:00:00Z", "n": held.snapshot.totals.hot_rows}])

    for ask, text in (
        (lake.sql, "select count(*) as c from t a join default.t b on a.n = b.n join T c on c.n = b.n"),
        (lake.sql, "select (select count(*) from t) - (select count(*) from Default.T where n >= 0) as c"),
        (lake.sql, "select count(*) as c from t a join t timestamp as of '2999-01-01' b on a.n = b.n"),
        (lake.kql, "t | join kind=inner (default.t) on n | count"),
    ):
        with restless(lake, "t", write) as made:
            result = ask(text, engine="local")
            count = result.to_arrow()[0][0].as_py()
        assert made
        plans = {plan.snapshot.sequence for plan in result.plans}
        assert len(plans) == 1, text
        held = lake.table("t", snapshot=plans.pop()).to_arrow().num_rows
        assert count in (held, 0), text


def test_coverage_and_rows_of_one_query_agree(lake: Lake) -> None:
    text = (
        "select (select count(distinct ts) from m.cpu) as held, "
        "(select sum(buckets) from coverage('m.cpu')) as buckets, (select sum(buckets) from held('m.cpu')) as again"
    )
    with restless(lake, "m.cpu", more) as made:
        (found,) = lake.sql(text, engine="local").to_arrow().to_pylist()
    assert made
    assert found["held"] == found["buckets"] == found["again"]


def test_promotable_looks_at_the_newest_rows_of_one_snapshot(lake: Lake) -> None:
    def moves(table: Table, at: int) -> None:
        more(table, at)
        table.flush()

    table = lake.table("m.cpu")
    table.append(rows(1000, 200))  # hot rows of the pinned snapshot, which the writer moves into an extent
    with restless(lake, "m.cpu", moves) as made:
        (found,) = table.promotable()
    assert made
    assert (found.path, found.rows) == ("tags.a", 500)  # every row once


def test_commands_ask_one_snapshot(lake: Lake) -> None:
    with restless(lake, "m.cpu", more) as made:
        run = CliRunner().invoke(main, ["coverage", "m.cpu", "--lake", lake.where, "--entity", "d1", "--json"])
    assert run.exit_code == 0, run.output
    report = orjson.loads(run.output)
    held = lake.table("m.cpu", snapshot=report["snapshot"]).coverage.report(entity="d1")
    assert report["ratio"] == held.ratio
    assert made == []  # the command's own connection is not the one that is watched


def test_manifest_answers_are_of_the_snapshot_that_was_planned(lake: Lake) -> None:
    with restless(lake, "m.cpu", more) as made:
        result = lake.sql("select count(*) as c, min(n) as low, max(n) as high from m.cpu where n >= 150")
        (found,) = result.to_arrow().to_pylist()
    assert made
    (plan,) = result.plans
    held = lake.table("m.cpu", snapshot=plan.snapshot.sequence).to_arrow(["n"], "n >= 150")["n"].to_pylist()
    assert found == {"c": len(held), "low": min(held), "high": max(held)}
