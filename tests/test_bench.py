"""Run benchmarks on few rows, so that they still work when somebody needs them."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

import orjson
import pyarrow.compute as pc
import pytest
from click.testing import CliRunner

from bench import contention, coverage, extents, promql, tables, trickle
from bench.data import log_table
from bench.report import Ratio, Report, write_report
from bench.run import main

ROWS = 5_000


def test_rows_are_the_same_every_time() -> None:
    table = log_table(ROWS)
    assert table.equals(log_table(ROWS))
    assert (table.num_columns, table.num_rows) == (8, ROWS)
    assert all(len(message.split(" ")) == 8 for message in table["message"].slice(0, 100).to_pylist())


def test_extents_are_measured_and_written_down(tmp_path: Path) -> None:
    report = extents.run(tmp_path / "work", rows=ROWS, rounds=2)
    page = write_report(report, tmp_path / "results", day=date(2026, 3, 14), load=0.1)
    assert page.name == "2026-03-14-extents.md"
    assert {len(rounds) for rounds in report.seconds.values()} == {2}
    assert all(ratio.value > 0 for ratio in report.ratios)
    shape = orjson.loads(page.with_suffix(".json").read_bytes())
    assert [ratio["name"] for ratio in shape["ratios"]] == [ratio.name for ratio in report.ratios]
    assert shape["machine"]["load_before"] == 0.1
    for text in (page.read_text(), page.with_suffix(".json").read_text()):
        assert not re.search(r"/(home|root|tmp|work)/", text)


@pytest.mark.torture
def test_coverage_is_measured_beside_its_peer(tmp_path: Path) -> None:
    report = coverage.run(tmp_path, rows=30_000, rounds=1)
    assert {len(rounds) for rounds in report.seconds.values()} == {1}
    assert all(ratio.value > 0 for ratio in report.ratios)
    assert report.sizes["gaps found"] == 10


def test_contention_answers_every_append(tmp_path: Path) -> None:
    report = contention.run(tmp_path, rows=1, rounds=1, writers=2)
    assert {len(seconds) for seconds in report.seconds.values()} == {2 * 3}
    assert report.ratios[0].value == 1


def test_command_prints_ratios_first_and_leaves_nothing_when_dry() -> None:
    before = sorted(Path("bench/results").glob("*"))
    result = CliRunner().invoke(main, ["extents", "--rows", "5000", "--rounds", "1", "--dry"])
    assert result.exit_code == 0, result.output
    assert result.stdout.index("## Ratios") < result.stdout.index("## Times")
    assert sorted(Path("bench/results").glob("*")) == before


def test_logs_of_the_tables_bench_are_ingested_and_its_needles_found(tmp_path: Path) -> None:
    needles = tables.write_logs(tmp_path / "logs.ndjson", 2_000)
    tables.OURS.ingest(tmp_path / "logs.ndjson", tmp_path / "lake")
    found = {name: ask().num_rows for name, ask in tables.OURS.questions(tmp_path / "lake", needles).items()}
    assert tuple(found) == tables.QUESTIONS
    assert found["all of two columns"] == 2_000
    assert found["word needle"] == tables.RARE_ROWS
    assert 1 <= found["path needle"] < 5
    assert 1 <= found["time range, two columns"] < 50


def test_points_of_the_trickle_bench_are_appended_and_summed(tmp_path: Path) -> None:
    data = trickle.points(5)
    assert (data.num_rows, data.num_columns) == (50, 23)
    trickle.OURS.create(tmp_path, data.schema)
    append = trickle.OURS.open(tmp_path)
    for at in range(5):
        append(data.slice(at * 10, 10))
    assert trickle._sum_ours(tmp_path)() == pc.sum(data[trickle.ASKED])


def test_range_queries_are_measured_on_a_few_series(tmp_path: Path) -> None:
    report = promql.run(tmp_path, rows=ROWS, rounds=1)
    assert {f"tidelake {question}" for question in promql.QUESTIONS} <= set(report.seconds)


def test_many_rounds_are_written_as_percentiles(tmp_path: Path) -> None:
    rounds = tuple(number / 1000 for number in range(1, 1002))
    report = Report("many", "numbers", (Ratio("answered", 3, 3, "appends"),), {"all": rounds}, {}, ())
    page = write_report(report, tmp_path, day=date(2026, 3, 14), load=0.1)
    kept = orjson.loads(page.with_suffix(".json").read_bytes())["seconds"]["all"]
    assert kept["rounds"] == 1001
    assert (kept["percentiles"][0], kept["percentiles"][50], kept["percentiles"][-1]) == (0.001, 0.501, 1.001)
    assert "| 3 appends | 3 appends |" in page.read_text()
