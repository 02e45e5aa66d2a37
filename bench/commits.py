"""Measure commits beside peers: how many a second, from one writer and from several, and whether they stay as cheap.

A commit appends a hundred rows as one small extent: register it, write and sync the object, commit. Peers append the
same rows to tables of their own, in turns of fifty commits, so that a slow minute of the machine hits all alike. Then
several processes append to one table at once, and at last the extents of a large table are listed. Amounts are in
proportion to the rows asked for. It does not measure reading rows.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import shutil
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa

from bench.data import ROWS, SPAN_US, START_US, log_table
from bench.peers import PEERS, Append, Contender, opened, synced
from bench.report import Ratio, Report
from tidelake.catalog import Catalog, Pending, open_catalog
from tidelake.catalog.commit import Coordinator
from tidelake.catalog.protocol import new_id
from tidelake.format import WriteOptions, tlm
from tidelake.lake import connect
from tidelake.model.predicate import And, Equals, TimeRange
from tidelake.model.schema import Schema
from tidelake.model.snapshot import AddExtent, Commit, Extent, Scope
from tidelake.objects import ObjectStore, extent_key, open_store
from tidelake.write.stager import extent_of

COMMITS = 5_000  # of ours; all amounts are for the whole of bench.data
PEER_COMMITS = 300  # some cost more with every commit: a thousand take one of them ten minutes
WRITER_COMMITS = 25  # of each writer, when there are several
EXTENTS = 100_000  # to list
TURN = 50  # commits, of each contender
WRITERS = 8
COMMIT_ROWS = 100
LISTED_ROWS = 5  # of each extent that is listed
LISTED_WITHIN_S = 0.03

METHOD = (
    f"A commit appends {COMMIT_ROWS} log rows. Ratios are of medians of the time of one commit, rows in memory to "
    "answer.",
    "tidelake syncs the object, its folder and the catalog before it answers. Of the peers as they come, only "
    "pyiceberg's SQLite syncs anything; 'synced' adds a sync of the file system after each append, as durable as ours.",
    "Every contender keeps its table open. Each writes to a warm-up table first. Turns are of fifty commits.",
    "'hot rows' is what tidelake does with small appends unless told otherwise: the rows are kept in the catalog, and "
    "an extent is written for every 50,000 of them, in the background.",
    "Several writers are processes that start together; their rate is of all commits from the first start to the last "
    "end. Lost races are tried again by each library itself; no append is left out.",
    f"Listing asks for one hundredth of the time and one of 24 services, of extents with {LISTED_ROWS} rows and one "
    "service each, in a catalog of one process with its cache warm. No peer is measured there.",
)


def _create_ours(folder: Path, schema: pa.Schema) -> None:
    with connect(folder) as lake:
        lake.create_table("logs", Schema.from_arrow(schema))


def _open_ours(folder: Path) -> Append:
    catalog, store = open_catalog(folder), open_store(folder)
    coordinator = Coordinator(catalog)
    scope = catalog.table("logs").scope

    def append(rows: pa.Table) -> None:
        extent_id = new_id()
        key = extent_key("default", "logs", extent_id, tlm.FORMAT.suffix)
        catalog.register_pending([Pending(key, scope, f"{os.getpid()}")])
        added = AddExtent(_write_extent(store, key, extent_id, rows))
        coordinator.commit(Commit(new_id(), scope, coordinator.head(scope).sequence, (added,)))

    return append


def _open_hot(folder: Path) -> Append:
    return connect(folder).table("logs").append


OURS = Contender("tidelake", "tidelake", _create_ours, _open_ours, "catalog.sqlite*")
HOT = Contender("tidelake, hot rows", "tidelake", _create_ours, _open_hot, "catalog.sqlite*")
CONTENDERS = {each.name: each for each in (OURS, HOT, *PEERS, *map(synced, PEERS))}


def run(folder: Path, *, rows: int, rounds: int, writers: int = WRITERS) -> Report:
    """Measure everything; tables go to a folder that the caller removes."""
    present = [each for each in CONTENDERS.values() if each.is_installed]
    amounts = {each.name: COMMITS if each in (OURS, HOT) else PEER_COMMITS for each in present}
    counts = {name: max(_share(amount, rows), TURN) for name, amount in amounts.items()}
    alone = _append_in_turns(folder, present, counts)
    sizes = {f"what {each.name} knows after {counts[each.name]:,} commits": _known(folder, each) for each in present}
    together = {
        each.name: [_append_together(folder / f"together-{number}", each, writers, rows) for number in range(rounds)]
        for each in (OURS, HOT, *PEERS)
        if each.is_installed
    }
    listed, listing = _list(folder / "listed", max(_share(EXTENTS, rows), 24), rounds)
    seconds = {f"{name}: the first {TURN}": tuple(times[:TURN]) for name, times in alone.items()}
    seconds |= {f"{name}: the last {TURN} of {counts[name]:,}": tuple(times[-TURN:]) for name, times in alone.items()}
    seconds |= {f"{name}: a commit of {writers} writers": tuple(each) for name, each in together.items()}
    seconds |= {f"listing {listed}": listing}
    rates = {f"{name}, one writer": len(times) / sum(times) for name, times in alone.items()}
    rates |= {f"{name}, {writers} writers": 1 / median(each) for name, each in together.items()}
    return Report(
        name="commits",
        workload=f"{counts[OURS.name]:,} commits of {COMMIT_ROWS} log rows, {min(counts.values()):,} of each peer; "
        f"{writers} writers at once; listing {listed}.",
        ratios=tuple(_ratios(alone, together, listing, writers)),
        seconds=seconds,
        sizes=sizes,
        method=(*METHOD, _versions(present)),
        rates=rates,
    )


def _ratios(
    alone: Mapping[str, Sequence[float]],
    together: Mapping[str, Sequence[float]],
    listing: Sequence[float],
    writers: int,
) -> Iterator[Ratio]:
    ours = alone[OURS.name]
    for name, times in alone.items():
        if name in (OURS.name, HOT.name):
            continue
        goal = None if name == "Lance" or "synced" in name else 1.0
        until = len(times)
        first, last = (
            f"one of the {which} {TURN} commits, against {name}" for which in ("first", f"last of {until:,}")
        )
        yield Ratio(first, median(ours[:TURN]), median(times[:TURN]), "s", goal)
        yield Ratio(last, median(ours[until - TURN : until]), median(times[-TURN:]), "s", goal)
    for name, each in together.items():
        if name not in (OURS.name, HOT.name):
            goal = None if name == "Lance" else 1.0
            yield Ratio(
                f"a commit of {writers} writers, against {name}", median(together[OURS.name]), median(each), "s", goal
            )
    for name in (OURS.name, HOT.name):
        times = alone[name]
        grown = f"{name}: the last {TURN} of {len(times):,} commits, against the first"
        yield Ratio(grown, median(times[-TURN:]), median(times[:TURN]), "s", 1.2)
    yield Ratio("listing, against 30 ms", median(listing), LISTED_WITHIN_S, "s", 1.0)


def _append_in_turns(
    folder: Path, contenders: Sequence[Contender], counts: Mapping[str, int]
) -> dict[str, list[float]]:
    """Time every commit of every contender."""
    data = log_table(COMMIT_ROWS * max(counts.values()))
    appends = {each.name: opened(folder / "alone" / each.name, each, data, rows=COMMIT_ROWS) for each in contenders}
    seconds: dict[str, list[float]] = {name: [] for name in appends}
    for turn in range(0, max(counts.values()), TURN):
        for name, append in appends.items():
            gc.collect()
            for at in range(turn, min(turn + TURN, counts[name])):
                rows = data.slice(at * COMMIT_ROWS, COMMIT_ROWS)
                began = time.perf_counter()
                append(rows)
                seconds[name].append(time.perf_counter() - began)
    return seconds


def _append_together(folder: Path, contender: Contender, writers: int, rows: int) -> float:
    """Let processes append to one table, and give the time of all divided by their commits."""
    place = folder / contender.name
    place.mkdir(parents=True)
    contender.create(place, log_table(1).schema)
    commits = max(_share(WRITER_COMMITS, rows), 3)
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager:
        ready = manager.Barrier(writers)
        with context.Pool(writers) as pool:
            work = [(contender.name, str(place), commits, ready) for _ in range(writers)]
            spans = pool.starmap(_append_many, work, chunksize=1)
    shutil.rmtree(place)
    return (max(end for _, end in spans) - min(begin for begin, _ in spans)) / (writers * commits)


def _append_many(name: str, folder: str, commits: int, ready: Any) -> tuple[float, float]:
    """Be one of several writers; give the times of the system's clock between which it wrote."""
    data = log_table(COMMIT_ROWS)
    append = CONTENDERS[name].open(Path(folder))
    append(data)  # what happens only once in a process is not what is measured
    ready.wait()
    began = time.time()
    for _ in range(commits):
        append(data)
    return began, time.time()


