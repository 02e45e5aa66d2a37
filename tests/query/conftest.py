"""Share a small lake among the tests of queries."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import tidelake
from tests.query.cases import TABLES, arrow_table
from tests.query.world import build
from tidelake import Lake
from tidelake.query.engines.spark import SETTINGS
from tidelake.query.functions.registry import register_spark

# A small query costs Spark most of its time to compile and to adapt.
QUICK = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
}


@pytest.fixture
def quick_spark(spark: SparkSession) -> Iterator[SparkSession]:
    """Yield the session with what only pays for large queries turned off."""
    for name, value in QUICK.items():
        spark.conf.set(name, value)
    yield spark
    for name in QUICK:
        spark.conf.unset(name)


@pytest.fixture
def query_spark(quick_spark: SparkSession) -> Iterator[SparkSession]:
    """Yield the session with the portable functions and the tables of the KQL cases."""
    register_spark(quick_spark)
    for name, value in SETTINGS.items():  # as the engine itself runs
        quick_spark.conf.set(name, value)
    views = []
    for name, (columns, _) in TABLES.items():
        frame = quick_spark.createDataFrame(arrow_table(name))
        chosen = [f"try_parse_json({c}) AS {c}" if kind == "dynamic" else c for c, kind in columns.items()]
        views.append(name.replace(".", "_"))
        frame.selectExpr(*chosen).createOrReplaceTempView(views[-1])
    yield quick_spark
    for view in views:
        quick_spark.catalog.dropTempView(view)
    for name in SETTINGS.keys() - {"spark.sql.session.timeZone"}:
        quick_spark.conf.unset(name)


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """Yield the lake that the cases ask; see ``world``."""
    with tidelake.connect(tmp_path_factory.mktemp("world")) as lake:
        build(lake)
        yield lake
