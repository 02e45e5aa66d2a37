"""Let writers, deleters, upkeep and readers work on one table for long, killing them at random, and count all rows.

Every process notes what it is about to do and what was acknowledged. At the end each append and each change of it is
there wholly or not at all, and certainly if it was acknowledged; nothing is doubled; no reader missed an object of a
snapshot that it held; and once all is quiet, a collection leaves exactly what snapshots hold, and a query costs what it
costs on a lake that has no history. A cycle is one whole round of upkeep: flush, compact, retain, do what a worker
finds to do, expire, collect. ``TIDELAKE_SOAK_SECONDS`` says how long: on SQLite 20 minutes unless it is set, on the
others a quarter of that. It does not assert how long anything takes: it compares processor time of two lakes in turns.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, TypeAlias

import pytest

import tidelake
from tests.support.catalogs import fresh_schema
from tests.support.upkeep import check_store
from tidelake import Lake, Table
from tidelake.errors import ConflictError, NotFoundError
from tidelake.handle import leases
from tidelake.maintain.retention import retain
from tidelake.objects import COVERAGE_FOLDER, DATA_FOLDER

TABLE = "m.cpu"
COLUMNS = {"ts": "timestamp", "n": "long", "k": "string", "v": "int", "d": "dynamic"}
START = int(time.time()) // 3600 * 3600
DAY = 86_400
FIXED = 50_000  # rows that nobody changes, numbered below 0
STRIDE = 10_000  # between the numbers of two appends
AT_ONCE = 20  # appends that one delete is for: more than come meanwhile, so that the table stays as large as it is
REPLACED = 5_000  # more than this is the number of a row that came in another's place
LEASE_S = 20.0  # so long that a process which waits for a busy machine has time to prolong it
SECONDS = float(os.environ.get("TIDELAKE_SOAK_SECONDS", "1200"))
WITHIN_S = 120
QUERIES = 600
SHARES = {"sqlite": 1.0, "log": 0.25, "postgres": 0.25}  # of the time
NOW: dict[str, Any] = {"abandoned_after": "0s", "orphan_after": "0s"}
SOON: dict[str, Any] = {"abandoned_after": "10s", "orphan_after": "10s"}

Open: TypeAlias = Callable[[], Lake]


@dataclass
class Worker:
    """One process: its lake, its chance, where it notes what it does, and where all notes are."""

    lake: Lake
    chance: random.Random
    notes: Path
    folder: Path
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def table(self) -> Table:
        return self.lake.table(TABLE)

    def note(self, *words: object) -> None:
        """Note something, at once and as a whole line."""
        with self.notes.open("ab", buffering=0) as file:
            file.write((" ".join(map(str, words)) + "\n").encode())


def rows(first: int, count: int, *, at_s: int) -> list[dict[str, Any]]:
    odd: Any = "text" if first % 7 == 0 else None  # now and then a value that does not fit
    return [
        {"ts": at_s + at, "n": first + at, "k": "abc"[at % 3], "v": odd or at, "d": {"x": at % 5}}
        for at in range(count)
    ]


def begins_at(first: int) -> int:
    """Return when the rows of an append begin: most of them today, some so long ago that retention may take them."""
    number = first // STRIDE
    return START - 3 * DAY + number % 3600 if is_old(first) else START - (number * 37) % (6 * 3600)


def is_old(first: int) -> bool:
    return first // STRIDE % 10 == 9


def noted(folder: Path) -> Iterator[tuple[str, int, int]]:
    """Yield all notes: what, the number of the append's first row, and how many rows it has."""
    for path in sorted(folder.glob("*.notes")):
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n"):
                mark, first, size = line.split()
                yield mark, int(first), int(size)


def write(worker: Worker) -> None:
    """Append hot or cold; half of the time with a key, and then again if it was not acknowledged."""
    first = int(worker.notes.stem) * 10**9 + worker.counts["appends"] * STRIDE
    worker.counts["appends"] += 1
    size = worker.chance.choice((1, 3, 20, 1100))
    worker.note("?", first, size)
    append(worker, first, size)
    time.sleep(0.4 * worker.chance.random())


def append(worker: Worker, first: int, size: int) -> None:
    key = f"k{first}" if size in (3, 1100) else None
    try:
        worker.table.append(rows(first, size, at_s=begins_at(first)), key=key)
    except ConflictError as error:
        if error.kind != "not_pending":  # it was taken for abandoned
            raise
        worker.note("-", first, size)
    else:
        worker.note("+", first, size)


