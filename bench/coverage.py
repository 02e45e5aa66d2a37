"""Measure tables that know their time windows, beside timeseries-table-format, and alone with ten thousand entities.

Both get the same rows in memory, a second apart, of a hundred devices some of which have gaps; both refuse a window
that is held. The peer keeps coverage but has no question for it in Python, so its gaps are found by SQL, as its users
do. It does not measure queries in general.
"""

from __future__ import annotations

import gc
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pyarrow as pa

import tidelake
from bench.data import ROWS
from bench.report import Ratio, Report
from tidelake.catalog.protocol import new_id
from tidelake.coverage.bitmaps import Runs
from tidelake.coverage.entities import entity_text, from_runs, missing
from tidelake.model.snapshot import Commit, UpdateTable

DEVICES = 100
GAP_SECONDS = 60
PARTS = 10
START = datetime(2026, 1, 1, tzinfo=UTC)
ENTITIES = 10_000  # of the large report, at the usual number of rows
YEAR_MINUTES = 365 * 24 * 60
YEAR_GAPS = 20  # of each entity
SCHEMA = {"ts": "timestamp", "device": "string", "load": "real", "heat": "real", "state": "long", "site": "string"}
PEER = "timeseries-table-format"

METHOD = (
    "Ratios are of medians; contenders take turns, in one process; the first round is a warm-up and is left out.",
    "Rows are in memory, in time order, all devices of a second side by side. Every append makes a new table, finds "
    "what the rows cover, checks that nothing is there twice, and ends with files synced to disk.",
    "Ranges are read into one Arrow table; ours are compared with the peer's, row for row in number.",
    "Gaps: ours are asked of a lake that was just opened, and once more of the same; the peer's are found by SQL with "
    "LAG, on a table that is registered already.",
    "The large report is of a table whose united coverage was written as a commit writes it; there are no rows behind "
    "it. Cold is a lake that was just opened, its files in the page cache, imports done; cached is the next question.",
)


@dataclass(slots=True)
class _Times:
    """What each contender took, each round."""

    seconds: dict[str, list[float]] = field(default_factory=dict)

    def take(self, name: str, contend: Callable[[], Any]) -> Any:
        gc.collect()
        began = time.perf_counter()
        answer = contend()
        self.seconds.setdefault(name, []).append(time.perf_counter() - began)
        return answer

    def without_warm_up(self) -> dict[str, tuple[float, ...]]:
        return {name: tuple(each[1:]) for name, each in self.seconds.items()}


