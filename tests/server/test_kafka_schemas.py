"""Avro, Protobuf and JSON messages whose schemas are in a registry, written by Kafka's own serializers."""

from __future__ import annotations

import base64
import json
import secrets
import time
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, struct_pb2, timestamp_pb2, wrappers_pb2

import tidelake
from tests.support.brokers import mock_brokers
from tests.support.registry import schema_registry
from tests.support.serving import serving
from tidelake.errors import UnavailableError
from tidelake.ingest.messages import BadMessage, messages_of
from tidelake.ingest.registered import Registered, RegisteredDecoder
from tidelake.model.snapshot import RecordOffset
from tidelake.spark.schema_registry import decoder_of
from tidelake.write.messages import store_messages

AT = datetime(2026, 1, 1, 12, 30, 0, 123456, tzinfo=UTC)
ORDER = {
    "type": "record", "name": "Order", "namespace": "shop", "fields": [
        {"name": "ts", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "n", "type": "long"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}], "default": None},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "lines", "type": {"type": "array", "items": {
            "type": "record", "name": "Line", "fields": [{"name": "sku", "type": "string"}]}}},
    ],
}  # fmt: skip
FIELD = descriptor_pb2.FieldDescriptorProto


@cache
def visit_class() -> Any:
    """Make the class of a message, as protoc would: nested ones before and in it, and well-known types."""
    file = descriptor_pb2.FileDescriptorProto(
        name=f"visit-{secrets.token_hex(4)}.proto", package="web", syntax="proto3"
    )
    for module in (timestamp_pb2, struct_pb2, wrappers_pb2):
        file.dependency.append(module.DESCRIPTOR.name)
    file.message_type.add(name="Other").field.add(name="x", number=1, type=FIELD.TYPE_INT32, label=1)
    visit = file.message_type.add(name="Visit")
    visit.enum_type.add(name="Kind").value.add(name="UNKNOWN", number=0)
    visit.enum_type[0].value.add(name="CLICK", number=1)
    visit.nested_type.add(name="Agent").field.add(name="name", number=1, type=FIELD.TYPE_STRING, label=1)
    entry = visit.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=FIELD.TYPE_STRING, label=1)
    entry.field.add(name="value", number=2, type=FIELD.TYPE_INT64, label=1)
    within = ".web.Visit."
    for number, (name, kind, label, of) in enumerate(
        [
            ("ts", FIELD.TYPE_MESSAGE, 1, ".google.protobuf.Timestamp"),
            ("n", FIELD.TYPE_INT64, 1, ""),
            ("big", FIELD.TYPE_UINT64, 1, ""),
            ("kind", FIELD.TYPE_ENUM, 1, f"{within}Kind"),
            ("agent", FIELD.TYPE_MESSAGE, 1, f"{within}Agent"),
            ("tags", FIELD.TYPE_MESSAGE, 3, f"{within}TagsEntry"),
            ("words", FIELD.TYPE_STRING, 3, ""),
            ("raw", FIELD.TYPE_BYTES, 1, ""),
            ("extra", FIELD.TYPE_MESSAGE, 1, ".google.protobuf.Struct"),
            ("score", FIELD.TYPE_MESSAGE, 1, ".google.protobuf.DoubleValue"),
        ],
        1,
    ):
        visit.field.add(name=name, number=number, type=kind, label=label, type_name=of or None)
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindFileByName(file.name).message_types_by_name["Visit"])


@pytest.fixture(scope="module")
def brokers() -> Iterator[str]:
    with mock_brokers() as address:
        yield address


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    with schema_registry() as address:
        yield address


@pytest.fixture(scope="module")
def client(registry: str) -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": registry})


def order(n: int) -> dict[str, Any]:
    return {
        "ts": AT, "n": n, "price": Decimal("19.99"), "day": date(2026, 1, 2), "state": "PAID", "note": f"n{n}",
        "lines": [{"sku": f"s{n}"}],
    }  # fmt: skip


def avro(client: SchemaRegistryClient, topic: str) -> Callable[[dict[str, Any]], bytes]:
    write = AvroSerializer(client, json.dumps(ORDER))
    context = SerializationContext(topic, MessageField.VALUE)
    return lambda row: bytes(write(row, context) or b"")


def visits(client: SchemaRegistryClient, topic: str) -> Callable[[int], bytes]:
    made = visit_class()
    write = ProtobufSerializer(made, client)
    context = SerializationContext(topic, MessageField.VALUE)

    def value(n: int) -> bytes:
        visit = made(n=n, big=(1 << 64) - 1, kind=1, words=["a", "b"], raw=b"\xff\0", tags={"t": n})
        visit.ts.FromDatetime(AT)
        visit.agent.name = "curl"
        visit.extra.update({"deep": {"list": [1, None, "x"]}})
        visit.score.value = 0.5
        return bytes(write(visit, context) or b"")

    return value