def finish(worker: Worker) -> None:
    """Do again what writers with a key were killed at, as one does that comes back."""
    marks: dict[tuple[int, int], str] = {}
    for mark, first, size in noted(worker.folder):
        if mark in "?+-":
            marks[first, size] = mark
    for (first, size), mark in marks.items():
        if mark == "?" and size in (3, 1100) and not (worker.folder / f"{first // 10**9}.alive").exists():
            append(worker, first, size)
    time.sleep(1)


def change(worker: Worker) -> None:
    """Delete appends that were acknowledged, or put other rows in their place."""
    known: dict[tuple[int, int], set[str]] = {}
    for mark, first, size in noted(worker.folder):
        known.setdefault((first, size), set()).add(mark)
    able = [each for each, marks in known.items() if "+" in marks and not marks & {"d?", "r?"}]
    chosen = worker.chance.sample(able, min(len(able), AT_ONCE))
    doomed = [each for each in chosen if worker.chance.random() < 0.8 or is_old(each[0])]
    for first, size in doomed:
        worker.note("d?", first, size)
    if doomed:
        worker.table.delete(" or ".join(within(first) for first, _ in doomed))
    for first, size in doomed:
        worker.note("d+", first, size)
    for first, size in set(chosen).difference(doomed):
        worker.note("r?", first, size)
        at_s = begins_at(first)
        new = rows(first + REPLACED, size, at_s=at_s)
        worker.table.replace(new, start=at_s, end=at_s + size, where=within(first))
        worker.note("r+", first, size)
    time.sleep(0.1)


def within(first: int) -> str:
    return f"(n >= {first} and n < {first + STRIDE})"


def tidy(worker: Worker) -> None:
    """Do all upkeep there is, once."""
    table = worker.table
    table.flush()
    table.compact()
    retain(table.handle)
    failed = worker.lake.maintain(seconds=2).failed
    assert not failed, failed
    table.expire("3s")
    worker.lake.collect(**SOON)
    worker.note("cycle", 0, 0)
    time.sleep(0.2 * worker.chance.random())


def let_go(worker: Worker) -> None:
    """Unpin what those who are gone had pinned, expire what is a few seconds old, and collect soon after."""
    for each in worker.table.pins():
        if not (worker.folder / f"{each.name[1:].partition('-')[0]}.alive").exists():
            with suppress(NotFoundError):  # it was just taken back
                worker.table.unpin(each.name)
    worker.table.expire("3s")
    worker.lake.collect(**SOON)
    time.sleep(0.5 * worker.chance.random())


def check_rows(found: list[int]) -> set[int]:
    counts = Counter(found)
    assert max(counts.values()) == 1, "a row is there twice"
    assert sum(n < 0 for n in counts) == FIXED, "a row that nobody changes is not there"
    return set(counts)


def numbers(table: Table) -> list[int]:
    found: list[int] = table.scan(columns=["n"]).read_all()["n"].to_pylist()
    return found


def read(worker: Worker) -> None:
    """Read the newest rows, slowly: what is deleted meanwhile is there for this reader."""
    found: list[int] = []
    for batch in worker.table.scan(columns=["n"]):
        found += batch["n"].to_pylist()
        time.sleep(0.05 * worker.chance.random())
    check_rows(found)


def read_old(worker: Worker) -> None:
    """Hold an older snapshot, and read it again and again: it stays as it is."""
    past = worker.chance.choice(worker.table.history(30))
    try:
        held = worker.lake.table(TABLE, snapshot=past.sequence).pinned()
        first = check_rows(numbers(held))
    except NotFoundError as error:
        if error.kind != "expired":
            raise
        worker.note("late", 0, 0)
        return
    for _ in range(3):
        time.sleep(worker.chance.random())
        assert check_rows(numbers(held)) == first
        assert len(held) == len(first)
    worker.note("held", 0, 0)


def pin(worker: Worker) -> None:
    """Pin a snapshot, which is kept without any lease; widen the table meanwhile."""
    name = f"p{worker.notes.stem}-{worker.counts['pins']}"
    worker.counts["pins"] += 1
    pinned = worker.table.pin(name)
    expected = worker.lake.snapshot(TABLE, snapshot=pinned.sequence).totals
    worker.table.add_column(f"c{worker.counts['pins'] % 12}", "long")
    time.sleep(3 * worker.chance.random())
    found = check_rows(numbers(worker.lake.table(TABLE, snapshot=pinned.sequence)))
    assert len(found) == expected.rows + expected.hot_rows
    worker.table.unpin(name)


