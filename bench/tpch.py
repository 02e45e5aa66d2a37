"""Measure the 22 questions of TPC-H, and all of two columns, on the local engine beside DuckDB on zstd Parquet.

The rows are made by ``tpchgen-cli`` (extra ``bench``). DuckDB reads one Parquet file for each table, as it writes it
with zstd; tidelake has the same rows in one table each. Scale 1 belongs to the usual 4,000,000 rows of ``bench.data``.
It does not follow the rules by which results of TPC-H may be called that.

    python -m bench.tpch folder --scale 1            # keep the data in a folder, for another look
    python -m bench.tpch folder --scale 1 q4 q21     # some questions
    python -m bench.tpch folder --format tlm3 --write  # tables of another format, and a result that is kept
"""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import TypeAlias

import click
import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bench.body_lines import vortex_bytes
from bench.data import ROWS
from bench.report import RESULTS, Ratio, Report, write_report
from tidelake.lake import connect

TABLES = ("customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier")
MEAN_GOAL, WORST_GOAL, COLUMNS_GOAL = 1.1, 2.0, 1.0
BOTH_COLUMNS = "select l_extendedprice, l_shipdate from lineitem"

METHOD = (
    "Rows by tpchgen-cli: keys are 64-bit integers, amounts decimal(15,2), days are dates. DuckDB writes them to one "
    "Parquet file for each table, with zstd; tidelake appends the same rows to one table each, with its settings as "
    "they come.",
    "A question goes from its text to an Arrow table. Both contenders answer it once before it is measured, then in "
    "turn, and the median counts. Their answers are compared: numbers to one part in a million.",
    "tidelake keeps decoded columns from the second time that they are read, in a sixteenth of the memory; DuckDB "
    "decodes every time. What the first asking took stands beside.",
    "DuckDB has as many threads as there are cores, and keeps the footers of its files.",
)

Ask: TypeAlias = Callable[[str], pa.Table]


def run(folder: Path, *, rows: int = ROWS, rounds: int = 5) -> Report:
    """Measure each question of both contenders."""
    return measure(folder, scale=rows / ROWS, rounds=rounds)


def measure(
    folder: Path, *, scale: float, rounds: int, names: Sequence[str] = (), extents: str | None = None
) -> Report:
    """Measure some questions, or all; the data is made where the folder has none."""
    make_data(folder, scale, extents)
    ask_ours, ask_peer = _tidelake(folder), _duckdb(folder)
    texts = {name: text for name, text in questions().items() if not names or name in names}
    ours: dict[str, tuple[float, ...]] = {}
    peer: dict[str, tuple[float, ...]] = {}
    first: dict[str, tuple[float, float]] = {}
    for name, text in texts.items():
        began = time.perf_counter()
        found = ask_ours(text)
        between = time.perf_counter()
        expected = ask_peer(text)
        first[name] = (between - began, time.perf_counter() - between)
        check_equal(name, found, expected)
        taken = [(_seconds(ask_ours, text), _seconds(ask_peer, text)) for _ in range(rounds)]
        ours[name], peer[name] = zip(*taken, strict=True)
    sizes = {"tidelake": _size(folder / "lake"), "Parquet": _size(folder / "parquet")}
    return Report(
        name="tpch",
        workload=f"TPC-H at scale {scale:g}: {len(texts)} questions on the local engine, warm"
        + ("" if extents is None else f"; extents are {extents}"),
        ratios=(*_ratios(ours, peer), _first_ratio(first), *_byte_ratios(folder, sizes)),
        seconds={f"tidelake {name}": each for name, each in ours.items()}
        | {f"DuckDB {name}": each for name, each in peer.items()},
        sizes=sizes,
        method=METHOD,
    )


def _byte_ratios(folder: Path, sizes: dict[str, int]) -> Iterator[Ratio]:
    """Compare the bytes of the largest table."""
    with connect(folder / "lake") as lake:
        ours = sum(extent.byte_size for extent in lake.table("lineitem").extents())
    place = folder / "parquet" / "lineitem.parquet"
    sizes["lineitem: tidelake"], sizes["lineitem: Parquet"] = ours, place.stat().st_size
    yield Ratio("bytes of lineitem, Parquet", ours, sizes["lineitem: Parquet"], "bytes", 0.80)
    if (vortex := vortex_bytes(pq.read_table(place), folder)) is not None:
        sizes["lineitem: Vortex"] = vortex
        yield Ratio("bytes of lineitem, Vortex", ours, vortex, "bytes", 1.0)


def questions() -> dict[str, str]:
    """Return the questions by name."""
    text = Path(__file__).with_suffix(".sql").read_text()
    found = re.findall(r"-- (q\d+)\n(.*?);", text, re.DOTALL)
    return dict(found) | {"two columns": BOTH_COLUMNS}


