"""Ask a registry of schemas, by the client that Kafka's own library has for it.

Confluent's registry and those that speak as it does. What is asked for is kept by the decoder; a registry that does not
answer is an UnavailableError, after which the messages are tried again. It does not register schemas.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidelake.errors import InvalidInputError, UnavailableError, redacted
from tidelake.ingest.registered import Name, NoSuchSchema, Registered, RegisteredDecoder

ANSWER_S = 10.0
NOT_FOUND = 404
MAX_REFERENCES = 64  # one after another; a schema that refers to itself is none


def decoder_of(options: Mapping[str, str]) -> RegisteredDecoder:
    """Return a decoder of messages by the schemas of a registry; ``options`` are its client's: ``url`` and others."""
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise UnavailableError(
            "messages with schemas need the extra kafka: pip install 'tidelake[kafka]'", kind="not_installed"
        ) from error
    try:
        plain, serialized = (SchemaRegistryClient({"timeout": ANSWER_S, "max.retries": 1, **options}) for _ in range(2))
    except (TypeError, ValueError, KeyError, OSError) as error:
        raise InvalidInputError(
            "bad options of a schema registry", reason=redacted(str(error)), kind="bad_registry"
        ) from None
    return RegisteredDecoder(_Fetching(plain, serialized).schema)


class _Fetching:
    """Schemas by their number or GUID, with all that they refer to.

    A client keeps what it was told by the number alone, whatever form it asked for: protobuf has a client of its own.
    """

    def __init__(self, plain: Any, serialized: Any) -> None:
        self._plain, self._serialized = plain, serialized

    def schema(self, name: Name) -> Registered:
        found = self._named(self._plain, name)
        if found.schema_type == "PROTOBUF":
            found = self._named(self._serialized, name, fmt="serialized")
        return self._whole(found, 0)

    def _named(self, client: Any, name: Name, **more: str) -> Any:
        return self._asked(client.get_schema if isinstance(name, int) else client.get_schema_by_guid, name, **more)

    def _whole(self, schema: Any, depth: int) -> Registered:
        if depth > MAX_REFERENCES:
            raise NoSuchSchema
        is_protobuf = schema.schema_type == "PROTOBUF"
        client, form = (self._serialized, "serialized") if is_protobuf else (self._plain, None)
        others = []
        for each in schema.references or ():
            other = self._asked(client.get_version, each.subject, each.version, fmt=form)
            others.append((each.name, self._whole(other.schema, depth + 1)))
        return Registered(schema.schema_type or "AVRO", schema.schema_str, tuple(others))

    @staticmethod
    def _asked(ask: Any, *words: Any, **more: Any) -> Any:
        try:
            return ask(*words, **more)
        except Exception as error:  # those of two libraries beneath it, too
            if getattr(error, "http_status_code", None) == NOT_FOUND:
                raise NoSuchSchema from error
            raise UnavailableError(
                "the schema registry does not answer", reason=redacted(str(error))[:200], kind="no_registry"
            ) from error
