"""Measure one extent beside its peers: writing it, its size, two of its columns, and one of its blocks.

Every contender gets the same rows in memory and the same folder; all run once a round, in turn, so that a slow minute
of the machine hits them alike. It does not measure tables or queries.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import pyarrow as pa
import pyarrow.parquet as pq

from bench.data import log_table
from bench.report import Ratio, Report
from tests.support.faulty import FaultyStore
from tidelake.format import WriteOptions, tlm
from tidelake.format.segment import BLOCK_ROWS
from tidelake.model.schema import Schema
from tidelake.objects import ObjectStore, open_store

PAIRS = {"a time and a label": ["ts", "service"], "a time and a message": ["ts", "message"]}
BLOCKS = 16
BLOCK = 7  # the one that is read: neither the first nor the last

METHOD = (
    "Ratios are of medians; contenders take turns, in one process; the first round is a warm-up and is left out.",
    "The rows are in memory, in time order, when a write begins. The extent's write includes validation, all "
    "statistics, checksums and compression (zstd, pyarrow's default level for every contender).",
    "To disk, every contender ends with a sync of the file and of its folder. In memory, nothing touches a disk.",
    "pyarrow writes Parquet on one thread; an extent uses two.",
    "Reads find the file in the page cache, so they measure decoding and not the disk. IPC is memory-mapped with only "
    "the wanted fields included, and like Parquet it decodes columns side by side; an extent's blocks are read one "
    "after the other, with checksums verified.",
    "Bytes fetched are what the store was asked for: the tail, the rest of the footer, and the pieces.",
)

Contenders = Mapping[str, Callable[[], object]]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the contenders of one run write, and what."""

    folder: Path
    table: pa.Table
    store: ObjectStore

    @property
    def sixteenth(self) -> int:
        return int(-(-self.table.num_rows // BLOCKS))

    def path(self, name: str) -> str:
        return str(self.folder / name)

    def size(self, name: str) -> int:
        return (self.folder / name).stat().st_size


def run(folder: Path, *, rows: int, rounds: int) -> Report:
    """Measure everything; files go to a folder that the caller removes."""
    place = _Place(folder, log_table(rows), open_store(folder))
    seconds = _take_turns(_writers(place), rounds)
    _write_sixteenths(place)
    seconds |= _take_turns(_column_readers(place) | _block_readers(place), rounds)
    sizes = {
        "extent": place.size("a.tlm"),
        "extent, footer alone": tlm.FORMAT.open_extent(place.store, "a.tlm").metadata().footer_bytes,
        "Arrow IPC zstd, same batches": place.size("a.arrow"),
        "Parquet zstd": place.size("a.parquet"),
        "extent of 16 blocks": place.size("16.tlm"),
        "fetched for one of 16 blocks": _fetched(place, None),
        "fetched for two columns of one of 16 blocks": _fetched(place, PAIRS["a time and a label"]),
    }
    return Report(
        name="extents",
        workload=f"{rows:,} log rows of 8 columns, {place.table.nbytes / 2**20:,.0f} MiB in memory; see bench/data.py.",
        ratios=tuple(_ratios({name: median(each) for name, each in seconds.items()}, sizes)),
        seconds=seconds,
        sizes=sizes,
        method=METHOD,
    )


def _ratios(medians: Mapping[str, float], sizes: Mapping[str, int]) -> Sequence[Ratio]:
    def timed(name: str, ours: str, peer: str, goal: float | None = None) -> Ratio:
        return Ratio(name, medians[ours], medians[peer], "s", goal)

    def sized(name: str, ours: str, peer: str, goal: float | None = None) -> Ratio:
        return Ratio(name, sizes[ours], sizes[peer], "bytes", goal)

    pairs = [
        timed(f"read {pair}, against {peer}", f"read {pair}: extent", f"read {pair}: {peer}", goal)
        for pair in PAIRS
        for peer, goal in (("IPC", 1.2), ("Parquet", None))
    ]
    return (
        timed("write to disk with all statistics, against Parquet", "write: extent", "write: Parquet", 1.6),
        timed("write to memory, against Parquet", "write to memory: extent", "write to memory: Parquet", 1.6),
        *pairs,
        sized("fetched for a block, against the object", "fetched for one of 16 blocks", "extent of 16 blocks", 0.1),
        timed("read one of 16 blocks, against IPC", "read one block: extent", "read one block: IPC"),
        timed("read one of 16 blocks, against Parquet", "read one block: extent", "read one block: Parquet"),
        sized("size, against IPC zstd of the same batches", "extent", "Arrow IPC zstd, same batches", 1.03),
        sized("size, against Parquet zstd", "extent", "Parquet zstd"),
    )


def _take_turns(contenders: Contenders, rounds: int) -> dict[str, tuple[float, ...]]:
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(rounds + 1):
        gc.collect()
        for name, contend in contenders.items():
            began = time.perf_counter()
            contend()
            seconds[name].append(time.perf_counter() - began)
    return {name: tuple(each[1:]) for name, each in seconds.items()}


def _writers(place: _Place) -> Contenders:
    memory = open_store("memory://")

    def parquet_to_memory() -> None:
        pq.write_table(place.table, pa.BufferOutputStream(), compression="zstd")

    return {
        "write: extent": lambda: _write_extent(place.store, "a.tlm", place.table, BLOCK_ROWS),
        "write: Parquet": lambda: _write_parquet(place, "a.parquet", 1 << 20),
        "write: Parquet, row groups as blocks": lambda: _write_parquet(place, "b.parquet", BLOCK_ROWS),
        "write: IPC": lambda: _write_ipc(place, "a.arrow", BLOCK_ROWS),
        "write to memory: extent": lambda: _write_extent(memory, "a.tlm", place.table, BLOCK_ROWS),
        "write to memory: Parquet": parquet_to_memory,
    }


def _column_readers(place: _Place) -> dict[str, Callable[[], object]]:
    readers: dict[str, Callable[[], object]] = {}
    for pair, columns in PAIRS.items():
        readers[f"read {pair}: extent"] = partial(_read_extent, place, columns)
        readers[f"read {pair}: IPC"] = partial(_read_ipc, place, columns)
        readers[f"read {pair}: Parquet"] = partial(pq.read_table, place.path("a.parquet"), columns=columns)
    return readers


def _block_readers(place: _Place) -> dict[str, Callable[[], object]]:
    def ipc() -> object:
        with pa.memory_map(place.path("16.arrow")) as file:
            return pa.ipc.open_file(file).get_batch(BLOCK)

    return {
        "read one block: extent": lambda: tlm.FORMAT.open_extent(place.store, "16.tlm").read_block(BLOCK),
        "read one block: IPC": ipc,
        "read one block: Parquet": lambda: pq.ParquetFile(place.path("16.parquet")).read_row_group(BLOCK),
    }


def _write_sixteenths(place: _Place) -> None:
    _write_extent(place.store, "16.tlm", place.table, place.sixteenth)
    _write_ipc(place, "16.arrow", place.sixteenth)
    _write_parquet(place, "16.parquet", place.sixteenth)


def _write_extent(store: ObjectStore, key: str, table: pa.Table, block_rows: int) -> None:
    schema = Schema.from_arrow(table.schema)
    options = WriteOptions(block_rows=block_rows)
    writer = tlm.FORMAT.start_extent(store, key, schema, extent_id=key, options=options)
    for batch in table.to_batches(max_chunksize=block_rows):
        writer.append(batch)
    writer.finish()


def _write_parquet(place: _Place, name: str, row_group_rows: int) -> None:
    pq.write_table(place.table, place.path(name), compression="zstd", row_group_size=row_group_rows)
    _sync(place, name)


def _write_ipc(place: _Place, name: str, batch_rows: int) -> None:
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(place.path(name), place.table.schema, options=options) as file:
        file.write_table(place.table, max_chunksize=batch_rows)
    _sync(place, name)


def _sync(place: _Place, name: str) -> None:
    for path in (place.path(name), str(place.folder)):
        file = os.open(path, os.O_RDONLY)
        os.fsync(file)
        os.close(file)


def _read_extent(place: _Place, columns: Sequence[str]) -> pa.Table:
    reader = tlm.FORMAT.open_extent(place.store, "a.tlm")
    with ThreadPoolExecutor(2) as pool:  # as a scan does, and as the peers do inside
        return pa.Table.from_batches(
            pool.map(lambda block: reader.read_block(block, columns), reader.pruned_blocks(None))
        )


def _read_ipc(place: _Place, columns: Sequence[str]) -> pa.Table:
    fields = [place.table.schema.get_field_index(name) for name in columns]
    with pa.memory_map(place.path("a.arrow")) as file:
        return pa.ipc.open_file(file, options=pa.ipc.IpcReadOptions(included_fields=fields)).read_all()


def _fetched(place: _Place, columns: Sequence[str] | None) -> int:
    """Count the bytes that reading one block asks of the store, from a cold start."""
    store = FaultyStore(place.store)
    tlm.FORMAT.open_extent(store, "16.tlm").read_block(BLOCK, columns)
    return store.bytes_read
