"""Show that what this package adds to Spark disturbs nobody, and that reads stay right without any part of it."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, Filter, InputPartition

import tidelake
import tidelake.spark
from tidelake.spark import changing
from tidelake.spark.catalog.door import VERBS, Answers
from tidelake.spark.jvm import compile
from tidelake.spark.jvm.catalogs import CATALOG, FILES, connect
from tidelake.spark.jvm.optimizer import RULE
from tidelake.spark.jvm.planning import Planner

ROWS = [{"ts": f"2026-03-01T00:00:{k:02}Z", "n": k, "name": f"é{k}"} for k in range(20)]


@pytest.fixture
def where(tmp_path: Path) -> str:
    with tidelake.connect(tmp_path / "lake") as lake:
        table = lake.create_table("t", {"ts": "timestamp", "n": "long", "name": "string"}, flush_age="off")
        table.append(ROWS)
        table.flush()
    return str(tmp_path / "lake")


@contextmanager
def without(spark: SparkSession, *files: str) -> Iterator[SparkSession]:
    """Make a new session on a Spark in which some of our Java files cannot be compiled."""
    held: dict[str, Any] = spark.sparkContext._gateway.__dict__
    sources: dict[str, Any] = spark.sparkContext.__dict__.setdefault("_tidelake_sources", {})
    tidelake.spark.register(spark)  # all are compiled by now: a JVM's bridge knows one class of a name
    if not set(files).isdisjoint(FILES):
        connect(spark)
    kept, kept_sources = {name: held[name] for name in (compile._LOADERS, compile._FAILED)}, dict(sources)
    held[compile._LOADERS] = {name: loader for name, loader in kept[compile._LOADERS].items() if name not in files}
    held[compile._FAILED] = dict.fromkeys(files, "another Spark")
    sources.clear()
    try:
        yield spark.newSession()
    finally:
        held.update(kept)
        sources.clear()
        sources.update(kept_sources)


def answers(session: SparkSession, where: str) -> list[Any]:
    frame = session.read.format("tidelake").options(lake=where, table="t").load()
    joined = frame.where("n < 3").alias("a").join(frame.where("n > 1").alias("b"), "n").count()
    return [
        frame.count(),
        frame.where("n >= 15").count(),
        sorted(row.name for row in frame.where("n < 2").collect()),
        joined,
    ]


@pytest.mark.parametrize(
    ("files", "format"),
    [
        (["ScanRule"], "tlm3"), (["ColumnReader"], "tlm2"), (["StoredColumns"], "tlm2"), (["StoredColumns"], "tlm3"),
        (["Sums"], "tlm2"), (["StoredPages"], "tlm2"), (["StoredPages"], "tlm3"), (["Pages"], "tlm3"),
        (["Templates"], "tlm3"), (["Pco"], "tlm3"), (["PcoBits"], "tlm3"), (["DriverSource"], "tlm3"),
        (["ScanRule", "ColumnReader", "DriverSource"], "tlm3"),
    ],
)  # fmt: skip
def test_reads_are_right_without_a_class(spark: SparkSession, where: str, files: list[str], format: str) -> None:
    with tidelake.connect(where) as lake:
        lake.table("t").convert(format)
    with without(spark, *files) as session:
        with pytest.warns(UserWarning, match="tidelake: .* here: another Spark"):
            tidelake.spark.register(session)
        assert answers(session, where) == [20, 5, ["é0", "é1"], 1]
        assert session.conf.get("spark.sql.python.filterPushdown.enabled") == "false"


def test_a_table_that_sql_made_is_refused_in_words_without_the_rule(spark: SparkSession, where: str) -> None:
    with without(spark, "ScanRule") as session:
        with pytest.warns(UserWarning, match="are not pushed down here"):
            tidelake.spark.register(session)
        session.sql(f"CREATE TABLE degraded USING tidelake OPTIONS (lake '{where}', table 't')")
        try:
            with pytest.raises(Exception, match=r"read it with spark\.read\.format"):
                session.table("degraded").count()
        finally:
            session.sql("DROP TABLE degraded")


def sql_answers(session: SparkSession) -> list[Any]:
    """Ask a catalog's table what ``answers`` asks of a frame."""
    asked = ["count(*)", "count_if(n >= 15)", "max(name)"]
    whole = [session.sql(f"SELECT {each} FROM tidelake.t").collect()[0][0] for each in asked]
    joined = "SELECT count(*) FROM tidelake.t a JOIN tidelake.t b ON a.n = b.n WHERE a.n < 3 AND b.n > 1"
    pruned = session.sql("SELECT name FROM tidelake.t WHERE n < 2 ORDER BY n").collect()
    return [*whole, session.sql(joined).collect()[0][0], [row.name for row in pruned]]


