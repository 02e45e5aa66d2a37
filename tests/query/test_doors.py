"""Try every way out of the lake that a question could take, by every public entry: all are refused in our words."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession
from sqlglot import exp, parse_one

import tidelake
from tests.support.door_fuzz import Maker, ask_all
from tests.support.watching import watched
from tidelake import Lake
from tidelake.cli.main import main
from tidelake.errors import InvalidInputError, QueryError, TidelakeError
from tidelake.query.engines import local
from tidelake.query.prepared import Prepared
from tidelake.query.sql.allowed import FUNCTION_NODES, NODES

secret_rows = pa.table({"secret": ["of the caller"]})  # a variable that no question may see

# Each door, and the questions that try it. CANARY stands for a file outside the lake.
SQL_DOORS = {
    "files": """
        SELECT * FROM read_text('CANARY')
        SELECT * FROM read_blob('CANARY')
        SELECT * FROM read_csv('CANARY')
        SELECT * FROM read_csv_auto('CANARY')
        SELECT * FROM read_parquet('CANARY')
        SELECT * FROM parquet_scan('CANARY')
        SELECT * FROM parquet_metadata('CANARY')
        SELECT * FROM read_json('CANARY')
        SELECT * FROM read_json_auto('CANARY')
        SELECT * FROM sniff_csv('CANARY')
        SELECT * FROM read_files('CANARY')
        SELECT * FROM sqlite_scan('CANARY', 't')
        SELECT * FROM 'CANARY'
        SELECT * FROM "CANARY"
        SELECT * FROM `CANARY`
        SELECT * FROM csv.`CANARY`
        SELECT * FROM text.`CANARY`
        SELECT * FROM parquet.`CANARY`
        SELECT * FROM json.`CANARY`
        SELECT * FROM binaryFile.`CANARY`
        SELECT * FROM tidelake.`CANARY`
        SELECT * FROM obs.logs, LATERAL read_text('CANARY')
        SELECT * FROM obs.logs LATERAL VIEW read_text('CANARY') t AS x
        SELECT (SELECT max(content) FROM read_text('CANARY')) AS a
        SELECT * FROM obs.logs WHERE service IN (SELECT content FROM read_text('CANARY'))
        WITH c AS (SELECT * FROM read_text('CANARY')) SELECT * FROM c
        SELECT 1 AS a UNION ALL SELECT content FROM read_text('CANARY')
        SELECT input_file_name() FROM obs.logs
        SELECT from_protobuf(service, 'M', 'CANARY') FROM obs.logs
        SELECT xpath_string('<!DOCTYPE a [<!ENTITY x SYSTEM "CANARY">]><a>&x;</a>', 'a')
        COPY (SELECT 1) TO 'CANARY'
        COPY obs.logs FROM 'CANARY'
        EXPORT DATABASE 'CANARY'
        ATTACH 'CANARY' AS other
        INSERT INTO obs.logs SELECT * FROM read_csv('CANARY')
        CREATE TABLE t AS SELECT * FROM read_csv('CANARY')
        SELECT 1; COPY (SELECT 1) TO 'CANARY'
        LOAD DATA INPATH 'CANARY' INTO TABLE obs.logs
        SELECT * INTO t FROM obs.logs
        INSERT OVERWRITE DIRECTORY 'CANARY' SELECT 1
    """,
    "globs": """
        SELECT * FROM glob('CANARY*')
        SELECT * FROM read_text('CANARY*')
        SELECT * FROM 'CANARY*.csv'
        SELECT * FROM csv.`CANARY*`
        LIST 'CANARY'
    """,
    "settings": """
        SELECT * FROM duckdb_settings()
        SELECT * FROM duckdb_secrets()
        SELECT * FROM duckdb_functions()
        SELECT * FROM pragma_version()
        SELECT * FROM pragma_table_info('tide_0')
        SELECT current_setting('memory_limit')
        SELECT getvariable('x')
        SELECT version()
        SELECT current_user
        SELECT session_user()
        SELECT current_database()
        SELECT current_catalog()
        SELECT @x
        SELECT @@version
        SELECT ${spark.master}
        SET memory_limit = '1TB'
        SET spark.sql.ansi.enabled = true
        RESET memory_limit
        PRAGMA database_list
        USE other
        SHOW TABLES
        DESCRIBE obs.logs
        SELECT * FROM information_schema.tables
        SELECT * FROM duckdb_tables
        SELECT * FROM sqlite_master
        SELECT * FROM python_worker_logs()
        SELECT * FROM tide_0
    """,
    "environment": """
        SELECT getenv('HOME')
        SELECT * FROM secret_rows
        SELECT * FROM text.`/proc/self/environ`
        SELECT * FROM read_text('/proc/self/environ')
        SELECT reflect('java.lang.System', 'getenv', 'HOME')
        SELECT ${env:HOME}
    """,
    "network": """
        SELECT * FROM read_csv('http://127.0.0.1:1/a.csv')
        SELECT * FROM 's3://bucket/a.parquet'
        SELECT * FROM postgres_scan('host=127.0.0.1', 'public', 't')
        SELECT http_get('http://127.0.0.1:1/')
        SELECT ai_query('model', 'text')
        ATTACH 'postgres:host=127.0.0.1' AS p (TYPE postgres)
        INSTALL httpfs
        LOAD httpfs
    """,
    "shell": """
        SELECT TRANSFORM(service) USING 'cat' AS (a STRING) FROM obs.logs
        ADD JAR 'CANARY'
        ADD FILE 'CANARY'
        CREATE FUNCTION f AS 'java.lang.System' USING JAR 'CANARY'
        SELECT shell('id')
        SELECT system('id')
        SELECT * FROM query('SELECT 1')
        SELECT * FROM query_table('tide_0')
        SELECT * FROM json_execute_serialized_sql('{}')
        SELECT write_log('x')
        CALL force_checkpoint()
        EXECUTE IMMEDIATE 'SELECT 1'
        SELECT * FROM IDENTIFIER('obs.logs')
        SELECT /*+ BROADCAST(logs) */ * FROM obs.logs
        SELECT * FROM obs.logs FOR UPDATE
    """,
    "classes": """
        SELECT reflect('java.lang.System', 'exit', 1)
        SELECT java_method('java.lang.Runtime', 'getRuntime')
        SELECT try_reflect('java.lang.System', 'getenv', 'HOME')
        SELECT system.builtin.reflect('java.lang.System', 'getenv', 'HOME')
        SELECT `reflect`('java.lang.System', 'getenv', 'HOME')
        SELECT java.lang.System.exit(1)
        SELECT spark_catalog.default.upper('a')
        SELECT somebodys_udf('a')
        SELECT tide_has('a', 'a')
    """,
}
KQL_DOORS = {
    "files": """
        externaldata(a:string)['CANARY']
        externaldata(a:string)['file://CANARY'] with (format='txt')
        externaldata(a:string)[h@'CANARY']
        obs.logs | join (externaldata(service:string)['CANARY']) on service
        let t = externaldata(a:string)['CANARY']; t | count
        union obs.logs, (externaldata(service:string)['CANARY'])
        ['CANARY'] | count
        external_table('CANARY')
        obs.logs | extend a = read_text('CANARY')
        print a = read_csv('CANARY')
        read_text('CANARY') | count
    """,
    "globs": """
        externaldata(a:string)['CANARY*']
        union CANARY*
        print a = glob('CANARY*')
    """,
    "settings": """
        .show databases
        .set t <| obs.logs
        print a = current_setting('memory_limit')
        print a = version()
        duckdb_settings() | count
        tide_0 | count
    """,
    "environment": """
        print a = getenv('HOME')
        secret_rows | count
        externaldata(a:string)['/proc/self/environ']
    """,
    "network": """
        externaldata(a:string)['http://127.0.0.1:1/a.csv']
        externaldata(a:string)['http://user:password@127.0.0.1:1/a.csv']
        externaldata(a:string)['s3://bucket/a.csv']
        cluster('other').database('db').logs | count
        evaluate http_request('http://127.0.0.1:1/')
        evaluate sql_request('Server=127.0.0.1', 'SELECT 1')
    """,
    "shell": """
        obs.logs | evaluate python(typeof(*), 'result = df')
        obs.logs | evaluate r(typeof(*), 'result <- df')
        obs.logs | invoke shell('id')
    """,
    "classes": """
        print a = reflect('java.lang.System', 'getenv', 'HOME')
        print a = java_method('java.lang.System', 'getenv', 'HOME')
        print a = tide_has('a', 'a')
    """,
}
WHERES = (
    "read_text('CANARY') == 'a'",
    "service == getenv('HOME')",
    "service in (select content from read_text('CANARY'))",
    "service == 'a'; copy t to 'CANARY'",
    "service == 'a') or 1 = 1 --",
    "externaldata(a:string)['CANARY']",
)


def questions(doors: dict[str, str]) -> list[tuple[str, str]]:
    return [(door, line.strip()) for door, lines in doors.items() for line in lines.strip().splitlines()]


@pytest.fixture(scope="module")
def outside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with files that every reader would like."""
    folder = tmp_path_factory.mktemp("outside")
    for name in ("canary.csv", "canary.json", "canary.parquet"):
        (folder / name).write_text('{"a": 1}\n')
    return folder


