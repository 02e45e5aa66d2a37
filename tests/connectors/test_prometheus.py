"""Kill Prometheus and what pulls it at random: every sample is in the lake once, and what failed is filled."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlencode
from urllib.request import urlopen

import orjson
import pytest

import tidelake
from tests.connectors.test_killed import KILLS, SEED, runner_of, started
from tests.support.databases import prometheus_machine

SELECTOR = '{__name__=~"up|scrape_samples_scraped|prometheus_http_requests_total"}'
STEP_US = 1_000_000
Sample = tuple[int, str, float, str]


def told(url: str, start_us: int, end_us: int) -> Counter[Sample]:
    """Return the samples that Prometheus itself has of some time."""
    seconds = (end_us - start_us) // 1_000_000 + 1
    asked = urlencode({"query": f"{SELECTOR}[{seconds}s]", "time": end_us / 1e6})
    with urlopen(f"{url.replace('prometheus', 'http', 1)}/api/v1/query?{asked}") as answer:
        found = orjson.loads(answer.read())["data"]["result"]
    samples = Counter[Sample]()
    for series in found:
        name = series["metric"].pop("__name__")
        labels = orjson.dumps(series["metric"], option=orjson.OPT_SORT_KEYS).decode()
        samples.update((round(at * 1e6), name, float(value), labels) for at, value in series["values"])
    return Counter({each: count for each, count in samples.items() if start_us <= each[0] < end_us})


def held(lake: tidelake.Lake) -> Counter[Sample]:
    """Return the samples that the lake has."""
    samples = Counter[Sample]()
    for row in lake.table("m.samples").to_arrow(dynamic="json").to_pylist():
        labels = orjson.dumps(orjson.loads(row["labels"]), option=orjson.OPT_SORT_KEYS).decode()
        samples[round(row["ts"].timestamp() * 1e6), row["name"], row["value"], labels] += 1
    return samples


def missing(lake: tidelake.Lake, start_us: int, end_us: int) -> set[int]:
    """Return the windows that the lake's table says that it does not hold."""
    times = (datetime.fromtimestamp(at / 1e6, UTC) for at in (start_us, end_us))
    found = set[int]()
    for gap in lake.table("m.samples").coverage.gaps(*times).to_pylist():
        start, end = (round(gap[name].timestamp() * 1e6) for name in ("start", "end"))
        found.update(range(start, end, STEP_US))
    return found


@pytest.mark.torture
def test_kills_of_prometheus_and_of_what_pulls_it_lose_and_double_no_sample(tmp_path: Path) -> None:
    draw, script = random.Random(SEED), runner_of(tmp_path, "m")
    with prometheus_machine() as machine, tidelake.connect(tmp_path / "lake") as lake:
        time.sleep(3)
        lake.sync(machine.url, into="m", selector=SELECTOR, schedule="1s", delay="1s")
        puller = started(script)
        for _ in range(max(KILLS // 8, 3)):
            time.sleep(draw.uniform(0.2, 3))
            if draw.random() < 0.5:
                puller.send_signal(signal.SIGKILL)
                puller.wait()
                time.sleep(draw.uniform(0, 2))
                puller = started(script)
            else:
                machine.kill()
                time.sleep(draw.uniform(0, 3))
                machine.start()
        puller.send_signal(signal.SIGKILL)
        puller.wait()
        time.sleep(5)  # samples that only Prometheus has
        machine.kill()
        time.sleep(2)
        source, before = lake.source("m"), len(lake.table("m.samples"))
        source.run()
        assert len(lake.table("m.samples")) == before
        handle = lake.table("m.samples").handle
        (last,) = handle.catalog.positions(handle.scope, [source.definition.stream_of("m.samples")]).values()
        first = source.definition.created_us // STEP_US * STEP_US - STEP_US
        holes = missing(lake, first, last)
        assert source.run(only_missing=True).changes == 0
        machine.start()
        assert source.run(only_missing=True).changes > 0
        expected = told(machine.url, first, last)
        assert held(lake) == expected
        scraped = {at // STEP_US * STEP_US for at, *_ in expected}
        assert holes & scraped  # which were filled; the others Prometheus was not there for
        assert missing(lake, first, last) == set(range(first, last, STEP_US)) - scraped
        assert source.run(only_missing=True).changes == 0