@pytest.mark.parametrize(
    "files", [["ScanRule"], ["ColumnReader"], ["StoredColumns"], ["StoredPages"], ["DriverSource"], ["LakePushdown"]]
)
def test_a_catalog_is_right_without_a_class(spark: SparkSession, where: str, files: list[str]) -> None:
    with without(spark, *files) as session:
        with pytest.warns(UserWarning, match="tidelake: .* here: another Spark"):
            tidelake.spark.register(session, lake=where)
        session.sql("INSERT INTO tidelake.t VALUES (timestamp'2026-03-01 00:00:20', 20, 'a')")
        assert sql_answers(session) == [21, 6, "é9", 1, ["é0", "é1"]]
    connect(spark)  # with all classes again


def pushed_paths(session: SparkSession) -> tuple[list[Any], bool]:
    """Read paths of a VARIANT column; also whether the scan was told which."""
    value = """parse_json('{"a": 7, "b": {"c": 1}}')"""
    session.sql(f"CREATE OR REPLACE TABLE tidelake.v AS SELECT id AS n, {value} AS d FROM range(3)")
    frame = session.sql("SELECT n, d:a::int AS a, d:b.c::string AS c FROM tidelake.v ORDER BY n")
    scan = frame._jdf.queryExecution().optimizedPlan().collectLeaves().head().scan()
    return [tuple(row) for row in frame.collect()], scan.options().containsKey("tidelakekeys")


def stopped(session: SparkSession) -> tuple[list[int], bool, bool]:
    """Read the first rows that satisfy a condition, and rows enough; also whether the scans were told."""
    first = session.sql("SELECT n FROM tidelake.t WHERE name <> 'é19' ORDER BY ts DESC LIMIT 2")
    some = session.sql("SELECT n FROM tidelake.t WHERE name = 'é7' LIMIT 2")
    plans = [frame._jdf.queryExecution().executedPlan().toString() for frame in (first, some)]
    return [row.n for frame in (first, some) for row in frame.collect()], "newest 2" in plans[0], "limit 2" in plans[1]


@pytest.mark.parametrize("file", ["LimitRule", "LakePushdown"])
def test_first_rows_are_right_without_a_scan_that_is_told(spark: SparkSession, where: str, file: str) -> None:
    with without(spark, file) as session, warnings.catch_warnings(action="ignore"):
        tidelake.spark.register(session, lake=where)
        assert sql_answers(session) == [20, 5, "é9", 1, ["é0", "é1"]]
        assert stopped(session) == ([18, 17, 7], False, False)
    connect(spark)  # with all classes again
    assert stopped(tidelake.spark.register(spark.newSession(), lake=where)) == ([18, 17, 7], True, True)


def grouped(session: SparkSession) -> tuple[list[Any], bool]:
    """Group by a path; also whether the scan was told which."""
    session.sql(
        "CREATE OR REPLACE TABLE tidelake.v AS SELECT parse_json(concat('{\"a\": ', id % 2, '}')) AS d FROM range(5)"
    )
    frame = session.sql("SELECT d:a::int AS a, count(*) AS c FROM tidelake.v GROUP BY 1 ORDER BY 1")
    scan = frame._jdf.queryExecution().optimizedPlan().collectLeaves().head().scan()
    return [tuple(row) for row in frame.collect()], scan.options().containsKey("tidelakekeys")


def test_groups_are_right_without_paths_read_alone(spark: SparkSession, where: str) -> None:
    with without(spark, "PathRule") as session:
        tidelake.spark.register(session, lake=where)
        assert grouped(session) == ([(0, 3), (1, 2)], False)
    connect(spark)  # with all classes again
    assert grouped(tidelake.spark.register(spark.newSession(), lake=where)) == ([(0, 3), (1, 2)], True)


def test_a_catalog_is_right_without_paths_read_alone(spark: SparkSession, where: str) -> None:
    with without(spark, "LakePaths", "PathRule") as session:
        tidelake.spark.register(session, lake=where)
        assert sql_answers(session) == [20, 5, "é9", 1, ["é0", "é1"]]
        found, is_told = pushed_paths(session)
    connect(spark)  # with all classes again
    assert (found, is_told) == ([(n, 7, "1") for n in range(3)], False)
    assert pushed_paths(tidelake.spark.register(spark.newSession(), lake=where)) == (found, True)


