"""Evaluate functions of ranges: what the samples in a window of time come to, for every (series, step) at once.

Most are reductions of ``[low, high)`` over the sorted samples. Those that need the samples of a window side by side
gather them, ``GATHERED`` at a time, so that memory does not grow with how much windows overlap. It does not know
labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from tidelake.errors import QueryError
from tidelake.query.promql.loops import extrapolate
from tidelake.query.promql.vectors import Bools, Floats, Ints, Windows
from tidelake.runtime.readiness import has_loops

GATHERED = 1 << 21  # samples that are laid side by side at a time: 16 MB a column

Outcome: TypeAlias = tuple[Floats, Bools]
Function: TypeAlias = Callable[..., Outcome]


def extrapolated(windows: Windows, *, is_counter: bool, is_rate: bool) -> Outcome:
    """Return how much a series rose in each window, extrapolated to its edges as Prometheus does."""
    samples, counts = windows.samples, windows.counts
    if has_loops():
        rose, found = np.empty(counts.shape), np.empty(counts.shape, np.bool_)
        low, high = np.ascontiguousarray(windows.low), np.ascontiguousarray(windows.high)
        extrapolate(
            samples.times_ms, samples.values, low, high, windows.ends_ms, windows.range_ms, is_counter, is_rate,
            rose, found,
        )  # fmt: skip
        return rose, found
    present = counts >= 2
    low, last = _safe(windows.low, present), _safe(windows.high - 1, present)
    times, values = _padded(samples.times_ms), _padded(samples.values)
    first_value = values[low]
    rise = values[last] - first_value
    if is_counter:
        rise = rise + _lost_at_resets(windows, present)
    sampled = (times[last] - times[low]) / 1000.0
    to_start = (times[low] - (windows.ends_ms - windows.range_ms)[None, :]) / 1000.0
    to_end = (windows.ends_ms[None, :] - times[last]) / 1000.0
    between = sampled / np.where(present, counts - 1, 1)
    threshold = between * 1.1
    to_start = np.where(to_start >= threshold, between / 2, to_start)
    if is_counter:  # which cannot have been below zero
        rises = (rise > 0) & (first_value >= 0)
        to_zero = np.where(rises, sampled * (first_value / np.where(rises, rise, 1.0)), np.inf)
        to_start = np.minimum(to_start, to_zero)
    to_end = np.where(to_end >= threshold, between / 2, to_end)
    factor = np.where(sampled != 0, (sampled + to_start + to_end) / np.where(sampled != 0, sampled, 1.0), 1.0)
    if is_rate:
        factor = factor / (windows.range_ms / 1000.0)
    return rise * factor, present


def instant_change(windows: Windows, *, is_rate: bool) -> Outcome:
    """Return how the last two samples of each window differ, a second if ``is_rate``."""
    samples = windows.samples
    present = windows.counts >= 2
    last = _safe(windows.high - 1, present)
    times, values = _padded(samples.times_ms), _padded(samples.values)
    before = np.where(present, last - 1, last)
    change, elapsed = values[last] - values[before], (times[last] - times[before]) / 1000.0
    if is_rate:
        change = np.where(values[last] < values[before], values[last], change)
        change = change / np.where(elapsed > 0, elapsed, 1.0)
    return change, present


def count(windows: Windows) -> Outcome:
    return windows.counts.astype(np.float64), windows.counts > 0


def presence(windows: Windows) -> Outcome:
    return np.ones(windows.counts.shape), windows.counts > 0


def first(windows: Windows) -> Outcome:
    return _at(windows, windows.samples.values, windows.low)


def last(windows: Windows) -> Outcome:
    return _at(windows, windows.samples.values, windows.high - 1)


def time_of_first(windows: Windows) -> Outcome:
    return _at(windows, windows.samples.times_ms / 1000.0, windows.low)


def time_of_last(windows: Windows) -> Outcome:
    return _at(windows, windows.samples.times_ms / 1000.0, windows.high - 1)


def total(windows: Windows) -> Outcome:
    """Return sums, compensated where what is added differs much in size."""
    return _exact_sums(windows, windows.samples.values)


def mean(windows: Windows) -> Outcome:
    """Return means; of what overflows as a sum, the mean of the halves."""
    sums, present = total(windows)
    counts = np.maximum(windows.counts, 1)
    means = sums / counts
    over = np.isinf(means) & present
    if over.any():
        biggest = _reduced(windows, np.maximum, np.abs(windows.samples.values))
        scaled = _exact_sums(windows, windows.samples.values / 2.0**64)[0] / counts * 2.0**64
        means = np.where(over & np.isfinite(biggest), scaled, means)
    return means, present


def smallest(windows: Windows) -> Outcome:
    return _reduced(windows, np.fmin, windows.samples.values), windows.counts > 0


def largest(windows: Windows) -> Outcome:
    return _reduced(windows, np.fmax, windows.samples.values), windows.counts > 0


def time_of_smallest(windows: Windows) -> Outcome:
    return _time_of(windows, smallest(windows)[0])


def time_of_largest(windows: Windows) -> Outcome:
    return _time_of(windows, largest(windows)[0])


def variance(windows: Windows) -> Outcome:
    """Return the mean square of how far samples are from their mean."""
    means = mean(windows)[0].reshape(-1)
    found = np.zeros(means.size)
    for part in _gathered(windows):
        away = part.values - means[part.windows][part.owner]
        found[part.windows] = np.add.reduceat(away * away, part.starts) / part.lengths
    return found.reshape(windows.counts.shape), windows.counts > 0


def deviation(windows: Windows) -> Outcome:
    found, present = variance(windows)
    return np.sqrt(found), present


def quantile(windows: Windows, wanted: Floats) -> Outcome:
    """Return a quantile of each window; the wanted one may differ by step."""
    steps = windows.counts.shape[1]
    found = np.full(windows.counts.size, np.nan)
    for part in _gathered(windows):
        ordered = part.ordered(part.values)
        found[part.windows] = interpolated(ordered, part.starts, part.lengths, wanted[part.windows % steps])
    return found.reshape(windows.counts.shape), windows.counts > 0


def absolute_deviation(windows: Windows) -> Outcome:
    """Return the median of how far the samples of a window are from their median."""
    found = np.full(windows.counts.size, np.nan)
    for part in _gathered(windows):
        half = np.full(len(part.windows), 0.5)
        ordered = part.ordered(part.values)
        away = np.abs(part.values - interpolated(ordered, part.starts, part.lengths, half)[part.owner])
        found[part.windows] = interpolated(part.ordered(away), part.starts, part.lengths, half)
    return found.reshape(windows.counts.shape), windows.counts > 0


def interpolated(ordered: Floats, starts: Ints, lengths: Ints, wanted: Floats) -> Floats:
    """Return a quantile of each segment of ordered values, between two of them by weight."""
    rank = np.clip(wanted, 0.0, 1.0) * (lengths - 1)
    rank = np.where(np.isnan(rank), 0.0, rank)
    lower = np.maximum(np.floor(rank), 0.0)
    upper = np.minimum(lower + 1, lengths - 1)
    weight = rank - np.floor(rank)
    with np.errstate(invalid="ignore"):
        found = ordered[starts + lower.astype(np.int64)] * (1 - weight)
        found = found + ordered[starts + upper.astype(np.int64)] * weight
    found = np.where(wanted < 0, -np.inf, np.where(wanted > 1, np.inf, found))
    return np.where(np.isnan(wanted), np.nan, found)


def changes(windows: Windows) -> Outcome:
    """Return how often a value differs from the one before; NaN does not differ from NaN."""
    values = windows.samples.values
    differs = (values[1:] != values[:-1]) & ~(np.isnan(values[1:]) & np.isnan(values[:-1]))
    return _counted(windows, differs)


def resets(windows: Windows) -> Outcome:
    """Return how often a value is less than the one before."""
    values = windows.samples.values
    return _counted(windows, values[1:] < values[:-1])


def slope(windows: Windows) -> Outcome:
    """Return the slope of a line through the samples of each window, a second."""
    origin = _at(windows, windows.samples.times_ms, windows.low)[0]
    return _regression(windows, origin)[0], windows.counts >= 2


def prediction(windows: Windows, at_ms: Ints, ahead: Floats) -> Outcome:
    """Return where a line through the samples of each window is, some seconds after each step."""
    origin = np.broadcast_to(at_ms[None, :].astype(np.float64), windows.counts.shape)
    slopes, intercepts = _regression(windows, origin)
    return slopes * ahead[None, :] + intercepts, windows.counts >= 2


def smoothed(windows: Windows, smoothing: Floats, trend: Floats) -> Outcome:
    """Return double exponential smoothing; a turn for each place in a window, all windows at once."""
    for name, given in (("smoothing", smoothing), ("trend", trend)):
        wrong = (given <= 0) | (given >= 1)
        if wrong.any():
            letter = name[0]
            raise QueryError(
                f"invalid {name} factor. Expected: 0 < {letter}f < 1, got: {given[wrong][0]:f}", kind="bad_factor"
            )
    counts = windows.counts
    present = counts >= 2
    values = _padded(windows.samples.values)
    low = _safe(windows.low, present)
    s1 = values[low]
    s0 = np.zeros_like(s1)
    b = values[np.where(present, low + 1, low)] - s1
    for at in range(1, int(counts.max(initial=0))):
        inside = counts > at
        x = smoothing[None, :] * values[np.where(inside, low + at, low)]
        b_next = b if at == 1 else trend[None, :] * (s1 - s0) + (1 - trend[None, :]) * b
        y = (1 - smoothing[None, :]) * (s1 + b_next)
        b = np.where(inside, b_next, b)
        s0, s1 = np.where(inside, s1, s0), np.where(inside, x + y, s1)
    return s1, present


@dataclass(frozen=True, slots=True)
class _Part:
    """Samples of some windows side by side: those of window ``windows[i]`` are ``lengths[i]`` from ``starts[i]``."""

    windows: Ints
    starts: Ints
    lengths: Ints
    owner: Ints  # the place in ``windows`` of each sample's window
    values: Floats
    times_ms: Ints

    def ordered(self, values: Floats) -> Floats:
        """Return values in order within each window, NaN first."""
        longest = int(self.lengths.max(initial=0))
        if np.isnan(values).any() or longest * len(self.lengths) > 4 * len(values):
            return values[np.lexsort((values, ~np.isnan(values), self.owner))]
        rows = np.full((len(self.lengths), longest), np.inf)  # as a rectangle, many short windows sort faster
        inside = np.arange(longest)[None, :] < self.lengths[:, None]
        rows[inside] = values
        rows.sort(axis=1)
        return rows[inside]


def _gathered(windows: Windows) -> Iterator[_Part]:
    """Yield the samples of all windows that have any, some windows at a time."""
    lengths, low = windows.counts.reshape(-1), windows.low.reshape(-1)
    held = np.flatnonzero(lengths > 0)
    ends = np.cumsum(lengths[held])
    at = 0
    while at < len(held):
        begun = ends[at] - lengths[held[at]]
        until = max(int(np.searchsorted(ends, begun + GATHERED, side="right")), at + 1)
        chosen = held[at:until]
        sizes = lengths[chosen]
        starts = ends[at:until] - sizes - begun
        owner = np.repeat(np.arange(len(chosen)), sizes)
        places = np.arange(int(sizes.sum())) - starts[owner] + low[chosen][owner]
        yield _Part(chosen, starts, sizes, owner, windows.samples.values[places], windows.samples.times_ms[places])
        at = until


def _regression(windows: Windows, origin_ms: Floats) -> tuple[Floats, Floats]:
    """Return slopes and intercepts of least-squares lines, with time in seconds from an origin of each window."""
    shape = windows.counts.shape
    slopes, intercepts = np.zeros(windows.counts.size), np.zeros(windows.counts.size)
    origins = origin_ms.reshape(-1)
    for part in _gathered(windows):
        n = part.lengths
        x = (part.times_ms - origins[part.windows][part.owner]) / 1000.0
        y = part.values
        mean_x, mean_y = np.add.reduceat(x, part.starts) / n, np.add.reduceat(y, part.starts) / n
        away = x - mean_x[part.owner]
        spread = np.add.reduceat(away * away, part.starts)
        together = np.add.reduceat(away * (y - mean_y[part.owner]), part.starts)
        steep = together / np.where(spread > 0, spread, 1.0)
        begin = mean_y - steep * mean_x
        first_y = y[part.starts]
        same = np.logical_and.reduceat(y == first_y[part.owner], part.starts)
        flat = np.where(np.isinf(first_y), np.nan, 0.0)
        slopes[part.windows] = np.where(same, flat, steep)
        intercepts[part.windows] = np.where(same, first_y + flat, begin)
    return slopes.reshape(shape), intercepts.reshape(shape)


def _lost_at_resets(windows: Windows, present: Bools) -> Any:
    """Return what counters had reached before each reset, summed over each window."""
    values = windows.samples.values
    lost = np.zeros(len(values))
    falls = values[1:] < values[:-1]
    if not falls.any():
        return 0.0
    lost[1:][falls] = values[:-1][falls]  # what the first sample of a window fell from is not in the window
    inner = Windows(windows.samples, np.minimum(windows.low + 1, windows.high), windows.high, windows.ends_ms, 0)
    return np.where(present, _reduced(inner, np.add, lost), 0.0)


def _counted(windows: Windows, happens: Bools) -> Outcome:
    """Return how often something happens between two samples of a window."""
    before = np.concatenate([[0, 0], np.cumsum(happens)])  # [i]: among the pairs that end before sample i
    found = before[windows.high] - before[np.minimum(windows.low + 1, len(before) - 1)]
    return np.maximum(found, 0).astype(np.float64), windows.counts > 0


def _time_of(windows: Windows, wanted: Floats) -> Outcome:
    """Return the time of the last sample in each window that has the wanted value."""
    flat, found = wanted.reshape(-1), np.zeros(wanted.size)
    for part in _gathered(windows):
        mine = flat[part.windows][part.owner]
        hit = (part.values == mine) | (np.isnan(part.values) & np.isnan(mine))
        found[part.windows] = np.maximum.reduceat(np.where(hit, part.times_ms, -(1 << 62)), part.starts) / 1000.0
    return found.reshape(wanted.shape), windows.counts > 0


def _exact_sums(windows: Windows, values: Floats) -> Outcome:
    """Return the sum of each window; where rounding may have lost something, summed again with what was lost."""
    present = windows.counts > 0
    sums = _reduced(windows, np.add, values)
    sizes = _reduced(windows, np.add, np.abs(values))
    with np.errstate(invalid="ignore"):
        doubtful = np.isfinite(sizes) & (np.abs(sums) < sizes * 1e-6) & (windows.counts > 1)
    if not doubtful.any():
        return sums, present
    places = np.nonzero(doubtful)
    low, counts = windows.low[places], windows.counts[places]
    partial, lost = np.zeros(len(low)), np.zeros(len(low))
    for at in range(int(counts.max())):  # a turn for each place in a window, all windows at once
        inside = counts > at
        value = np.where(inside, values[np.where(inside, low + at, low)], 0.0)
        following = partial + value
        is_less = np.abs(partial) >= np.abs(value)
        lost += np.where(is_less, (partial - following) + value, (value - following) + partial)
        partial = following
    sums[places] = partial + lost
    return sums, present


def _reduced(windows: Windows, how: np.ufunc, values: Any) -> Floats:
    """Reduce the samples of each window; what stands where a window is empty means nothing."""
    if not len(values) or not windows.counts.size:
        return np.zeros(windows.counts.shape)
    pairs = np.stack([windows.low.reshape(-1), windows.high.reshape(-1)], axis=1).reshape(-1)
    found = how.reduceat(_padded(values), pairs)[::2]
    return np.asarray(found.reshape(windows.counts.shape), np.float64)


def _at(windows: Windows, values: Any, places: Ints) -> Outcome:
    present = windows.counts > 0
    return np.asarray(_padded(values)[_safe(places, present)], np.float64), present


def _safe(places: Ints, present: Bools) -> Ints:
    return np.where(present, places, 0)


def _padded(values: Any) -> Any:
    """Return values with one more at the end, which an empty window may point to."""
    return np.concatenate([values, np.zeros(1, values.dtype)])


FUNCTIONS: dict[str, Function] = {
    "rate": lambda windows: extrapolated(windows, is_counter=True, is_rate=True),
    "increase": lambda windows: extrapolated(windows, is_counter=True, is_rate=False),
    "delta": lambda windows: extrapolated(windows, is_counter=False, is_rate=False),
    "irate": lambda windows: instant_change(windows, is_rate=True),
    "idelta": lambda windows: instant_change(windows, is_rate=False),
    "count_over_time": count,
    "present_over_time": presence,
    "first_over_time": first,
    "last_over_time": last,
    "ts_of_first_over_time": time_of_first,
    "ts_of_last_over_time": time_of_last,
    "ts_of_min_over_time": time_of_smallest,
    "ts_of_max_over_time": time_of_largest,
    "sum_over_time": total,
    "avg_over_time": mean,
    "min_over_time": smallest,
    "max_over_time": largest,
    "stdvar_over_time": variance,
    "stddev_over_time": deviation,
    "mad_over_time": absolute_deviation,
    "changes": changes,
    "resets": resets,
    "deriv": slope,
}
KEEPS_NAME = frozenset({"last_over_time", "first_over_time"})
