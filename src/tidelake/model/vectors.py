"""Measure how far vectors are from one: by angle, by Euclid, or by their product.

Rows are float32, sums are doubles. A vector shorter than ``MIN_LENGTH`` has no direction, and so no cosine distance:
that is null. ``limits`` says between which values the measure of every vector in a ball lies, a little wider than true,
so that no rounding here or there makes it wrong. It does not know columns or statistics.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

Metric: TypeAlias = Literal["cosine_distance", "l2_distance", "inner_product"]
METRICS: tuple[str, ...] = get_args(Metric)

MIN_LENGTH = 1e-12
CHUNK_NUMBERS = 1 << 20  # components at a time as doubles: 8 MiB
SLACK = 1e-5  # of directions, which are kept as floats
FINE_SLACK = 1e-9  # of vectors as they are

Rows: TypeAlias = npt.NDArray[np.float32]
Reals: TypeAlias = npt.NDArray[np.float64]


def measure(metric: Metric, rows: Rows, query: Sequence[float]) -> tuple[Reals, npt.NDArray[np.bool_]]:
    """Measure each row against a query, and say which rows have an answer."""
    wanted = np.array(query, dtype=np.float64)
    found, known = np.empty(len(rows)), np.ones(len(rows), dtype=np.bool_)
    step = max(1, CHUNK_NUMBERS // max(1, len(wanted)))
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        for start in range(0, len(rows), step):
            part = rows[start : start + step].astype(np.float64)
            here = slice(start, start + len(part))
            found[here], known[here] = _measured(metric, part, wanted)
    return found, known


def limits(metric: Metric, centroid: Sequence[float], radius: float, query: Sequence[float]) -> tuple[float, float]:
    """Bound the measure of every vector in a ball; of directions if the metric is of angles. NaN if it has no bound."""
    middle, wanted = np.array(centroid, dtype=np.float64), np.array(query, dtype=np.float64)
    length = math.sqrt(float(wanted @ wanted))
    if metric == "cosine_distance":
        if length <= MIN_LENGTH:
            return math.nan, math.nan
        near = float(middle @ wanted) / length
        return 1 - near - radius - SLACK, 1 - near + radius + SLACK
    scale = length + math.sqrt(float(middle @ middle)) + radius
    if metric == "l2_distance":
        away = math.sqrt(float(((middle - wanted) ** 2).sum()))
        return max(0.0, away - radius - FINE_SLACK * scale), away + radius + FINE_SLACK * scale
    product, alternatives = float(middle @ wanted), radius * length + FINE_SLACK * scale * length
    return product - alternatives, product + alternatives


def units_of(rows: Rows) -> Rows:
    """Scale rows to length one, without those that have no direction; an infinite one becomes NaN."""
    lengths = np.sqrt((rows.astype(np.float64) ** 2).sum(axis=1))
    keep = ~(lengths <= MIN_LENGTH)
    with np.errstate(invalid="ignore"):
        return np.asarray(rows[keep] / lengths[keep, None], dtype=np.float32)


def ball_of(rows: Rows) -> tuple[Reals, float] | None:
    """Return the middle of some vectors and the distance of the farthest, or None if there is none."""
    if not len(rows):
        return None
    with np.errstate(invalid="ignore", over="ignore"):
        middle = rows.mean(axis=0, dtype=np.float64)
        farthest, step = 0.0, max(1, CHUNK_NUMBERS // rows.shape[1])
        for start in range(0, len(rows), step):
            away = rows[start : start + step] - middle
            farthest = max(farthest, float((away * away).sum(axis=1).max()))
    return (middle, math.sqrt(farthest)) if math.isfinite(farthest) and np.isfinite(middle).all() else None


def _measured(metric: Metric, rows: Reals, query: Reals) -> tuple[Reals, npt.NDArray[np.bool_]]:
    every = np.ones(len(rows), dtype=np.bool_)
    if metric == "l2_distance":
        away = rows - query
        return np.sqrt((away * away).sum(axis=1)), every
    products = rows @ query
    if metric == "inner_product":
        return products, every
    lengths, length = np.sqrt((rows * rows).sum(axis=1)), math.sqrt(float(query @ query))
    known = ~(lengths <= MIN_LENGTH) if length > MIN_LENGTH or math.isnan(length) else ~every
    return np.clip(1 - products / (lengths * length), 0.0, 2.0), known