def make_data(folder: Path, scale: float, extents: str | None = None) -> None:
    """Make the rows, as Parquet and as tables of a lake, unless they are there."""
    if (folder / "lake").exists():
        return
    raw, parquet = folder / "raw", folder / "parquet"
    raw.mkdir(parents=True)
    parquet.mkdir()
    command = shutil.which("tpchgen-cli", path=str(Path(sys.executable).parent)) or "tpchgen-cli"
    subprocess.run([command, "parquet", "-s", f"{scale:g}", f"--output-dir={raw}"], check=True)
    with duckdb.connect() as connection, connect(folder / "lake") as lake:
        for name in TABLES:
            copied = f"COPY (FROM '{raw}/{name}.parquet') TO '{parquet}/{name}.parquet' (COMPRESSION zstd)"
            connection.execute(copied)
            table = lake.create_table(name, _columns(parquet / f"{name}.parquet"), format=extents)
            table.append(parquet / f"{name}.parquet")
    shutil.rmtree(raw)


def check_equal(name: str, ours: pa.Table, peer: pa.Table) -> None:
    """See that both found the same rows: a faster wrong answer is no answer."""
    same = ours.num_rows == peer.num_rows and ours.num_columns == peer.num_columns
    if same and ours.num_rows < 1_000_000:
        same = all(map(_close, ours.columns, peer.columns))
    if not same or not ours.num_rows:
        raise AssertionError(f"{name}: contenders disagree\n{ours}\n{peer}")


def _close(left: pa.ChunkedArray, right: pa.ChunkedArray) -> bool:
    def is_number(kind: pa.DataType) -> bool:
        return bool(pa.types.is_decimal(kind) or pa.types.is_floating(kind) or pa.types.is_integer(kind))

    if not (is_number(left.type) and is_number(right.type)):
        return bool(left.cast(pa.string()).equals(right.cast(pa.string())))
    apart = pc.abs(pc.subtract(left.cast(pa.float64()), right.cast(pa.float64())))
    allowed = pc.add(pc.multiply(pc.abs(right.cast(pa.float64())), 1e-6), 1e-6)
    return bool(pc.all(pc.less_equal(apart, allowed)).as_py())


def _ratios(ours: Mapping[str, Sequence[float]], peer: Mapping[str, Sequence[float]]) -> list[Ratio]:
    each = {name: (median(ours[name]), median(peer[name])) for name in ours}
    asked = [name for name in each if name.startswith("q")]
    found = [Ratio(name, *each[name], "s", COLUMNS_GOAL if name == "two columns" else WORST_GOAL) for name in each]
    if asked:
        means = [math.exp(sum(math.log(each[name][side]) for name in asked) / len(asked)) for side in (0, 1)]
        found.insert(0, Ratio(f"geometric mean of {len(asked)} questions", means[0], means[1], "s", MEAN_GOAL))
    return found


def _first_ratio(first: Mapping[str, tuple[float, float]]) -> Ratio:
    """Compare what questions take when nobody has asked them: nothing of ours is decoded but what others needed."""
    means = [math.exp(sum(math.log(each[side]) for each in first.values()) / len(first)) for side in (0, 1)]
    return Ratio("geometric mean, asked for the first time", means[0], means[1], "s")


def _seconds(ask: Ask, text: str) -> float:
    began = time.perf_counter()
    ask(text)
    return time.perf_counter() - began


def _tidelake(folder: Path) -> Ask:
    lake = connect(folder / "lake")
    return lambda text: lake.sql(text, engine="local").to_arrow()


def _duckdb(folder: Path) -> Ask:
    connection = duckdb.connect()
    connection.execute("SET parquet_metadata_cache = true")
    for name in TABLES:
        connection.execute(f"CREATE VIEW {name} AS FROM '{folder}/parquet/{name}.parquet'")
    return lambda text: connection.sql(text).to_arrow_table()


def _columns(path: Path) -> dict[str, str]:
    kinds = {"int64": "long", "int32": "int", "date32[day]": "date", "string": "string"}
    return {field.name: kinds.get(str(field.type), "decimal(15,2)") for field in pq.read_schema(path)}


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("**/*") if file.is_file())


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.argument("names", nargs=-1)
@click.option("--scale", default=1.0, show_default=True)
@click.option("--rounds", default=3, show_default=True)
@click.option("--format", "extents", help="The format of extents, where the data is made.")
@click.option("--write", is_flag=True, help="Keep the result in bench/results.")
def main(folder: Path, names: tuple[str, ...], scale: float, rounds: int, extents: str | None, write: bool) -> None:
    """Measure questions over data that stays in a folder."""
    load = os.getloadavg()[0]
    report = measure(folder, scale=scale, rounds=rounds, names=names, extents=extents)
    for ratio in report.ratios:
        click.echo(f"{ratio.name:32} {ratio.ours * 1000:9.1f} ms {ratio.peer * 1000:9.1f} ms {ratio.value:6.2f}")
    if write:
        write_report(report, RESULTS, day=datetime.now(UTC).date(), load=load)


if __name__ == "__main__":
    main()
