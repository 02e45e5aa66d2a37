"""Check what is particular to the SQL catalogs: how they open, what they refuse, and how they are shared."""

from __future__ import annotations

import os
import pickle
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest

import tidelake
from tests.support.catalogs import (
    SCHEMA,
    SQL_STORES,
    append,
    append_hot,
    commit_of,
    extent,
    fresh_schema,
    hot,
    open_sql,
    place_of,
    publish,
)
from tidelake.catalog import CATALOG_FILE, open_catalog
from tidelake.catalog.protocol import StaleHead, new_id
from tidelake.catalog.sql.sql_catalog import SqlCatalog
from tidelake.errors import (
    CommitUnknownError,
    CorruptError,
    InvalidInputError,
    NotFoundError,
    StorageError,
    TidelakeError,
)
from tidelake.model.snapshot import AddExtent, AppendHot, Scope


@pytest.fixture(params=SQL_STORES)
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return place_of(request.param, request, tmp_path)


def set_version(where: str, version: int) -> None:
    if "://" in where:
        with psycopg.connect(where, autocommit=True) as server:
            server.execute("UPDATE catalog_meta SET version = %s", (version,))
    else:
        with sqlite3.connect(where) as file:
            file.execute("UPDATE catalog_meta SET version = ?", (version,))
        file.close()


def test_a_catalog_is_there_when_it_is_opened_again(where: str) -> None:
    with open_sql(where) as catalog:
        scope = catalog.create_table("t", SCHEMA, {}).scope
        append(catalog, scope)
        append_hot(catalog, scope)
        before = catalog.manifest(scope)
    with open_sql(where) as catalog:
        assert catalog.manifest(scope) == before


def test_many_open_a_new_catalog_at_once(where: str) -> None:
    barrier = threading.Barrier(8)

    def open_it(_: int) -> int:
        barrier.wait()
        with open_sql(where) as catalog:
            return len(catalog.tables())

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(open_it, range(8))) == [0] * 8


def test_a_newer_catalog_is_refused(where: str) -> None:
    open_sql(where).close()
    set_version(where, 99)
    with pytest.raises(InvalidInputError, match="made by a newer tidelake") as error:
        open_sql(where)
    assert_one_line(error.value)
    assert (error.value.facts["version"], error.value.kind) == (99, "newer_catalog")


def test_an_older_catalog_is_brought_forward_once(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    open_sql(where).close()
    monkeypatch.setattr("tidelake.catalog.sql.setup.VERSION", 2)
    monkeypatch.setattr("tidelake.catalog.sql.setup._MIGRATIONS", {1: ("CREATE TABLE brought_forward (n BIGINT)",)})
    with ThreadPoolExecutor(4) as threads:
        for catalog in threads.map(open_sql, [where] * 4):
            catalog.close()
    open_sql(where).close()


def test_a_migration_that_fails_changes_nothing(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    open_sql(where).close()
    with monkeypatch.context() as patched:
        patched.setattr("tidelake.catalog.sql.setup.VERSION", 2)
        steps = ("CREATE TABLE brought_forward (n BIGINT)", "CREATE NONSENSE")
        patched.setattr("tidelake.catalog.sql.setup._MIGRATIONS", {1: steps})
        with pytest.raises(StorageError):
            open_sql(where)
    with open_sql(where) as catalog:
        catalog.create_table("brought_forward", SCHEMA, {})


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE receipts SET commit_id = 'x' || substr(commit_id, 2)",
        "UPDATE commit_keys SET commit_id = 'x' || substr(commit_id, 2)",
    ],
)
def test_a_key_whose_receipt_cannot_be_found_is_damage_and_no_new_commit(tmp_path: Path, damage: str) -> None:
    with tidelake.connect(tmp_path / "lake") as lake:
        logs = lake.create_table("logs", {"ts": "timestamp", "n": "long"})
        assert not logs.append([{"ts": 1_773_489_601, "n": 1}], key="once").replayed
        assert logs.append([{"ts": 1_773_489_601, "n": 1}], key="once").replayed
    with closing(sqlite3.connect(tmp_path / "lake" / CATALOG_FILE)) as database, database:
        assert database.execute(damage).rowcount == 1
    with tidelake.connect(tmp_path / "lake") as lake:
        with pytest.raises(CorruptError, match="there is a key for it"):
            lake.table("logs").append([{"ts": 1_773_489_601, "n": 1}], key="once")
        assert len(lake.table("logs")) == 1


