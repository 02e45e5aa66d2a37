"""Measure a trickle beside peers: many appends of few rows, and a sum over what they left before anything is compacted.

Ten rows of 23 columns at a time, from one process, each append on the disk before it is answered. Then eight processes
append to one table at once, and every append must be answered. It does not measure large appends: see ``tables``.
"""

from __future__ import annotations

import gc
import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench import ducklake
from bench.data import ROWS, SEED, START_US
from bench.peers import PEERS, Append, Contender, opened, synced
from bench.report import Ratio, Report
from tidelake.lake import connect
from tidelake.model.schema import Schema

APPENDS = 1_000  # for the whole of bench.data
FEWER_APPENDS = 300  # of peers that cost more with every one: a thousand take one of them a quarter of an hour
APPEND_ROWS = 10
TURN = 50
WRITERS = 8
WRITER_APPENDS = 25
APPEND_WITHIN_S = 1 / 500
SUM_WITHIN_S = 0.03
FEW_OBJECTS = 12
ASKED = "long_0"

METHOD = (
    f"An append has {APPEND_ROWS} rows of 23 columns: a time, eight texts, seven longs and seven reals. Peers append "
    "Arrow tables; tidelake Arrow tables, and dicts.",
    "tidelake syncs before it answers. Peers are measured as they come, and followed by a sync of the file system.",
    "The sum is of one long column over all rows, in a process that has the table open, before any flush or "
    "compaction. tidelake's is of a scan; with DuckDB, of the scan handed to DuckDB.",
    "Objects are all files of the table and its catalog.",
    "pyiceberg, and the peers followed by a sync, append fewer times: they cost more with every append.",
    "Of several writers every append must be answered; each library tries again by itself.",
    "DuckLake runs in a process of its own with an older DuckDB; small inserts stay in its catalog, which is SQLite.",
)


def _create(folder: Path, schema: pa.Schema) -> None:
    with connect(folder) as lake:
        lake.create_table("points", Schema.from_arrow(schema), time="ts", flush_age="off")


def _open(folder: Path) -> Append:
    return connect(folder).table("points").append


def _open_dicts(folder: Path) -> Append:
    append = connect(folder).table("points").append
    return lambda rows: append(rows if isinstance(rows, list) else rows.to_pylist())


OURS = Contender("tidelake", "tidelake", _create, _open, "*")
DICTS = Contender("tidelake, dicts", "tidelake", _create, _open_dicts, "*")
CONTENDERS = {each.name: each for each in (OURS, DICTS, *PEERS, *map(synced, PEERS))}


