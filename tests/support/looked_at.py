"""Make a lake that is worth looking at: an incident among logs, a host that falls silent, a trace, and hostile rows.

It does not serve it.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import tidelake

START = datetime(2026, 3, 14, 9, tzinfo=UTC)
HOSTILE = {
    "script": "<script>window.ran = 1</script>",
    "image": "<img src=x onerror='window.ran = 1'>",
    "turned": "abc \u202e fed \u2066 \u0007",
    "long": "x" * 1_000_000,
    "quoted": "\"'`${window.ran = 1}{{7*7}}</textarea></style>",
}


def make_lake(place: Path) -> None:
    """Make the lake in a folder."""
    with tidelake.connect(place, upkeep=False) as lake:
        _logs(lake)
        _metrics(lake)
        _spans(lake)
        _hostile(lake)
        _drifted(lake)


def _logs(lake: tidelake.Lake) -> None:
    columns = {"ts": "timestamp", "level": "string", "service": "string", "message": "string", "trace_id": "string",
               "attributes": "dynamic"}  # fmt: skip
    logs = lake.create_table("obs.logs", columns, time="ts")
    rows = []
    for n in range(3600):
        bad = 2000 <= n < 2200 and n % 2 == 0
        rows.append(
            {
                "ts": START + timedelta(seconds=n),
                "level": "ERROR" if bad else "INFO",
                "service": "payments" if bad else f"s{n % 3}",
                "message": f"OutOfMemoryError in worker {n}" if bad else f"request {n} served",
                "trace_id": f"t{n // 10}",
                "attributes": {
                    "http": {"status": 500 if bad else 200},
                    "deploy": {"version": "2.4.1" if bad else "2.4.0"},
                },
            }
        )
    logs.append(rows)
    logs.flush()


def _metrics(lake: tidelake.Lake) -> None:
    columns = {"ts": "timestamp", "host": "string", "memory": "real"}
    metrics = lake.create_table("obs.metrics", columns, time="ts", bucket="1m", entity=["host"], coverage="track")
    rows = [
        {"ts": START + timedelta(minutes=n), "host": host, "memory": 50.0 + n}
        for n in range(60)
        for host in ("pay-1", "pay-2")
        if host == "pay-1" or not 33 <= n < 48
    ]
    metrics.append(rows)


def _spans(lake: tidelake.Lake) -> None:
    columns = {"time": "timestamp", "start_time_unix_nano": "long", "duration_nano": "long", "trace_id": "string",
               "span_id": "string", "parent_span_id": "string", "name": "string", "service_name": "string",
               "status_code": "string"}  # fmt: skip
    spans = lake.create_table("obs.otel_spans", columns, time="time")
    at = int((START + timedelta(seconds=2000)).timestamp()) * 10**9
    told = [("a", "", "GET /pay", 9), ("b", "a", "charge", 6), ("c", "b", "insert", 2), ("d", "zz", "orphan", 1)]
    spans.append(
        [
            {"time": START + timedelta(seconds=2000), "start_time_unix_nano": at + n * 10**6,
             "duration_nano": ms * 10**6, "trace_id": "t200", "span_id": id_, "parent_span_id": parent,
             "name": name, "service_name": "payments",
             "status_code": "ERROR" if id_ == "c" else "OK"}
            for n, (id_, parent, name, ms) in enumerate(told)
        ]
    )  # fmt: skip


def _hostile(lake: tidelake.Lake) -> None:
    rows = [
        {"ts": START, "message": text, "level": text[:40], "trace_id": "<b>", "tags": {text[:60]: [text[:60], None]}}
        for text in HOSTILE.values()
    ]
    rows += [{"ts": START, "message": None, "level": None, "trace_id": None, "tags": None}]
    columns = {
        "ts": "timestamp",
        "message": "string",
        "level": "string",
        "trace_id": "string",
        "tags": "dynamic",
        "x": "real",
    }
    table = lake.create_table("obs.hostile", columns, time="ts")
    table.append([{**row, "x": float("nan")} for row in rows])
    wide = lake.create_table("obs.wide", {"ts": "timestamp", **{f"c{n}": "long" for n in range(2000)}}, time="ts")
    wide.append([{"ts": START, **{f"c{n}": n for n in range(2000)}}])
    lake.create_table("shop.orders", {"ts": "timestamp", "n": "long"}, time="ts").append([{"ts": START, "n": 1}])


def _drifted(lake: tidelake.Lake) -> None:
    table = lake.create_table("obs.drifted", {"ts": "timestamp", "n": "int"}, time="ts")
    table.append([{"ts": START, "n": 1}])
    table.append([{"ts": START, "n": 2**40, "city": "<i>Oslo</i>"}])
    table.append([{"ts": START, "n": 0.5, "city": "Bergen"}])
