"""Make the golden files: extents as they were once written, and the rows they must give for ever.

Run ``python -m tests.golden.make`` to add the files that are not there yet. A file that is there is never made anew:
it stands for what was written in its time, and must stay readable.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa

from tests.support import foreign
from tests.support.rows import KEY, Row, batch_of, exact, rows_of, write
from tidelake.dynamic.values import encode
from tidelake.format import WriteOptions, postings, segment_format
from tidelake.model.schema import Column, DataType, Schema
from tidelake.objects import open_store

FOLDER = Path(__file__).parent

TIDE_SCHEMA = Schema(
    (
        Column(1, "ts", DataType("timestamp")),
        Column(2, "service", DataType("string"), nullable=False),
        Column(5, "n", DataType("int")),
        Column(6, "long", DataType("long")),
        Column(7, "real", DataType("real")),
        Column(8, "ok", DataType("bool")),
        Column(9, "attributes", DataType("dynamic")),
        Column(10, "embedding", DataType("vector", 2)),
    ),
    version=3,
)
NOON_US = 1_776_679_200_000_000
TIMES_US = (-2_208_988_800_000_000, -1, 0, *(NOON_US + at * 1_000_000 for at in range(8)), None)


def tide_rows() -> list[Row]:
    """Return rows of every type, in the order of time, with what is hard to keep."""
    texts = ["auth", "billing timeout", "", "é日\U0010ffff", "x" * 300, "OutOfMemoryError"]
    reals = [0.5, -0.0, math.inf, -math.inf, math.nan, None]
    documents = [b"\xa0", b"\xa1\x61a\x01", None]
    return [
        {
            "ts": TIMES_US[at],
            "service": texts[at % 6],
            "n": None if at % 4 == 3 else at,
            "long": 2**63 - 1 - at,
            "real": reals[at % 6],
            "ok": [True, False, None][at % 3],
            "attributes": documents[at % 3],
            "embedding": None if at % 5 == 4 else (float(at), 0.25),
        }
        for at in range(12)
    ]


def tide_v2() -> bytes:
    """Write an extent of three blocks with this project's own writer."""
    store = open_store("memory://")
    options = WriteOptions(block_rows=5)
    write(store, segment_format("tlm"), TIDE_SCHEMA, [batch_of(tide_rows(), TIDE_SCHEMA)], options=options)
    return bytes(store.get(KEY))


def tide_v3_rows() -> list[Row]:
    """Return rows whose dynamic values are hard to take apart, and texts that repeat."""
    documents = [
        {"a": 1, "b": {"c": "x", "d": [1, {"e": None}]}, "on": True},
        {"a": -1.5, "b": {}, "big": 2**70},
        {"a": None, "b": {"c": "é"}},
        {"a.b": 1, "a": {"b": 2}},
        [],
        "text",
    ]
    odd = bytes.fromhex("a2616201616102")  # keys that do not ascend
    values = [encode(document) for document in documents] + [odd, None]
    return [row | {"attributes": values[at % 8], "service": f"s{at % 3}"} for at, row in enumerate(_many_rows())]


def _many_rows() -> list[Row]:
    return [row | {"ts": NOON_US + at * 1000} for at, row in enumerate(tide_rows() * 12)]


def tide_v3() -> bytes:
    """Write an extent of the third body, of three blocks."""
    store, rows = open_store("memory://"), tide_v3_rows()
    write(
        store, segment_format("tlm3"), TIDE_SCHEMA, [batch_of(rows, TIDE_SCHEMA)], options=WriteOptions(block_rows=60)
    )
    return bytes(store.get(KEY))


LINE_SCHEMA = Schema((Column(1, "ts", DataType("timestamp")), Column(2, "line", DataType("string"))))


def tide_v3_lines_rows() -> list[Row]:
    """Return lines of a log, whose templates have numbers, words, texts and equal variables, and others."""
    made: list[Callable[[int], str | None]] = [
        lambda n: f"worker{n % 4} took task {n * 7919} in {n % 90 + 10}ms at 10.0.{n % 200}.{n % 251}:0{n % 10}",
        lambda n: f"block blk_{n * 104729**2} moved; block blk_{n * 104729**2} is gone, é{n}",
        lambda n: f"session {n * 2654435761 % 2**32:08x} of user{n % 3}a opened",
        lambda n: None if n % 5 else f"odd line {'x' * (n % 7)} {n} \n<*> {n}{'é' * (n % 3)}",
    ]
    return [{"ts": NOON_US + n * 1000, "line": made[n % 4](n)} for n in range(600)]


