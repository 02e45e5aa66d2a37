"""Run benchmarks by name, or all of them, and leave dated results.

    python -m bench.run
    python -m bench.run extents --rows 400000 --dry
    python -m bench.run commits --quick --dry

Times mean nothing on a busy machine: the load before the run is written down with them. It does not compare with
earlier results.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import click

from bench import (
    body,
    commits,
    connectors,
    contention,
    coverage,
    doors,
    extents,
    listing,
    page,
    paths,
    promql,
    query,
    scopes,
    serve,
    spark,
    spark_peers,
    tables,
    tpch,
    trickle,
    upkeep,
    vectors,
)
from bench.data import ROWS
from bench.report import RESULTS, Report, machine, markdown, write_report

QUIET_LOAD = 0.5  # above it, others are at work

BENCHMARKS: dict[str, Callable[..., Report]] = {
    "body": body.run,
    "commits": commits.run,
    "connectors": connectors.run,
    "contention": contention.run,
    "coverage": coverage.run,
    "doors": doors.run,
    "extents": extents.run,
    "listing": listing.run,
    "page": page.run,
    "paths": paths.run,
    "promql": promql.run,
    "query": query.run,
    "scopes": scopes.run,
    "serve": serve.run,
    "spark": spark.run,
    "spark_peers": spark_peers.run,
    "tables": tables.run,
    "tpch": tpch.run,
    "trickle": trickle.run,
    "upkeep": upkeep.run,
    "vectors": vectors.run,
}


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(sorted(BENCHMARKS)))
@click.option("--rows", default=ROWS, show_default=True, help="How many rows to measure with.")
@click.option("--rounds", default=5, show_default=True, help="How often each contender runs, after a warm-up.")
@click.option("--quick", is_flag=True, help="One round with a hundredth of the rows, to see that it works.")
@click.option("--dry", is_flag=True, help="Print only; write no results.")
def main(names: tuple[str, ...], rows: int, rounds: int, quick: bool, dry: bool) -> None:
    """Measure beside peers and write bench/results."""
    if quick:
        rows, rounds = max(rows // 100, 1), 1
    load = os.getloadavg()[0]
    if load > QUIET_LOAD:
        click.echo(f"the machine is busy (load {load:.1f}): do not trust these times", err=True)
    day = datetime.now(UTC).date()
    for name in names or sorted(BENCHMARKS):
        with tempfile.TemporaryDirectory(prefix="tidelake-bench-") as folder:
            report = BENCHMARKS[name](Path(folder), rows=rows, rounds=rounds)
        click.echo(markdown(report, day=day, facts=machine()))
        if not dry:
            click.echo(f"written: {write_report(report, RESULTS, day=day, load=load).name}")


if __name__ == "__main__":
    main()
