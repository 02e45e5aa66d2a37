"""Hold attached tables to this: a query of them gives what the source would, reads little, and reaches nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest
from psycopg import sql

import tidelake
from tests.connectors.conftest import Shop
from tidelake.connectors.attached import attached_table
from tidelake.connectors.postgres.conditions import condition_of
from tidelake.connectors.postgres.types import PgType
from tidelake.model.predicate import And, Equals, InSet, IsNull, Not, Or, Predicate, Range, StringHas
from tidelake.pruning.plan import ScanPlan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENGINES: tuple[Literal["local", "spark"], ...] = ("local", "spark")
ORDERS = (
    "CREATE TABLE orders (id int PRIMARY KEY, status text, amount numeric(10,2), at timestamptz, tags text[], r real, "
    "net inet)",
    "INSERT INTO orders SELECT i, CASE WHEN i % 3 = 0 THEN 'Open' ELSE 'done' END, i * 1.5, "
    "'2026-01-01'::timestamptz + i * interval '1 hour', ARRAY['t' || i], i / 10.0, '10.0.0.1' "
    "FROM generate_series(1, 90) i",
    "CREATE TABLE hidden (id int PRIMARY KEY)",
)


def test_queries_read_a_source_in_place_and_join_it_with_the_lake(shop: Shop) -> None:
    shop(*ORDERS)
    assert shop.lake.attach("crm", shop.url, ["public.orders"]) == ["crm.orders"]
    shop.lake.create_table("names", {"ts": "timestamp", "id": "long", "name": "string"})
    shop.lake.table("names").append([{"ts": "2026-01-01T00:00:00Z", "id": 3, "name": "three"}])
    for text, expected in {
        "SELECT count(*) AS n FROM crm.orders": [{"n": 90}],
        "SELECT count(*) AS n, sum(r) > 0 AS s FROM crm.orders WHERE status = 'Open' AND id < 10": [
            {"n": 3, "s": True}
        ],
        "SELECT id FROM crm.orders WHERE r = 0.3 OR id = 90 ORDER BY id": [{"id": 3}, {"id": 90}],
        "SELECT id FROM crm.orders WHERE net = '10.0.0.1' AND id = 4": [{"id": 4}],
        "SELECT id, tags FROM crm.orders WHERE at >= '2026-01-04T18:00:00Z'": [{"id": 90, "tags": '["t90"]'}],
        "SELECT n.name, o.amount > 4 AS big FROM names n JOIN crm.orders o ON n.id = o.id": [
            {"name": "three", "big": True}
        ],
        "SELECT count(*) AS n FROM live('crm.orders') WHERE status LIKE '%pen'": [{"n": 30}],
    }.items():
        assert shop.lake.sql(text).to_arrow().to_pylist() == expected, text
    told = shop.lake.sql("SELECT id FROM crm.orders WHERE id < 10").explain()
    assert """at the source: SELECT "id" FROM "public"."orders" WHERE""" in told
    kql = "crm.orders | where status == 'Open' and amount > 100 | summarize n = count()"
    assert shop.lake.kql(kql).to_arrow().to_pylist() == [{"n": 8}]
    shop("UPDATE orders SET status = 'gone'")
    assert shop.lake.kql("live('crm.orders') | where status == 'gone' | count").to_arrow().to_pylist() == [
        {"Count": 90}
    ]
    shop.lake.detach("crm")
    with pytest.raises(tidelake.QueryError):
        shop.lake.sql("SELECT * FROM crm.orders").to_arrow()


def test_a_table_of_the_lake_comes_first_and_live_means_the_source(shop: Shop) -> None:
    shop(*ORDERS)
    shop.lake.sync(shop.url, ["public.orders"], into="crm")
    shop("DELETE FROM orders WHERE id > 10")
    shop.lake.attach("crm", shop.url, ["public.orders"])
    counts = {
        text: shop.lake.sql(f"SELECT count(*) AS n FROM {text}").to_arrow().to_pylist()[0]["n"]
        for text in ("crm.orders", "latest('crm.orders')", "live('crm.orders')")
    }
    assert counts == {"crm.orders": 90, "latest('crm.orders')": 90, "live('crm.orders')": 10}
    shop.lake.source("crm").run()
    assert shop.lake.sql("SELECT count(*) AS n FROM latest('crm.orders')").to_arrow().to_pylist() == [{"n": 10}]
    shop.lake.detach("crm")
    assert shop.lake.kql("live('crm.orders') | count").to_arrow().to_pylist() == [{"Count": 10}]


def test_nothing_but_what_was_attached_is_reached(shop: Shop) -> None:
    shop(*ORDERS)
    shop.lake.attach("crm", shop.url, ["public.orders"])
    for text in (
        "SELECT * FROM crm.hidden",
        "SELECT * FROM live('crm.hidden')",
        "SELECT * FROM live('pg_catalog.pg_authid')",
        'SELECT * FROM crm."orders; DROP TABLE orders"',
        "SELECT * FROM live('crm.orders\"; DROP TABLE orders; --')",
    ):
        with pytest.raises(tidelake.TidelakeError):
            shop.lake.sql(text).to_arrow()
    with pytest.raises(tidelake.TidelakeError):
        shop.lake.user("alice").sql("SELECT * FROM crm.orders").to_arrow()
    with pytest.raises(tidelake.TidelakeError):
        shop.lake.user("alice").sql("SELECT * FROM live('crm.orders')").to_arrow()
    evil = "SELECT id FROM crm.orders WHERE status = 'x''; DROP TABLE orders; --'"
    assert shop.lake.sql(evil).to_arrow().num_rows == 0
    assert len(shop.rows("orders")) == 90
    with pytest.raises(tidelake.InvalidInputError, match="no such table"):
        shop.lake.attach("other", shop.url, ["public.nothing"])
    with pytest.raises(tidelake.InvalidInputError, match=r"did you mean 'public\.orders'"):
        shop.lake.attach("other", shop.url, ["public.order"])


def test_spark_is_handed_what_the_source_has_to_the_digit(spark: SparkSession, shop: Shop) -> None:
    """Spark's own JDBC reader gives other values for each of these, or an error; see design note 0022."""
    shop(
        *ORDERS,
        "CREATE TABLE odd (id int PRIMARY KEY, at timestamptz, n numeric, r real)",
        "INSERT INTO odd VALUES (1, 'infinity', 1.123456789012345678901234567, 0.1), (2, '2026-01-01', 1e30, 1)",
    )
    shop.lake.attach("crm", shop.url)
    shop.lake.create_table("names", {"ts": "timestamp", "id": "long", "name": "string"})
    shop.lake.table("names").append([{"ts": "2026-01-01T00:00:00Z", "id": 3, "name": "three"}])
    for text, expected in {
        "SELECT id, n, r, at IS NULL AS x FROM crm.odd ORDER BY id": [
            {"id": 1, "n": "1.123456789012345678901234567", "r": 0.1, "x": True},
            {"id": 2, "n": "1000000000000000000000000000000", "r": 1.0, "x": False},
        ],
        "SELECT n.name, o.tags FROM names n JOIN crm.orders o ON n.id = o.id WHERE o.status = 'Open'": [
            {"name": "three", "tags": '["t3"]'}
        ],
    }.items():
        for engine in ENGINES:
            assert shop.lake.sql(text, engine=engine).to_arrow().to_pylist() == expected, (engine, text)
    told = shop.lake.sql("SELECT count(*) AS n FROM crm.orders WHERE status = 'Open'", engine="spark")
    assert told.to_arrow().to_pylist() == [{"n": 30}]
    assert """at the source: SELECT "status" FROM "public"."orders" WHERE""" in told.explain()


