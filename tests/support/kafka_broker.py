"""Run one real broker of Kafka, without anything beside it, on loopback and free ports.

It does not keep what it had when it is left.
"""

from __future__ import annotations

import subprocess
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from tests.support.outside import kafka_jars
from tests.support.servers import free_ports

READY_WITHIN_S = 120
_PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
controller.listener.names=CONTROLLER
log.dirs={folder}/log
num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""


class Broker:
    """A broker that can be killed and started again, over the same folder."""

    def __init__(self, folder: Path) -> None:
        port, controller = free_ports(2)
        self.address = f"127.0.0.1:{port}"
        self._folder, self._jars = folder, f"{kafka_jars()}/*"
        self._properties = folder / "server.properties"
        self._properties.write_text(_PROPERTIES.format(port=port, controller=controller, folder=folder))
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        subprocess.run(
            self._java("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self._properties)),
            check=True, capture_output=True,
        )  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with (self._folder / "said").open("ab") as said:
            command = self._java("kafka.Kafka", str(self._properties))
            self._process = subprocess.Popen(command, stdout=said, stderr=said)
        until_s = time.monotonic() + READY_WITHIN_S
        while True:
            try:
                AdminClient({"bootstrap.servers": self.address, "log_level": 0}).list_topics(timeout=2)
                return
            except KafkaException:
                assert self._process.poll() is None, (self._folder / "said").read_text()[-2000:]
                assert time.monotonic() < until_s, (self._folder / "said").read_text()[-2000:]

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(30)
            self._process = None

    def _java(self, *words: str) -> list[str]:
        return ["java", "-Xmx384m", "-cp", self._jars, *words]


@contextmanager
def kafka_broker(folder: Path) -> Iterator[Broker]:
    """Yield a broker that runs, with its log in a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    broker = Broker(folder)
    try:
        broker.start()
        yield broker
    finally:
        broker.kill()
