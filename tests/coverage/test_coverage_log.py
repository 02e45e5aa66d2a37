"""Coverage in the layout of the transaction log, races of processes, a peer's own tables, and real series."""

from __future__ import annotations

import csv
import io
import json
import multiprocessing
import shutil
import struct
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap, BitMap64

import tidelake
from tests.support.original import read_original
from tests.support.samples import series_files
from tests.support.series_worker import WITHIN_S, claim_windows
from tidelake.catalog.log.log_catalog import open_log_catalog
from tidelake.coverage.entities import entity_text
from tidelake.errors import InvalidInputError, OverlapError
from tidelake.handle.lake_handle import LakeHandle
from tidelake.lake import Lake
from tidelake.model.predicate import Nanoseconds
from tidelake.objects import ObjectStore, open_store
from tidelake.table import Table

GOLDEN = Path(__file__).parents[1] / "golden" / "log" / "prices"
SCHEMA = {"ts": "timestamp", "symbol": "string", "close": "real"}
HOUR = timedelta(hours=1)
DAY = datetime(2024, 1, 2, tzinfo=UTC)


@pytest.fixture
def prices(tmp_path: Path) -> Path:
    """Return a table that was written by hand in the original's layout."""
    return Path(shutil.copytree(GOLDEN, tmp_path / "prices"))


def bars(symbol: str, *hours: int, day: datetime = DAY) -> list[dict[str, Any]]:
    return [{"ts": day + hour * HOUR, "symbol": symbol, "close": float(hour)} for hour in hours]


