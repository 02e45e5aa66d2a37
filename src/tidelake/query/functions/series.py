"""Hold the portable functions of series: arrays of numbers, as ``make-series`` gives them.

Each is a function of one row's texts, a series being a JSON array in which null is a gap. What several columns come
out of gives them as an array, in the order of ``kql.several``. Decomposition follows Kusto's documented steps: the
seasonal part is the median of the points in the same phase, the trend is taken from what remains, and anomalies are
scored on the residual by Tukey's fences. It does not know engines.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tidelake.query.functions.declaration import Function, declare
from tidelake.query.functions.python import dumped

Floats = np.ndarray[Any, np.dtype[np.float64]]

SHORTEST_PERIOD = 4  # bins; a shorter one is noise
SEASON_SCORE = 0.6  # the least autocorrelation that is taken for a season
HARMONIC = 0.95  # a period is preferred to its multiples if it scores nearly as well


def numbers(array: str) -> list[float | None]:
    """Read a series; what is no number is a gap."""
    return [float(item) if isinstance(item, int | float) else None for item in json.loads(array)]


def number(value: float | None) -> Any:
    """Return a number as JSON shows it: whole where it is."""
    if value is None or not math.isfinite(value):
        return None
    return int(value) if value == int(value) and abs(value) < 2**53 else float(value)


def pairwise(rule: Callable[[float, float], Any]) -> Callable[[str, str], str]:
    """Make a function of two series: item by item, null where either has none. A number stands for a series of it."""

    def apply(one: str, other: str) -> str:
        first, second = _side(one), _side(other)
        size = max((len(side) for side in (first, second) if isinstance(side, list)), default=1)
        pairs = zip(_spread(first, size), _spread(second, size), strict=False)
        return dumped([None if a is None or b is None else _answer(rule(a, b)) for a, b in pairs])

    return apply


def _side(text: str) -> list[float | None] | float:
    value = json.loads(text)
    return numbers(text) if isinstance(value, list) else float(value)


def _spread(side: list[float | None] | float, size: int) -> list[float | None]:
    return side if isinstance(side, list) else [side] * size


def _answer(value: Any) -> Any:
    return value if isinstance(value, bool) else number(value)


def each(rule: Callable[[float], float]) -> Callable[[str], str]:
    """Make a function of a series: item by item, null where it has none or the rule has no answer."""

    def safely(value: float | None) -> Any:
        try:
            return None if value is None else number(rule(value))
        except (ValueError, OverflowError):
            return None

    return lambda array: dumped([safely(value) for value in numbers(array)])


def stats(array: str) -> dict[str, Any]:
    """Return least, greatest, where they are, mean, deviation and variance."""
    values = [value for value in numbers(array) if value is not None]
    mean = sum(values) / len(values)
    variance = sum((value - mean) ** 2 for value in values) / (len(values) - 1) if len(values) > 1 else 0.0
    low, high = min(values), max(values)
    items = {"min": low, "min_idx": values.index(low), "max": high, "max_idx": values.index(high), "avg": mean}
    found = {name: number(value) for name, value in items.items()} | {"stdev": variance**0.5, "variance": variance}
    return found | {"sum": number(sum(values)), "len": len(values)}


def fill(array: str, how: str, options: str) -> str:
    """Fill the gaps of a series: with a constant, from the left, from the right, or in a line.

    A value of the author's choice is a gap too. A line reaches the ends only if it may, and a series of gaps alone is
    filled with a constant.
    """
    constant, missing, edges = json.loads(options)
    values = [None if missing is not None and value == missing else value for value in numbers(array)]
    known = [at for at, value in enumerate(values) if value is not None]
    if how == "const" or (how == "linear" and not known):
        return dumped([number(float(constant) if value is None else value) for value in values])
    out = list(values)
    for at, value in enumerate(values):
        if value is not None or not known:
            continue
        left = max((k for k in known if k < at), default=None)
        right = min((k for k in known if k > at), default=None)
        if how == "linear" and not edges and (left is None or right is None):
            continue
        if how == "linear" and left is not None and right is not None:
            start, end = values[left] or 0.0, values[right] or 0.0
            out[at] = start + (end - start) * (at - left) / (right - left)
        elif how in ("forward", "linear") and left is not None:
            out[at] = values[left]
        elif how in ("backward", "linear") and right is not None:
            out[at] = values[right]
    return dumped([number(value) for value in out])


def dot(one: str, other: str) -> float | None:
    """Sum the products of two series, as far as the shorter goes; a number stands for a series of it."""
    first, second = _side(one), _side(other)
    size = min((len(side) for side in (first, second) if isinstance(side, list)), default=1)
    pairs = zip(_spread(first, size), _spread(second, size), strict=False)
    return sum((a or 0.0) * (b or 0.0) for a, b in pairs) if size else None


def cosine(one: str, other: str) -> float:
    return _dot(one, other) / math.sqrt(_dot(one, one) * _dot(other, other))


def _dot(one: str, other: str) -> float:
    return dot(one, other) or 0.0


def pearson(one: str, other: str) -> float | None:
    first, second = (_whole(numbers(side)) for side in (one, other))
    found = float(np.corrcoef(first, second)[0, 1]) if len(first) == len(second) > 1 else math.nan
    return found if math.isfinite(found) else None


def product(array: str) -> float:
    return math.prod(value for value in numbers(array) if value is not None)


def magnitude(array: str) -> float:
    return math.sqrt(_dot(array, array))


def _whole(values: Sequence[float | None]) -> Floats:
    """Return a series without gaps: they are filled in a line."""
    held = np.array([math.nan if value is None else value for value in values], np.float64)
    known = np.isfinite(held)
    if not known.any():
        raise ValueError("a series of gaps")
    return np.where(known, held, np.interp(np.arange(len(held)), np.flatnonzero(known), held[known]))


def fit_line(array: str) -> dict[str, Any]:
    """Fit a line: how well it fits, its slope, the variances of series and rest, where it begins, and its points."""
    values = _whole(numbers(array))
    slope, start = _line(values)
    line: Floats = start + slope * np.arange(len(values), dtype=np.float64)
    alternatives = max(len(values) - 1, 1)  # one less, for the mean is of the same values
    variance = float(((values - values.mean()) ** 2).sum()) / alternatives
    rest = float(((values - line) ** 2).sum()) / alternatives
    share = 1.0 - rest / variance if variance else 1.0
    found = {"rsquare": share, "slope": slope, "variance": variance, "rvariance": rest}
    found["interception"] = start - slope  # the first point is at one
    return {name: number(value) for name, value in found.items()} | {"line_fit": _listed(line)}


def _line(values: Floats) -> tuple[float, float]:
    if len(values) < 2:
        return 0.0, float(values[0])
    slope, start = np.polyfit(np.arange(len(values)), values, 1)
    return float(slope), float(start)


def _listed(values: Floats) -> list[Any]:
    return [number(round(float(value), 9)) for value in values]


def correlations(values: Floats) -> Floats:
    """Return how much a series resembles itself, by how far it is shifted; trend and outliers do not count."""
    slope, start = _line(values)
    flat = values - (start + slope * np.arange(len(values)))
    low, high = np.percentile(flat, (10.0, 90.0))
    margin = 0.5 * (high - low)
    flat = np.clip(flat, low - margin, high + margin) if margin else flat
    flat = flat - flat.mean()
    size = len(flat)
    power = np.fft.rfft(flat, 2 * size)
    shared = np.fft.irfft(power * np.conj(power), 2 * size)[: size // 2 + 1]
    counts = size - np.arange(len(shared))
    whole: Floats = shared / counts / (shared[0] / size) if shared[0] > 1e-12 else np.zeros(len(shared))
    return whole


def periods(array: str, options: str) -> list[list[Any]]:
    """Find the periods of a series within bounds, best first, and how well each scores."""
    low, high, count = (float(item) for item in json.loads(options))
    scores = correlations(_whole(numbers(array)))
    peaks = [
        at
        for at in range(max(int(low), 1), min(int(high), len(scores) - 2) + 1)
        if scores[at] > 0 and scores[at] >= scores[at - 1] and scores[at] >= scores[at + 1]
    ]
    best = sorted(peaks, key=lambda at: -scores[at])[: int(count)]
    return [[*best], [number(round(float(scores[at]), 9)) for at in best]]


def _period(values: Floats, least: float) -> int:
    """Find the period of a series, or 0 if it has none."""
    scores = correlations(values)[: len(values) // 2]
    if len(scores) <= SHORTEST_PERIOD + 1:
        return 0
    peaks = [
        at
        for at in range(SHORTEST_PERIOD, len(scores) - 1)
        if scores[at] >= scores[at - 1] and scores[at] >= scores[at + 1]
    ]
    top = max((scores[at] for at in peaks), default=0.0)
    return next((at for at in peaks if scores[at] >= top * HARMONIC), 0) if top >= least else 0


def _parts(array: str, options: Sequence[Any]) -> tuple[Floats, Floats, Floats]:
    """Return a series without gaps, its seasonal part and its trend."""
    season, trend, tests, least = options
    values = _whole(numbers(array))
    learned = values[: max(len(values) - int(tests), 1)]
    period = _period(learned, float(least)) if int(season) == -1 else int(season)
    seasonal = np.zeros(len(values))
    if 0 < period < len(learned):
        phases = np.array([np.median(learned[phase::period]) for phase in range(period)])
        seasonal = phases[np.arange(len(values)) % period]
    rest = learned - seasonal[: len(learned)]
    match trend:
        case "linefit":
            slope, start = _line(rest)
            line: Floats = start + slope * np.arange(len(values), dtype=np.float64)
        case "avg":
            line = np.full(len(values), rest.mean())
        case "none":
            line = np.zeros(len(values))
        case _:
            raise ValueError("a trend is avg, linefit or none")
    return values, seasonal, line


def decompose(array: str, options: str) -> list[list[Any]]:
    """Part a series into baseline, seasonal part, trend and residual."""
    values, seasonal, line = _parts(array, json.loads(options))
    return [_listed(part) for part in (seasonal + line, seasonal, line, values - seasonal - line)]


def forecast(array: str, options: str) -> list[Any]:
    tests, season, trend, least = json.loads(options)
    _, seasonal, line = _parts(array, (season, trend, tests, least))
    return _listed(seasonal + line)


def anomalies(array: str, options: str) -> list[list[Any]]:
    """Mark the points that lie far from what the series suggests: flags of 1, -1 and 0, scores, and the baseline."""
    threshold, season, trend, tests, method, least = json.loads(options)
    values, seasonal, line = _parts(array, (season, trend, tests, least))
    gaps = np.array([value is None for value in numbers(array)])
    low, high = {"tukey": (25.0, 75.0), "ctukey": (10.0, 90.0)}[method]
    scores = np.where(gaps, 0.0, _fences(values - seasonal - line, low, high))
    flags = (scores > threshold).astype(int) - (scores < -threshold).astype(int)
    return [[int(flag) for flag in flags], _listed(scores), _listed(seasonal + line)]


def outliers(array: str, options: str) -> list[Any]:
    kind, ignored, low, high, tests = json.loads(options)
    low, high = (25.0, 75.0) if kind == "tukey" else (float(low), float(high))
    values = [None if value == ignored else value for value in numbers(array)]
    gaps = np.array([value is None for value in values])
    known = np.array([value for value in values if value is not None], np.float64)
    learned = np.array([value for value in values[: len(values) - int(tests)] if value is not None], np.float64)
    scores = np.zeros(len(values))
    scores[~gaps] = _fences(known, low, high, learned)
    return _listed(scores)


def _fences(rest: Floats, low: float, high: float, learned: Floats | None = None) -> Floats:
    """Return how many ranges between two percentiles each point lies outside of them; they may be those of some points.

    Where both percentiles are one, what differs is measured by the mean distance from the median.
    """
    known = rest if learned is None else learned
    below, above = np.percentile(known, (low, high))
    width = above - below
    if width <= 1e-9 * max(abs(above), abs(below), 1.0):
        width = np.abs(known - np.median(known)).mean()
    if width <= 1e-12:
        return np.zeros(len(rest))
    found: Floats = (np.maximum(rest - above, 0.0) + np.minimum(rest - below, 0.0)) / width
    return found


def seasonal(array: str, options: str) -> list[Any]:
    season, tests = json.loads(options)
    _, found, _ = _parts(array, (season, "none", tests, SEASON_SCORE))
    return _listed(found)


def finite_filter(array: str, options: str) -> list[Any]:
    """Filter a series by weights over its last points, or around each."""
    weights, normal, center = json.loads(options)
    values, taps = _whole(numbers(array)), np.array(weights, np.float64)
    if normal and taps.sum():
        taps = taps / taps.sum()
    found = np.convolve(values, taps)
    start = len(taps) // 2 if center else 0
    return _listed(found[start : start + len(values)])


def infinite_filter(array: str, options: str) -> list[Any]:
    """Filter a series by weights over its last points and its last results."""
    above, below = json.loads(options)
    out: list[float] = []
    values = _whole(numbers(array))
    for at in range(len(values)):
        total = sum(weight * values[at - back] for back, weight in enumerate(above) if at >= back)
        total -= sum(weight * out[at - back] for back, weight in enumerate(below) if back and at >= back)
        out.append(float(total) / below[0])
    return [number(round(value, 9)) for value in out]


def _json(rule: Callable[..., Any]) -> Callable[..., str]:
    return lambda *texts: dumped(rule(*texts))


def _values(rule: Callable[[str], dict[str, Any]]) -> Callable[[str], str]:
    return lambda array: dumped(list(rule(array).values()))


def _sign(value: float) -> float:
    return float((value > 0) - (value < 0))


FUNCTIONS: tuple[Function, ...] = (
    declare("series_add", returns="dynamic", python=pairwise(lambda a, b: a + b), arity=2),
    declare("series_subtract", returns="dynamic", python=pairwise(lambda a, b: a - b), arity=2),
    declare("series_multiply", returns="dynamic", python=pairwise(lambda a, b: a * b), arity=2),
    declare("series_divide", returns="dynamic", python=pairwise(lambda a, b: a / b if b else None), arity=2),
    declare("series_pow", returns="dynamic", python=pairwise(lambda a, b: a**b), arity=2),
    declare("series_greater", returns="dynamic", python=pairwise(lambda a, b: a > b), arity=2),
    declare("series_greater_equals", returns="dynamic", python=pairwise(lambda a, b: a >= b), arity=2),
    declare("series_less", returns="dynamic", python=pairwise(lambda a, b: a < b), arity=2),
    declare("series_less_equals", returns="dynamic", python=pairwise(lambda a, b: a <= b), arity=2),
    declare("series_equals", returns="dynamic", python=pairwise(lambda a, b: a == b), arity=2),
    declare("series_not_equals", returns="dynamic", python=pairwise(lambda a, b: a != b), arity=2),
    declare("series_abs", returns="dynamic", python=each(abs), arity=1),
    declare("series_exp", returns="dynamic", python=each(math.exp), arity=1),
    declare("series_log", returns="dynamic", python=each(math.log), arity=1),
    declare("series_sign", returns="dynamic", python=each(_sign), arity=1),
    declare("series_sin", returns="dynamic", python=each(math.sin), arity=1),
    declare("series_cos", returns="dynamic", python=each(math.cos), arity=1),
    declare("series_tan", returns="dynamic", python=each(math.tan), arity=1),
    declare("series_asin", returns="dynamic", python=each(math.asin), arity=1),
    declare("series_acos", returns="dynamic", python=each(math.acos), arity=1),
    declare("series_atan", returns="dynamic", python=each(math.atan), arity=1),
    declare("series_floor", returns="dynamic", python=each(math.floor), arity=1),
    declare("series_ceiling", returns="dynamic", python=each(math.ceil), arity=1),
    declare("series_stats", returns="dynamic", python=_json(stats), arity=1),
    declare("series_stats_list", returns="dynamic", python=_values(stats), arity=1),
    declare("series_fit_line", returns="dynamic", python=_json(fit_line), arity=1),
    declare("series_fit_line_list", returns="dynamic", python=_values(fit_line), arity=1),
    declare("series_fill_const", returns="dynamic", python=lambda a, options: fill(a, "const", options), arity=2),
    declare("series_fill_forward", returns="dynamic", python=lambda a, options: fill(a, "forward", options), arity=2),
    declare("series_fill_backward", returns="dynamic", python=lambda a, options: fill(a, "backward", options), arity=2),
    declare("series_fill_linear", returns="dynamic", python=lambda a, options: fill(a, "linear", options), arity=2),
    declare("series_dot", returns="real", python=dot, arity=2),
    declare("series_cosine", returns="real", python=cosine, arity=2),
    declare("series_pearson", returns="real", python=pearson, arity=2),
    declare("series_product", returns="real", python=product, arity=1),
    declare("series_magnitude", returns="real", python=magnitude, arity=1),
    declare("series_periods", returns="dynamic", python=_json(periods), arity=2),
    declare("series_decompose", returns="dynamic", python=_json(decompose), arity=2),
    declare("series_forecast", returns="dynamic", python=_json(forecast), arity=2),
    declare("anomalies", returns="dynamic", python=_json(anomalies), arity=2),
    declare("series_outliers", returns="dynamic", python=_json(outliers), arity=2),
    declare("series_seasonal", returns="dynamic", python=_json(seasonal), arity=2),
    declare("series_fir", returns="dynamic", python=_json(finite_filter), arity=2),
    declare("series_iir", returns="dynamic", python=_json(infinite_filter), arity=2),
    declare(
        "series_axis_datetime",
        returns="dynamic",
        duckdb="to_json(list_transform(<counted {1}>, lambda i: strftime(make_timestamptz(CAST(epoch_us({0}) + "
        "i * (({2}) // 10) AS BIGINT)), <time_shape>)))",
        spark="CAST(transform(<counted {1}>, i -> date_format(timestamp_micros(unix_micros({0}) + i * (({2}) "
        "div 10)), <time_shape>)) AS VARIANT)",
    ),
    declare(
        "series_axis_long",
        returns="dynamic",
        duckdb="to_json(list_transform(<counted {1}>, lambda i: ({0}) + i * ({2})))",
        spark="CAST(transform(<counted {1}>, i -> ({0}) + i * ({2})) AS VARIANT)",
    ),
    declare(
        "series_axis_real",
        returns="dynamic",
        duckdb="to_json(list_transform(<counted {1}>, lambda i: ({0}) + i * ({2})))",
        spark="CAST(transform(<counted {1}>, i -> ({0}) + i * ({2})) AS VARIANT)",
    ),
)