def eventually(found: Callable[[], object], wanted: object) -> None:
    until_s = time.monotonic() + 60
    while (seen := found()) != wanted and time.monotonic() < until_s:
        time.sleep(0.1)
    assert seen == wanted


def asked(folder: Path, sql: str) -> list[dict[str, Any]]:
    try:
        with tidelake.connect(folder, upkeep=False) as lake:
            return list(lake.sql(sql).to_arrow().to_pylist())
    except tidelake.TidelakeError:
        return []


def test_messages_with_schemas_are_rows_with_their_types(
    tmp_path: Path, brokers: str, registry: str, client: SchemaRegistryClient
) -> None:
    orders, web = f"orders-{secrets.token_hex(4)}", f"web-{secrets.token_hex(4)}"
    as_avro, as_protobuf = avro(client, orders), visits(client, web)
    producer = Producer({"bootstrap.servers": brokers, "linger.ms": 5})
    for n in range(50):
        producer.produce(orders, as_avro(order(n)), partition=n % 4)
        producer.produce(web, as_protobuf(n), partition=n % 4)
    whole = as_avro(order(0))
    bad = [b"\0\0", b"\0\0\0\x27\x0f" + whole[5:], whole[:-2], whole + b"x", b"neither"]
    for value in bad:
        producer.produce(orders, value, partition=1)
    producer.produce(orders, b'{"ts": "2026-01-01T00:00:00Z", "n": 50}', partition=0)  # JSON goes on beside it
    assert producer.flush(30) == 0
    folder = tmp_path / "lake"
    topics = f"{orders}=shop.orders,{web}=shop.visits"
    with serving(folder, "--kafka", brokers, "--kafka-topics", topics, "--kafka-registry", registry):
        eventually(
            lambda: asked(folder, "select count(*) c, count(distinct n) d from shop.orders"), [{"c": 51, "d": 51}]
        )
        eventually(
            lambda: asked(folder, "select count(*) c, count(distinct n) d from shop.visits"), [{"c": 50, "d": 50}]
        )
    (row,) = asked(folder, "select * from shop.orders where n = 7")
    names = ("ts", "n", "price", "day", "state", "note")
    assert {name: row[name] for name in names} == {name: order(7)[name] for name in names}
    assert json.loads(row["lines"]) == [{"sku": "s7"}]
    (row,) = asked(folder, "select * from shop.visits where n = 7")
    assert (row["ts"], row["kind"], row["raw"], row["score"]) == (AT, "CLICK", b"\xff\0", 0.5)
    assert [json.loads(row[name]) for name in ("agent", "tags", "words", "extra")] == [
        {"name": "curl"}, {"t": 7}, ["a", "b"], {"deep": {"list": [1, None, "x"]}},
    ]  # fmt: skip
    with tidelake.connect(folder, upkeep=False) as lake:
        aside = lake.sql("select source, reason from shop.orders_quarantine").to_arrow().to_pylist()
        assert len({each["source"] for each in aside}) == len(aside) == len(bad)
        reasons = " ".join(sorted(each["reason"] for each in aside))
        for said in ("too short", "no schema 9999", "not Avro", "more bytes", "not JSON"):
            assert said in reasons
        assert len(lake.table("shop.orders_quarantine").history()) < 1 + len(bad)  # set aside together


def test_schemas_may_be_named_in_headers(
    tmp_path: Path, brokers: str, registry: str, client: SchemaRegistryClient
) -> None:
    topic, in_header = f"headed-{secrets.token_hex(4)}", {"schema.id.serializer": header_schema_id_serializer}
    made = visit_class()
    serializers = (
        (AvroSerializer(client, json.dumps(ORDER), conf=in_header), order),
        (ProtobufSerializer(made, client, in_header), lambda n: made(n=n, words=["a"])),
    )
    producer = Producer({"bootstrap.servers": brokers, "linger.ms": 5})
    for n in range(30):
        write, value = serializers[n % 2]
        headers: list[tuple[str, Any]] = [("other", b"x")]
        body = write(value(n), SerializationContext(f"{topic}-{n % 2}", MessageField.VALUE, headers))
        assert headers[1][0] == "__value_schema_id"
        assert not bytes(body or b"").startswith(b"\0\0\0")
        producer.produce(topic, body, partition=n % 4, headers=headers)
    unknown: list[tuple[str, Any]] = [("__value_schema_id", b"\1" + b"\xff" * 16)]
    producer.produce(topic, b"{}", partition=0, headers=unknown)
    producer.produce(topic, b'{"n": 30}', partition=0, headers=[("__value_schema_id", b"of another kind")])
    assert producer.flush(30) == 0
    folder = tmp_path / "lake"
    with serving(folder, "--kafka", brokers, "--kafka-topics", f"{topic}=a.b", "--kafka-registry", registry):
        eventually(lambda: asked(folder, "select count(*) c, count(distinct n) d from a.b"), [{"c": 31, "d": 31}])
        eventually(
            lambda: asked(folder, "select reason from a.b_quarantine"),
            [{"reason": "the registry has no schema ffffffff-ffff-ffff-ffff-ffffffffffff"}],
        )
    assert asked(folder, "select price from a.b where n = 4") == [{"price": Decimal("19.99")}]


