"""Compare PromQL's arrays with a twin that goes from sample to sample, on random series, windows and labels."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import promql_twin as twin
from tidelake.query.promql import windows as ours
from tidelake.query.promql.aggregating import Grouping, aggregate
from tidelake.query.promql.labels import Labels, Words
from tidelake.query.promql.matching import Matching, sets, vectors
from tidelake.query.promql.printing import value_text
from tidelake.query.promql.vectors import Grid, Samples, Vector, Windows

Series = list[list[tuple[int, float]]]
Rows = dict[twin.Labels, float]

numbers = st.one_of(st.integers(-20, 20).map(float), st.floats(-1e6, 1e6, allow_subnormal=False))
points = st.lists(st.tuples(st.integers(-500, 5_000), numbers), max_size=25, unique_by=lambda pair: pair[0]).map(sorted)
many_series = st.lists(points, min_size=1, max_size=4)
grids = st.builds(Grid, st.integers(-300, 3_000), st.integers(1, 700), st.integers(1, 9))
label_sets = st.dictionaries(st.sampled_from("ab"), st.sampled_from("xyz"), max_size=2).map(
    lambda each: tuple(sorted(each.items()))
)
rows = st.dictionaries(label_sets, st.integers(-9, 9).map(float), max_size=7)


def samples_of(series: Series) -> Samples:
    flat = [pair for each in series for pair in each]
    first = np.cumsum([0, *map(len, series)])
    labels = Labels.of(Words(), [{"n": str(at)} for at in range(len(series))])
    times, values = np.array([at for at, _ in flat], np.int64), np.array([value for _, value in flat], np.float64)
    return Samples(labels, times, values, first)


def windows_of(series: Series, grid: Grid, range_ms: int) -> Windows:
    samples = samples_of(series)
    low = samples.until(Grid(grid.start_ms - range_ms, grid.step_ms, grid.steps))
    return Windows(samples, low, samples.until(grid), grid.times_ms, range_ms)


def cells(outcome: tuple[Any, Any]) -> list[list[float | None]]:
    values, present = outcome
    return [
        [value if there else None for value, there in zip(each, held, strict=True)]
        for each, held in zip(values.tolist(), present.tolist(), strict=True)
    ]


def assert_close(found: list[list[float | None]], wanted: list[list[float | None]], size: float) -> None:
    for mine, theirs in zip(found, wanted, strict=True):
        for a, b in zip(mine, theirs, strict=True):
            assert (a is None) == (b is None), (found, wanted)
            assert a is None or b is None or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9 * size), (found, wanted)


@pytest.mark.parametrize("name", sorted(ours.FUNCTIONS))
@settings(max_examples=40)
@given(series=many_series, grid=grids, range_ms=st.integers(1, 4_000))
def test_function_of_ranges_is_what_its_twin_is(name: str, series: Series, grid: Grid, range_ms: int) -> None:
    with np.errstate(all="ignore"):
        found = cells(ours.FUNCTIONS[name](windows_of(series, grid, range_ms)))
    wanted = [[twin.over_time(name, each, end, range_ms) for end in grid.times_ms.tolist()] for each in series]
    largest = max((abs(value) for each in series for _, value in each), default=1.0)
    assert_close(found, wanted, max(largest, 1.0) ** (2 if name == "stdvar_over_time" else 1))


@given(series=many_series, grid=grids, range_ms=st.integers(1, 4_000), wanted=st.floats(0, 1))
def test_quantile_over_time_is_what_its_twin_is(series: Series, grid: Grid, range_ms: int, wanted: float) -> None:
    found = cells(ours.quantile(windows_of(series, grid, range_ms), np.full(grid.steps, wanted)))
    held = [[twin.window(each, end, range_ms) for end in grid.times_ms.tolist()] for each in series]
    expected = [[twin.quantile(wanted, [v for _, v in each]) if each else None for each in line] for line in held]
    assert_close(found, expected, 1e6)


@given(series=many_series, grid=grids)
def test_sums_of_gathered_windows_do_not_depend_on_how_many_are_gathered(series: Series, grid: Grid) -> None:
    asked = windows_of(series, grid, 2_000)
    at_once = cells(ours.variance(asked))
    before, ours.GATHERED = ours.GATHERED, 3
    try:
        assert cells(ours.variance(asked)) == at_once
    finally:
        ours.GATHERED = before


def vector_of(words: Words, held: Rows) -> Vector:
    values = np.array(list(held.values()), np.float64).reshape(len(held), 1)
    return Vector(Labels.of(words, [dict(each) for each in held]), values, np.ones(values.shape, np.bool_))


def rows_of(vector: Vector) -> Rows:
    held = vector.compact()
    return {
        tuple(sorted(each.items())): value
        for each, value in zip(held.labels.sets(), held.values[:, 0].tolist(), strict=True)
    }


@given(held=rows, by=st.sets(st.sampled_from("ab")), kept=st.integers(0, 3))
def test_aggregations_are_what_their_twins_are(held: Rows, by: set[str], kept: int) -> None:
    groups = twin.grouped(held, sorted(by))
    vector, grouping = vector_of(Words(), held), Grouping(tuple(by))
    twins: dict[str, Callable[[list[float]], float]] = {
        "sum": math.fsum, "min": min, "max": max, "count": len, "avg": fmean,
    }  # fmt: skip
    for name, of in twins.items():
        found = rows_of(aggregate(name, vector, grouping, None))
        assert found == pytest.approx({labels: of(values) for labels, values in groups.items()})
    half = rows_of(aggregate("quantile", vector, grouping, np.array([0.5])))
    assert half == pytest.approx({labels: twin.quantile(0.5, values) for labels, values in groups.items()})
    top = rows_of(aggregate("topk", vector, grouping, np.array([float(kept)])))
    assert all(held[labels] == value for labels, value in top.items())
    largest = {labels: sorted(values)[-kept:] if kept else [] for labels, values in groups.items()}
    found_top = twin.grouped(top, sorted(by))
    assert {k: sorted(v) for k, v in found_top.items()} == {k: v for k, v in largest.items() if v}


@given(left=rows, right=rows, on=st.sets(st.sampled_from("ab")))
def test_sets_are_what_their_twins_are(left: Rows, right: Rows, on: set[str]) -> None:
    def key(labels: twin.Labels) -> twin.Labels:
        return tuple(pair for pair in labels if pair[0] in on)

    words = Words()
    one, two, how = vector_of(words, left), vector_of(words, right), Matching(tuple(on), is_on=True)
    there, mine = {key(each) for each in right}, {key(each) for each in left}
    assert rows_of(sets("and", one, two, how)) == {k: v for k, v in left.items() if key(k) in there}
    assert rows_of(sets("unless", one, two, how)) == {k: v for k, v in left.items() if key(k) not in there}
    rest = {k: v for k, v in right.items() if key(k) not in mine}
    assert rows_of(sets("or", one, two, how)) == left | rest


@given(left=rows, right=st.dictionaries(st.sampled_from("xyz"), st.integers(1, 9).map(float)))
def test_many_to_one_is_what_its_twin_is(left: Rows, right: dict[str, float]) -> None:
    words = Words()
    one = vector_of(words, {(("a", value), ("extra", value * 2)): number for value, number in right.items()})
    how = Matching(("a",), is_on=True, many="left", include=("extra",))
    wanted = {
        tuple(sorted({**dict(labels), "extra": dict(labels)["a"] * 2}.items())): value * right[dict(labels)["a"]]
        for labels, value in left.items()
        if dict(labels).get("a") in right
    }
    assert rows_of(vectors("*", vector_of(words, left), one, how)) == wanted


@given(value=st.one_of(st.floats(), st.integers(-(2**60), 2**60).map(float), st.floats(1e-8, 1e12)))
def test_numbers_are_the_shortest_text_that_reads_back(value: float) -> None:
    found = value_text(value)
    if math.isnan(value) or math.isinf(value):
        assert found == ("NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf")
        return
    exact = Decimal(repr(value))
    if value and not 1e-6 <= abs(value) < 1e21:
        mantissa, _, power = f"{exact.normalize():e}".partition("e")
        assert found == f"{mantissa}e{int(power):+03d}"
    else:
        plain = f"{exact:f}"
        assert found == (plain.rstrip("0").rstrip(".") if "." in plain else plain)