def tide_v3_lines() -> bytes:
    """Write an extent of the third body whose texts are templates, of two blocks."""
    store, options = open_store("memory://"), WriteOptions(block_rows=590)
    write(store, segment_format("tlm3"), LINE_SCHEMA, [batch_of(tide_v3_lines_rows(), LINE_SCHEMA)], options=options)
    return bytes(store.get(KEY))


def tide_v3_words_rows() -> list[Row]:
    """Return lines of words, of which some are rare."""
    words = ("disk", "Full", "on", "host", "retry", "later", "queue", "is", "slow", "again", "node", "gone")
    rare = ("Overheated", "unplugged9", "split")
    chosen = [" ".join(words[n * prime % 12] for prime in (1, 5, 7, 11, 13, 17)) for n in range(520)]
    ends = [f" {rare[n % 3]}" if n % 97 == 5 else "" for n in range(520)]
    return [
        {"ts": NOON_US + n * 1000, "line": None if n % 50 == 49 else f"{line}{end}: {n * 7919 % 1009}"}
        for n, (line, end) in enumerate(zip(chosen, ends, strict=True))
    ]


def tide_v3_words() -> bytes:
    """Write an extent of the third body that knows which rows hold which words."""
    store = open_store("memory://")
    write(store, segment_format("tlm3"), LINE_SCHEMA, [batch_of(tide_v3_words_rows(), LINE_SCHEMA)])
    return bytes(store.get(KEY))


def tide_v3_ids_rows() -> list[Row]:
    """Return lines that each have ids of their own, as numbers and as texts."""
    return [
        {"ts": NOON_US + n * 1000, "line": f"span {n * 104_729**3 % 2**60:015x} of trace={n * 104_729**3 % 2**62} done"}
        for n in range(520)
    ]


def tide_v3_ids() -> bytes:
    """Write an extent of the third body that knows which words with digits a block holds, though not where."""
    store = open_store("memory://")
    with mock.patch.object(postings, "MIN_ROWS", 500):
        write(store, segment_format("tlm3"), LINE_SCHEMA, [batch_of(tide_v3_ids_rows(), LINE_SCHEMA)])
    return bytes(store.get(KEY))


EVENT_SCHEMA = Schema((Column(1, "ts", DataType("timestamp")), Column(2, "event", DataType("dynamic"))))


def tide_v3_leaves_rows() -> list[Row]:
    """Return events with a line of a log each, some without, some with something else there."""
    lines = [(row["ts"], row["line"]) for rows in (tide_v3_words_rows(), tide_v3_lines_rows()[:90]) for row in rows]
    odd: list[Any] = [{}, {"said": 7}, {"said": {"deep": "x"}}, {"said": None}]
    return [
        {"ts": NOON_US + n * 1000, "event": None if n == 70 else encode({"n": n, **_said(n, line, odd)})}
        for n, (_, line) in enumerate(lines)
    ]


