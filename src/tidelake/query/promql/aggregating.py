"""Aggregate series into groups by their labels, for all steps at once.

Series are sorted by group, so that a group is a run of rows and an aggregation a reduction of runs. It does not
evaluate what it aggregates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import xxhash

from tidelake.errors import QueryError
from tidelake.query.promql.labels import METADATA, Labels, distinct
from tidelake.query.promql.printing import value_text
from tidelake.query.promql.vectors import Bools, Floats, Ints, Vector, empty
from tidelake.query.promql.windows import interpolated

HASHES = 2.0**64  # how many there are, as floating point has it


@dataclass(frozen=True, slots=True)
class Grouping:
    """Which labels make a group: ``by`` some, or ``without`` some."""

    labels: tuple[str, ...]
    is_without: bool = False

    def of(self, labels: Labels) -> Labels:
        """Return the labels that the groups have."""
        return labels.without((*METADATA, *self.labels)) if self.is_without else labels.only(self.labels)


@dataclass(frozen=True, slots=True)
class _Groups:
    """A vector with the rows of a group side by side: group ``g`` begins at ``starts[g]``."""

    labels: Labels
    values: Floats
    present: Bools
    starts: Ints
    group: Ints  # of each row
    order: Ints  # where each row was

    @property
    def counts(self) -> Ints:
        return np.asarray(np.add.reduceat(self.present.astype(np.int64), self.starts, axis=0))

    def reduced(self, how: np.ufunc, values: Floats, nothing: float) -> Floats:
        return np.asarray(how.reduceat(np.where(self.present, values, nothing), self.starts, axis=0))


def aggregate(name: str, vector: Vector, grouping: Grouping, parameter: Floats | str | None) -> Vector:
    """Aggregate a vector; ``parameter`` is a number for each step, or the label of ``count_values``."""
    vector = vector.compact()
    if isinstance(parameter, np.ndarray) and name != "quantile":
        _check_count(parameter, "Ratio" if name == "limit_ratio" else "Parameter")
    if not len(vector.labels):
        return empty(vector.labels.words, vector.values.shape[1])
    groups = _grouped(vector, grouping)
    match name:
        case "topk" | "bottomk":
            assert isinstance(parameter, np.ndarray)
            return _extreme(vector, groups, parameter, is_top=name == "topk")
        case "limitk":
            assert isinstance(parameter, np.ndarray)
            before = _running(groups) - 1
            kept = groups.present & (before < _whole(parameter)[None, :])
            return _kept(vector, groups, kept)
        case "limit_ratio":
            assert isinstance(parameter, np.ndarray)
            return vector.where(_ratio_kept(vector.labels, parameter))
        case "count_values":
            assert isinstance(parameter, str)
            if not parameter or not parameter.isprintable():
                raise QueryError(f"invalid label name {parameter!r}", kind="bad_label")
            return _count_values(vector, groups, parameter)
        case "quantile":
            assert isinstance(parameter, np.ndarray)
            values = _quantiles(groups, parameter)
        case _:
            values = _simple(name, groups)
    return Vector(groups.labels, values, groups.counts > 0)


def _simple(name: str, groups: _Groups) -> Floats:
    values, counts = groups.values, np.maximum(groups.counts, 1)
    match name:
        case "sum":
            return _sums(groups, values)
        case "avg":
            return _means(groups)
        case "min":
            return groups.reduced(np.fmin, values, np.nan)
        case "max":
            return groups.reduced(np.fmax, values, np.nan)
        case "count":
            return counts.astype(np.float64)
        case "group":
            return np.ones(counts.shape)
        case "stdvar" | "stddev":
            away = values - _means(groups)[groups.group]
            found = groups.reduced(np.add, away * away, 0.0) / counts
            return np.sqrt(found) if name == "stddev" else found
        case _:
            raise QueryError(f"aggregation {name!r} is not supported", kind="unsupported")


def _grouped(vector: Vector, grouping: Grouping) -> _Groups:
    labels = grouping.of(vector.labels)
    first, group = distinct(labels.codes)
    order = np.argsort(group, kind="stable")
    starts = np.searchsorted(group[order], np.arange(len(first)))
    return _Groups(labels.take(first), vector.values[order], vector.present[order], starts, group[order], order)


def _sums(groups: _Groups, values: Floats) -> Floats:
    """Return sums; where large values cancelled each other, summed again with what rounding lost."""
    sums = groups.reduced(np.add, values, 0.0)
    sizes = groups.reduced(np.add, np.abs(values), 0.0)
    doubtful = np.isfinite(sizes) & (np.abs(sums) < sizes * 1e-6)
    if not doubtful.any():
        return sums
    held = np.where(groups.present, values, 0.0)
    lengths = np.diff(np.append(groups.starts, len(values)))
    partial, lost = np.zeros(sums.shape), np.zeros(sums.shape)
    for at in range(int(lengths.max())):  # a turn for each place in a group, all groups and steps at once
        row = held[np.where(lengths > at, groups.starts + at, 0)]
        value = np.where((lengths > at)[:, None], row, 0.0)
        following = partial + value
        is_less = np.abs(partial) >= np.abs(value)
        lost += np.where(is_less, (partial - following) + value, (value - following) + partial)
        partial = following
    return np.where(doubtful, partial + lost, sums)


def _means(groups: _Groups) -> Floats:
    """Return means; of what overflows as a sum, from values that were made smaller before."""
    counts = np.maximum(groups.counts, 1)
    means = _sums(groups, groups.values) / counts
    over = np.isinf(means)
    if over.any():
        biggest = groups.reduced(np.maximum, np.abs(groups.values), 0.0)
        scaled = _sums(groups, groups.values / 2.0**64) / counts * 2.0**64
        means = np.where(over & np.isfinite(biggest), scaled, means)
    return means


def _quantiles(groups: _Groups, wanted: Floats) -> Floats:
    """Return a quantile of each (group, step)."""
    steps = groups.values.shape[1]
    owner = np.broadcast_to(groups.group[:, None], groups.values.shape)
    order = np.lexsort((groups.values, ~np.isnan(groups.values), ~groups.present, owner), axis=0)
    ordered = np.take_along_axis(groups.values, order, axis=0).T.reshape(-1)  # by step, then by group
    starts = (np.arange(steps)[:, None] * len(groups.values) + groups.starts[None, :]).reshape(-1)
    lengths = np.maximum(groups.counts, 1).T.reshape(-1)
    found = interpolated(ordered, starts, lengths, np.repeat(wanted, len(groups.starts)))
    return found.reshape(steps, -1).T


def _extreme(vector: Vector, groups: _Groups, wanted: Floats, *, is_top: bool) -> Vector:
    """Keep the largest or smallest values of each (group, step)."""
    limits = _whole(wanted)
    owner = np.broadcast_to(groups.group[:, None], groups.values.shape)
    signed = -groups.values if is_top else groups.values
    order = np.lexsort((signed, np.isnan(groups.values), ~groups.present, owner), axis=0)
    rank = np.empty_like(order)
    places = np.arange(len(groups.values))[:, None] - groups.starts[groups.group][:, None]
    np.put_along_axis(rank, order, np.broadcast_to(places, order.shape), axis=0)
    kept = groups.present & (rank < limits[None, :])
    found = _kept(vector, groups, kept)
    if vector.values.shape[1] != 1:
        return found
    sorted_rows = groups.order[order[:, 0]]  # of a single step, the order is part of the answer
    return Vector(*_taken(found, sorted_rows), is_ordered=True).compact()


def _taken(vector: Vector, rows: Ints) -> tuple[Labels, Floats, Bools]:
    return vector.labels.take(rows), vector.values[rows], vector.present[rows]


def _kept(vector: Vector, groups: _Groups, kept: Bools) -> Vector:
    """Return a vector with the values that are kept, whose rows are in the order of groups."""
    back = np.empty_like(kept)
    back[groups.order] = kept
    return vector.where(back)


def _running(groups: _Groups) -> Ints:
    """Return for each (row, step) how many values its group has up to it."""
    sums = np.cumsum(groups.present, axis=0)
    before = np.where(groups.starts[:, None] > 0, sums[groups.starts - 1], 0)
    return np.asarray(sums - before[groups.group], np.int64)


def _check_count(given: Floats, what: str) -> None:
    if np.isnan(given).any():
        raise QueryError(f"{what} value is NaN", kind="bad_parameter")


def _whole(given: Floats) -> Floats:
    """Return numbers as counts: without their fractions, and never below zero."""
    if (np.abs(given) >= 2.0**63).any():
        raise QueryError(f"Scalar value {given[np.abs(given) >= 2.0**63][0]:g} overflows int64", kind="bad_parameter")
    return np.maximum(np.trunc(given), 0.0)


def _ratio_kept(labels: Labels, ratio: Floats) -> Bools:
    """Whether a series is in the share that is asked for, by a hash of its labels; a loop over series."""
    share = np.array([_hash(sorted(each.items())) for each in labels.sets()]) / HASHES
    limit = np.clip(ratio, -1.0, 1.0)[None, :]
    share = share[:, None]
    return np.where(limit >= 0, share < limit, share >= 1.0 + limit)


def _hash(pairs: Sequence[tuple[str, str]]) -> int:
    flat = b"".join(_sized(text.encode()) for pair in pairs for text in pair)
    return xxhash.xxh64_intdigest(flat)


def _sized(text: bytes) -> bytes:
    size = len(text)
    return (bytes([size]) if size < 255 else b"\xff" + size.to_bytes(3, "little")) + text


def _count_values(vector: Vector, groups: _Groups, label: str) -> Vector:
    """Count how often each value occurs in each (group, step); the value becomes a label."""
    steps = vector.values.shape[1]
    rows, at = np.nonzero(groups.present)
    values, number = np.unique(groups.values[rows, at], return_inverse=True)
    pairs = np.stack([groups.group[rows], number.reshape(-1)], axis=1)
    kinds, kind = np.unique(pairs, axis=0, return_inverse=True)
    counts = np.bincount(kind.reshape(-1) * steps + at, minlength=len(kinds) * steps).reshape(len(kinds), steps)
    words = vector.labels.words
    texts = np.array([words.number(value_text(value)) for value in values.tolist()], np.int64)
    labels = groups.labels.take(kinds[:, 0]).replaced(label, texts[kinds[:, 1]])
    return Vector(labels, counts.astype(np.float64), counts > 0)
