"""Append for many callers at once: one commit, and each is answered as if it had been alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import tidelake
from tidelake.errors import InvalidInputError, TidelakeError
from tidelake.model.snapshot import RecordOffset
from tidelake.table import Table
from tidelake.write.append import AppendReport
from tidelake.write.together import Offer, append_together


@pytest.fixture(params=["sqlite", "postgres", "log"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Table]:
    """A table of a catalog of each kind."""
    objects = str(tmp_path / "objects") if request.param == "postgres" else None
    where = {"sqlite": str(tmp_path / "lake"), "log": f"log:{tmp_path / 'logs'}"}.get(request.param)
    with tidelake.connect(where or request.getfixturevalue("postgres_database"), objects=objects) as lake:
        yield lake.create_table("logs", {"ts": "timestamp", "n": "long"})


def line(n: int | str, second: int = 0) -> bytes:
    text = n if isinstance(n, int) else f'"{n}"'
    return f'{{"ts": "2026-01-01T00:00:{second:02}Z", "n": {text}}}\n'.encode()


def offer(n: int, key: str | None = None) -> Offer:
    return Offer(line(n), 1, key)


def rows_of(table: Table) -> list[int]:
    return sorted(table.to_arrow(["n"]).column("n").to_pylist())


def report(outcome: AppendReport | TidelakeError) -> AppendReport:
    assert isinstance(outcome, AppendReport), outcome
    return outcome


def test_callers_share_a_snapshot_and_have_their_own_answers(table: Table) -> None:
    before = table.snapshot.sequence
    first, second = map(report, append_together(table.handle, [offer(1, "a"), Offer(line(2) + line(3), 2, "b")]))
    assert (first.rows, second.rows, first.snapshot, second.snapshot) == (1, 2, before + 1, before + 1)
    assert first.commit != second.commit
    assert rows_of(table) == [1, 2, 3]


def test_a_replay_gets_its_first_answer_and_the_others_go_in(table: Table) -> None:
    one, two = map(report, append_together(table.handle, [offer(1, "a"), Offer(line(2) + line(3), 2, "b")]))
    again = list(map(report, append_together(table.handle, [offer(4, "c"), Offer(line(2) + line(3), 2, "b")])))
    assert [(each.rows, each.replayed) for each in again] == [(1, False), (2, True)]
    assert (again[1].snapshot, again[1].commit) == (two.snapshot, two.commit)
    assert rows_of(table) == [1, 2, 3, 4]
    alone = table.append(line(1), key="a")
    assert (alone.rows, alone.replayed, alone.snapshot, alone.commit) == (1, True, one.snapshot, one.commit)


def test_a_key_that_comes_twice_in_a_group_goes_in_once(table: Table) -> None:
    outcomes = list(map(report, append_together(table.handle, [offer(1, "a"), offer(1, "a"), offer(2)])))
    assert [each.replayed for each in outcomes] == [False, True, False]
    assert rows_of(table) == [1, 2]


def test_rows_that_cannot_be_taken_fail_alone(table: Table) -> None:
    bad = Offer(b'{"n": 5}\n', 1, "bad")
    good, failed, last = append_together(table.handle, [offer(1, "a"), bad, offer(2, "b")])
    assert isinstance(failed, InvalidInputError)
    assert (report(good).rows, report(last).rows) == (1, 1)
    assert rows_of(table) == [1, 2]
    assert report(append_together(table.handle, [Offer(line(5), 1, "bad"), offer(6)])[0]).replayed is False


def test_columns_that_callers_bring_are_united(table: Table) -> None:
    wider = Offer(b'{"ts": 1767225600, "n": 1, "more": "x"}', 1)
    other = Offer(b'{"ts": 1767225600, "n": 2, "more": "y", "most": 1.5}', 1)
    list(map(report, append_together(table.handle, [wider, other])))
    assert table.schema.names == ("ts", "n", "more", "most")


def test_where_streams_are_is_recorded_with_the_rows(table: Table) -> None:
    streamed = Offer(line(1), 1, None, (RecordOffset("topic/0", 7),))
    append_together(table.handle, [streamed, offer(2, "a")])
    assert table.handle.catalog.manifest(table.handle.scope).offsets == {"topic/0": 7}


def test_a_part_of_a_commit_is_not_undone_alone(table: Table) -> None:
    append_together(table.handle, [offer(1, "a"), offer(2, "b")])
    with pytest.raises(InvalidInputError, match="share a commit"):
        table.undo(key="a")
    assert rows_of(table) == [1, 2]


def test_a_table_with_a_key_takes_callers_one_by_one(lake: tidelake.Lake) -> None:
    notes = lake.create_table("notes", {"ts": "timestamp", "n": "long"}, key=["n"])
    outcomes = append_together(notes.handle, [Offer(line(1, 1), 1), Offer(line(1, 2), 1)])
    assert [report(each).snapshot for each in outcomes] == [2, 3]
    assert [row.second for row in notes.to_arrow().column("ts").to_pylist()] == [2]


def test_exclusive_windows_are_refused_for_their_caller_alone(lake: tidelake.Lake) -> None:
    held = lake.create_table("cpu", {"ts": "timestamp", "n": "long"}, bucket="1s", coverage="exclusive")
    first, second, third = append_together(
        held.handle, [Offer(line(1, 1), 1), Offer(line(2, 1), 1), Offer(line(3, 3), 1)]
    )
    assert isinstance(second, tidelake.OverlapError)
    assert (report(first).rows, report(third).rows) == (1, 1)
