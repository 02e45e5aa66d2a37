"""Measure how the third body keeps lines of logs, and finds words in them: the part of ``body`` that is about text.

Lines are made of four templates with numbers, addresses, ids and words, and a few hold a rare word; they are a column
of text, and also lie at a path of a dynamic column. The samples of loghub are not ours to publish, and without them
that part is left out. Peers are Parquet, Vortex's compact form, zstd at level 3 over the text itself, and chDB: with a
text index over the column, and with its JSON type, which has none. It does not report: ``body`` does.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import tidelake
from bench.data import SEED, START_US
from bench.report import Ratio
from tidelake.dynamic.values import encode
from tidelake.format import WriteOptions, segment_format
from tidelake.model.schema import DYNAMIC_FIELD, Schema
from tidelake.objects import open_store

LOGHUB = Path(__file__).parents[2] / "shared/data/loghub"
TURNS = Callable[[dict[str, Callable[[], object]]], None]

# Of each question: in KQL, and in chDB's SQL.
QUESTIONS = {
    "a word": (
        "lines | where line has 'overheated' | count",
        "select count() from lines where hasToken(line, 'Overheated')",
    ),
    "a phrase": (
        "lines | where line has 'Overheated disk on rack' | count",
        "select count() from lines where hasAllTokens(line, ['Overheated', 'disk', 'on', 'rack'])"
        " and position(line, 'Overheated disk on rack') > 0",
    ),
    "a part": (
        "lines | where line contains_cs 'erheated disk on ra' | count",
        "select count() from lines where line like '%erheated disk on ra%'",
    ),
    "rows of a word": (
        "lines | where line has 'overheated' | project ts, line",
        "select ts, line from lines where hasToken(line, 'Overheated')",
    ),
    "lines by template": (
        "lines | summarize n = count() by t = message_template(line) | count",
        "select uniqExact(replaceRegexpAll(line, '[A-Za-z]*[0-9][0-9A-Za-z]*', '<*>')) from lines",
    ),
}
AT_A_PATH = {
    "a word at a path": (
        "said | where event.line has 'overheated' | count",
        "select count() from said where hasToken(event.line.:String, 'Overheated')",
    ),
    "a part at a path": (
        "said | where event.line contains_cs 'erheated disk on ra' | count",
        "select count() from said where event.line.:String like '%erheated disk on ra%'",
    ),
    "rows of a word at a path": (
        "said | where event.line has 'overheated' | project level = tostring(event.level), line = tostring(event.line)",
        "select event.level.:String, event.line.:String from said where hasToken(event.line.:String, 'Overheated')",
    ),
}

AN_ID = "an id"


def _an_id(lines: pa.Array) -> str:
    """Return an id that one line has."""
    middle = lines.slice(len(lines) // 2, 1_000)
    found: str = pc.extract_regex(middle, r"trace=(?P<id>\d+)").drop_null()[0].as_py()["id"]
    return found


def made_lines(rows: int) -> pa.Array:
    """Make lines of a log, seeded."""
    rng = np.random.default_rng(SEED)

    def number(most: int) -> pa.Array:
        return pa.array(rng.integers(0, most, rows)).cast(pa.utf8())

    def joined(*parts: str | pa.Array) -> pa.Array:
        return pc.binary_join_element_wise(*(pa.scalar(p) if isinstance(p, str) else p for p in parts), "")

    queues = pa.array(["mail", "billing", "index", "search"]).take(pa.array(rng.integers(0, 4, rows)))
    kinds = [
        joined("GET /api/v2/users/", number(10**6), " 200 in ", number(3000), "ms trace=", number(2**62)),
        joined("connection from 10.0.", number(256), ".", number(256), ":", number(65536), " by worker-", number(16)),
        joined("cache miss for key user:", number(10**5), ":profile shard=", number(64), " took ", number(999), " ms"),
        joined("job ", number(2**32), " finished with ", number(10**4), " rows; queue ", queues),
    ]
    lines = pc.choose(pa.array(rng.choice(4, rows, p=[0.4, 0.3, 0.2, 0.1])), *kinds)
    rare = joined("Overheated disk on rack ", number(40), ", moved to queue ", queues)
    return pc.if_else(pa.array(np.arange(rows) % 50_021 == 7), rare, lines)


def measure_lines(
    folder: Path, rows: int, turns: TURNS, seconds: dict[str, list[float]], sizes: dict[str, int]
) -> Iterator[Ratio]:
    """Measure lines: their bytes, and words found among them."""
    lines = made_lines(rows)
    id = _an_id(lines)
    an_id = f"lines | where line has '{id}' | count", f"select count() from lines where hasToken(line, '{id}')"
    questions = {**QUESTIONS, AN_ID: an_id}
    times = pa.array(START_US + np.arange(rows) * 1000, pa.timestamp("us", "UTC"))
    table = pa.table({"ts": times, "line": lines})
    lake = tidelake.connect(str(folder / "lines"))
    ours = lake.create_table("lines", {"ts": "timestamp", "line": "string"}, time="ts", format="tlm3", flush_age="off")
    ours.append(table)
    sizes["lines: tlm3"] = sum(extent.byte_size for extent in ours.extents())
    place = folder / "lines.parquet"
    pq.write_table(table, place, compression="zstd", compression_level=3, use_dictionary=False)
    sizes["lines: Parquet"] = place.stat().st_size
    sizes["lines: zstd of the text"] = _zstd(lines)
    if (vortex := vortex_bytes(table, folder)) is not None:
        sizes["lines: Vortex"] = vortex
        yield Ratio("bytes of lines, Vortex", sizes["lines: tlm3"], vortex, "bytes", 1.0)
    yield Ratio("bytes of lines, Parquet", sizes["lines: tlm3"], sizes["lines: Parquet"], "bytes", 0.80)
    text = sizes["lines: zstd of the text"]
    yield Ratio("bytes of lines, zstd of the text", sizes["lines: tlm3"], text, "bytes", 0.90)
    contenders: dict[str, Callable[[], object]] = {
        f"{name}: tlm3": partial(_answered, lake, kql) for name, (kql, _) in questions.items()
    }
    chdb = _chdb(folder / "chdb_lines", place, sizes)
    if chdb is not None:
        for name, (_, sql) in questions.items():
            contenders[f"{name}: chDB"] = partial(chdb.query, sql, "CSV")
    turns(contenders)
    if "lines: chDB" in sizes:
        yield Ratio("bytes of lines, chDB", sizes["lines: tlm3"], sizes["lines: chDB"], "bytes", 0.9)
        for name in questions:
            taken, theirs = (median(seconds[f"{name}: {who}"]) for who in ("tlm3", "chDB"))
            yield Ratio(f"{name}, chDB", taken, theirs, "s", None if name == AN_ID else 1.0)


def measure_lines_at_a_path(
    folder: Path, rows: int, turns: TURNS, seconds: dict[str, list[float]], sizes: dict[str, int]
) -> Iterator[Ratio]:
    """Measure lines that are at a path of events: their bytes, and words found among them."""
    lines, levels = made_lines(rows), ("INFO", "INFO", "INFO", "WARN", "ERROR")
    said = [{"level": levels[n % 5], "line": line} for n, line in enumerate(lines.to_pylist())]
    times = pa.array(START_US + np.arange(rows) * 1000, pa.timestamp("us", "UTC"))
    schema = pa.schema([pa.field("ts", times.type), pa.field("event", pa.binary(), metadata=DYNAMIC_FIELD)])
    lake = tidelake.connect(str(folder / "said"))
    ours = lake.create_table("said", {"ts": "timestamp", "event": "dynamic"}, time="ts", format="tlm3", flush_age="off")
    ours.append(pa.table([times, pa.array(map(encode, said), pa.binary())], schema=schema))
    sizes["lines at a path: tlm3"] = sum(extent.byte_size for extent in ours.extents())
    place, ndjson = folder / "said.parquet", folder / "said.ndjson"
    pq.write_table(pa.table({"ts": times, "event": pa.array(said)}), place, compression="zstd", compression_level=3)
    sizes["lines at a path: Parquet"] = place.stat().st_size
    ndjson.write_bytes(b"\n".join(map(orjson.dumps, said)))
    contenders: dict[str, Callable[[], object]] = {
        f"{name}: tlm3": partial(_answered, lake, kql) for name, (kql, _) in AT_A_PATH.items()
    }
    chdb = _chdb_of_events(folder / "chdb_said", ndjson, sizes)
    if chdb is not None:
        contenders |= {f"{name}: chDB": partial(chdb.query, sql, "CSV") for name, (_, sql) in AT_A_PATH.items()}
    turns(contenders)
    ndjson.unlink()
    for peer, goal in (("Parquet", 0.8), ("chDB", 0.9)):
        if (theirs := sizes.get(f"lines at a path: {peer}")) is not None:
            yield Ratio(f"bytes of lines at a path, {peer}", sizes["lines at a path: tlm3"], theirs, "bytes", goal)
    for name in AT_A_PATH if chdb is not None else ():
        taken, answered = (median(seconds[f"{name}: {who}"]) for who in ("tlm3", "chDB"))
        yield Ratio(f"{name}, chDB", taken, answered, "s", 2.0)


def vortex_bytes(table: pa.Table, folder: Path) -> int | None:
    """Return how many bytes rows take in Vortex's compact form; None where it is not installed."""
    try:
        import vortex
        from vortex.io import VortexWriteOptions
    except ImportError:
        return None
    place = folder / "peer.vortex"
    VortexWriteOptions.compact().write(vortex.array(table), str(place))
    size = place.stat().st_size
    place.unlink()
    return size