def run(folder: Path, *, rows: int, rounds: int) -> Report:
    """Measure everything; files go to a folder that the caller removes."""
    has_peer = _is_installed()
    data = device_rows(rows)
    times, sizes = _Times(), dict[str, int]()
    for number in range(rounds + 1):
        place = folder / str(number)
        _measure_ours(place, data, times, sizes)
        if has_peer:
            _measure_peer(place, data, times, sizes)
        shutil.rmtree(place)
    entities = max(ENTITIES * rows // ROWS, 10)
    for _ in range(rounds + 1):
        _measure_large(folder, entities, times, sizes)
    seconds = times.without_warm_up()
    medians = {name: median(each) for name, each in seconds.items()}
    workload = (
        f"{data.num_rows:,} rows of {DEVICES} devices a second apart, {data.nbytes / 2**20:,.0f} MiB in memory, with "
        f"gaps of {GAP_SECONDS} s; then {entities:,} entities over a year of minutes."
    )
    ratios = _ratios(medians, sizes, entities, has_peer=has_peer)
    return Report("coverage", workload, tuple(ratios), seconds, sizes, METHOD)


def device_rows(rows: int) -> pa.Table:
    """Make rows of a hundred devices, every tenth of which lacks a minute."""
    random = np.random.default_rng(5)
    count = max(rows // DEVICES, 2 * GAP_SECONDS)
    second = np.repeat(np.arange(count, dtype=np.int64), DEVICES)
    device = np.tile(np.arange(DEVICES, dtype=np.int32), count)
    hole = count // 2
    keep = ~((device % 10 == 0) & (second >= hole) & (second < hole + GAP_SECONDS))
    second, device = second[keep], device[keep]
    size = len(second)
    names = pa.array([f"device-{number:03d}" for number in range(DEVICES)])
    sites = pa.array([f"site-{number:02d}" for number in range(24)])
    start = round(START.timestamp()) * 10**6
    return pa.table(
        {
            "ts": pa.array(start + second * 10**6, pa.timestamp("us", tz="UTC")),
            "device": names.take(pa.array(device)),
            "load": pa.array(random.random(size).round(3)),
            "heat": pa.array((random.random(size) * 100).round(1)),
            "state": pa.array(random.integers(0, 5, size)),
            "site": sites.take(pa.array(device % 24)),
        }
    )


def _range(data: pa.Table) -> tuple[datetime, datetime]:
    """Return a twentieth of the time, away from its ends."""
    seconds = data.num_rows // DEVICES
    return START + timedelta(seconds=seconds * 6 // 10), START + timedelta(seconds=seconds * 13 // 20)


def _measure_ours(place: Path, data: pa.Table, times: _Times, sizes: dict[str, int]) -> None:
    with tidelake.connect(place / "ours") as lake:
        words: dict[str, Any] = {"bucket": "1s", "entity": ["device"], "coverage": "exclusive"}
        whole = lake.create_table("whole", SCHEMA, **words)
        times.take("append: ours", lambda: whole.append(data))
        parts = lake.create_table("parts", SCHEMA, **words)
        times.take("append in ten parts: ours", lambda: [parts.append(part) for part in _parts(data)])
    start, end = _range(data)
    with tidelake.connect(place / "ours") as lake:
        table = lake.table("whole")
        gaps = times.take("all gaps: ours, just opened", lambda: table.coverage.gaps())
        times.take("all gaps: ours, again", lambda: table.coverage.gaps())
        read = times.take("a range: ours", lambda: table.scan(start=start, end=end).read_all())
        one = times.take(
            "one device in a range: ours",
            lambda: table.scan(where="device == 'device-007'", start=start, end=end, ordered=True).read_all(),
        )
    sizes["gaps found"] = gaps.num_rows
    sizes["rows of the range"], sizes["rows of the device"] = read.num_rows, one.num_rows


def _measure_peer(place: Path, data: pa.Table, times: _Times, sizes: dict[str, int]) -> None:
    import timeseries_table_format as peer

    def create(name: str) -> Any:
        return peer.TimeSeriesTable.create(
            table_root=str(place / name), index_column="ts", index_type="timestamp", index_granularity="1s",
            entity_columns=["device"],
        )  # fmt: skip

    whole, parts = create("whole"), create("parts")
    times.take(f"append: {PEER}", lambda: whole.append(data))
    times.take(f"append in ten parts: {PEER}", lambda: [parts.append(part) for part in _parts(data)])
    session = peer.Session()
    session.register_tstable("whole", str(place / "whole"))
    start, end = (f"TIMESTAMP '{time:%Y-%m-%dT%H:%M:%SZ}'" for time in _range(data))
    within = f"ts >= {start} AND ts < {end}"
    found = times.take(f"all gaps: {PEER} by SQL", lambda: session.sql(_GAPS))
    read = times.take(f"a range: {PEER}", lambda: session.sql(f"SELECT * FROM whole WHERE {within}"))
    one = times.take(
        f"one device in a range: {PEER}",
        lambda: session.sql(f"SELECT * FROM whole WHERE device = 'device-007' AND {within} ORDER BY ts"),
    )
    answers = (found.num_rows, read.num_rows, one.num_rows)
    if answers != (sizes["gaps found"], sizes["rows of the range"], sizes["rows of the device"]):
        raise RuntimeError(f"the answers differ: {answers}")


_GAPS = """
    SELECT device, before, ts
    FROM (SELECT device, ts, LAG(ts) OVER (PARTITION BY device ORDER BY ts) AS before FROM whole)
    WHERE ts - before > INTERVAL '1 second'
"""


def _measure_large(folder: Path, entities: int, times: _Times, sizes: dict[str, int]) -> None:
    """Ask for the gaps of very many entities over a year of minutes."""
    place = folder / "large"
    if not place.exists():
        _write_large(place, entities, sizes)
    with tidelake.connect(place) as lake:
        table = lake.table("year")
        found = times.take("gaps of the year, cold", lambda: table.coverage.gaps())
        times.take("gaps of the year, cached", lambda: table.coverage.gaps())
        times.take("report of the year, cached", lambda: table.coverage.report())
    sizes["gaps of the year"] = found.num_rows


def _write_large(place: Path, entities: int, sizes: dict[str, int]) -> None:
    random = np.random.default_rng(6)
    owner = np.repeat(np.arange(entities, dtype=np.int64), YEAR_GAPS)
    first = np.sort(random.integers(1, YEAR_MINUTES // 40 - 1, (entities, YEAR_GAPS)) * 40, axis=1).ravel()
    keep = np.ones(len(first), dtype=bool)
    keep[1:] = (owner[1:] != owner[:-1]) | (first[1:] != first[:-1])
    owner, first = owner[keep], first[keep]
    gaps = Runs(owner, first, first + random.integers(0, 30, len(first)))
    held = missing(gaps, entities, 0, YEAR_MINUTES - 1)
    coverage = from_runs(held, [entity_text([f"device-{number:05d}"]) for number in range(entities)])
    with tidelake.connect(place) as lake:
        table = lake.create_table("year", {"ts": "timestamp", "device": "string"}, bucket="1m", entity=["device"])
        lake.handle.coverage_store.learn(table.snapshot, coverage)
        scope = lake.catalog.table("year").scope
        lake.handle.coordinator.commit(Commit(new_id(), scope, 1, (UpdateTable(),), operation="repair"))
        united = table.snapshot.coverage
        assert united is not None
        sizes["coverage of the year"] = lake.store.head(united.key).size


def _ratios(medians: dict[str, float], sizes: dict[str, int], entities: int, *, has_peer: bool) -> list[Ratio]:
    found = []
    if has_peer:
        for name, goal in (
            ("append", 1.0),
            ("append in ten parts", 1.0),
            ("a range", 1.0),
            ("one device in a range", 1.0),
        ):
            found.append(
                Ratio(f"{name}, against {PEER}", medians[f"{name}: ours"], medians[f"{name}: {PEER}"], "s", goal)
            )
        theirs = medians[f"all gaps: {PEER} by SQL"]
        found += [
            Ratio(f"all gaps, {when}, against {PEER} by SQL", medians[f"all gaps: ours, {when}"], theirs, "s", 0.02)
            for when in ("just opened", "again")
        ]
    return [
        *found,
        Ratio("gaps of the year, cold, against one second", medians["gaps of the year, cold"], 1.0, "s", 1.0),
        Ratio("gaps of the year, cached, against 100 ms", medians["gaps of the year, cached"], 0.1, "s", 1.0),
        Ratio(
            "coverage of an entity's year, against 60 KB",
            sizes["coverage of the year"] / entities,
            60_000,
            "bytes",
            1.0,
        ),
    ]


def _parts(data: pa.Table) -> list[pa.Table]:
    size = -(-data.num_rows // PARTS // DEVICES) * DEVICES  # whole seconds, but for what gaps leave out
    cuts = [*range(0, data.num_rows, size)][:PARTS]
    return [data.slice(cut, size if number < len(cuts) - 1 else None) for number, cut in enumerate(cuts)]


def _is_installed() -> bool:
    try:
        return bool(version(PEER))
    except PackageNotFoundError:
        return False
