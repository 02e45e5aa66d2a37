"""Compare tables of a lake with Parquet tables of Spark's own catalog: the same statements, types and time zones."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

import tidelake
import tidelake.spark
from tidelake import Lake

COLUMNS = {
    "id": "BIGINT", "ts": "TIMESTAMP", "b": "BOOLEAN", "i": "INT", "d": "DOUBLE", "s": "STRING", "dt": "DATE",
    "ntz": "TIMESTAMP_NTZ", "dec": "DECIMAL(12,3)", "bin": "BINARY", "st": "STRUCT<a: INT, b: STRING>",
    "ar": "ARRAY<BIGINT>", "m": "MAP<STRING, DOUBLE>", "v": "VARIANT",
}  # fmt: skip
# Times are texts, which the session's zone makes instants of: some lie in the hour that is skipped, or comes twice.
VALUES = [
    "1, '2026-01-01 00:00:00', true, 1, 0.5, 'apple', '2026-01-01', '2026-01-01 00:00:00', 1.250, X'00ff', "
    "(1, 'x'), array(1, 2), map('k', 1.5D), parse_json('{\"x\": 1}')",
    "2, '2026-03-08 02:30:00', false, 2, -1.0, 'été', '2026-03-08', '2026-03-08 02:30:00', -99.999, X'', "
    "(2, null), array(), map(), parse_json('[1, 2]')",
    "3, '2026-11-01 01:30:00', null, null, null, null, null, null, null, null, null, null, null, null",
    "4, '1969-12-31 23:59:59.999999', true, -7, double('NaN'), '', '1969-12-31', '1969-12-31 23:59:59.999999', 0, "
    "X'61', (null, 'y'), array(null), map('a', null), parse_json('null')",
    "5, '2026-06-30 12:00:00.000001', true, 2147483647, double('Infinity'), 'banana%', '2026-06-30', "
    "'2026-06-30 12:00:00.000001', 999999999.999, X'0a', (5, 'x'), array(5), map('k', 5D), parse_json('\"x\"')",
    "6, '2026-01-01 05:30:00', false, 3, 1e300, 'Apple', '2026-01-02', '2026-01-01 05:30:00', 1.25, X'00', "
    "(1, 'X'), array(1, 2, 3), map('z', -1D), parse_json('{\"x\": 1.5}')",
]
CONDITIONS = [
    "ts >= timestamp'2026-01-01 00:00:00'", "ts < '2026-03-08 03:30:00'", "ts = timestamp'2026-11-01 01:30:00'",
    "ts BETWEEN '1969-12-31' AND '2026-01-01 05:30:00'", "ts > timestamp'2026-01-01 00:00:00Z'",
    "ts IN (timestamp'2026-01-01 00:00:00', timestamp'2026-06-30 12:00:00.000001')", "date(ts) = dt",
    "b", "NOT b", "b IS NULL", "i > 1", "2 >= i", "i != 3", "i <=> NULL", "NOT (i <=> 1)", "i NOT IN (1, 2)",
    "i IN (1, NULL)", "i NOT IN (1, NULL)", "i = 1 OR s IS NULL", "NOT (i > 1 AND s = 'été')", "i = id",
    "i > 1 AND (d < 1 OR dec > 1)", "i % 2 = 1", "d > 0", "d <= 0.5", "d = double('NaN')", "d > double('Infinity')",
    "d = 0.5F", "s = 'apple'", "s < 'b'", "s LIKE 'ap%'", "s LIKE '%e'", "s LIKE '%an%'", "s LIKE '%an\\\\%%'",
    "lower(s) = 'apple'", "s IN ('', 'été')", "s > '' OR b", "length(s) = 5", "dt = date'2026-01-01'",
    "dt > '2026-01-01'", "dt IN (date'1969-12-31')", "ntz = timestamp_ntz'2026-01-01 00:00:00'",
    "ntz < timestamp'2026-03-08 12:00:00'", "ntz > timestamp_ntz'1970-01-01'", "dec = 1.25", "dec < 0",
    "dec >= 999999999.999", "bin = X'00ff'", "bin IS NOT NULL", "st.a = 1", "st IS NULL OR st.b = 'x'", "size(ar) > 1",
    "m['k'] > 1", "try_variant_get(v, '$.x', 'double') > 0.5", "v IS NOT NULL", "true", "false", "1 = 1 AND i = 1",
    "coalesce(i, 0) = 0",
]  # fmt: skip
OF_TIMES = [text for text in CONDITIONS if "ts" in text or "dt" in text or "ntz" in text]
ZONES = {"America/New_York": CONDITIONS, "UTC": OF_TIMES, "Asia/Kathmandu": OF_TIMES}


@pytest.fixture
def session(spark: SparkSession, lake: Lake) -> SparkSession:
    return tidelake.spark.register(spark.newSession(), lake=lake)


def found(session: SparkSession, query: str) -> list[str]:
    """Return rows as text, in an order of their own; all columns as Spark shows them in the session's zone."""
    frame = session.sql(query)
    shown = [f"to_json(struct({name})) {name}" if name == "v" else f"`{name}`" for name in frame.columns]
    return sorted(str(tuple(row)) for row in frame.selectExpr(*shown).collect())


