"""Measure the page with a real browser: first paint, completion, many rows scrolled, many points drawn, a tail's delay.

The server is a process of its own. Peers are limits that people notice, because no other page has these rows. It does
not measure what questions cost: see ``query`` and ``doors``.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from statistics import median
from urllib.parse import urlencode

import numpy as np
import pyarrow as pa
from playwright.sync_api import Browser, Page, expect

import tidelake
from bench.data import ROWS
from bench.report import Ratio, Report
from tests.support.browsers import browser
from tests.support.serving import Served, serving
from tools.page_bundle import MOST_BYTES, packed_bytes

SCROLLED, POINTS = 1_000_000, 100_000
START_US = 1_773_478_800_000_000
WITHIN_MS = 120_000
PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
DRAWN = "performance.getEntriesByName('chart drawn').at(-1)?.duration"
FRAMES = """async () => {
  const grid = document.querySelector(".grid"), frames = [];
  let before = performance.now();
  for (let step = 0; step <= 100; step += 1) {
    grid.scrollTop = (grid.scrollHeight * step) / 100;
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    frames.push(now - before);
    before = now;
  }
  return frames;
}"""
METHOD = (
    "Chromium without a screen and without a GPU; every round is a new tab whose cache is empty.",
    "Rows are scrolled in a hundred jumps from the first to the last, a frame each; the longest frame counts.",
    "Points are drawn as one line; the time is from the first call to the chart library to the last stroke.",
    "A tail's delay is from the answer that a row is durable to the row in the page.",
)


def run(folder: Path, *, rows: int = ROWS, rounds: int = 5) -> Report:
    """Measure the page."""
    many, points = max(1000, SCROLLED * rows // ROWS), max(1000, POINTS * rows // ROWS)
    with tidelake.connect(folder / "lake", upkeep=False) as lake:
        table = lake.create_table(
            "bench.rows", {"ts": "timestamp", "n": "long", "level": "string", "message": "string"}
        )
        table.append(_rows(many))
    seconds: dict[str, tuple[float, ...]] = {}
    with serving(folder / "lake") as served, browser() as opened:
        seconds["first paint"] = tuple(_painted(opened, served) for _ in range(rounds))
        seconds["completion"] = tuple(_completed(served) for _ in range(20 * rounds))
        seconds["longest frame"] = tuple(_scrolled(opened, served) for _ in range(rounds))
        seconds["points drawn"] = tuple(_drawn(opened, served, points) for _ in range(rounds))
        seconds["tail"] = tuple(_tailed(opened, served, rounds))
    limits = {"first paint": 0.5, "completion": 0.05, "longest frame": 0.1, "points drawn": 0.1, "tail": 1.0}
    ratios = [
        Ratio(f"{name} against {1000 * limit:g} ms", median(seconds[name]), limit, "s", 1.0)
        for name, limit in limits.items()
    ]
    sizes = packed_bytes()
    ratios.append(Ratio("files, compressed", sum(sizes.values()), MOST_BYTES, "bytes", 1.0))
    return Report("page", f"{many:,} rows, {points:,} points", tuple(ratios), seconds, sizes, METHOD)


def _rows(count: int) -> pa.Table:
    number = np.arange(count)
    levels = pa.DictionaryArray.from_arrays(
        pa.array(number % 4, pa.int32()), pa.array(["INFO", "WARN", "ERROR", "DEBUG"])
    )
    return pa.table(
        {
            "ts": pa.array(START_US + number * 1000, pa.timestamp("us", "UTC")),
            "n": number,
            "level": levels.cast(pa.string()),
            "message": pa.array([f"request {n} served in {n % 977} ms" for n in number.tolist()]),
        }
    )


def _opened(opened: Browser, served: Served, where: str) -> Page:
    context = opened.new_context(viewport={"width": 1280, "height": 800}, locale="en-US")
    page = context.new_page()
    page.goto(f"{served.url}/#/{where}")
    return page


def _known(page: Page, expression: str) -> float:
    """Return a number once the page has it; the page's own policy lets nobody wait inside it."""
    until_s = time.monotonic() + WITHIN_MS / 1000
    while (found := page.evaluate(expression)) is None:
        if time.monotonic() > until_s:
            raise TimeoutError(expression)
        page.wait_for_timeout(50)
    return float(found)


def _painted(opened: Browser, served: Served) -> float:
    page = _opened(opened, served, "")
    found = _known(page, PAINTED) / 1000
    page.context.close()
    return found


def _completed(served: Served) -> float:
    body = {"text": "bench.rows | where le", "position": 21, "language": "kql"}
    with served.client() as client:
        client.get("/v1/session")
        began = time.perf_counter()
        client.post("/v1/complete", json=body).raise_for_status()
        return time.perf_counter() - began


def _scrolled(opened: Browser, served: Served) -> float:
    page = _opened(opened, served, "ask?" + urlencode({"q": "bench.rows"}))
    expect(page.locator(".told .facts")).to_contain_text("rows", timeout=WITHIN_MS)
    page.wait_for_timeout(1000)
    frames = page.evaluate(FRAMES)
    page.context.close()
    return float(max(frames[1:])) / 1000


def _drawn(opened: Browser, served: Served, points: int) -> float:
    text = f"bench.rows | where n < {points} | project ts, n | order by ts asc | render timechart"
    page = _opened(opened, served, "ask?" + urlencode({"q": text}))
    found = _known(page, DRAWN) / 1000
    page.context.close()
    return found


def _tailed(opened: Browser, served: Served, rounds: int) -> list[float]:
    page = _opened(opened, served, "tail?" + urlencode({"table": "bench.rows", "where": "level == 'LIVE'"}))
    expect(page.locator(".lamp")).to_have_text("listening")
    page.wait_for_timeout(1000)
    found = []
    with served.client() as client:
        for n in range(rounds):
            line = json.dumps({"ts": "2026-03-14T12:00:00Z", "n": n, "level": "LIVE", "message": f"live {n}"})
            client.post("/v1/ingest/bench.rows", content=line).raise_for_status()
            began = time.perf_counter()
            expect(page.locator(".told .facts")).to_contain_text(f"{n + 1} row", timeout=WITHIN_MS)
            found.append(time.perf_counter() - began)
    page.context.close()
    return found
