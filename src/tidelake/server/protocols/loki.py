"""Take log lines from Loki's agents: ``POST /loki/api/v1/push``, JSON or protobuf.

Lines go to ``loki_logs``: the time, the line as ``message``, the stream's labels, what a line carries besides
(``metadata``), and the time in nanoseconds. A stream's ``service_name`` label is a column too. Loki's agents send a
body again until they have an answer, and it happens once. It does not answer LogQL.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import orjson

from tidelake.errors import InvalidInputError
from tidelake.server.call import Answer, Call, Load, Route, Shape, Work
from tidelake.server.protocols import protobuf
from tidelake.server.protocols.columns import Encoded, batch_of, microseconds
from tidelake.server.refusals import Failure, Unsupported

LINES = Shape(
    {
        "ts": "timestamp",
        "service_name": "string",
        "message": "string",
        "labels": "dynamic",
        "metadata": "dynamic",
        "ts_ns": "long",
    },
    "ts",
)
MAX_DIGITS = 20  # of a time in nanoseconds

_PAIR = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_.]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(,|$)')

_Line = tuple[int, str, dict[str, str], dict[str, str]]


def decode_push(call: Call) -> Work:
    """Decode streams of lines."""
    if call.content_type == "application/json":
        lines = list(_from_json(call.body))
    elif call.content_type in ("application/x-protobuf", ""):
        lines = list(_from_protobuf(call.body))
    else:
        raise Unsupported("lines come as JSON or protobuf", content_type=call.content_type[:80])
    if not lines:
        return Work([], lambda outcomes: Answer(204))
    known = Encoded()
    columns = [
        [microseconds(at_ns) for at_ns, *_ in lines],
        [labels.get("service_name") for _, _, labels, _ in lines],
        [text for _, text, *_ in lines],
        [known.texts(labels) for _, _, labels, _ in lines],
        [known.texts(metadata) for *_, metadata in lines],
        [at_ns for at_ns, *_ in lines],
    ]
    load = Load(call.table("loki_logs"), batch_of(LINES, columns), len(lines), LINES)
    return Work([load], lambda outcomes: Answer(204))


def refuse(call: Call, failure: Failure) -> Answer:
    """Tell a failure as text, as Loki does."""
    return Answer(failure.status, failure.message.encode(), "text/plain; charset=utf-8", failure.headers)


def _from_json(body: bytes) -> Iterator[_Line]:
    try:
        streams = orjson.loads(body)["streams"]
        for stream in streams:
            labels = {str(name): str(value) for name, value in stream["stream"].items()}
            for value in stream["values"]:
                yield _nanoseconds(value[0]), _text(value[1]), labels, _metadata(value)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        if isinstance(error, InvalidInputError):
            raise
        raise InvalidInputError("the body has no streams of lines", reason=error, kind="bad_body") from error


def _metadata(value: list[Any]) -> dict[str, str]:
    told = value[2] if len(value) > 2 else None
    return {str(name): str(each) for name, each in told.items()} if told else {}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise InvalidInputError("a line is text", got=type(value).__name__, kind="bad_body")
    return value


def _nanoseconds(value: Any) -> int:
    text = str(value)
    if not text.lstrip("-").isdigit() or len(text) > MAX_DIGITS:
        raise InvalidInputError("a time is nanoseconds, as text", got=text[:40], kind="bad_time")
    found = int(text)
    if not -(2**63) <= found < 2**63:
        raise InvalidInputError("a time is out of range", got=text, kind="bad_time")
    return found


def _from_protobuf(body: bytes) -> Iterator[_Line]:
    for stream in protobuf.Message(body).fields():
        if stream.number != 1:
            continue
        labels: dict[str, str] = {}
        entries = []
        for field in stream.fields():
            if field.number == 1:
                labels = parse_labels(field.text())
            elif field.number == 2:
                entries.append(field)
        for entry in entries:
            at_ns, text, metadata = 0, "", dict[str, str]()
            for field in entry.fields():
                if field.number == 1:
                    told = {part.number: part.signed() for part in field.fields()}
                    at_ns = told.get(1, 0) * 1_000_000_000 + told.get(2, 0)
                elif field.number == 2:
                    text = field.text()
                elif field.number == 3:
                    pair = {part.number: part.text() for part in field.fields()}
                    metadata[pair.get(1, "")] = pair.get(2, "")
            yield _nanoseconds(at_ns), text, labels, metadata


def parse_labels(text: str) -> dict[str, str]:
    """Read ``{job="a", host="b"}``."""
    inner = text.strip()
    if not (inner.startswith("{") and inner.endswith("}")):
        raise InvalidInputError("labels are in braces", got=text[:80], kind="bad_labels")
    inner, at, labels = inner[1:-1].strip(), 0, dict[str, str]()
    while at < len(inner):
        found = _PAIR.match(inner, at)
        if found is None:
            raise InvalidInputError('a label is not name="value"', got=inner[at : at + 80], kind="bad_labels")
        labels[found[1]] = _unescaped(found[2])
        at = found.end()
    return labels


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    try:
        return str(orjson.loads(f'"{text}"'))
    except ValueError:
        return re.sub(r"\\(.)", r"\1", text)


ROUTES = (
    Route("/loki/api/v1/push", decode_push, refuse=refuse, is_once=True),
    Route("/api/prom/push", decode_push, refuse=refuse, is_once=True),
)
