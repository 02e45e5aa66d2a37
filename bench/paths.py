"""Measure questions about paths of real events beside chDB with its JSON type, over data that stays in a folder.

The events, questions and peers are those of ``bench.body``, of which this is the part that is asked again and again;
the data is made where the folder has none. It does not measure bytes or writes.

    python -m bench.paths folder --write
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import click

import tidelake
from bench import body
from bench.data import ROWS
from bench.report import RESULTS, Ratio, Report, write_report
from tidelake import Lake

GOAL = 2.0


def run(folder: Path, *, rows: int = ROWS, rounds: int = 5) -> Report:
    """Ask every question of both contenders in turn."""
    lake, chdb = opened(folder, max(1000, int(rows / body.EVENT_SHARE)))
    contenders: dict[str, Callable[[], object]] = {}

    def answered(text: str) -> object:
        return lake.kql(text).to_arrow()

    for name, (kql, sql, _) in body.QUESTIONS.items():
        contenders[f"{name}: tlm3"] = partial(answered, kql)
        if chdb is not None:
            contenders[f"{name}: chDB"] = partial(chdb.query, sql, "CSV")
    seconds: dict[str, list[float]] = {}
    body.take_turns(contenders, rounds, seconds)
    table = lake.table("events")
    ratios = [
        Ratio(f"{name}, chDB", median(seconds[f"{name}: tlm3"]), median(seconds[f"{name}: chDB"]), "s", GOAL)
        for name in body.QUESTIONS
        if chdb is not None
    ]
    return Report(
        "paths",
        f"{len(table):,} real events of Windows, repeated, one dynamic column: questions about paths, warm",
        tuple(ratios),
        {name: tuple(each) for name, each in seconds.items()},
        {"events: tlm3": sum(extent.byte_size for extent in table.extents())},
        (body.METHOD[0], body.METHOD[2], body.METHOD[-1]),
    )


def opened(folder: Path, rows: int) -> tuple[Lake, Any]:
    """Open both contenders, filled; chDB is None where it is not installed."""
    is_made = (folder / "lake").exists()
    lake = tidelake.connect(str(folder / "lake"))
    if is_made:
        return lake, _chdb_again(folder / "chdb")
    lines = subprocess.run(["zstd", "-dc", str(body.EVENTS)], capture_output=True, check=True).stdout.splitlines()
    table = lake.create_table(
        "events", {"ts": "timestamp", "event": "dynamic"}, time="ts", format="tlm3", flush_age="off"
    )
    table.append(body.event_rows(lines, rows))
    ndjson = folder / "events.ndjson"
    body.write_events(ndjson, lines, rows)
    chdb = body.chdb_with(folder / "chdb", ndjson, {})
    ndjson.unlink()
    return lake, chdb


def _chdb_again(folder: Path) -> Any:
    try:
        from chdb.session import Session
    except ImportError:
        return None
    chdb = Session(str(folder))
    chdb.query("use bench")
    return chdb


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--rounds", default=9, show_default=True)
@click.option("--write", is_flag=True, help="Keep the result in bench/results.")
def main(folder: Path, rounds: int, write: bool) -> None:
    """Measure questions over data that stays in a folder."""
    load = os.getloadavg()[0]
    report = run(folder, rounds=rounds)
    for ratio in report.ratios:
        click.echo(f"{ratio.name:32} {ratio.ours * 1000:9.1f} ms {ratio.peer * 1000:9.1f} ms {ratio.value:6.2f}")
    if write:
        write_report(report, RESULTS, day=datetime.now(UTC).date(), load=load)


if __name__ == "__main__":
    main()