def run_worker(opened: Open, do: Callable[[Worker], None], number: int, folder: Path) -> None:
    """Work until killed; note why if it ends otherwise."""
    alive = folder / f"{number}.alive"
    alive.touch()
    try:
        with opened() as lake:
            worker = Worker(lake, random.Random(number), folder / f"{number}.notes", folder)
            while True:
                do(worker)
    except BaseException:
        (folder / f"{number}.error").write_text(f"{do.__name__}\n{traceback.format_exc()}")
        raise


ROLES: tuple[Callable[[Worker], None], ...] = (
    write, write, finish, change, tidy, tidy, let_go, read, read_old, read_old, pin,
)  # fmt: skip


def run(opened: Open, folder: Path, seconds: float, chance: random.Random, look: Callable[[], None]) -> int:
    """Keep one process for each role, killing one about every second, and look; return how many were killed."""
    context = multiprocessing.get_context("fork")
    running: dict[int, tuple[int, Any]] = {}
    born = killed = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for slot, role in enumerate(ROLES):
            if slot not in running:
                born += 1
                process = context.Process(target=run_worker, args=(opened, role, born, folder), daemon=True)
                running[slot] = born, process
                process.start()
        time.sleep(0.5 + chance.random())
        errors = [path.read_text() for path in folder.glob("*.error")]
        assert errors == [], "\n".join(errors)
        number, victim = running.pop(chance.randrange(len(ROLES)))
        victim.kill()
        victim.join(WITHIN_S)
        (folder / f"{number}.alive").unlink(missing_ok=True)
        killed += 1
        look()
    for _, process in running.values():
        process.kill()
        process.join(WITHIN_S)
    errors = [path.read_text() for path in folder.glob("*.error")]
    assert errors == [], "\n".join(errors)
    return killed


