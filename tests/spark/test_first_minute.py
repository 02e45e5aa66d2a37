"""Go on in Spark with what a newcomer made without it."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner
from pyspark.sql import SparkSession

from tidelake.cli.main import main

LINES = """\
{"ts": "2026-03-14T12:00:00Z", "level": "ERROR", "service": "auth", "message": "timeout"}
{"ts": "2026-03-14T12:00:01Z", "level": "INFO", "service": "web", "message": "ok"}
{"ts": "2026-03-14T12:00:02Z", "level": "ERROR", "service": "auth", "message": "timeout again"}
"""


def test_the_table_of_a_command_is_there_in_spark_sql(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "app.ndjson").write_text(LINES)
    made = CliRunner().invoke(main, ["--lake", f"{tmp_path}/lake", "ingest", "app.logs", f"{tmp_path}/app.ndjson"])
    assert made.exit_code == 0, made.output
    spark.sql(f"CREATE TABLE app_logs USING tidelake OPTIONS (lake '{tmp_path}/lake', table 'app.logs')")
    try:
        rows = spark.sql("SELECT service, count(*) AS n FROM app_logs WHERE level = 'ERROR' GROUP BY service").collect()
        assert [(row.service, row.n) for row in rows] == [("auth", 2)]
    finally:
        spark.sql("DROP TABLE app_logs")