def test_a_write_brings_columns_without_being_asked_which_it_may(spark: SparkSession, where: str) -> None:
    with without(spark, "LakeEvolving") as session:
        tidelake.spark.register(session, lake=where)
        session.sql(
            "INSERT WITH SCHEMA EVOLUTION INTO tidelake.t BY NAME SELECT timestamp'2026-03-02' AS ts, 1.5D AS x"
        )
        with pytest.raises(Exception, match="a schema only widens"):
            session.sql("INSERT WITH SCHEMA EVOLUTION INTO tidelake.t BY NAME SELECT now() AS ts, 7 AS n")
        assert session.sql("SELECT x FROM tidelake.t WHERE x > 1").collect()[0].x == 1.5
    connect(spark)  # with all classes again
    session.sql("INSERT WITH SCHEMA EVOLUTION INTO tidelake.t BY NAME SELECT now() AS ts, 7 AS n")
    assert session.sql("SELECT count(*) FROM tidelake.t").collect()[0][0] == 22


CHANGING = (
    "UPDATE tidelake.t SET name = 'x' WHERE n % 2 = 0",
    "DELETE FROM tidelake.t WHERE n % 2 = 0",
    """MERGE INTO tidelake.t USING (SELECT 3L AS m) ON n = m WHEN MATCHED THEN DELETE
       WHEN NOT MATCHED BY SOURCE AND n = 5 THEN UPDATE SET name = 'x'""",
)


