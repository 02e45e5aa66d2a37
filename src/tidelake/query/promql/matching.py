"""Match the series of two vectors by their labels and combine their values.

Pairs of series are found once, by numbers for what must agree; whether both have a value is then asked of every step.
It does not evaluate the two sides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from tidelake.errors import QueryError
from tidelake.query.promql.labels import METADATA, NAME, Codes, Labels, distinct, joined
from tidelake.query.promql.vectors import Bools, Floats, Ints, Scalar, Vector, empty, united

Arithmetic: TypeAlias = Callable[[Floats, Floats], Floats]
Comparison: TypeAlias = Callable[[Floats, Floats], Bools]

ARITHMETIC: dict[str, Arithmetic] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "%": np.fmod,
    "^": np.power,
    "atan2": np.arctan2,
}
COMPARISONS: dict[str, Comparison] = {
    "==": np.equal,
    "!=": np.not_equal,
    ">": np.greater,
    "<": np.less,
    ">=": np.greater_equal,
    "<=": np.less_equal,
}
SETS = frozenset({"and", "or", "unless"})


@dataclass(frozen=True, slots=True)
class Matching:
    """How two vectors are matched: on which labels, and whether one side may have many for one of the other."""

    labels: tuple[str, ...] = ()
    is_on: bool = False
    many: str = ""  # "left", "right", or one to one
    include: tuple[str, ...] = ()  # labels that the many get from the one
    is_bool: bool = False
    fill_left: float | None = None
    fill_right: float | None = None

    def of(self, labels: Labels) -> Labels:
        """Return the labels that must agree."""
        return labels.only(self.labels) if self.is_on else labels.without((NAME, *self.labels))


def scalars(name: str, left: Scalar, right: Scalar) -> Scalar:
    """Combine two numbers of each step."""
    if name in COMPARISONS:
        return Scalar(COMPARISONS[name](left.values, right.values).astype(np.float64))
    return Scalar(ARITHMETIC[name](left.values, right.values))


def with_scalar(name: str, vector: Vector, scalar: Scalar, *, is_swapped: bool, is_bool: bool) -> Vector:
    """Combine each value of a vector with a number of its step; ``is_swapped`` if the number is on the left."""
    number = np.broadcast_to(scalar.values[None, :], vector.values.shape)
    left, right = (number, vector.values) if is_swapped else (vector.values, number)
    if name in ARITHMETIC:
        return vector.nameless(ARITHMETIC[name](left, right))
    holds = COMPARISONS[name](left, right)
    return vector.nameless(holds.astype(np.float64)) if is_bool else vector.where(holds)


def sets(name: str, left: Vector, right: Vector, matching: Matching) -> Vector:
    """Keep series by whether the other side has any with the same labels, at each step."""
    if not matching.is_on:  # what is computed of a metric has neither type nor unit, and stands for it here
        matching = replace(matching, labels=(*METADATA, *matching.labels))
    mine, others, kinds = _numbered(left, right, matching)
    steps = left.values.shape[1]
    there = _any(right.present, others, kinds, steps)
    if name == "and":
        return left.where(there[mine])
    if name == "unless":
        return left.where(~there[mine])
    rest = right.where(~_any(left.present, mine, kinds, steps)[others])
    return united(
        Vector(
            joined([left.labels, rest.labels]),
            np.concatenate([left.values, rest.values]),
            np.concatenate([left.present, rest.present]),
        ).compact()
    )


def vectors(name: str, left: Vector, right: Vector, matching: Matching) -> Vector:
    """Combine the values of series that match, one to one, or many to one if that is said."""
    left, right = left.compact(), right.compact()
    swapped = matching.many == "right"
    many, one = (right, left) if swapped else (left, right)
    many_kind, one_kind, kinds = _numbered(many, one, matching)
    steps = left.values.shape[1]
    _check_unique(one, one_kind, matching, "left" if swapped else "right")
    rows, others = _pairs(many_kind, one_kind)
    parts = [_Pairs(many.take(rows), one.take(others), many_kind[rows])]
    fill_one, fill_many = matching.fill_right, matching.fill_left  # as Prometheus has it, whichever side has many
    if fill_one is not None:
        lacks = ~_any(one.present, one_kind, kinds, steps)[many_kind]
        parts.append(_Pairs(many.where(lacks), _filled(many, fill_one, matching), many_kind))
    if fill_many is not None:
        lacks = ~_any(many.present, many_kind, kinds, steps)[one_kind]
        parts.append(_Pairs(_filled(one, fill_many, matching), one.where(lacks), one_kind))
    pairs = [part for part in parts if len(part.many.labels)]
    if not pairs:
        return empty(left.labels.words, steps)
    found = [_combined(name, part, matching, swapped) for part in pairs]
    whole = Vector(
        joined([each.labels for each, _ in found]),
        np.concatenate([each.values for each, _ in found]),
        np.concatenate([each.present for each, _ in found]),
    )
    _check_matches(whole, np.concatenate([part.kind for part in pairs]), matching)
    return united(whole.where(np.concatenate([kept for _, kept in found])))


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Series of both sides, the n-th of the one with the n-th of the other; ``kind`` is what they agree on."""

    many: Vector
    one: Vector
    kind: Ints