def measure_loghub(folder: Path, sizes: dict[str, int]) -> Iterator[Ratio]:
    """Measure the bytes of real logs, each one extent."""
    store = open_store(folder)
    for path in sorted(LOGHUB.glob("*.zst")):
        text = subprocess.run(["zstd", "-dc", str(path)], capture_output=True, check=True).stdout
        lines = pa.array(text.decode("utf-8", "replace").splitlines())
        table = pa.table({"line": lines})
        name = f"loghub {path.name.partition('_')[0]}"
        writer = segment_format("tlm3").start_extent(
            store, f"{name}.tlm", Schema.from_arrow(table.schema), extent_id="1", options=WriteOptions()
        )
        writer.append(table.to_batches()[0])
        sizes[f"{name}: tlm3, whole"] = writer.finish().byte_size
        reader: Any = segment_format("tlm3").open_extent(store, f"{name}.tlm")
        sizes[f"{name}: tlm3, the column"] = sum(part.byte_size for part in reader.parts() if part.part != "postings")
        sizes[f"{name}: zstd of the text"] = _zstd(lines)
        place = folder / f"{name}.parquet"
        pq.write_table(table, place, compression="zstd", compression_level=3)
        sizes[f"{name}: Parquet"] = place.stat().st_size
    whole, column, packed, parquet = (
        sum(size for name, size in sizes.items() if name.startswith("loghub") and name.endswith(what))
        for what in ("whole", "the column", "zstd of the text", "Parquet")
    )
    if column:
        yield Ratio("bytes of loghub, Parquet", whole, parquet, "bytes", 0.80)
        yield Ratio("bytes of loghub, zstd of the text", whole, packed, "bytes", 0.90)
        yield Ratio("bytes of loghub's columns, zstd of the text", column, packed, "bytes", 0.90)


