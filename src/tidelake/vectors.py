"""Measure how far vectors are from one that is asked for.

Three measures: ``cosine`` (1 − cos, from 0 to 2), ``l2`` (Euclidean), ``inner`` (the inner product, larger is nearer).
The cosine of a vector without length is null. Sums run in double precision. It does not index vectors; the ball of an
extent, which ``stats`` keeps, proves that none of its vectors is near enough in cosine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tidelake.errors import InvalidInputError, SchemaError
from tidelake.predicate import Metric
from tidelake.stats import Ball

METRICS: tuple[Metric, ...] = ("cosine", "l2", "inner")
SLACK = 1e-5  # balls are made of single-precision units: allow for their rounding


def distances(vectors: pa.Array, query: Sequence[float], metric: Metric) -> pa.Array:
    """Measure every vector of a column against a query; null vectors have no distance."""
    wanted = np.asarray(query, dtype=np.float64)
    rows = len(vectors)
    if vectors.type.list_size != len(wanted):
        raise SchemaError(
            "vector of the wrong length", expected=vectors.type.list_size, found=len(wanted), kind="vector_length"
        )
    size = vectors.type.list_size
    held = vectors.values.slice(vectors.offset * size, rows * size).to_numpy(zero_copy_only=False)
    matrix = held.reshape(rows, size).astype(np.float64)
    missing = np.asarray(vectors.is_null())
    if metric == "l2":
        found = np.sqrt(((matrix - wanted) ** 2).sum(axis=1))
    elif metric == "inner":
        found = matrix @ wanted
    elif metric == "cosine":
        lengths = np.sqrt((matrix**2).sum(axis=1)) * math.sqrt(float(wanted @ wanted))
        missing = missing | ~(lengths > 0)
        found = 1.0 - (matrix @ wanted) / np.where(lengths > 0, lengths, 1.0)
    else:
        raise InvalidInputError(f"{metric!r} is not a measure", known=", ".join(METRICS))
    return pa.array(found, pa.float64(), mask=missing)


def may_be_within(ball: Ball | None, query: Sequence[float], metric: Metric, limit: float) -> bool:
    """Say whether some vector in a ball may be nearer than a limit. For unit vectors, cosine is half the squared gap."""
    if ball is None or metric != "cosine" or len(ball.centroid) != len(query):
        return True
    length = math.sqrt(sum(part * part for part in query))
    if not length > 0:
        return True
    to_centre = math.sqrt(sum((part / length - at) ** 2 for part, at in zip(query, ball.centroid, strict=True)))
    gap = max(0.0, to_centre - ball.radius)
    return gap * gap / 2 <= limit + SLACK
