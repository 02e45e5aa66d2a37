"""PromQL's compiled loops and their twins of whole columns: the same samples, windows, rates and texts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.query.test_promql_twin import grids, many_series, samples_of, windows_of
from tidelake.query.promql import answer, vectors, windows
from tidelake.query.promql.answer import PromAnswer
from tidelake.query.promql.labels import Labels, Words
from tidelake.query.promql.vectors import Grid

label_sets = st.lists(st.dictionaries(st.sampled_from("abc"), st.sampled_from(["x", "y", "é", "10", "9"])), max_size=8)


@pytest.fixture(params=[True, False], ids=["compiled", "whole columns"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    for module in (answer, vectors, windows):
        monkeypatch.setattr(module, "has_loops", lambda: request.param)
    return bool(request.param)


def test_rates_of_both_ways_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    @settings(max_examples=150, deadline=None)
    @given(many_series, grids, st.integers(1, 2_000), st.booleans(), st.booleans())
    def check(series: Any, grid: Grid, range_ms: int, is_counter: bool, is_rate: bool) -> None:
        found = []
        for compiled in (True, False):
            for module in (vectors, windows):
                monkeypatch.setattr(module, "has_loops", lambda compiled=compiled: compiled)
            several = windows_of(series, grid, range_ms)
            with np.errstate(all="ignore"):
                values, present = windows.extrapolated(several, is_counter=is_counter, is_rate=is_rate)
            found.append((several.low.tolist(), several.high.tolist(), present.tolist(), np.where(present, values, 0)))
        assert found[0][:3] == found[1][:3]
        np.testing.assert_allclose(found[0][3], found[1][3], rtol=1e-12, atol=1e-9)

    check()


@pytest.mark.parametrize("order", ["in order", "out of order", "twice"])
def test_samples_are_laid_out_by_series_and_time(way: bool, order: str) -> None:
    words = Words()
    labels = Labels.of(words, [{"n": "b"}, {"n": "a"}])
    series, times = np.array([0, 1, 0, 1, 0]), np.array([1, 1, 2, 3, 4])
    values = np.array([10.0, 20.0, 11.0, 21.0, 12.0])
    if order == "out of order":
        turned = np.array([4, 3, 0, 2, 1])
        series, times, values = series[turned], times[turned], values[turned]
    if order == "twice":  # the last of one time stays
        series, times, values = np.append(series, 0), np.append(times, 4), np.append(values, 99.0)
    halves = [slice(0, 2), slice(2, None)]  # kinds of the one batch are numbered otherwise than those of the other
    kinds = [np.where(series == 0, 1, 2).astype(np.int32)[halves[0]], series.astype(np.int32)[halves[1]]]
    numbers = [np.array([-1, 0, 1]), np.array([0, 1])]
    pieces = [
        vectors.Piece(number, kind, times[half], values[half])
        for number, kind, half in zip(numbers, kinds, halves, strict=True)
    ]
    read = vectors.laid_out(words, [vectors.Part(labels, pieces)])
    assert read.samples.labels.sets() == [{"n": "a"}, {"n": "b"}]
    assert read.samples.first.tolist() == [0, 2, 5]
    assert read.samples.times_ms.tolist() == [1, 3, 1, 2, 4]
    assert read.samples.values.tolist() == [20.0, 21.0, 10.0, 11.0, 99.0 if order == "twice" else 12.0]


@settings(max_examples=200, deadline=None)
@given(label_sets)
def test_label_sets_are_sorted_as_their_pairs_are(sets: list[dict[str, str]]) -> None:
    labels = Labels.of(Words(), sets)
    wanted = sorted(range(len(sets)), key=lambda at: sorted(sets[at].items()))
    assert labels.sort_order().tolist() == wanted


def test_points_are_written_one_by_one_as_they_are(way: bool) -> None:
    values = np.array([0.0, -0.0, 1.5, np.nan, np.inf, -np.inf, 1e300, 0.1, 0.1, 3.0])
    times = np.array([0, 1500, 60_000, 60_001, 0, 1500, 60_000, 60_001, 0, 1])
    found = PromAnswer("matrix", ({"a": 'q"'}, {}, {"b": "c"}), np.array([0, 4, 4, 10]), times, values, None, ())
    assert found.to_json().decode() == (
        '{"resultType":"matrix","result":[{"metric":{"a":"q\\""},"values":'
        '[[0,"0"],[1.500,"-0"],[60,"1.5"],[60.001,"NaN"]]},{"metric":{},"values":[]},{"metric":{"b":"c"},"values":'
        '[[0,"+Inf"],[1.500,"-Inf"],[60,"1e+300"],[60.001,"0.1"],[0,"0.1"],[0.001,"3"]]}]}'
    )
    nothing = PromAnswer("matrix", (), np.array([0]), np.empty(0, np.int64), np.empty(0), None, ())
    assert nothing.to_json() == b'{"resultType":"matrix","result":[]}'
    instant = PromAnswer("vector", ({}, {"a": "b"}), np.array([0, 1, 2]), times[:2], values[:2], None, ())
    assert instant.to_prometheus()["result"] == [
        {"metric": {}, "value": [0, "0"]}, {"metric": {"a": "b"}, "value": [1.5, "-0"]}
    ]  # fmt: skip
    assert samples_of([[]]).values.dtype == np.float64
