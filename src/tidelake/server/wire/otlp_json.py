"""Turn OTLP requests in JSON into the protobuf messages that they stand for.

The form differs from protobuf's own JSON in its ids, which are hexadecimal, and in its enumerations, which are numbers.
It does not judge values: the readers of protobuf do.
"""

from __future__ import annotations

import base64
import json
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import Message

from tidelake.errors import InvalidInputError

IDS = ("traceId", "spanId", "parentSpanId", "trace_id", "span_id", "parent_span_id")
MAX_DEPTH = 400  # levels of JSON, of which a value takes two


def from_json(body: bytes, message: Message) -> bytes:
    """Return the bytes of a message that is written in JSON; InvalidInputError if it is not one."""
    try:
        value = json.loads(body)
        if not isinstance(value, dict):
            raise ValueError("it is not an object")
        _fix_ids(value, 0)
        json_format.ParseDict(value, message, ignore_unknown_fields=True, max_recursion_depth=MAX_DEPTH)
    except (ValueError, TypeError, RecursionError, json_format.Error) as error:
        reason = " ".join(str(error).split())[:200]
        raise InvalidInputError("the body is not OTLP in JSON", reason=reason, kind="bad_json") from error
    return message.SerializeToString()


def _fix_ids(value: Any, depth: int) -> None:
    """Write ids in base64, as protobuf's JSON has bytes."""
    if depth > MAX_DEPTH:
        raise ValueError("nested too deeply")
    if isinstance(value, list):
        for each in value:
            _fix_ids(each, depth + 1)
    elif isinstance(value, dict):
        for name, held in value.items():
            if name in IDS and isinstance(held, str):
                value[name] = base64.b64encode(bytes.fromhex(held)).decode()
            elif isinstance(held, dict | list):
                _fix_ids(held, depth + 1)
