"""Messages from brokers that librdkafka has for tests, which speak the real protocol on loopback."""

from __future__ import annotations

import json
import random
import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

import tidelake
from tests.support.brokers import mock_brokers
from tests.support.serving import serving
from tidelake.errors import ConflictError, InvalidInputError
from tidelake.handle.table_handle import TableHandle
from tidelake.model.snapshot import RecordOffset
from tidelake.write.append import append
from tidelake.write.messages import parse_topics

# These brokers answer the first member of a group after 3 s: one whose session is shorter than that never gets in.
QUICK = {"TIDELAKE_SERVE_KAFKA_OPTIONS": "session.timeout.ms=5000,heartbeat.interval.ms=500"}
PARTITIONS = 4  # of a topic that comes to be by itself


@pytest.fixture(scope="module")
def brokers() -> Iterator[str]:
    with mock_brokers() as address:
        yield address


def produce(brokers: str, topic: str, messages: list[tuple[int, bytes | None]]) -> None:
    producer = Producer({"bootstrap.servers": brokers, "linger.ms": 5})
    for partition, value in messages:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(30) == 0


def eventually(found: Callable[[], object], wanted: object) -> None:
    until_s = time.monotonic() + 40
    while (seen := found()) != wanted and time.monotonic() < until_s:
        time.sleep(0.1)
    assert seen == wanted


def counts(folder: Path, table: str) -> list[tuple[int, int]]:
    """Return how many rows there are, and how many different ones."""
    try:
        with tidelake.connect(folder, upkeep=False) as lake:
            (row,) = lake.sql(f"select count(*) c, count(distinct n) d from {table}").to_arrow().to_pylist()
            return [(row["c"], row["d"])]
    except tidelake.TidelakeError:
        return []


def rows_in(folder: Path, table: str) -> int:
    return next((rows for rows, _ in counts(folder, table)), 0)


def body(number: int) -> bytes:
    return json.dumps({"ts": f"2026-01-01T00:00:{number % 60:02d}Z", "n": number}).encode()


def test_messages_are_rows_and_bad_ones_are_set_aside(tmp_path: Path, brokers: str) -> None:
    topic = f"events-{secrets.token_hex(4)}"
    messages: list[tuple[int, bytes | None]] = [(n % PARTITIONS, body(n)) for n in range(200)]
    messages += [(0, b"not json"), (1, b"[1]"), (2, None), (3, b'{"n": 200}'), (0, b'{"ts": "yesterday", "n": 201}')]
    produce(brokers, topic, messages)
    with serving(tmp_path / "lake", "--kafka", brokers, "--kafka-topics", f"{topic}=obs.events") as server:
        eventually(lambda: counts(tmp_path / "lake", "obs.events"), [(201, 201)])
        with tidelake.connect(tmp_path / "lake", upkeep=False) as lake:
            aside = lake.sql("select source, reason, record from obs.events_quarantine").to_arrow().to_pylist()
            assert sorted(row["record"] for row in aside) == ["[1]", "not json", '{"ts": "yesterday", "n": 201}']
            (row,) = lake.sql("select ts from obs.events where n = 200").to_arrow().to_pylist()
            assert row["ts"].year >= 2026  # the time that Kafka has for it
        assert server.stop() == 0


@pytest.mark.parametrize("kills", [1, pytest.param(20, marks=pytest.mark.torture)])
def test_a_server_that_is_killed_stores_each_message_once(tmp_path: Path, brokers: str, kills: int) -> None:
    topic, rng = f"killed-{secrets.token_hex(4)}", random.Random(7)
    options = ("--kafka", brokers, "--kafka-topics", f"{topic}=obs.killed", "--kafka-group", topic)
    sent = stored = 0
    for _ in range(kills):
        produce(brokers, topic, [(n % PARTITIONS, body(n)) for n in range(sent, sent + 2000)])
        sent += 2000
        with serving(tmp_path / "lake", *options, environment=QUICK) as server:
            until_s = time.monotonic() + 60
            while stored == (stored := rows_in(tmp_path / "lake", "obs.killed")) and time.monotonic() < until_s:
                # More arrives while it is at work: the kill finds it amid commits.
                produce(brokers, topic, [(n % PARTITIONS, body(n)) for n in range(sent, sent + 50)])
                sent += 50
                time.sleep(rng.uniform(0, 0.1))
            server.kill()
    with serving(tmp_path / "lake", *options, environment=QUICK):
        eventually(lambda: counts(tmp_path / "lake", "obs.killed"), [(sent, sent)])


def test_a_commit_holds_only_where_the_stream_is(tmp_path: Path) -> None:
    with tidelake.connect(tmp_path / "lake", upkeep=False) as lake:
        lake.create_table("t", {"ts": "timestamp", "n": "long"})
        table = TableHandle.open(lake.handle, "t")
        append(table, body(1), offsets=[RecordOffset("s", 9, after=-1)])
        for after in (-1, 3):
            with pytest.raises(ConflictError, match="another reader"):
                append(table, body(2), offsets=[RecordOffset("s", 12, after=after)])
        append(table, body(3), offsets=[RecordOffset("s", 12, after=9), RecordOffset("other", 0, after=-1)])
        append(table, [], offsets=[RecordOffset("s", 13, after=12)])
        assert table.catalog.positions(table.scope, ["s", "other", "none"]) == {"s": 13, "other": 0}
        assert len(lake.table("t")) == 2
        with pytest.raises(InvalidInputError):
            RecordOffset("s", 3, after=3)


def test_topics_are_read() -> None:
    assert parse_topics("a=x.y, b") == {"a": "x.y", "b": "default.b"}
    for wrong in ("", "a=b.c.d", "a=x,a=y"):
        with pytest.raises(InvalidInputError):
            parse_topics(wrong)
