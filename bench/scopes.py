"""Measure tables of users and tables with a key: opening, appending and point reads; upserts beside peers.

Ten rows make a scope, so ``--rows 10000000`` is a million users. Users are made by the catalog's own commits, some
hundreds in a transaction, which is all that sets them apart from appends. Upserts bring ten rows with random keys to a
table that has as many rows as users would, at most a million, and each peer does the same in its own way. It does not
measure queries of such tables: see ``query``.
"""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np
import pyarrow as pa

from bench import ducklake
from bench.data import ROWS
from bench.peers import is_installed
from bench.report import Ratio, Report
from tidelake.catalog.protocol import new_id
from tidelake.catalog.sql.together import Request
from tidelake.lake import connect
from tidelake.model.snapshot import AppendHot, Commit, HotBatch, Scope, empty_snapshot
from tidelake.scan.hot import hot_payload
from tidelake.table import Table

COLUMNS = {"id": "long", "ts": "timestamp", "text": "string"}
USER_ROWS = 10
MADE_AT_ONCE = 500
APPENDS = 2_000
THREADS = 8
READS = 500
COLD_READS = 50
UPSERT_ROWS = 10
UPSERTS = {"tidelake": 300, "SQLite": 1_000, "Lance": 10, "delta-rs": 5, "DuckLake": 20}
MOST_KEYED = 1_000_000
_PLAIN = {"id": pa.int64(), "ts": pa.int64(), "text": pa.string()}  # what rows are told in as JSON
APPENDS_GOAL = 1_000.0  # a second
WARM_GOAL_MS, COLD_GOAL_MS = 1.0, 10.0
UPSERT_GOAL = 0.1  # of a peer's time

METHOD = (
    f"A user has {USER_ROWS} rows of a key, a time and a text. The catalog is SQLite, with full sync.",
    f"Appends bring {USER_ROWS} rows to random users; 'by {THREADS} threads' is with so many at once in one process.",
    "A warm read asks for rows that were read before; a cold one opens the lake anew for each, in one process, and "
    "its user was flushed to a segment.",
    f"An upsert brings {UPSERT_ROWS} rows with random keys to a table of as many rows as there are users times "
    f"{USER_ROWS}, at most {MOST_KEYED:,}: append here, merge_insert in Lance, merge in delta-rs, INSERT OR REPLACE in "
    "SQLite (full sync), MERGE in DuckLake, with a SQLite catalog and small inserts kept there. Lance and delta-rs "
    "sync nothing.",
    "Memory is the most that a process held that opened the lake, read one row of 1,000 users and appended to them.",
)


