"""Read the pieces of a scan on a few threads, a bounded number of bytes ahead of the consumer, and in order.

It does not know what a piece is.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, islice
from typing import Generic, TypeVar

import pyarrow as pa

READ_THREADS = max(2, min(8, os.cpu_count() or 2))
MEMORY_BUDGET = 256 << 20  # bytes of blocks in memory ahead of the consumer, as stored


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Piece(Generic[T]):
    """A unit of reading: a block of an extent, or rows of some, or the hot rows, with the minimum of its times.

    What is quick is in memory, and takes less time than to hand it to a thread that competes for the interpreter.
    """

    read: Callable[[], T]
    byte_size: int
    first_ns: int | None = None
    is_quick: bool = False


def read_ahead(pieces: Iterable[Piece[T]]) -> Iterator[tuple[Piece[T], T]]:
    """Read pieces on a few threads, in order, never more than the memory budget ahead of the consumer.

    The consumer's own thread is one of them: while another reads the piece that is due, it reads one of the next.
    """
    due = iter(pieces)
    first_two = list(islice(due, 2))
    if len(first_two) <= 1:
        yield from ((piece, piece.read()) for piece in first_two)
        return
    waiting: deque[_Begun[T]] = deque()
    ahead = 0
    with ThreadPoolExecutor(READ_THREADS - 1, thread_name_prefix="tidelake-scan") as pool:
        try:
            for piece in chain(first_two, due):
                if piece.is_quick and not waiting:
                    yield piece, piece.read()
                    continue
                while waiting and (ahead + piece.byte_size > MEMORY_BUDGET or len(waiting) > 2 * READ_THREADS):
                    first = waiting.popleft()
                    ahead -= first.piece.byte_size
                    yield first.piece, first.batch(waiting)
                waiting.append(_Begun(piece, pool.submit(piece.read)))
                ahead += piece.byte_size
            while waiting:
                first = waiting.popleft()
                yield first.piece, first.batch(waiting)
        finally:
            for each in waiting:
                each.future.cancel()


def done_ahead(
    work: Callable[[pa.RecordBatch], pa.RecordBatch], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Do something to each batch on a few threads, in order, a few ahead of the consumer."""
    waiting: deque[Future[pa.RecordBatch]] = deque()
    with ThreadPoolExecutor(READ_THREADS, thread_name_prefix="tidelake-scan") as pool:
        try:
            for batch in batches:
                waiting.append(pool.submit(work, batch))
                if len(waiting) > READ_THREADS:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for each in waiting:
                each.cancel()


@dataclass(slots=True)
class _Begun(Generic[T]):
    """A piece that is being read, or will be."""

    piece: Piece[T]
    future: Future[T]

    def batch(self, others: Iterable[_Begun[T]]) -> T:
        """Return what was read. While somebody is at it, read those of the others that nobody has begun."""
        if self.future.cancel():
            return self.piece.read()
        for other in others:
            if self.future.done():
                break
            if other.future.cancel():
                other.read_now()
        return self.future.result()

    def read_now(self) -> None:
        """Read the piece here; an error is for whoever comes to need it."""
        self.future = Future()
        try:
            self.future.set_result(self.piece.read())
        except Exception as error:
            self.future.set_exception(error)
