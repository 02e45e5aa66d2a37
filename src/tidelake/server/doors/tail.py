"""Follow a table: rows that match a condition, as server-sent events, as soon as they are committed.

::

    id: 45
    event: rows
    data: {"snapshot":45,"rows":[{…},{…}]}

An event's id says how far the reader is: all that snapshots up to 45 brought, or with ``45:500`` also the first 500
rows that matched of what comes after. A reader that comes back with it (``Last-Event-ID``, or ``from``) gets what is
left, every row once. Nothing is kept for a reader: who reads slowly is held back, and goes on where it is; should the
snapshots that it has not seen expire meanwhile, the event ``missed`` says how many, and it goes on with what is there.

A snapshot that takes something away (a flush, a compaction, a deletion) brings no new rows and gives none. Of a table
with a key, the newest versions are given. It does not keep a question waiting for rows: each look is a question of its
own, in turn with others.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import cast

import orjson
import pyarrow as pa

from tidelake.errors import InvalidInputError
from tidelake.handle.table_handle import TableHandle
from tidelake.model.snapshot import Counts, Scope, Snapshot
from tidelake.query.json_rows import row_texts
from tidelake.query.result import Result
from tidelake.query.seen import View
from tidelake.query.session import Language
from tidelake.server.doors.base import About, Asked, Door, Streamed
from tidelake.server.question import Question
from tidelake.server.questions import Pipe
from tidelake.server.refusals import Busy

LOOK_S = 0.25  # between looks at a table that had nothing new
BEAT_S = 15.0  # without anything to say, that it is still there
EVENT_ROWS = 500
TOGETHER_ROWS = 2_000  # of small snapshots that are read at once, and told in one event
HEADERS = 500  # of snapshots that are looked at in one go
READERS = 256  # at once
CONDITION_CHARACTERS = 64 << 10

_ID = re.compile(r"(\d{1,18})(?::(\d{1,18}))?")


@dataclass(frozen=True, slots=True)
class Place:
    """How far a reader is: all of what snapshots up to one brought, and so many rows of what comes after."""

    snapshot: int
    taken: int = 0

    @classmethod
    def of(cls, text: str) -> Place:
        """Read an event's id."""
        found = _ID.fullmatch(text)
        if found is None:
            raise InvalidInputError("a place is a snapshot, or snapshot:rows", got=text[:40], kind="bad_parameter")
        return cls(int(found[1]), int(found[2] or 0))

    def __str__(self) -> str:
        return f"{self.snapshot}:{self.taken}" if self.taken else str(self.snapshot)


@dataclass(frozen=True, slots=True)
class Span:
    """Snapshots after one up to another that are read together, and whether they bring rows."""

    after: int
    upto: int
    rows: int


@dataclass(frozen=True, slots=True)
class Missed:
    """Snapshots that expired before they were read."""

    after: int
    upto: int


_readers = 0
_heads: dict[Scope, tuple[int, float]] = {}  # the newest snapshots of tables that are followed, and when that was


async def answer_tail(asked: Asked) -> Streamed:
    """Answer with rows as they are committed, for as long as the client listens."""
    told = asked.call.query
    if not told.get("table"):
        raise InvalidInputError("which table?", kind="bad_parameter")
    language = told.get("language", "kql")
    if language not in ("kql", "sql"):
        raise InvalidInputError("a condition is kql or sql", got=language[:40], kind="bad_parameter")
    table = await asked.questions.looked(asked.grant, lambda: asked.table(told["table"]))
    table.check_user_given()
    text = _text(table, told.get("query", "").strip(), language)
    head = await asked.questions.looked(asked.grant, lambda: table.snapshot)
    said = asked.call.headers.get("last-event-id") or told.get("from")
    place = Place(head.sequence) if not said else Place.of(said)
    if place.snapshot > head.sequence:
        raise InvalidInputError("the table has no such snapshot yet", snapshot=place.snapshot, kind="bad_parameter")
    follower = _Follower(asked, table, text, cast(Language, language))
    # A condition that is wrong is told before anything is answered.
    await asked.questions.whole(follower.question(head.sequence, head.sequence), lambda result: None)
    pieces = _followed(follower, place)
    return Streamed(pieces, "text/event-stream", {"cache-control": "no-store", "x-accel-buffering": "no"})


def _text(table: TableHandle, condition: str, language: str) -> str:
    """Return the question that the rows of a condition are; one that is more than a condition is refused."""
    if len(condition) > CONDITION_CHARACTERS or re.search(r"[|;]", _without_texts(condition)):
        raise InvalidInputError("a condition is one expression", kind="bad_parameter")
    name = table.info.name
    if language == "sql":
        return f"SELECT * FROM `{name}`" + (f" WHERE ({condition}\n)" if condition else "")
    return f"['{name}']" + (f" | where ({condition}\n)" if condition else "")


