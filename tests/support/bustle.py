"""Keep a table busy while it is asked: writers append, a flusher flushes, and whoever else is given works beside them.

Every worker is a thread with a connection of its own; what goes wrong in one is raised where the bustle ends. Each row
has a number of its own, so that a row that is lost or there twice shows. It does not know the questions.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from threading import Event, Thread
from typing import Any

import tidelake
from tidelake.catalog.protocol import new_id
from tidelake.errors import ConflictError
from tidelake.lake import Lake
from tidelake.model.snapshot import Commit, RemoveExtent
from tidelake.scan.extents import scan
from tidelake.write.appender import Appender

TABLE = "m.cpu"
COLUMNS = {"ts": "timestamp", "device": "string", "n": "long", "tags": "dynamic"}
MINUTES = 600  # of the time that rows fall into, again and again
PAUSE_S = 0.05  # at most, between two works of one worker

Work = Callable[[Lake, random.Random], Any]


def make_table(lake: Lake) -> None:
    """Make the table, with some rows in an extent."""
    table = lake.create_table(TABLE, COLUMNS, time="ts", bucket="1m", entity="device", flush_age="off")
    table.append(rows(range(-400, 0)))
    table.flush()


def rows(numbers: range) -> list[dict[str, Any]]:
    """Return rows with these numbers."""
    minutes = [n % MINUTES for n in numbers]
    return [
        {"ts": f"2026-01-01T{at // 60:02}:{at % 60:02}:00Z", "device": f"d{n % 3}", "n": n, "tags": {"a": n % 7}}
        for n, at in zip(numbers, minutes, strict=True)
    ]


def rewritten(lake: Lake, choose: random.Random) -> None:
    """Write the extents of a table anew as one, unless somebody else took one of them away meanwhile."""
    table = lake.table(TABLE)
    plan = replace(table.plan(), hot=())
    if len(plan.tasks) < 2:
        return
    writer = Appender(table.handle, plan.snapshot, keep_hot=False, is_new=False)
    for batch in scan(plan, table.handle.footers):
        writer.take_batch(batch)
    removed = [RemoveExtent(task.extent.id) for task in plan.tasks]
    actions = (*writer.finish(), *removed)
    commit = Commit(new_id(), plan.snapshot.scope, plan.snapshot.sequence, actions, operation="rewrite")
    try:
        lake.handle.coordinator.commit(commit)
    except ConflictError:
        writer.give_up()


@contextmanager
def bustle(lake: Lake, seed: int, *, writers: int = 2, others: Sequence[Work] = ()) -> Iterator[None]:
    """Have writers, a flusher and others at work, until the block ends."""
    done, failed = Event(), list[BaseException]()

    def writer(number: int) -> Work:
        batches = count()

        def write(own: Lake, choose: random.Random) -> None:
            size = choose.choice((1, 5, 20, 1100))  # the last is an extent, the others are hot
            first = (seed * 16 + number) * 10**8 + next(batches) * 10**4
            own.table(TABLE).append(rows(range(first, first + size)))

        return write

    def run(work: Work, number: int) -> None:
        choose = random.Random(f"{seed}:{number}")
        try:
            with tidelake.connect(lake.where) as own:
                while not done.is_set():
                    work(own, choose)
                    done.wait(PAUSE_S * choose.random())
        except BaseException as error:
            failed.append(error)

    works: list[Work] = [writer(number + 1) for number in range(writers)]
    works += [lambda own, _: own.table(TABLE).flush(), *others]
    threads = [Thread(target=run, args=(work, at), daemon=True) for at, work in enumerate(works)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join(120)
    if failed:
        raise failed[0]
