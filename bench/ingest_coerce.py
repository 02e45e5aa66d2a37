"""Measure how fast NDJSON log rows become batches of a table's schema, on one core, beside the usual ways.

    python -m bench.ingest_coerce
    python -m bench.ingest_coerce --rows 50000 --rounds 3

Times are of the processor, not of the wall, so a busy machine disturbs them less. It does not write results.
"""

from __future__ import annotations

import io
import random
import time
from collections.abc import Callable

import click
import orjson
import pyarrow as pa
import pyarrow.json

from tidelake.ingest import Rules, coerce_arrow, coerce_ndjson, coerce_rows
from tidelake.model.schema import Schema

SCHEMA = Schema.of(
    {
        "ts": "timestamp",
        "service": "string",
        "level": "string",
        "host": "string",
        "status": "int",
        "latency_ms": "real",
        "message": "string",
        "attributes": "dynamic",
    }
)
RULES = Rules(time="ts")
PIECE_BYTES = 8 << 20

_WORDS = [
    "connection",
    "closed",
    "by",
    "peer",
    "while",
    "reading",
    "response",
    "header",
    "from",
    "upstream",
    "retry",
    "request",
    "user",
    "cache",
    "miss",
]


@click.command()
@click.option("--rows", default=200_000, show_default=True, help="How many log rows.")
@click.option("--rounds", default=5, show_default=True, help="How often each way runs; the best counts.")
def main(rows: int, rounds: int) -> None:
    """Print rows per second of one core."""
    lines = log_lines(rows)
    data = b"".join(lines)
    dicts = [orjson.loads(line) for line in lines]
    coerced = coerce_ndjson(data, SCHEMA, RULES).batch.drop_columns(["attributes"])
    options = pyarrow.json.ReadOptions(use_threads=False, block_size=PIECE_BYTES)
    ways: dict[str, Callable[[], object]] = {
        "coerce_ndjson, known columns": lambda: in_pieces(data, SCHEMA),
        "coerce_ndjson, all but the time unknown": lambda: in_pieces(data, Schema.of({"ts": "timestamp"})),
        "coerce_rows": lambda: coerce_rows(dicts, SCHEMA, RULES),
        "coerce_arrow": lambda: coerce_arrow(coerced, SCHEMA, RULES),
        "pyarrow.json (nested as struct, times as text)": lambda: pyarrow.json.read_json(io.BytesIO(data), options),
        "orjson.loads and Table.from_pylist": lambda: pa.Table.from_pylist([orjson.loads(line) for line in lines]),
    }
    click.echo(f"{rows} rows of {len(data) / rows:.0f} bytes, best of {rounds}")
    for name, run in ways.items():
        seconds = min(_cpu_seconds(run) for _ in range(rounds + 1))  # the first one may compile
        click.echo(f"{rows / seconds:12,.0f} rows/s {len(data) / seconds / 1e6:8,.0f} MB/s  {name}")


def in_pieces(data: bytes, schema: Schema) -> Schema:
    """Coerce in pieces, as an append does, and give the schema that came out."""
    view, start = memoryview(data), 0
    while start < len(data):
        end = data.rfind(b"\n", start, start + PIECE_BYTES) + 1 or len(data)
        schema = coerce_ndjson(view[start:end], schema, RULES).schema
        start = end
    return schema


def log_lines(rows: int) -> list[bytes]:
    """Make log rows of about 270 bytes, seeded."""
    rng = random.Random(4)
    return [
        orjson.dumps(
            {
                "ts": f"2026-01-01T{at // 3600 % 24:02}:{at // 60 % 60:02}:{at % 60:02}.{rng.randrange(1000):03}Z",
                "service": rng.choice(("auth", "cart", "checkout", "search")),
                "level": rng.choice(("INFO", "WARN", "ERROR")),
                "host": f"h-{rng.randrange(64)}",
                "status": rng.choice((200, 201, 404, 500)),
                "latency_ms": round(rng.lognormvariate(3, 1), 2),
                "message": " ".join(rng.choices(_WORDS, k=8)),
                "attributes": {
                    "http": {"method": rng.choice(("GET", "POST")), "status": rng.choice((200, 404, 500))},
                    "user.id": f"u-{rng.randrange(1000)}",
                },
            },
            option=orjson.OPT_APPEND_NEWLINE,
        )
        for at in range(rows)
    ]


def _cpu_seconds(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


if __name__ == "__main__":
    main()
