"""Run every text case of KQL on both engines."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest
from pyspark.sql import SparkSession

from tests.query.cases import NOW, Case, CaseTables, read_cases
from tests.query.engines import connect_duckdb, run_duckdb, run_spark
from tidelake.errors import QueryError
from tidelake.query.kql import lower

TOGETHER = 25  # cases in one Spark job: more make planning slower than starting another
CASES = list(read_cases())
ANSWERED = [case for case in CASES if not case.error]
REFUSED = [case for case in CASES if case.error]
LOCAL_ONLY = {  # Spark says that it cannot: a query inside of a lambda, a Python function in an outer join's condition
    "arguments: sets with the answer of a query",
    "forms: networks with other keys",
}
PORTABLE = [case for case in ANSWERED if case.name not in LOCAL_ONLY]


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with connect_duckdb() as connection:
        yield connection


def test_cases_are_many_and_each_has_a_name_of_its_own() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 200


@pytest.mark.parametrize("case", ANSWERED, ids=lambda case: case.name)
def test_case_gives_what_it_expects_on_duckdb(case: Case, connection: duckdb.DuckDBPyConnection) -> None:
    assert run_duckdb(connection, case) == (case.header, list(case.rows)), case.reason


def check_on_spark(spark: SparkSession, cases: list[Case]) -> None:
    wrong = {}
    for start in range(0, len(cases), TOGETHER):
        some = cases[start : start + TOGETHER]
        for case, (header, rows) in zip(some, run_spark(spark, some), strict=True):
            if (header, rows) != (case.header, list(case.rows)):
                wrong[case.name] = (case.query, rows, list(case.rows))
    assert wrong == {}


def test_every_sixth_case_gives_what_it_expects_on_spark(query_spark: SparkSession) -> None:
    check_on_spark(query_spark, PORTABLE[::6])


@pytest.mark.torture
def test_cases_give_what_they_expect_on_spark(query_spark: SparkSession) -> None:
    check_on_spark(query_spark, PORTABLE)


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.name)
def test_case_is_refused_with_its_message(case: Case) -> None:
    with pytest.raises(QueryError) as caught:
        lower(case.query, CaseTables(), now=NOW)
    missing = [part for part in case.error if part not in str(caught.value)]
    assert not missing, f"{caught.value}"
    assert "^" in str(caught.value)
    assert "line" in caught.value.facts
    assert "column" in caught.value.facts
