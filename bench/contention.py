"""Measure many processes that append to one table at once, beside Lance: how many a second, and how long they wait.

Every process has the table open and has appended once before all start together. Each append is timed from its rows to
its answer; an error is counted and not tried again. While they append, tidelake's table may be widened, flushed,
compacted and collected by more processes. It does not measure one writer alone: see ``commits`` and ``trickle``.
"""

from __future__ import annotations

import multiprocessing
import resource
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import pyarrow as pa

from bench.data import ROWS, log_table
from bench.peers import PEERS, Append, Contender, synced
from bench.report import Ratio, Report
from tidelake.lake import connect
from tidelake.model.schema import Schema

WRITERS = 64
APPENDS = 100  # of each writer, for the whole of bench.data
PEER_APPENDS = 5  # of Lance's writers: each append is a version, and the next one costs more
APPEND_ROWS = 10
RATE_GOAL = 300  # a second, of all writers
P99_GOAL_S = 2.0
WITHIN_S = 1_800
BESIDE = "beside a widener and a flusher"
UPKEEP = "beside a widener, compaction and collection"

METHOD = (
    f"An append has {APPEND_ROWS} log rows. Processes are forked from one that has imported all, open the table, "
    "append once, and start together; rates are of all appends from the first start to the last end.",
    "tidelake's appends are on the disk when they are answered: small ones are rows in its catalog, here SQLite. "
    "Lance syncs nothing as it comes; 'synced' adds a sync of the file system after each append.",
    f"'{BESIDE}' is with two more processes that add a column, or flush, again and again as fast as they can.",
    f"'{UPKEEP}' is with three: one adds a column again and again, one flushes and compacts, one expires what is older "
    "than a second and collects.",
    "Processor time is of all writers, divided by their appends.",
)


@dataclass(frozen=True, slots=True)
class Contention:
    """What writers saw."""

    seconds: tuple[float, ...]  # of each append that was answered
    errors: tuple[str, ...]
    span_s: float
    processor_s: float

    @property
    def rate(self) -> float:
        return len(self.seconds) / self.span_s

    @property
    def p99_s(self) -> float:
        return quantiles(self.seconds, n=100)[98]


def _create_ours(folder: Path, schema: pa.Schema) -> None:
    with connect(folder) as lake:
        lake.create_table("logs", Schema.from_arrow(schema))


def _open_ours(folder: Path) -> Append:
    return connect(folder).table("logs").append


OURS = Contender("tidelake", "tidelake", _create_ours, _open_ours, "catalog.sqlite*")
LANCE = next(each for each in PEERS if each.name == "Lance")
CONTENDERS = {each.name: each for each in (OURS, LANCE, synced(LANCE))}


def run(folder: Path, *, rows: int, rounds: int, writers: int = WRITERS) -> Report:
    """Measure everything; tables go to a folder that the caller removes."""
    appends = max(APPENDS * rows // ROWS, 3)
    present = [each for each in CONTENDERS.values() if each.is_installed]
    found: dict[str, list[Contention]] = {}
    for _ in range(rounds):
        for each in present:
            count = appends if each is OURS else min(appends, PEER_APPENDS)
            found.setdefault(each.name, []).append(contend(folder / "alone", each, writers, count))
        for said, beside in ((BESIDE, (_widen, _flush)), (UPKEEP, (_widen, _compact, _collect))):
            measured = contend(folder / "beside", OURS, writers, appends, beside=beside)
            found.setdefault(f"{OURS.name}, {said}", []).append(measured)
    return Report(
        name="contention",
        workload=f"{writers} processes of {appends} appends of {APPEND_ROWS} log rows to one table; of at most "
        f"{PEER_APPENDS} for Lance.",
        ratios=tuple(_ratios(found, writers * appends)),
        seconds={f"{name}: an append": tuple(s for each in many for s in each.seconds) for name, many in found.items()},
        sizes={},
        method=(*METHOD, *_facts(found), _versions(present)),
        rates={name: median(each.rate for each in many) for name, many in found.items()},
    )


def contend(
    folder: Path, contender: Contender, writers: int, appends: int, *, beside: Sequence[Any] = ()
) -> Contention:
    """Let processes append to one new table, with others at work beside them."""
    place = folder / contender.name
    place.mkdir(parents=True)
    data = log_table(APPEND_ROWS)
    contender.create(place, data.schema)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["bench.contention", "lance"])  # what is not installed is left out
    start, answers, end = context.Barrier(writers), context.SimpleQueue(), context.Event()
    processes = [
        context.Process(target=_append_many, args=(contender.name, str(place), data, appends, start, answers))
        for _ in range(writers)
    ]
    with _running([context.Process(target=each, args=(str(place), end)) for each in beside], end):
        for process in processes:
            process.start()
        told = [answers.get() for _ in processes]
        for process in processes:
            process.join(WITHIN_S)
    shutil.rmtree(place)
    return Contention(
        tuple(second for each in told for second in each[0]),
        tuple(error for each in told for error in each[1]),
        max(each[3] for each in told) - min(each[2] for each in told),
        sum(each[4] for each in told),
    )


