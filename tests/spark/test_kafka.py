"""Topics become rows by a Structured Streaming query, each message once. Brokers are librdkafka's own, for tests."""

from __future__ import annotations

import json
import secrets
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pyarrow as pa
import pytest
from click.testing import CliRunner
from confluent_kafka import Producer

import tidelake
from tests.support.brokers import mock_brokers
from tests.support.registry import schema_registry
from tidelake.cli.main import main
from tidelake.errors import NotFoundError
from tidelake.spark import kafka
from tidelake.write.messages import stream_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def brokers() -> Iterator[str]:
    with mock_brokers() as address:
        yield address


def produce(brokers: str, topic: str, numbers: range, *others: bytes) -> None:
    producer = Producer({"bootstrap.servers": brokers, "linger.ms": 5})
    for n in numbers:
        value = {"ts": f"2026-01-01T00:00:{n % 60:02d}Z", "n": n}
        producer.produce(topic, json.dumps(value), partition=n % 3)
    for other in others:
        producer.produce(topic, other, partition=0)
    assert producer.flush(30) == 0


def produce_with_schemas(brokers: str, topic: str, registry: str, n: int) -> None:
    """Send two messages of Avro, of which one names its schema itself and the other in a header."""
    schema = {"type": "record", "name": "N", "fields": [{"name": "n", "type": "long"}]}
    told = httpx.post(f"{registry}/subjects/n/versions", json={"schema": json.dumps(schema)}).json()
    producer = Producer({"bootstrap.servers": brokers})
    first, second = (bytes([(n & 63) << 1 | 128, n >> 6]) for n in (n, n + 1))
    producer.produce(topic, b"\0" + told["id"].to_bytes(4, "big") + first, partition=0)
    name = b"\1" + uuid.UUID(told["guid"]).bytes
    producer.produce(topic, second, partition=1, headers=[("__value_schema_id", name)])
    assert producer.flush(30) == 0


def run(lake: tidelake.Lake, brokers: str, topic: str, spark: SparkSession, registry: str | None = None) -> None:
    at = None if registry is None else {"url": registry}
    tables = {topic: "obs.events"}
    kafka.stream_kafka(lake, brokers, tables, every=None, spark=spark, registry=at).awaitTermination(120)


def numbers(lake: tidelake.Lake) -> list[Any]:
    found = lake.sql("select n from obs.events order by n").to_arrow().column("n").to_pylist()
    return list(found)


def test_messages_are_in_once_however_often_a_query_runs(tmp_path: Path, brokers: str, spark: SparkSession) -> None:
    topic = f"spark-{secrets.token_hex(4)}"
    produce(brokers, topic, range(300), b"not json", b'{"n": 300}')
    with tidelake.connect(tmp_path / "lake", upkeep=False) as lake:
        run(lake, brokers, topic, spark)
        assert numbers(lake) == list(range(301))
        aside = lake.sql("select record from obs.events_quarantine").to_arrow().to_pylist()
        assert aside == [{"record": "not json"}]
        run(lake, brokers, topic, spark)  # it begins where the table is
        produce(brokers, topic, range(301, 350))
        with schema_registry() as registry:
            produce_with_schemas(brokers, topic, registry, 350)
            run(lake, brokers, topic, spark, registry)
        assert numbers(lake) == list(range(352))


def test_a_batch_that_comes_again_changes_nothing(tmp_path: Path) -> None:
    rows = pa.table(
        {
            "topic": ["t"] * 3, "partition": pa.array([0, 1, 0], pa.int32()), "offset": [5, 0, 7],
            "timestamp": pa.array([1, 2, 3], pa.timestamp("us", "UTC")), "value": [b'{"n":1}', b'{"n":2}', b'{"n":3}'],
        }
    )  # fmt: skip
    with tidelake.connect(tmp_path / "lake", upkeep=False) as lake:
        for part in (rows.slice(0, 2), rows, rows):
            kafka._store(lake.handle, part, {"t": "obs.events"}, "g")
        assert numbers(lake) == [1, 2, 3]
        table = lake.table("obs.events").handle
        assert table.catalog.positions(table.scope, [stream_of("g", "t", 0), stream_of("g", "t", 1)]) == {
            "kafka:g:t:0": 7,
            "kafka:g:t:1": 0,
        }


def test_a_command_without_topics_or_folder_says_what_it_needs(tmp_path: Path) -> None:
    for words in (["stream"], ["stream", "--kafka", "x:1"], ["stream", "inbox", "--topics", "a"]):
        done = CliRunner().invoke(main, [*words, "--lake", str(tmp_path)])
        assert done.exit_code == 2, done.output


def test_a_topic_that_is_not_there_is_told(tmp_path: Path, brokers: str, spark: SparkSession) -> None:
    options = {"allow.auto.create.topics": "false"}
    with tidelake.connect(tmp_path / "lake", upkeep=False) as lake, pytest.raises(NotFoundError, match="no such topic"):
        kafka.stream_kafka(lake, brokers, {"nowhere": "a.b"}, options=options, spark=spark)