def test_columns_conditions_and_limits_are_asked_of_the_source(shop: Shop) -> None:
    shop(*ORDERS)
    shop.lake.attach("crm", shop.url)
    live = attached_table(shop.lake.handle, "crm.orders")
    assert live is not None
    plan = live.plan(["id"], And((Equals("status", "Open"), Range("id", 1, 30))), limit=2)
    asked = asked_of(plan)
    assert asked.startswith('at the source: SELECT "id", "status" FROM "public"."orders" WHERE')
    assert asked.endswith("LIMIT 2")
    assert sum(batch.rows for batch in plan.hot) == 2
    part = live.plan(["id"], And((StringHas("status", "open"), Range("id", 1, 30))), limit=2)
    assert 'WHERE ("id" >= 1' in asked_of(part).replace("((", "(")
    assert "LIMIT" not in asked_of(part)
    assert sum(batch.rows for batch in part.hot) == 30


def asked_of(plan: ScanPlan) -> str:
    return next(stage.name for stage in plan.stages if stage.name.startswith("at the source"))


def test_what_may_mean_something_else_at_the_source_is_not_asked_there() -> None:
    types = {name: PgType(name) for name in ("int4", "text", "float4", "inet", "json", "bpchar")} | {
        "numeric": PgType("numeric"), "array": PgType("_int4", "int4"),
    }  # fmt: skip
    refused: list[Predicate] = [
        Equals("float4", 0.1), Equals("inet", "10.0.0.1"), Equals("numeric", "1"), Equals("array", 1), IsNull("json"),
        Not(Equals("int4", 1)), Or((Equals("int4", 1), Equals("float4", 0.1))), Equals("text", "a\x00"),
        Equals("int4", "1"), Equals("bpchar", "a"),
    ]  # fmt: skip
    assert [where for where in refused if condition_of(where, types) is not None] == []
    found = condition_of(And((InSet("int4", (1, 2)), Equals("float4", 0.1))), types)
    assert found is not None
    assert isinstance(found[0], sql.Composable)
    assert not found[1]
