"""Share one Spark session among the query tests.

It does not start Spark unless a test asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.query.cases import TABLES, arrow_table
from tidelake.query.functions import register_spark


@pytest.fixture(scope="session")
def query_spark() -> Iterator[Any]:
    """Give a Spark session in UTC that knows the portable functions and the shared tables.

    Code is not compiled for each query: hundreds of tiny queries would spend their time there.
    """
    sql = pytest.importorskip("pyspark.sql")
    running = sql.SparkSession.getActiveSession()
    builder = sql.SparkSession.builder.master("local[2]").appName("queries")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": "1g",
    }.items():
        builder = builder.config(name, value)
    base = running or builder.getOrCreate()
    session = base.newSession()
    for name, value in {
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }.items():
        session.conf.set(name, value)
    register_spark(session)
    for name, (columns, _) in TABLES.items():
        frame = session.createDataFrame(arrow_table(name))
        chosen = [f"try_parse_json({c}) AS {c}" if kind == "dynamic" else c for c, kind in columns.items()]
        frame.selectExpr(*chosen).createOrReplaceTempView(name.replace(".", "_"))
    yield session
    if running is None:
        base.stop()
