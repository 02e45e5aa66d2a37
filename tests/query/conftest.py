"""Share a Spark session and a small lake among the tests of queries."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest

import tidelake
from tests.query.world import build
from tidelake import Lake


@pytest.fixture(scope="session")
def query_spark() -> Iterator[Any]:
    """Give a small Spark session."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("tidelake-tests")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": "1g",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    yield spark
    spark.stop()


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """Give the lake that the cases ask; see ``world``."""
    with tidelake.connect(tmp_path_factory.mktemp("world")) as lake:
        build(lake)
        yield lake
