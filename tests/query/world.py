"""Make the small lake that the text cases ask.

``obs.logs`` has a row an hour over four days, an extent a day and the last rows hot; ``obs.services`` says who
owns a service; ``default.odd`` has the values that trip engines; ``vec.items`` has vectors. It does not change.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from tidelake import Lake

START = datetime(2026, 1, 1, tzinfo=UTC)
SERVICES = ("auth", "web", "db")
MESSAGES = ("GET /index ok", "connection timeout after 30s", "cache miss", "Timeout: upstream", "user logged in")


def log_rows() -> list[dict[str, Any]]:
    """Return the rows of ``obs.logs``."""
    rows = []
    for number in range(96):
        attributes: dict[str, Any] = {"http": {"method": ("GET", "PUT", "POST")[number % 3], "status": 200 + number}}
        if number % 4 == 1:
            attributes = {"http.status": 500, "tags": ["a", "b"], "ok": number % 8 == 1}
        if number % 10 == 7:
            attributes = {"note": "free text", "http": {"status": "unknown"}, "ratio": 0.5}
        rows.append(
            {
                "ts": START + timedelta(minutes=60 * number),
                "service": SERVICES[number % 3] if number % 16 else None,
                "status": (200, 404, 500, 200)[number % 4],
                "bytes": number * 1000 if number % 7 else None,
                "latency": round(number * 1.25, 2),
                "ok": number % 4 != 2,
                "message": MESSAGES[number % 5],
                "attributes": attributes,
            }
        )
    return rows


def build(lake: Lake) -> None:
    """Make the tables and put their rows in."""
    logs = lake.create_table(
        "obs.logs",
        {
            "ts": "timestamp",
            "service": "string",
            "status": "int",
            "bytes": "long",
            "latency": "real",
            "ok": "bool",
            "message": "string",
            "attributes": "dynamic",
        },
        time="ts",
    )
    rows = log_rows()
    for day in range(4):
        logs.append(rows[day * 24 : day * 24 + 24])
        if day < 3:
            logs.flush()
    services = lake.create_table("obs.services", {"name": "string", "team": "string", "tier": "int"})
    services.append(
        [
            {"name": "auth", "team": "identity", "tier": 1},
            {"name": "web", "team": "front", "tier": 2},
            {"name": "mail", "team": "front", "tier": 3},
            {"name": None, "team": "nobody", "tier": None},
        ]
    )
    odd = lake.create_table("odd", {"Id": "long", "x": "real", "text": "string", "when": "timestamp"}, time="when")
    odd.append(
        [
            {"Id": 1, "x": 0.0, "text": "", "when": START},
            {"Id": 2, "x": -0.0, "text": "ÄÖ straße", "when": START + timedelta(microseconds=1)},
            {"Id": 3, "x": float("nan"), "text": "50%_off\\now", "when": START - timedelta(days=20000)},
            {"Id": 9007199254740993, "x": float("inf"), "text": "it's", "when": START + timedelta(days=1)},
            {"Id": None, "x": None, "text": None, "when": START + timedelta(days=2)},
        ]
    )
    odd.flush()
    items = lake.create_table("vec.items", {"id": "int", "v": "vector(3)"})
    items.append(
        [{"id": 1, "v": [1, 0, 0]}, {"id": 2, "v": [0, 1, 0]}, {"id": 3, "v": [3, 4, 0]}, {"id": 4, "v": None}]
    )