def _without_texts(condition: str) -> str:
    return re.sub(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", "", condition).replace("||", "")


@dataclass(frozen=True, slots=True)
class _Follower:
    """What is asked of each snapshot."""

    asked: Asked
    table: TableHandle
    text: str
    language: Language

    def question(self, after: int, upto: int) -> Question:
        """Return the question for the rows that the snapshots after one, up to another, brought."""
        view = View(snapshots={self.table.name: upto}, added=(after, upto))
        return self.asked.question(self.text, self.language, namespace=self.table.info.namespace, view=view)

    async def next(self, place: Place) -> Sequence[Span | Missed]:
        """Return what comes after a place; the catalog is asked once for all who follow a table."""
        scope, now_s = self.table.scope, time.monotonic()
        known, at_s = _heads.get(scope, (0, 0.0))
        if now_s - at_s < LOOK_S and known <= place.snapshot:
            return []
        _heads[scope] = (known, now_s)  # others wait for what this one finds
        head, found = await self.asked.questions.looked(self.asked.grant, lambda: _next(self.table, place))
        _heads[scope] = (head, time.monotonic())
        steps: Sequence[Span | Missed] = found
        return steps

    async def events(self, place: Place) -> AsyncGenerator[bytes, None]:
        """Yield events for ever."""
        yield b": following\nid: %s\n\n" % str(place).encode()
        beat_s = time.monotonic()
        while True:
            steps = await self.next(place)
            if not steps and time.monotonic() - beat_s > BEAT_S:
                yield b": still here\n\n"
                beat_s = time.monotonic()
            for step in steps:
                if isinstance(step, Missed):
                    told = orjson.dumps({"after": step.after, "snapshots": step.upto - step.after})
                    yield b"id: %d\nevent: missed\ndata: %s\n\n" % (step.upto, told)
                else:
                    if step.rows:
                        writer = _Writer(step, place.taken)
                        asking = self.asked.questions.answered(self.question(step.after, step.upto), writer.write)
                        async with asking as pieces:
                            async for piece in pieces:
                                yield piece
                    yield b"id: %d\n\n" % step.upto
                place, beat_s = Place(step.upto), time.monotonic()
            if not steps:
                await asyncio.sleep(LOOK_S)


@asynccontextmanager
async def _followed(follower: _Follower, place: Place) -> AsyncIterator[AsyncIterator[bytes]]:
    global _readers
    if _readers >= READERS:
        raise Busy("too many readers follow tables", readers=_readers)
    _readers += 1
    events = follower.events(place)
    try:
        yield events
    finally:
        _readers -= 1
        if not _readers:
            _heads.clear()
        await events.aclose()


@dataclass(frozen=True, slots=True)
class _Writer:
    """Writes the rows of some snapshots as events, but for those that were taken before.

    What several snapshots brought is one event: where in the midst of them a reader is, an id could not tell.
    """

    span: Span
    taken: int

    def write(self, result: Result, pipe: Pipe) -> None:
        rows = result.to_reader()
        if self.span.upto - self.span.after > 1:
            found = rows.read_all().combine_chunks().to_batches()
            for batch in found[:1]:
                self._event(batch, Place(self.span.upto), pipe)
            return
        taken = self.taken
        for batch in _cut(rows, self.taken):
            taken += batch.num_rows
            self._event(batch, Place(self.span.after, taken), pipe)

    def _event(self, batch: pa.RecordBatch, place: Place, pipe: Pipe) -> None:
        pipe.write(b'id: %s\nevent: rows\ndata: {"snapshot":%d,"rows":[' % (str(place).encode(), self.span.upto))
        rows = b"".join(bytes(each) for each in row_texts(batch, after=","))
        pipe.write(rows[:-1] + b"]}\n\n")


def _cut(rows: pa.RecordBatchReader, skip: int) -> Iterator[pa.RecordBatch]:
    """Yield rows in batches of one event each, without the first ones."""
    for batch in rows:
        passed = min(skip, batch.num_rows)
        skip -= passed
        for start in range(passed, batch.num_rows, EVENT_ROWS):
            yield batch.slice(start, EVENT_ROWS)


def _next(table: TableHandle, place: Place) -> tuple[int, Sequence[Span | Missed]]:
    """Return the newest snapshot, and what comes after a place: snapshots to read, and what cannot be read any more."""
    head = table.snapshot
    return head.sequence, _steps(table, place, head) if head.sequence > place.snapshot else []


def _steps(table: TableHandle, place: Place, head: Snapshot) -> Sequence[Span | Missed]:
    upto = min(head.sequence, place.snapshot + HEADERS)
    headers = table.catalog.history(table.scope, limit=HEADERS, before=upto + 1)
    found = [each for each in reversed(headers) if each.sequence > place.snapshot]
    missing = (found[0].sequence - 1 if found else upto) - place.snapshot
    if missing > 0:
        return [Missed(place.snapshot, place.snapshot + missing)]
    if place.taken:  # the rest of one that was begun
        return _spans(found[:1])
    return _spans(found)


def _spans(headers: Sequence[Snapshot]) -> list[Span]:
    """Put small snapshots together that bring rows, as far as nothing is taken away in between."""
    spans: list[Span] = []
    for header in headers:
        rows = 0 if header.removed != Counts() else header.added.rows + header.added.hot_rows
        if spans and _go_together(spans[-1].rows, rows):
            spans[-1] = replace(spans[-1], upto=header.sequence, rows=spans[-1].rows + rows)
        else:
            spans.append(Span(header.sequence - 1, header.sequence, rows))
    return spans


def _go_together(some: int, others: int) -> bool:
    return some == others == 0 or (some > 0 and others > 0 and some + others <= TOGETHER_ROWS)


DOORS = (
    Door(
        "/v1/tail",
        answer_tail,
        ("GET",),
        about=About(
            "New rows that match a condition, as server-sent events.",
            {
                "table": "which table",
                "query": "a condition, or nothing for all rows",
                "language": "kql or sql, of the condition",
                "from": "the snapshot, or the event's id, after which to begin; by default now",
            },
            answer="text/event-stream",
        ),
    ),
)
