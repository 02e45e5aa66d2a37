"""Have upkeep done: put what is due in the catalog's queue, and take pieces from it, one at a time.

Any number of processes may do both. A piece is leased to one of them and fenced: one that lost its lease, because it
was stopped for too long, can finish but not commit. A piece that fails is tried again later, a few times, then it is a
dead letter that ``status`` shows. It does not know what the pieces do: see ``units``.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from tidelake.catalog.work_queue import WorkUnit
from tidelake.errors import ConflictError, TidelakeError
from tidelake.handle.lake_handle import LakeHandle
from tidelake.handle.table_handle import TableHandle
from tidelake.maintain import compact
from tidelake.maintain.units import KINDS, USERS_AT_ONCE, CompactRun, Done, Due, do, due_in_lake
from tidelake.model.snapshot import Fence, Scope
from tidelake.write.flush import flush

PREFIX = "upkeep."  # before a kind, in the queue, which has other work too
LEASE_S = 60.0
RETRY_S = 30.0
DONE_KEPT = 1_000  # pieces that a report tells one by one
TOLD = ("index",)  # kinds that readers put in the queue, besides what is planned
MAX_PASSES = 100  # of planning again what a round of work made due

_logger = logging.getLogger(__name__)

Tell = Callable[[Done], None]


@dataclass(frozen=True, slots=True)
class MaintainReport:
    """What a round of upkeep did."""

    done: tuple[Done, ...]
    failed: tuple[str, ...] = field(default=())

    @property
    def bytes_freed(self) -> int:
        """Bytes that compaction, retention and collection made the lake smaller by."""
        return sum(each.bytes_freed for each in self.done)

    def __str__(self) -> str:
        lines = [f"{each.table or 'the lake'}: {each.said}" for each in self.done if each.said]
        return "\n".join([*lines, *self.failed]) or "nothing is due"


def plan(
    lake: LakeHandle,
    tables: Collection[str] | None = None,
    kinds: Collection[str] = KINDS,
    *,
    users: int = USERS_AT_ONCE,
) -> list[WorkUnit]:
    """Put what is due in the queue; a piece that is there already is not put there twice."""
    return [
        lake.catalog.work.enqueue(
            PREFIX + due.kind,
            due.key,
            {"table": due.table, "reason": due.reason, **({"user": due.user} if due.user else {}), **due.payload},
            priority=-KINDS.index(due.kind),
        )
        for due in due_in_lake(lake, tables, kinds, users=users)
    ]


def maintain(
    lake: LakeHandle,
    tables: Collection[str] | None = None,
    *,
    kinds: Collection[str] = KINDS,
    seconds: float | None = None,
    tell: Tell | None = None,
) -> MaintainReport:
    """Plan and do what is due, again until nothing is or the time is up."""
    until_s = None if seconds is None else time.monotonic() + seconds
    done: list[Done] = []
    failed: list[str] = []
    for _ in range(MAX_PASSES):
        planned = {unit.id for unit in plan(lake, tables, kinds)}
        made_progress, is_first = False, True
        while (planned or is_first) and (until_s is None or time.monotonic() < until_s):
            step = work_once(lake, kinds if planned else [kind for kind in kinds if kind in TOLD])
            is_first = False
            if step is None:
                break
            planned.discard(step.unit.id)
            if step.error is not None:
                name, kind = step.unit.payload["table"] or "the lake", step.unit.kind.removeprefix(PREFIX)
                failed.append(f"{name}: {kind} failed: {step.error}")
            elif step.done.said:
                made_progress = True
                done.append(step.done)
                if len(done) >= DONE_KEPT:
                    done = _summed(done)
                if tell is not None:
                    tell(step.done)
        if not made_progress or (until_s is not None and time.monotonic() >= until_s):
            break
    if tables is None and (repaired := lake.manifests.repair(lambda scope: _flush_scope(lake, scope))):
        done.append(Done("manifests", "", f"{repaired:,} manifest{'s' if repaired > 1 else ''} written"))
        if tell is not None:
            tell(done[-1])
    return MaintainReport(tuple(done), tuple(failed))


def _summed(done: Sequence[Done]) -> list[Done]:
    """Tell pieces of the same kind and table in one sentence, for of many users there are many."""
    alike: dict[tuple[str, str], list[Done]] = {}
    for each in done:
        alike.setdefault((each.kind, each.table), []).append(each)
    return [
        several[0]
        if len(several) == 1
        else Done(kind, table, f"{kind} done {sum(each.pieces for each in several):,} times",
                  sum(each.bytes_freed for each in several), sum(each.pieces for each in several))
        for (kind, table), several in alike.items()
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Step:
    """A piece that was taken from the queue, and what came of it."""

    unit: WorkUnit
    done: Done
    error: TidelakeError | None = None


def work_once(
    lake: LakeHandle,
    kinds: Collection[str] = KINDS,
    *,
    lease_s: float = LEASE_S,
    compact_run: CompactRun = compact.compact_run,
) -> Step | None:
    """Take the most urgent piece from the queue and do it; None if none is ready."""
    queue = lake.catalog.work
    owner = f"{socket.gethostname()}:{os.getpid()}:{threading.get_ident()}"
    unit = queue.claim([PREFIX + kind for kind in kinds], owner=owner, lease_us=int(lease_s * 1e6))
    if unit is None:
        return None
    lake.at("work.claimed")
    due = _due_of(unit)
    try:
        with heartbeat(lake, unit, lease_s):
            done = do(lake, due, fence=Fence(unit.id, unit.token), compact_run=compact_run)
        lake.at("work.done")
        queue.complete(unit)
        return Step(unit, done)
    except ConflictError as error:
        if error.kind != "fenced":
            return _failed(lake, unit, due, error)
        return Step(unit, Done(due.kind, due.table, ""), error)  # another has it by now
    except TidelakeError as error:
        return _failed(lake, unit, due, error)


def work(
    lake: LakeHandle,
    kinds: Collection[str] = KINDS,
    *,
    stop: threading.Event,
    every_s: float = 10.0,
    until_idle: bool = False,
    tell: Callable[[Step], None] | None = None,
    threads: int = 1,
    compact_run: CompactRun = compact.compact_run,
) -> int:
    """Plan and work until told to stop, or until there is nothing to do; return how many pieces were done.

    Several threads are for those who have runs compacted elsewhere, and wait for it.
    """
    count, telling = 0, threading.Lock()

    def take_pieces() -> list[Step]:
        taken = []
        while not stop.is_set() and (step := work_once(lake, kinds, compact_run=compact_run)) is not None:
            taken.append(step)
            if tell is not None:
                with telling:
                    tell(step)
        return taken

    while not stop.is_set():
        plan(lake, kinds=kinds)
        taken = take_pieces() if threads == 1 else _beside(take_pieces, threads, stop)
        count += sum(step.error is None for step in taken)
        found = any(step.done.said for step in taken)
        if until_idle and not found:
            break
        stop.wait(0.0 if found else every_s)
    return count


def _beside(take_pieces: Callable[[], list[Step]], threads: int, stop: threading.Event) -> list[Step]:
    """Take pieces on several threads; if one of them fails, or the caller is interrupted, no other begins a piece."""
    with ThreadPoolExecutor(threads, thread_name_prefix="tidelake-work") as pool:
        try:
            takers = [pool.submit(take_pieces) for _ in range(threads)]
            return [step for taker in as_completed(takers) for step in taker.result()]
        except BaseException:
            stop.set()
            raise


def _flush_scope(lake: LakeHandle, scope: Scope) -> None:
    """Flush the hot rows of a scope, found by its state and not by a walk."""
    flush(TableHandle.open(lake, lake.manifests.place(scope).table, user=scope.user or None))


def _failed(lake: LakeHandle, unit: WorkUnit, due: Due, error: TidelakeError) -> Step:
    _logger.warning("upkeep failed kind=%s table=%s: %s", due.kind, due.table, error)
    with suppress(TidelakeError):  # the lease runs out by itself
        lake.catalog.work.fail(unit, str(error), delay_us=int(RETRY_S * 1e6 * unit.attempts))
    return Step(unit, Done(due.kind, due.table, ""), error)


def _due_of(unit: WorkUnit) -> Due:
    kind = unit.kind.removeprefix(PREFIX)
    own = {name: value for name, value in unit.payload.items() if name not in ("table", "reason", "user")}
    told = unit.payload
    return Due(kind, told["table"], told.get("reason", ""), own, told.get("user", ""))  # type: ignore[arg-type]


@contextmanager
def heartbeat(lake: LakeHandle, unit: WorkUnit, lease_s: float) -> Iterator[None]:
    """Prolong the lease of a piece while something is done under it."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(lease_s / 3):
            try:
                lake.catalog.work.heartbeat(unit, lease_us=int(lease_s * 1e6))
            except ConflictError:
                return  # another has it: the commit will be refused
            except TidelakeError:
                continue  # tried again, as long as the lease lasts

    thread = threading.Thread(target=beat, name="tidelake-heartbeat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
