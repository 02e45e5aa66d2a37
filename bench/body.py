"""Measure the third body beside its peers: bytes, reads and writes of log rows, and paths of real events.

Log rows are those of the other benchmarks. The events are real ones of Windows, repeated until there are enough; they
are not ours to publish, and without them that part is left out. Peers are Parquet with zstd at level 3 and encodings
chosen for each column, Parquet with a column for every field of the events, and chDB with its JSON type, where it is
installed. It does not measure ingestion from files.
"""

from __future__ import annotations

import gc
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import duckdb
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

import tidelake
from bench.body_lines import measure_lines, measure_lines_at_a_path, measure_loghub, vortex_bytes
from bench.data import START_US, log_table
from bench.report import Ratio, Report
from tidelake.dynamic.values import encode
from tidelake.format import WriteOptions, segment_format
from tidelake.model.schema import DYNAMIC_FIELD, Schema
from tidelake.objects import open_store
from tidelake.runtime.readiness import AT_ONCE

EVENTS = Path(__file__).parents[2] / "shared/data/events/windows_events.ndjson.zst"
LINE_SHARE = 2.5  # lines for each of the rows asked for: 10 million of 4 million
EVENT_SHARE = 6.6  # of the rows asked for are so many times the events: 605,000 of 4 million
EXTENT_ROWS = 1_000_000
PAIR = ["ts", "service"]

# Of each question: in KQL, in chDB's SQL, and of Parquet with a column for every field.
QUESTIONS: Mapping[str, tuple[str, str, str | None]] = {
    "path equality": (
        "events | where event.EventID == 4688 | count",
        "select count() from events where event.EventID.:Int64 = 4688",
        None,  # DuckDB takes EventID and eventID for one name
    ),
    "path text equality": (
        "events | where event.Channel == 'Security' | count",
        "select count() from events where event.Channel.:String = 'Security'",
        "select count(*) from events where Channel = 'Security'",
    ),
    "path aggregate": (
        "events | summarize n = count() by c = tostring(event.Channel)",
        "select event.Channel.:String c, count() from events group by c",
        "select Channel, count(*) from events group by 1",
    ),
    "has in a path": (
        "events | where event.Message has 'lsass' | count",
        "select count() from events where hasTokenCaseInsensitive(event.Message.:String, 'lsass')",
        "select count(*) from events where regexp_matches(Message, '(?i)\\blsass\\b')",
    ),
    "contains in a path": (
        "events | where event.Message contains 'sass.ex' | count",
        "select count() from events where positionCaseInsensitive(event.Message.:String, 'sass.ex') > 0",
        "select count(*) from events where contains(lower(Message), 'sass.ex')",
    ),
}

METHOD = (
    "Ratios are of medians; contenders take turns, in one process; the first round is a warm-up and is left out.",
    "Parquet: pyarrow, zstd level 3, row groups of a million rows, times delta-coded, reals split into streams of "
    "bytes; for events DuckDB's own, zstd level 3, a column for each field.",
    "chDB: one MergeTree table with one column of type JSON, its default codecs, merged to one part; its size is that "
    "of its active parts.",
    "Vortex: one file in its compact form, which keeps no checksums of what it stores.",
    "Lines at a path: events of a level and a line, one dynamic column; Parquet has them as a struct, chDB as JSON.",
    "Lines: one text column and a time; chDB has a text index of the words; the text of zstd is one frame at level 3.",
    "Extents hold all statistics and filters that prune; their bytes are counted.",
    "A question includes parsing, planning and reading, with files in the page cache and what the process keeps "
    "of extents: footers, directories and dictionaries, and postings, templates and pages of lines from the second "
    "reading on, as in one that serves.",
)


def run(folder: Path, *, rows: int, rounds: int) -> Report:
    """Measure log rows, and events where they are."""
    folder.mkdir(parents=True, exist_ok=True)
    os.environ[AT_ONCE] = "now"  # what is written without loops is laid out otherwise
    seconds: dict[str, list[float]] = {}
    sizes: dict[str, int] = {}
    ratios = [*_log_rows(folder, rows, rounds, seconds, sizes)]
    ratios += measure_lines(
        folder, int(rows * LINE_SHARE), lambda held: take_turns(held, rounds, seconds), seconds, sizes
    )
    ratios += measure_loghub(folder, sizes)
    few = max(1000, int(rows / EVENT_SHARE))
    ratios += measure_lines_at_a_path(folder, few, lambda held: take_turns(held, rounds, seconds), seconds, sizes)
    if EVENTS.exists():
        ratios += _events(folder, few, rounds, seconds, sizes)
    return Report(
        "body",
        f"{rows:,} log rows, eight columns; {int(rows * LINE_SHARE):,} lines of text; samples of loghub; real events "
        "of Windows, repeated, one dynamic column.",
        tuple(ratios),
        {name: tuple(each) for name, each in seconds.items()},
        sizes,
        METHOD,
    )


