"""Evaluate quantiles and fractions of classic histograms: series that differ in their label ``le`` alone.

The buckets of all histograms are laid out as (histogram, bucket, step), and every step of the algorithm is an operation
on that, a turn for each bucket at most. It does not know native histograms.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tidelake.query.promql.labels import NAME, Labels, distinct
from tidelake.query.promql.vectors import Bools, Floats, Ints, Vector, empty

BOUND = "le"
TOLERANCE = 1e-12  # by which counts may differ and are the same


@dataclass(frozen=True, slots=True)
class _Buckets:
    """Histograms by step: ``bounds`` and ``counts`` are (histogram, bucket, step), with what is held in front."""

    labels: Labels
    bounds: Floats
    counts: Floats
    sizes: Ints  # how many buckets each (histogram, step) has

    def last(self, values: Floats, before: int = 1) -> Floats:
        """Return what the last bucket of each (histogram, step) has, or one before it."""
        places = np.maximum(self.sizes - before, 0)[:, None, :]
        return np.take_along_axis(values, places, axis=1)[:, 0, :]


def quantiles(vector: Vector, wanted: Floats) -> Vector:
    """Return a quantile of each histogram, between the bounds of a bucket by how many are in it."""
    buckets = _buckets(vector)
    if buckets is None:
        return empty(vector.labels.words, vector.values.shape[1])
    counts = _monotonic(buckets)
    observed = buckets.last(counts)
    rank = wanted[None, :] * observed
    places = np.arange(counts.shape[1])[None, :, None]
    short = (counts < rank[:, None, :]) & (places < buckets.sizes[:, None, :] - 1)
    at = np.minimum(short.sum(axis=1), np.maximum(buckets.sizes - 1, 0))
    end, count = _at(buckets.bounds, at), _at(counts, at)
    before = np.maximum(at - 1, 0)
    start = np.where(at > 0, _at(buckets.bounds, before), 0.0)
    below = np.where(at > 0, _at(counts, before), 0.0)
    found = start + (end - start) * ((rank - below) / (count - below))
    found = np.where((at == 0) & (end <= 0), end, found)
    found = np.where(at == buckets.sizes - 1, buckets.last(buckets.bounds, 2), found)
    usable = np.isposinf(buckets.last(buckets.bounds)) & (buckets.sizes >= 2) & (observed != 0)
    found = np.where(usable & ~np.isnan(observed), found, np.nan)
    found = np.where(wanted[None, :] < 0, -np.inf, np.where(wanted[None, :] > 1, np.inf, found))
    found = np.where(np.isnan(wanted)[None, :], np.nan, found)
    return Vector(buckets.labels, found, buckets.sizes > 0)


def fractions(vector: Vector, lower: Floats, upper: Floats) -> Vector:
    """Return the share of each histogram's observations that lies between two bounds."""
    buckets = _buckets(vector)
    if buckets is None:
        return empty(vector.labels.words, vector.values.shape[1])
    counts = buckets.counts
    total = buckets.last(counts)
    share = (_rank(buckets, counts, upper) - _rank(buckets, counts, lower)) / total
    share = np.where((lower >= upper)[None, :], 0.0, share)
    usable = np.isposinf(buckets.last(buckets.bounds)) & (total != 0) & ~np.isnan(total)
    share = np.where(usable & ~(np.isnan(lower) | np.isnan(upper))[None, :], share, np.nan)
    return Vector(buckets.labels, share, buckets.sizes > 0)


def _rank(buckets: _Buckets, counts: Floats, bound: Floats) -> Floats:
    """Return how many observations are below a bound."""
    held = np.arange(counts.shape[1])[None, :, None] < buckets.sizes[:, None, :]
    at = np.minimum(((buckets.bounds < bound[None, None, :]) & held).sum(axis=1), np.maximum(buckets.sizes - 1, 0))
    before = np.maximum(at - 1, 0)
    end, count = _at(buckets.bounds, at), _at(counts, at)
    zero_start = np.where(_at(buckets.bounds, np.zeros_like(at)) > 0, 0.0, -np.inf)
    start = np.where(at > 0, _at(buckets.bounds, before), zero_start)
    below = np.where(at > 0, _at(counts, before), 0.0)
    width = np.where(np.isfinite(end - start), end - start, np.inf)
    inside = below + (count - below) * np.clip((bound[None, :] - start) / width, 0.0, 1.0)
    inside = np.where(np.isneginf(start), count, inside)
    inside = np.where(np.isposinf(end), np.where(np.isposinf(bound)[None, :], count, below), inside)
    return np.where(np.isneginf(bound)[None, :], 0.0, inside)


def _buckets(vector: Vector) -> _Buckets | None:
    """Lay out the series that have a bound; a loop over the distinct bounds."""
    column, texts = vector.labels.column(BOUND), vector.labels.words.texts
    distinct_bounds, where = np.unique(column, return_inverse=True)
    numbers = np.array([_number(texts[code]) for code in distinct_bounds.tolist()], np.float64)
    series_bounds = numbers[where.reshape(-1)] if len(numbers) else np.empty(0)
    held = ~np.isnan(series_bounds) & vector.present.any(axis=1)
    if not held.any():
        return None
    vector, series_bounds = vector.take(held), series_bounds[held]
    labels = vector.labels.without([NAME, BOUND])
    first, group = distinct(labels.codes)
    order = np.lexsort((series_bounds, group))
    group, series_bounds = group[order], series_bounds[order]
    values, present = vector.values[order], vector.present[order]
    starts = np.searchsorted(group, np.arange(len(first)))
    place = np.arange(len(group)) - starts[group]
    shape = (len(first), int(place.max()) + 1, values.shape[1])
    bounds, counts, there = np.full(shape, np.inf), np.zeros(shape), np.zeros(shape, np.bool_)
    bounds[group, place] = series_bounds[:, None]
    counts[group, place], there[group, place] = np.where(present, values, 0.0), present
    there = _coalesce(bounds, counts, there)
    if not there.all():  # what is held moves to the front, in the order of the bounds
        front = np.argsort(~there, axis=1, kind="stable")
        bounds, counts = np.take_along_axis(bounds, front, axis=1), np.take_along_axis(counts, front, axis=1)
    return _Buckets(labels.take(first), bounds, counts, there.sum(axis=1))


def _coalesce(bounds: Floats, counts: Floats, there: Bools) -> Bools:
    """Add buckets that have the same bound, written in two ways, to the last of them; a turn for each bucket."""
    for at in range(1, bounds.shape[1]):
        same = (bounds[:, at] == bounds[:, at - 1]) & there[:, at - 1]
        counts[:, at] += np.where(same, counts[:, at - 1], 0.0)
        there[:, at] |= same
        there[:, at - 1] &= ~same
    return there


def _monotonic(buckets: _Buckets) -> Floats:
    """Return counts that never fall, and do not rise by what is rounding alone; a turn for each bucket."""
    counts = buckets.counts.copy()
    before = counts[:, 0]
    for at in range(1, counts.shape[1]):
        now = counts[:, at]
        close = np.abs(now - before) < TOLERANCE * np.minimum(np.abs(now) + np.abs(before), np.finfo(np.float64).max)
        kept = (now < before) | close
        counts[:, at] = np.where(kept, before, now)
        before = counts[:, at]
    return counts


def _at(values: Floats, places: Ints) -> Floats:
    return np.take_along_axis(values, places[:, None, :], axis=1)[:, 0, :]


def _number(text: str) -> float:
    try:
        return float(text.replace("Inf", "inf"))
    except ValueError:
        return float("nan")