@pytest.mark.parametrize(
    ("zone", "every"),
    [*((zone, 8) for zone in ZONES), *(pytest.param(zone, 1, marks=pytest.mark.torture) for zone in ZONES)],
)
def test_statements_have_the_results_that_they_have_on_parquet(
    session: SparkSession, lake: Lake, zone: str, every: int, request: pytest.FixtureRequest
) -> None:
    """Plan by each condition; delete by every eighth one, from another on in each zone, or by each."""
    session.conf.set("spark.sql.session.timeZone", zone)
    own, theirs = "tidelake.obs.t", f"oracle_{list(ZONES).index(zone)}"
    request.addfinalizer(lambda: [session.sql(f"DROP TABLE IF EXISTS {theirs}{end}") for end in ("", "_copy")])
    fill(session, own, "TBLPROPERTIES ('time' = 'ts', 'flush_age' = 'off')")
    fill(session, theirs, "USING parquet")
    lake.table("obs.t").flush()
    for table in (own, theirs):
        session.sql(f"INSERT INTO {table} (id, ts, s) VALUES (7, timestamp'2026-02-01 10:00:00', 'late')")
    assert session.table(own).schema == session.table(theirs).schema
    for query in (
        "SELECT * FROM {t}",
        "SELECT date_trunc('DAY', ts) AS day, hour(ts) AS h, s FROM {t} WHERE ts > '2026-01-01' AND i < 3 OR id = 7",
    ):
        assert found(session, query.format(t=own)) == found(session, query.format(t=theirs))
    expected = matching(session, theirs, ZONES[zone])
    prune_by_each(session, lake, own, expected)
    first = list(ZONES).index(zone) % every
    delete_by_each(session, lake, own, {text: expected[text] for text in list(expected)[first::every]})


def test_tables_made_and_overwritten_are_those_of_parquet(
    session: SparkSession, lake: Lake, request: pytest.FixtureRequest
) -> None:
    session.conf.set("spark.sql.session.timeZone", "America/New_York")
    request.addfinalizer(lambda: session.sql("DROP TABLE IF EXISTS oracle_made"))
    fill(session, "tidelake.t", "")
    for table, using in (("tidelake.made", ""), ("oracle_made", "USING parquet")):
        session.sql(
            f"CREATE TABLE {table} {using} AS SELECT id, ts, dt, ntz, i % 100 AS i FROM tidelake.t WHERE id > 1"
        )
        session.sql(f"INSERT INTO {table} (ts, id) SELECT ts + INTERVAL 1 DAY, id + 100 FROM tidelake.t")
    own, theirs = "SELECT * FROM tidelake.made", "SELECT * FROM oracle_made"
    assert found(session, own) == found(session, theirs)
    join = "SELECT a.id, b.id AS other FROM {t} a JOIN {t} b ON a.i < b.i AND a.ts < b.ts WHERE a.id > 1"
    assert found(session, join.format(t="tidelake.made")) == found(session, join.format(t="oracle_made"))
    kept = found(session, f"{theirs} WHERE id < 104 OR i IS NULL")
    session.sql(
        f"INSERT OVERWRITE tidelake.made {own} WHERE id < 104 OR i IS NULL"
    )  # Parquet cannot read what it writes
    assert found(session, own) == kept


def fill(session: SparkSession, table: str, told: str) -> None:
    """Make a table of all types, with rows."""
    session.sql(f"CREATE TABLE {table} ({', '.join(f'{name} {kind}' for name, kind in COLUMNS.items())}) {told}")
    casts = [f"CAST(c{at} AS {kind}) AS {name}" for at, (name, kind) in enumerate(COLUMNS.items())]
    names, inline = ", ".join(f"c{at}" for at in range(len(COLUMNS))), ", ".join(f"({value})" for value in VALUES)
    session.sql(f"INSERT INTO {table} SELECT {', '.join(casts)} FROM VALUES {inline} AS x({names})")


def matching(session: SparkSession, table: str, conditions: Sequence[str]) -> dict[str, set[int]]:
    """Return the ids that satisfy each condition."""
    asked = ", ".join(f"({text}) AS c{at}" for at, text in enumerate(conditions))
    rows = session.sql(f"SELECT id, {asked} FROM {table}").collect()
    return {text: {row.id for row in rows if row[f"c{at}"]} for at, text in enumerate(conditions)}


def prune_by_each(session: SparkSession, lake: Lake, own: str, expected: dict[str, set[int]]) -> None:
    """Plan a scan by each condition: what reaches the lake leaves no row out that Spark wants."""
    pushed = 0
    for text, ids in expected.items():
        leaf = session.sql(f"SELECT id FROM {own} WHERE {text}")._jdf.queryExecution().optimizedPlan().collectLeaves()
        if leaf.head().getClass().getSimpleName() != "DataSourceV2ScanRelation":
            assert not ids  # nothing matches, and Spark knows it
            continue
        where = dict(leaf.head().scan().options()).get("where")
        assert ids <= set(lake.table("obs.t").to_arrow(["id"], where)["id"].to_pylist()), (text, where)
        pushed += where is not None
    assert pushed > len(expected) / 2


def delete_by_each(session: SparkSession, lake: Lake, own: str, expected: dict[str, set[int]]) -> None:
    """Delete by each condition, and bring the rows back: exactly those that match go, or it is refused."""
    table, refused = lake.table("obs.t"), set()
    before, everything = table.snapshot.sequence, set(table.to_arrow(["id"])["id"].to_pylist())
    for text, ids in expected.items():
        past = table.snapshot.sequence
        try:
            session.sql(f"DELETE FROM {own} WHERE {text}")
        except AnalysisException:
            refused.add(text)
            assert table.snapshot.sequence == past
            continue
        assert set(table.to_arrow(["id"])["id"].to_pylist()) == everything - ids, text
        table.restore(before)
    assert len(refused) < len(expected) * 0.6
    assert not {"i > 1", "s = 'apple'", "i = 1 OR s IS NULL", "b", CONDITIONS[0]} & refused
