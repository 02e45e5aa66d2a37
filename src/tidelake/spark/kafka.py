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

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidelake.errors import CommitUnknownError, ConflictError, StorageError, UnavailableError
from tidelake.handle.lake_handle import LakeHandle, OpenLake
from tidelake.ingest.messages import Decoder, Messages
from tidelake.model.snapshot import RecordOffset
from tidelake.spark import register, session
from tidelake.write.messages import positions_of, store_messages, stream_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

TRIES, PAUSE_S = 8, (0.2, 5.0)  # of a batch that could not be stored, and between them: at first, and at most


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
    registry: Mapping[str, str] | None = None,
) -> StreamingQuery:
    """Start a query that stores the messages of topics in tables; without ``every`` it stops at what is there now.

    ``options`` are those of Kafka's client, librdkafka. ``registry`` is where the schemas are of messages that name
    one, with the options of the registry's client: ``{"url": "http://…"}``.
    """
    try:
        from tidelake.spark.kafka_source import NAME, KafkaSource, partitions_of_topics
    except ImportError as error:
        raise UnavailableError(
            "messages from Kafka need the extra kafka: pip install 'tidelake[kafka]'", kind="not_installed"
        ) from error
    decoder = None
    if registry is not None:
        from tidelake.spark.schema_registry import decoder_of

        decoder = decoder_of(registry)
    engine = register(spark) if spark is not None else session(master)
    engine.dataSource.register(KafkaSource)
    handle, client = lake.handle, {**(options or {}), "bootstrap.servers": servers, "group.id": group}
    told = {
        "client": json.dumps(client),
        "topics": json.dumps(list(tables)),
        "has_schemas": json.dumps(decoder is not None),
        "starts": _starts(handle, partitions_of_topics(client, list(tables)), tables, group),
    }

    def store(batch: DataFrame, number: int) -> None:
        _store(handle, batch.toArrow(), tables, group, decoder)

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


def _store(
    lake: LakeHandle, rows: pa.Table, tables: Mapping[str, str], group: str, decoder: Decoder | None = None
) -> None:
    """Store one batch: a commit for each table."""
    rows = rows.sort_by([(name, "ascending") for name in ("topic", "partition", "offset")])
    for table in sorted(set(tables.values())):
        topics = pa.array([topic for topic, name in tables.items() if name == table])
        found = rows.filter(pc.is_in(rows.column("topic"), topics))
        if found.num_rows:
            _store_in(lake, table, _messages(found), group, decoder)


def _messages(rows: pa.Table) -> Messages:
    rows = rows.combine_chunks()

    def column(name: str, kind: pa.DataType) -> pa.Array:
        found = rows.column(name)
        return found.chunk(0).cast(kind) if found.num_chunks else pa.array([], kind)

    times = column("timestamp", pa.timestamp("us", "UTC")).cast(pa.int64())
    return Messages(
        column("value", pa.large_binary()), column("topic", pa.string()), column("partition", pa.int32()),
        column("offset", pa.int64()), times,
    )  # fmt: skip


def _store_in(lake: LakeHandle, table: str, found: Messages, group: str, decoder: Decoder | None) -> None:
    """Store messages that are not in yet, and look again where that is not known or another was faster."""
    pause_s = PAUSE_S[0]
    for left in reversed(range(TRIES)):
        fresh, offsets = _fresh(lake, table, found, group)
        if not offsets:
            return
        try:
            store_messages(lake, table, fresh, offsets, group=group, decoder=decoder)
            return
        except ConflictError as error:
            if error.kind != "stream_moved" or not left:
                raise
        except (CommitUnknownError, StorageError, UnavailableError):
            if not left:
                raise
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, PAUSE_S[1])


def _fresh(lake: LakeHandle, table: str, found: Messages, group: str) -> tuple[Messages, list[RecordOffset]]:
    """Return what a table does not have yet, and how far its partitions are with it."""
    columns = [found.topics, found.partitions, found.offsets]
    whole = pa.table(columns, names=["topic", "partition", "offset"])
    lasts = whole.group_by(["topic", "partition"], use_threads=False).aggregate([("offset", "max")]).to_pylist()
    places = {stream_of(group, each["topic"], each["partition"]): each for each in lasts}
    held = dict.fromkeys(places, -1) | positions_of(lake, table, list(places))
    is_fresh = np.ones(len(found), np.bool_)
    for stream, place in places.items():
        if held[stream] >= 0:
            of = pc.and_(pc.equal(found.topics, place["topic"]), pc.equal(found.partitions, place["partition"]))
            is_fresh &= ~np.asarray(pc.and_(of, pc.less_equal(found.offsets, held[stream])))
    offsets = [
        RecordOffset(stream, place["offset_max"], after=held[stream])
        for stream, place in places.items()
        if place["offset_max"] > held[stream]
    ]
    return (found if is_fresh.all() else found.filter(is_fresh)), offsets
