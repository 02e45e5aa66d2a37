"""Take messages from Kafka as a Structured Streaming query, each once.

Tasks read the partitions (``kafka_source``); each batch is stored by ``write.messages``, with how far every partition
is in the same commit. That record alone says where a query begins: a batch that Spark runs again changes nothing, and
no checkpoint needs to be kept. It is the record that ``tidelake serve`` keeps for the same group, so one can take over
from the other. It does not keep state of its own.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import CommitUnknownError, ConflictError, StorageError, UnavailableError
from tidelake.handle.lake_handle import LakeHandle, OpenLake
from tidelake.ingest.messages import Message
from tidelake.model.snapshot import RecordOffset
from tidelake.spark import register, session
from tidelake.write.messages import positions_of, store_messages, stream_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TRIES, PAUSE_S = 8, (0.2, 5.0)  # of a batch that could not be stored, and between them: at first, and at most
_COLUMNS = ("topic", "partition", "offset", "timestamp", "value")
_Found = tuple[str, int, int, Message]  # topic, partition, offset, and what it is


def stream_kafka(
    lake: OpenLake,
    servers: str,
    tables: Mapping[str, str],
    *,
    group: str = "tidelake",
    options: Mapping[str, str] | None = None,
    every: str | None = "1 second",
    spark: SparkSession | None = None,
    master: str | None = None,
) -> StreamingQuery:
    """Start a query that stores the messages of topics in tables; without ``every`` it stops at what is there now.

    ``options`` are those of Kafka's client, librdkafka.
    """
    try:
        from tidelake.spark.kafka_source import NAME, KafkaSource, partitions_of_topics
    except ImportError as error:
        raise UnavailableError(
            "messages from Kafka need the extra kafka: pip install 'tidelake[kafka]'", kind="not_installed"
        ) from error
    engine = register(spark) if spark is not None else session(master)
    engine.dataSource.register(KafkaSource)
    handle, client = lake.handle, {**(options or {}), "bootstrap.servers": servers, "group.id": group}
    told = {
        "client": json.dumps(client),
        "topics": json.dumps(list(tables)),
        "starts": _starts(handle, partitions_of_topics(client, list(tables)), tables, group),
    }

    def store(batch: DataFrame, number: int) -> None:
        _store(handle, batch.toArrow(), tables, group)

    frame = engine.readStream.format(NAME).options(**told).load()
    writer = frame.writeStream.foreachBatch(
        store
    )  # its checkpoint is Spark's, and goes with it: offsets are in commits
    return (writer.trigger(processingTime=every) if every else writer.trigger(availableNow=True)).start()


def _starts(lake: LakeHandle, partitions: Mapping[str, Sequence[int]], tables: Mapping[str, str], group: str) -> str:
    """Return the next message of each partition of which a table has some, as JSON."""
    starts: dict[str, int] = {}
    for topic, table in tables.items():
        streams = {stream_of(group, topic, number): f"{topic}/{number}" for number in partitions[topic]}
        found = positions_of(lake, table, list(streams))
        starts |= {streams[stream]: last + 1 for stream, last in found.items()}
    return json.dumps(starts)


def _store(lake: LakeHandle, rows: pa.Table, tables: Mapping[str, str], group: str) -> None:
    """Store one batch: a commit for each table."""
    rows = rows.sort_by([(name, "ascending") for name in _COLUMNS[:3]])
    for table in sorted(set(tables.values())):
        topics = pa.array([topic for topic, name in tables.items() if name == table])
        found = rows.filter(pc.is_in(rows.column("topic"), topics))
        if found.num_rows:
            _store_in(lake, table, _messages(found), group)


def _messages(rows: pa.Table) -> list[_Found]:
    times = rows.column("timestamp").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    columns = [*(rows.column(name).to_pylist() for name in _COLUMNS[:3]), times.to_pylist()]
    values = rows.column("value").to_pylist()
    return [
        (topic, partition, offset, Message(value or b"", f"{topic}/{partition}/{offset}", at_us))
        for topic, partition, offset, at_us, value in zip(*columns, values, strict=True)
    ]


def _store_in(lake: LakeHandle, table: str, found: Sequence[_Found], group: str) -> None:
    """Store messages that are not in yet, and look again where that is not known or another was faster."""
    pause_s = PAUSE_S[0]
    for left in reversed(range(TRIES)):
        fresh, offsets = _fresh(lake, table, found, group)
        if not offsets:
            return
        try:
            store_messages(lake, table, fresh, offsets, group=group)
            return
        except ConflictError as error:
            if error.kind != "stream_moved" or not left:
                raise
        except (CommitUnknownError, StorageError, UnavailableError):
            if not left:
                raise
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, PAUSE_S[1])


def _fresh(
    lake: LakeHandle, table: str, found: Sequence[_Found], group: str
) -> tuple[list[Message], list[RecordOffset]]:
    """Return what a table does not have yet, and how far its partitions are with it."""
    last = {stream_of(group, topic, partition): offset for topic, partition, offset, _ in found}
    held = dict.fromkeys(last, -1) | positions_of(lake, table, list(last))
    fresh = [each for topic, number, offset, each in found if offset > held[stream_of(group, topic, number)]]
    offsets = [RecordOffset(stream, to, after=held[stream]) for stream, to in last.items() if to > held[stream]]
    return fresh, offsets
