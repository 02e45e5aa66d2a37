"""Change single rows from Spark: UPDATE, MERGE, and DELETE by any condition."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import tidelake
import tidelake.spark
from tidelake import Lake, Table


@pytest.fixture
def session(spark: SparkSession, lake: Lake) -> SparkSession:
    """Return a session of its own that has the lake as its catalog."""
    return tidelake.spark.register(spark.newSession(), lake=lake)


def made(lake: Lake, kind: str, count: int = 12) -> Table:
    """Make a table of rows n, one a minute: plain, plain with hot rows, or with a key."""
    columns = {"ts": "timestamp", "n": "long", "name": "string", "raw": "dynamic"}
    table = lake.create_table("m.t", columns, time="ts", flush_age="off", key=["n"] if kind == "key" else ())
    for first in range(0, count, 4):  # several extents, or batches
        table.append([row(n) for n in range(first, min(count, first + 4))])
        if kind != "hot":
            table.flush()
    return table


def row(n: int, name: str | None = None) -> dict[str, Any]:
    return {"ts": f"2026-03-01T00:{n:02}:00Z", "n": n, "name": name or f"é{n}", "raw": {"k": [n]}}


def names(table: Table) -> dict[int, str]:
    found = table.to_arrow(["n", "name"]).to_pylist()
    assert len({each["n"] for each in found}) == len(found)
    return {each["n"]: each["name"] for each in sorted(found, key=lambda each: each["n"])}


KINDS = pytest.mark.parametrize("kind", ["plain", "hot", "key"])


@KINDS
def test_an_update_changes_rows_in_one_commit(session: SparkSession, lake: Lake, kind: str) -> None:
    table = made(lake, kind)
    before = table.snapshot.sequence
    session.sql("UPDATE tidelake.m.t SET name = concat(name, '!'), raw = parse_json('[1]') WHERE n % 5 = 0")
    assert names(table) == {n: f"é{n}!" if n % 5 == 0 else f"é{n}" for n in range(12)}
    raws = {each["n"]: each["raw"] for each in table.to_arrow(["n", "raw"]).to_pylist()}
    assert (raws[5], raws[6]) == ("[1]", '{"k":[6]}')
    assert [each.operation for each in table.history() if each.sequence > before] in (
        ["update"], ["update", "flush"],  # hot rows of a plain table are flushed first
    )  # fmt: skip
    assert session.sql(f"SELECT count(*) FROM tidelake.m.t VERSION AS OF {before} WHERE name LIKE '%!'").first()[0] == 0  # type: ignore[index]
    session.sql("UPDATE tidelake.m.t SET name = 'all'")
    assert set(names(table).values()) == {"all"}
    session.sql("UPDATE tidelake.m.t SET name = 'none' WHERE n > 100")
    assert [each.operation for each in table.history()].count("update") == 2  # what changes nothing is no commit


@KINDS
def test_a_merge_has_all_its_clauses(session: SparkSession, lake: Lake, kind: str) -> None:
    table = made(lake, kind)
    session.sql(
        """MERGE INTO tidelake.m.t t
           USING (SELECT id AS n, timestamp_minutes AS ts, concat('s', id) AS name, parse_json('{}') AS raw
                  FROM (SELECT id, timestamp'2026-04-01' AS timestamp_minutes FROM range(6, 16))) s
           ON t.n = s.n
           WHEN MATCHED AND s.n = 6 THEN DELETE
           WHEN MATCHED AND s.n < 9 THEN UPDATE SET name = upper(s.name)
           WHEN MATCHED THEN UPDATE SET *
           WHEN NOT MATCHED AND s.n > 14 THEN INSERT (ts, n) VALUES (s.ts, s.n)
           WHEN NOT MATCHED THEN INSERT *
           WHEN NOT MATCHED BY SOURCE AND t.n = 0 THEN DELETE
           WHEN NOT MATCHED BY SOURCE AND t.n < 3 THEN UPDATE SET name = 'left'"""
    )
    kept = {n: f"é{n}" for n in (3, 4, 5)}
    changed = {7: "S7", 8: "S8", 9: "s9", 10: "s10", 11: "s11"}
    assert names(table) == {
        1: "left", 2: "left", **kept, **changed, 12: "s12", 13: "s13", 14: "s14", 15: None,
    }  # fmt: skip
    assert table.history()[0].operation == "merge"
    stored = {each["n"]: each["ts"].month for each in table.to_arrow(["n", "ts"]).to_pylist()}
    assert (stored[7], stored[9]) == (3, 4)


@KINDS
def test_a_delete_takes_any_condition(session: SparkSession, lake: Lake, kind: str) -> None:
    table = made(lake, kind)
    session.sql("DELETE FROM tidelake.m.t WHERE n IN (SELECT id * 2 FROM range(3)) OR upper(name) = 'É11'")
    assert list(names(table)) == [1, 3, 5, 6, 7, 8, 9, 10]
    assert table.history()[0].operation == "delete"
    assert len(table) == 8


def test_rows_that_do_not_change_do_not_pass_through_spark(session: SparkSession, lake: Lake) -> None:
    table = lake.create_table("m.t", {"ts": "timestamp", "n": "long", "raw": "dynamic"}, flush_age="off")
    large = 10**60 + 7  # which a VARIANT cannot hold
    table.append([{"ts": f"2026-03-01T00:{n:02}:00Z", "n": n, "raw": {"k": large}, "more": n} for n in range(4)])
    session.sql("UPDATE tidelake.m.t SET raw = NULL WHERE n = 1")
    found = {each["n"]: each["raw"] for each in table.to_arrow(["n", "raw"]).to_pylist()}
    assert found == {n: None if n == 1 else f'{{"k":{large}}}' for n in range(4)}


@KINDS
def test_a_statement_that_changes_rows_reads_them_once(session: SparkSession, lake: Lake, kind: str) -> None:
    made(lake, kind)
    session.sql("CREATE TABLE tidelake.m.s AS SELECT * FROM VALUES (5L, 'x'), (6L, 'y') AS s(n, name)")
    for statement, scans in (
        ("UPDATE tidelake.m.t SET name = 'x' WHERE name = 'é5' AND length(name) = 2", 1),
        ("MERGE INTO tidelake.m.t t USING tidelake.m.s s ON t.n = s.n WHEN MATCHED THEN UPDATE SET name = s.name", 2),
    ):
        (plan,) = session.sql(f"EXPLAIN FORMATTED {statement}").collect()
        assert len(re.findall(r"^\(\d+\) BatchScan", plan[0], re.M)) == scans
        assert "ubquery" not in plan[0]


@KINDS
def test_a_row_that_several_source_rows_match_is_refused_in_sparks_words(
    session: SparkSession, lake: Lake, kind: str
) -> None:
    table = made(lake, kind)
    before = names(table)
    with pytest.raises(Exception, match="MERGE_CARDINALITY_VIOLATION"):
        session.sql(
            """MERGE INTO tidelake.m.t t USING (SELECT 3 AS n UNION ALL SELECT 3) s ON t.n = s.n
               WHEN MATCHED THEN UPDATE SET name = 'twice'"""
        )
    assert names(table) == before
    assert list(table.handle.catalog.pending(table_id=table.handle.scope.table_id)) == []


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("UPDATE tidelake.m.t SET missing = 1", "UNRESOLVED_COLUMN|FIELD_NOT_FOUND"),
        ("UPDATE tidelake.m.t SET n = 'x'", "CAST_INVALID_INPUT|CANNOT_SAFELY_CAST"),
        ("UPDATE tidelake.m.t SET n = NULL", "NOT_NULL_ASSERT_VIOLATION"),
        (
            "MERGE INTO tidelake.m.t t USING (SELECT 1L AS n) s ON t.n = s.n WHEN NOT MATCHED THEN INSERT *",
            "UNRESOLVED_COLUMN",
        ),
        ("UPDATE tidelake.m.t.history SET operation = ''", "does not support"),
    ],
)
def test_what_does_not_fit_a_table_is_refused(session: SparkSession, lake: Lake, statement: str, told: str) -> None:
    table = made(lake, "key")
    before = names(table)
    with pytest.raises(Exception, match=told):
        session.sql(statement)
    assert names(table) == before


def test_a_merge_brings_new_columns_if_it_says_so(session: SparkSession, lake: Lake) -> None:
    table = made(lake, "plain")
    source = "(SELECT id AS n, timestamp'2026-04-01' AS ts, 's' AS name, NULL AS raw, 7L AS more FROM range(11, 13)) s"
    clauses = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    session.sql(f"MERGE INTO tidelake.m.t t USING {source} ON t.n = s.n {clauses}")
    assert "more" not in table.schema
    session.sql(f"MERGE WITH SCHEMA EVOLUTION INTO tidelake.m.t t USING {source} ON t.n = s.n {clauses}")
    assert {each["n"]: each["more"] for each in table.to_arrow(["n", "more"], where="n > 9").to_pylist()} == {
        10: None, 11: 7, 12: 7,
    }  # fmt: skip


def table_place(lake: Lake) -> str:
    return lake.table("m.t").handle.lake.address


def meanwhile(session: SparkSession, lake: Lake, change: Callable[[Table], Any]) -> DataFrame:
    """Return one row, n = 3, of a frame whose task changes the table: after the statement has chosen its snapshot."""
    where = table_place(lake)

    def during(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            with tidelake.connect(where) as other:
                change(other.table("m.t"))
            yield batch

    frame = session.range(3, 4).selectExpr("id as n").coalesce(1).mapInArrow(during, "n long")
    frame.createOrReplaceTempView("source")
    return frame


MERGE = "MERGE INTO tidelake.m.t t USING source s ON t.n = s.n WHEN MATCHED THEN UPDATE SET name = 'merged'"


@KINDS
def test_rows_that_come_meanwhile_stay(session: SparkSession, lake: Lake, kind: str) -> None:
    table = made(lake, kind)
    meanwhile(session, lake, lambda other: other.append([row(20, "late")]))
    session.sql(MERGE)
    assert names(table) == {**{n: f"é{n}" for n in range(12)}, 3: "merged", 20: "late"}


@pytest.mark.parametrize(
    ("kind", "change", "left"),
    [
        ("plain", lambda other: other.compact(), "é3"),
        ("plain", lambda other: other.delete(where="n == 2"), "é3"),
        ("key", lambda other: other.append([row(3, "other")]), "other"),
        ("key", lambda other: other.delete_keys([3]), None),
    ],
    ids=["compacted", "deleted beside", "updated", "deleted"],
)
def test_rows_that_another_commit_changes_meanwhile_are_not_changed(
    session: SparkSession, lake: Lake, kind: str, change: Callable[[Table], Any], left: str | None
) -> None:
    table = made(lake, kind)
    meanwhile(session, lake, change)
    with pytest.raises(Exception, match="run it again"):
        session.sql(MERGE)
    assert names(table).get(3) == left
    session.sql(MERGE.replace("source s", "(SELECT 3 AS n) s"))
    assert names(table).get(3) == (left and "merged")


def test_a_key_that_nobody_touches_may_change_meanwhile(session: SparkSession, lake: Lake) -> None:
    table = made(lake, "key")
    meanwhile(session, lake, lambda other: (other.append([row(4, "other")]), other.flush(), other.compact()))
    session.sql(MERGE)
    assert (names(table)[3], names(table)[4]) == ("merged", "other")


def test_a_key_that_an_update_changes_moves_its_row(session: SparkSession, lake: Lake) -> None:
    table = made(lake, "key")
    session.sql("UPDATE tidelake.m.t SET n = n + 100 WHERE n >= 10")
    assert names(table) == {**{n: f"é{n}" for n in range(10)}, 110: "é10", 111: "é11"}


def test_columns_that_only_case_tells_apart_are_each_changed(session: SparkSession, lake: Lake) -> None:
    table = lake.create_table("m.t", {"Id": "string", "id": "long", "x y": "long"}, key=["id"])
    table.append([{"Id": "a", "id": 1, "x y": 1}, {"Id": "b", "id": 2, "x y": 2}])
    session.sql("UPDATE tidelake.m.t SET Id = 'c', `x y` = 5 WHERE id_2 = 2")
    assert sorted(table.to_arrow().to_pylist(), key=repr) == [
        {"Id": "a", "id": 1, "x y": 1}, {"Id": "c", "id": 2, "x y": 5},
    ]  # fmt: skip


def test_windows_that_a_change_frees_are_free_for_its_rows(session: SparkSession, lake: Lake) -> None:
    table = lake.create_table(
        "m.t", {"ts": "timestamp", "device": "string", "n": "long"}, time="ts", bucket="1m", entity=["device"],
        coverage="exclusive",
    )  # fmt: skip
    table.append([{"ts": f"2026-03-01T00:{n:02}:00Z", "device": "a", "n": n} for n in range(6)])
    session.sql("UPDATE tidelake.m.t SET n = -n WHERE n > 2")
    assert sorted(table.to_arrow(["n"]).column(0).to_pylist()) == [-5, -4, -3, 0, 1, 2]
    with pytest.raises(Exception, match=r"(?i)overlap|held"):
        session.sql("UPDATE tidelake.m.t SET ts = timestamp'2026-03-01T00:00:00Z' WHERE n = -3")
    assert len(table) == 6


def test_many_changes_of_one_task_are_handed_over_in_parts(session: SparkSession, lake: Lake) -> None:
    wide = session.range(0, 60_000, 1, 1).selectExpr(
        "timestamp_seconds(1767225600 + id) as ts", "id as n", "repeat(cast(id as string), 200) as name"
    )
    wide.writeTo("tidelake.m.t").create()
    session.sql("UPDATE tidelake.m.t SET name = concat(n, '') WHERE n < 50000")
    told = session.sql("SELECT count(*), sum(n), max(length(name)) FROM tidelake.m.t WHERE n < 50000").first()
    assert tuple(told or ()) == (50_000, 1_249_975_000, 5)
    assert lake.table("m.t").history()[0].operation == "update"
    assert len(lake.table("m.t")) == 60_000
