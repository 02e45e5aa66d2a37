"""Show that damage is an error and never an answer: single bits flipped in every file of a lake, and rows changed.

Flips run in a child, so that a crash fails the test and not the run. Each run says its seed. It does not test extents
alone: see ``test_extent_hostile``.
"""

from __future__ import annotations

import ast
import itertools
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.catalog.test_catalog_sql import as_nobody
from tests.support.catalogs import SCHEMA as COLUMNS
from tests.support.catalogs import SQL_STORES, append, commit_of, extent, hot, open_sql, place_of, publish
from tests.support.flips import build
from tidelake.catalog import open_catalog
from tidelake.catalog.sql.layout import later_columns
from tidelake.catalog.sql.setup import CHECKED_BYTES
from tidelake.catalog.sql.sql_catalog import SqlCatalog
from tidelake.errors import CorruptError, InvalidInputError
from tidelake.model.predicate import Equals
from tidelake.model.snapshot import AddExtent, AppendHot, RecordOffset, Scope, UpdateTable

FEW, MANY, PER_CHILD = 80, 10_000, 2_000
LATER = {column for _, column, _ in later_columns()}  # what an older program neither reads nor writes


@pytest.fixture(scope="module")
def lakes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("flips")
    build(folder)
    return folder


def test_a_flipped_bit_is_an_error_or_changes_no_answer(lakes: Path) -> None:
    _flip(lakes, 7, FEW)