def run(folder: Path, *, rows: int, rounds: int, writers: int = WRITERS) -> Report:
    """Measure everything; tables go to a folder that the caller removes."""
    count = max(APPENDS * rows // ROWS, 2 * TURN)
    data = points(count)
    present = [each for each in CONTENDERS.values() if each.is_installed]
    fewer = max(FEWER_APPENDS * rows // ROWS, 2 * TURN)
    counts = {each.name: fewer if _grows(each) else count for each in present}
    alone = _append_in_turns(folder, present, data, counts)
    sums = {each.name: _sums(folder, each, rounds) for each in present if each.name in _SUMS}
    sums["tidelake, with DuckDB"] = _timed(lambda: _sum_in_duckdb(folder / OURS.name / "table"), rounds)
    objects = {each.name: _objects(folder / each.name / "table") for each in present}
    left_out = _add_ducklake(folder / "ducklake", data, count, alone, sums, objects)
    answered = {
        each.name: _append_together(folder, each, data, writers) for each in (OURS, *PEERS) if each.is_installed
    }
    seconds = {f"{name}: the first {TURN}": tuple(times[:TURN]) for name, times in alone.items()}
    seconds |= {f"{name}: the last {TURN} of {len(times):,}": tuple(times[-TURN:]) for name, times in alone.items()}
    seconds |= {f"{name}: a sum over {counts.get(name, count):,} appends": times for name, times in sums.items()}
    wanted = writers * WRITER_APPENDS
    acknowledged = ", ".join(f"{name} {number}" for name, number in answered.items())
    return Report(
        name="trickle",
        workload=f"{count:,} appends of {APPEND_ROWS} rows of 23 columns; a sum over them; {writers} writers at once.",
        ratios=tuple(_ratios(alone, sums, objects, (wanted, answered[OURS.name]))),
        seconds=seconds,
        sizes={},
        method=(
            *METHOD,
            f"Answered, of {wanted} appends of {writers} processes: {acknowledged}.",
            "Objects: "
            + ", ".join(f"{name} {number:,} after {len(alone[name]):,} appends" for name, number in objects.items())
            + ".",
            left_out + _versions(present),
        ),
        rates={name: len(times) / sum(times) for name, times in alone.items()},
    )


def points(appends: int) -> pa.Table:
    """Make the rows of so many appends."""
    rows, rng = appends * APPEND_ROWS, np.random.default_rng(SEED)
    words = pa.array([f"value-{number:03}" for number in range(500)])
    columns: dict[str, pa.Array] = {
        "ts": pa.array(START_US + np.arange(rows) * 1_000_000, pa.timestamp("us", tz="UTC")),
    }
    columns |= {f"text_{n}": words.take(pa.array(rng.integers(0, 500, rows))) for n in range(8)}
    columns |= {f"long_{n}": pa.array(rng.integers(0, 2**40, rows)) for n in range(7)}
    columns |= {f"real_{n}": pa.array(rng.random(rows)) for n in range(7)}
    return pa.table(columns)


def _ratios(
    alone: Mapping[str, Sequence[float]],
    sums: Mapping[str, Sequence[float]],
    objects: Mapping[str, int],
    answered: tuple[int, int],
) -> Iterator[Ratio]:
    for name in (OURS.name, DICTS.name):
        times = alone[name]
        yield Ratio(f"{name}: an append on average, against 2 ms", sum(times) / len(times), APPEND_WITHIN_S, "s", 1.0)
        yield Ratio(
            f"{name}: the last {TURN}, against the first {TURN}", median(times[-TURN:]), median(times[:TURN]), "s", 1.2
        )
    ours = alone[OURS.name]
    for name, times in alone.items():
        if name not in (OURS.name, DICTS.name):
            goal = None if "synced" in name else 1.0
            yield Ratio(
                f"one of the last {TURN} appends, against {name}'s last of {len(times):,}",
                median(ours[-TURN:]),
                median(times[-TURN:]),
                "s",
                goal,
            )
    for name in (OURS.name, "tidelake, with DuckDB"):
        yield Ratio(
            f"{name}: a sum over what is not flushed, against 30 ms", median(sums[name]), SUM_WITHIN_S, "s", 1.0
        )
    for name, rounds in sums.items():
        if "tidelake" not in name:
            yield Ratio(f"a sum over all, against {name}", median(sums[OURS.name]), median(rounds), "s")
    yield Ratio("objects, against a dozen", objects[OURS.name], FEW_OBJECTS, "objects", 1.0)
    yield Ratio("appends of several writers, against those that were answered", *answered, "objects", 1.0)


def _grows(contender: Contender) -> bool:
    """Return if a contender's appends cost more the more there were, or wait for the whole file system."""
    return contender.package == "pyiceberg" or "synced" in contender.name


def _append_in_turns(
    folder: Path, contenders: Sequence[Contender], data: pa.Table, counts: Mapping[str, int]
) -> dict[str, list[float]]:
    """Time every append of every contender, in turns."""
    appends = {each.name: opened(folder / each.name, each, data, rows=APPEND_ROWS) for each in contenders}
    seconds: dict[str, list[float]] = {name: [] for name in appends}
    for turn in range(0, max(counts.values()), TURN):
        for name, append in appends.items():
            until = min(turn + TURN, counts[name])
            pieces: list[Any] = [data.slice(at * APPEND_ROWS, APPEND_ROWS) for at in range(turn, until)]
            if name == DICTS.name:
                pieces = [piece.to_pylist() for piece in pieces]
            gc.collect()
            for piece in pieces:
                began = time.perf_counter()
                append(piece)
                seconds[name].append(time.perf_counter() - began)
    return seconds


def _sums(folder: Path, contender: Contender, rounds: int) -> tuple[float, ...]:
    place, asked = folder / contender.name / "table", _SUMS[contender.name]
    return _timed(lambda: asked(place), rounds)


def _timed(ask: Callable[[], Callable[[], object]], rounds: int) -> tuple[float, ...]:
    """Time a question that is asked of an open table; the first answer, which may fill caches, is not counted."""
    question = ask()
    question()
    seconds = []
    for _ in range(max(rounds, 3)):
        began = time.perf_counter()
        question()
        seconds.append(time.perf_counter() - began)
    return tuple(seconds)


def _sum_ours(folder: Path) -> Callable[[], object]:
    table = connect(folder).table("points")
    return lambda: pc.sum(table.scan([ASKED]).read_all()[ASKED])


def _sum_in_duckdb(folder: Path) -> Callable[[], object]:
    import duckdb

    table, connection = connect(folder).table("points"), duckdb.connect()
    return lambda: table.to_duckdb(connection, [ASKED]).aggregate(f"sum({ASKED})").fetchall()


def _sum_delta(folder: Path) -> Callable[[], object]:
    from deltalake import DeltaTable

    table = DeltaTable(str(folder / "logs"))
    return lambda: pc.sum(table.to_pyarrow_table(columns=[ASKED])[ASKED])


def _sum_iceberg(folder: Path) -> Callable[[], object]:
    from bench.peers import _iceberg_catalog

    table = _iceberg_catalog(folder).load_table("bench.logs")
    return lambda: pc.sum(table.scan(selected_fields=(ASKED,)).to_arrow()[ASKED])


def _sum_lance(folder: Path) -> Callable[[], object]:
    import lance

    table = lance.dataset(str(folder / "logs"))
    return lambda: pc.sum(table.to_table(columns=[ASKED])[ASKED])


_SUMS: dict[str, Callable[[Path], Callable[[], object]]] = {
    OURS.name: _sum_ours,
    "delta-rs": _sum_delta,
    "pyiceberg on SQLite": _sum_iceberg,
    "Lance": _sum_lance,
}


def _objects(folder: Path) -> int:
    return sum(1 for file in folder.glob("**/*") if file.is_file())


def _add_ducklake(
    folder: Path,
    data: pa.Table,
    count: int,
    alone: dict[str, list[float]],
    sums: dict[str, tuple[float, ...]],
    objects: dict[str, int],
) -> str:
    """Measure DuckLake too, if it can be installed; say so if not."""
    folder.mkdir(parents=True)
    kinds = {"timestamp[us, tz=UTC]": "TIMESTAMPTZ", "string": "VARCHAR", "int64": "BIGINT", "double": "DOUBLE"}
    columns = {field.name: kinds[str(field.type)] for field in data.schema}
    plain = data.set_column(0, "ts", data["ts"].cast(pa.string()))
    batches = [
        [list(row.values()) for row in plain.slice(at * APPEND_ROWS, APPEND_ROWS).to_pylist()] for at in range(count)
    ]
    found = ducklake.measure(folder, columns, batches, ASKED)
    if found is None:
        return "Left out, because it could not be installed: DuckLake. "
    alone["DuckLake on SQLite"] = found["append"]
    sums["DuckLake on SQLite"] = tuple(found["sum"])
    objects["DuckLake on SQLite"] = found["objects"]
    return f"{', '.join(ducklake.PACKAGES)}. "


def _append_together(folder: Path, contender: Contender, data: pa.Table, writers: int) -> int:
    """Let processes append to one table at once; give how many appends were answered and are there."""
    place = folder / contender.name / "together"
    place.mkdir(parents=True)
    contender.create(place, data.schema)
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager:
        ready = manager.Barrier(writers)
        with context.Pool(writers) as pool:
            work = [(contender.name, str(place), ready) for _ in range(writers)]
            answered = sum(pool.starmap(_append_many, work, chunksize=1))
    if contender is OURS:
        with connect(place) as lake:
            assert lake.table("points").scan([ASKED]).read_all().num_rows == answered * APPEND_ROWS
    return answered


def _append_many(name: str, folder: str, ready: Any) -> int:
    """Be one of several writers; give how many appends were answered."""
    data, append = points(WRITER_APPENDS), CONTENDERS[name].open(Path(folder))
    ready.wait()
    answered = 0
    for at in range(WRITER_APPENDS):
        try:
            append(data.slice(at * APPEND_ROWS, APPEND_ROWS))
            answered += 1
        except Exception:  # of any library: what is counted is what was answered
            continue
    return answered


def _versions(present: Sequence[Contender]) -> str:
    packages = dict.fromkeys(each.package for each in present if each.package != "tidelake")
    return ", ".join(f"{package} {version(package)}" for package in packages) + "."