def test_a_statement_whose_changes_cannot_be_handed_over_fails_and_changes_nothing(
    spark: SparkSession, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(changing.ChangeWriter):
        """What ChangedRows hands changes to, in a task; local, so that it travels to tasks as it is."""

        def write(self, iterator: Iterator[pa.RecordBatch]) -> Any:
            next(iterator)
            raise RuntimeError("not as expected")

    session = tidelake.spark.register(spark.newSession(), lake=where)
    before = session.table("tidelake.t").orderBy("n").collect()
    monkeypatch.setattr(changing, "ChangeWriter", Broken)
    for statement in CHANGING:
        with pytest.raises(Exception, match="not as expected"):
            session.sql(statement)
        assert session.table("tidelake.t").orderBy("n").collect() == before
    monkeypatch.undo()
    for statement in CHANGING:
        session.sql(statement)
    left = [(row.n, row.name) for row in session.table("tidelake.t").orderBy("n").collect()]
    assert left == [(n, "x" if n == 5 else f"é{n}") for n in range(1, 20, 2) if n != 3]


@pytest.mark.parametrize("file", [file for file in FILES if file not in compile.OPTIONAL])
def test_without_a_catalog_all_else_is_as_it_was(spark: SparkSession, where: str, file: str, tmp_path: Path) -> None:
    with without(spark, file) as session:
        with ExitStack() as told:
            said = ["there is no catalog here", *(["conditions above streams do not prune here"] * (file == "Trees"))]
            for each in said:
                told.enter_context(pytest.warns(UserWarning, match=f"tidelake: {each}: another Spark"))
            tidelake.spark.register(session, lake=where)
        assert answers(session, where) == [20, 5, ["é0", "é1"], 1]
        with pytest.raises(Exception, match="REQUIRES_SINGLE_PART_NAMESPACE"):  # as of any name that is no catalog's
            session.sql("SELECT * FROM tidelake.obs.t")
        session.range(5).write.parquet(str(tmp_path / "p"))
        assert session.read.parquet(str(tmp_path / "p")).where("id > 2").count() == 2


def test_a_catalog_goes_on_where_columns_cannot_be_handed_over(spark: SparkSession, where: str, tmp_path: Path) -> None:
    session = tidelake.spark.register(spark.newSession(), lake=where)
    catalog = compile.jar_class(session, CATALOG, FILES).getDeclaredConstructor(None).newInstance(None)
    catalog.connect(Answers(), NoScan())
    try:
        assert sql_answers(session) == [20, 5, "é9", 1, ["é0", "é1"]]
        session.range(5).write.parquet(str(tmp_path / "p"))
        assert session.read.parquet(str(tmp_path / "p")).where("id > 2").count() == 2
    finally:
        connect(session)


def test_a_catalog_whose_answers_fail_says_so(spark: SparkSession, where: str) -> None:
    session = tidelake.spark.register(spark.newSession(), lake=where)
    broken = Path(where).rename(f"{where}-away")
    with pytest.raises(Exception, match=r"^tidelake: "):
        session.sql("SELECT * FROM tidelake.default.t")
    broken.rename(where)
    assert session.sql("SELECT n FROM tidelake.default.t").count() == 20


class Failing:
    """Something of ours that fails while a query is planned."""

    def apply(self, *given: Any) -> Any:
        raise RuntimeError("not as expected")

    class Java:
        implements = ("java.util.function.BiFunction",)


class Wrong(Failing):
    def apply(self, *given: Any) -> Any:
        return "not as expected"


@pytest.mark.parametrize("broken", [Failing, Wrong])
def test_a_catalog_goes_on_where_more_cannot_be_pushed_down(
    spark: SparkSession, where: str, tmp_path: Path, broken: type[Failing]
) -> None:
    session = tidelake.spark.register(spark.newSession(), lake=where)
    catalog = compile.jar_class(session, CATALOG, FILES).getDeclaredConstructor(None).newInstance(None)
    catalog.pushWith(broken())
    try:
        assert sql_answers(session) == [20, 5, "é9", 1, ["é0", "é1"]]
        assert answers(session, where) == [20, 5, ["é0", "é1"], 1]
    finally:
        connect(session)
    assert "LocalTableScan" in session.sql("SELECT count(*) FROM tidelake.t")._jdf.queryExecution().toString()


@pytest.mark.parametrize("verb", ["aggregate", "top", "enough", "planned", "statistics"])
def test_an_answer_that_fails_costs_speed_alone(
    spark: SparkSession, where: str, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = tidelake.spark.register(spark.newSession(), lake=where)
    monkeypatch.setitem(VERBS, verb, Failing().apply)
    assert sql_answers(session) == [20, 5, "é9", 1, ["é0", "é1"]]
    last = session.sql("SELECT n FROM tidelake.t ORDER BY ts DESC LIMIT 2").collect()
    assert [row.n for row in last] == [19, 18]
    assert stopped(session)[0] == [18, 17, 7]


def test_a_driver_that_cannot_plan_leaves_it_to_processes(
    spark: SparkSession, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = tidelake.spark.register(spark.newSession(), lake=where)
    monkeypatch.setattr(Planner, "apply", Failing.apply)
    assert session.sql("SELECT n FROM tidelake.t WHERE n > 17 ORDER BY n").collect()[0].n == 18
    session.sql("INSERT INTO tidelake.t VALUES (timestamp'2026-03-01 00:00:20', 20, 'a')")
    monkeypatch.undo()
    assert sql_answers(session)[0] == 21


class NoScan:
    def apply(self, scan: Any) -> str:
        return "not as expected"

    class Java:
        implements = ("java.util.function.Function",)


def test_a_rule_that_fails_while_planning_leaves_the_plan_as_it_was(
    spark: SparkSession, where: str, capfd: pytest.CaptureFixture[str]
) -> None:
    session = tidelake.spark.register(spark.newSession())
    rules = session._jsparkSession.experimental().extraOptimizations()
    (rule,) = [rules.apply(at) for at in range(rules.size()) if rules.apply(at).getClass().getName() == RULE]
    rule.setColumns(NoScan())
    assert answers(session, where) == [20, 5, ["é0", "é1"], 1]


class ForeignReader(DataSourceReader):
    """A source of somebody else's that says which filters it was given."""

    pushed: str = "none"

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        self.pushed = ",".join(sorted(str(each.value) for each in filters if isinstance(each, EqualTo)))
        return [each for each in filters if not isinstance(each, EqualTo)]

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(self.pushed)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        wanted = [n for n in range(5) if partition.value in ("none", "") or str(n) in partition.value.split(",")]
        yield pa.RecordBatch.from_pydict({"n": pa.array(wanted, pa.int64())})


class Foreign(DataSource):
    @classmethod
    def name(cls) -> str:
        return "foreign"

    def schema(self) -> str:
        return "n bigint"

    def reader(self, schema: Any) -> DataSourceReader:
        return ForeignReader()


def test_registering_does_not_switch_pushdown_on_for_the_sources_of_others(spark: SparkSession) -> None:
    session = tidelake.spark.register(spark.newSession())
    session.dataSource.register(Foreign)
    frame = session.read.format("foreign").load()
    with pytest.raises(Exception, match="DATA_SOURCE_PUSHDOWN_DISABLED"):  # as Spark has it without us
        frame.where("n = 1").union(frame.where("n = 2")).collect()


def test_another_spark_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "pyspark-3.5.1.dist-info").mkdir()
    (tmp_path / "pyspark-3.5.1.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: pyspark\nVersion: 3.5.1\n"
    )
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import tidelake.spark"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == (
        "tidelake.errors.UnavailableError: tidelake needs pyspark 4.0 to 4.3: pip install 'tidelake[spark]' found=3.5.1"
    )
