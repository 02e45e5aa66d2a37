"""Read messages that name their schema, as registries of schemas frame them: Avro, Protobuf and JSON.

::

    00 | schema's id, 4 bytes, big endian | Avro's binary encoding, or JSON
    00 | schema's id                      | indexes of the message in its file | protobuf
    01 | schema's GUID, 16 bytes          | the rest as above

What stands before the message itself may be in a header of it: ``messages.framed`` puts it back.

A schema is asked for once and then kept: what an id means never changes. Values keep their types: times, dates,
decimals and bytes are what they were. A message whose schema is not known, or that is not what its schema says, is bad;
a registry that is away is not the message's fault. It does not ask registries itself: see ``fetch``.
"""

from __future__ import annotations

import base64
import io
import json
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import orjson

from tidelake.errors import UnavailableError
from tidelake.ingest.messages import BadMessage

ID_BYTES, GUID_BYTES = 4, 16  # after the first byte, which tells which of them it is
MAX_NESTED = 100  # messages in messages
MAX_INDEXES = 64  # of a message in messages in a file

Name: TypeAlias = int | str  # of a schema: its id, or its GUID

_Read: TypeAlias = Callable[[memoryview], Any]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Registered:
    """A schema as a registry has it: its kind, its text, and the schemas that it refers to, those first by name.

    The text of protobuf is a serialized file descriptor, in base64.
    """

    kind: str  # AVRO, PROTOBUF or JSON
    text: str
    references: Sequence[tuple[str, Registered]] = ()


class NoSuchSchema(LookupError):
    """A registry does not know a schema."""


class RegisteredDecoder:
    """Decodes messages by the schemas of a registry. It may be used by several threads."""

    def __init__(self, fetch: Callable[[Name], Registered]) -> None:
        self._fetch = fetch
        self._known: dict[Name, _Read] = {}
        self._lock = threading.Lock()

    def decode(self, value: bytes) -> dict[str, Any]:
        """Return a message as a row; BadMessage if there is none in it."""
        end = 1 + (GUID_BYTES if value.startswith(b"\1") else ID_BYTES)
        if len(value) < end:
            raise BadMessage("too short to name a schema")
        named = value[1:end]
        name: Name = int.from_bytes(named, "big") if len(named) == ID_BYTES else str(uuid.UUID(bytes=named))
        row = self._reader(name)(memoryview(value)[end:])
        if not isinstance(row, dict):
            raise BadMessage(f"schema {name} is not of a record")
        return row

    def _reader(self, name: Name) -> _Read:
        read = self._known.get(name)
        if read is None:
            with self._lock:
                try:
                    schema = self._fetch(name)
                except NoSuchSchema:
                    raise BadMessage(f"the registry has no schema {name}") from None
                read = self._known[name] = _READERS.get(schema.kind, _unknown)(schema)
        return read


def _unknown(schema: Registered) -> _Read:
    def read(data: memoryview) -> Any:
        raise BadMessage(f"schemas of kind {schema.kind} are not read")

    return read


def _json_reader(schema: Registered) -> _Read:
    def read(data: memoryview) -> Any:
        try:
            return orjson.loads(data)
        except ValueError as error:
            raise BadMessage(f"not JSON: {error}") from error

    return read


def _avro_reader(schema: Registered) -> _Read:
    fastavro = _library("fastavro")
    named: dict[str, Any] = {}
    try:
        for _, other in _in_order(schema):
            fastavro.parse_schema(json.loads(other.text), named_schemas=named)
        known = fastavro.parse_schema(json.loads(schema.text), named_schemas=named)
    except Exception as error:  # of many classes, and all of them the schema's fault
        return _failing(f"the schema cannot be read: {error}")

    def read(data: memoryview) -> Any:
        stream = io.BytesIO(data)
        try:
            row = fastavro.schemaless_reader(stream, known, None)
        except Exception as error:  # whatever the bytes make the reader say
            raise BadMessage(f"not Avro of its schema: {error!r}"[:400]) from error
        if stream.tell() != len(data):
            raise BadMessage("more bytes than its schema has")
        return row

    return read


def _protobuf_reader(schema: Registered) -> _Read:
    _library("google.protobuf")
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    pool = descriptor_pool.DescriptorPool()
    try:
        for name in _well_known():
            pool.Add(name)
        for name, other in [*_in_order(schema), ("", schema)]:
            file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(other.text))
            file.name = name or file.name or "message.proto"
            pool.Add(file)
        top = pool.FindFileByName(file.name)
        tops = [top.message_types_by_name[each.name] for each in file.message_type]
    except Exception as error:
        return _failing(f"the schema cannot be read: {error}")
    classes: dict[tuple[int, ...], Any] = {}

    def read(data: memoryview) -> Any:
        indexes, at = _indexes(data)
        made = classes.get(indexes)
        if made is None:
            found: Any = None
            for index in indexes:
                several = tops if found is None else found.nested_types
                if index >= len(several):
                    raise BadMessage("it names a message that its schema does not have")
                found = several[index]
            made = classes[indexes] = message_factory.GetMessageClass(found)
        try:
            message = made.FromString(bytes(data[at:]))
        except Exception as error:
            raise BadMessage(f"not protobuf of its schema: {error}") from error
        return _plain(message, MAX_NESTED)

    return read


