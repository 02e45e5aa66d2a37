"""Define what a protocol is: a decoder from a request to rows, and a writer of answers.

::

    bytes ──decode──▶ Work(loads, answer) ──staging──▶ outcomes ──answer──▶ Answer

A decoder is a pure function of a ``Call``; it may run in any thread, and several at once. It does not touch the lake.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import orjson
import pyarrow as pa

from tidelake.errors import TidelakeError
from tidelake.server.refusals import Failure, failure_of
from tidelake.write.append import AppendReport

Rows: TypeAlias = "bytes | memoryview | pa.RecordBatch | pa.Table"  # lines of JSON, or Arrow
Outcome: TypeAlias = "AppendReport | TidelakeError"

Unpack: TypeAlias = Callable[[bytes, int], "tuple[pa.Table, int]"]  # from a body, and the nanosecond it came in

JSON = "application/json"
ROLES = ("read", "write", "admin")


@dataclass(frozen=True, slots=True)
class Call:
    """One request, its body complete and decompressed. Names of headers are lower case."""

    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)
    path: Mapping[str, str] = field(default_factory=dict)  # the parts of the address that have names
    query: Mapping[str, str] = field(default_factory=dict)
    method: str = "POST"
    url_path: str = "/"
    namespace: str = "default"  # where tables go that name none
    received_us: int = 0

    @property
    def content_type(self) -> str:
        """The content type, without its parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    def table(self, name: str) -> str:
        """Return the full name of a table that may name its namespace."""
        return name if "." in name else f"{self.namespace}.{name}"


@dataclass(frozen=True, slots=True)
class Shape:
    """How a table is made for rows that a protocol knows: columns by name, and the time column."""

    columns: Mapping[str, str]
    time: str


@dataclass(frozen=True, slots=True)
class Packed:
    """A body whose rows are made when it is committed, because many small ones cost little more than one.

    ``together`` unpacks bodies that stand one after another, and may raise whatever it likes: then ``unpack`` does it
    body by body. What they give is the rows, and how many of the records that were counted are not among them.
    """

    body: bytes
    unpack: Unpack
    together: Unpack
    received_ns: int


@dataclass(frozen=True, slots=True)
class Load:
    """Rows for one table, and how it is made if it is not there; without a shape, to fit the rows.

    ``time`` says which of their columns is the time then, if the client does.
    """

    table: str
    rows: Rows | Packed
    count: int
    shape: Shape | None = None
    time: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What a client gets."""

    status: int = 200
    body: bytes = b""
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def json(cls, value: Any, status: int = 200, **headers: str) -> Answer:
        """Answer with JSON."""
        return cls(status, orjson.dumps(value), JSON, headers)


@dataclass(frozen=True, slots=True)
class Work:
    """What a request asks for: rows for tables, and how the outcomes, one for each load, are told."""

    loads: Sequence[Load]
    answer: Callable[[Sequence[Outcome]], Answer]
    is_once: bool = False  # the same body again means the same rows, whatever the route says: each has its own time


Decoder: TypeAlias = Callable[[Call], Work]
Refuser: TypeAlias = Callable[[Call, Failure], Answer]


def refuse(call: Call, failure: Failure) -> Answer:
    """Tell a failure in plain JSON."""
    return Answer.json({"error": failure.message, "kind": failure.kind}, failure.status, **failure.headers)


@dataclass(frozen=True, slots=True)
class Route:
    """One address of a protocol: who may use it, what decodes it, and how failures are told there."""

    path: str
    decode: Decoder
    methods: tuple[str, ...] = ("POST",)
    role: str = "write"  # what a token must allow; "" for what needs none: it has no body, and no rows
    refuse: Refuser = refuse
    is_once: bool = False  # clients send the same body again until they have an answer: its hash is its key
    encoding: str = ""  # of bodies whose header names none
    check: Callable[[Call], object] | None = None  # refuses by the head alone, before the body is decompressed
    errors_first: bool = True  # the first load that failed fails the request; else the answer tells


def first_error(outcomes: Sequence[Outcome]) -> TidelakeError | None:
    """Return the error to tell where one must stand for all: the one that is to be tried again, or else the first."""
    errors = [outcome for outcome in outcomes if isinstance(outcome, TidelakeError)]
    return next((error for error in errors if failure_of(error).is_temporary), errors[0] if errors else None)
