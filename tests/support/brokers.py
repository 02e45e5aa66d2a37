"""Run brokers of Kafka that librdkafka brings along for tests.

It does not write anything to a disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import Producer


@contextmanager
def mock_brokers() -> Iterator[str]:
    """Yield the address of a broker; it ends with the producer that holds it."""
    holder = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "none"})
    found = next(iter(holder.list_topics(timeout=10).brokers.values()))
    yield f"{found.host}:{found.port}"
    holder.flush(5)
