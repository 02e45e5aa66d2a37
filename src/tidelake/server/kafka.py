"""Take messages from Kafka, each once: how far a partition is goes into the commit of its rows.

A consumer of a group gets partitions as any other does, but it begins where the table's own record says, and never
where the group's does. A commit holds only if each partition is still where this consumer thinks it is, so a consumer
that lost a partition and does not know it yet commits nothing; it looks again. The group's offsets are told too, for
tools that show lag.

What a message becomes is told by ``write.messages``. It runs in a thread of its own.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    TopicPartition,
)

from tidelake.errors import (
    CommitUnknownError,
    ConflictError,
    InvalidInputError,
    TidelakeError,
    redacted,
)
from tidelake.handle.lake_handle import LakeHandle
from tidelake.ingest.messages import Decoder, framed, messages_of
from tidelake.model.snapshot import RecordOffset
from tidelake.server.refusals import failure_of
from tidelake.write.messages import positions_of, store_messages, stream_of

POLL_S = 0.2
MAX_MESSAGES = 20_000  # of one commit
MAX_BYTES = 32 << 20
QUEUED_KB = 32 << 10  # that the client reads ahead
SESSION_MS = 10_000  # after which the partitions of a consumer that was killed go to others
PAUSE_S = (0.2, 5.0)  # after which what could not be stored is tried again: at first, and at most

log = logging.getLogger("tidelake.server")

_Place = tuple[str, int]  # a topic and a partition


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """Which brokers, which topics go to which tables, and as whom."""

    servers: str
    tables: Mapping[str, str]
    group: str
    options: Mapping[str, Any]
    decoder: Decoder | None = None  # of messages that name a schema


@dataclass(frozen=True, slots=True)
class _Message:
    value: bytes
    offset: int
    at_us: int | None


class KafkaFeed:
    """One consumer of a group, at work in a thread until it is stopped."""

    def __init__(self, lake: LakeHandle, settings: KafkaSettings) -> None:
        self._lake, self._settings = lake, settings
        self._positions: dict[_Place, int] = {}  # the last message that is in, -1 for none
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tidelake-kafka", daemon=True)

    def start(self) -> None:
        """Begin; InvalidInputError if the client does not take its options."""
        try:
            Consumer(self._told()).close()
        except KafkaException as error:
            raise InvalidInputError(
                "bad options of Kafka's client", reason=redacted(error.args[0].str()), kind="bad_kafka"
            ) from None
        self._thread.start()

    def stop(self, within_s: float = 30.0) -> None:
        """Finish the commit that is under way, leave the group, and end."""
        self._stopping.set()
        self._thread.join(within_s)

    def _run(self) -> None:
        pause_s = PAUSE_S[0]
        while not self._stopping.is_set():
            try:
                self._consume()
            except (TidelakeError, KafkaException) as error:
                log.warning("kafka: %s", redacted(str(error)))
            except Exception as error:  # a defect must not end it silently
                log.error("defect in kafka: %s", redacted(repr(error)), exc_info=error)
            self._stopping.wait(pause_s)
            pause_s = min(pause_s * 2, PAUSE_S[1])

    def _consume(self) -> None:
        consumer = Consumer(self._told(), logger=log)
        try:
            consumer.subscribe(list(self._settings.tables), on_assign=self._assigned, on_revoke=self._revoked)
            while not self._stopping.is_set():
                messages = consumer.consume(MAX_MESSAGES, POLL_S)
                for group in _groups(messages, has_schemas=self._settings.decoder is not None):
                    self._take(consumer, group)
        finally:
            self._positions.clear()
            consumer.close()

    def _told(self) -> dict[str, Any]:
        """Return what the client is told."""
        return {
            "auto.offset.reset": "earliest",
            "queued.max.messages.kbytes": QUEUED_KB,
            "session.timeout.ms": SESSION_MS,
            **self._settings.options,
            "bootstrap.servers": self._settings.servers,
            "group.id": self._settings.group,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "isolation.level": "read_committed",
            "partition.assignment.strategy": "range,roundrobin",
        }

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Begin each partition where the table says that it is."""
        for each in partitions:
            last = self._position(each.topic, each.partition)
            self._positions[each.topic, each.partition] = last
            each.offset = OFFSET_BEGINNING if last < 0 else last + 1
        consumer.assign(partitions)

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            self._positions.pop((each.topic, each.partition), None)

    def _position(self, topic: str, partition: int) -> int:
        stream = self._stream(topic, partition)
        return positions_of(self._lake, self._settings.tables[topic], [stream]).get(stream, -1)

    def _stream(self, topic: str, partition: int) -> str:
        return stream_of(self._settings.group, topic, partition)

    def _take(self, consumer: Consumer, found: Mapping[_Place, Sequence[_Message]]) -> None:
        """Commit messages of several partitions, a commit for each table."""
        by_table: dict[str, dict[_Place, Sequence[_Message]]] = {}
        for place, messages in found.items():
            if place in self._positions:
                fresh = [each for each in messages if each.offset > self._positions[place]]
                if fresh:
                    by_table.setdefault(self._settings.tables[place[0]], {})[place] = fresh
        for table, parts in by_table.items():
            if self._stored(table, parts):
                self._tell_group(consumer, parts)
            else:
                self._look_again(consumer, parts)

    def _stored(self, name: str, parts: Mapping[_Place, Sequence[_Message]]) -> bool:
        """Store messages, however long that takes; False if a partition turns out to be somewhere else."""
        pause_s = PAUSE_S[0]
        while not self._stopping.is_set():
            try:
                self._store(name, parts)
            except ConflictError as error:
                if error.kind != "stream_moved":
                    raise
                log.warning("kafka: a partition is another's table=%s", name)
                return False
            except CommitUnknownError:
                return False  # what the table says is looked up
            except TidelakeError as error:
                if not failure_of(error).is_temporary:
                    raise
                log.warning("kafka: not stored table=%s kind=%s", name, error.kind)
                self._stopping.wait(pause_s)
                pause_s = min(pause_s * 2, PAUSE_S[1])
                continue
            for place, messages in parts.items():
                self._positions[place] = messages[-1].offset
            return True
        return False

    def _store(self, name: str, parts: Mapping[_Place, Sequence[_Message]]) -> None:
        messages = messages_of(
            [each.value for several in parts.values() for each in several],
            [(*place, each.offset) for place, several in parts.items() for each in several],
            [each.at_us for several in parts.values() for each in several],
        )
        offsets = [
            RecordOffset(self._stream(*place), several[-1].offset, after=self._positions[place])
            for place, several in parts.items()
        ]
        store_messages(self._lake, name, messages, offsets, group=self._settings.group, decoder=self._settings.decoder)

    def _tell_group(self, consumer: Consumer, parts: Mapping[_Place, Sequence[_Message]]) -> None:
        """Tell the brokers how far it is, for those who look; nothing depends on it."""
        moved = [TopicPartition(*place, messages[-1].offset + 1) for place, messages in parts.items()]
        try:
            consumer.commit(offsets=moved, asynchronous=True)
        except KafkaException as error:
            log.debug("kafka: the group was not told: %s", error)

    def _look_again(self, consumer: Consumer, parts: Mapping[_Place, Sequence[_Message]]) -> None:
        """Go on from where the table says that partitions are."""
        for place in parts:
            if place not in self._positions:
                continue
            self._positions[place] = last = self._position(*place)
            consumer.seek(TopicPartition(*place, OFFSET_BEGINNING if last < 0 else last + 1))


def _groups(messages: Sequence[Any], *, has_schemas: bool) -> Iterator[dict[_Place, list[_Message]]]:
    """Part messages by partition, in groups that are not too large for a commit."""
    group: dict[_Place, list[_Message]] = {}
    size = 0
    for message in messages:
        error = message.error()
        if error is not None:
            if error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            continue
        value = (framed(message.value(), message.headers()) if has_schemas else message.value()) or b""
        kind, at_ms = message.timestamp()
        at_us = None if kind == TIMESTAMP_NOT_AVAILABLE else at_ms * 1000
        group.setdefault((message.topic(), message.partition()), []).append(_Message(value, message.offset(), at_us))
        size += len(value)
        if size >= MAX_BYTES:
            yield group
            group, size = {}, 0
    if group:
        yield group