def _indexes(data: memoryview) -> tuple[tuple[int, ...], int]:
    """Return which message of a file it is, from the outermost in, and where its bytes begin."""
    count, at = _zigzag(data, 0)
    if count == 0:
        return (0,), at
    if not 0 < count <= MAX_INDEXES:
        raise BadMessage("it does not say which message of its schema it is")
    found = []
    for _ in range(count):
        index, at = _zigzag(data, at)
        if index < 0:
            raise BadMessage("it does not say which message of its schema it is")
        found.append(index)
    return tuple(found), at


def _zigzag(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 28:
            raise BadMessage("it does not say which message of its schema it is")
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return (value >> 1) ^ -(value & 1), at
        shift += 7


def _plain(message: Any, depth: int) -> Any:
    """Return a protobuf message as Python values; fields that can be absent and are, are left out."""
    if not depth:
        raise BadMessage("messages are nested too deep")
    special = _SPECIAL.get(message.DESCRIPTOR.full_name)
    if special is not None:
        return special(message, depth)
    row: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.is_repeated:
            several = getattr(message, field.name)
            if field.message_type is not None and field.message_type.GetOptions().map_entry:
                of = field.message_type.fields_by_name["value"]
                row[field.name] = {_key(key): _one(of, several[key], depth) for key in several}
            else:
                row[field.name] = [_one(field, each, depth) for each in several]
        elif not field.has_presence or message.HasField(field.name):
            row[field.name] = _one(field, getattr(message, field.name), depth)
    return row


def _key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _one(field: Any, value: Any, depth: int) -> Any:
    if field.message_type is not None:
        return _plain(value, depth - 1)
    if field.enum_type is not None:
        named = field.enum_type.values_by_number.get(value)
        return value if named is None else named.name
    return value


def _instant(message: Any, depth: int) -> Any:
    try:
        return _EPOCH + timedelta(seconds=message.seconds, microseconds=message.nanos // 1000)
    except OverflowError as error:
        raise BadMessage("a time is out of range") from error


def _value(message: Any, depth: int) -> Any:
    kind = message.WhichOneof("kind")
    if kind in (None, "null_value"):
        return None
    found = getattr(message, kind)
    return _plain(found, depth - 1) if kind in ("struct_value", "list_value") else found


def _any(message: Any, depth: int) -> Any:
    return {"type_url": message.type_url, "value": message.value}


_SPECIAL: Mapping[str, Callable[[Any, int], Any]] = {
    "google.protobuf.Timestamp": _instant,
    "google.protobuf.Duration": lambda message, depth: message.seconds + message.nanos / 1e9,
    "google.protobuf.Struct": lambda message, depth: {
        name: _plain(value, depth - 1) for name, value in message.fields.items()
    },
    "google.protobuf.ListValue": lambda message, depth: [_plain(value, depth - 1) for value in message.values],
    "google.protobuf.Value": _value,
    "google.protobuf.Any": _any,
    **{
        f"google.protobuf.{kind}Value": lambda message, depth: message.value
        for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
    },
}


def _well_known() -> list[Any]:
    """Return the files that every schema may refer to, whether a registry has them or not."""
    from google.protobuf import (
        any_pb2,
        descriptor_pb2,
        duration_pb2,
        empty_pb2,
        field_mask_pb2,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    )

    found = []
    for module in (any_pb2, duration_pb2, empty_pb2, field_mask_pb2, struct_pb2, timestamp_pb2, wrappers_pb2):
        file = descriptor_pb2.FileDescriptorProto()
        module.DESCRIPTOR.CopyToProto(file)
        found.append(file)
    return found


def _in_order(schema: Registered) -> list[tuple[str, Registered]]:
    """Return what a schema refers to, each after what it refers to itself, and once."""
    found: dict[str, Registered] = {}
    for name, other in schema.references:
        found |= {inner: each for inner, each in _in_order(other) if inner not in found}
        found.setdefault(name, other)
    return list(found.items())


def _failing(reason: str) -> _Read:
    def read(data: memoryview) -> Any:
        raise BadMessage(reason[:400])

    return read


def _library(name: str) -> Any:
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UnavailableError(
            "messages with schemas need the extra kafka: pip install 'tidelake[kafka]'", kind="not_installed"
        ) from error


_READERS: Mapping[str, Callable[[Registered], _Read]] = {
    "AVRO": _avro_reader,
    "PROTOBUF": _protobuf_reader,
    "JSON": _json_reader,
}
