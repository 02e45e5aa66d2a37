"""Take back one commit, also where several share a snapshot: the others' rows stay."""

from __future__ import annotations

import multiprocessing
import threading
from collections import deque
from collections.abc import Sequence
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest

import tidelake
from tests.catalog.test_many_processes import WITHIN_S, wait_until_in_line
from tests.maintain.test_every_catalog import anywhere
from tidelake import Lake, Table
from tidelake.catalog.sql.sql_catalog import SqlCatalog
from tidelake.errors import ConflictError, InvalidInputError, NotFoundError
from tidelake.write.append import AppendReport

__all__ = ["anywhere"]  # a fixture

BASE = 1_790_000_000
COLUMNS = {"ts": "timestamp", "v": "long"}
HOT, LARGE = 3, 1100  # rows of an append that stays hot, and of one that does not


def rows(first: int, count: int) -> list[dict[str, Any]]:
    return [{"ts": BASE + first + at, "v": first + at} for at in range(count)]


def values(table: Table) -> list[int]:
    found: list[int] = sorted(table.to_arrow()["v"].to_pylist())
    return found


def append_together(table: Table, *appends: tuple[list[dict[str, Any]], str | None]) -> list[AppendReport]:
    """Append from as many threads while somebody seems to commit, so that all share the next snapshot."""
    coordinator, scope = table.handle.coordinator, table.handle.scope
    lane: deque[Any] = deque()
    coordinator._lanes[scope] = lane
    reports: list[AppendReport | None] = [None] * len(appends)

    def append(at: int) -> None:
        reports[at] = table.append(appends[at][0], key=appends[at][1])

    threads = [threading.Thread(target=append, args=(at,)) for at in range(len(appends))]
    for at, thread in enumerate(threads):
        thread.start()
        while len(lane) <= at:
            thread.join(0.001)
            assert thread.is_alive()
    lane[0].woken.set()
    for thread in threads:
        thread.join()
    found = [report for report in reports if report is not None]
    assert len({report.snapshot for report in found}) == 1
    return found


@pytest.mark.parametrize("sizes", [(HOT, HOT, HOT), (LARGE, LARGE, LARGE), (HOT, LARGE, HOT)])
def test_one_of_several_commits_of_a_snapshot_is_taken_back(anywhere: Lake, sizes: Sequence[int]) -> None:
    with anywhere as lake:
        table = lake.create_table("t", COLUMNS, flush_age="off")
        table.append(rows(100_000, 2))
        kept = values(table)
        asked = [(rows(at * 2000, size), f"batch-{at}") for at, size in enumerate(sizes)]
        reports = append_together(table, *asked)
        assert len({report.commit for report in reports}) == len(sizes)
        with pytest.raises(InvalidInputError, match="3 commits that arrived together share the snapshot") as error:
            table.undo(reports[0].snapshot)
        assert error.value.kind == "shared_snapshot"
        assert all(report.commit in str(error.value) for report in reports)
        first, second, third = ([row["v"] for row in each] for each, _ in asked)
        assert values(table) == sorted([*kept, *first, *second, *third])

        report = table.undo(key="batch-1")
        assert (report.rows_removed, report.extents_removed) == (sizes[1], reports[1].extents)
        assert values(table) == sorted([*kept, *first, *third])
        with pytest.raises(ConflictError, match="flushed, compacted or deleted"):
            table.undo(key="batch-1")
        assert table.undo(commit=reports[2].commit).rows_removed == sizes[2]
        assert values(table) == sorted([*kept, *first])
        table.undo(key="batch-0")
        assert values(table) == kept


def test_a_commit_that_is_alone_in_its_snapshot_is_named_by_any(anywhere: Lake) -> None:
    with anywhere as lake:
        table = lake.create_table("t", COLUMNS, flush_age="off")
        for name in ("snapshot", "key", "commit"):
            report = table.append(rows(0, LARGE), key=f"by-{name}")
            assert len(table) == LARGE
            given = {"snapshot": report.snapshot, "key": f"by-{name}", "commit": report.commit}[name]
            table.undo(**{name: given})  # type: ignore[arg-type]
            assert len(table) == 0