def test_a_catalog_without_a_version_is_corrupt(where: str) -> None:
    open_sql(where).close()
    if "://" in where:
        with psycopg.connect(where, autocommit=True) as server:
            server.execute("DELETE FROM catalog_meta")
    else:
        with sqlite3.connect(where) as file:
            file.execute("DELETE FROM catalog_meta")
        file.close()
    with pytest.raises(CorruptError, match="does not say its version"):
        open_sql(where)


def assert_one_line(error: TidelakeError) -> None:
    assert "\n" not in str(error)
    assert len(str(error)) < 400


def test_a_folder_is_a_lake_when_it_is_made_here(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "lake"
    with pytest.raises(NotFoundError, match="no lake here"):
        open_catalog(folder, create=False)
    open_catalog(folder).close()
    assert (folder / CATALOG_FILE).exists()
    open_catalog(str(folder), create=False).close()


def test_a_folder_of_something_else_is_not_a_lake(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(InvalidInputError, match="not a lake"):
        open_catalog(tmp_path)
    with pytest.raises(InvalidInputError, match="not a lake"):
        open_catalog(tmp_path / "notes.txt")
    assert [each.name for each in tmp_path.iterdir()] == ["notes.txt"]


@pytest.mark.parametrize("damage", ["text", "cut", "flipped", "header"])
def test_a_damaged_file_is_corrupt_in_one_line(tmp_path: Path, damage: str) -> None:
    file = tmp_path / CATALOG_FILE
    with SqlCatalog(file) as catalog:
        scope = catalog.create_table("t", SCHEMA, {}).scope
        for _ in range(30):
            append(catalog, scope, stats={"service": {"distinct": [new_id() for _ in range(20)]}})
    whole = file.read_bytes()
    damaged = {
        "text": b"this is no database at all, but it is long enough" * 100,
        "cut": whole[: len(whole) // 2 + 100],
        "flipped": whole[:8192] + bytes(byte ^ 0x5A for byte in whole[8192:]),
        "header": b"\x00" * 100 + whole[100:],
    }[damage]
    file.write_bytes(damaged)

    def use() -> None:
        with SqlCatalog(file) as catalog:
            catalog.tables()
            catalog.manifest(scope)

    with pytest.raises(CorruptError, match="not a sound SQLite database") as error:
        use()
    assert_one_line(error.value)
    assert file.read_bytes() == damaged


def test_another_programs_database_is_not_a_catalog(tmp_path: Path) -> None:
    file = tmp_path / "other.db"
    with sqlite3.connect(file) as other:
        other.execute("CREATE TABLE notes (text)")
    other.close()
    with pytest.raises(InvalidInputError, match="the database is not a catalog"):
        SqlCatalog(file)


def test_a_folder_that_cannot_be_written_is_a_storage_error() -> None:
    for folder in ("/proc/lake", "/dev/null/lake"):
        with pytest.raises(StorageError) as error:
            open_catalog(folder)
        assert_one_line(error.value)


def test_a_folder_that_may_only_be_read_is_read_and_not_written() -> None:
    with tempfile.TemporaryDirectory() as name:  # every folder above is open to all, unlike pytest's own
        folder = Path(name)
        with open_catalog(folder / "lake") as catalog:
            catalog.create_table("t", SCHEMA, {})
        for each in (folder, *folder.rglob("*")):
            each.chmod(0o555 if each.is_dir() else 0o444)
        with as_nobody():
            with open_catalog(folder / "lake") as catalog:
                assert [str(info) for info in catalog.tables()] == ["default.t"]
                with pytest.raises(StorageError, match="the catalog cannot be written") as error:
                    catalog.create_table("u", SCHEMA, {})
                assert error.value.kind == "read_only"
                assert_one_line(error.value)
            with pytest.raises(StorageError, match="the lake's folder cannot be used") as error:
                open_catalog(folder / "new")
            assert_one_line(error.value)
        for each in (folder, folder / "lake"):
            each.chmod(0o755)


def test_a_reader_who_may_not_write_sees_what_a_writer_commits_meanwhile() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with open_catalog(folder / "lake") as catalog:
            scope = catalog.create_table("t", SCHEMA, {}).scope
        for each in (folder, *folder.rglob("*")):
            each.chmod(0o755 if each.is_dir() else 0o644)
        with as_nobody():
            reader = open_catalog(folder / "lake")
            assert reader.head(scope).sequence == 1
        with open_catalog(folder / "lake") as writer:
            publish(writer, scope, AppendHot(hot()))
            with as_nobody():  # the log of the writer is there, and is read with its index
                assert reader.head(scope).sequence == 2
                assert len(reader.hot(scope)) == 1
            publish(writer, scope, AppendHot(hot()))
            with as_nobody():
                assert reader.head(scope).sequence == 3
        with as_nobody():  # the log is gone, and the file is all there is again
            assert reader.head(scope).sequence == 3
            reader.close()
        with open_catalog(folder / "lake") as writer:
            publish(writer, scope, AppendHot(hot()))
        with as_nobody(), open_catalog(folder / "lake") as reader:
            assert len(reader.hot(scope)) == 3


@contextmanager
def as_nobody() -> Iterator[None]:
    """Be, if one is root, a user to whom permissions apply."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize(
    ("address", "says"),
    [
        ("postgresql://nobody:secret@127.0.0.1:1/db", "cannot be reached"),
        ("postgresql+psycopg://127.0.0.1:1/db?user=nobody&password=secret", "cannot be reached"),
        ("postgresql://[::bad/db", "not a catalog's address"),
        ("postgresql://u:se/secret@host:none/db?colour=blue", "not a catalog's address"),
        ("mysql://u:secret@host/db", "a catalog is a folder"),
        ("nonsense://u:secret@host/db", "a catalog is a folder"),
    ],
)
def test_an_address_that_leads_nowhere_is_told_in_one_line(address: str, says: str) -> None:
    with pytest.raises((StorageError, InvalidInputError), match=says) as error:
        open_catalog(address)
    assert_one_line(error.value)
    assert "secret" not in str(error.value)


def test_a_wrong_login_or_database_is_told_in_one_line(postgres: str) -> None:
    for wrong in (postgres.replace("postgres@", "nobody:secret@"), postgres.rpartition("/")[0] + "/nothing"):
        with pytest.raises(StorageError, match="the catalog refused the connection") as error:
            open_catalog(wrong)
        assert_one_line(error.value)
        assert "secret" not in str(error.value)
        assert error.value.kind == "refused"


def test_two_lakes_share_a_database_by_schema(postgres: str) -> None:
    with open_sql(fresh_schema(postgres)) as one, open_sql(fresh_schema(postgres)) as two:
        one.create_table("t", SCHEMA, {})
        assert two.tables() == []


@pytest.fixture
def stopped(where: str) -> Iterator[tuple[SqlCatalog, list[str]]]:
    """Yield a catalog whose next transaction raises at a named point."""
    plan: list[str] = []

    def at(point: str) -> None:
        if plan and plan[0] == point:
            plan.clear()
            raise RuntimeError("stopped here")

    with open_sql(where, at=at) as catalog:
        yield catalog, plan


@pytest.mark.parametrize("point", ["transaction.begun", "commit.swapped", "transaction.written"])
def test_a_commit_that_stops_anywhere_before_its_end_changes_nothing(
    stopped: tuple[SqlCatalog, list[str]], point: str
) -> None:
    catalog, plan = stopped
    scope = catalog.create_table("t", SCHEMA, {}).scope
    append(catalog, scope)
    before = catalog.manifest(scope)
    ours = commit_of(scope, AppendHot(hot()), base=2)
    plan.append(point)
    with pytest.raises(RuntimeError, match="stopped here"):
        catalog.commit([ours], onto=before.snapshot)
    assert catalog.manifest(scope) == before
    assert catalog.commit([ours], onto=before.snapshot)[0].sequence == 3


def test_a_commit_whose_answer_is_lost_says_so_and_is_found(stopped: tuple[SqlCatalog, list[str]]) -> None:
    catalog, plan = stopped
    scope = catalog.create_table("t", SCHEMA, {}).scope
    head = catalog.head(scope)
    ours = commit_of(scope, AppendHot(hot()), base=1)
    plan.append("transaction.committed")
    with pytest.raises(CommitUnknownError, match="the answer to a commit was lost"):
        catalog.commit([ours], onto=head)
    found = catalog.receipt(scope, commit_id=ours.id)
    assert found is not None
    assert (found.sequence, found.replayed) == (2, True)


def test_readers_do_not_wait_for_a_commit_nor_see_half_of_it(where: str) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def at(point: str) -> None:
        if point == "transaction.written" and threading.current_thread() is not threading.main_thread():
            inside.set()
            assert go_on.wait(30)

    with open_sql(where, at=at) as catalog:
        scope = catalog.create_table("t", SCHEMA, {}).scope
        append(catalog, scope)
        before = catalog.manifest(scope)
        with ThreadPoolExecutor(1) as threads:
            slow = threads.submit(publish, catalog, scope, AppendHot(hot()))
            assert inside.wait(30)
            assert catalog.manifest(scope) == before
            assert catalog.head(scope).sequence == 2
            go_on.set()
            slow.result(30)
        assert catalog.head(scope).sequence == 3


def test_a_process_that_forked_uses_connections_of_its_own(tmp_path: Path) -> None:
    code = f"""
import os
from tests.support.catalogs import *
catalog = open_sql({str(tmp_path / "c.sqlite")!r})
scope = catalog.create_table("t", SCHEMA, {{}}).scope
append(catalog, scope)
child = os.fork()
for _ in range(20):
    while True:
        try:
            append(catalog, scope)
            break
        except Exception as error:
            assert type(error).__name__ == "StaleHead", error
if child:
    assert os.waitpid(child, 0)[1] == 0
    assert catalog.head(scope).totals.extents == 41
    print("both are in")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("both are in\n", "")


def test_what_is_not_durable_leaves_the_connection_durable(tmp_path: Path) -> None:
    with open_sql(str(tmp_path / "c.sqlite")) as catalog:
        database = catalog._database
        with database.writing(durable=False) as transaction:
            assert transaction.run_text("PRAGMA synchronous") == [(1,)]
        with database.writing() as transaction:
            assert transaction.run_text("PRAGMA synchronous") == [(2,)]


def test_a_busy_file_is_told_after_a_while(tmp_path: Path) -> None:
    file = tmp_path / "c.sqlite"
    with SqlCatalog(str(file), deadline_s=0.2) as catalog:
        other = sqlite3.connect(file, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        begun = time.monotonic()
        with pytest.raises(StorageError, match="the catalog is busy") as error:
            catalog.create_table("t", SCHEMA, {})
        assert error.value.kind == "busy"
        assert 0.2 <= time.monotonic() - begun < 5
        other.execute("ROLLBACK")
        other.close()
        catalog.create_table("t", SCHEMA, {})


def test_a_stale_head_crosses_processes_whole(tmp_path: Path) -> None:
    with open_sql(str(tmp_path / "c.sqlite")) as catalog:
        scope = catalog.create_table("t", SCHEMA, {}).scope
        old = catalog.head(scope)
        append(catalog, scope)
        with pytest.raises(StaleHead) as stale:
            catalog.commit([commit_of(scope, AppendHot(hot()), base=1)], onto=old)
    again = pickle.loads(pickle.dumps(stale.value))
    assert (str(again), again.head, again.kind) == (str(stale.value), stale.value.head, "stale")


def test_a_million_users_cost_one_row_each_when_they_first_commit(tmp_path: Path) -> None:
    with open_sql(str(tmp_path / "c.sqlite")) as catalog:
        table_id = catalog.create_table("t", SCHEMA, {}).id
        users = [Scope(table_id, f"u{number:04}") for number in range(1500)]
        assert catalog.head(users[7]).sequence == 0
        assert len(list(catalog.scopes(table_id))) == 1
        for user in users[::3]:
            publish(catalog, user, AppendHot(hot()))
        assert list(catalog.scopes(table_id)) == [Scope(table_id), *users[::3]]


def test_too_many_extents_in_one_snapshot_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelake.catalog.sql.extent_listing.MAX_ADDED", 3)
    with open_sql(str(tmp_path / "c.sqlite")) as catalog:
        scope = catalog.create_table("t", SCHEMA, {}).scope
        publish(catalog, scope, *(AddExtent(extent()) for _ in range(3)))
        with pytest.raises(InvalidInputError, match="too many extents in one snapshot"):
            publish(catalog, scope, *(AddExtent(extent()) for _ in range(4)))
        assert catalog.head(scope).totals.extents == 3