def _said(n: int, line: str | None, odd: list[Any]) -> dict[str, Any]:
    return odd[n // 61 % 4] if n % 61 == 5 else {"said": {"line": line}, "same": f"r{n % 3}"}


def tide_v3_leaves() -> bytes:
    """Write an extent of the third body whose texts at a path are templates, with postings, of two blocks."""
    store, options = open_store("memory://"), WriteOptions(block_rows=520)
    with mock.patch.object(postings, "MIN_ROWS", 300):
        write(
            store, segment_format("tlm3"), EVENT_SCHEMA, [batch_of(tide_v3_leaves_rows(), EVENT_SCHEMA)],
            options=options,
        )  # fmt: skip
    return bytes(store.get(KEY))


NUMBER_SCHEMA = Schema((Column(1, "skewed", DataType("long")), Column(2, "took", DataType("real"))))


def tide_v3_planes_rows() -> list[Row]:
    """Return numbers whose bytes differ in how often each comes, and decimals."""
    return [
        {"skewed": (n * 7919 % 997) ** 2 % 4096 - 70, "took": (n * 104_729 % 9_973) ** 2 / 1000} for n in range(400)
    ]


def tide_v3_planes() -> bytes:
    """Write an extent of the third body whose numbers are planes of bytes and decimals."""
    store = open_store("memory://")
    write(store, segment_format("tlm3"), NUMBER_SCHEMA, [batch_of(tide_v3_planes_rows(), NUMBER_SCHEMA)])
    return bytes(store.get(KEY))


SPAN_SCHEMA = Schema.of({"ts": "timestamp", "day": "int", "began": "timestamp", "due": "int", "none": "int"})


def tide_v3_differences_rows() -> list[Row]:
    """Return times and days of which some are near others, or not there."""
    days = [n * n * 7919 % 2_503 - 1_200 for n in range(520)]
    return [
        {
            "ts": NOON_US + n * n * 104_729 % 86_400_000_000,
            "day": day,
            "began": None if n % 9 == 4 else NOON_US + n * n * 104_729 % 86_400_000_000 - n * 7919 % 1_009,
            "due": day + n * 31 % 30,
            "none": None,
        }
        for n, day in enumerate(days)
    ]


def tide_v3_differences() -> bytes:
    """Write an extent of the third body of which two columns are differences from others."""
    store, rows = open_store("memory://"), tide_v3_differences_rows()
    write(store, segment_format("tlm3"), SPAN_SCHEMA, [batch_of(rows, SPAN_SCHEMA)], options=WriteOptions(sort=False))
    return bytes(store.get(KEY))


def foreign_rows() -> list[list[Row]]:
    """Return the rows of the foreign extents, block by block, with times floored to microseconds."""
    blocks = []
    for batch in foreign.sample_batches():
        times = [None if ns is None else ns // 1000 for ns in batch.column(0).cast(pa.int64()).to_pylist()]
        blocks.append([{**row, "timestamp": us} for row, us in zip(rows_of(batch), times, strict=True)])
    return blocks


def as_json(blocks: list[list[Row]]) -> Any:
    """Return rows as JSON can hold them: a float as its bits in hex, bytes as hex."""
    plain = [[{name: _as_json(value) for name, value in row.items()} for row in exact(block)] for block in blocks]
    return json.loads(json.dumps(plain))


def _as_json(value: Any) -> Any:
    return {"hex": value.hex()} if isinstance(value, bytes) else value


FILES: dict[str, tuple[Callable[[], bytes], Callable[[], list[list[Row]]]]] = {
    "kyma_v1": (lambda: foreign.frame_v1(foreign.sample_batches()), foreign_rows),
    "kyma_v2": (lambda: foreign.frame_v2(foreign.sample_batches()), foreign_rows),
    "tide_v2": (tide_v2, lambda: [tide_rows()[at : at + 5] for at in (0, 5, 10)]),
    "tide_v3": (tide_v3, lambda: [tide_v3_rows()[at : at + 60] for at in (0, 60, 120)]),
    "tide_v3_packed": (tide_v3, lambda: [tide_v3_rows()[at : at + 60] for at in (0, 60, 120)]),  # a packed footer
    "tide_v3_planes": (tide_v3_planes, lambda: [tide_v3_planes_rows()]),
    "tide_v3_differences": (tide_v3_differences, lambda: [tide_v3_differences_rows()]),
    "tide_v3_words": (tide_v3_words, lambda: [tide_v3_words_rows()]),
    "tide_v3_ids": (tide_v3_ids, lambda: [tide_v3_ids_rows()]),
    "tide_v3_leaves": (tide_v3_leaves, lambda: [tide_v3_leaves_rows()[:520], tide_v3_leaves_rows()[520:]]),
    "tide_v3_lines": (tide_v3_lines, lambda: [tide_v3_lines_rows()[:590], tide_v3_lines_rows()[590:]]),
}


def main() -> None:
    """Add the files that are not there yet."""
    for name, (make_extent, make_rows) in FILES.items():
        path = FOLDER / f"{name}.tlm"
        if not path.exists():
            path.write_bytes(make_extent())
            rows = json.dumps(as_json(make_rows()), ensure_ascii=False, indent=1)
            path.with_suffix(".json").write_text(f"{rows}\n")
            print(f"made {path.name}, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