def test_what_was_rewritten_since_is_not_taken_back(anywhere: Lake) -> None:
    with anywhere as lake:
        table = lake.create_table("t", COLUMNS, flush_age="off")
        together = append_together(table, (rows(0, HOT), "hot-a"), (rows(10, HOT), "hot-b"))
        if table.flush().rows:
            with pytest.raises(ConflictError, match="flushed, compacted or deleted") as error:
                table.undo(key="hot-b")
            assert error.value.kind == "rewritten"
        append_together(table, (rows(2000, LARGE), "a"), (rows(5000, LARGE), "b"))
        table.delete(f"v >= 5000 and v < {5000 + LARGE}")
        with pytest.raises(ConflictError):
            table.undo(key="b")
        table.undo(key="a")  # the fate of one commit is not that of its neighbour
        assert values(table) == [0, 1, 2, 10, 11, 12]
        append_together(table, (rows(2000, LARGE), "c"), (rows(5000, LARGE), "d"))
        table.compact()
        before = values(table)
        for key in ("c", "d"):
            with pytest.raises(ConflictError, match="flushed, compacted or deleted"):
                table.undo(key=key)
        assert values(table) == before
        assert together[0].snapshot < table.snapshot.sequence


def test_a_replay_names_the_first_commit_and_its_key_stays_used(anywhere: Lake) -> None:
    with anywhere as lake:
        table = lake.create_table("t", COLUMNS, flush_age="off")
        first, _ = append_together(table, (rows(0, LARGE), "once"), (rows(2000, LARGE), "other"))
        again = table.append(rows(0, LARGE), key="once")
        assert (again.replayed, again.commit, again.snapshot) == (True, first.commit, first.snapshot)
        table.undo(commit=again.commit)
        assert table.append(rows(0, LARGE), key="once").replayed
        assert values(table) == list(range(2000, 2000 + LARGE))


def test_what_names_no_commit_is_refused(anywhere: Lake) -> None:
    with anywhere as lake:
        table = lake.create_table("t", COLUMNS, flush_age="off")
        report = table.append(rows(0, HOT), key="a")
        for given in ({}, {"snapshot": 2, "key": "a"}, {"key": "a", "commit": report.commit}):
            with pytest.raises(InvalidInputError, match="one of snapshot, key and commit"):
                table.undo(**given)
        with pytest.raises(NotFoundError, match="no commit has this key or id"):
            table.undo(key="b")
        with pytest.raises(NotFoundError, match="no commit has this key or id"):
            table.undo(commit="0" * 32)
        with pytest.raises(InvalidInputError, match="added no rows"):
            table.undo(1)
        assert table.append([]).commit == ""


def test_a_commit_of_another_table_is_not_taken_back(tmp_path: Path) -> None:
    with tidelake.connect(tmp_path / "lake", upkeep=False) as lake:
        one, two = (lake.create_table(name, COLUMNS, flush_age="off") for name in ("one", "two"))
        report, own = one.append(rows(0, HOT)), two.append(rows(0, HOT))
        assert report.snapshot == own.snapshot
        with pytest.raises(NotFoundError, match="another table's"):
            two.undo(commit=report.commit)
        assert (len(one), len(two)) == (HOT, HOT)


def test_a_commit_of_another_user_is_not_taken_back(tmp_path: Path) -> None:
    with tidelake.connect(tmp_path / "lake", upkeep=False) as lake:
        table = lake.create_table("t", COLUMNS, flush_age="off", scope="user")
        one, two = table.user("one"), table.user("two")
        reports = [each.append(rows(0, HOT), key="first") for each in (one, two)]
        with pytest.raises(NotFoundError, match="another user's"):
            two.undo(commit=reports[0].commit)
        two.undo(key="first")
        assert (len(one), len(two)) == (HOT, 0)
        one.undo(commit=reports[0].commit)
        assert len(one) == 0


def append_in_process(folder: str, first: int, answers: Any) -> None:
    with tidelake.connect(folder, upkeep=False) as lake:
        answers.put((first, lake.table("t").append(rows(first, HOT), key=f"batch-{first}")))


def test_one_of_two_processes_that_share_a_snapshot_is_taken_back(tmp_path: Path) -> None:
    context: ForkServerContext = multiprocessing.get_context("forkserver")
    folder, answers = str(tmp_path / "lake"), context.SimpleQueue()
    with tidelake.connect(folder, upkeep=False) as lake:
        table = lake.create_table("t", COLUMNS, flush_age="off")
        assert isinstance(lake.catalog, SqlCatalog)
        processes = []
        with lake.catalog._database.turn():
            for first in (0, 100, 200):
                processes.append(context.Process(target=append_in_process, args=(folder, first, answers)))
                processes[-1].start()
                wait_until_in_line(lake.catalog._database.name, len(processes))
        reports = dict(answers.get() for _ in processes)
        for process in processes:
            process.join(WITHIN_S)
        assert len({report.snapshot for report in reports.values()}) == 1
        with pytest.raises(InvalidInputError, match="3 commits"):
            table.undo(reports[0].snapshot)
        table.undo(key="batch-100")
        table.undo(commit=reports[200].commit)
        assert values(table) == [0, 1, 2]
