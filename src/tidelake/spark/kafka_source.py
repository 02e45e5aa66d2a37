"""Read topics of Kafka as a stream of Spark: what is there, then what comes, partition by partition in tasks.

An offset is the next message of every partition, ``{"orders/0": 17, …}``. Where a table says that a partition is, it
begins there, else at its first message. Tasks read with librdkafka, so Spark needs no package for it. Messages of
transactions that were not committed are not read. It does not store anything: see ``kafka``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, TopicPartition
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from tidelake.errors import NotFoundError, StorageError
from tidelake.ingest.messages import framed
from tidelake.spark.lines import ReadLimit, SupportsTriggerAvailableNow

NAME = "tidelake_kafka"
SCHEMA = "topic string, partition int, offset long, timestamp timestamp, value binary"
MAX_MESSAGES = 50_000  # of a partition in one batch
ANSWER_S = 30.0  # a broker must answer
POLL_S = 1.0
ROWS = 10_000  # of one piece

_ARROW = pa.schema(
    [
        ("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")), ("value", pa.binary()),
    ]
)  # fmt: skip


class KafkaSource(DataSource):
    """Messages as rows: topic, partition, offset, timestamp and value."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> KafkaReader:
        return KafkaReader(self.options)


class Range(InputPartition):
    """The messages of a partition from one to before another."""

    def __init__(self, topic: str, partition: int, start: int, end: int) -> None:
        self.topic, self.partition, self.start, self.end = topic, partition, start, end


class KafkaReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Say how far there is to read, and read it in tasks."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._client: dict[str, Any] = json.loads(options["client"])
        self._topics: list[str] = json.loads(options["topics"])
        self._starts: dict[str, int] = json.loads(options["starts"])
        self._has_schemas: bool = json.loads(options["has_schemas"])
        self._last: dict[str, int] | None = None

    def initialOffset(self) -> dict[str, int]:
        return {place: max(low, self._starts.get(place, 0)) for place, (low, _) in self._bounds().items()}

    def prepareForTriggerAvailableNow(self) -> None:
        self._last = {place: high for place, (_, high) in self._bounds().items()}

    def latestOffset(self, start: dict[str, int] | None = None, limit: ReadLimit | None = None) -> dict[str, int]:
        """Go on from an offset by at most so many messages of a partition."""
        found = self._bounds()
        begun = start if start is not None else self._starts
        ends = {}
        for place, (low, high) in found.items():
            at = max(begun.get(place, low), low)
            last = high if self._last is None else min(high, self._last.get(place, high))
            ends[place] = max(at, min(last, at + MAX_MESSAGES))
        return ends

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        ranges = []
        for place, last in sorted(end.items()):
            topic, _, number = place.rpartition("/")
            first = start.get(place, self._starts.get(place, 0))
            if first < last:
                ranges.append(Range(topic, int(number), first, last))
        return ranges

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Range)
        return _read(self._client, partition, self._has_schemas)

    def commit(self, end: dict[str, int]) -> None:
        """Do nothing: the table records how far it is."""

    def _bounds(self) -> dict[str, tuple[int, int]]:
        """Return the first message that each partition has, and the next that it will have."""
        consumer = Consumer(_settings(self._client))
        try:
            return {
                f"{each.topic}/{each.partition}": consumer.get_watermark_offsets(each, ANSWER_S)
                for topic in self._topics
                for each in partitions_of(consumer, topic)
            }
        except KafkaException as error:
            raise StorageError("the brokers do not answer", reason=error, kind="no_brokers") from error
        finally:
            consumer.close()


def partitions_of_topics(client: Mapping[str, Any], topics: Sequence[str]) -> dict[str, list[int]]:
    """Return the partitions of topics; NotFoundError if there is none of a name."""
    consumer = Consumer(_settings(client))
    try:
        return {topic: [each.partition for each in partitions_of(consumer, topic)] for topic in topics}
    except KafkaException as error:
        raise StorageError("the brokers do not answer", reason=error, kind="no_brokers") from error
    finally:
        consumer.close()


def partitions_of(consumer: Consumer, topic: str) -> list[TopicPartition]:
    """Return the partitions of a topic; NotFoundError if there is none of the name."""
    told = consumer.list_topics(topic, timeout=ANSWER_S).topics[topic]
    if told.error is not None:
        raise NotFoundError("no such topic", topic=topic, reason=told.error.str(), kind="no_topic")
    return [TopicPartition(topic, number) for number in sorted(told.partitions)]


def _settings(client: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **client,
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": "read_committed",
        "auto.offset.reset": "error",  # what is gone is not passed over in silence
    }


def _read(client: Mapping[str, Any], part: Range, has_schemas: bool) -> Iterator[pa.RecordBatch]:
    consumer = Consumer(_settings(client))
    try:
        consumer.assign([TopicPartition(part.topic, part.partition, part.start)])
        rows: list[tuple[int, int | None, bytes | None]] = []
        is_open = True
        while is_open:
            for message in consumer.consume(ROWS, POLL_S):
                error = message.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    raise StorageError("a message cannot be read", reason=error.str(), kind="no_brokers")
                offset = message.offset()
                if offset is None or offset >= part.end or error is not None:
                    is_open = False
                    break
                kind, at_ms = message.timestamp()
                at_us = None if kind == TIMESTAMP_NOT_AVAILABLE else at_ms * 1000
                value = framed(message.value(), message.headers()) if has_schemas else message.value()
                rows.append((offset, at_us, value))
                is_open = offset + 1 < part.end
            if rows and (len(rows) >= ROWS or not is_open):
                yield _batch(part, rows)
                rows = []
    finally:
        consumer.close()


def _batch(part: Range, rows: Sequence[tuple[int, int | None, bytes | None]]) -> pa.RecordBatch:
    offsets, times, values = zip(*rows, strict=True)
    columns = [[part.topic] * len(rows), [part.partition] * len(rows), offsets, times, values]
    return pa.record_batch(
        [pa.array(each, kind.type) for each, kind in zip(columns, _ARROW, strict=True)], schema=_ARROW
    )
