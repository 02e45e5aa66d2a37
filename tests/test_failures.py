"""Show that every call ends when a disk is full, a store or a catalog is away, and that nothing acknowledged is lost.

The disks, servers and processes are real. A call runs in a thread of its own, so that one that never ends fails its
test. It does not test damage: see ``test_flips``.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tidelake
from tests.support.catalogs import fresh_schema
from tests.support.disks import Disk, small_disk
from tests.support.faulty import Fault, FaultyStore
from tests.support.servers import S3Server, postgres_pid, stopped
from tidelake import CommitUnknownError, Lake, StorageError
from tidelake.catalog.log.log_catalog import open_log_catalog
from tidelake.errors import InvalidInputError, TidelakeError
from tidelake.handle.lake_handle import LakeHandle
from tidelake.objects import open_store

ENDS_WITHIN_S = 120  # far beyond any deadline: a call that has not ended by then spins or hangs
SCHEMA = {"ts": "timestamp", "n": "long", "text": "string"}


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with small_disk(tmp_path / "disk") as found:
        yield found


@pytest.mark.parametrize("rows", [1, 3000], ids=["hot rows", "an extent"])
@pytest.mark.parametrize("scheme", ["", "log:"], ids=["sqlite", "log"])
def test_a_full_disk_is_an_error_at_once_and_loses_nothing(disk: Disk, scheme: str, rows: int) -> None:
    with tidelake.connect(f"{scheme}{disk.root}/lake") as lake:
        lake.create_table("t", SCHEMA, flush_age="off")
        kept = [n for n in range(3) if _append(lake, n, rows) is None]
        disk.fill()
        errors = [_ended(partial(_append, lake, n, rows)) for n in range(10, 14)]
        assert [(type(error), error.kind) for error in errors] == [(StorageError, "disk_full")] * 4
        assert "make room" in str(errors[0])
        assert _kept(lake) == kept
        disk.make_room()
        kept += [n for n in range(20, 23) if _append(lake, n, rows) is None]
        assert _kept(lake) == kept == [0, 1, 2, 20, 21, 22]
    with tidelake.connect(f"{scheme}{disk.root}/lake") as lake:
        assert _kept(lake) == kept


def test_a_disk_that_fills_up_in_the_middle_loses_nothing_acknowledged(disk: Disk) -> None:
    with tidelake.connect(disk.root / "lake") as lake:
        lake.create_table("t", SCHEMA, flush_age="off")
        kept, error = [], None
        for n in range(2000):
            error = _ended(partial(_append, lake, n, 200))
            if error is not None:
                break
            kept.append(n)
        assert (type(error), getattr(error, "kind", "")) == (StorageError, "disk_full")
        assert len(kept) > 10
        assert _kept(lake) == kept


@pytest.mark.parametrize("scheme", ["", "log:"], ids=["sqlite", "log"])
def test_a_read_only_disk_is_an_error_at_once(disk: Disk, scheme: str) -> None:
    with tidelake.connect(f"{scheme}{disk.root}/lake") as lake:
        lake.create_table("t", SCHEMA, flush_age="off")
        assert _append(lake, 1, 1) is None
    with disk.read_only(), tidelake.connect(f"{scheme}{disk.root}/lake") as lake:
        assert _kept(lake) == [1]
        for rows in (1, 3000):
            error = _ended(partial(_append, lake, 2, rows))
            assert (type(error), error.kind) == (StorageError, "read_only")
    with tidelake.connect(f"{scheme}{disk.root}/lake") as lake:
        assert _append(lake, 3, 1) is None
        assert _kept(lake) == [1, 3]


def test_a_catalog_that_has_no_page_left_is_an_error_at_once(tmp_path: Path) -> None:
    with tidelake.connect(tmp_path) as lake:
        lake.create_table("t", SCHEMA, flush_age="off")
        database: Any = lake.catalog
        with database._database.writing() as transaction:
            (pages,) = transaction.run_text("PRAGMA page_count")[0]
        connection = database._database._pool.take()  # the pool has one, and lends it again
        connection.execute(f"PRAGMA max_page_count = {pages + 2}")
        database._database._pool.put(connection)
        error = _ended(lambda: _append(lake, 1, 900))
        assert (type(error), error.kind) == (StorageError, "disk_full")
        connection.execute("PRAGMA max_page_count = 1000000")
        assert _append(lake, 2, 900) is None
        assert _kept(lake) == [2]


def test_a_store_without_room_is_an_error_at_once_in_a_bucket_too() -> None:
    store = FaultyStore(open_store("memory://"))
    with Lake(LakeHandle(open_log_catalog(store, create=True), store, "log:memory://")) as lake:
        lake.create_table("t", SCHEMA, flush_age="off")
        store.add(Fault("put_if_absent", "before", "_timeseries_log/0*", times=None, kind="disk_full"))
        error = _ended(lambda: _append(lake, 1, 1))
        assert (type(error), error.kind) == (StorageError, "disk_full")
        assert len(store.fired) == 2  # the commit, and giving up what was written for it


def test_a_commit_whose_answers_are_always_lost_ends_by_its_deadline(tmp_path: Path) -> None:
    store = FaultyStore(open_store("memory://"))
    with Lake(LakeHandle(open_log_catalog(store, create=True), store, "log:memory://", deadline_s=0.5)) as lake:
        lake.create_table("t", SCHEMA, flush_age="off")
        store.add(Fault("put_if_absent", "before", "_timeseries_log/0*", times=None))
        error = _ended(lambda: _append(lake, 1, 1))
        assert type(error) is CommitUnknownError
        store.clear()
        assert _append(lake, 2, 1) is None
        assert _kept(lake) == [2]


def test_an_error_is_not_hidden_by_what_cannot_be_cleaned_up(tmp_path: Path) -> None:
    """A commit that may have happened is told as such, even if its objects cannot be given up either."""
    store = FaultyStore(open_store("memory://"))
    with Lake(LakeHandle(open_log_catalog(store, create=True), store, "log:memory://", deadline_s=0.3)) as lake:
        lake.create_table("t", SCHEMA, flush_age="off")
        store.add(Fault("put_if_absent", "before", "_timeseries_log/0*", times=None))
        store.add(Fault("head", "before", "_timeseries_log/_pending/*", times=None))
        assert type(_ended(lambda: _append(lake, 1, 3000))) is CommitUnknownError


def test_a_deadline_is_a_number_of_seconds(tmp_path: Path) -> None:
    for bad in (0, -1, float("inf"), float("nan")):
        with pytest.raises(InvalidInputError, match="a deadline is a number of seconds"):
            tidelake.connect(tmp_path / "lake", deadline=bad)


Away = Callable[[], AbstractContextManager[None]]


@pytest.fixture(params=["store", "catalog", "log"])
def away(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Callable[..., Lake], Away]:
    """Return how to open a lake, and how to hold the server still that it needs: a bucket, a database, or a log."""
    s3: S3Server = request.getfixturevalue("s3")
    prefix = f"s3://{s3.bucket}/away-{secrets.token_hex(6)}"
    login: dict[str, Any] = {"endpoint": s3.endpoint, "key": s3.key, "secret": s3.secret}
    if request.param == "log":
        return lambda **words: tidelake.connect(f"log:{prefix}", **login, **words), lambda: stopped(s3.pid)
    url = request.getfixturevalue("postgres")
    place, pid = fresh_schema(url), postgres_pid(url)

    def opened(**words: Any) -> Lake:
        return tidelake.connect(place, objects=prefix, **login, **words)

    return opened, lambda: stopped(s3.pid if request.param == "store" else pid)


def test_a_server_that_stops_ends_every_call_and_loses_nothing(away: tuple[Callable[..., Lake], Away]) -> None:
    opened, hold_still = away
    with opened(deadline=3) as lake:
        lake.create_table("t", SCHEMA, flush_age="off")
        assert _append(lake, 1, 3000) is None
        with hold_still():
            errors = [_ended(partial(_append, lake, n, 3000)) for n in (2, 3)]
        assert all(isinstance(error, StorageError | CommitUnknownError) for error in errors), errors
        unknown = [n for n, error in zip((2, 3), errors, strict=True) if isinstance(error, CommitUnknownError)]
        assert _append(lake, 4, 3000) is None
        assert set(_kept(lake)) - set(unknown) == {1, 4}


@pytest.mark.torture
def test_a_server_that_is_away_for_half_a_minute_loses_nothing(away: tuple[Callable[..., Lake], Away]) -> None:
    opened, hold_still = away
    with opened() as lake:
        lake.create_table("t", SCHEMA, flush_age="off")
        done, outcomes = threading.Event(), dict[int, TidelakeError | None]()

        def write(first: int) -> None:
            n = first
            while not done.is_set():
                outcomes[n] = _append(lake, n, 2000 if first else 5)
                n += 2

        writers = [threading.Thread(target=write, args=(first,), daemon=True) for first in (0, 1)]
        for writer in writers:
            writer.start()
        time.sleep(2)
        with hold_still():
            time.sleep(30)
        time.sleep(3)
        done.set()
        for writer in writers:
            writer.join(ENDS_WITHIN_S)
            assert not writer.is_alive()
        assert _append(lake, -1, 1) is None
        acknowledged = {n for n, error in outcomes.items() if error is None}
        unknown = {n for n, error in outcomes.items() if isinstance(error, CommitUnknownError)}
        print(f"{len(acknowledged)} acknowledged, {len(unknown)} unknown, {len(outcomes)} in all")
        assert acknowledged <= set(_kept(lake)) - {-1} <= acknowledged | unknown


def _append(lake: Lake, n: int, rows: int) -> TidelakeError | None:
    """Append rows of a number; give the error, if it was one of ours."""
    times = pa.array([n * 1_000_000] * rows, pa.timestamp("us", "UTC"))
    words = pa.array([secrets.token_hex(8)] * rows)
    try:
        lake.table("t").append(pa.table({"ts": times, "n": pa.array([n] * rows), "text": words}))
        return None
    except TidelakeError as error:
        return error


def _kept(lake: Lake) -> list[int]:
    """Return the numbers whose rows are there, in order, and check that they are there whole."""
    found = lake.table("t").scan(columns=["n"]).read_all()["n"].value_counts().to_pylist()
    return sorted(each["values"] for each in found)


def _ended(call: Callable[[], Any]) -> Any:
    """Return what a call returns; it must return."""
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(call()), daemon=True)
    thread.start()
    thread.join(ENDS_WITHIN_S)
    assert not thread.is_alive(), "the call does not end"
    return answers[0]
