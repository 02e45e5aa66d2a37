"""Share a small lake among the tests of queries."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import tidelake
import tidelake.spark
from tests.query.cases import TABLES, arrow_table
from tests.query.world import build
from tidelake import Lake
from tidelake.query.functions import register_spark

# A small query costs Spark most of its time to compile and to adapt.
QUICK = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}


@pytest.fixture
def quick_spark(spark: SparkSession) -> Iterator[SparkSession]:
    """Give the session with what only pays for large queries turned off."""
    for name, value in QUICK.items():
        spark.conf.set(name, value)
    yield spark
    for name in QUICK:
        spark.conf.unset(name)


@pytest.fixture(scope="session")
def query_spark(spark: SparkSession) -> SparkSession:
    """Give a session of its own that knows the portable functions and the tables of the KQL cases."""
    session = tidelake.spark.register(spark.newSession())
    for name, value in {**QUICK, "spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "2"}.items():
        session.conf.set(name, value)
    register_spark(session)
    for name, (columns, _) in TABLES.items():
        frame = session.createDataFrame(arrow_table(name))
        chosen = [f"try_parse_json({c}) AS {c}" if kind == "dynamic" else c for c, kind in columns.items()]
        frame.selectExpr(*chosen).createOrReplaceTempView(name.replace(".", "_"))
    return session


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """Give the lake that the cases ask; see ``world``."""
    with tidelake.connect(tmp_path_factory.mktemp("world")) as lake:
        build(lake)
        yield lake