def _list(folder: Path, extents: int, rounds: int) -> tuple[str, tuple[float, ...]]:
    """List some of a table's extents, again and again; say what, and how long each took."""
    folder.mkdir()
    with open_catalog(folder) as catalog:
        schema = Schema.from_arrow(log_table(1).schema)
        scope = catalog.create_table("logs", schema, {"time": "ts"}).scope
        _fill(catalog, scope, extents)
        start_ns = (START_US + SPAN_US // 3) * 1000
        end_ns = start_ns + SPAN_US * 10
        where = And((TimeRange("ts", start_ns, end_ns), Equals("service", "service-07")))
        seconds = []
        for _ in range(rounds * 10 + 1):
            began = time.perf_counter()
            found = catalog.extents(scope, start_ns=start_ns, end_ns=end_ns, where=where)
            seconds.append(time.perf_counter() - began)
    return f"{len(found):,} of {extents:,} extents", tuple(seconds[1:])


def _fill(catalog: Catalog, scope: Scope, extents: int) -> None:
    """Commit extents that follow each other in time, each of one service, a thousand at once."""
    samples = [_sample(service) for service in range(24)]
    span_ns = SPAN_US * 1000 // extents
    numbers = count()
    for begin in range(0, extents, 1000):
        added = []
        for at in range(begin, min(begin + 1000, extents)):
            sample, start_ns = samples[at % 24], START_US * 1000 + at * span_ns
            name = f"{next(numbers):032}"
            bounds = {"min": start_ns, "max": start_ns + span_ns - 1}
            stats = {**sample.column_stats, "ts": {**sample.column_stats["ts"], **bounds}}
            added.append(_moved(sample, name, bounds["min"], bounds["max"], stats))
        catalog.register_pending([Pending(extent.key, scope, "bench") for extent in added])
        head = catalog.head(scope)
        actions = tuple(AddExtent(extent) for extent in added)
        catalog.commit([Commit(new_id(), scope, head.sequence, actions)], onto=head)


def _sample(service: int) -> Extent:
    """Write an extent with rows of one service, for its statistics."""
    rows = log_table(20_000)
    named = pa.array([f"service-{service:02}"] * LISTED_ROWS)
    few = rows.slice(service * LISTED_ROWS, LISTED_ROWS)
    few = few.set_column(few.schema.get_field_index("service"), "service", named)
    return _write_extent(open_store("memory://"), "sample", "sample", few)


def _moved(sample: Extent, name: str, low: int, high: int, stats: Mapping[str, Any]) -> Extent:
    return Extent(
        name,
        f"data/{name}",
        sample.format,
        sample.byte_size,
        sample.row_count,
        sample.block_count,
        low,
        high,
        sample.schema_version,
        stats,
    )


def _write_extent(store: ObjectStore, key: str, extent_id: str, rows: pa.Table) -> Extent:
    schema = Schema.from_arrow(rows.schema)
    writer = tlm.FORMAT.start_extent(store, key, schema, extent_id=extent_id, options=WriteOptions(time="ts"))
    for batch in rows.to_batches():
        writer.append(batch)
    return extent_of(writer.finish(), extent_id, key, tlm.FORMAT.name, schema)


def _known(folder: Path, contender: Contender) -> int:
    """Add up the bytes of what a contender keeps beside the rows."""
    place = folder / "alone" / contender.name / "table"
    return sum(file.stat().st_size for file in place.glob(contender.knowledge) if file.is_file())


def _share(amount: int, rows: int) -> int:
    """Return an amount in proportion to the rows asked for."""
    return amount * rows // ROWS


def _versions(present: Sequence[Contender]) -> str:
    packages = dict.fromkeys(each.package for each in present if each.package != "tidelake")
    left_out = ", ".join(each.name for each in PEERS if not each.is_installed)
    found = ", ".join([f"SQLite {sqlite3.sqlite_version}", *(f"{package} {version(package)}" for package in packages)])
    return f"{found}." + (f" Left out, because not installed: {left_out}." if left_out else "")
