"""Evaluate PromQL's functions sample by sample, as its documentation tells them: slow, plain, and not with arrays.

A series is a list of (milliseconds, value). It does not read text: a test says which function it asks.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, pvariance

Points = Sequence[tuple[int, float]]
Labels = tuple[tuple[str, str], ...]


def window(points: Points, end_ms: int, range_ms: int) -> list[tuple[int, float]]:
    """Return the points in ``(end - range, end]``."""
    return [(at, value) for at, value in points if end_ms - range_ms < at <= end_ms]


def over_time(name: str, points: Points, end_ms: int, range_ms: int) -> float | None:
    """Return what a function of ranges gives for a series at one time, or None where it gives nothing."""
    held = window(points, end_ms, range_ms)
    values = [value for _, value in held]
    if name in ("rate", "increase", "delta"):
        return _extrapolated(held, end_ms, range_ms, is_counter=name != "delta", is_rate=name == "rate")
    if name in ("irate", "idelta"):
        if len(held) < 2:
            return None
        (before_ms, before), (last_ms, last) = held[-2:]
        if name == "idelta":
            return last - before
        return (last if last < before else last - before) / ((last_ms - before_ms) / 1000)
    if name == "deriv":
        return _slope(held) if len(held) >= 2 else None
    return _SIMPLE[name](held, values) if held else None


def instant(points: Points, at_ms: int, lookback_ms: int) -> float | None:
    """Return the newest value that is not too old."""
    held = window(points, at_ms, lookback_ms)
    return held[-1][1] if held else None


def grouped(values: Mapping[Labels, float], by: Sequence[str]) -> dict[Labels, list[float]]:
    """Return the values of each group."""
    found: dict[Labels, list[float]] = {}
    for labels, value in values.items():
        found.setdefault(tuple(pair for pair in labels if pair[0] in by), []).append(value)
    return found


def quantile(wanted: float, values: Sequence[float]) -> float:
    """Return a quantile, between two values by weight."""
    ordered = sorted(values)
    rank = wanted * (len(ordered) - 1)
    lower = math.floor(rank)
    upper = min(lower + 1, len(ordered) - 1)
    return ordered[lower] * (1 - (rank - lower)) + ordered[upper] * (rank - lower)


def _extrapolated(held: Points, end_ms: int, range_ms: int, *, is_counter: bool, is_rate: bool) -> float | None:
    if len(held) < 2:
        return None
    (first_ms, first), (last_ms, last) = held[0], held[-1]
    rise = last - first
    if is_counter:
        rise += sum(before for (_, before), (_, value) in itertools.pairwise(held) if value < before)
    to_start, to_end = (first_ms - (end_ms - range_ms)) / 1000, (end_ms - last_ms) / 1000
    sampled = (last_ms - first_ms) / 1000
    between = sampled / (len(held) - 1)
    if to_start >= between * 1.1:
        to_start = between / 2
    if is_counter and rise > 0 and first >= 0:
        to_start = min(to_start, sampled * (first / rise))
    if to_end >= between * 1.1:
        to_end = between / 2
    factor = (sampled + to_start + to_end) / sampled
    return rise * factor / (range_ms / 1000 if is_rate else 1)


def _slope(held: Points) -> float:
    seconds = [(at - held[0][0]) / 1000 for at, _ in held]
    values = [value for _, value in held]
    mean_x, mean_y = fmean(seconds), fmean(values)
    above = math.fsum((x - mean_x) * (y - mean_y) for x, y in zip(seconds, values, strict=True))
    return above / math.fsum((x - mean_x) ** 2 for x in seconds)


_SIMPLE: dict[str, Callable[[Points, list[float]], float]] = {
    "sum_over_time": lambda _, values: math.fsum(values),
    "avg_over_time": lambda _, values: fmean(values),
    "min_over_time": lambda _, values: min(values),
    "max_over_time": lambda _, values: max(values),
    "count_over_time": lambda _, values: float(len(values)),
    "present_over_time": lambda *_: 1.0,
    "first_over_time": lambda _, values: values[0],
    "last_over_time": lambda _, values: values[-1],
    "stdvar_over_time": lambda _, values: pvariance(values),
    "stddev_over_time": lambda _, values: math.sqrt(pvariance(values)),
    "mad_over_time": lambda _, values: quantile(0.5, [abs(each - quantile(0.5, values)) for each in values]),
    "changes": lambda _, values: float(sum(a != b for a, b in itertools.pairwise(values))),
    "resets": lambda _, values: float(sum(b < a for a, b in itertools.pairwise(values))),
    "ts_of_first_over_time": lambda held, _: held[0][0] / 1000,
    "ts_of_last_over_time": lambda held, _: held[-1][0] / 1000,
    "ts_of_min_over_time": lambda held, values: max(at for at, value in held if value == min(values)) / 1000,
    "ts_of_max_over_time": lambda held, values: max(at for at, value in held if value == max(values)) / 1000,
}
