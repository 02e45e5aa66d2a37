"""Gather rows for each table, commit what arrives together, and answer everybody once that is durable.

Each table, or user of a table, has a lane. What waits in it is committed as one group::

    at once         while nobody else is committed, and the last group was of few requests
    after linger    else, so that many small requests share a commit; 100 ms unless told otherwise
    when full       as soon as a group has the bytes for an extent of its own

A lane commits up to two groups at a time, in threads; what arrives meanwhile waits for the next. Everything here but
the commits themselves happens in the event loop's thread, so there are no locks. A commit that fails fails its own
requests only; but where the catalog or the store is away, what waits in the lane is told so too, and nobody waits for
longer than one deadline. Whoever sends again finds the lane as it was. It does not know protocols.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from typing import NamedTuple

from tidelake.errors import (
    AlreadyExistsError,
    CommitUnknownError,
    NotFoundError,
    StorageError,
    TidelakeError,
    UnavailableError,
)
from tidelake.handle.lake_handle import LakeHandle
from tidelake.handle.table_handle import TableHandle
from tidelake.ingest import ReadOptions
from tidelake.model.settings import SHARED, USER
from tidelake.model.snapshot import RecordOffset
from tidelake.server.call import Load, Outcome, Packed, Rows, first_error
from tidelake.server.memory import Budget
from tidelake.server.meters import Meters
from tidelake.write.create import create_table
from tidelake.write.ingest import ingest
from tidelake.write.together import Offer, append_together

LINGER_S = 0.1
# Of what waits, and it is committed at once. More makes larger extents, which take a little less of the processor; but
# whoever waits for a full one leaves a core idle and waits longer: two groups of this size keep two cores busy.
GROUP_BYTES = 12 << 20
MAX_GROUP_BYTES = 96 << 20  # of one commit
MAX_GROUP_REQUESTS = 4096
JOINED_BYTES = 8 << 20  # of bodies that are unpacked by one call: more is no faster, and takes memory
FEW = 4  # requests of a group after which the next does not wait for company
AT_ONCE = 2  # groups of a lane that are committed at the same time
THREADS = 16  # that commit, of all lanes
LANES_KEPT = 4096  # that are idle


class Place(NamedTuple):
    """A table by its full name, and whose, where each user has one."""

    table: str
    user: str | None = None


@dataclass(slots=True, eq=False)
class _Ticket:
    load: Load
    key: str | None
    size: int
    offsets: tuple[RecordOffset, ...]
    answered: asyncio.Future[Outcome]
    since_s: float

    def offer(self, rows: Rows, count: int) -> Offer:
        return Offer(rows, count, self.key, self.offsets)


@dataclass(slots=True, eq=False)
class _Lane:
    place: Place
    waiting: deque[_Ticket] = field(default_factory=deque)
    waiting_bytes: int = 0
    running: int = 0
    last_requests: int = 0  # of the newest group
    timer: asyncio.TimerHandle | None = None


class Staging:
    """Rows on their way into a lake. It belongs to the thread of an event loop."""

    def __init__(
        self, lake: LakeHandle, budget: Budget, meters: Meters, *, linger_s: float = LINGER_S, creates: bool = True
    ) -> None:
        self._lake, self._budget, self._meters = lake, budget, meters
        self._linger_s, self._creates = linger_s, creates
        self._lanes: dict[Place, _Lane] = {}
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="tidelake-commit")
        self._is_closing = False

    def offer(
        self,
        place: Place,
        load: Load,
        *,
        key: str | None = None,
        size: int = 0,
        offsets: Sequence[RecordOffset] = (),
    ) -> asyncio.Future[Outcome]:
        """Have rows committed; the future has the outcome once it is known. Raises Busy if there is no room."""
        if self._is_closing:
            raise UnavailableError("the server is stopping", kind="stopping")
        loop = asyncio.get_running_loop()
        lane = self._lanes.get(place)
        if lane is None:
            if len(self._lanes) >= LANES_KEPT:
                self._lanes = {at: each for at, each in self._lanes.items() if each.running or each.waiting}
            lane = self._lanes[place] = _Lane(place)
        self._budget.take_for(place, size)
        ticket = _Ticket(load, key, size, tuple(offsets), loop.create_future(), time.monotonic())
        lane.waiting.append(ticket)
        lane.waiting_bytes += size
        self._see_to(lane, loop)
        return ticket.answered

    async def drain(self) -> None:
        """Take nothing more, and wait until everything that was taken is answered."""
        self._is_closing = True
        loop = asyncio.get_running_loop()
        for lane in list(self._lanes.values()):
            self._see_to(lane, loop)
        while any(lane.running or lane.waiting for lane in self._lanes.values()):
            await asyncio.sleep(0.005)
        await loop.run_in_executor(None, self._threads.shutdown)

    def _see_to(self, lane: _Lane, loop: asyncio.AbstractEventLoop) -> None:
        """Commit what waits in a lane, now or a little later."""
        if not lane.waiting:
            return
        is_full = lane.waiting_bytes >= GROUP_BYTES or len(lane.waiting) >= MAX_GROUP_REQUESTS
        is_due = self._is_closing or time.monotonic() - lane.waiting[0].since_s >= self._linger_s
        if (is_full or is_due) and lane.running < AT_ONCE:
            self._start(lane, loop)
        elif lane.timer is None and lane.running < AT_ONCE:
            alone = not lane.running and lane.last_requests <= FEW
            lane.timer = loop.call_later(0.0 if alone else self._linger_s, self._wake, lane, loop)

    def _wake(self, lane: _Lane, loop: asyncio.AbstractEventLoop) -> None:
        lane.timer = None
        if lane.waiting and lane.running < AT_ONCE:
            self._start(lane, loop)

    def _start(self, lane: _Lane, loop: asyncio.AbstractEventLoop) -> None:
        if lane.timer is not None:
            lane.timer.cancel()
            lane.timer = None
        group, size = [lane.waiting.popleft()], 0
        size = group[0].size
        while lane.waiting and len(group) < MAX_GROUP_REQUESTS and size + lane.waiting[0].size <= MAX_GROUP_BYTES:
            group.append(lane.waiting.popleft())
            size += group[-1].size
        lane.waiting_bytes -= size
        lane.running += 1
        lane.last_requests = len(group)
        loop.create_task(self._commit(lane, group, size, loop))

    async def _commit(self, lane: _Lane, group: list[_Ticket], size: int, loop: asyncio.AbstractEventLoop) -> None:
        began_s = time.monotonic()
        try:
            outcomes = await loop.run_in_executor(self._threads, self._committed, lane.place, group)
        except TidelakeError as error:
            outcomes = [error] * len(group)
        except Exception as error:  # a defect: whoever waits must hear of it, and the lane goes on
            self._meters.defect("commit", error)
            outcomes = [UnavailableError("the rows could not be stored", kind="defect")] * len(group)
        finally:
            lane.running -= 1
        for ticket, outcome in zip(group, outcomes, strict=True):
            self._budget.give_for(lane.place, ticket.size)
            if not ticket.answered.done():
                ticket.answered.set_result(outcome)
        self._meters.committed(lane.place.table, outcomes, size, time.monotonic() - began_s)
        if all(isinstance(outcome, StorageError | CommitUnknownError) for outcome in outcomes):
            self._refuse_waiting(lane, first_error(outcomes))
        self._see_to(lane, loop)

    def _refuse_waiting(self, lane: _Lane, away: TidelakeError | None) -> None:
        """Tell what waits behind a group that could not be stored the same, and not after a deadline of its own."""
        kind = "away" if away is None else away.kind
        self._meters.not_tried(kind, len(lane.waiting))
        while lane.waiting:
            ticket = lane.waiting.popleft()
            self._budget.give_for(lane.place, ticket.size)
            if not ticket.answered.done():
                ticket.answered.set_result(UnavailableError("the rows before these could not be stored", kind=kind))
        lane.waiting_bytes = 0

    def _committed(self, place: Place, group: Sequence[_Ticket]) -> list[Outcome]:
        """Commit a group, in a thread; what cannot be unpacked is answered, and the others go in."""
        offers = unpacked(group)
        good = [at for at, offer in enumerate(offers) if isinstance(offer, Offer)]
        stored = iter(self._stored(place, [(group[at], offers[at]) for at in good]) if good else [])  # type: ignore[misc]
        return [next(stored) if isinstance(offer, Offer) else offer for offer in offers]

    def _stored(self, place: Place, several: Sequence[tuple[_Ticket, Offer]]) -> list[Outcome]:
        """Store rows; a table that is not there is made for the first that fit."""
        offers = [offer for _, offer in several]
        try:
            return append_together(TableHandle.seen_by(self._lake, place.table, place.user), offers)
        except NotFoundError as error:
            if error.kind != "no_table" or not self._creates:
                raise
        outcomes: list[Outcome] = []
        for at, (ticket, offer) in enumerate(several):
            try:
                outcomes.append(self._make_for(place, ticket.load, offer))
            except TidelakeError as error:
                outcomes.append(error.with_traceback(None))
                continue
            rest = offers[at + 1 :]
            if rest:
                table = TableHandle.seen_by(self._lake, place.table, place.user)
                outcomes += append_together(table, rest)
            break
        return outcomes

    def _make_for(self, place: Place, load: Load, offer: Offer) -> Outcome:
        if (shape := load.shape) is None:
            options = ReadOptions(time=load.time)
            return ingest(self._lake, place.table, offer.rows, options, key=offer.key, user=place.user, or_shared=True)
        scope = SHARED if place.user is None else USER
        with suppress(AlreadyExistsError):  # another node was as fast
            create_table(self._lake.catalog, place.table, shape.columns, time=shape.time, scope=scope)
        table = TableHandle.seen_by(self._lake, place.table, place.user)
        return append_together(table, [offer])[0]


def unpacked(group: Sequence[_Ticket]) -> list[Offer | TidelakeError]:
    """Return what each ticket offers: packed bodies are unpacked together, or one by one if that does not go well."""
    offers: list[Offer | TidelakeError] = []
    for tickets in _joined(group):
        if _packed(tickets[0]) is None:
            offers += [each.offer(each.load.rows, each.load.count) for each in tickets]
        else:
            offers += _unpacked_together(tickets) or [_unpacked_alone(each) for each in tickets]
    return offers


def _joined(group: Sequence[_Ticket]) -> Iterator[list[_Ticket]]:
    """Cut a group into runs that one call unpacks."""
    for _, run in groupby(group, key=lambda each: (pack := _packed(each)) and pack.together):
        tickets: list[_Ticket] = []
        size = 0
        for ticket in run:
            if tickets and size + ticket.size > JOINED_BYTES:
                yield tickets
                tickets, size = [], 0
            tickets.append(ticket)
            size += ticket.size
        yield tickets


def _packed(ticket: _Ticket) -> Packed | None:
    return ticket.load.rows if isinstance(ticket.load.rows, Packed) else None


def _unpacked_together(tickets: Sequence[_Ticket]) -> list[Offer | TidelakeError]:
    """Unpack bodies as one; nothing if that is an error, or not all records that were counted are there."""
    packs = [pack for each in tickets if (pack := _packed(each)) is not None]
    counts = [each.load.count for each in tickets]
    try:
        rows, _ = packs[0].together(b"".join(pack.body for pack in packs), packs[0].received_ns)
    except TidelakeError:
        return []
    if rows.num_rows != sum(counts):
        return []
    starts = accumulate(counts, initial=0)
    return [
        each.offer(rows.slice(start, count), count) for each, start, count in zip(tickets, starts, counts, strict=False)
    ]


def _unpacked_alone(ticket: _Ticket) -> Offer | TidelakeError:
    pack = _packed(ticket)
    assert pack is not None
    try:
        rows, _ = pack.unpack(pack.body, pack.received_ns)
    except TidelakeError as error:
        return error.with_traceback(None)
    return ticket.offer(rows, rows.num_rows)
