"""Evaluate the tree of a query over a grid of times: every node becomes one value for all steps.

It does not read samples: who makes an ``Evaluator`` says how.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import numpy as np
import promql_parser as syntax

from tidelake.errors import QueryError
from tidelake.query.promql import functions, histograms, matching, windows
from tidelake.query.promql.aggregating import Grouping, aggregate
from tidelake.query.promql.labels import NAME, Words
from tidelake.query.promql.reading import conditions_of, placed
from tidelake.query.promql.selecting import Conditions
from tidelake.query.promql.vectors import Grid, Ints, Read, Samples, Scalar, Text, Value, Vector, Windows, united

LOOKBACK_MS = 300_000  # how long a sample stands for its series
SUBQUERY_STEP_MS = 60_000  # of a subquery that names no step
_EMPTY = syntax.VectorMatchFillValues()


@dataclass(frozen=True, slots=True)
class Span:
    """The times that the whole query asks for: what ``start()`` and ``end()`` are."""

    start_ms: int
    end_ms: int
    step_ms: int


@dataclass(frozen=True, slots=True)
class Evaluator:
    """Evaluate expressions; ``reserve`` is asked before (series, steps) are made, and refuses what is too much."""

    text: str
    span: Span
    words: Words
    read: Callable[[tuple[Conditions, ...]], Read]
    reserve: Callable[[int, int], None]
    lookback_ms: int = LOOKBACK_MS

    def value(self, tree: syntax.Expr, grid: Grid) -> Value:
        """Return the value of an expression at every time of a grid."""
        try:
            return self._value(tree, grid)
        except QueryError as error:
            raise placed(error, self.text, _word(tree)) from error.__cause__
        except RecursionError:
            raise QueryError("the query is nested too deeply", kind="too_deep") from None

    def _value(self, tree: syntax.Expr, grid: Grid) -> Value:
        match tree:
            case syntax.NumberLiteral():
                return Scalar(np.full(grid.steps, tree.val))
            case syntax.StringLiteral():
                return Text(tree.val)
            case syntax.ParenExpr():
                return self.value(tree.expr, grid)
            case syntax.UnaryExpr():
                return self._negated(self.value(tree.expr, grid))
            case syntax.VectorSelector():
                return self._instant(tree, grid)[0]
            case syntax.MatrixSelector() | syntax.SubqueryExpr():
                return self._windows(tree, grid)
            case syntax.AggregateExpr():
                return self._aggregate(tree, grid)
            case syntax.BinaryExpr():
                return self._binary(tree, grid)
            case syntax.Call():
                return self._call(tree, grid)
            case _:
                raise QueryError(f"{type(tree).__name__} is not supported", kind="unsupported")

    def vector(self, tree: syntax.Expr, grid: Grid) -> Vector:
        found = self.value(tree, grid)
        if not isinstance(found, Vector):
            raise QueryError("an instant vector is expected here", kind="type")
        return found

    def scalar(self, tree: syntax.Expr, grid: Grid) -> Scalar:
        found = self.value(tree, grid)
        if not isinstance(found, Scalar):
            raise QueryError("a scalar is expected here", kind="type")
        return found

    def _negated(self, value: Value) -> Value:
        if isinstance(value, Scalar):
            return Scalar(-value.values)
        assert isinstance(value, Vector)
        return value.nameless(-value.values)

    def _instant(self, tree: syntax.VectorSelector, grid: Grid) -> tuple[Vector, Vector]:
        """Return the newest sample of each series at each step, and as a vector of the same shape their times."""
        asked = self._moved(tree, grid)
        read = self.read(conditions_of(tree))
        samples = read.samples
        self.reserve(len(samples.labels), grid.steps)
        newest = samples.until(asked) - 1
        present = newest >= samples.first[:-1, None]
        places = np.where(present, newest, 0)
        if not len(samples.values):
            shape = (len(samples.labels), asked.steps)
            found = Vector(samples.labels, np.zeros(shape), np.zeros(shape, np.bool_))
            return self._spread(found, grid), self._spread(found, grid)
        times = samples.times_ms[places]
        present &= times > (asked.times_ms - self.lookback_ms)[None, :]
        present &= ~read.is_stale[places]
        found = Vector(samples.labels, samples.values[places], present)
        clock = replace(found, values=times / 1000.0)
        return self._spread(found, grid).compact(), self._spread(clock, grid).compact()

    def _spread(self, vector: Vector, grid: Grid) -> Vector:
        """Return a vector of one step at all steps of a grid."""
        if vector.values.shape[1] == grid.steps:
            return vector
        shape = (len(vector.labels), grid.steps)
        return replace(
            vector, values=np.broadcast_to(vector.values, shape), present=np.broadcast_to(vector.present, shape)
        )

    def _moved(self, tree: syntax.VectorSelector | syntax.SubqueryExpr, grid: Grid) -> Grid:
        """Return the times that a selector with ``offset`` and ``@`` asks for: one if ``@`` fixes it."""
        offset = _ms(tree.offset)
        at = self.fixed_ms(tree)
        if at is not None:
            return Grid(at - offset, 1, 1)
        return replace(grid, start_ms=grid.start_ms - offset)

    def fixed_ms(self, tree: syntax.VectorSelector | syntax.SubqueryExpr) -> int | None:
        """Return the time that ``@`` names."""
        if tree.at is None:
            return None
        kind = str(tree.at.type)
        if kind.endswith("Start"):
            return self.span.start_ms
        if kind.endswith("End"):
            return self.span.end_ms
        assert tree.at.at is not None
        return round(tree.at.at.timestamp() * 1000)

    def _windows(self, tree: syntax.Expr, grid: Grid) -> Windows:
        """Return the samples of a range, for each step; of a subquery, what its expression is at its own steps."""
        if isinstance(tree, syntax.SubqueryExpr):
            asked, range_ms = self._moved(tree, grid), _ms(tree.range)
            samples = self._subquery(tree, asked)
        else:
            assert isinstance(tree, syntax.MatrixSelector)
            asked, range_ms = self._moved(tree.vector_selector, grid), _ms(tree.range)
            samples = self.read(conditions_of(tree.vector_selector)).live
        self.reserve(len(samples.labels), grid.steps)
        high = samples.until(asked)
        low = samples.until(replace(asked, start_ms=asked.start_ms - range_ms))
        ends: Ints = asked.times_ms
        if asked.steps != grid.steps:
            shape = (len(samples.labels), grid.steps)
            low, high, ends = np.broadcast_to(low, shape), np.broadcast_to(high, shape), np.repeat(ends, grid.steps)
        return Windows(samples, low, high, ends, range_ms)

    def _subquery(self, tree: syntax.SubqueryExpr, asked: Grid) -> Samples:
        inner = inner_grid(tree, asked.start_ms, asked.end_ms)
        self.reserve(1, inner.steps)
        found = self.value(tree.expr, inner)
        if isinstance(found, Scalar):
            found = functions.vector_of(self.words, found)
        assert isinstance(found, Vector)
        rows, steps = np.nonzero(found.present)
        first = np.searchsorted(rows, np.arange(len(found.labels) + 1)).astype(np.int64)
        return Samples(found.labels, inner.times_ms[steps], found.values[rows, steps], first)

    def _aggregate(self, tree: syntax.AggregateExpr, grid: Grid) -> Vector:
        name = str(tree.op)
        grouping = Grouping(())
        if tree.modifier is not None:
            grouping = Grouping(tuple(tree.modifier.labels), str(tree.modifier.type).endswith("Without"))
        parameter: Any = None
        if tree.param is not None:
            given = self.value(tree.param, grid)
            parameter = given.text if isinstance(given, Text) else given.values if isinstance(given, Scalar) else None
        return aggregate(name, self.vector(tree.expr, grid), grouping, parameter)

    def _binary(self, tree: syntax.BinaryExpr, grid: Grid) -> Value:
        name = str(tree.op)
        left, right = self.value(tree.lhs, grid), self.value(tree.rhs, grid)
        how = _matching(tree)
        match left, right:
            case Scalar(), Scalar():
                return matching.scalars(name, left, right)
            case Vector(), Scalar():
                return matching.with_scalar(name, left, right, is_swapped=False, is_bool=how.is_bool)
            case Scalar(), Vector():
                return matching.with_scalar(name, right, left, is_swapped=True, is_bool=how.is_bool)
            case Vector(), Vector():
                if name in matching.SETS:
                    return matching.sets(name, left, right, how)
                if name not in matching.ARITHMETIC and name not in matching.COMPARISONS:
                    raise QueryError(f"operator {name!r} is not supported", kind="unsupported")
                return matching.vectors(name, left, right, how)
            case _:
                raise QueryError("scalars and instant vectors alone have operators", kind="type")

    def _call(self, tree: syntax.Call, grid: Grid) -> Value:
        name, args = tree.func.name, list(tree.args)
        if name in windows.FUNCTIONS:
            return self._over_time(name, self._ranged(args[0], grid), windows.FUNCTIONS[name])
        if name in functions.MATHEMATICS:
            found = self.vector(args[0], grid)
            return found.nameless(functions.MATHEMATICS[name](found.values))
        if name in functions.CLOCKS:
            asked = self.vector(args[0], grid) if args else functions.vector_of(self.words, _clock(grid))
            return asked.nameless(functions.CLOCKS[name](asked.values))
        special = getattr(self, f"_call_{name}", None)
        if special is None:
            raise QueryError(f"function {name!r} is not supported", kind="unsupported")
        found_value: Value = special(args, grid)
        return found_value

    def _ranged(self, tree: syntax.Expr, grid: Grid) -> Windows:
        found = self.value(tree, grid)
        if not isinstance(found, Windows):
            raise QueryError("a range vector is expected here", kind="type")
        return found

    def _over_time(self, name: str, asked: Windows, function: windows.Function, *more: Any) -> Vector:
        values, present = function(asked, *more)
        found = Vector(asked.samples.labels, values, present).compact()
        return united(found) if name in windows.KEEPS_NAME else found.nameless()

    def _call_quantile_over_time(self, args: Sequence[syntax.Expr], grid: Grid) -> Vector:
        wanted = self.scalar(args[0], grid).values
        return self._over_time("", self._ranged(args[1], grid), windows.quantile, wanted)

    def _call_predict_linear(self, args: Sequence[syntax.Expr], grid: Grid) -> Vector:
        ahead = self.scalar(args[1], grid).values
        return self._over_time("", self._ranged(args[0], grid), windows.prediction, grid.times_ms, ahead)

    def _call_double_exponential_smoothing(self, args: Sequence[syntax.Expr], grid: Grid) -> Vector:
        factors = [self.scalar(each, grid).values for each in args[1:]]
        return self._over_time("", self._ranged(args[0], grid), windows.smoothed, *factors)

    _call_holt_winters = _call_double_exponential_smoothing

    def _call_absent(self, args: Sequence[syntax.Expr], grid: Grid) -> Vector:
        return functions.absent(self.words, self.vector(args[0], grid), _absent_labels(args[0]), grid)

    def _call_absent_over_time(self, args: Sequence[syntax.Expr], grid: Grid) -> Vector:
        asked = self._ranged(args[0], grid)
        values, present = windows.presence(asked)
        there = Vector(asked.samples.labels, values, present)
        return functions.absent(self.words, there, _absent_labels(args[0]), grid)

    def _call_time(self, args: Sequence[syntax.Expr], grid: Grid) -> Scalar:
        return _clock(grid)

    def _call_pi(self, args: Sequence[syntax.Expr], grid: Grid) -> Scalar:
        return Scalar(np.full(grid.steps, np.pi))

    def _call_start(self, args: Sequence[syntax.Expr], grid: Grid) -> Scalar:
        return Scalar(np.full(grid.steps, self.span.start_ms / 1000.0))

    def _call_end(self, args: Sequence[syntax.Expr], grid: Grid) -> Scalar:
        return Scalar(np.full(grid.steps, self.span.end_ms / 1000.0))

    def _call_range(self, args: Sequence[syntax.Expr], grid: Grid) -> Scalar:
        return Scalar(np.full(grid.steps, (self.span.end_ms - self.span.start_ms) / 1000.0))

    def _call_step(self, args: Sequence[syntax.Expr], grid: Grid) -> Scalar:
        return Scalar(np.full(grid.steps, self.span.step_ms / 1000.0))

    def _call_max_of(self, args: Sequence[syntax.Expr], grid: Grid) -> Scalar:
        return Scalar(np.maximum(self.scalar(args[0], grid).values, self.scalar(args[1], grid).values))

    def _call_min_of(self, args: Sequence[syntax.Expr], grid: Grid) -> Scalar:
        return Scalar(np.minimum(self.scalar(args[0], grid).values, self.scalar(args[1], grid).values))

    def _call_scalar(self, args: Sequence[syntax.Expr], grid: Grid) -> Scalar:
        return functions.scalar_of(self.vector(args[0], grid))

    def _call_vector(self, args: Sequence[syntax.Expr], grid: Grid) -> Vector:
        return functions.vector_of(self.words, self.scalar(args[0], grid))

    def _call_timestamp(self, args: Sequence[syntax.Expr], grid: Grid) -> Vector:
        inner = args[0]
        while isinstance(inner, syntax.ParenExpr):
            inner = inner.expr
        if isinstance(inner, syntax.VectorSelector):
            return self._instant(inner, grid)[1].nameless()
        found = self.vector(inner, grid)
        return found.nameless(np.broadcast_to(_clock(grid).values[None, :], found.values.shape))

    def _call_round(self, args: Sequence[syntax.Expr], grid: Grid) -> Vector:
        nearest = self.scalar(args[1], grid).values if len(args) > 1 else np.ones(grid.steps)
        return functions.rounded(self.vector(args[0], grid), nearest)

    def _call_clamp(self, args: Sequence[syntax.Expr], grid: Grid) -> Vector:
        low, high = (self.scalar(each, grid).values for each in args[1:3])
        return functions.clamped(self.vector(args[0], grid), low, high)

    def _call_clamp_min(self, args: Sequence[syntax.Expr], grid: Grid) -> Vector:
        low = self.scalar(args[1], grid).values
        return functions.clamped(self.vector(args[0], grid), low, np.full(grid.steps, np.inf))

    def _call_clamp_max(self, args: Sequence[syntax.Expr], grid: Grid) -> Vector:
        high = self.scalar(args[1], grid).values
        return functions.clamped(self.vector(args[0], grid), np.full(grid.steps, -np.inf), high)

    def _call_sort(self, args: Sequence[syntax.Expr], grid: Grid) -> Vector:
        return functions.sorted_by_value(self.vector(args[0], grid), descending=False)

    def _call_sort_desc(self, args: Sequence[syntax.Expr], grid: Grid) -> Vector:
        return functions.sorted_by_value(self.vector(args[0], grid), descending=True)

    def _call_sort_by_label(self, args: Sequence[syntax.Expr], grid: Grid) -> Vector:
        return functions.sorted_by_label(self.vector(args[0], grid), _texts(args[1:]), descending=False)

    def _call_sort_by_label_desc(self, args: Sequence[syntax.Expr], grid: Grid) -> Vector:
        return functions.sorted_by_label(self.vector(args[0], grid), _texts(args[1:]), descending=True)

    def _call_label_replace(self, args: Sequence[syntax.Expr], grid: Grid) -> Vector:
        target, template, source, pattern = _texts(args[1:5])
        return functions.label_replace(self.vector(args[0], grid), target, template, source, pattern)

    def _call_label_join(self, args: Sequence[syntax.Expr], grid: Grid) -> Vector:
        target, separator, *sources = _texts(args[1:])
        return functions.label_join(self.vector(args[0], grid), target, separator, sources)

    def _call_histogram_quantile(self, args: Sequence[syntax.Expr], grid: Grid) -> Vector:
        wanted = self.scalar(args[0], grid).values
        return histograms.quantiles(self.vector(args[1], grid), wanted)

    def _call_histogram_fraction(self, args: Sequence[syntax.Expr], grid: Grid) -> Vector:
        lower, upper = (self.scalar(each, grid).values for each in args[:2])
        return histograms.fractions(self.vector(args[2], grid), lower, upper)


def inner_grid(tree: syntax.SubqueryExpr, start_ms: int, end_ms: int) -> Grid:
    """Return the times at which a subquery's expression is evaluated: multiples of its step, after its range begins."""
    step = _ms(tree.step) or SUBQUERY_STEP_MS
    begin = start_ms - _ms(tree.range)
    first = begin // step * step + step  # the first multiple that is after the beginning
    return Grid(first, step, max((end_ms - first) // step + 1, 0))


def _clock(grid: Grid) -> Scalar:
    return Scalar(grid.times_ms / 1000.0)


def _ms(given: timedelta | None) -> int:
    return 0 if given is None else given // timedelta(milliseconds=1)


def _matching(tree: syntax.BinaryExpr) -> matching.Matching:
    given = tree.modifier
    if given is None:
        return matching.Matching()
    card = str(given.card)
    many = "left" if card.endswith("ManyToOne") else "right" if card.endswith("OneToMany") else ""
    on = given.matching is not None and str(given.matching.type).endswith("Include")
    fills = given.fill_values or _EMPTY
    labels = () if given.matching is None else tuple(given.matching.labels)
    include = tuple(given.group_labels or ())
    return matching.Matching(labels, on, many, include, given.return_bool, fills.lhs, fills.rhs)


def _texts(args: Sequence[syntax.Expr]) -> list[str]:
    found = []
    for each in args:
        while isinstance(each, syntax.ParenExpr):
            each = each.expr
        if not isinstance(each, syntax.StringLiteral):
            raise QueryError("a text is expected here", kind="type")
        found.append(each.val)
    return found


def _absent_labels(tree: syntax.Expr) -> dict[str, str]:
    """Return the labels that a selector says its series have: those that it compares once, and as equal."""
    while isinstance(tree, syntax.ParenExpr):
        tree = tree.expr
    if isinstance(tree, syntax.MatrixSelector):
        tree = tree.vector_selector
    if not isinstance(tree, syntax.VectorSelector):
        return {}
    found: dict[str, str] = {}
    seen: set[str] = set()
    for each in (one for several in conditions_of(tree) for one in several):
        if each.label == NAME:
            continue
        if each.sign == "=" and each.label not in seen:
            found[each.label] = each.text
            seen.add(each.label)
        else:
            found.pop(each.label, None)
    return found


def _word(tree: syntax.Expr) -> str:
    match tree:
        case syntax.Call():
            return tree.func.name
        case syntax.AggregateExpr():
            return str(tree.op)
        case syntax.BinaryExpr() if str(tree.op).isalnum():
            return str(tree.op)
        case syntax.VectorSelector():
            return tree.name or ""
        case _:
            return ""
