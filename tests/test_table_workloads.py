"""Run workloads that another engine published, with at least its pruning, and the right rows where it lost some."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow.compute as pc
import pytest

import tidelake
from tidelake import col
from tidelake.errors import SchemaError
from tidelake.lake import Lake
from tidelake.model.predicate import Predicate
from tidelake.table import Table
from tidelake.write import stager

TEN = datetime(2026, 4, 19, 10, tzinfo=UTC)
WITHIN_S = 60
GREEK = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa")
REGIONS = (
    "us-east",
    "us-west",
    "eu-west",
    "eu-north",
    "ap-south",
    "ap-east",
    "sa-east",
    "af-south",
    "me-west",
    "ca-east",
)


def extents_of(made: Table, batches: Sequence[list[dict[str, Any]]]) -> Table:
    """Write one extent for each batch."""
    for rows in batches:
        made.append(rows)
        made.flush()
    return made


def asked(made: Table, where: Predicate | str | None, **window: Any) -> tuple[int, int]:
    """Return how many extents a question reads and how many rows it finds, with and without pruning."""
    found = made.scan(["ts"], where, **window).read_all().num_rows
    assert made.scan(["ts"], where, prune=False, **window).read_all().num_rows == found
    return len(made.plan(["ts"], where, **window).tasks), found


def test_time_prunes_to_the_hours_that_are_asked_for(lake: Lake) -> None:
    hours = [[{"ts": TEN + timedelta(hours=hour, minutes=m)} for m in (0, 30)] for hour in range(10)]
    made = extents_of(lake.create_table("t", {"ts": "timestamp"}, flush_age="off"), hours)
    assert asked(made, None) == (10, 20)
    noon = TEN.replace(hour=12)
    assert asked(made, col("ts").between(noon, noon.replace(minute=59, second=59))) == (1, 2)
    assert asked(made, col("ts") < TEN.replace(hour=15)) == (5, 10)
    assert asked(made, None, start=noon, end=noon + timedelta(hours=1)) == (1, 2)
    assert asked(made, col("ts") <= TEN) == (1, 1)  # an extent that begins exactly at the bound


def test_equality_prunes_to_the_extents_that_have_the_value(lake: Lake) -> None:
    columns = {"ts": "timestamp", "region": "string", "shard": "int"}
    batches = [
        [{"ts": TEN + timedelta(hours=n, minutes=m), "region": region, "shard": n} for m in range(5)]
        for n, region in enumerate(REGIONS)
    ]
    made = extents_of(lake.create_table("e", columns, flush_age="off"), batches)
    assert asked(made, None) == (10, 50)
    assert asked(made, "region == 'us-east'") == (1, 5)
    assert asked(made, "shard == 7") == (1, 5)
    assert asked(made, "region in ('us-east', 'eu-west')") == (2, 10)
    assert asked(made, "region == 'moon'") == (0, 0)
    assert asked(made, "region == 'us-west'", start=TEN + timedelta(hours=1), end=TEN + timedelta(hours=2)) == (1, 5)


def test_text_prunes_to_the_extents_that_have_the_word(lake: Lake) -> None:
    batches = [
        [
            {"ts": TEN + timedelta(hours=n), "message": f"request handler {word} started"},
            {"ts": TEN + timedelta(hours=n), "message": f"{word} finished"},
            {"ts": TEN + timedelta(hours=n), "message": "request handler will retry"},
        ]
        for n, word in enumerate(GREEK)
    ]
    made = extents_of(lake.create_table("x", {"ts": "timestamp", "message": "string"}, flush_age="off"), batches)
    assert asked(made, "message contains 'alpha'") == (1, 2)
    assert asked(made, "message contains 'xylophone'") == (0, 0)
    assert asked(made, "message contains 'gamma'") == (1, 2)
    assert asked(made, "message contains 'retry'") == (10, 10)
    assert asked(made, "message contains 'request handler'") == (10, 20)
    assert asked(made, "message matches regex 'alpha.*retry'") == (0, 0)  # so few texts are judged one by one
    assert asked(made, "message has 'eta'") == (1, 2)
    assert asked(made, "message contains 'eta'") == (4, 8)  # beta, zeta, eta and theta


def test_text_is_found_inside_longer_words(lake: Lake) -> None:
    """Where whole tokens of the needle are required, these are lost."""
    texts = [
        "java.lang.OutOfMemoryError: Java heap space",
        "container OOMKilled by kubelet",
        "GET /apiv2/items",
        "two timeouts in a row",
        "fooXbar",
    ]
    rows = [[{"ts": TEN + timedelta(hours=n), "message": text}] for n, text in enumerate(texts)]
    made = extents_of(lake.create_table("w", {"ts": "timestamp", "message": "string"}, flush_age="off"), rows)
    assert asked(made, "message contains 'oom'") == (1, 1)
    assert asked(made, "message contains 'outofmem'") == (1, 1)
    assert asked(made, "message contains 'MemoryErr'") == (1, 1)
    assert asked(made, "message contains '/api'") == (1, 1)
    assert asked(made, "message contains 'timeout'") == (1, 1)
    assert asked(made, "message matches regex 'foo.bar'") == (1, 1)
    assert asked(made, "message has 'timeout'") == (0, 0)


def test_blocks_are_pruned_inside_an_extent(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stager, "BLOCK_ROWS", 1)
    monkeypatch.setattr(stager, "MIN_BLOCK_ROWS", 1)
    columns = {"ts": "timestamp", "status": "int", "region": "string"}
    made = lake.create_table("b", columns, flush_age="off")
    for n in range(5):
        made.append([{"ts": TEN + timedelta(minutes=n), "status": 200 + 100 * n, "region": f"r-{n}"}])
    made.flush()
    assert [extent.block_count for extent in made.extents()] == [5]

    def blocks(where: Predicate | str | None) -> tuple[int, int]:
        stage = made.plan(["ts"], where).stages[-1]
        return stage.extents, stage.blocks or 0

    assert blocks(None) == (1, 5)
    assert blocks(col("ts").between(TEN, TEN + timedelta(seconds=59))) == (1, 1)
    assert blocks(col("ts").between(TEN + timedelta(minutes=1), TEN + timedelta(minutes=3))) == (1, 3)
    assert blocks("status == 500") == (1, 1)
    assert blocks("status == 999") == (0, 0)
    assert blocks("region == 'r-2'") == (1, 1)


@pytest.mark.parametrize("at", [TEN, datetime(1965, 5, 5, 5, 5, 5, 123456, tzinfo=UTC)], ids=["now", "before 1970"])
def test_an_extent_of_one_row_is_found_by_every_time_query_that_should(lake: Lake, at: datetime) -> None:
    made = extents_of(lake.create_table("one", {"ts": "timestamp"}, flush_age="off"), [[{"ts": at}]])
    tick = timedelta(microseconds=1)
    finding = [
        col("ts") == at,
        col("ts") >= at,
        col("ts") <= at,
        col("ts").between(at, at),
        col("ts").isin([at, at + tick]),
        col("ts") < at + tick,
        col("ts") > at - tick,
        ~(col("ts") < at),
        ~(col("ts") > at),
    ]
    for where in finding:
        assert asked(made, where) == (1, 1), where
    for where in (col("ts") > at, col("ts") < at, col("ts") != at, col("ts").isin([at + tick])):
        assert asked(made, where)[1] == 0, where
    assert asked(made, None, start=at) == asked(made, None, end=at + tick) == (1, 1)
    assert asked(made, None, start=at, end=at + tick) == asked(made, None, start=at - tick, end=at + tick) == (1, 1)
    assert asked(made, None, end=at) == asked(made, None, start=at + tick) == (0, 0)


def test_two_nodes_of_ten_threads_lose_and_double_nothing(lake: Lake) -> None:
    columns = {"ts": "timestamp", "req_id": "string", "row_id": "long"}
    made = lake.create_table("n", columns, flush_age="off")
    with tidelake.connect(lake.where) as other:
        nodes = (made, other.table("n"))

        def request(thread: int) -> None:
            for number in range(thread, 100, 20):
                rows = [{"ts": TEN, "req_id": f"r-{number}", "row_id": n} for n in range(5)]
                nodes[number % 2].append(rows, key=f"r-{number}")

        threads = [threading.Thread(target=request, args=(thread,)) for thread in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WITHIN_S)
        for node in nodes:
            found = node.scan().read_all()
            assert (found.num_rows, len(pc.unique(found["req_id"])), pc.sum(found["row_id"]).as_py()) == (
                500,
                100,
                1000,
            )
        assert 2 <= made.snapshot.sequence <= 101


def _append_and_query(folder: str, ready: Any) -> None:
    with tidelake.connect(folder) as lake:
        made = lake.table("c")
        for batch in range(5):
            made.append([{"ts": TEN, "n": batch * 10 + n} for n in range(10)])
        ready.set()
        while True:
            made.scan(where="n >= 0").read_all()


def test_a_process_killed_during_a_query_takes_nothing_with_it(lake: Lake) -> None:
    lake.create_table("c", {"ts": "timestamp", "n": "long"}, flush_age="off")
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    doomed = context.Process(target=_append_and_query, args=(lake.where, ready))
    doomed.start()
    assert ready.wait(WITHIN_S)
    time.sleep(0.05)
    assert doomed.pid is not None
    os.kill(doomed.pid, signal.SIGKILL)
    doomed.join(WITHIN_S)
    made = lake.table("c")
    found = made.scan().read_all()
    assert (found.num_rows, pc.sum(found["n"]).as_py(), len(made.history())) == (50, 1225, 6)


def test_a_column_added_later_is_null_in_the_rows_before_it(lake: Lake) -> None:
    made = lake.create_table("a", {"ts": "timestamp", "name": "string"}, flush_age="off")
    made.append([{"ts": TEN, "name": f"v1-{n}"} for n in range(3)])
    made.flush()
    made.add_column("latency", "long")
    made.append([{"ts": TEN, "name": f"v2-{n}", "latency": latency} for n, latency in enumerate((42, 57))])
    found = made.scan().read_all()["latency"]
    assert (len(found), len(found) - found.null_count, pc.mean(found).as_py()) == (5, 2, 49.5)
    assert {snapshot.schema.version for snapshot in made.history()} == {1, 2}
    assert made.add_column("latency", "long").version == 2  # there already: nothing changes
    with pytest.raises(SchemaError, match="only widens"):
        made.add_column("latency", "string")
