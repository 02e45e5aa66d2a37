"""Read syslog messages, RFC 5424 and RFC 3164, as rows of ``syslog``.

A message that is neither is kept whole, as the text of a row with the time it came: what a machine says when it breaks
is not thrown away for its form. Times of RFC 3164 have no year and no zone: the year is the one that puts them nearest
to when they came, the zone is UTC unless told. It does not listen: see ``server.syslog``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any

import pyarrow as pa

from tidelake.dynamic.values import encode
from tidelake.server.call import Shape
from tidelake.server.protocols.columns import batch_of

MESSAGES = Shape(
    {
        "ts": "timestamp",
        "severity": "string",
        "facility": "string",
        "host": "string",
        "app": "string",
        "process": "string",
        "message_id": "string",
        "message": "string",
        "data": "dynamic",
        "sender": "string",
    },
    "ts",
)
SEVERITIES = ("emergency", "alert", "critical", "error", "warning", "notice", "info", "debug")
FACILITIES = (
    "kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp", "ntp",
    "audit", "alert", "clock", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
)  # fmt: skip
MAX_PRIORITY = 191

_PRIORITY = re.compile(r"<(\d{1,3})>")
_NEW = re.compile(r"1 (\S+) (\S+) (\S+) (\S+) (\S+) (-|(?:\[(?:[^\]\\]|\\.)*\])+)(?: (.*))?", re.DOTALL)
_OLD = re.compile(
    r"(?:(?P<stamp>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d)|(?P<iso>\d{4}-\d\d-\d\dT\S+)) (?P<rest>.*)", re.DOTALL
)
_HOSTED = re.compile(r"(?P<host>\S+) (?P<rest>.*)", re.DOTALL)
_TAGGED = re.compile(r"(?P<app>[^\s:\[\]]{1,64})(?:\[(?P<process>[^\]]{0,64})\])?: ?(?P<rest>.*)", re.DOTALL)
_ELEMENT = re.compile(r"\[([^\s\]=\"]+)((?: [^\s\]=\"]+=\"(?:[^\"\\\]]|\\.)*\")*)\]")
_PARAMETER = re.compile(r" ([^\s\]=\"]+)=\"((?:[^\"\\\]]|\\.)*)\"")
_ESCAPED = re.compile(r"\\([\"\\\]])")
_BOM = "\ufeff"


def rows_of(messages: Sequence[tuple[bytes, str]], received_us: int, zone: tzinfo = UTC) -> pa.RecordBatch:
    """Return messages, each with who sent it, as rows."""
    rows = [_row(data, sender, received_us, zone) for data, sender in messages]
    return batch_of(MESSAGES, list(zip(*rows, strict=True)))


def _row(data: bytes, sender: str, received_us: int, zone: tzinfo) -> tuple[Any, ...]:
    text = data.decode(errors="replace").strip("\r\n\0")
    severity = facility = None
    priority = _PRIORITY.match(text)
    if priority and int(priority[1]) <= MAX_PRIORITY:
        number = int(priority[1])
        severity, facility = SEVERITIES[number & 7], FACILITIES[number >> 3]
        text = text[priority.end() :]
    found = _new(text) or _old(text, received_us, zone)
    if found is None:
        return received_us, severity, facility, None, None, None, None, text, None, sender
    at_us, host, app, process, message_id, message, told = found
    return at_us or received_us, severity, facility, host, app, process, message_id, message, told, sender


def _new(text: str) -> tuple[Any, ...] | None:
    """Read a message of RFC 5424."""
    found = _NEW.fullmatch(text)
    if found is None:
        return None
    stamp, *named, elements, message = found.groups()
    at_us = None if stamp == "-" else _instant(stamp)
    if stamp != "-" and at_us is None:
        return None
    told = _elements(elements)
    host, app, process, message_id = (None if each == "-" else each for each in named)
    text = (message or "").removeprefix(_BOM)
    return at_us, host, app, process, message_id, text, encode(told) if told else None


def _elements(text: str) -> dict[str, dict[str, str]]:
    return {
        element[1]: {each[1]: _ESCAPED.sub(r"\1", each[2]) for each in _PARAMETER.finditer(element[2])}
        for element in _ELEMENT.finditer(text)
    }


def _old(text: str, received_us: int, zone: tzinfo) -> tuple[Any, ...] | None:
    """Read a message of RFC 3164, as daemons write it."""
    found = _OLD.fullmatch(text)
    if found is None:
        return None
    at_us = _instant(found["iso"]) if found["iso"] else _without_year(found["stamp"], received_us, zone)
    if at_us is None:
        return None
    rest, host = found["rest"], None
    if (tagged := _TAGGED.fullmatch(rest)) is None and (hosted := _HOSTED.fullmatch(rest)):
        host, rest = hosted["host"], hosted["rest"]
        tagged = _TAGGED.fullmatch(rest)
    if tagged is None:
        return at_us, host, None, None, None, rest, None
    return at_us, host, tagged["app"], tagged["process"], None, tagged["rest"], None


def _instant(text: str) -> int | None:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return _microseconds(at if at.tzinfo else at.replace(tzinfo=UTC))


def _without_year(stamp: str, received_us: int, zone: tzinfo) -> int | None:
    """Return the time of a day without a year: in the year that puts it nearest to when it came."""
    came = datetime.fromtimestamp(received_us / 1e6, zone)
    nearest = None
    for year in (came.year - 1, came.year, came.year + 1):
        try:
            at = datetime.strptime(f"{year} {stamp}", "%Y %b %d %H:%M:%S").replace(tzinfo=zone)
        except ValueError:  # no such day in that year
            continue
        if nearest is None or abs(at - came) < abs(nearest - came):
            nearest = at
    return None if nearest is None else _microseconds(nearest)


def _microseconds(at: datetime) -> int:
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