def check_all(lake: Lake, folder: Path) -> Counter[str]:
    """Compare every append with what was noted of it; return how many there are of each kind."""
    known: dict[tuple[int, int], set[str]] = {}
    for mark, first, size in noted(folder):
        if size:
            known.setdefault((first, size), set()).add(mark)
    found = check_rows(numbers(lake.table(TABLE)))
    by_append: dict[int, set[int]] = {}
    for n in found:
        by_append.setdefault(n // STRIDE * STRIDE, set()).add(n)
    counts: Counter[str] = Counter()
    for (first, size), marks in known.items():
        there = by_append.get(first, set())
        own, other = set(range(first, first + size)), set(range(first + REPLACED, first + REPLACED + size))
        may_be: list[set[int]] = [own] if "+" in marks else [set()] if "-" in marks else [own, set()]
        if "d?" in marks:
            may_be = [set()] if "d+" in marks else [own, set()]
        if "r?" in marks:
            may_be = [other] if "r+" in marks else [own, other]
        if is_old(first):
            assert there <= own, (first, size, marks)
        else:
            assert there in may_be, (first, size, marks, len(there))
        counts["old" if is_old(first) else "acknowledged" if "+" in marks else "uncertain"] += 1
        counts.update(marks & {"d+", "r+"})
        found -= there
    assert all(n < 0 for n in found), "rows that nobody wrote"
    return counts


def query_s(*lakes: Lake) -> list[float]:
    """Return the processor time of a query on each of some lakes, the median of many in turns."""
    taken: list[list[float]] = [[] for _ in lakes]
    for _ in range(QUERIES):
        for lake, seconds in zip(lakes, taken, strict=True):
            began = time.process_time()
            lake.table(TABLE).scan(columns=["n", "k"], where="k == 'b' and n > -40000").read_all()
            seconds.append(time.process_time() - began)
    return list(map(median, taken))


def make_table(lake: Lake, sizes: Iterable[int] = (FIXED // 5,) * 5, **settings: Any) -> None:
    """Make the table, with the rows that nobody changes, in extents of some sizes."""
    words = {"flush_age": "2s", "retention": "1d", "history": "1h", **settings}
    table = lake.create_table(TABLE, COLUMNS, time="ts", bucket="1h", **words)
    first = -FIXED
    for size in sizes:
        table.append(rows(first, size, at_s=START - 3600 + first))
        first += size
    assert first == 0


def make_like(other: Lake, lake: Lake) -> None:
    """Make the table with the same rows in extents of the same sizes as another has, and no history."""
    extents = sorted(lake.table(TABLE).extents(), key=lambda each: each.min_ts_ns or 0)
    make_table(other, [each.row_count for each in extents], upkeep=False, flush_age="off")


def make_quiet(lake: Lake) -> None:
    """Do all upkeep, and leave only the newest snapshot."""
    table = lake.table(TABLE)
    for each in table.pins():
        table.unpin(each.name)
    table.flush()
    table.compact()
    table.expire("0s")
    lake.collect(**NOW)
    lake.catalog.shrink()


def size_of(folder: Path) -> tuple[int, int]:
    """Return how many objects a lake has in its folder, and the bytes of the rest: the catalog, if it is there."""
    sizes: dict[Path, int] = {}
    for place, _, names in os.walk(folder):  # which passes over folders that are gone
        for path in (Path(place, name) for name in names):
            with suppress(FileNotFoundError):  # it was collected just now
                sizes[path] = path.stat().st_size
    objects = {path for path in sizes if path.relative_to(folder).parts[0] in (DATA_FOLDER, COVERAGE_FOLDER)}
    return len(objects), sum(size for path, size in sizes.items() if path not in objects)


def soak(
    opened: Open, first: Open, twin: Open, folder: Path, lake_folder: Path, *, seconds: float, seed: int
) -> dict[str, Any]:
    """Run all of it, check all of it, and return figures.

    A query is compared with one on the lake as it was at first, and with one on a lake that has the same extents.
    """
    with opened() as lake:
        make_table(lake)
        make_quiet(lake)
    before, sizes = size_of(lake_folder), [(0, 0)]

    def look() -> None:
        sizes.append(size_of(lake_folder))

    killed = run(opened, folder, seconds, random.Random(seed), look)
    time.sleep(LEASE_S)
    with opened() as lake:
        check_store(lake, quiet=False)
        counts = check_all(lake, folder)
        make_quiet(lake)
        check_store(lake)
        assert [*lake.catalog.pending(), *lake.catalog.garbage(before_us=2**60)] == []
        check_all(lake, folder)
        lake.table(TABLE).delete("n >= 0")
        make_quiet(lake)
        check_store(lake)
        with first() as beginning, twin() as other:
            make_table(beginning)
            make_quiet(beginning)
            make_like(other, lake)
            after_s, begun_s, fresh_s = query_s(lake, beginning, other)
            extents = [len(each.table(TABLE).extents()) for each in (beginning, other, lake)]
        sequence = lake.table(TABLE).snapshot.sequence
    after = size_of(lake_folder)
    marks = Counter(mark for mark, _, size in noted(folder) if not size)
    objects, catalog = ((before[at], [max(s[at] for s in part) for part in halves(sizes)], after[at]) for at in (0, 1))
    return {
        "killed": killed, "snapshots": sequence, **counts, **marks, "objects": objects, "catalog_bytes": catalog,
        "query": (round(after_s / begun_s, 3), round(after_s / fresh_s, 3)), "extents": extents,
        "query_ms": [round(each * 1e3, 2) for each in (begun_s, fresh_s, after_s)],
    }  # fmt: skip


def halves(sizes: list[tuple[int, int]]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    return sizes[: len(sizes) // 2 + 1], sizes[len(sizes) // 2 :]


@pytest.mark.torture
@pytest.mark.parametrize("way", SHARES)
def test_table_that_is_kept_busy_for_long_loses_nothing_and_stays_small(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    for name, seconds in (("LEASE_S", LEASE_S), ("RENEW_S", LEASE_S / 2), ("LINGER_S", 1.0)):
        monkeypatch.setattr(leases, name, seconds)
    place, folder = tmp_path / "lake", tmp_path / "notes"
    folder.mkdir()

    def at(where: Path) -> Open:
        if way == "postgres":
            address = fresh_schema(request.getfixturevalue("postgres"))
            return lambda: tidelake.connect(address, objects=where)
        return lambda: tidelake.connect(f"{'log:' * (way == 'log')}{where}")

    lakes = at(place), at(tmp_path / "first"), at(tmp_path / "twin")
    figures = soak(*lakes, folder, place, seconds=SECONDS * SHARES[way], seed=1)
    print(f"\n{way}: {figures}")
    assert figures["acknowledged"] > 10
    assert figures["objects"][2] <= 2 * figures["objects"][0]
    assert figures["objects"][1][1] <= 2 * figures["objects"][1][0]  # it does not grow while it is busy
    if way != "log":  # which is never shortened
        assert figures["catalog_bytes"][1][1] <= 2 * figures["catalog_bytes"][1][0]
    assert max(figures["query"]) <= 1.05