def run(folder: Path, *, rows: int = ROWS, rounds: int = 5) -> Report:
    """Make users, and measure them; then upserts beside peers."""
    users = max(rows // USER_ROWS, 20)
    place = folder / "users"
    seconds: dict[str, tuple[float, ...]] = {}
    rates: dict[str, float] = {}
    began = time.perf_counter()
    _make_users(place, users)
    rates["users made a second, 500 in a transaction"] = users / (time.perf_counter() - began)
    few = folder / "few"
    _make_users(few, 20)
    rates["appends a second by one thread, 20 users"] = _appends(few, 20, 1)
    appended = {threads: _appends(place, users, threads) for threads in (1, THREADS)}
    rates |= {f"appends a second by {_threads(n)}, {users:,} users": rate for n, rate in appended.items()}
    warm = _warm_reads(place, users)
    seconds["point read, warm"] = warm
    seconds["point read, warm, 99th percentile"] = (quantiles(warm, n=100)[98],)
    seconds["point read, cold"] = _cold_reads(place, users)
    seconds["existence of an absent key"] = _absent(place, users)
    memory = _memory(place, users)
    keyed = min(rows, MOST_KEYED)
    upserts = {name: _upserts(folder / name, keyed, name) for name in _contenders()}
    if merged := _ducklake(folder / "ducklake", keyed):
        upserts["DuckLake"] = merged
    seconds |= {f"upsert into {keyed:,} rows, {name}": taken for name, taken in upserts.items()}
    ours = median(upserts["tidelake"])
    ratios = [
        Ratio(f"upsert against {name}", ours, median(taken), "s", None if name == "SQLite" else UPSERT_GOAL)
        for name, taken in upserts.items()
        if name != "tidelake"
    ]
    ratios += [
        *(
            Ratio(f"time of an append by {_threads(n)} against the goal", 1 / rate, 1 / APPENDS_GOAL, "s", 1.0)
            for n, rate in appended.items()
        ),
        Ratio("warm point read against the goal", median(warm), WARM_GOAL_MS / 1000, "s", 1.0),
        Ratio("cold point read against the goal", median(seconds["point read, cold"]), COLD_GOAL_MS / 1000, "s", 1.0),
    ]  # fmt: skip
    workload = f"{users:,} users of {USER_ROWS} rows; {keyed:,} rows with a key."
    return Report("scopes", workload, tuple(ratios), seconds, {"memory": memory}, METHOD, rates)


def _threads(count: int) -> str:
    return "one thread" if count == 1 else f"{count} threads"


def _batch(first: int, rows: int) -> pa.RecordBatch:
    ids = pa.array(np.arange(first, first + rows))
    times = pa.array(np.full(rows, 1_767_268_800_000_000), pa.timestamp("us", tz="UTC"))
    return pa.record_batch({"id": ids, "ts": times, "text": [f"note {at}" for at in range(first, first + rows)]})


def _make_users(place: Path, users: int) -> None:
    """Give each user a first hot batch, many commits in a transaction."""
    with connect(place, upkeep=False) as lake:
        table = lake.create_table("app.notes", COLUMNS, scope="user", key=["id"], flush_age="off")
        catalog: Any = lake.catalog
        head = catalog.head(table.handle.info.scope)
        table.user("first").append(_batch(0, USER_ROWS))
        payload = hot_payload(_batch(0, USER_ROWS).cast(head.schema.arrow))
        bound = 1_767_268_800_000_000_000
        for first in range(0, users, MADE_AT_ONCE):
            requests = []
            for user in range(first, min(first + MADE_AT_ONCE, users)):
                scope = Scope(table.handle.info.id, f"u{user}")
                batch = HotBatch(new_id(), USER_ROWS, payload, bound, bound, head.schema.version)
                commit = Commit(new_id(), scope, 0, (AppendHot(batch),))
                requests.append(Request([commit], empty_snapshot(scope, head.schema, head.settings), False))
            catalog._commit_all(requests)
            if wrong := next((each.error for each in requests if each.error is not None), None):
                raise wrong


def _appends(place: Path, users: int, threads: int) -> float:
    """Return how many appends a second random users' rows take."""
    batch = _batch(0, USER_ROWS)
    count = min(APPENDS, users * 20)
    with connect(place, upkeep=False) as lake:
        table = lake.table("app.notes")
        chosen = np.random.default_rng(threads).integers(0, users, count)
        table.user("warm").append(batch)

        def append(user: int) -> None:
            table.user(f"u{user}").append(batch)

        began = time.perf_counter()
        if threads == 1:
            for user in chosen:
                append(int(user))
        else:
            with ThreadPoolExecutor(threads) as pool:
                for _ in pool.map(append, map(int, chosen)):
                    pass
        return count / (time.perf_counter() - began)


def _timed(asked: Iterable[Callable[[], object]]) -> tuple[float, ...]:
    taken = []
    for ask in asked:
        began = time.perf_counter()
        ask()
        taken.append(time.perf_counter() - began)
    return tuple(taken)


def _warm_reads(place: Path, users: int) -> tuple[float, ...]:
    with connect(place, upkeep=False) as lake:
        table = lake.table("app.notes")
        some = [table.user(f"u{user}") for user in np.random.default_rng(1).integers(0, users, 50)]
        for user in some:
            user.get(3)
        return _timed(partial(some[at % len(some)].get, at % USER_ROWS) for at in range(READS))


def _cold_reads(place: Path, users: int) -> tuple[float, ...]:
    chosen = [f"u{user}" for user in np.random.default_rng(2).integers(0, users, COLD_READS)]
    with connect(place, upkeep=False) as lake:
        for user in chosen:
            lake.table("app.notes").user(user).flush()
    taken: list[float] = []
    for user in chosen:
        with connect(place, upkeep=False) as lake:
            taken.extend(_timed([partial(_find, lake.table("app.notes"), user)]))
    return tuple(taken)


def _find(table: Table, user: str) -> None:
    assert table.user(user).get(3) is not None


def _absent(place: Path, users: int) -> tuple[float, ...]:
    with connect(place, upkeep=False) as lake:
        table = lake.table("app.notes").user("u1")
        table.exists([77])
        return _timed(partial(table.exists, [key]) for key in range(1_000, 1_000 + READS))


def _memory(place: Path, users: int) -> int:
    """Return the most bytes that a process of its own held that worked with a thousand users."""
    script = (
        "import sys, resource, tidelake\n"
        "lake = tidelake.connect(sys.argv[1], upkeep=False)\n"
        "table = lake.table('app.notes')\n"
        "for at in range(1000):\n"
        "    user = table.user(f'u{at * int(sys.argv[2]) // 1000}')\n"
        "    user.get(3)\n"
        "    user.append([{'id': 3, 'ts': '2026-01-01', 'text': 'x'}])\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(place), str(users)], check=True, capture_output=True, text=True
    )
    return int(done.stdout)


def _contenders() -> list[str]:
    found = ["tidelake", "SQLite"]
    found += ["Lance"] if is_installed("pylance") else []
    return found + (["delta-rs"] if is_installed("deltalake") else [])


def _upserts(place: Path, rows: int, name: str) -> tuple[float, ...]:
    """Return how long each of some upserts took."""
    place.mkdir()
    whole = pa.Table.from_batches([_batch(0, rows)])
    upsert = {"tidelake": _ours, "SQLite": _sqlite, "Lance": _lance, "delta-rs": _delta}[name](place, whole)
    return _timed(partial(upsert, batch) for batch in _changes(rows, UPSERTS[name] + 1))[1:]


def _changes(rows: int, count: int) -> Iterator[pa.Table]:
    """Yield rows with random keys of a table of so many, the same to every contender."""
    random = np.random.default_rng(5)
    times = _batch(0, UPSERT_ROWS)["ts"]
    for at in range(count):
        keys = pa.array(np.sort(random.choice(rows, UPSERT_ROWS, replace=False)))
        yield pa.table({"id": keys, "ts": times, "text": [f"new {at}"] * UPSERT_ROWS})


def _ours(place: Path, whole: pa.Table) -> Callable[[pa.Table], object]:
    table = connect(place).create_table("keyed", COLUMNS, key=["id"])
    table.append(whole)
    return table.append


def _sqlite(place: Path, whole: pa.Table) -> Callable[[pa.Table], object]:
    connection = sqlite3.connect(place / "table.sqlite", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE keyed (id INTEGER PRIMARY KEY, ts INTEGER, text TEXT)")

    def upsert(rows: pa.Table) -> None:
        columns = (rows["id"].to_pylist(), rows["ts"].cast(pa.int64()).to_pylist(), rows["text"].to_pylist())
        connection.execute("BEGIN")
        connection.executemany("INSERT OR REPLACE INTO keyed VALUES (?, ?, ?)", zip(*columns, strict=True))
        connection.execute("COMMIT")

    upsert(whole)
    return upsert


def _lance(place: Path, whole: pa.Table) -> Callable[[pa.Table], object]:
    import lance

    dataset = lance.write_dataset(whole, str(place / "keyed"))
    return lambda rows: dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows)


def _delta(place: Path, whole: pa.Table) -> Callable[[pa.Table], object]:
    from deltalake import DeltaTable, write_deltalake

    write_deltalake(place / "keyed", whole)
    table = DeltaTable(place / "keyed")

    def upsert(rows: pa.Table) -> None:
        merge = table.merge(rows, predicate="t.id = s.id", source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    return upsert


def _ducklake(place: Path, rows: int) -> tuple[float, ...]:
    """Return how long each of some merges took; nothing where DuckLake cannot be installed."""
    place.mkdir()
    batches = [
        [list(row) for row in zip(*(batch[name].cast(kind).to_pylist() for name, kind in _PLAIN.items()), strict=True)]
        for batch in _changes(rows, UPSERTS["DuckLake"] + 1)
    ]
    found = ducklake.merge(place, rows, batches)
    if found is None:
        return ()
    if found["rows"] != rows:
        raise RuntimeError(f"DuckLake holds {found['rows']} rows of {rows}")
    return tuple(found["merge"][1:])
