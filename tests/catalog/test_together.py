"""Threads that commit to different scopes of one SQLite catalog share transactions, and answer each for itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from tidelake import connect
from tidelake.catalog.protocol import new_id
from tidelake.catalog.sql.together import Request, Together
from tidelake.errors import CommitUnknownError, StorageError
from tidelake.model.snapshot import AppendHot, Commit, DropHot, HotBatch, Receipt, Scope

COLUMNS = {"ts": "timestamp", "v": "long"}
NOON = "2026-01-01T12:00:00Z"


def in_threads(count: int, work: Any) -> None:
    threads = [Thread(target=work, args=(own,)) for own in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_many_users_at_once_lose_and_double_nothing(tmp_path: Path) -> None:
    with connect(tmp_path / "lake", upkeep=False) as lake:
        table = lake.create_table("app.notes", COLUMNS, scope="user", flush_age="off")

        def append(own: int) -> None:
            for at in range(10):
                table.user(f"u{(own + at) % 5}").append([{"ts": NOON, "v": own * 100 + at}], key=f"{own}.{at}")
                table.user(f"u{(own + at) % 5}").append([{"ts": NOON, "v": own * 100 + at}], key=f"{own}.{at}")

        in_threads(8, append)
        found = [v for user in range(5) for v in table.user(f"u{user}").to_arrow()["v"].to_pylist()]
        assert sorted(found) == sorted(own * 100 + at for own in range(8) for at in range(10))


def test_what_is_wrong_with_one_request_is_told_to_it_alone(tmp_path: Path) -> None:
    with connect(tmp_path / "lake", upkeep=False) as lake:
        table = lake.create_table("app.notes", COLUMNS, scope="user")
        table.user("a").append([{"ts": NOON, "v": 1}])
        catalog: Any = lake.catalog
        (batch,) = catalog.hot(Scope(table.handle.info.id, "a"))
        requests = []
        for user, is_wrong in (("a", False), ("b", True), ("c", False), ("d", None)):
            scope = Scope(table.handle.info.id, user)
            head = catalog.head(scope)
            id = batch.id if is_wrong is None and user == "a" else new_id()
            fresh = HotBatch(id, batch.rows, batch.payload, batch.min_ts_ns, batch.max_ts_ns, 1)
            action: Any = DropHot("nobody") if is_wrong else AppendHot(fresh)
            requests.append(Request([Commit(new_id(), scope, head.sequence, (action,))], head, False))
        stale = Request(requests[0].commits, requests[0].onto, False)
        requests.append(Request([Commit(new_id(), stale.onto.scope, stale.onto.sequence, (AppendHot(
            HotBatch(new_id(), batch.rows, batch.payload, None, None, 1)),))], stale.onto, False))  # fmt: skip
        catalog._commit_all(requests)
        assert [each.receipts is not None for each in requests] == [True, False, True, True, False]
        assert [getattr(each.error, "kind", None) for each in requests] == [None, "not_live", None, None, "stale"]
        assert [len(table.user(user)) for user in "abcd"] == [2, 0, 1, 1]


def test_a_replay_among_others_gets_its_first_receipt(tmp_path: Path) -> None:
    with connect(tmp_path / "lake", upkeep=False) as lake:
        table = lake.create_table("app.notes", COLUMNS, scope="user")
        first = table.user("a").append([{"ts": NOON, "v": 1}], key="once")
        catalog: Any = lake.catalog
        (batch,) = catalog.hot(Scope(table.handle.info.id, "a"))
        requests = []
        for user in "ab":
            scope = Scope(table.handle.info.id, user)
            head = catalog.head(scope)
            fresh = HotBatch(new_id(), batch.rows, batch.payload, batch.min_ts_ns, batch.max_ts_ns, 1)
            commit = Commit(new_id(), scope, head.sequence, (AppendHot(fresh),), key="once")
            requests.append(Request([commit], head, False))
        catalog._commit_all(requests)
        (again,), (other,) = (each.receipts or [] for each in requests)
        assert (again.replayed, again.sequence, other.replayed) == (True, first.snapshot, False)
        assert [len(table.user(user)) for user in "ab"] == [1, 1]


def test_who_waits_too_long_is_told_what_is_known() -> None:
    together = Together("here", 0.05)
    assert together._leading.acquire()
    with pytest.raises(StorageError, match="busy"):
        together.commit(Request((), None, False), lambda taken: None)  # type: ignore[arg-type]
    request = Request((), None, False)  # type: ignore[arg-type]
    together._waiting.append(request)
    together._waiting.clear()  # somebody took it
    with pytest.raises(CommitUnknownError):
        together._give_up(request)


def test_a_failure_of_all_is_raised_for_each() -> None:
    together = Together("here", 5)
    seen: list[str] = []

    def lead(taken: Sequence[Request]) -> None:
        raise StorageError("the disk is full")

    def commit(own: int) -> None:
        try:
            together.commit(Request((), None, False), lead)  # type: ignore[arg-type]
        except StorageError as error:
            seen.append(str(error))

    in_threads(4, commit)
    assert len(seen) == 4
    receipts: list[Receipt] = []
    assert together.commit(Request((), None, False, receipts=receipts), lead) == []  # type: ignore[arg-type]
