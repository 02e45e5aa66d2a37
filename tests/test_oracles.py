"""Printed answers are compared as a person would."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tools.oracles.compare import same_rows, same_value


@pytest.mark.parametrize(
    ("printed", "ours"),
    [
        ("", None),
        ("(null)", None),
        ("", ""),
        ("True", True),
        ("0", False),
        ("1,234", 1234),
        ("0.33", 1 / 3),
        ("NaN", float("nan")),
        ("2017-08-01 00:00:00.0000000", datetime(2017, 8, 1, tzinfo=UTC)),
        ("2017-08-01T02:00:00+02:00", datetime(2017, 8, 1, tzinfo=UTC)),
        ("1.00:00:01", timedelta(days=1, seconds=1)),
        ("1d", "1.00:00:00"),
        ('{"a": [1, 2.0]}', {"a": [1, 2]}),
        ("['x',NULL]", ["x", None]),
        ("a \\| b", "a | b"),
    ],
)
def test_value_equals_how_it_may_be_printed(printed: str, ours: Any) -> None:
    assert same_value(printed, ours)


@pytest.mark.parametrize(
    ("printed", "ours"),
    [
        ("a", None),
        ("True", False),
        ("1235", 1234),
        ("0.34", 1 / 3),
        ("9007199254740993", 9007199254740992),
        ("2017-08-01", datetime(2017, 8, 2, tzinfo=UTC)),
        ("1d", "1.00:00:01"),
        ("[1,2]", [2, 1]),
        ("[1]", [True]),
        ("abc", "ab"),
    ],
)
def test_value_differs(printed: str, ours: Any) -> None:
    assert not same_value(printed, ours)


def test_rows_have_an_order_only_where_it_counts() -> None:
    assert same_rows([["1"], ["2"]], [[2], [1]])
    assert not same_rows([["1"], ["2"]], [[2], [1]], ordered=True)
    assert not same_rows([["1"], ["1"]], [[1], [2]])
    assert not same_rows([["1"]], [[1], [1]])


def test_printed_ellipsis_stands_for_any_rows() -> None:
    assert same_rows([["1"], ["..."]], [[1], [7], [8]])
    assert not same_rows([["1"], ["..."]], [[7], [8]])


def test_lists_that_are_sets_have_no_order() -> None:
    assert same_rows([["[1,2]"]], [[[2, 1]]], sets=True)
