"""Make up telemetry that looks real: six hours of a small shop's logs and metrics, with an incident in them.

At 12:10 ``payments`` is deployed as 2.4.1, which leaks memory. Its memory climbs, at 12:40 the process on host pay-2
dies with an OutOfMemoryError, and checkouts time out until the rollback at 13:05. While it is down, pay-2 sends no
metrics; web-3 loses some for a reason of its own. Everything is seeded: the same rows every time. It does not write
tables.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import orjson

SEED = 20260314
START = datetime(2026, 3, 14, 9, tzinfo=UTC)
HOURS = 6
DEPLOYED = START + timedelta(hours=3, minutes=10)
DIED = START + timedelta(hours=3, minutes=40)
ROLLED_BACK = START + timedelta(hours=4, minutes=5)
SILENT = {  # hosts that send no metrics for a while
    "pay-2": (DIED, ROLLED_BACK + timedelta(minutes=2)),
    "web-3": (START + timedelta(hours=1, minutes=17), START + timedelta(hours=1, minutes=26)),
}

HOSTS = {
    "gateway": ("web-1", "web-2", "web-3"),
    "auth": ("auth-1", "auth-2"),
    "checkout": ("shop-1", "shop-2"),
    "payments": ("pay-1", "pay-2"),
    "search": ("find-1",),
    "mailer": ("mail-1",),
}
_SHARES = (0.34, 0.14, 0.2, 0.14, 0.13, 0.05)  # of the services, among the lines
_ROUTES = ("/cart", "/items", "/orders", "/login", "/search", "/pay")
_CALM = (
    ("INFO", 200, "request served in {} ms"),
    ("INFO", 200, "cache refreshed, {} entries kept"),
    ("INFO", 201, "created order {} for a returning customer"),
    ("DEBUG", 200, "connection pool has {} idle connections"),
    ("WARN", 429, "rate limit reached for client {}, backing off"),
    ("WARN", 200, "slow query, scanned {} rows"),
    ("ERROR", 502, "upstream closed the connection after {} bytes"),
)
_CALM_SHARES = (0.52, 0.14, 0.13, 0.13, 0.045, 0.03, 0.005)


def log_lines(rows: int, *, seed: int = SEED) -> Iterator[dict[str, Any]]:
    """Yield log lines in time order."""
    chance = np.random.default_rng(seed)
    seconds = np.sort(chance.uniform(0, HOURS * 3600, rows)).tolist()
    services = chance.choice(len(HOSTS), rows, p=_SHARES).tolist()
    kinds = chance.choice(len(_CALM), rows, p=_CALM_SHARES).tolist()
    numbers = chance.integers(1, 900, rows).tolist()
    routes = chance.integers(0, len(_ROUTES), rows).tolist()
    traces = chance.integers(0, 2**63, rows).tolist()
    picks = chance.random(rows).tolist()
    names = tuple(HOSTS)
    for at in range(rows):
        service = names[services[at]]
        hosts = HOSTS[service]
        ts = START + timedelta(seconds=seconds[at])
        line: dict[str, Any] = {
            "ts": ts.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "service": service,
            "host": hosts[int(picks[at] * 1000) % len(hosts)],
            **_said(service, ts, picks[at], _CALM[kinds[at]], numbers[at]),
            "trace_id": f"{traces[at]:016x}",
        }
        version = _version(service, ts)
        status = line.pop("status")
        route = _ROUTES[routes[at]]
        line["attributes"] = {"http": {"status": status, "route": route}, "deploy": {"version": version}}
        yield line


def _version(service: str, ts: datetime) -> str:
    return "2.4.1" if service == "payments" and DEPLOYED <= ts < ROLLED_BACK else "2.4.0"


def _said(service: str, ts: datetime, pick: float, calm: tuple[str, int, str], number: int) -> dict[str, Any]:
    """Return level, status and message of a line: the incident's where it reaches the service, else a calm one's."""
    if service == "payments" and DEPLOYED <= ts < DIED and pick < 0.25:
        used = 60 + 38 * (ts - DEPLOYED) / (DIED - DEPLOYED)
        return {"level": "WARN", "status": 200, "message": f"heap at {used:.0f} percent after full collection"}
    if DIED <= ts < ROLLED_BACK:
        if service == "payments" and pick < 0.3:
            return {"level": "ERROR", "status": 500, "message": "java.lang.OutOfMemoryError: Java heap space"}
        if service == "checkout" and pick < 0.6:
            text = f"timeout waiting for payments, attempt {number % 5 + 1} of 5"
            return {"level": "ERROR", "status": 504, "message": text}
        if service == "gateway" and pick < 0.2:
            return {"level": "ERROR", "status": 502, "message": f"checkout answered too late, {number * 30} ms"}
    level, status, text = calm
    return {"level": level, "status": status, "message": text.format(number)}


def metric_rows(*, seed: int = SEED) -> Iterator[dict[str, Any]]:
    """Return a row a minute for each host, but where it was silent."""
    chance = np.random.default_rng(seed)
    for service, hosts in HOSTS.items():
        for host in hosts:
            silent = SILENT.get(host)
            load = chance.normal(35, 6, HOURS * 60).clip(2, 99)
            for minute in range(HOURS * 60):
                ts = START + timedelta(minutes=minute)
                if silent and silent[0] <= ts < silent[1]:
                    continue
                leak = 38 * (ts - DEPLOYED) / (DIED - DEPLOYED) if host == "pay-2" and DEPLOYED <= ts < DIED else 0
                yield {
                    "ts": ts.isoformat().replace("+00:00", "Z"),
                    "host": host,
                    "service": service,
                    "cpu": round(float(load[minute]), 1),
                    "memory": round(float(54 + load[minute] / 10 + leak), 1),
                }


def write_ndjson(rows: Iterator[dict[str, Any]], folder: Path, name: str, *, per_file: int) -> list[Path]:
    """Write rows to files of at most so many lines; give the files in order."""
    folder.mkdir(parents=True, exist_ok=True)
    files: list[Path] = []
    lines: list[bytes] = []
    for row in rows:
        lines.append(orjson.dumps(row))
        if len(lines) == per_file:
            files.append(_write(folder, name, len(files), lines))
            lines = []
    if lines:
        files.append(_write(folder, name, len(files), lines))
    return files


def _write(folder: Path, name: str, number: int, lines: list[bytes]) -> Path:
    path = folder / f"{name}-{number:02}.ndjson"
    path.write_bytes(b"\n".join(lines) + b"\n")
    return path
