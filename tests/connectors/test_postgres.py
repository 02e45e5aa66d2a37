"""Hold the sync of PostgreSQL to this: the lake has what the source has, and every change of it once."""

from __future__ import annotations

import secrets
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import tidelake
from tests.connectors.conftest import Shop
from tidelake.connectors import latest, spooling
from tidelake.connectors.definition import SYSTEM_COLUMNS
from tidelake.connectors.postgres import reading
from tidelake.connectors.postgres.connecting import connect
from tidelake.connectors.protocol import outcome_of
from tidelake.connectors.sources import SyncedSource
from tidelake.lake import Lake

ORDERS = "CREATE TABLE orders (id int PRIMARY KEY, name text, amount numeric(10,2))"
SOME = "INSERT INTO orders SELECT i, 'name ' || i, i * 1.5 FROM generate_series(1, 20) i"


def synced(shop: Shop, *tables: str, **options: Any) -> SyncedSource:
    shop.lake.sync(shop.url, list(tables) or ["public.orders"], into="crm", **options)
    return shop.lake.source("crm")


def test_a_copy_and_every_change_after_it_are_what_the_source_has(shop: Shop) -> None:
    shop(ORDERS, SOME)
    source = synced(shop)
    assert shop.latest("crm.orders") == shop.rows("orders")
    shop(
        "UPDATE orders SET name = 'other' WHERE id < 4",
        "DELETE FROM orders WHERE id IN (4, 5)",
        "INSERT INTO orders VALUES (5, 'again', NULL)",  # a key that was deleted
        "UPDATE orders SET id = 100 WHERE id = 6",
        "BEGIN; INSERT INTO orders VALUES (7000, 'never', 1); ROLLBACK",
        "BEGIN; INSERT INTO orders VALUES (50, 'a', 1); UPDATE orders SET name = 'b' WHERE id = 50; "
        "DELETE FROM orders WHERE id = 50; INSERT INTO orders VALUES (50, 'c', 3); COMMIT",
    )
    report = source.run()
    assert (report.copied, report.changes) == (0, 3 + 2 + 1 + 2 + 4)
    assert shop.latest("crm.orders") == shop.rows("orders")
    assert shop.log("crm.orders")[20:] == [
        ("1", "update"), ("2", "update"), ("3", "update"), ("4", "delete"), ("5", "delete"), ("5", "insert"),
        ("6", "delete"), ("100", "update"), ("50", "insert"), ("50", "update"), ("50", "delete"), ("50", "insert"),
    ]  # fmt: skip
    assert source.run().changes == 0


def test_sql_and_kql_ask_for_the_latest(shop: Shop) -> None:
    shop(ORDERS, SOME)
    source = synced(shop)
    shop("UPDATE orders SET amount = 1000 WHERE id = 3", "DELETE FROM orders WHERE id = 4")
    source.run()
    sql = "SELECT count(*) AS n, sum(amount) AS s FROM latest('crm.orders') WHERE id <= 5"
    assert shop.lake.sql(sql).to_arrow().to_pylist() == [{"n": 4, "s": Decimal("1012.00")}]
    kql = "latest('crm.orders') | where name == 'name 3' | project id, _tide_op"
    assert shop.lake.kql(kql).to_arrow().to_pylist() == [{"id": 3, "_tide_op": "update"}]
    joined = "SELECT count(*) AS n FROM latest('crm.orders') l JOIN crm.orders o ON l.id = o.id"
    assert shop.lake.sql(joined).to_arrow().to_pylist() == [{"n": 20}]
    shop.lake.create_table("plain", {"ts": "timestamp"})
    with pytest.raises(tidelake.InvalidInputError, match="not synced"):
        shop.lake.sql("SELECT * FROM latest('plain')").to_arrow()


