"""Evaluate functions of vectors and scalars: mathematics, clocks, labels, and what is absent.

It does not evaluate arguments, nor functions of ranges: see ``windows``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from tidelake.errors import QueryError
from tidelake.query.promql.labels import NAME, Labels, Words
from tidelake.query.promql.vectors import Floats, Grid, Scalar, Vector, united

Elementwise: TypeAlias = Callable[[Floats], Floats]

_DAY = 86_400
_GROUP = re.compile(r"\$(?:\$|\{(\w+)\}|(\w+))")


def _days(seconds: Floats) -> Any:
    return np.floor(_known(seconds) / _DAY).astype("int64").astype("datetime64[D]")


def _known(seconds: Floats) -> Floats:
    """Return times as whole seconds; what is no time counts as 1970 here, and as NaN in the end."""
    return np.floor(np.where(np.isfinite(seconds) & (np.abs(seconds) < 1e14), seconds, 0.0))


def _clock(read: Elementwise) -> Elementwise:
    return lambda seconds: np.where(np.isnan(seconds), np.nan, read(seconds).astype(np.float64))


def _of_year(seconds: Floats) -> Floats:
    days = _days(seconds)
    return np.asarray(days - days.astype("datetime64[Y]").astype("datetime64[D]"), np.float64) + 1


def _of_month(seconds: Floats) -> Floats:
    days = _days(seconds)
    return np.asarray(days - days.astype("datetime64[M]").astype("datetime64[D]"), np.float64) + 1


def _month_length(seconds: Floats) -> Floats:
    months = _days(seconds).astype("datetime64[M]")
    return np.asarray((months + 1).astype("datetime64[D]") - months.astype("datetime64[D]"), np.float64)


CLOCKS: dict[str, Elementwise] = {
    "minute": _clock(lambda seconds: _known(seconds) // 60 % 60),
    "hour": _clock(lambda seconds: _known(seconds) // 3600 % 24),
    "day_of_week": _clock(lambda seconds: (_known(seconds) // _DAY + 4) % 7),  # 1970 began on a Thursday
    "day_of_month": _clock(_of_month),
    "day_of_year": _clock(_of_year),
    "days_in_month": _clock(_month_length),
    "month": _clock(lambda seconds: _days(seconds).astype("datetime64[M]").astype(np.float64) % 12 + 1),
    "year": _clock(lambda seconds: _days(seconds).astype("datetime64[Y]").astype(np.float64) + 1970),
}
MATHEMATICS: dict[str, Elementwise] = {
    "abs": np.abs,
    "ceil": np.ceil,
    "floor": np.floor,
    "exp": np.exp,
    "sqrt": np.sqrt,
    "ln": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "sgn": lambda values: np.where(np.isnan(values), np.nan, np.sign(values)),
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "rad": np.radians,
    "deg": np.degrees,
}


def rounded(vector: Vector, nearest: Floats) -> Vector:
    """Round to the nearest multiple, and what is in the middle up."""
    inverse = 1.0 / nearest[None, :]
    return vector.nameless(np.floor(vector.values * inverse + 0.5) / inverse)


def clamped(vector: Vector, low: Floats, high: Floats) -> Vector:
    """Bound values from below and above; nothing is left where the bounds cross."""
    kept = ~(high < low)
    values = np.maximum(low[None, :], np.minimum(high[None, :], vector.values))
    return vector.where(np.broadcast_to(kept[None, :], vector.present.shape)).nameless(values)


def scalar_of(vector: Vector) -> Scalar:
    """Return the value of the only series that has one at a step, or NaN."""
    alone = vector.present.sum(axis=0) == 1
    return Scalar(np.where(alone, np.where(vector.present, vector.values, 0.0).sum(axis=0), np.nan))


def vector_of(words: Words, scalar: Scalar) -> Vector:
    """Return a vector of one series without labels."""
    values = scalar.values[None, :]
    return Vector(Labels.nothing(words, 1), values, np.ones(values.shape, np.bool_))


def absent(words: Words, vector: Vector, labels: dict[str, str], grid: Grid) -> Vector:
    """Return 1 at the steps where a vector has no value, with the labels that its selector says."""
    missing = ~np.any(vector.present, axis=0, keepdims=True).reshape(1, grid.steps)
    return Vector(Labels.of(words, [labels]), np.ones((1, grid.steps)), missing)


def label_replace(vector: Vector, target: str, template: str, source: str, pattern: str) -> Vector:
    """Set a label from what a pattern finds in another; a loop over the distinct values of that."""
    try:
        matcher = re.compile(f"(?s:{_python_regex(pattern)})")
    except re.error as error:
        raise QueryError(
            f"invalid regular expression in label_replace(): {pattern}", kind="bad_regex", reason=error
        ) from None
    _check_label(target, "destination", "label_replace")
    words, labels = vector.labels.words, vector.labels
    distinct, where = np.unique(labels.column(source), return_inverse=True)
    found = [matcher.fullmatch(words.texts[code]) for code in distinct.tolist()]
    texts = [0 if match is None else words.number(_expanded(template, match)) for match in found]
    is_found = np.array([match is not None for match in found], np.bool_)[where.reshape(-1)]
    codes = np.where(is_found, np.array(texts, np.int64)[where.reshape(-1)], labels.column(target))
    return united(replace(vector, labels=labels.replaced(target, codes)))


def label_join(vector: Vector, target: str, separator: str, sources: Sequence[str]) -> Vector:
    """Set a label to several others, joined."""
    _check_label(target, "destination", "label_join")
    for source in sources:
        _check_label(source, "source", "label_join")
    words, labels = vector.labels.words, vector.labels
    rows, where = np.unique(labels.columns(sources), axis=0, return_inverse=True)
    texts = [words.number(separator.join(words.texts[code] for code in row)) for row in rows.tolist()]
    codes = np.array(texts, np.int64)[where.reshape(-1)] if len(texts) else np.zeros(len(labels), np.int64)
    return united(replace(vector, labels=labels.replaced(target, codes)))


def sorted_by_value(vector: Vector, *, descending: bool) -> Vector:
    """Order series by their values, NaN last; of several steps, order means nothing."""
    if vector.values.shape[1] != 1:
        return vector
    held = vector.compact()
    values = held.values[:, 0]
    order = np.lexsort((-values if descending else values, np.isnan(values)))
    return replace(held.take(order), is_ordered=True)


def sorted_by_label(vector: Vector, names: Sequence[str], *, descending: bool) -> Vector:
    """Order series by labels as people count: ``node2`` before ``node10``; what is equal, by all labels."""
    if vector.values.shape[1] != 1:
        return vector
    held = vector.compact()
    sets = held.labels.sets()
    keys = [([_natural(each.get(name, "")) for name in names], sorted(each.items())) for each in sets]
    order = sorted(range(len(keys)), key=keys.__getitem__, reverse=descending)
    return replace(held.take(np.array(order, np.intp)), is_ordered=True)


def _natural(text: str) -> list[tuple[int, int, str]]:
    """Return a key by which numbers in texts are compared as numbers."""
    return [(0, int(part), part) if part.isdigit() else (1, 0, part) for part in re.findall(r"[0-9]+|[^0-9]+", text)]


def _python_regex(pattern: str) -> str:
    return pattern.replace(r"\z", r"\Z")


def _expanded(template: str, match: re.Match[str]) -> str:
    """Fill ``$1`` and ``${name}`` into a template; what a pattern does not have is empty."""

    def filled(found: re.Match[str]) -> str:
        if found[0] == "$$":
            return "$"
        name = found[1] or found[2]
        key: int | str = int(name) if name.isdigit() else name
        try:
            return match[key] or ""
        except IndexError:
            return ""

    return _GROUP.sub(filled, template)


def _check_label(name: str, which: str, function: str) -> None:
    if not name or (name != NAME and not name.isprintable()):
        raise QueryError(f"invalid {which} label name in {function}(): {name}", kind="bad_label")