def _combined(name: str, pairs: _Pairs, matching: Matching, swapped: bool) -> tuple[Vector, Bools]:
    """Return the values of pairs where both sides have one, and which of them are kept."""
    many, one = pairs.many, pairs.one
    left, right = (one.values, many.values) if swapped else (many.values, one.values)
    present = many.present & one.present
    labels = many.labels
    if name in ARITHMETIC or matching.is_bool:
        labels = labels.nameless()
    if not matching.many:
        labels = labels.only(matching.labels) if matching.is_on else labels.without(matching.labels)
    for label in matching.include:
        labels = labels.replaced(label, one.labels.column(label))
    if name in ARITHMETIC:
        return Vector(labels, ARITHMETIC[name](left, right), present), present
    holds = COMPARISONS[name](left, right)
    if matching.is_bool:
        return Vector(labels, holds.astype(np.float64), present), present
    return Vector(labels, left, present), holds


def _filled(like: Vector, value: float, matching: Matching) -> Vector:
    """Return what stands for series that the other side does not have."""
    ones = np.ones(like.present.shape, np.bool_)
    return Vector(matching.of(like.labels), np.full(like.values.shape, value), ones)


def _numbered(left: Vector, right: Vector, matching: Matching) -> tuple[Ints, Ints, int]:
    """Return for each series of both sides the number of what must agree, and how many numbers there are."""
    codes: Codes = joined([matching.of(left.labels), matching.of(right.labels)]).codes
    first, kind = distinct(codes)
    return kind[: len(left.labels)], kind[len(left.labels) :], len(first)


def _any(present: Bools, kind: Ints, kinds: int, steps: int) -> Bools:
    """Whether any series of each kind has a value, at each step."""
    found = np.zeros((kinds, steps), np.bool_)
    order = np.argsort(kind, kind="stable")
    held, starts = np.unique(kind[order], return_index=True)
    if len(held):
        found[held] = np.logical_or.reduceat(present[order], starts, axis=0)
    return found


def _pairs(many: Ints, one: Ints) -> tuple[Ints, Ints]:
    """Return the places of all pairs that agree."""
    order = np.argsort(one, kind="stable")
    ordered = one[order]
    low, high = np.searchsorted(ordered, many, "left"), np.searchsorted(ordered, many, "right")
    sizes = high - low
    rows = np.repeat(np.arange(len(many)), sizes)
    places = np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes) + np.repeat(low, sizes)
    return rows, order[places]


def _check_unique(one: Vector, kind: Ints, matching: Matching, side: str) -> None:
    twice = _twice(one.present, kind)
    if twice is None:
        return
    group = _shown(matching.of(one.labels.take([twice[0]])).sets()[0])
    two = sorted(_shown(each) for each in one.labels.take(twice).sets())
    raise QueryError(
        f"found duplicate series for the match group {group} on the {side} hand-side of the operation:"
        f" [{', '.join(two)}];many-to-many matching not allowed: matching labels must be unique on one side",
        kind="many_to_many",
    )


def _check_matches(whole: Vector, kind: Ints, matching: Matching) -> None:
    if not matching.many:
        if _twice(whole.present, kind) is not None:
            raise QueryError(
                "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)",
                kind="many_to_one",
            )
        return
    _, same = distinct(whole.labels.codes)
    if _twice(whole.present, same) is not None:
        raise QueryError("multiple matches for labels: grouping labels must ensure unique matches", kind="same_labels")


def _twice(present: Bools, kind: Ints) -> list[int] | None:
    """Return two series of one kind that have a value at the same step, if there are such."""
    if len(np.unique(kind)) == len(kind):
        return None
    order = np.argsort(kind, kind="stable")
    held, starts = np.unique(kind[order], return_index=True)
    counts = np.add.reduceat(present[order].astype(np.int64), starts, axis=0)
    if not (counts > 1).any():
        return None
    group, step = np.argwhere(counts > 1)[0].tolist()
    rows: list[int] = np.flatnonzero((kind == held[group]) & present[:, step])[:2].tolist()
    return rows


def _shown(labels: dict[str, str]) -> str:
    name = labels.get(NAME, "")
    rest = ", ".join(f'{key}="{value}"' for key, value in sorted(labels.items()) if key != NAME)
    return f"{name}{{{rest}}}" if rest or not name else name
