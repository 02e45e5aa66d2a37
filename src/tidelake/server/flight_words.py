"""Read and word the messages of Flight SQL: commands, handles and tickets, and facts about the server.

A handle of a statement is the statement itself, signed by nobody: it names nothing that its client could not ask for.
It does not ask anything: see ``flight``.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from tidelake.errors import InvalidInputError
from tidelake.query.seen import View
from tidelake.server.protocols.protobuf import Field, Message

MAX_PARTS = 64
PREFIX = "type.googleapis.com/arrow.flight.protocol.sql."
MAX_COMMAND_BYTES = 1 << 20
SQL_INFO: dict[int, str | bool | int] = {
    0: "tidelake",  # the server's name
    1: "1.0",
    2: pa.__version__,  # of Arrow
    3: False,  # read only
    4: True,  # SQL
    5: False,  # Substrait
    8: 0,  # transactions: none
    500: False,  # CREATE CATALOG
    501: False,
    502: False,
    503: 1,  # names without quotes: any case
    504: "`",
    505: 1,
}

NAMED = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*(\.[A-Za-z_][A-Za-z0-9_-]*)?")


def command(data: bytes) -> tuple[str, list[Field]]:
    """Return the name and the fields of a command."""
    if len(data) > MAX_COMMAND_BYTES:
        raise InvalidInputError("the command is too large", limit_bytes=MAX_COMMAND_BYTES, kind="too_large")
    parts = {field.number: field for field in Message(bytes(data)).fields()}
    if 1 not in parts or not parts[1].text().startswith(PREFIX):
        raise InvalidInputError("this is no command of Flight SQL", kind="bad_command")
    inner = list(parts[2].fields()) if 2 in parts else []
    return parts[1].text().removeprefix(PREFIX), inner


def named(path: Any) -> tuple[str, list[Field]]:
    """Return the command for the rows of a table that a path names."""
    name = ".".join(part.decode() for part in path or ())
    return "", list(Message(message({1: name.encode()})).fields())


def text_in(fields: list[Field], number: int) -> str:
    """Return the text of a field, by its number; nothing if it is not there."""
    return next((each.text() for each in fields if each.number == number), "")


def pattern(text: str, *, has: int, fields: list[Field]) -> Callable[[str], bool]:
    """Return a test for names that are LIKE a pattern; all are, where there is none."""
    if not any(each.number == has for each in fields):
        return lambda name: True
    return lambda name: is_like(name, text)


def is_like(name: str, text: str) -> bool:
    """Return whether a name is LIKE a pattern, in no more steps than the product of their lengths."""
    at, next_at, anything, resumed = 0, 0, -1, 0
    while at < len(name):
        if next_at < len(text) and text[next_at] == "%":
            anything, resumed = next_at, at
            next_at += 1
        elif next_at < len(text) and text[next_at] in ("_", name[at]):
            at, next_at = at + 1, next_at + 1
        elif anything >= 0:  # one more character is for the last %
            resumed += 1
            at, next_at = resumed, anything + 1
        else:
            return False
    return not text[next_at:].strip("%")


def quoted(name: str) -> str:
    """Return a table's name as SQL writes it."""
    if not NAMED.fullmatch(name):
        raise InvalidInputError("not a table's name", table=name[:80], kind="bad_name")
    return ".".join(f"`{part}`" for part in name.split("."))


def handle(told: Mapping[str, Any]) -> bytes:
    """Return a handle that is the question itself: any server of the lake can answer it."""
    return base64.urlsafe_b64encode(json.dumps(dict(told)).encode())


def told_by(text: str) -> dict[str, Any]:
    """Return the question that a handle is: its text, and perhaps snapshots of its tables and which part is meant.

    Of a prepared statement that has values it has the text without them, too: values may be given again.
    """
    try:
        told = json.loads(base64.urlsafe_b64decode(text))
    except (ValueError, binascii.Error):
        told = None
    if not isinstance(told, dict) or set(told) - {"sql", "prepared", "at", "part"}:
        told = {}
    texts = (told.get("sql"), told.get("prepared", ""))
    if not all(isinstance(each, str) for each in texts):
        raise InvalidInputError("no statement has this handle", kind="bad_handle")
    return told


def view_of(told: Mapping[str, Any]) -> View:
    """Return which snapshots, and which part, a handle means."""
    at, part = told.get("at", {}), told.get("part")
    is_at = isinstance(at, dict) and all(type(each) is int and 0 <= each < 2**62 for each in at.values())
    is_part = part is None or (
        isinstance(part, list)
        and len(part) == 2
        and all(type(each) is int for each in part)
        and 0 <= part[0] < part[1] <= MAX_PARTS
    )
    if not is_at or not is_part:
        raise InvalidInputError("no statement has this handle", kind="bad_handle")
    return View(snapshots={str(name): each for name, each in at.items()}, part=None if part is None else tuple(part))


def varint_field(number: int, value: int) -> bytes:
    """Return a field that is a number."""
    return bytes(varint(number << 3)) + bytes(varint(value))


def varint(value: int) -> list[int]:
    """Return a number as the wire has it."""
    out = []
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return [*out, value]


def message(fields: dict[int, bytes]) -> bytes:
    """Return a message of fields by their numbers."""
    return b"".join(bytes(varint(n << 3 | 2)) + bytes(varint(len(data))) + data for n, data in fields.items())


def wrapped(name: str, data: bytes) -> bytes:
    """Return a message with its name."""
    return message({1: f"{PREFIX}{name}".encode(), 2: data})


def schema_bytes(schema: pa.Schema) -> bytes:
    """Return a schema as the wire has it."""
    return bytes(schema.serialize())


def sql_info(told: dict[int, str | bool | int]) -> pa.Table:
    """Return facts about the server as the protocol has them: a number and a value of one of several types."""
    texts = [value for value in told.values() if isinstance(value, str)]
    truths = [value for value in told.values() if isinstance(value, bool)]
    numbers = [value for value in told.values() if isinstance(value, int) and not isinstance(value, bool)]
    kinds, offsets, seen = [], [], {0: 0, 1: 0, 2: 0}
    for value in told.values():
        kind = 0 if isinstance(value, str) else 1 if isinstance(value, bool) else 2
        kinds.append(kind)
        offsets.append(seen[kind])
        seen[kind] += 1
    children = [
        pa.array(texts, pa.string()),
        pa.array(truths, pa.bool_()),
        pa.array(numbers, pa.int64()),
        pa.array([], pa.int32()),
        pa.array([], pa.list_(pa.string())),
        pa.array([], pa.map_(pa.int32(), pa.list_(pa.int32()))),
    ]
    names = ["string_value", "bool_value", "bigint_value", "int32_bitmask", "string_list", "int32_to_int32_list_map"]
    values = pa.UnionArray.from_dense(pa.array(kinds, pa.int8()), pa.array(offsets, pa.int32()), children, names)
    return pa.table({"info_name": pa.array(list(told), pa.uint32()), "value": values})