def hours_of(held: pa.Table) -> list[tuple[int, int]]:
    return [((row["start"] - DAY) // HOUR, (row["end"] - DAY) // HOUR) for row in held.to_pylist()]


def hours_held(root: Path, key: str) -> list[int]:
    """Read coverage as the original does: a plain 32-bit bitmap of hours since 1970."""
    first = round(DAY.timestamp()) // 3600
    return [number - first for number in BitMap.deserialize((root / key).read_bytes())]


def open_log(root: Path) -> Lake:
    return tidelake.connect(f"log:{root}")


def test_a_table_written_by_hand_opens_scans_and_appends(prices: Path) -> None:
    with open_log(prices) as lake:
        table = lake.table("prices")
        assert table.scan().read_all().num_rows == 14
        assert hours_of(table.coverage.held()) == [(14, 21), (38, 45)]
        assert str(table.coverage.gaps()["start"][0].as_py()) == "2024-01-02 16:00:00-05:00"
        with pytest.raises(OverlapError, match=r"entity=symbol=NVDA start=2024-01-02T20:00:00Z end=.*T21.* buckets=1"):
            table.append(bars("NVDA", 20, 21))
        with pytest.raises(InvalidInputError, match=r"another entity.* expected=symbol=NVDA found=symbol=AMD"):
            table.append(bars("AMD", 100))
        report = table.append(bars("NVDA", 21, 22))
        assert (report.rows, report.extents) == (2, 1)
        assert hours_of(table.coverage.held()) == [(14, 23), (38, 45)]
    original = read_original(prices)
    (added,) = [body for body in original.segments.values() if body["row_count"] == 2]
    assert hours_held(prices, added["coverage_path"]) == [21, 22]
    assert original.coverage is not None
    assert hours_held(prices, original.coverage["coverage_path"]) == [*range(14, 23), *range(38, 45)]
    with open_log(prices) as lake:
        assert hours_of(lake.table("prices").coverage.held()) == [(14, 23), (38, 45)]


def test_a_table_just_created_by_hand_is_pinned_by_its_first_append(prices: Path) -> None:
    for version in (2, 3):
        (prices / f"_timeseries_log/{version:010d}.json").unlink()
    (prices / "_timeseries_log/CURRENT").write_text("1\n")
    shutil.rmtree(prices / "_coverage")
    with open_log(prices) as lake:
        table = lake.table("prices")
        assert table.coverage.gaps().num_rows == 0
        with pytest.raises(InvalidInputError, match="another entity"):
            table.append(bars("NVDA", 1) + bars("AMD", 1))
        with pytest.raises(InvalidInputError, match="entity column column=symbol"):
            table.append([{"ts": DAY, "close": 1.0}])
        table.append(bars("AMD", 1, 2))
        with pytest.raises(InvalidInputError, match="expected=symbol=AMD found=symbol=NVDA"):
            table.append(bars("NVDA", 3))
        assert hours_of(table.coverage.held(entity="AMD")) == [(1, 3)]
    original = read_original(prices)
    assert original.version == 2
    assert original.meta["entity_identity"] == {"symbol": "AMD"}
    assert {column["name"] for column in original.meta["logical_schema"]["columns"]} == {"ts", "symbol", "close"}


@pytest.mark.parametrize("how", ["table gone", "segment gone", "segment implausible"])
def test_losses_in_a_table_written_by_hand_are_made_good(prices: Path, how: str) -> None:
    what, _, how = how.partition(" ")
    files = sorted((prices / "_coverage" / ("table" if what == "table" else "segments")).iterdir())
    if how == "gone":
        files[-1].unlink()
    else:
        files[0].write_bytes(files[1].read_bytes())  # sound, but another segment's
    with open_log(prices) as lake:
        table = lake.table("prices")
        with pytest.raises(OverlapError):
            table.append(bars("NVDA", 40))
        table.append(bars("NVDA", 50))
        assert hours_of(table.coverage.held()) == [(14, 21), (38, 45), (50, 51)]
        mended = table.repair().mended
        assert len(mended) == (what == "segment")
    with open_log(prices) as lake:
        assert lake.table("prices").repair(thorough=True).mended == ()


def test_a_table_of_ours_has_the_originals_files_and_json(tmp_path: Path) -> None:
    root = tmp_path / "prices"
    with open_log(root) as lake:
        table = lake.create_table("prices", SCHEMA, bucket="1h", entity=["symbol"], coverage="exclusive")
        table.append(bars("NVDA", 0, 1, 2))
        table.append(bars("NVDA", 5))
        with pytest.raises(OverlapError):
            table.append(bars("NVDA", 5))
        held = hours_of(table.coverage.held())
    original = read_original(root)
    assert original.meta["kind"] == {
        "TimeSeries": {"timestamp_column": "ts", "entity_columns": ["symbol"], "bucket": {"Hours": 1}}
    }
    assert original.meta["entity_identity"] == {"symbol": "NVDA"}
    assert [sorted(hours_held(root, each["coverage_path"])) for each in original.segments.values()] == [[0, 1, 2], [5]]
    assert original.coverage is not None
    assert original.coverage["bucket_spec"] == {"Hours": 1}
    assert hours_held(root, original.coverage["coverage_path"]) == [0, 1, 2, 5]
    assert held == [(0, 3), (5, 6)]
    first = json.loads((root / "_timeseries_log/0000000002.json").read_text())
    assert [next(iter(action)) for action in first["actions"]] == [
        "UpdateTableMeta",
        "AddSegment",
        "UpdateTableCoverage",
    ]
    names = {path.name for path in (root / "_coverage" / "segments").iterdir()}
    assert all(name.startswith("segcov-") and len(name) == len("segcov-.roar") + 32 for name in names)
    names = {path.name for path in (root / "_coverage" / "table").iterdir()}
    assert {name.split("-")[0] for name in names} == {"2", "3"}
    assert list((root / "_timeseries_log").glob("_pending/*")) == []


def test_a_flipped_bit_in_our_files_is_noticed(tmp_path: Path) -> None:
    root = tmp_path / "prices"
    with open_log(root) as lake:
        table = lake.create_table("prices", SCHEMA, bucket="1h", coverage="exclusive")
        table.append(bars("NVDA", *range(9)))
        files = list((root / "_coverage").rglob("*.roar"))
        assert len(files) == 2
        for file in files:
            data = bytearray(file.read_bytes())
            data[-3] ^= 1
            file.write_bytes(data)
    with open_log(root) as lake:
        assert hours_of(lake.table("prices").coverage.held()) == [(0, 9)]
        assert len(lake.table("prices").repair().mended) == 2
    with open_log(root) as lake:
        assert lake.table("prices").repair(thorough=True).mended == ()


def test_what_the_original_has_no_bytes_for_is_kept_in_ours(tmp_path: Path) -> None:
    root = tmp_path / "prices"
    with open_log(root) as lake:
        table = lake.create_table("prices", {**SCHEMA, "id": "long"}, bucket="250ms", entity=["id"])
        table.append([{"ts": "1960-01-01T00:00:00.3Z", "id": 7}, {"ts": "1960-01-01T00:00:01Z", "id": 7}])
        assert table.coverage.gaps()["buckets"].to_pylist() == [2]
    assert json.loads((root / "_timeseries_log/0000000002.json").read_text())["actions"][0]["UpdateTableMeta"][
        "entity_identity"
    ] == {"id": "7"}
    with open_log(root) as lake:
        table = lake.table("prices")
        assert table.coverage.gaps(entity=7)["buckets"].to_pylist() == [2]
        with pytest.raises(InvalidInputError, match="expected=id=7 found=id=8"):
            table.append([{"ts": "1960-01-01T00:00:00.3Z", "id": 8}])
        assert table.append([{"ts": "1960-01-01T00:00:00.3Z", "id": 7}]).overlap == 1


def test_a_log_in_a_bucket_keeps_coverage_beside_it(s3_store: ObjectStore) -> None:
    lake = Lake(LakeHandle(open_log_catalog(s3_store, create=True), s3_store, s3_store.url))
    table = lake.create_table("prices", SCHEMA, bucket="1h", entity=["symbol"], coverage="exclusive")
    table.append(bars("NVDA", 0, 1))
    table.append(bars("NVDA", 4))
    again = Lake(LakeHandle(open_log_catalog(s3_store), s3_store, s3_store.url)).table("prices")
    assert hours_of(again.coverage.held()) == [(0, 2), (4, 5)]
    with pytest.raises(OverlapError):
        again.append(bars("NVDA", 4))
    segments = [meta.key for meta in s3_store.list("_coverage/segments")]
    s3_store.delete(segments[:1])
    assert len(again.repair().mended) == 1
    assert [meta.key for meta in s3_store.list("_coverage/segments")] == segments


def test_two_first_appends_pin_one_entity(tmp_path: Path) -> None:
    with open_log(tmp_path / "prices") as lake:
        lake.create_table("prices", SCHEMA, bucket="1h", entity=["symbol"], coverage="track")
        one, other = open_log(tmp_path / "prices"), open_log(tmp_path / "prices")
        tables = [each.table("prices") for each in (one, other)]
        head = other.handle.coordinator.head(other.catalog.table("prices").scope)  # what the second builds on
        tables[0].append(bars("NVDA", 1))
        assert head.sequence == 1
        with pytest.raises(InvalidInputError, match="another entity"):
            tables[1].append(bars("AMD", 2))
        assert lake.table("prices").scan(["symbol"]).read_all()["symbol"].to_pylist() == ["NVDA"]
        one.close()
        other.close()


class _Killed(BaseException):
    """Stand for a process that ends here."""


@pytest.mark.parametrize(
    "step", ["extent.registered", "extent.written", "extent.covered", "coordinator.commit", "commit.begin",
             "commit.appended", "commit.end"],
)  # fmt: skip
def test_killed_at_any_step_an_append_to_a_log_is_whole_or_not_there(tmp_path: Path, step: str) -> None:
    met, armed = [], False

    def at(point: str) -> None:
        if armed and point == step:
            met.append(point)
            raise _Killed

    store = open_store(tmp_path / "prices")
    lake = Lake(LakeHandle(open_log_catalog(store, create=True, at=at), store, f"log:{tmp_path}/prices", at=at))
    lake.handle.coordinator._at = at
    table = lake.create_table("prices", SCHEMA, bucket="1h", entity=["symbol"], coverage="exclusive")
    table.append(bars("NVDA", 0, 1, 2))
    armed = True
    with pytest.raises(_Killed):
        table.append(bars("NVDA", 5, 6))
    armed = False
    lake.close()
    assert met
    with open_log(tmp_path / "prices") as again:
        table = again.table("prices")
        is_in = step in ("commit.appended", "commit.end")
        assert hours_of(table.coverage.held()) == ([(0, 3), (5, 7)] if is_in else [(0, 3)])
        assert table.scan().read_all().num_rows == (5 if is_in else 3)
        if is_in:
            with pytest.raises(OverlapError):
                table.append(bars("NVDA", 6))
        else:
            table.append(bars("NVDA", 5, 6))
        original = read_original(tmp_path / "prices")
        assert original.coverage is not None
        assert hours_held(tmp_path / "prices", original.coverage["coverage_path"]) == [0, 1, 2, 5, 6]
        assert table.repair(thorough=True).mended == ()


@pytest.fixture(scope="module")
def context() -> ForkServerContext:
    """Start processes from a clean one that has imported everything."""
    found = multiprocessing.get_context("forkserver")
    found.set_forkserver_preload(["tests.support.series_worker", "tidelake.table"])
    first = found.Process(target=time.monotonic)
    first.start()
    first.join(WITHIN_S)
    assert first.exitcode == 0
    return found


def test_small_appends_to_a_table_without_a_bucket_are_seen_by_the_original(tmp_path: Path) -> None:
    with tidelake.connect(f"log:{tmp_path}/t") as lake:
        table = lake.create_table("t", {"ts": "timestamp", "n": "long"})
        for n in range(3):
            table.append([{"ts": f"2026-03-14T12:00:0{n}Z", "n": n}])
        assert table.snapshot.totals.hot_rows == 0
        assert "bucket" not in table.snapshot.settings
    original = read_original(tmp_path / "t")
    paths = [tmp_path / "t" / segment["path"] for segment in original.segments.values()]
    assert sorted(pq.read_table(path)["n"].to_pylist() for path in paths) == [[0], [1], [2]]
    assert original.coverage is None  # so the original reads, and does not append under a bucket that nobody chose


@pytest.mark.parametrize("kind", ["folder", "log"])
def test_eight_processes_race_for_windows_and_each_is_won_once(
    tmp_path: Path, context: ForkServerContext, kind: str
) -> None:
    where = f"log:{tmp_path}/cpu" if kind == "log" else str(tmp_path / "lake")
    schema = {"ts": "timestamp", "device": "string", "writer": "long"}
    devices = ["a"] if kind == "log" else ["a", "b"]
    sizes = [3, 3, 1_200] if kind == "folder" else [3, 3, 3]  # hot rows, and extents
    windows = [(device, 10_000 * at, sizes[at % 3]) for device in devices for at in range(8 // len(devices))]
    with tidelake.connect(where) as lake:
        lake.create_table("m.cpu", schema, bucket="1m", entity=["device"], coverage="exclusive")
    start, answers = context.Barrier(8), context.Queue()
    workers = [
        context.Process(target=claim_windows, args=(where, number, list(windows), start, answers))
        for number in range(8)
    ]
    for worker in workers:
        worker.start()
    found = [answers.get(timeout=WITHIN_S) for _ in workers]
    for worker in workers:
        worker.join(WITHIN_S)
        assert worker.exitcode == 0
    assert [wrong for *_, wrong in found if wrong] == []
    won = [(window, number) for number, taken, _, _ in found for window in taken]
    assert sorted(window for window, _ in won) == sorted(windows)
    lost = [error for _, _, each, _ in found for *_, error in each]
    assert len(lost) == 7 * len(windows)
    facts = ("already held", "entity=device=", "start=1970-", "end=1970-", "buckets=")
    assert [error for error in lost if not all(fact in error for fact in facts)] == []
    with tidelake.connect(where) as lake:
        table = lake.table("m.cpu")
        rows = table.scan().read_all()
        written = Counter(zip(rows["device"].to_pylist(), rows["ts"].cast(pa.int64()).to_pylist(), strict=True))
        assert set(written.values()) == {1}
        assert rows.num_rows == sum(count for _, _, count in windows)
        owners = dict(won)
        for (device, first, count), number in owners.items():
            low, high = (Nanoseconds(minute * 60 * 10**9) for minute in (first, first + count))
            part = table.scan(["writer"], f"device == '{device}'", start=low, end=high)
            assert set(part.read_all()["writer"].to_pylist()) == {number}
        held = [(row["device"], row["buckets"]) for row in table.coverage.held().to_pylist()]
        assert sorted(held) == sorted((device, count) for device, _, count in windows)
        assert table.repair(thorough=True).mended == ()
    if kind == "log":  # the original's readers know all of it, too, whatever was rebased
        united = read_original(tmp_path / "cpu").coverage
        assert united is not None
        told = BitMap.deserialize((tmp_path / "cpu" / united["coverage_path"]).read_bytes())
        assert set(told) == {first + at for _, first, count in windows for at in range(count)}


def peer_coverage(data: bytes) -> dict[str, BitMap64]:
    """Read the peer's coverage of several entities: big-endian lengths, and a 64-bit bitmap for each."""
    assert data[:8] == b"TSTECOV2"
    (count,), at = struct.unpack(">I", data[8:12]), 12
    found = {}
    for _ in range(count):
        (parts,) = struct.unpack(">I", data[at : at + 4])
        at += 4
        values = []
        for _ in range(parts):
            assert data[at] == 1
            (length,) = struct.unpack(">Q", data[at + 1 : at + 9])
            values.append(data[at + 9 : at + 9 + length].decode())
            at += 9 + length
        (length,) = struct.unpack(">Q", data[at : at + 8])
        found[entity_text(values)] = BitMap64.deserialize(data[at + 8 : at + 8 + length])
        at += 8 + length
    assert at == len(data)
    return found


def test_a_peers_table_has_equal_rows_and_coverage(tmp_path: Path) -> None:
    peer = pytest.importorskip("timeseries_table_format")
    rows = pa.table(
        {
            "ts": pa.array(
                [DAY + hour * HOUR for hour in (0, 1, 2, 5, 6, 30)] + [DAY + hour * HOUR for hour in (-9000, 1, 2, 3)],
                pa.timestamp("us", tz="UTC"),
            ),
            "symbol": pa.array(["NVDA"] * 6 + ["AAPL"] * 4),
            "close": pa.array([float(n) for n in range(10)]),
        }
    )
    theirs = peer.TimeSeriesTable.create(
        table_root=str(tmp_path / "theirs"),
        index_column="ts",
        index_type="timestamp",
        index_granularity="1h",
        entity_columns=["symbol"],
    )
    theirs.append(rows.slice(0, 5))
    theirs.append(rows.slice(5))
    session = peer.Session()
    session.register_tstable("prices", str(tmp_path / "theirs"))
    order = "SELECT ts, symbol, close FROM prices ORDER BY symbol, ts"
    with tidelake.connect(tmp_path / "ours") as lake:
        ours = lake.create_table("prices", SCHEMA, bucket="1h", entity=["symbol"], coverage="exclusive")
        ours.append(rows.slice(0, 5))
        ours.append(rows.slice(5))
        read = ours.scan().read_all().sort_by([("symbol", "ascending"), ("ts", "ascending")])
        assert read.to_pylist() == session.sql(order).to_pylist()
        newest = max((tmp_path / "theirs/_coverage/table").iterdir(), key=lambda path: int(path.name.split("-")[0]))
        expected = peer_coverage(newest.read_bytes())
        held = lake.handle.coverage_store.at(ours.snapshot)
        assert {entity: held.bitmap(entity) for entity in held} == expected
        for again in (rows.slice(2, 1), rows.slice(9, 1)):
            with pytest.raises(peer.IndexIntervalOverlapError):
                theirs.append(again)
            with pytest.raises(OverlapError):
                ours.append(again)


def series_times(path: Path) -> list[datetime]:
    text = pa.CompressedInputStream(pa.OSFile(str(path)), "zstd").read().decode()
    return [datetime.fromisoformat(row["timestamp"]).replace(tzinfo=UTC) for row in csv.DictReader(io.StringIO(text))]


def test_gaps_of_real_series_are_those_of_brute_force(tmp_path: Path) -> None:
    with tidelake.connect(tmp_path / "lake") as lake:
        table = lake.create_table("nab", {"ts": "timestamp", "series": "string"}, bucket="5m", entity=["series"])
        held: dict[str, set[int]] = {}
        for path in series_files(tmp_path):
            name = path.name.partition(".")[0]
            times = series_times(path)
            table.append(pa.table({"ts": pa.array(times, pa.timestamp("us", tz="UTC")), "series": [name] * len(times)}))
            held[name] = {round(time.timestamp()) // 300 for time in times}
        low, high = min(map(min, held.values())), max(map(max, held.values()))
        check_series(table, held, low, high)
        own = 0
        for name, numbers in held.items():
            ends = [datetime.fromtimestamp(n * 300, UTC) for n in (min(numbers), max(numbers) + 1)]
            found = table.coverage.gaps(*ends, entity=name)
            assert found["buckets"].to_pylist() == brute_gaps(numbers, min(numbers), max(numbers))
            own += found.num_rows
        assert own > 1_000


def brute_gaps(numbers: set[int], low: int, high: int) -> list[int]:
    lengths, length = [], 0
    for number in range(low, high + 1):
        if number not in numbers:
            length += 1
        elif length:
            lengths.append(length)
            length = 0
    return [*lengths, length] if length else lengths


def check_series(table: Table, held: dict[str, set[int]], low: int, high: int) -> None:
    found = table.coverage.gaps()
    for name, numbers in held.items():
        mine = found.filter(pa.compute.equal(found["series"], name))
        assert mine["buckets"].to_pylist() == brute_gaps(numbers, low, high)
    expected = sum(map(len, held.values())) / (len(held) * (high - low + 1))
    assert table.coverage.ratio() == pytest.approx(expected)


def test_log_tables_leave_nothing_announced(tmp_path: Path) -> None:
    with open_log(tmp_path / "prices") as lake:
        table = lake.create_table("prices", SCHEMA, bucket="1h", coverage="exclusive")
        for hour in range(5):
            table.append(bars("NVDA", 2 * hour))
        assert open_log_catalog(tmp_path / "prices").pending() == []
        scope = lake.catalog.table("prices").scope
        expired = lake.catalog.expire_snapshots(scope, before_us=2**60)
        assert len([key for key in expired.keys if "/table/" in key]) == 4  # superseded united objects
        assert table.coverage.gaps().num_rows == 4