ENTRIES: dict[str, Callable[[Lake, str, str], object]] = {
    "sql": lambda lake, text, engine: lake.sql(text, engine=engine).to_arrow(),
    "kql": lambda lake, text, engine: lake.kql(text, engine=engine).to_arrow(),
}


@pytest.mark.parametrize("engine", ["auto", "local", "spark"])
@pytest.mark.parametrize("language", ["sql", "kql"])
def test_every_door_is_closed_on_every_engine(language: str, engine: str, world: Lake, outside: Path) -> None:
    canary = str(outside / "canary.csv")
    with watched(outside) as watch:
        opened = []
        for door, question in questions(SQL_DOORS if language == "sql" else KQL_DOORS):
            text = question.replace("CANARY", canary)
            try:
                ENTRIES[language](world, text, engine)
            except (QueryError, InvalidInputError) as error:
                if "Traceback" in str(error) or "duckdb" in type(error.__cause__).__module__:
                    opened.append((door, text, f"left to the engine: {error}"))
            else:
                opened.append((door, text, "was answered"))
        assert opened == []
        assert watch.touched() == []


LISTINGS = ("SHOW TABLES", "DESCRIBE obs.logs")  # words of the command line: the lake's own listings, by no engine


@pytest.mark.parametrize("command", ["query", "explain", "shell"])
def test_every_door_is_closed_on_the_command_line(command: str, world: Lake, outside: Path) -> None:
    canary = str(outside / "canary.csv")
    tried = [("--sql", each) for each in questions(SQL_DOORS)] + [("--kql", each) for each in questions(KQL_DOORS)]
    with watched(outside) as watch:
        for flag, (door, question) in tried:
            text = question.replace("CANARY", canary)
            if command == "query" and text in LISTINGS and flag == "--sql":
                continue  # the command's own word: it lists the lake's tables, by no engine
            if command == "shell":
                if ";" in text or text.startswith(".") or text in LISTINGS:
                    continue  # the shell's own words
                found = CliRunner().invoke(main, ["shell", "--lake", str(world.where)], input=f"{text};\n")
            else:
                found = CliRunner().invoke(main, [command, "--lake", str(world.where), flag, "--", text])
            assert (found.exit_code, found.exception.__class__) == (1, SystemExit), (door, text, found.output)
            assert "Traceback" not in found.output
        assert watch.touched() == []


