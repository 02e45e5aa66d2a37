"""Ask a registry of schemas, by the client that Kafka's own library has for it.

Confluent's registry and those that speak as it does. What is asked for is kept by the decoder; a registry that does not
answer is an UnavailableError, after which the messages are tried again. It does not register schemas.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidelake.errors import InvalidInputError, UnavailableError, redacted
from tidelake.ingest.registered import NoSuchSchema, Registered, RegisteredDecoder

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
        client = SchemaRegistryClient({"timeout": ANSWER_S, "max.retries": 1, **options})
    except (TypeError, ValueError, KeyError, OSError) as error:
        raise InvalidInputError(
            "bad options of a schema registry", reason=redacted(str(error)), kind="bad_registry"
        ) from None
    return RegisteredDecoder(_Fetching(client).schema)


class _Fetching:
    """Schemas by their number, with all that they refer to."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def schema(self, number: int) -> Registered:
        found = self._asked(self._client.get_schema, number)
        if found.schema_type == "PROTOBUF":
            found = self._asked(self._client.get_schema, number, fmt="serialized")
        return self._whole(found, 0)

    def _whole(self, schema: Any, depth: int) -> Registered:
        if depth > MAX_REFERENCES:
            raise NoSuchSchema
        form = "serialized" if schema.schema_type == "PROTOBUF" else None
        others = []
        for each in schema.references or ():
            other = self._asked(self._client.get_version, each.subject, each.version, fmt=form)
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
