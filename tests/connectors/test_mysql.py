"""Hold the sync of MariaDB to this: the lake has what the source has, and every change of it once."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import orjson
import pytest

import tidelake
from tests.connectors.conftest import Market
from tidelake.connectors import spooling
from tidelake.connectors.attached import attached_table
from tidelake.connectors.definition import SYSTEM_COLUMNS
from tidelake.connectors.mysql import binlog
from tidelake.connectors.mysql.images import ImageColumn, Images
from tidelake.connectors.mysql.statements import effects_of
from tidelake.connectors.mysql.types import MyType
from tidelake.connectors.protocol import Effect
from tidelake.connectors.sources import SyncedSource
from tidelake.model.predicate import And, Equals, Range

ORDERS = "CREATE TABLE orders (id int PRIMARY KEY, name varchar(40), amount decimal(10,2))"
SOME = "INSERT INTO orders SELECT seq, concat('name ', seq), seq * 1.5 FROM seq_1_to_20"


def synced(market: Market, *tables: str, **options: Any) -> SyncedSource:
    own = market.url.rpartition("/")[2]
    market.lake.sync(market.url, [f"{own}.{each}" for each in tables or ("orders",)], into="crm", **options)
    return market.lake.source("crm")


@pytest.mark.parametrize("mode", ["log", "upsert"])
def test_a_copy_and_every_change_after_it_are_what_the_source_has(market: Market, mode: str) -> None:
    market(ORDERS, SOME)
    source = synced(market, mode=mode)
    assert market.latest("crm.orders") == market.rows("orders")
    market(
        "UPDATE orders SET name = 'other' WHERE id < 4",
        "DELETE FROM orders WHERE id IN (4, 5)",
        "INSERT INTO orders VALUES (5, 'again', NULL)",
        "UPDATE orders SET id = 100 WHERE id = 6",
        "BEGIN", "INSERT INTO orders VALUES (7000, 'never', 1)", "ROLLBACK",
        "BEGIN", "INSERT INTO orders VALUES (50, 'a', 1)", "UPDATE orders SET name = 'b' WHERE id = 50",
        "DELETE FROM orders WHERE id = 50", "INSERT INTO orders VALUES (50, 'c', 3)", "COMMIT",
    )  # fmt: skip
    report = source.run()
    assert (report.copied, report.changes) == (0, 3 + 2 + 1 + 2 + 4)
    assert market.latest("crm.orders") == market.rows("orders")
    if mode == "log":
        assert market.log("crm.orders")[20:] == [
            ("1", "update"), ("2", "update"), ("3", "update"), ("4", "delete"), ("5", "delete"), ("5", "insert"),
            ("6", "delete"), ("100", "update"), ("50", "insert"), ("50", "update"), ("50", "delete"), ("50", "insert"),
        ]  # fmt: skip
    assert source.run().changes == 0
    market("FLUSH BINARY LOGS", "TRUNCATE orders", "INSERT INTO orders VALUES (1, 'new', 0)")
    source.run()
    assert market.latest("crm.orders") == market.rows("orders")


def test_types_are_those_of_the_table_in_the_copy_and_in_the_binlog(market: Market) -> None:
    market(
        "CREATE TABLE kinds (id bigint PRIMARY KEY, t tinyint, f tinyint(1), s smallint, mi mediumint, i int, "
        "iu int unsigned, bu bigint unsigned, r float, d double, de decimal(12,2), dw decimal(30,10), "
        "dx decimal(65,5), b1 bit(1), b9 bit(9), day date, dt datetime(3), ts timestamp(6) NULL, ti time(2), "
        "y year, c char(5), "
        "v varchar(300), tx text, l1 varchar(10) CHARACTER SET latin1, e enum('a','b'), se set('x','y','z'), bl blob, "
        "bi binary(4), j json, g int GENERATED ALWAYS AS (i + 1) VIRTUAL, gs int AS (i * 2) STORED)"
    )
    names = "t, f, s, mi, i, iu, bu, r, d, de, dw, dx, b1, b9, day, dt, ts, ti, y, c, v, tx, l1, e, se, bl, bi, j"
    values = (
        "-3, 1, -300, -70000, -5, 4000000000, 18446744073709551615, 0.1, 1e300, -12.50, -123456789.0123456789, 12.5, "
        "1, 257, '2026-03-14', '2026-03-14 12:00:00.5', '2026-03-14 10:00:00.123456', '-12:30:15.25', 2026, 'ab', "
        """'hé', 'long', 'ä', 'b', 'x,z', x'00ff', x'0102', '{"a": [1, null]}'"""
    )
    market("SET time_zone = '+00:00'", f"INSERT INTO kinds (id, {names}) VALUES (1, {values})")
    market("INSERT INTO kinds (id) VALUES (2)")
    source = synced(market, "kinds")
    market(f"INSERT INTO kinds (id, {names}) VALUES (3, {values})", "INSERT INTO kinds (id) VALUES (4)")
    source.run()
    copied, nothing, streamed, null = sorted(
        market.lake.table("crm.kinds").latest().read_all().to_pylist(), key=lambda row: int(row["id"])
    )
    for row in (nothing, null):
        assert {name for name, value in row.items() if value is not None} == {"id", *SYSTEM_COLUMNS}
    for row in (copied, streamed):
        assert {name: value for name, value in row.items() if name not in ("id", *SYSTEM_COLUMNS)} == {
            "t": -3, "f": True, "s": -300, "mi": -70000, "i": -5, "iu": 4_000_000_000, "bu": Decimal(2**64 - 1),
            "r": 0.1, "d": 1e300, "de": Decimal("-12.50"), "dw": Decimal("-123456789.0123456789"), "dx": "12.50000",
            "b1": True, "b9": 257, "day": date(2026, 3, 14), "dt": datetime(2026, 3, 14, 12, 0, 0, 500_000),
            "ts": datetime(2026, 3, 14, 10, 0, 0, 123_456, tzinfo=UTC), "ti": "-12:30:15.25", "y": 2026, "c": "ab",
            "v": "hé", "tx": "long", "l1": "ä", "e": "b", "se": "x,z", "bl": b"\x00\xff", "bi": b"\x01\x02\x00\x00",
            "j": '{"a":[1,null]}',
        }  # fmt: skip


def test_values_that_no_type_here_holds_are_kept_beside(market: Market) -> None:
    market("SET SESSION sql_mode = ''", "CREATE TABLE odd (id int PRIMARY KEY, day date, at datetime, f tinyint(1))")
    market("INSERT INTO odd VALUES (1, '0000-00-00', '2026-00-01', 2)")
    source = synced(market, "odd")
    market("INSERT INTO odd VALUES (2, '0000-00-00', '2026-00-01', 2)")
    source.run()
    for row in market.lake.table("crm.odd").latest().read_all().to_pylist():
        assert (row["day"], row["at"], row["f"]) == (None, None, None)
        assert orjson.loads(row["_overflow"]) == {"at": "2026-00-01 00:00:00", "day": "0000-00-00", "f": 2}


@pytest.mark.parametrize("mode", ["log", "upsert"])
def test_altered_tables_are_followed_without_a_resync(market: Market, mode: str) -> None:
    market(ORDERS, SOME)
    source = synced(market, mode=mode)
    market(
        "UPDATE orders SET name = 'before' WHERE id = 1",
        "ALTER TABLE orders ADD COLUMN note text",
        "UPDATE orders SET note = 'new' WHERE id = 3",
        "ALTER TABLE orders ADD COLUMN stock int DEFAULT 7 FIRST",
        "UPDATE orders SET stock = 8 WHERE id = 4",
        "ALTER TABLE orders MODIFY stock bigint",
        "UPDATE orders SET stock = 5000000000 WHERE id = 5",
        "ALTER TABLE orders RENAME COLUMN name TO label",
        "UPDATE orders SET label = 'renamed' WHERE id = 6",
    )
    source.run()

    def of_source() -> list[dict[str, Any]]:
        own = market.names("orders")
        return [{name: value for name, value in row.items() if name in own} for row in market.latest("crm.orders")]

    assert of_source() == market.rows("orders")
    market("ALTER TABLE orders DROP COLUMN note", "UPDATE orders SET stock = 1 WHERE id = 3")
    market("ALTER TABLE orders ADD COLUMN note text", "INSERT INTO orders (id) VALUES (77)")
    source.run()
    assert of_source() == market.rows("orders")
    market(
        "CREATE TABLE other LIKE orders", "INSERT INTO other (id, label) VALUES (3, 'of another'), (500, 'new')",
        "INSERT INTO orders (id) VALUES (88)", "RENAME TABLE orders TO old, other TO orders",
        "UPDATE orders SET stock = 3 WHERE id = 500",
    )  # fmt: skip
    source.run()
    assert of_source() == market.rows("orders")
    assert len(market.latest("crm.orders")) == 2
    market("DROP TABLE orders", ORDERS, "INSERT INTO orders VALUES (9, 'after', 1)")
    source.run()
    assert of_source() == market.rows("orders")


def test_a_table_that_took_the_place_of_one_that_was_altered_leaves_nothing_of_it(market: Market) -> None:
    market(ORDERS, SOME)
    source = synced(market)
    market(
        "ALTER TABLE orders ADD COLUMN stock int DEFAULT 7", "INSERT INTO orders (id) VALUES (99)",
        "CREATE TABLE other LIKE orders", "INSERT INTO other (id) VALUES (3), (500)",
        "RENAME TABLE orders TO old, other TO orders", "ALTER TABLE orders ADD COLUMN size int DEFAULT 1",
    )  # fmt: skip
    source.run()
    assert [row["id"] for row in market.latest("crm.orders")] == [3, 500]
    assert market.latest("crm.orders") == market.rows("orders")
    rows = market.lake.table("crm.orders").to_arrow(["_tide_pk", "_tide_lsn"]).to_pylist()
    assert len(rows) == len({tuple(row.values()) for row in rows})


def test_a_new_column_without_values_is_no_reason_to_read_the_table_again(market: Market) -> None:
    market(ORDERS, SOME)
    source = synced(market)
    market("ALTER TABLE orders ADD COLUMN note text", "ALTER TABLE orders MODIFY id bigint")
    market("UPDATE orders SET note = 'a' WHERE id = 1")
    report = source.run()
    assert (report.copied, report.changes) == (0, 1)


def test_tables_and_servers_that_cannot_be_synced_are_refused_in_words(
    market: Market, monkeypatch: pytest.MonkeyPatch
) -> None:
    market("CREATE TABLE heap (a int)", "CREATE TABLE taken (a int PRIMARY KEY, _tide_op text)")
    market("CREATE TABLE odd (a int PRIMARY KEY, u uuid)")
    for table, words in {
        "heap": "no primary key", "taken": "has this column itself", "nothing": "no such table",
        "odd": "cannot be synced",
    }.items():  # fmt: skip
        with pytest.raises(tidelake.InvalidInputError, match=words):
            synced(market, table)
    market(ORDERS, "SET GLOBAL binlog_row_metadata = MINIMAL")
    try:
        with pytest.raises(tidelake.InvalidInputError, match="binlog_row_metadata = FULL"):
            synced(market)
    finally:
        market("SET GLOBAL binlog_row_metadata = FULL")


def purge_all(market: Market) -> None:
    """Have the server forget its binlog until now; it keeps a file for as long as it may need it itself."""
    with market.database.cursor() as cursor:
        cursor.execute("SHOW MASTER STATUS")
        first = file = cursor.fetchone()[0]
        while file <= first:
            cursor.execute("FLUSH BINARY LOGS")
            cursor.execute("SHOW MASTER STATUS")
            cursor.execute(f"PURGE BINARY LOGS TO '{cursor.fetchone()[0]}'")
            cursor.execute("SHOW BINARY LOGS")
            file = cursor.fetchall()[0][0]


def test_a_binlog_that_was_purged_stops_the_source_and_a_resync_goes_on(market: Market) -> None:
    market(ORDERS, SOME)
    source = synced(market)
    market("DELETE FROM orders WHERE id < 5", "UPDATE orders SET name = 'unseen' WHERE id = 6", "FLUSH BINARY LOGS")
    purge_all(market)
    with pytest.raises(tidelake.NotFoundError, match=r"purged.*--resync") as gone:
        source.run()
    assert gone.value.kind == "binlog_purged"
    assert source.definition.state == "stopped"
    source.run(resync=True)
    assert market.latest("crm.orders") == market.rows("orders")
    market("INSERT INTO orders VALUES (1, 'back', 0)")
    source.run()
    assert market.latest("crm.orders") == market.rows("orders")


def test_credentials_that_changed_disable_the_source(market: Market, monkeypatch: pytest.MonkeyPatch) -> None:
    market(ORDERS, SOME)
    market("CREATE OR REPLACE USER app@'%' IDENTIFIED BY 'p@ss/w:rd'", "GRANT ALL ON *.* TO app@'%'")
    monkeypatch.setenv("SHOP_PASSWORD", "p@ss/w:rd")
    own = market.url.rpartition("/")[2]
    url = market.url.replace("root@", "app:${SHOP_PASSWORD}@")
    market.lake.sync(url, [f"{own}.orders"], into="crm")
    source = market.lake.source("crm")
    market("ALTER USER app@'%' IDENTIFIED BY 'other'", "INSERT INTO orders VALUES (90, 'a', 1)")
    with pytest.raises(tidelake.InvalidInputError, match="refuses"):
        source.run()
    assert source.definition.state == "disabled"
    monkeypatch.setenv("SHOP_PASSWORD", "other")
    source.resume()
    assert source.run().changes == 1
    assert "p@ss" not in str(market.lake.sources().to_pylist())


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("ALTER TABLE orders ADD x int, ADD COLUMN y text NULL COMMENT 'a' AFTER id", Effect("columns", ("x", "y"))),
        ("ALTER TABLE `shop`.`orders` ADD x int DEFAULT 7", Effect("values")),
        ("ALTER TABLE orders ADD x int NOT NULL", Effect("values")),
        ("ALTER TABLE orders ADD x timestamp", Effect("values")),
        ("ALTER TABLE orders MODIFY n bigint", Effect("columns", (), ("n",))),
        ("ALTER TABLE orders MODIFY n int", Effect("values")),
        ("ALTER TABLE orders CHANGE n m bigint", Effect("values")),
        ("ALTER TABLE orders RENAME COLUMN n TO m", Effect("values")),
        ("ALTER TABLE orders DROP COLUMN n, ADD INDEX i (m)", Effect("columns")),
        ("ALTER TABLE orders DROP PRIMARY KEY, ADD PRIMARY KEY (n)", Effect("rows")),
        ("ALTER TABLE orders RENAME TO b", Effect("rows")),
        ("ALTER TABLE orders EXCHANGE PARTITION p WITH TABLE b", Effect("rows")),
        ("ALTER TABLE orders ADD COLUMN (x int, y int)", Effect("rows")),
        ("RENAME TABLE a TO orders", Effect("rows")),
        ("UPDATE orders SET n = 1", Effect("rows")),
        ("truncate /* a */ orders", Effect("emptied")),
        ("DROP TABLE `b`,`orders` /* generated by server */", Effect("emptied")),
        ("CREATE TABLE orders (id int)", Effect("emptied")),
        ("drop database `shop`", Effect("emptied")),
        ("ALTER TABLE other.orders ADD x int DEFAULT 1", None),
        ("ALTER TABLE orders2 ADD x int DEFAULT 1", None),
        ("CREATE TABLE b LIKE orders", None),
        ("CREATE INDEX i ON orders (n)", None),
        ("CREATE TRIGGER t BEFORE INSERT ON orders FOR EACH ROW SET @a = 1", None),
        ("GRANT SELECT ON orders TO a", None),
    ],
)
def test_what_a_statement_does_to_a_table_is_known_or_the_most_that_it_can(statement: str, expected: Effect) -> None:
    found = effects_of(statement, "shop", ["shop.orders", "shop.notes"])
    assert {name: effect for name, effect in found.items() if name == "shop.orders"} == (
        {} if expected is None else {"shop.orders": expected}
    )


def test_rows_that_reach_past_their_event_are_an_error() -> None:
    columns = (ImageColumn("id", MyType("int"), 4), ImageColumn("t", MyType("text"), -1, 2, charset="utf8mb4"))
    whole = b"\x00\x01\x00\x00\x00\x02\x00ab"
    found = Images.find([whole, whole * 2, b"\x03"], columns)
    assert found.counts.tolist() == [1, 2, 1]
    assert [array.to_pylist() for _, array in found.read(["id", "t"])] == [[1, 1, 1, None], ["ab"] * 3 + [None]]
    for broken in (whole[:-1], whole[:3], b"\x00\x01\x00\x00\x00\xff\xffab", whole + b"\x00"):
        with pytest.raises(tidelake.CorruptError):
            Images.find([broken], columns)
    assert np.array_equal(found.take(np.array([3])).lengths, [[-1, -1]])


def test_a_transaction_that_is_larger_than_what_is_held_goes_through_the_disk(
    market: Market, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binlog, "PIECE_BYTES", 1000)
    monkeypatch.setattr(spooling, "HELD_BYTES", 5000)
    market(ORDERS)
    source = synced(market)
    market(
        "BEGIN", "INSERT INTO orders SELECT seq, concat('n', seq), seq FROM seq_1_to_500",
        "UPDATE orders SET id = id + 1000 WHERE id < 50", "DELETE FROM orders WHERE id % 7 = 0", "COMMIT",
    )  # fmt: skip
    assert source.run().changes == 500 + 2 * 49 + 71
    assert market.latest("crm.orders") == market.rows("orders")


def test_queries_read_a_source_in_place_and_join_it_with_the_lake(market: Market) -> None:
    market(ORDERS, SOME, "INSERT INTO orders VALUES (50, 'Name 3', 7)", "CREATE TABLE hidden (id int PRIMARY KEY)")
    own = market.url.rpartition("/")[2]
    assert market.lake.attach("crm", market.url, [f"{own}.orders"]) == ["crm.orders"]
    market.lake.create_table("names", {"ts": "timestamp", "id": "long", "label": "string"})
    market.lake.table("names").append([{"ts": "2026-01-01T00:00:00Z", "id": 3, "label": "three"}])
    for text, expected in {
        "SELECT count(*) AS n FROM crm.orders": [{"n": 21}],
        "SELECT id FROM crm.orders WHERE name = 'name 3'": [{"id": 3}],  # though MariaDB takes no notice of cases
        "SELECT id FROM crm.orders WHERE name >= 'name 8' AND id < 15 ORDER BY id": [{"id": 8}, {"id": 9}],
        "SELECT id FROM crm.orders WHERE amount = 1.5 OR id IN (20, 19) ORDER BY id": [
            {"id": 1},
            {"id": 19},
            {"id": 20},
        ],
        "SELECT n.label, o.amount > 4 AS big FROM names n JOIN crm.orders o ON n.id = o.id": [
            {"label": "three", "big": True}
        ],
        "SELECT count(*) AS n FROM crm.orders WHERE name = 'x'' OR 1=1 -- '": [{"n": 0}],
    }.items():
        assert market.lake.sql(text).to_arrow().to_pylist() == expected, text
    assert market.lake.kql("live('crm.orders') | where id > 18 | count").to_arrow().to_pylist() == [{"Count": 3}]
    live = attached_table(market.lake.handle, "crm.orders")
    assert live is not None
    plan = live.plan(["id"], And((Equals("name", "name 3"), Range("id", 1, 30))), limit=2)
    asked = next(stage.name for stage in plan.stages if stage.name.startswith("at the source"))
    assert asked.endswith("LIMIT 2")
    assert sum(batch.rows for batch in plan.hot) == 1
    for text in ("SELECT * FROM crm.hidden", "SELECT * FROM live('crm.hidden')", "SELECT * FROM live('mysql.user')"):
        with pytest.raises(tidelake.TidelakeError):
            market.lake.sql(text).to_arrow()