def test_a_condition_given_as_text_calls_and_reads_nothing(world: Lake, outside: Path) -> None:
    table = world.table("obs.logs")
    ways: tuple[Callable[[str], object], ...] = (
        lambda where: table.scan(where=where).read_all(),
        lambda where: table.plan(where=where),
        lambda where: table.to_arrow(where=where),
        lambda where: table.to_polars(where=where),
        lambda where: table.to_duckdb(duckdb.connect(), where=where),
        lambda where: table.to_spark(where=where),
    )
    with watched(outside) as watch:
        for where in WHERES:
            for way in ways:
                with pytest.raises((QueryError, InvalidInputError)):
                    way(where.replace("CANARY", str(outside / "canary.csv")))
        assert watch.touched() == []


@pytest.mark.parametrize("name", ["../outside", "/etc/passwd", "a.b.c.d", "obs./etc", "obs.lo gs; drop", "obs.\0"])
def test_a_table_is_named_by_name_and_never_by_path(name: str, world: Lake) -> None:
    with pytest.raises(TidelakeError):
        world.table(name).to_arrow()
    with pytest.raises(TidelakeError):
        world.create_table(name, {"ts": "timestamp"}, time="ts")


def test_a_function_that_is_not_known_is_told_with_the_nearest_name(world: Lake) -> None:
    with pytest.raises(QueryError, match="there is no function 'uper', did you mean 'upper'") as found:
        world.sql("select service, uper(service) from obs.logs")
    assert (found.value.kind, found.value.facts["column"]) == ("unknown_function", 17)


