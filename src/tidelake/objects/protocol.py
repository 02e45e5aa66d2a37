"""Define which verbs a store has, and check what every store is given.

A write is whole or absent, and durable once it returns; ``put_if_absent`` has one winner. A StorageError from a write
means that its outcome is not known: look before acting. AlreadyExistsError is always about another's write: a
conditional put that may have been done is not sent again. It does not know where bytes are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Protocol, TypeAlias

from tidelake.errors import AlreadyExistsError, InvalidInputError, NotFoundError, StorageError
from tidelake.objects.keys import check_key

if TYPE_CHECKING:
    import pyarrow as pa

Data: TypeAlias = "bytes | bytearray | memoryview | pa.Buffer"
Buffers: TypeAlias = "list[pa.Buffer]"
Range: TypeAlias = tuple[int, int]  # start, length

MAX_OFFSET = 2**63 - 1
DEADLINE_S = 60.0  # by which a call ends if a store or a catalog stops answering, unless told otherwise
ACCEPTED = "a folder, file:///folder, memory://, memory://name, s3://bucket, s3://bucket/prefix"  # places of stores
PAST_THE_END = "asked for bytes past the end of the object"


@dataclass(frozen=True, slots=True)
class ObjectMeta:
    """What a store knows of an object without reading it."""

    key: str
    size: int
    modified: datetime


@dataclass(frozen=True, slots=True)
class Tail:
    """The last bytes of an object, and how large the whole object is."""

    data: pa.Buffer
    size: int


class ObjectSink(Protocol):
    """What takes objects."""

    def put(self, key: str, data: Data) -> None:
        """Write an object."""


class ObjectStore(Protocol):
    """The verbs every store has; a missing key is a NotFoundError, a bad one an InvalidInputError."""

    url: str  # where the store is, as ``open_store`` takes it; without credentials

    def get(self, key: str) -> pa.Buffer:
        """Read a whole object."""

    def get_range(self, key: str, start: int, length: int) -> pa.Buffer:
        """Read exactly these bytes; past the end is a StorageError of kind ``short_read``."""

    def get_ranges(self, key: str, ranges: Sequence[Range]) -> Buffers:
        """Read several ``(start, length)`` at once, near ones together; an empty range asks nothing of the store."""

    def get_tail(self, key: str, length: int) -> Tail:
        """Read the last bytes in one request; all of them if the object is shorter."""

    def head(self, key: str) -> ObjectMeta:
        """Return size and time of an object."""

    def put(self, key: str, data: Data) -> None:
        """Write an object, in place of any other."""

    def put_if_absent(self, key: str, data: Data) -> None:
        """Write an object only if there is none; else AlreadyExistsError."""

    def list(self, prefix: str = "") -> Iterator[ObjectMeta]:
        """Yield all objects below a folder, at any depth, in the order of their keys.

        ``a`` is the folder of ``a/x`` and not of ``ab/x``. A folder store reads one folder at a time; a bucket's keys
        are collected first, because servers differ in their order.
        """

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects; one that is not there is fine."""


def missing(key: str, url: str) -> NotFoundError:
    """Return that there is no such object."""
    return NotFoundError("no such object", key=key, store=url)


def taken(key: str, url: str) -> AlreadyExistsError:
    """Return that another's object has the key."""
    return AlreadyExistsError("the key is taken", key=key, store=url)


def short(key: str, url: str) -> StorageError:
    """Return that an object ends before what was asked."""
    return StorageError(PAST_THE_END, kind="short_read", key=key, store=url)


def check_prefix(prefix: str) -> None:
    """Refuse what is no folder of keys; nothing is all of them."""
    if prefix:
        check_key(prefix)


def check_ranges(key: str, ranges: Sequence[Range], url: str) -> None:
    """Refuse ranges that no object can have."""
    check_key(key)
    for start, length in ranges:
        if start < 0 or length < 0:
            raise InvalidInputError("a range begins at 0 or later and is not negative", start=start, length=length)
        if start + length > MAX_OFFSET:
            raise short(key, url)


def check_tail(key: str, length: int) -> None:
    """Refuse a tail of nothing."""
    check_key(key)
    if not 0 < length <= MAX_OFFSET:
        raise InvalidInputError("a tail has at least one byte", length=length)


def view_of(data: Data) -> memoryview:
    """Return data as plain bytes, without a copy."""
    return memoryview(data).cast("B")
