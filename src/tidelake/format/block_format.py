"""Make readers and writers of a format whose extents are cut into blocks.

All formats open, reopen and begin extents alike; they differ in their reader and in how they encode blocks. It does not
know any of them.
"""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidelake.errors import CorruptExtent, NotFoundError
from tidelake.format.frame import UNREADABLE
from tidelake.format.segment import ExtentReader, WriteOptions, reason_of
from tidelake.model.schema import Schema
from tidelake.objects import ObjectSink, ObjectStore

if TYPE_CHECKING:
    from tidelake.format.writing import BlockWriter, Encode


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """A format: its names, its reader (made with what a ticket holds, to go on from one) and its ``encode``."""

    name: str
    suffix: str
    reader: Callable[..., ExtentReader]
    encode: Encode
    keeps_paths: bool = False
    knows_words: bool = False  # whether its encoding begins the statistics of texts

    def open_extent(self, store: ObjectStore, key: str) -> ExtentReader:
        return self.reader(store, key)

    def reopen(self, store: ObjectStore, key: str, ticket: bytes) -> ExtentReader:
        return self.reader(store, key, pickle.loads(ticket))

    def start_extent(
        self, store: ObjectSink, key: str, schema: Schema, *, extent_id: str, options: WriteOptions | None = None
    ) -> BlockWriter:
        from tidelake.format.writing import BlockWriter  # brings compiled code, which reading does without

        return BlockWriter(
            store,
            key,
            schema,
            extent_id=extent_id,
            options=options,
            encode=self.encode,
            knows_words=self.knows_words,
        )


@contextmanager
def opening(key: str) -> Iterator[None]:
    """Call whatever a footer's bytes raise CorruptExtent, naming the object and the reason."""
    try:
        yield
    except NotFoundError:  # which is a KeyError too, but says nothing of bytes
        raise
    except (*UNREADABLE, struct.error, OverflowError, RecursionError) as error:
        raise CorruptExtent("not a readable extent", object=key, reason=reason_of(error)) from error