def _log_rows(
    folder: Path, rows: int, rounds: int, seconds: dict[str, list[float]], sizes: dict[str, int]
) -> Iterator[Ratio]:
    table, store = log_table(rows), open_store(folder)
    schema = Schema.from_arrow(table.schema)

    def written(name: str) -> None:
        for number, start in enumerate(range(0, rows, EXTENT_ROWS)):
            writer = segment_format(name).start_extent(
                store, f"{name}-{number}.tlm", schema, extent_id=str(number), options=WriteOptions(time="ts")
            )
            for batch in table.slice(start, EXTENT_ROWS).to_batches():
                writer.append(batch)
            writer.finish()

    def read(name: str) -> None:
        for number in range(-(-rows // EXTENT_ROWS)):
            reader = segment_format(name).open_extent(store, f"{name}-{number}.tlm")
            for block in range(len(reader.metadata().blocks)):
                reader.read_block(block, PAIR)

    def parquet() -> None:
        pq.write_table(
            table, folder / "logs.parquet", compression="zstd", compression_level=3, row_group_size=EXTENT_ROWS,
            use_dictionary=["service", "level", "host", "status"],
            column_encoding={"ts": "DELTA_BINARY_PACKED", "trace": "PLAIN", "duration_ms": "BYTE_STREAM_SPLIT",
                             "message": "PLAIN"},
        )  # fmt: skip

    take_turns(
        {
            "logs: write tlm3": lambda: written("tlm3"),
            "logs: write tlm": lambda: written("tlm"),
            "logs: write Parquet": parquet,
            "logs: two columns, tlm3": lambda: read("tlm3"),
            "logs: two columns, tlm": lambda: read("tlm"),
            "logs: two columns, Parquet": lambda: pq.read_table(folder / "logs.parquet", columns=PAIR),
        },
        rounds,
        seconds,
    )
    for name in ("tlm3", "tlm"):
        sizes[f"logs: {name}"] = sum(path.stat().st_size for path in folder.glob(f"{name}-*.tlm"))
    sizes["logs: Parquet"] = (folder / "logs.parquet").stat().st_size
    yield Ratio("bytes of log rows, Parquet", sizes["logs: tlm3"], sizes["logs: Parquet"], "bytes", 0.80)
    if (vortex := vortex_bytes(table, folder)) is not None:
        sizes["logs: Vortex"] = vortex
        yield Ratio("bytes of log rows, Vortex", sizes["logs: tlm3"], vortex, "bytes", 1.0)
    yield Ratio("bytes of log rows, tlm", sizes["logs: tlm3"], sizes["logs: tlm"], "bytes")
    for what, goal in (("write", 1.3), ("two columns,", 1.0)):
        ours = median(seconds[f"logs: {what} tlm3"])
        yield Ratio(f"{what} of log rows, Parquet", ours, median(seconds[f"logs: {what} Parquet"]), "s", goal)
        yield Ratio(f"{what} of log rows, tlm", ours, median(seconds[f"logs: {what} tlm"]), "s")


def _events(
    folder: Path, rows: int, rounds: int, seconds: dict[str, list[float]], sizes: dict[str, int]
) -> Iterator[Ratio]:
    lines = subprocess.run(["zstd", "-dc", str(EVENTS)], capture_output=True, check=True).stdout.splitlines()
    lake = tidelake.connect(str(folder / "lake"))
    for name in ("tlm3", "tlm"):  # compiles what it will need
        asked = "tlm2" if name == "tlm" else name
        first = lake.create_table(f"first_{name}", {"ts": "timestamp", "event": "dynamic"}, time="ts", format=asked)
        first.append(event_rows(lines[:2000], 20_000))
    for name in ("tlm3", "tlm"):
        table = lake.create_table(
            "events" if name == "tlm3" else "older", {"ts": "timestamp", "event": "dynamic"}, time="ts",
            format="tlm2" if name == "tlm" else name, flush_age="off",
        )  # fmt: skip
        began = time.perf_counter()
        table.append(event_rows(lines, rows))
        seconds[f"events: append {name}"] = [time.perf_counter() - began]
        sizes[f"events: {name}"] = sum(extent.byte_size for extent in table.extents())
    ndjson = folder / "events.ndjson"
    write_events(ndjson, lines, rows)
    duck = duckdb.connect()
    place = folder / "events.parquet"
    duck.execute(
        f"copy (select * from read_json('{ndjson}', format='newline_delimited', sample_size=-1,"
        f" maximum_object_size=100000000)) to '{place}' (format parquet, compression zstd, compression_level 3)"
    )
    duck.execute(f"create view events as from '{place}'")
    sizes["events: Parquet"] = place.stat().st_size
    chdb = chdb_with(folder / "chdb", ndjson, sizes)
    contenders: dict[str, Callable[[], object]] = {}

    def answered(text: str) -> object:
        return lake.kql(text).to_arrow()

    def fetched(text: str) -> object:
        return duck.execute(text).fetchall()

    for name, (kql, sql, plain) in QUESTIONS.items():
        contenders[f"{name}: tlm3"] = partial(answered, kql)
        contenders[f"{name}: tlm"] = partial(answered, kql.replace("events |", "older |"))
        if plain is not None:
            contenders[f"{name}: Parquet"] = partial(fetched, plain)
        if chdb is not None:
            contenders[f"{name}: chDB"] = partial(chdb.query, sql, "CSV")
    take_turns(contenders, rounds, seconds)
    ndjson.unlink()
    yield Ratio("bytes of events, Parquet", sizes["events: tlm3"], sizes["events: Parquet"], "bytes", 0.80)
    yield Ratio("bytes of events, tlm", sizes["events: tlm3"], sizes["events: tlm"], "bytes")
    if "events: chDB" in sizes:
        yield Ratio("bytes of events, chDB", sizes["events: tlm3"], sizes["events: chDB"], "bytes", 0.9)
    yield Ratio("append of events, tlm", seconds["events: append tlm3"][0], seconds["events: append tlm"][0], "s")
    for name in QUESTIONS:
        for peer, goal in (("chDB", 2.0), ("Parquet", None), ("tlm", None)):
            if f"{name}: {peer}" in seconds:
                ours = median(seconds[f"{name}: tlm3"])
                yield Ratio(f"{name}, {peer}", ours, median(seconds[f"{name}: {peer}"]), "s", goal)


def write_events(place: Path, lines: list[bytes], rows: int) -> None:
    """Write events as lines of JSON, repeated until there are enough."""
    with place.open("wb") as file:
        for start in range(0, rows, len(lines)):
            file.write(b"\n".join(lines[: rows - start]) + b"\n")


def event_rows(lines: list[bytes], rows: int) -> pa.RecordBatchReader:
    """Return events as rows with times, repeated until there are enough."""
    values = pa.array([encode(orjson.loads(line)) for line in lines], pa.binary())
    schema = pa.schema(
        [pa.field("ts", pa.timestamp("us", "UTC")), pa.field("event", pa.binary(), metadata=DYNAMIC_FIELD)]
    )

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, rows, len(values)):
            some = values.slice(0, rows - start)
            times = pa.array(START_US + np.arange(start, start + len(some)) * 1000, pa.timestamp("us", "UTC"))
            yield pa.RecordBatch.from_arrays([times, some], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def chdb_with(folder: Path, ndjson: Path, sizes: dict[str, int]) -> Any:
    """Load the events into chDB; None where it is not installed."""
    try:
        from chdb.session import Session
    except ImportError:
        return None
    chdb = Session(str(folder))
    chdb.query("create database bench")
    chdb.query("use bench")
    chdb.query("create table events (event JSON) engine = MergeTree order by tuple()")
    chdb.query(f"insert into events select json from file('{ndjson}', 'JSONAsObject')")
    chdb.query("optimize table events final")
    found = chdb.query("select sum(bytes_on_disk) from system.parts where table = 'events' and active", "CSV").bytes()
    sizes["events: chDB"] = int(found)
    return chdb


def take_turns(contenders: Mapping[str, Callable[[], object]], rounds: int, seconds: dict[str, list[float]]) -> None:
    """Time contenders in turn; the first round is left out."""
    for number in range(rounds + 1):
        for name, work in contenders.items():
            gc.collect()
            began = time.perf_counter()
            work()
            if number:
                seconds.setdefault(name, []).append(time.perf_counter() - began)
