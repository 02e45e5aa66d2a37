"""Say what an index of vectors is, as a table's settings keep it, and check what is asked of one.

An index is a setting of its table, so it is committed, rebased and read at older snapshots as every other setting is.
It names its codebook by key; the sidecar of an extent is named after the extent and the codebook, so that no other
place needs to record it. It does not read or write objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, Final, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from tidelake.errors import InvalidInputError, NotFoundError
from tidelake.model.expression import unknown_column
from tidelake.model.schema import Column, Schema
from tidelake.model.settings import VECTOR_INDEX, columns_under
from tidelake.model.vectors import MIN_LENGTH, Metric
from tidelake.objects import vector_sidecar_key

IndexMetric: TypeAlias = Literal["cosine", "l2", "dot"]
METRICS: Final[tuple[str, ...]] = get_args(IndexMetric)
MEASURES: Final[Mapping[str, Metric]] = {"cosine": "cosine_distance", "l2": "l2_distance", "dot": "inner_product"}
MAX_K = 10_000  # rows of an answer for one query
MAX_QUERIES = 10_000  # in one call
DISTANCE, QUERY = "_distance", "_query"  # the columns that an answer has besides the table's

Floats: TypeAlias = npt.NDArray[np.float32]
Doubles: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class VectorIndex:
    """The index of one column: by which measure, and with which codebook."""

    column: str
    column_id: int
    dimensions: int
    metric: IndexMetric
    codebook_key: str
    version: int  # of the codebook, from 1
    created_us: int

    @property
    def measure(self) -> Metric:
        """How a vector's distance from a query is computed."""
        return MEASURES[self.metric]

    def sidecar_key(self, extent_key: str) -> str:
        """Name the sidecar of an extent."""
        return vector_sidecar_key(extent_key, self.codebook_key)

    def to_setting(self) -> dict[str, Any]:
        """Return what a table's settings keep of it."""
        return {
            "metric": self.metric,
            "codebook": self.codebook_key,
            "version": self.version,
            "created_us": self.created_us,
        }


def indexes_of(settings: Mapping[str, Any], schema: Schema) -> dict[str, VectorIndex]:
    """Return the indexes that settings name, by column; one whose column is no vector any more is passed over."""
    return {
        name: _index_of(schema[name], told)
        for name, told in columns_under(VECTOR_INDEX, settings)
        if name in schema and schema[name].type.kind == "vector"
    }


def vector_column(schema: Schema, name: str) -> Column:
    """Return a column of vectors; NotFoundError or InvalidInputError if it is none."""
    if name not in schema:
        raise unknown_column(name, schema.names)
    column = schema[name]
    if column.type.kind != "vector":
        raise InvalidInputError(
            f"{name} is not a column of vectors", column=name, type=column.type, kind="not_a_vector"
        )
    return column


def check_metric(metric: str) -> IndexMetric:
    """Return a metric of indexes; InvalidInputError if it is none."""
    if metric not in METRICS:
        raise InvalidInputError(f"{metric!r} is not a metric: {', '.join(METRICS)}", metric=metric, kind="bad_metric")
    return metric  # type: ignore[return-value]


def index_on(indexes: Mapping[str, VectorIndex], column: str) -> VectorIndex:
    """Return the index of a column; NotFoundError if it has none."""
    if column not in indexes:
        raise NotFoundError("the column has no index", column=column, indexed=", ".join(indexes) or None)
    return indexes[column]


def checked_queries(query: Any, column: Column, metric: IndexMetric) -> tuple[Doubles, bool]:
    """Return queries as the rows of an array, and whether it was one alone; InvalidInputError if one is unfit."""
    size = column.type.dimension
    try:
        rows = np.array(query, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise _unfit("a query is a list of numbers, or a list of such lists", column) from error
    is_one = rows.ndim == 1
    if is_one:
        rows = rows[None, :]
    if rows.ndim != 2 or rows.shape[1] != size:
        found = rows.shape[-1] if rows.ndim else 0
        raise _unfit(f"a query needs as many numbers as the column's vectors have: {size}", column, found=found)
    if not 1 <= len(rows) <= MAX_QUERIES:
        raise _unfit(f"ask 1 to {MAX_QUERIES:,} queries at once", column, found=len(rows))
    with np.errstate(over="ignore"):
        narrow = rows.astype(np.float32)
    if not np.isfinite(narrow).all():
        raise _unfit("a query has a number that is not finite as a 32-bit float", column)
    if metric == "cosine" and (np.linalg.norm(narrow.astype(np.float64), axis=1) <= MIN_LENGTH).any():
        raise _unfit("a query of zeros has no direction, and so no cosine distance", column)
    return rows, is_one


def check_k(k: int) -> int:
    """Return how many rows are wanted; InvalidInputError if that is no such number."""
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= k <= MAX_K:
        raise InvalidInputError(f"k is a whole number from 1 to {MAX_K:,}", k=k, kind="bad_k")
    return k


def check_effort(recall: float | None, probes: int | None) -> None:
    """Refuse what says both how good and how thorough a search is, or what is neither."""
    if recall is not None and probes is not None:
        raise InvalidInputError("give recall or probes, not both", recall=recall, probes=probes)
    if recall is not None and (not isinstance(recall, Real) or not 0 < recall <= 1):
        raise InvalidInputError("recall is a number above 0 and at most 1", recall=recall)
    if probes is not None and (isinstance(probes, bool) or not isinstance(probes, int) or probes < 1):
        raise InvalidInputError("probes is a whole number from 1 on", probes=probes)


def _index_of(column: Column, told: Mapping[str, Any]) -> VectorIndex:
    return VectorIndex(
        column.name,
        column.id,
        column.type.dimension or 0,
        check_metric(told["metric"]),
        told["codebook"],
        told["version"],
        told["created_us"],
    )


def _unfit(message: str, column: Column, **facts: object) -> InvalidInputError:
    return InvalidInputError(message, column=column.name, kind="bad_query_vector", **facts)
