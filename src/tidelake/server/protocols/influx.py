"""Take points in Influx's line protocol: ``/api/v2/write``, ``/api/v3/write_lp``, and ``/write`` of the first version.

A measurement is a table, in the namespace that the bucket or database names; tags are text columns, fields are columns
of their types, the time is ``time``. Points without a time get the one they came at. A line that cannot be read refuses
the body, and nothing of it goes in; in the third version the other lines do (``accept_partial``), and it is told which
did not. It does not answer InfluxQL or Flux.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from tidelake.errors import InvalidInputError
from tidelake.server.call import Answer, Call, Load, Outcome, Route, Work
from tidelake.server.protocols.columns import INSTANT, loose_column, microseconds
from tidelake.server.protocols.naming import table_name
from tidelake.server.refusals import Failure

TIME = "time"
MAX_SHOWN = 20  # lines that are told as wrong
_PRECISIONS = {
    **dict.fromkeys(("ns", "n", "nanosecond", ""), 1),
    **dict.fromkeys(("us", "u", "µ", "microsecond"), 1_000),
    **dict.fromkeys(("ms", "millisecond"), 1_000_000),
    **dict.fromkeys(("s", "second"), 1_000_000_000),
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_KEY = r"(?:[^\\,= ]|\\.)+"
_TAG = re.compile(rf",({_KEY})=({_KEY})")
_HEAD = re.compile(rf"((?:[^\\, ]|\\.)+)((?:,{_KEY}={_KEY})*) +")
_FIELD = re.compile(rf'({_KEY})=("(?:[^"\\]|\\.)*"|[^ ,"]+)(,|(?= |$))')
_TIME = re.compile(r" *(-?\d{1,20})? *")
_ESCAPED = re.compile(r"\\([,= ])")
_QUOTED = re.compile(r'\\(["\\])')
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_TRUTHS = {
    **dict.fromkeys(("t", "T", "true", "True", "TRUE"), True),
    **dict.fromkeys(("f", "F", "false", "False", "FALSE"), False),
}


class _Wrong(Exception):
    """A line that cannot be read, and why."""


@dataclass(slots=True)
class _Table:
    """The points of one measurement."""

    times: list[int] = field(default_factory=list)
    values: dict[str, list[Any]] = field(default_factory=dict)

    def add(self, at_us: int, point: Mapping[str, Any]) -> None:
        for name, value in point.items():
            held = self.values.setdefault(name, [])
            held.extend([None] * (len(self.times) - len(held)))
            held.append(value)
        self.times.append(at_us)

    def rows(self) -> pa.RecordBatch:
        columns = [(pa.field(TIME, INSTANT), pa.array(self.times, INSTANT))]
        for name, values in self.values.items():
            columns.append(loose_column(name, values + [None] * (len(self.times) - len(values))))
        return pa.record_batch([array for _, array in columns], schema=pa.schema([each for each, _ in columns]))


def decode_lines(call: Call, *, may_be_partial: bool = False) -> Work:
    """Decode lines of points."""
    unit = _PRECISIONS.get(call.query.get("precision", ""))
    if unit is None:
        raise InvalidInputError("the precision is not known", precision=call.query["precision"][:20], kind="bad_option")
    try:
        lines = call.body.decode().split("\n")
    except UnicodeDecodeError as error:
        raise InvalidInputError("the lines are not UTF-8", kind="bad_body") from error
    partial_wanted = may_be_partial and call.query.get("accept_partial", "true").lower() != "false"
    tables, wrong, are_timed = dict[str, _Table](), list[dict[str, Any]](), True
    for number, line in enumerate(lines, 1):
        line = line.strip("\r")
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        try:
            measurement, point, at = parse_line(line.lstrip())
            at_us = call.received_us if at is None else microseconds(at * unit)
        except (_Wrong, InvalidInputError) as error:
            wrong.append({"original_line": line[:100], "line_number": number, "error_message": str(error)})
            continue
        are_timed = are_timed and at is not None
        tables.setdefault(table_name(measurement, "points"), _Table()).add(at_us, point)
    if wrong and not (partial_wanted and tables):
        first = wrong[0]
        raise InvalidInputError(
            f"unable to parse: {first['error_message']}", line=first["line_number"], text=first["original_line"],
            wrong_lines=len(wrong), kind="bad_line",
        )  # fmt: skip
    place = call.query.get("bucket") or call.query.get("db") or ""
    prefix = f"{table_name(place.partition('/')[0], '')}." if place else ""
    loads = [Load(call.table(f"{prefix}{name}"), table.rows(), len(table.times)) for name, table in tables.items()]
    return Work(loads, partial(_answer, wrong), is_once=are_timed)


def parse_line(line: str) -> tuple[str, dict[str, Any], int | None]:
    """Read one point: its measurement, its tags and fields, and its time if it has one."""
    head = _HEAD.match(line)
    if head is None:
        raise _Wrong("expected a measurement, tags and fields")
    point: dict[str, Any] = {}
    for tag in _TAG.finditer(head[2]):
        point[_plain(tag[1])] = _plain(tag[2])
    at, is_more = head.end(), True
    while is_more:
        found = _FIELD.match(line, at)
        if found is None:
            raise _Wrong(f"expected a field at column {at + 1}")
        name = _plain(found[1])
        if name == TIME:
            raise _Wrong("a field cannot be called time")
        point[name] = _value(found[2])
        at, is_more = found.end(), found[3] == ","
    end = _TIME.fullmatch(line, at)
    if end is None:
        raise _Wrong(f"expected a time at column {at + 1}")
    point.pop(TIME, None)
    return _plain(head[1]), point, None if end[1] is None else int(end[1])


def _plain(text: str) -> str:
    return _ESCAPED.sub(r"\1", text) if "\\" in text else text


def _value(text: str) -> Any:
    if text.startswith('"'):
        return _QUOTED.sub(r"\1", text[1:-1]) if "\\" in text else text[1:-1]
    if text in _TRUTHS:
        return _TRUTHS[text]
    if text[-1] in "iu":
        digits = text[:-1]
        if digits.lstrip("+-").isdigit() and len(digits) <= 20:
            number = int(digits)
            if (text[-1] == "i" and -(2**63) <= number < 2**63) or (text[-1] == "u" and 0 <= number < 2**64):
                return number
        raise _Wrong(f"{text[:40]!r} is not a whole number that fits")
    if not _NUMBER.fullmatch(text):
        raise _Wrong(f"{text[:40]!r} is not a value")
    return float(text)


def refuse(call: Call, failure: Failure) -> Answer:
    """Tell a failure as Influx does."""
    codes = {401: "unauthorized", 403: "forbidden", 404: "not found", 413: "request too large", 503: "unavailable"}
    told = {"code": codes.get(failure.status, "invalid"), "message": failure.message}
    return Answer.json({**told, "error": failure.message}, failure.status, **failure.headers)


def _answer(wrong: Sequence[Mapping[str, Any]], outcomes: Sequence[Outcome]) -> Answer:
    if not wrong:
        return Answer(204)
    return Answer.json({"error": "partial write of line protocol occurred", "data": list(wrong[:MAX_SHOWN])}, 400)


def decode_ping(call: Call) -> Work:
    """Answer that there is somebody."""
    return Work([], lambda outcomes: Answer(204, headers={"x-influxdb-version": "tidelake", "x-influxdb-build": "OSS"}))


ROUTES = (
    Route("/write", decode_lines, refuse=refuse),
    Route("/api/v2/write", decode_lines, refuse=refuse),
    Route("/api/v3/write_lp", partial(decode_lines, may_be_partial=True), refuse=refuse),
    Route("/ping", decode_ping, ("GET", "HEAD"), role="", refuse=refuse),
)