def test_the_latest_rows_are_refused_where_one_question_would_hold_too_many(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop(ORDERS, SOME)
    synced(shop).run()
    monkeypatch.setattr(latest, "MAX_BYTES", 100)
    with pytest.raises(tidelake.UnavailableError, match="too many for one question"):
        shop.lake.sql("SELECT * FROM latest('crm.orders')").to_arrow()
    assert shop.lake.table("crm.orders").latest().read_all().num_rows == 20


def test_types_are_those_of_the_table(shop: Shop) -> None:
    shop(
        "CREATE TYPE mood AS ENUM ('good', 'bad')",
        "CREATE DOMAIN cents AS numeric(12,2)",
        "CREATE TABLE kinds (id bigint PRIMARY KEY, i2 smallint, r real, d double precision, b boolean, day date, "
        "local timestamp, at timestamptz, raw bytea, j jsonb, tags text[], grid int[][], flags bool[], mood mood, "
        "price cents, wide numeric, u uuid, pad char(4), span interval, net inet)",
    )
    values = (
        "-3, 0.1, 1e300, true, '2026-03-14', '2026-03-14 12:00:00.5', '2026-03-14 12:00:00+02', '\\x00ff', "
        """'{"a": [1, null]}', '{a,"b \\"c\\"",NULL}', '{{1,2},{3,4}}', '{t,f}', 'good', 12.5, 1e30, """
        "'00000000-0000-0000-0000-000000000001', 'ab', '1 day 02:00', '10.0.0.1'"
    )
    shop(f"INSERT INTO kinds VALUES (1, {values})", "INSERT INTO kinds (id) VALUES (2)")
    source = synced(shop, "public.kinds")
    shop(f"INSERT INTO kinds VALUES (3, {values})")
    source.run()
    copied, nothing, streamed = sorted(
        shop.lake.table("crm.kinds").latest().read_all().to_pylist(), key=lambda row: int(row["id"])
    )
    assert nothing == {**dict.fromkeys(nothing), "id": 2, **{name: nothing[name] for name in SYSTEM_COLUMNS}}
    for row in (copied, streamed):
        assert {name: value for name, value in row.items() if name not in ("id", *SYSTEM_COLUMNS)} == {
            "i2": -3, "r": 0.1, "d": 1e300, "b": True, "day": date(2026, 3, 14),
            "local": datetime(2026, 3, 14, 12, 0, 0, 500_000), "at": datetime(2026, 3, 14, 10, tzinfo=UTC),
            "raw": b"\x00\xff", "j": '{"a":[1,null]}', "tags": '["a","b \\"c\\"",null]', "grid": "[[1,2],[3,4]]",
            "flags": "[true,false]", "mood": "good", "price": Decimal("12.50"), "wide": f"1{'0' * 30}",
            "u": "00000000-0000-0000-0000-000000000001", "pad": "ab  ", "span": "1 day 02:00:00", "net": "10.0.0.1",
        }  # fmt: skip


def test_values_that_no_type_here_holds_are_kept_beside(shop: Shop) -> None:
    shop("CREATE TABLE odd (id int PRIMARY KEY, day date, price numeric(5,2))", "INSERT INTO odd VALUES (1, now(), 1)")
    source = synced(shop, "public.odd")
    shop("INSERT INTO odd VALUES (2, 'infinity', 'NaN')")
    source.run()
    row = next(row for row in shop.lake.table("crm.odd").latest().read_all().to_pylist() if row["id"] == 2)
    assert (row["day"], row["price"], row["_overflow"]) == (None, None, '{"day":"infinity","price":"NaN"}')


def test_keys_of_several_columns_do_not_run_into_one_another(shop: Shop) -> None:
    shop(
        "CREATE TABLE pairs (a text, b text, n int, PRIMARY KEY (a, b))",
        "INSERT INTO pairs VALUES ('x:y', 'z', 1), ('x', 'y:z', 2), ('%3A', '', 3), (':', '', 4)",
    )
    source = synced(shop, "public.pairs")
    shop("UPDATE pairs SET n = n + 10 WHERE a = 'x'")
    source.run()
    assert shop.latest("crm.pairs") == shop.rows("pairs")
    assert {key for key, _ in shop.log("crm.pairs")} == {"x%3Ay:z", "x:y%3Az", "%253A:", "%3A:"}


@pytest.mark.parametrize("mode", ["log", "upsert"])
def test_altered_tables_are_followed_without_a_resync(shop: Shop, mode: str) -> None:
    shop(ORDERS, SOME)
    source = synced(shop, mode=mode)
    shop(
        "UPDATE orders SET name = 'before' WHERE id = 1",
        "BEGIN; UPDATE orders SET name = 'within' WHERE id = 2; ALTER TABLE orders ADD COLUMN note text; "
        "UPDATE orders SET note = 'new' WHERE id = 3; COMMIT",
        "ALTER TABLE orders ADD COLUMN stock int DEFAULT 7",
        "UPDATE orders SET stock = 8 WHERE id = 4",
        "ALTER TABLE orders ALTER COLUMN stock TYPE bigint",
        "UPDATE orders SET stock = 5000000000 WHERE id = 5",
        "ALTER TABLE orders RENAME COLUMN name TO label",
        "UPDATE orders SET label = 'renamed' WHERE id = 6",
    )
    source.run()
    found = {row["id"]: row for row in shop.latest("crm.orders")}
    assert {row["id"]: row.get("stock") for row in shop.rows("orders")} == {
        id: row.get("stock") for id, row in found.items()
    }
    assert (found[3]["note"], found[6]["label"], found[5]["stock"]) == ("new", "renamed", 5_000_000_000)
    assert [row["label"] for _, row in sorted(found.items())] == [
        row["label"] for row in sorted(shop.rows("orders"), key=lambda row: row["id"])
    ]
    shop("ALTER TABLE orders DROP COLUMN note", "UPDATE orders SET stock = 1 WHERE id = 3")
    shop("ALTER TABLE orders ALTER COLUMN stock TYPE text USING 'x' || stock", "DELETE FROM orders WHERE id = 9")
    shop("UPDATE orders SET stock = 'many' WHERE id = 8")
    source.run()
    found = {row["id"]: row for row in shop.latest("crm.orders")}
    assert {id: row["stock"] for id, row in found.items()} == {
        row["id"]: f'"{row["stock"]}"' for row in shop.rows("orders")
    }


def test_a_column_that_took_the_place_of_another_has_nothing_of_it(shop: Shop) -> None:
    shop(ORDERS, SOME)
    source = synced(shop)
    shop("ALTER TABLE orders DROP COLUMN name", "ALTER TABLE orders ADD COLUMN name text")
    shop("ALTER TABLE orders ADD COLUMN dice float DEFAULT random()", "ALTER TABLE orders ALTER dice DROP DEFAULT")
    shop("UPDATE orders SET amount = 0 WHERE id = 1")
    source.run()
    assert shop.latest("crm.orders") == shop.rows("orders")


@pytest.mark.parametrize("mode", ["log", "upsert"])
def test_truncation_empties_the_table_and_what_follows_stays(shop: Shop, mode: str) -> None:
    shop(ORDERS, SOME)
    source = synced(shop, mode=mode)
    shop("UPDATE orders SET name = 'x'", "BEGIN; TRUNCATE orders; INSERT INTO orders VALUES (3, 'c', 1); COMMIT")
    source.run()
    assert shop.latest("crm.orders") == shop.rows("orders")
    shop("TRUNCATE orders")
    source.run()
    assert shop.latest("crm.orders") == []


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL"])
def test_long_values_that_an_update_leaves_out_are_as_they_were(shop: Shop, identity: str) -> None:
    long = secrets.token_hex(20_000)
    shop(
        "CREATE TABLE docs (id int PRIMARY KEY, n int, body text, meta jsonb)",
        f"ALTER TABLE docs REPLICA IDENTITY {identity}",
        f"INSERT INTO docs SELECT i, 0, '{long}' || i, '{{\"a\": \"{long}\"}}' FROM generate_series(1, 3) i",
    )
    source = synced(shop, "public.docs")
    shop("UPDATE docs SET n = 1 WHERE id = 1")  # of the copy
    shop("INSERT INTO docs SELECT 4, 0, body || 'x', meta FROM docs WHERE id = 1", "UPDATE docs SET n = 2 WHERE id = 4")
    shop(
        "UPDATE docs SET body = 'short' WHERE id = 2",
        "UPDATE docs SET n = 3 WHERE id = 2",
        "DELETE FROM docs WHERE id = 3",
    )
    source.run()
    shop("UPDATE docs SET n = 9")
    source.run()
    rows = shop.lake.table("crm.docs").latest(["id", "n", "body"]).read_all().to_pylist()
    own = shop.database.execute("SELECT id, n, body FROM docs ORDER BY id").fetchall()
    assert sorted((row["id"], row["n"], row["body"]) for row in rows) == own


def test_a_table_that_is_altered_before_it_is_copied_is_copied_as_it_is_then(shop: Shop) -> None:
    shop(ORDERS, SOME, "CREATE TABLE other (id int PRIMARY KEY, n int)", "INSERT INTO other VALUES (1, 2)")
    definition = synced(shop, "public.orders", "public.other").definition
    source = reading.PostgresSource(definition)
    try:
        tables = source.discover(["public.orders", "public.other"])
        shop("ALTER TABLE orders DROP COLUMN name", "ALTER TABLE orders ADD COLUMN more int DEFAULT 3")
        copies = source.snapshot(tables)
        first = next(copies)
        rows = pa.Table.from_batches(list(first.rows)).to_pylist()
        assert tuple(first.table.columns) == ("id", "amount", "more")
        assert [row["more"] for row in rows] == [3] * 20
        shop("ALTER TABLE other ALTER COLUMN n TYPE bigint")  # its rows are in files that the snapshot does not see
        with pytest.raises(tidelake.StorageError, match="altered while it was copied") as passing:
            next(copies)
        assert outcome_of(passing.value) == "transient"
        again = source.snapshot(tables[1:])
        assert pa.Table.from_batches(list(next(again).rows)).column("n").to_pylist() == [2]
    finally:
        source.close()


def test_a_slot_that_a_dead_runner_still_holds_is_waited_for(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidelake.connectors.runner.PAUSE_S", (0.0, 0.01))
    shop(ORDERS, SOME)
    source = synced(shop)
    slot = reading.PostgresSource(source.definition).slot
    shop("INSERT INTO orders VALUES (77, 'late', 1)")
    with connect(shop.url, replication="database") as holder:
        publication = f"proto_version '1', publication_names '{slot}'"
        holder.pgconn.exec_(f'START_REPLICATION SLOT "{slot}" LOGICAL 0/0 ({publication})'.encode())
        with pytest.raises(tidelake.StorageError, match="is active"):
            source.run()
        holder.pgconn.finish()
    shop("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active_pid IS NOT NULL")
    assert shop.lake.source("crm").definition.state == "running"
    while shop.database.execute("SELECT 1 FROM pg_replication_slots WHERE active_pid IS NOT NULL").fetchone():
        pass
    assert source.run().changes == 1


def test_upserts_hold_the_current_state_alone(shop: Shop) -> None:
    shop(ORDERS, SOME)
    source = synced(shop, mode="upsert")
    shop("UPDATE orders SET name = 'a'", "UPDATE orders SET name = 'b'", "DELETE FROM orders WHERE id = 1")
    shop("UPDATE orders SET id = 77 WHERE id = 2")
    source.run()
    table = shop.lake.table("crm.orders")
    assert shop.latest("crm.orders") == shop.rows("orders")
    assert len(table) == 19
    assert (table.get(77) or {})["_tide_op"] == "update"


def test_tables_that_cannot_be_synced_are_refused_in_words(shop: Shop) -> None:
    shop(
        "CREATE TABLE heap (a int)",
        "CREATE TABLE silent (a int PRIMARY KEY)",
        "ALTER TABLE silent REPLICA IDENTITY NOTHING",
        "CREATE TABLE taken (a int PRIMARY KEY, _tide_op text)",
        "CREATE SCHEMA other",
        "CREATE TABLE same (a int PRIMARY KEY)",
        "CREATE TABLE other.same (a int PRIMARY KEY)",
    )
    for tables, words in {
        ("public.heap",): "no primary key",
        ("public.silent",): "no primary key",
        ("public.taken",): "has this column itself",
        ("public.nothing",): "no such table",
        ("public.same", "other.same"): "two tables would become one",
    }.items():
        with pytest.raises(tidelake.InvalidInputError, match=words):
            synced(shop, *tables)
    shop.lake.create_table("crm.same", {"ts": "timestamp"})
    with pytest.raises(tidelake.InvalidInputError, match="another table of this name"):
        synced(shop, "public.same")
    assert shop.lake.source("crm").definition.state == "disabled"
    assert shop.lake.table("crm.same").schema.names == ("ts",)


def test_a_slot_that_is_gone_stops_the_source_and_a_resync_goes_on(shop: Shop) -> None:
    shop(ORDERS, SOME)
    source = synced(shop)
    shop("DELETE FROM orders WHERE id < 5", "UPDATE orders SET name = 'unseen' WHERE id = 6")
    shop("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()")
    with pytest.raises(tidelake.NotFoundError, match=r"slot is gone.*--resync") as gone:
        source.run()
    assert gone.value.kind == "slot_lost"
    assert source.definition.state == "stopped"
    assert "slot is gone" in shop.lake.sources().to_pylist()[0]["reason"]
    with pytest.raises(tidelake.InvalidInputError, match="stopped: the replication slot is gone"):
        source.run()
    source.run(resync=True)
    assert shop.latest("crm.orders") == shop.rows("orders")
    shop("INSERT INTO orders VALUES (1, 'back', 0)")
    source.run()
    assert shop.latest("crm.orders") == shop.rows("orders")


def test_changes_that_another_took_from_the_slot_are_missed(shop: Shop) -> None:
    shop(ORDERS, SOME)
    source = synced(shop)
    shop("INSERT INTO orders VALUES (100, 'taken', 0)")
    slot = f"tide_{source.definition.id}"
    shop(f"SELECT pg_replication_slot_advance('{slot}', pg_current_wal_lsn())")
    with pytest.raises(tidelake.NotFoundError, match="somebody else has read") as moved:
        source.run()
    assert moved.value.kind == "slot_moved"


@pytest.mark.parametrize("point", ["sync.copied", "sync.read", "sync.committed", "sync.acknowledged"])
def test_a_run_that_dies_at_a_step_is_taken_up_by_the_next(shop: Shop, point: str) -> None:
    shop(ORDERS, SOME, "CREATE TABLE notes (id int PRIMARY KEY)", "INSERT INTO notes VALUES (1)")

    def die(at: str) -> None:
        if at == point:
            raise KeyboardInterrupt

    tables = ["public.orders", "public.notes"]
    mortal = Lake(replace(shop.lake.handle, at=die))
    if point == "sync.copied":
        with pytest.raises(KeyboardInterrupt):
            mortal.sync(shop.url, tables, into="crm")
    else:
        shop.lake.sync(shop.url, tables, into="crm")
    shop("UPDATE orders SET name = 'x' WHERE id < 3", "INSERT INTO notes VALUES (2)", "DELETE FROM orders WHERE id = 5")
    if point != "sync.copied":
        with pytest.raises(KeyboardInterrupt):
            mortal.source("crm").run()
    shop.lake.source("crm").run()
    for name in ("orders", "notes"):
        assert shop.latest(f"crm.{name}") == shop.rows(name)
    if point != "sync.copied":  # a table that was not copied before the changes has no word of them
        assert shop.log("crm.orders")[20:] == [("1", "update"), ("2", "update"), ("5", "delete")]
        assert shop.log("crm.notes") == [("1", "insert"), ("2", "insert")]


def test_a_batch_holds_whole_transactions_however_large_they_are(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "CHANGES_AT_ONCE", 5)
    shop(ORDERS)
    source = synced(shop)
    shop(SOME, "UPDATE orders SET name = 'x' WHERE id = 1", "DELETE FROM orders WHERE id > 10")
    assert source.run().changes == 31
    assert shop.latest("crm.orders") == shop.rows("orders")
    assert len(shop.lake.table("crm.orders").history()) >= 3


def test_a_transaction_that_is_larger_than_what_is_held_goes_through_the_disk(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "PIECE_BYTES", 1000)
    monkeypatch.setattr(spooling, "HELD_BYTES", 5000)
    written, write = list[int](), spooling._on_disk

    def counted(rows: pa.Table) -> pa.Table:
        written.append(rows.num_rows)
        return write(rows)

    monkeypatch.setattr(spooling, "_on_disk", counted)
    shop(ORDERS, "CREATE TABLE notes (id int PRIMARY KEY, body text)")
    source = synced(shop, "public.orders", "public.notes")
    shop(
        "BEGIN; INSERT INTO orders SELECT i, 'n' || i, i FROM generate_series(1, 500) i; "
        "INSERT INTO notes SELECT i, repeat('x', i % 50) FROM generate_series(1, 300) i; "
        "UPDATE orders SET id = id + 1000 WHERE id < 50; ALTER TABLE orders ADD COLUMN extra int; "
        "UPDATE orders SET extra = id; DELETE FROM orders WHERE id % 7 = 0; COMMIT"
    )
    assert source.run().changes == 500 + 300 + 2 * 49 + 500 + 71
    assert len(written) > 3
    for name in ("orders", "notes"):
        assert shop.latest(f"crm.{name}") == shop.rows(name)
    rows = shop.lake.table("crm.orders").to_arrow(["_tide_pk", "_tide_lsn"]).to_pylist()
    assert len(rows) == len({tuple(row.values()) for row in rows})