def test_what_is_set_aside_comes_once_and_in_few_commits(tmp_path: Path) -> None:
    values = [b'{"ts": "2026-01-01T00:00:00Z", "n": 1}', *(b"bad %d" % n for n in range(2500))]
    several = messages_of(values, [("t", 0, n) for n in range(len(values))], [1] * len(values))
    with tidelake.connect(tmp_path / "lake", upkeep=False) as lake:
        for again in range(2):
            offsets = [RecordOffset(f"s{again}", len(values), after=-1)]
            assert store_messages(lake.handle, "a.b", several, offsets, group="g") == 1
        found = lake.sql("select count(*) c, count(distinct source) d from a.b_quarantine").to_arrow().to_pylist()
        assert found == [{"c": 2500, "d": 2500}]
        assert len(lake.table("a.b_quarantine").history()) <= 5  # it is made, then three


def test_schemas_that_refer_to_others_are_read(registry: str, client: SchemaRegistryClient) -> None:
    line = {"type": "record", "name": "Part", "namespace": "x", "fields": [{"name": "a", "type": "int"}]}
    whole = {"type": "record", "name": "Whole", "namespace": "x", "fields": [{"name": "part", "type": "x.Part"}]}
    httpx.post(f"{registry}/subjects/part/versions", json={"schema": json.dumps(line)}).raise_for_status()
    references = [{"name": "x.Part", "subject": "part", "version": 1}]
    told = httpx.post(
        f"{registry}/subjects/whole/versions", json={"schema": json.dumps(whole), "references": references}
    ).json()
    framed = b"\0" + told["id"].to_bytes(4, "big")
    assert decoder_of({"url": registry}).decode(framed + b"\x0e") == {"part": {"a": 7}}


def test_a_registry_that_is_away_is_not_the_messages_fault() -> None:
    decoder = decoder_of({"url": "http://127.0.0.1:9", "max.retries": 0})  # type: ignore[dict-item]
    with pytest.raises(UnavailableError, match="does not answer"):
        decoder.decode(b"\0\0\0\0\1x")


def test_hostile_schemas_and_messages_are_only_bad() -> None:
    deep = descriptor_pb2.FileDescriptorProto(name="d.proto", syntax="proto3")
    deep.message_type.add(name="D").field.add(name="d", number=1, type=FIELD.TYPE_MESSAGE, label=1, type_name=".D")
    known: dict[int | str, Registered] = {
        1: Registered("AVRO", "no json"),
        2: Registered("AVRO", '{"type": "record"}'),
        3: Registered("PROTOBUF", "!"),
        4: Registered("XML", "<a/>"),
        5: Registered("AVRO", '"long"'),
        6: Registered("PROTOBUF", base64.b64encode(deep.SerializeToString()).decode()),
        7: Registered("JSON", "{}"),
    }
    decoder = RegisteredDecoder(known.__getitem__)
    nested = b""
    for _ in range(90):
        nested = (
            b"\x0a"
            + (bytes([len(nested)]) if len(nested) < 128 else bytes([len(nested) % 128 + 128, len(nested) // 128]))
            + nested
        )
    assert decoder.decode(b"\0\0\0\0\6\0" + nested)["d"]
    assert decoder.decode(b'\0\0\0\0\7{"a":1}') == {"a": 1}
    for number, body in (
        (1, b""),
        (2, b""),
        (3, b""),
        (4, b""),
        (5, b"\2"),
        (6, b""),
        (6, b"\xff" * 9),
        (6, b"\2\4"),
        (7, b"x"),
    ):
        with pytest.raises(BadMessage):
            decoder.decode(b"\0\0\0\0" + bytes([number]) + body)
