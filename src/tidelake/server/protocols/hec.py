"""Take events from Splunk's forwarders and libraries: the HTTP event collector, ``/services/collector``.

Events go to the table that their ``index`` names, or to ``hec_events``: the time, host, source and sourcetype, the
event as ``message`` if it is text and as ``event`` if it is not, and its indexed ``fields``. An answer means that they
are durable, so an acknowledgement that is asked for later is always yes. It does not search.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import orjson

from tidelake.dynamic.values import encode
from tidelake.errors import InvalidInputError
from tidelake.server.call import Answer, Call, Load, Route, Shape, Work
from tidelake.server.protocols.columns import batch_of, microseconds
from tidelake.server.protocols.naming import table_name
from tidelake.server.refusals import Failure

EVENTS = Shape(
    {
        "ts": "timestamp",
        "host": "string",
        "source": "string",
        "sourcetype": "string",
        "message": "string",
        "event": "dynamic",
        "fields": "dynamic",
    },
    "ts",
)
DEFAULT_TABLE = "hec_events"
SUCCESS, NO_DATA, BAD_FORMAT, NO_EVENT, BLANK_EVENT, BUSY, HEALTHY = 0, 5, 6, 12, 13, 9, 17
NO_TOKEN, BAD_TOKEN, BAD_INDEX = 2, 4, 7

_SAID = {
    SUCCESS: "Success",
    NO_TOKEN: "Token is required",
    BAD_TOKEN: "Invalid token",
    NO_DATA: "No data",
    BAD_FORMAT: "Invalid data format",
    BAD_INDEX: "Incorrect index",
    BUSY: "Server is busy",
    NO_EVENT: "Event field is required",
    BLANK_EVENT: "Event field cannot be blank",
    HEALTHY: "HEC is healthy",
}
_SPACE = re.compile(r"\s*")
_DECODER = json.JSONDecoder()


class BadEvent(InvalidInputError):
    """An event that the collector does not take, with its code."""

    def __init__(self, code: int, **facts: Any) -> None:
        super().__init__(_SAID[code], **facts)
        self.code = code


def decode_events(call: Call) -> Work:
    """Decode events, one object after another."""
    by_table: dict[str, list[tuple[Any, ...]]] = {}
    are_timed = True
    for number, event in enumerate(_objects(call.body)):
        row, index, is_timed = _row(event, number, call)
        are_timed = are_timed and is_timed
        by_table.setdefault(table_name(index, DEFAULT_TABLE), []).append(row)
    return _work(call, by_table, is_once=are_timed)


def decode_raw(call: Call) -> Work:
    """Decode lines of text, each an event of the time it came."""
    told = call.query
    lines = [line.rstrip("\r") for line in _text(call.body).split("\n") if line.strip()]
    shared = (told.get("host"), told.get("source"), told.get("sourcetype"))
    rows: list[tuple[Any, ...]] = [(call.received_us, *shared, line, None, None) for line in lines]
    return _work(call, {table_name(told.get("index", ""), DEFAULT_TABLE): rows} if rows else {}, is_once=False)


def decode_acks(call: Call) -> Work:
    """Answer that all is durable: it was before it was answered."""
    try:
        asked = [int(each) for each in orjson.loads(call.body)["acks"]]
    except (ValueError, KeyError, TypeError) as error:
        raise BadEvent(BAD_FORMAT) from error
    return Work([], lambda outcomes: Answer.json({"acks": {str(each): True for each in asked}}))


def decode_health(call: Call) -> Work:
    """Answer that the collector works."""
    return Work([], lambda outcomes: Answer.json(_told(HEALTHY)))


def refuse(call: Call, failure: Failure) -> Answer:
    """Tell a failure with the collector's codes."""
    codes = {401: BAD_TOKEN if "authorization" in call.headers else NO_TOKEN, 403: BAD_INDEX, 503: BUSY}
    code = codes.get(failure.status, BAD_FORMAT)
    named = next((each for each, text in _SAID.items() if failure.message.startswith(text)), code)
    told = {
        "text": failure.message if code == BAD_FORMAT else _SAID[code],
        "code": named if code == BAD_FORMAT else code,
    }
    return Answer.json(told, failure.status, **failure.headers)