def test_what_is_allowed_is_known_to_the_parser() -> None:
    kinds = {name for name, kind in vars(exp).items() if isinstance(kind, type) and issubclass(kind, exp.Expr)}
    assert sorted((NODES | FUNCTION_NODES) - kinds - {"_ExplodeOuter"}) == []


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM read_text('CANARY')",
        "SELECT * FROM 'CANARY'",
        "SELECT * FROM secret_rows",
        "COPY (SELECT 1) TO 'CANARY'",
        "ATTACH 'CANARY'",
        "SET memory_limit = '1TB'",
        "SET enable_external_access = true",
        "RESET lock_configuration",
        "INSTALL httpfs",
        "LOAD 'CANARY'",
    ],
)
def test_the_local_engine_is_locked_itself(text: str, outside: Path) -> None:
    connection = local._database(1 << 28).cursor()
    with watched(outside) as watch:
        with pytest.raises(duckdb.Error):
            connection.execute(text.replace("CANARY", str(outside / "canary.csv"))).fetchall()
        assert watch.touched() == []


@pytest.mark.parametrize("form", ["csv", "text", "parquet", "binaryFile"])
def test_spark_takes_no_path_for_a_table_itself(form: str, spark: SparkSession, outside: Path) -> None:
    from tidelake.query.engines import spark as engine

    before = spark.conf.get("spark.sql.runSQLOnFiles")
    tree = parse_one(f"SELECT * FROM {form}.`{outside / 'canary.csv'}`", read="spark")
    assert isinstance(tree, exp.Query)
    with watched(outside) as watch:
        with pytest.raises(QueryError):
            engine.frame_of(Prepared("", "sql", tree, ("a",), ()), [], spark)
        assert watch.touched() == []
    assert spark.conf.get("spark.sql.runSQLOnFiles") == before


def fuzzed(where: Path, outside: Path, seed: int, count: int, engine: str) -> tuple[dict[str, object], list[str]]:
    """Let a process ask, and return what it says and what the kernel says it touched."""
    command = [sys.executable, "-m", "tests.support.door_fuzz", str(where), str(outside), str(seed), str(count), engine]
    with watched(outside) as watch:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
        assert ended.returncode == 0, ended.stderr[-2000:]
        return json.loads(ended.stdout) if ended.stdout else {}, watch.touched()


@pytest.fixture
def asked(tmp_path: Path) -> Path:
    with tidelake.connect(tmp_path / "lake") as lake:
        logs = lake.create_table("obs.logs", {"ts": "timestamp", "service": "string", "attributes": "dynamic"})
        logs.append([{"ts": "2026-01-01T00:00:00Z", "service": "auth", "attributes": {"a": 1}}])
    return tmp_path / "lake"


def test_the_watch_sees_a_file_that_another_process_reads(asked: Path, outside: Path) -> None:
    assert fuzzed(asked, outside, 0, 0, "read")[1] == ["canary.csv"]


def test_generated_questions_touch_nothing_outside_the_lake(asked: Path, outside: Path) -> None:
    said, touched = fuzzed(asked, outside, 15, 1500, "local")
    assert touched == []
    assert said["raw"] == []
    assert (said["answered"], said["refused"]) > (0, 0)


def test_the_watch_sees_a_file_that_spark_reads(spark: SparkSession, outside: Path) -> None:
    with watched(outside) as watch:
        spark.read.text(str(outside / "canary.csv")).collect()
        assert "canary.csv" in watch.touched()


def test_generated_questions_on_spark_touch_nothing_outside_the_lake(
    spark: SparkSession, asked: Path, outside: Path
) -> None:
    """The kernel watches, whichever process opens a file: this one, Java's or one of its Python workers."""
    with tidelake.connect(asked) as lake, watched(outside) as watch:
        said = ask_all(lake, Maker(16, str(outside)), 40, "spark")
        assert watch.touched() == []
    assert said["raw"] == []
    assert min(said["answered"], said["refused"]) > 0


@pytest.mark.torture
@pytest.mark.parametrize("engine", ["local", "spark"])
@pytest.mark.parametrize("seed", range(4))
def test_many_generated_questions_touch_nothing_outside_the_lake(
    engine: str, seed: int, asked: Path, outside: Path
) -> None:
    said, touched = fuzzed(asked, outside, seed, 25_000 if engine == "local" else 1_500, engine)
    assert touched == []
    assert said["raw"] == []