@pytest.mark.torture
def test_ten_thousand_flipped_bits_are_errors_or_change_no_answer(lakes: Path) -> None:
    for seed in range(100, 100 + MANY // PER_CHILD):
        _flip(lakes, seed, PER_CHILD)


def _flip(lakes: Path, seed: int, count: int) -> None:
    command = [sys.executable, "-m", "tests.support.flips", str(lakes), str(seed), str(count)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"seed {seed}: {done.stdout[-2000:]} {done.stderr[-2000:]}"
    *wrong, last = done.stdout.splitlines()
    found = ast.literal_eval(last)
    print(f"seed {seed}: {found}")
    assert wrong == [], f"seed {seed}"
    assert {"WRONG", "RAW"}.isdisjoint(found)
    assert sum(found.values()) == count
    assert found["corrupt"]


# By what is changed: the statement that does it.
DAMAGE = {
    "a hot payload": "UPDATE hot_batches SET payload = (SELECT max(payload) FROM hot_batches)",
    "the rows of a hot batch": "UPDATE hot_batches SET rows = rows + 1 WHERE added_seq = 2",
    "a hot batch that is gone": "UPDATE hot_batches SET removed_seq = 0 WHERE added_seq = 2",
    "a hot batch that is lost": "DELETE FROM hot_batches WHERE added_seq = 2",
    "the place of an extent": "UPDATE extents SET \"key\" = 'data/other'",
    "the times of an extent": "UPDATE extents SET min_ts_ns = min_ts_ns + 1, max_ts_ns = max_ts_ns + 1",
    "the rows of an extent": "UPDATE extents SET row_count = row_count + 1",
    "an extent that is gone": "UPDATE extents SET removed_seq = added_seq + 1 WHERE added_seq = 4",
    "an extent that is lost": "DELETE FROM extents WHERE added_seq = 4",
    "statistics": "UPDATE extent_columns SET body = (SELECT max(body) FROM extent_columns)",
    "bounds": "UPDATE extent_columns SET least_whole = least_whole + 100, most_whole = most_whole + 100",
    "the counts of a snapshot": "UPDATE snapshots SET counts = replace(counts, '2', '3')",
    "a snapshot that is lost": "DELETE FROM snapshots WHERE sequence = 3",
    "the head that is lost": "DELETE FROM snapshots WHERE sequence = 6",
    "a head that points back": "UPDATE scopes SET sequence = sequence - 1",
    "a head that points nowhere": "UPDATE scopes SET sequence = sequence + 64",
    "a scope that is lost": "DELETE FROM scopes",
    "a schema": "UPDATE schemas SET body = replace(body, 'service', 'servise')",
    "a schema that is no JSON": "UPDATE schemas SET body = 'none'",
    "the schema's version": "UPDATE tables SET schema_version = 9",
    "settings": "UPDATE settings SET body = replace(body, 'a', 'e')",
    "settings of before": "UPDATE tables SET settings_seq = 1",
    "settings that are lost": "DELETE FROM settings",
}


@pytest.mark.parametrize("store", SQL_STORES)
@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_changed_row_is_corrupt(request: pytest.FixtureRequest, tmp_path: Path, store: str, damage: str) -> None:
    place = place_of(store, request, tmp_path)
    with open_sql(place) as catalog:
        scope = _fill(catalog)
        _ask(catalog, scope)
    with open_sql(place) as catalog:
        with catalog._database.writing() as transaction:
            transaction.run_text(damage)
        with pytest.raises(CorruptError) as error:
            _ask(catalog, scope)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("store", SQL_STORES)
@pytest.mark.parametrize("of", ["extents", "hot_batches"])
@pytest.mark.parametrize("damage", ["DELETE FROM {}", "UPDATE {} SET removed_seq = 1"])
def test_changes_that_are_lost_are_corrupt(
    request: pytest.FixtureRequest, tmp_path: Path, store: str, of: str, damage: str
) -> None:
    with open_sql(place_of(store, request, tmp_path)) as catalog:
        scope = _fill(catalog)
        head = catalog.head(scope).sequence
        for after in range(head + 1):
            catalog.changes(scope, after=after, upto=head)
        with catalog._database.writing() as transaction:
            transaction.run_text(damage.format(of))
        with pytest.raises(CorruptError, match="cannot be read"):
            catalog.changes(scope, after=0, upto=head)


@pytest.mark.parametrize("store", SQL_STORES)
def test_a_changed_receipt_is_corrupt(request: pytest.FixtureRequest, tmp_path: Path, store: str) -> None:
    with open_sql(place_of(store, request, tmp_path)) as catalog:
        scope = catalog.create_table("t", COLUMNS, {}).scope
        publish(catalog, scope, AppendHot(hot()), key="once")
        with catalog._database.writing() as transaction:
            transaction.run_text("UPDATE receipts SET sequence = sequence + 4")
        with pytest.raises(CorruptError, match="a receipt cannot be read"):
            catalog.receipt(scope, key="once")


@pytest.mark.parametrize("store", SQL_STORES)
def test_a_changed_key_is_corrupt_and_its_rows_are_not_there_twice(
    request: pytest.FixtureRequest, tmp_path: Path, store: str
) -> None:
    with open_sql(place_of(store, request, tmp_path)) as catalog:
        scope = catalog.create_table("t", COLUMNS, {}).scope
        publish(catalog, scope, AppendHot(hot()), key="once")
        with catalog._database.writing() as transaction:
            transaction.run_text("UPDATE commit_keys SET key = 'onse'")
        for key in ("once", "onse"):
            with pytest.raises(CorruptError, match="a key cannot be read"):
                catalog.receipt(scope, key=key)
        with pytest.raises(CorruptError, match="a key cannot be read"):
            publish(catalog, scope, AppendHot(hot()), key="once")
        assert len(catalog.hot(scope)) == 1
        assert catalog.receipt(scope, key="other") is None


def test_a_bit_that_flips_in_the_text_of_a_key_is_corrupt(tmp_path: Path) -> None:
    """In a catalog that is too large to be checked when it is opened."""
    file, key = tmp_path / "catalog.sqlite", "a-key-of-which-there-is-but-one"
    with open_sql(str(file)) as catalog:
        scope = catalog.create_table("t", COLUMNS, {}).scope
        for each in ("a-key-before", key, "a-key-which-is-after"):
            publish(catalog, scope, AppendHot(hot()), key=each)
        with catalog._database.writing() as transaction:
            transaction.run_text(f"CREATE TABLE filler AS SELECT zeroblob({CHECKED_BYTES}) AS body")
    places = [found.start() for found in re.finditer(key.encode(), file.read_bytes())]
    assert len(places) == 2  # in the table and in the index
    for place, at, bit in itertools.product(places, (0, 7, len(key) - 1), range(8)):
        with bit_of(file, (place + at) * 8 + bit), open_sql(str(file)) as catalog, pytest.raises(CorruptError):
            publish(catalog, scope, AppendHot(hot()), key=key)
    with open_sql(str(file)) as catalog:
        assert publish(catalog, scope, AppendHot(hot()), key=key).replayed


@pytest.mark.parametrize("store", SQL_STORES)
@pytest.mark.parametrize("damage", ["batch = batch + 2", "batch = batch - 2", "stream = 'spork'", "batch_checksum = 0"])
@pytest.mark.parametrize("forgotten", [False, True], ids=["with keys", "without keys"])
def test_a_changed_offset_is_corrupt_and_its_rows_are_not_there_twice(
    request: pytest.FixtureRequest, tmp_path: Path, store: str, damage: str, forgotten: bool
) -> None:
    with open_sql(place_of(store, request, tmp_path)) as catalog:
        scope = catalog.create_table("t", COLUMNS, {}).scope
        for batch in range(3, 6):
            publish(catalog, scope, AppendHot(hot()), RecordOffset("spark", batch))
        publish(catalog, scope, AppendHot(hot()), RecordOffset("other", 0))
        if forgotten:
            catalog.expire_receipts(before_us=2**60)
        with catalog._database.writing() as transaction:
            transaction.run_text(f"UPDATE offsets SET {damage} WHERE stream = 'spark'")
        if damage == "batch_checksum = 0" and not forgotten:  # the key vouches for it
            assert publish(catalog, scope, AppendHot(hot()), RecordOffset("spark", 5)).replayed
            return
        for batch in (2, 4, 6) if forgotten else (2, 6):
            with pytest.raises(CorruptError, match="an offset cannot be read"):
                publish(catalog, scope, AppendHot(hot()), RecordOffset("spark", batch))
        with pytest.raises(CorruptError, match="an offset cannot be read"):
            catalog.manifest(scope)
        assert len(catalog.hot(scope)) == 4
        assert not publish(catalog, scope, AppendHot(hot()), RecordOffset("other", 1)).replayed


def test_a_bit_that_flips_in_an_offset_is_corrupt(tmp_path: Path) -> None:
    """In a catalog that is too large to be checked when it is opened."""
    file, stream = tmp_path / "catalog.sqlite", "a-stream-of-which-there-is-but-one"
    with open_sql(str(file)) as catalog:
        scope = catalog.create_table("t", COLUMNS, {}).scope
        for each in ("a-stream-before", stream, "a-stream-which-is-after"):
            publish(catalog, scope, AppendHot(hot()), RecordOffset(each, 100))
        catalog.expire_receipts(before_us=2**60)
        with catalog._database.writing() as transaction:
            transaction.run_text(f"CREATE TABLE filler AS SELECT zeroblob({CHECKED_BYTES}) AS body")
    (place,) = (found.start() for found in re.finditer(stream.encode(), file.read_bytes()))
    for at, bit in itertools.product((0, 7, len(stream) - 1, len(stream), len(stream) + 5), range(8)):
        with bit_of(file, (place + at) * 8 + bit), open_sql(str(file)) as catalog:
            for batch in (99, 101):
                with pytest.raises(CorruptError):
                    publish(catalog, scope, AppendHot(hot()), RecordOffset(stream, batch))
    with open_sql(str(file)) as catalog:
        assert publish(catalog, scope, AppendHot(hot()), RecordOffset(stream, 99)).replayed
        assert not publish(catalog, scope, AppendHot(hot()), RecordOffset(stream, 101)).replayed


@pytest.mark.parametrize("store", SQL_STORES)
def test_an_offset_that_an_older_process_raised_is_sound(
    request: pytest.FixtureRequest, tmp_path: Path, store: str
) -> None:
    place = place_of(store, request, tmp_path)
    with open_sql(place) as older, open_sql(place) as newer:
        scope = older.create_table("t", COLUMNS, {}).scope
        older._database.leave_out(LATER)
        for catalog, batch in ((newer, 1), (older, 2), (newer, 3), (older, 9), (older, 10)):
            assert not publish(catalog, scope, AppendHot(hot()), RecordOffset("s", batch)).replayed
        assert newer.manifest(scope).offsets == {"s": 10}
        newer.expire_receipts(before_us=2**60)  # the last that could vouch for it
        assert newer.manifest(scope).offsets == {"s": 10}
        assert publish(newer, scope, AppendHot(hot()), RecordOffset("s", 10)).replayed
        assert not publish(older, scope, AppendHot(hot()), RecordOffset("s", 11)).replayed
        assert older.manifest(scope).offsets == newer.manifest(scope).offsets == {"s": 11}


@contextmanager
def bit_of(file: Path, bit: int) -> Iterator[None]:
    """Turn a bit of a large file for a while."""
    _turn(file, bit)
    yield
    _turn(file, bit)


def _turn(file: Path, bit: int) -> None:
    with file.open("r+b") as opened:
        opened.seek(bit // 8)
        (byte,) = opened.read(1)
        opened.seek(bit // 8)
        opened.write(bytes([byte ^ 1 << bit % 8]))


@pytest.mark.parametrize("store", SQL_STORES)
def test_a_catalog_without_checksums_is_read_and_gets_them(
    request: pytest.FixtureRequest, tmp_path: Path, store: str
) -> None:
    place = place_of(store, request, tmp_path)
    with open_sql(place) as older:
        scope = _fill(older)
        expected = _ask(older, scope)
        _without_checksums(older)
        with open_sql(place) as newer:
            assert _ask(newer, scope) == expected
            publish(newer, scope, AppendHot(hot()), RecordOffset("s", 1))
            assert newer.manifest(scope).offsets == {"s": 1}
            assert len(newer.hot(scope)) == 3
            with newer._database.writing() as transaction:
                transaction.run_text("UPDATE hot_batches SET min_ts_ns = min_ts_ns + 1 WHERE checksum IS NULL")
            assert len(newer.hot(scope)) == 3
            with newer._database.writing() as transaction:
                transaction.run_text("UPDATE hot_batches SET min_ts_ns = min_ts_ns + 1 WHERE checksum IS NOT NULL")
            with pytest.raises(CorruptError, match="a hot batch cannot be read"):
                newer.hot(scope)


@pytest.mark.parametrize("store", SQL_STORES)
@pytest.mark.parametrize("damage", ["replace(commits, ',1', ',2')", "'[]'", "replace(commits, '[', '{')"])
def test_a_changed_share_of_a_commit_is_corrupt(
    request: pytest.FixtureRequest, tmp_path: Path, store: str, damage: str
) -> None:
    with open_sql(place_of(store, request, tmp_path)) as catalog:
        scope = _fill(catalog)
        assert len(catalog.contributions(scope, sequence=2)) == 1
        with catalog._database.writing() as transaction:
            transaction.run_text(f"UPDATE snapshots SET commits = {damage}")
        with pytest.raises(CorruptError, match="commits cannot be read"):
            catalog.contributions(scope, sequence=2)


@pytest.mark.parametrize("store", SQL_STORES)
def test_of_an_older_snapshot_only_the_share_of_a_lone_commit_is_known(
    request: pytest.FixtureRequest, tmp_path: Path, store: str
) -> None:
    place = place_of(store, request, tmp_path)
    with open_sql(place) as older:
        scope = _fill(older)
        commits = [commit_of(scope, AppendHot(hot()), base=older.head(scope).sequence) for _ in range(2)]
        older.commit(commits, onto=older.head(scope))
        expected = [older.contributions(scope, sequence=at) for at in range(1, 7)]
        _without_checksums(older)
        assert [older.contributions(scope, sequence=at) for at in range(1, 7)] == expected
    with open_sql(place) as newer:
        assert [newer.contributions(scope, sequence=at) for at in range(1, 7)] == expected
        with pytest.raises(InvalidInputError, match="before it was recorded") as error:
            newer.contributions(scope, sequence=7)
        assert (error.value.kind, error.value.facts["commits"]) == ("not_recorded", 2)
        receipt = publish(newer, scope, AppendHot(hot()))
        assert [each.commit_id for each in newer.contributions(scope, sequence=8)] == [receipt.commit_id]
        newer.expire_receipts(before_us=receipt.committed_us)
        with pytest.raises(InvalidInputError, match="before it was recorded"):
            newer.contributions(scope, sequence=2)
        assert [each.commit_id for each in newer.contributions(scope, sequence=8)] == [receipt.commit_id]


@pytest.mark.parametrize("store", SQL_STORES)
def test_an_older_process_goes_on_beside_a_newer_one(
    request: pytest.FixtureRequest, tmp_path: Path, store: str
) -> None:
    place = place_of(store, request, tmp_path)
    with open_sql(place) as older, open_sql(place) as newer:
        scope = _fill(older)
        older._database.leave_out(LATER)
        publish(older, scope, AppendHot(hot()))
        append(older, scope, stats={"level": {"min": 7, "max": 9}})
        publish(newer, scope, AppendHot(hot()))
        assert _ask(newer, scope) == _ask(older, scope)
        assert len(newer.hot(scope)) == 4


def test_a_catalog_without_checksums_is_read_by_who_may_only_read() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with open_catalog(folder / "lake") as older:
            assert isinstance(older, SqlCatalog)
            scope = _fill(older)
            expected = _ask(older, scope)
            _without_checksums(older)
        for each in (folder, *folder.rglob("*")):
            each.chmod(0o555 if each.is_dir() else 0o444)
        with as_nobody(), open_catalog(folder / "lake") as reader:
            assert isinstance(reader, SqlCatalog)
            assert _ask(reader, scope) == expected
        for each in (folder, folder / "lake"):
            each.chmod(0o755)


@pytest.mark.parametrize("store", SQL_STORES)
def test_a_catalog_without_checksums_of_keys_gets_them(
    request: pytest.FixtureRequest, tmp_path: Path, store: str
) -> None:
    place = place_of(store, request, tmp_path)
    with open_sql(place) as older:
        scope = _fill(older)
        publish(older, scope, AppendHot(hot()), key="before")
        with older._database.writing() as transaction:
            transaction.run_text("DROP INDEX commit_keys_by_checksum")
            transaction.run_text("ALTER TABLE commit_keys DROP COLUMN checksum")
    with open_sql(place) as newer:
        publish(newer, scope, AppendHot(hot()), key="after")
        again = [publish(newer, scope, AppendHot(hot()), key=key).replayed for key in ("before", "after")]
        assert again == [True, True]
        with newer._database.writing() as transaction:
            transaction.run_text("UPDATE commit_keys SET key = 'aftar' WHERE key = 'after'")
        with pytest.raises(CorruptError, match="a key cannot be read"):
            publish(newer, scope, AppendHot(hot()), key="after")


def _fill(catalog: SqlCatalog) -> Scope:
    scope = catalog.create_table("t", COLUMNS, {"a": 1}).scope
    publish(catalog, scope, AppendHot(hot()))
    publish(catalog, scope, AppendHot(hot()), RecordOffset("s", 0))
    append(catalog, scope, stats={"level": {"min": 1, "max": 3}}, times=(0, 999))
    append(catalog, scope, stats={"level": {"min": 50, "max": 60}}, times=(5000, 5999))
    publish(catalog, scope, UpdateTable(None, {"b": "a"}))
    return scope


def _ask(catalog: SqlCatalog, scope: Scope) -> list[Any]:
    head = catalog.head(scope)
    return [
        head,
        catalog.hot(scope),
        catalog.extents(scope, where=Equals("level", 2)),
        catalog.extents(scope, start_ns=0, end_ns=100),
        catalog.extents(scope),
        catalog.history(scope),
        catalog.manifest(scope, sequence=4),
    ]


def _without_checksums(catalog: SqlCatalog) -> None:
    """Make a catalog as an older version made it."""
    with catalog._database.writing() as transaction:
        transaction.run_text("DROP INDEX commit_keys_by_checksum")
        for table, column, _ in later_columns():
            transaction.run_text(f"ALTER TABLE {table} DROP COLUMN {column}")
    catalog._database.leave_out(LATER)


@pytest.mark.parametrize("store", SQL_STORES)
def test_what_rows_took_in_memory_is_known_to_newer_processes_and_harms_no_older_one(
    request: pytest.FixtureRequest, tmp_path: Path, store: str
) -> None:
    place = place_of(store, request, tmp_path)
    with open_sql(place) as older, open_sql(place) as newer:
        scope = older.create_table("t", COLUMNS, {}).scope
        older._database.leave_out({"unpacked_bytes"})
        for catalog, noted in ((newer, 12_345), (older, 999), (newer, None)):
            publish(catalog, scope, AddExtent(replace(extent(), unpacked_bytes=noted)))
        assert [each.unpacked_bytes for each in newer.extents(scope)] == [12_345, None, None]
        assert [each.unpacked_bytes for each in older.extents(scope)] == [None, None, None]
        with newer._database.writing() as transaction:
            transaction.run_text("UPDATE extents SET unpacked_bytes = -7")
        assert [each.unpacked_bytes for each in newer.extents(scope)] == [None, None, None]