def _zstd(lines: pa.Array) -> int:
    text = "\n".join(lines.to_pylist()).encode()
    return len(pa.Codec("zstd", compression_level=3).compress(text, asbytes=True))


def _answered(lake: tidelake.Lake, text: str) -> object:
    return lake.kql(text).to_arrow()


def _chdb(folder: Path, parquet: Path, sizes: dict[str, int]) -> Any:
    """Load lines into chDB with a text index; None where it is not installed."""
    try:
        from chdb.session import Session
    except ImportError:
        return None
    chdb = Session(str(folder))
    chdb.query("create database lines")
    chdb.query("use lines")
    chdb.query("set allow_experimental_full_text_index = 1")
    index = "index words line type text(tokenizer = 'splitByNonAlpha')"
    chdb.query(f"create table lines (ts DateTime64(6), line String, {index}) engine = MergeTree order by ts")
    chdb.query(f"insert into lines select * from file('{parquet}', 'Parquet')")
    chdb.query("optimize table lines final")
    found = "select sum(bytes_on_disk) from system.parts where table = 'lines' and active"
    sizes["lines: chDB"] = int(chdb.query(found, "CSV").bytes())
    return chdb


def _chdb_of_events(folder: Path, ndjson: Path, sizes: dict[str, int]) -> Any:
    """Load events with lines into chDB, as its JSON type; None where it is not installed."""
    try:
        from chdb.session import Session
    except ImportError:
        return None
    chdb = Session(str(folder))
    chdb.query("create database said")
    chdb.query("use said")
    chdb.query("create table said (event JSON) engine = MergeTree order by tuple()")
    chdb.query(f"insert into said select json from file('{ndjson}', 'JSONAsObject')")
    chdb.query("optimize table said final")
    found = "select sum(bytes_on_disk) from system.parts where table = 'said' and active"
    sizes["lines at a path: chDB"] = int(chdb.query(found, "CSV").bytes())
    return chdb