@contextmanager
def _running(processes: Sequence[Any], end: Any) -> Iterator[None]:
    """Have processes at work during a block."""
    for process in processes:
        process.start()
    yield
    end.set()
    for process in processes:
        process.join(WITHIN_S)
        if process.exitcode:
            raise RuntimeError("a process beside the writers failed")


def _append_many(name: str, folder: str, data: pa.Table, appends: int, start: Any, answers: Any) -> None:
    """Be one of many writers: tell how long each append took, what failed, from when to when, and processor time."""
    append = CONTENDERS[name].open(Path(folder))
    append(data)  # what happens only once in a process is not what is measured
    seconds, errors = [], []
    start.wait()
    began, before = time.time(), resource.getrusage(resource.RUSAGE_SELF)
    for _ in range(appends):
        begun = time.perf_counter()
        try:
            append(data)
            seconds.append(time.perf_counter() - begun)
        except Exception as error:
            errors.append(f"{type(error).__name__}: {error}")
    after = resource.getrusage(resource.RUSAGE_SELF)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    answers.put((seconds, errors, began, time.time(), used))


def _widen(folder: str, end: Any) -> None:
    """Add a column with every append, until the writers are done."""
    with connect(folder) as lake:
        table, row, number = lake.table("logs"), log_table(1).to_pylist()[0], 0
        while not end.wait(0.2):
            number += 1
            table.append([{**row, f"added_{number}": number}])


def _flush(folder: str, end: Any) -> None:
    """Turn hot rows into extents, until the writers are done."""
    with connect(folder) as lake:
        table = lake.table("logs")
        while not end.wait(0.2):
            table.flush()


def _compact(folder: str, end: Any) -> None:
    """Turn hot rows into extents and join them, until the writers are done."""
    with connect(folder) as lake:
        table = lake.table("logs")
        while not end.wait(0.2):
            table.flush()
            table.compact()


def _collect(folder: str, end: Any) -> None:
    """Let go of older snapshots, and delete what only they held, until the writers are done."""
    with connect(folder) as lake:
        table = lake.table("logs")
        while not end.wait(0.2):
            table.expire("1s")
            lake.collect()


def _ratios(found: Mapping[str, Sequence[Contention]], appends: int) -> Iterator[Ratio]:
    for name, many in found.items():
        if not name.startswith(OURS.name):
            continue
        rate, p99_s = median(each.rate for each in many), median(each.p99_s for each in many)
        answered = min(len(each.seconds) for each in many)
        yield Ratio(f"{name}: appends that were wanted, against answered", appends, answered, "appends", 1.0)
        yield Ratio(f"{name}: {RATE_GOAL} a second, against the rate", RATE_GOAL, rate, "a second", 1.0)
        yield Ratio(f"{name}: the 99th percentile, against {P99_GOAL_S:g} s", p99_s, P99_GOAL_S, "s", 1.0)
    ours = found[OURS.name]
    for name, many in found.items():
        if name.startswith(OURS.name):
            continue
        mean, peer = (median(1 / each.rate for each in which) for which in (ours, many))
        yield Ratio(f"an append of all writers, against {name}", mean, peer, "s")
        last, peer = (median(each.p99_s for each in which) for which in (ours, many))
        yield Ratio(f"the 99th percentile, against {name}", last, peer, "s")


def _facts(found: Mapping[str, Sequence[Contention]]) -> Iterator[str]:
    for name, many in found.items():
        for each in many:
            kinds = sorted({error.partition(":")[0] for error in each.errors})
            used_ms = each.processor_s / len(each.seconds) * 1000
            yield (
                f"{name}: {each.rate:,.0f} a second; half within {median(each.seconds):.3f} s, 99 of 100 within "
                f"{each.p99_s:.3f} s, the slowest {max(each.seconds):.3f} s; {used_ms:.2f} ms of processor time; "
                f"{len(each.errors)} errors{' ' if kinds else ''}{', '.join(kinds)}."
            )


def _versions(present: Sequence[Contender]) -> str:
    packages = dict.fromkeys(each.package for each in present if each.package != "tidelake")
    left_out = ", ".join(each.name for each in CONTENDERS.values() if not each.is_installed)
    found = ", ".join(f"{package} {version(package)}" for package in packages)
    return (f"{found}." if found else "") + (f" Left out, because not installed: {left_out}." if left_out else "")
