"""Group, order, join and aggregate by paths of VARIANT columns: only these are read, and answers stay the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf

import tidelake
import tidelake.spark
from tests.spark.test_catalog_pushdown import metrics
from tests.spark.test_narrowing import VALUES, filled

NARROW = {  # queries, and which keys are enough for them
    "SELECT try_variant_get(d, '$.s', 'string') s, count(*) FROM {0} GROUP BY 1": "s",
    "SELECT try_variant_get(d, '$.s', 'int') s, max(n), min(d:t::int) FROM {0} GROUP BY 1": "s, t",
    "SELECT max(try_variant_get(d, '$.t', 'int')), count(DISTINCT d:a.b::string) FROM {0}": "a, t",
    "SELECT n FROM {0} ORDER BY try_variant_get(d, '$.s', 'string'), n LIMIT 7": "s",
    "SELECT n FROM {0} WHERE d IS NOT NULL ORDER BY d:a.b::string DESC NULLS LAST, n": "a",
    "SELECT n, rank() OVER (PARTITION BY d:t::int ORDER BY n) FROM {0} WHERE d:s IS NOT NULL": "s, t",
    "SELECT is_variant_null(d:s) w, count(*) FROM {0} GROUP BY d:s IS NULL, is_variant_null(d:s)": "s",
    "SELECT count(*) FROM {0} a JOIN {0} b ON a.d:t::int = b.d:t::int WHERE b.n < 5": "t",
    "SELECT n FROM {0} WHERE n IN (SELECT n FROM {0} WHERE d:t::int = 1)": "t",
    "SELECT x, sum(n) FROM (SELECT d:t::int x, n FROM {0} UNION ALL SELECT n, n FROM {0}) GROUP BY x": "t",
    "SELECT k::string, count(*) FROM (SELECT d:a k FROM {0} WHERE n > 3 LIMIT 500) GROUP BY k::string": "a",
    "SELECT schema_of_variant_agg(d:s) FROM {0}": "s",
}
WHOLE = [
    "SELECT try_variant_get(d, '$.s', 'string') s, max(to_json(d)) FROM {0} GROUP BY 1",
    "SELECT to_json(first(d)) FROM (SELECT * FROM {0} ORDER BY n) WHERE d:t::int = 1",
    "SELECT count(*) FROM {0} a JOIN {0} b ON a.d:t::int = b.d:t::int AND to_json(a.d) = to_json(b.d)",
    "SELECT to_json(x), n FROM (SELECT d AS x, n FROM {0} UNION ALL SELECT d, n FROM {0}) WHERE x:t::int = 1",
    "SELECT n, to_json(named_struct('d', d)) j FROM {0} WHERE d:t::int = 1",
    "SELECT try_variant_get(d, concat('$.', substr('s', n % 1 + 1, 1)), 'string') FROM {0}",
    "SELECT try_variant_get(d, '$[1]', 'int') e, count(*) FROM {0} GROUP BY 1",
    "SELECT d:['s[1]']::string k, count(*) FROM {0} GROUP BY 1",
    "SELECT n, to_json(d) FROM {0} WHERE n = (SELECT max(n) FROM {0} WHERE d:t::int = 1)",
    "SELECT m, to_json(d) FROM (SELECT max(n) m, any_value(d) d FROM {0} GROUP BY n) WHERE d:t::int = 1",
]


@pytest.fixture(scope="module")
def session(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("path-uses")
    with tidelake.connect(folder / "lake") as lake:
        filled(lake, "t", [VALUES, [None, *VALUES], [{"s": f"s{k}", "t": k % 9, "a": {"b": "c"}} for k in range(50)]])
        made = tidelake.spark.register(spark.newSession(), lake=lake)
        made.conf.set("spark.sql.session.timeZone", "Pacific/Chatham")
        made.table("tidelake.default.t").write.parquet(str(folder / "p"))
        made.read.parquet(str(folder / "p")).createOrReplaceTempView("model")
        yield made


def keys(session: SparkSession, text: str) -> set[str]:
    """Return what the scans of a query are told to be enough of the column."""
    lines = tidelake.spark.explain(session.sql(text)).splitlines()
    return {line.strip().removeprefix("of d only ").partition(", where")[0] for line in lines if "stored apart" in line}


@pytest.mark.parametrize(
    "text",
    [text if at % 2 else pytest.param(text, marks=pytest.mark.torture) for at, text in enumerate([*NARROW, *WHOLE])],
)
def test_answers_are_those_of_a_copy(session: SparkSession, text: str) -> None:
    ours, model = (session.sql(text.format(name)).collect() for name in ("tidelake.t", "model"))
    assert sorted(map(str, ours)) == sorted(map(str, model))


def test_scans_are_told_what_is_enough(session: SparkSession) -> None:
    assert {text: keys(session, text.format("tidelake.t")) for text in NARROW} == {
        text: {enough} for text, enough in NARROW.items()
    }
    assert {text: keys(session, text.format("tidelake.t")) for text in WHOLE} == {text: set() for text in WHOLE}


def test_a_function_of_somebody_has_whole_values_or_what_it_is_given(session: SparkSession) -> None:
    session.udf.register("length_of", udf(lambda text: len(text or ""), "int"))
    part = "SELECT length_of(try_variant_get(d, '$.s', 'string')) k, count(*) c FROM {} GROUP BY 1 ORDER BY 1"
    assert session.sql(part.format("tidelake.t")).collect() == session.sql(part.format("model")).collect()
    session.udf.register("shown", udf(lambda value: None if value is None else repr(value.toPython()), "string"))
    whole = "SELECT shown(d) j, d:t::int t FROM {} WHERE n < 4 ORDER BY n"
    assert session.sql(whole.format("tidelake.t")).collect() == session.sql(whole.format("model")).collect()


def test_grouping_by_a_path_reads_less(session: SparkSession, lake: tidelake.Lake) -> None:
    values = [{"s": f"s{k % 5}", "other": f"{k}" * 500} for k in range(300)]
    filled(lake, "wide", [values])
    own = tidelake.spark.register(session.newSession(), lake=lake)
    narrow = own.sql("SELECT d:s::string, count(*) FROM tidelake.wide GROUP BY 1")
    assert {row[1] for row in narrow.collect()} == {60}
    assert keys(own, "SELECT d:s::string, count(*) FROM tidelake.wide GROUP BY 1") == {"s"}
    assert metrics(narrow)["extents read"] == 1


def test_values_that_are_kept_are_whole(session: SparkSession) -> None:
    frame = session.table("tidelake.t").where("n < 5")
    frame.cache()
    try:
        counted = frame.selectExpr("try_variant_get(d, '$.s', 'string') s").groupBy("s").count()
        assert counted.count() > 0
        found = [row.j for row in frame.selectExpr("to_json(d) j").collect()]
    finally:
        frame.unpersist()
    assert found == [row.j for row in session.sql("SELECT to_json(d) j FROM model WHERE n < 5").collect()]
