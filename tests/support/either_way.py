"""Do what loops are for, and give what came out as text: the same with a compiler and without.

Run as ``python -m tests.support.either_way`` it does so without numba, which it keeps from being imported. It does not
judge what comes out.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
from collections.abc import Iterable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from tests.support.files import FILES
from tests.support.rows import KEY, write

NOON = "2026-03-14T12:00:00"
HARD_JSON = [
    r'{"ts": 1773489600.123456789, "a": "\u00e9\ud83d\ude00\n", "n": 9223372036854775807, "d": {"b": [1, -0.0, 1e99]}}',
    r'{"ts": 1773489600123456789, "a": "é日 \"", "n": -9223372036854775808, "d": {"b": {"c": 1e-7, "a": null}, "": 2}}',
    r'{"ts": "1773489600", "a": 18446744073709551615, "n": 0.1, "d": {"b": 12345678901234567890123, "b": "twice"}}',
    r'{"ts": "2026-03-14 12:00:00.1234567+0530", "a": true, "n": -0, "d": [NaN, -Infinity, 65504.0, 3.4e38, 5e-324]}',
    r'{"ts": "2024-02-29T23:59:60Z", "a": 0.30000000000000004, "n": 1, "d": "outer", "deep": {"x": {"y": {"z": 1}}}}',
    r'{"ts": "2026-03-14T12:00:00Z", "a": "/", "n": 7205759403792793200.5, "d": {"zz": 1, "z": 2, "a": [{"q": "in"}]}}',
]


def keep_away(*names: str) -> None:
    """Have imports of these libraries fail, as where they are not installed."""

    class Finder:
        def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
            if name.partition(".")[0] in names:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
            return None

    sys.meta_path.insert(0, Finder())


def outcomes() -> dict[str, Any]:
    """Ingest, write, look into and ask, and give every result by name."""
    return dict(_outcomes())


def _outcomes() -> Iterator[tuple[str, Any]]:
    from tidelake.ingest import FileRows, Rules
    from tidelake.ingest.files import ReadOptions

    for made in FILES:
        read = dict(zip(made.options[::2], made.options[1::2], strict=True))
        options = ReadOptions(
            time_format=read.get("--time-format"),
            missing_time=read.get("--missing-time", "fail").replace("skip", "now"),
        )
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / made.name
            path.write_bytes(made.make())
            rows = FileRows(path, options)
            rows._now_us = 1_790_000_000_000_000
            schema, time = rows.schema()
            batches = list(rows.coerced(schema, Rules(time=time)))
        yield made.name, _written(batches[-1].schema, [each.batch for each in batches])
    yield from _hard_lines()
    yield from _texts()
    yield from _third_body()
    yield from _asked()


def _written(
    schema: Any, batches: Iterable[pa.RecordBatch], format: str = "tlm", block_rows: int = 16
) -> dict[str, str]:
    """Write an extent, and give a digest of its rows and one of its bytes, with all statistics."""
    from tidelake.format import WriteOptions, segment_format
    from tidelake.objects import open_store

    several = list(batches)
    store = open_store("memory://")
    write(store, segment_format(format), schema, several, options=WriteOptions(block_rows=block_rows))
    rows = repr([each.to_pydict() for each in several]).encode()
    return {"rows": _digest(rows), "bytes": _digest(bytes(store.get(KEY)))}


def _digest(data: bytes) -> str:
    return xxhash.xxh3_128_hexdigest(data)


def _hard_lines() -> Iterator[tuple[str, Any]]:
    from tidelake.dynamic.cbor import extract, slices
    from tidelake.dynamic.cbor_encode import encoded
    from tidelake.dynamic.cbor_json import json_of
    from tidelake.errors import InvalidInputError
    from tidelake.ingest import Rules, coerce_ndjson
    from tidelake.model.schema import DataType, Schema

    for kind in ("dynamic", "string", "real", "long"):
        schema = Schema.of({"ts": "timestamp", "a": kind, "n": kind, "d": "dynamic", "deep": "dynamic"})
        coerced = coerce_ndjson("\n".join(HARD_JSON).encode(), schema, Rules(time="ts"))
        yield f"hard lines, {kind}", repr(coerced.batch.to_pydict())
        yield f"extent of hard lines, {kind}", _written(coerced.schema, [coerced.batch])
    values = coerced.batch.column("d")
    yield "json", json_of(values).to_pylist()
    for path in ("b", "b.c", "zz", "a[0].q"):
        found = extract(values, path)
        yield path, [found.as_type(DataType(kind)).to_pylist() for kind in ("long", "real", "string", "bool")]
        yield f"slices {path}", repr(slices(values, path).to_pylist())
    yield (
        "encoded",
        repr(encoded(pa.array(["", "é" * 30, None])).to_pylist() + encoded(pa.array([1, -300])).to_pylist()),
    )
    for wrong in ('{"ts": tru}', '{"ts": "\\ud800"}', '{"ts": 01}', '{"ts": "\\x"}', '{"a": 1} x', "[1]", '{"a":'):
        try:
            coerce_ndjson(f'{{"ts": "{NOON}Z"}}\n{wrong}\n'.encode(), Schema.of({"ts": "timestamp"}), Rules(time="ts"))
        except InvalidInputError as error:
            yield wrong, str(error)


def _third_body() -> Iterator[tuple[str, Any]]:
    """Write lines, texts that repeat, numbers near others and values of every type as the third body."""
    from tests.support.line_questions import lines
    from tidelake.format import postings, segment_format
    from tidelake.model.schema import Schema
    from tidelake.objects import open_store

    postings.MIN_ROWS, before = 64, postings.MIN_ROWS
    for flavour in ("log", "words", "odd", "few"):
        count = 700
        texts = lines(random.Random(flavour), flavour, count)
        columns = {
            "ts": pa.array(range(count), pa.timestamp("us", tz="UTC")),
            "line": pa.array(texts, pa.utf8()),
            "host": pa.array([None if n % 9 == 4 else f"host-{n * n % 13}.example.org" for n in range(count)]),
            "day": pa.array([n * n * 7919 % 2503 for n in range(count)], pa.int32()),
            "due": pa.array([n * n * 7919 % 2503 + n * 31 % 30 for n in range(count)], pa.int32()),
            "took": pa.array([n % 97 / 100 for n in range(count)]),
            "ok": pa.array([None if n % 5 == 3 else n % 3 == 0 for n in range(count)]),
        }
        kinds = ("timestamp", "string", "string", "int", "int", "real", "bool")
        schema = Schema.of(dict(zip(columns, kinds, strict=True)))
        batch = pa.RecordBatch.from_arrays(list(columns.values()), schema=schema.arrow)
        yield f"third body, {flavour}", _written(schema, [batch], "tlm3", 300)
        store = open_store("memory://")
        write(store, segment_format("tlm3"), schema, [batch])
        parts = segment_format("tlm3").open_extent(store, KEY).parts()  # type: ignore[attr-defined]
        yield f"parts, {flavour}", [(part.column, part.part, part.values, part.byte_size) for part in parts]
    postings.MIN_ROWS = before


def _texts() -> Iterator[tuple[str, Any]]:
    from tidelake.ingest.instants import times_of_decimals, times_of_ints, times_of_texts
    from tidelake.ingest.text_columns import classify
    from tidelake.model.predicate import StartsWith, StringContains, StringHas, StringMatches
    from tidelake.scan.text_search import search

    words = [
        "",
        " ",
        "007",
        "-0",
        "-0.0",
        ".5",
        "5.",
        "1e5",
        "1e",
        "1.234,5",
        "12,5",
        "1.23,4",
        "NaN",
        "N/A",
        "Inf",
        "-inf",
    ]
    words += ["true", "FALSE", "9" * 18, "9" * 19, "9" * 25, "-9223372036854775808", "2026-03-14", f"{NOON}.123456789Z"]
    words += [
        f"{NOON}+01",
        f"{NOON}-0130",
        "2026-02-30",
        "0001-01-01T00:00:00+10:00",
        "9999-12-31T23:59:59-10:00",
        "1773489600",
    ]
    texts = pa.array([*words, *(f" {word}\t" for word in words), None])
    yield "classes", classify(texts).tolist() + classify(texts, comma=True).tolist()
    yield "times", times_of_texts(texts).tolist()
    numbers = pa.array(["1773489600.5", "-1.5e3", "1e30", "1773489600123456789", None, "1e-9", "-0.0000001"])
    yield "decimals", times_of_decimals(numbers).tolist()
    yield (
        "ints",
        times_of_ints(np.array([0, -1, 2**63 - 1, -(2**63), 1773489600, 1773489600000], dtype=np.int64)).tolist(),
    )
    lines = pa.array(
        ["Timeout at K", "a timeout", "notimeout", "é_timeout_", "étimeouté", None, "", "TIMEOUT.", "Kelvin K"]
    )
    for leaf in (StringHas("x", "timeout"), StringContains("x", "TimeOut"), StringContains("x", "time", True),
                 StartsWith("x", "time"), StartsWith("x", "Time", True), StringHas("x", "k"), StringContains("x", ""),
                 StringContains("x", "É"), StringMatches("x", "t[iI]meout"), StartsWith("x", "")):  # fmt: skip
        yield repr(leaf), search(leaf, lines).to_pylist()


def _asked() -> Iterator[tuple[str, Any]]:
    import tidelake

    with tempfile.TemporaryDirectory() as folder, tidelake.connect(Path(folder) / "lake") as lake:
        logs = lake.create_table(
            "t", {"ts": "timestamp", "m": "string", "d": "dynamic", "p": "struct<a:bigint,b:array<string>>"}
        )
        rows = [
            {"ts": f"{NOON}Z", "m": f"word{n} Ünder", "d": {"n": n, "t": [n, "x"]}, "p": {"a": n, "b": ["u"]}}
            for n in range(50)
        ]
        logs.append("\n".join(map(json.dumps, rows)).encode())
        logs.append(rows)
        for text in (
            "t | where d.n > 47 | project m, d | sort by m asc",
            "t | where m has 'word7' | count",
            "t | summarize make_bag(d), count() by tostring(d.t[1])",
        ):
            yield text, lake.kql(text).to_arrow().to_pylist()
        text = "select p.a, m, d:t as t from t where contains(m, 'nder') and d:n::int = 3"
        yield text, repr(lake.sql(text).to_arrow().to_pylist())


if __name__ == "__main__":
    keep_away("numba", "llvmlite")
    found = outcomes()
    assert "numba" not in sys.modules
    print(json.dumps(found, default=repr))