def _work(call: Call, by_table: Mapping[str, list[tuple[Any, ...]]], *, is_once: bool) -> Work:
    if not by_table:
        raise BadEvent(NO_DATA)
    loads = [
        Load(call.table(name), batch_of(EVENTS, list(zip(*rows, strict=True))), len(rows), EVENTS)
        for name, rows in by_table.items()
    ]
    has_channel = "x-splunk-request-channel" in call.headers or "channel" in call.query
    told = _told(SUCCESS) | ({"ackId": 0} if has_channel else {})
    return Work(loads, partial(lambda answer, outcomes: answer, Answer.json(told)), is_once=is_once)


def _told(code: int) -> dict[str, Any]:
    return {"text": _SAID[code], "code": code}


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise BadEvent(BAD_FORMAT, reason="it is not UTF-8") from error


def _objects(body: bytes) -> Iterator[dict[str, Any]]:
    """Yield the objects of a body, with or without space between them, or in a list."""
    lines = body.strip().split(b"\n")
    number = 0
    try:
        for line in lines:  # most send one a line, or one
            value = orjson.loads(line)
            for each in value if isinstance(value, list) else [value]:
                yield _object(each, number)
                number += 1
        return
    except orjson.JSONDecodeError:
        if not body.strip():
            return
    text = _text(body)
    at, passed = _SPACE.match(text).end(), 0  # type: ignore[union-attr]
    while at < len(text):
        try:
            value, at = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            raise BadEvent(BAD_FORMAT, number=passed) from error
        at = _SPACE.match(text, at).end()  # type: ignore[union-attr]
        for each in value if isinstance(value, list) else [value]:
            passed += 1
            if passed > number:
                yield _object(each, passed - 1)


def _object(value: Any, number: int) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadEvent(BAD_FORMAT, number=number)
    return value


def _row(event: Mapping[str, Any], number: int, call: Call) -> tuple[tuple[Any, ...], str, bool]:
    """Return an event as a row, the index it names, and whether it says its time."""
    if "event" not in event or event["event"] is None:
        raise BadEvent(NO_EVENT, number=number)
    value = event["event"]
    if value == "":
        raise BadEvent(BLANK_EVENT, number=number)
    fields = event.get("fields")
    if fields is not None and not isinstance(fields, dict):
        raise BadEvent(BAD_FORMAT, number=number, reason="fields is an object")
    told = [event.get(name, call.query.get(name)) for name in ("host", "source", "sourcetype")]
    is_text = isinstance(value, str)
    row = (
        _time(event.get("time"), number, call.received_us),
        *(None if each is None else str(each) for each in told),
        value if is_text else None,
        None if is_text else encode(value),
        encode(fields) if fields else None,
    )
    return row, str(event.get("index") or call.query.get("index", "")), event.get("time") is not None


def _time(value: Any, number: int, received_us: int) -> int:
    """Return the microseconds of seconds, as a number or in text."""
    if value is None:
        return received_us
    try:
        seconds = float(value)
    except (TypeError, ValueError) as error:
        raise BadEvent(BAD_FORMAT, number=number, time=str(value)[:40]) from error
    if isinstance(value, bool) or not math.isfinite(seconds) or abs(seconds) > 1e12:
        raise BadEvent(BAD_FORMAT, number=number, time=str(value)[:40])
    return microseconds(round(seconds * 1e6) * 1000)


_PREFIXES = ("/services/collector", "/services/collector/event", "/services/collector/event/1.0")

ROUTES = (
    *(Route(path, decode_events, refuse=refuse) for path in _PREFIXES),
    *(Route(path, decode_raw, refuse=refuse) for path in ("/services/collector/raw", "/services/collector/raw/1.0")),
    Route("/services/collector/ack", decode_acks, refuse=refuse),
    Route("/services/collector/health", decode_health, ("GET",), role="", refuse=refuse),
    Route("/services/collector/health/1.0", decode_health, ("GET",), role="", refuse=refuse),
)
