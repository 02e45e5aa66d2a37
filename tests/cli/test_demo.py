"""Run the demo as a newcomer would, and read what it says."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from rich.console import Console

import tidelake
from tidelake.cli import demo, telemetry
from tidelake.cli.main import main
from tidelake.errors import InvalidInputError, UnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_demo_finds_the_incident_and_leaves_the_lake(spark: SparkSession, tmp_path: Path) -> None:
    sink = io.StringIO()
    demo.run_demo(str(tmp_path / "demo"), Console(file=sink, width=100), lines=30_000)
    told = sink.getvalue()
    assert "\x1b" not in told
    for text in ("OutOfMemoryError", "2.4.1", "checkout", "pay-2", "web-3", "rows added", "what to try next"):
        assert text in told, text
    with tidelake.connect(tmp_path / "demo" / "lake", create=False) as lake:
        assert lake.sql("select count(*) as n from obs.logs").to_arrow().to_pylist() == [{"n": 30_001}]
        gaps = lake.table("obs.metrics").coverage.gaps().to_pylist()
        found = {gap["host"]: (gap["start"], gap["end"]) for gap in gaps}
        assert found == telemetry.SILENT


def test_demo_empties_only_its_own_folder(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("do not touch")
    with pytest.raises(InvalidInputError, match="holds something else"):
        demo.run_demo(str(tmp_path / "mine"), Console(file=io.StringIO()))
    assert (tmp_path / "mine" / "thesis.txt").exists()


def test_without_java_the_demo_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(UnavailableError, match="needs Java 17"):
        demo.require_java()
    result = CliRunner().invoke(main, ["demo", str(tmp_path / "demo")])
    assert (result.exit_code, result.stderr.count("\n"), "install a JDK" in result.stderr) == (1, 1, True)


def test_telemetry_is_the_same_every_time_and_in_order() -> None:
    first, second = list(telemetry.log_lines(2_000)), list(telemetry.log_lines(2_000))
    assert first == second
    assert [line["ts"] for line in first] == sorted(line["ts"] for line in first)
    assert {line["service"] for line in first} == set(telemetry.HOSTS)


def test_metrics_are_silent_where_they_say() -> None:
    minutes: dict[str, int] = {}
    for row in telemetry.metric_rows():
        minutes[row["host"]] = minutes.get(row["host"], 0) + 1
    whole = telemetry.HOURS * 60
    for host, held in minutes.items():
        silent = telemetry.SILENT.get(host)
        assert held == whole - (0 if silent is None else (silent[1] - silent[0]).total_seconds() // 60)
