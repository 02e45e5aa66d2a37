"""List the scalar functions whose arguments vary in ways of their own: lists of any length, and options after them.

``VARIED`` is the whole list. What a plain list of types or an array of options can say is in ``scalar_functions`` and
``packed_functions``. It does not know columns.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from sqlglot import exp

from tidelake.query.kql.arguments import Arguments, Rule, ScalarFunction
from tidelake.query.kql.conversions import convert
from tidelake.query.kql.literals import TICKS_PER_DAY
from tidelake.query.kql.values import Value, any_of, call, cast, text_literal

SORTS = ("array_sort_asc", "array_sort_desc")


def sorted_arrays(args: Arguments) -> int:
    """Return how many arrays a sort is given: the last argument may say where nulls stand."""
    return len(args) - (len(args) > 1 and args[len(args) - 1].type == "bool")


def _array_sort(descending: bool) -> Rule:
    """Sort an array, and others along with it; the result of several is an array of them."""

    def rule(args: Arguments) -> Value:
        count = sorted_arrays(args)
        arrays = [args.as_type(at, "dynamic").sql for at in range(count)]
        if len(args) == 1:
            return Value(call(f"tide_{args.name}", *arrays), "dynamic")
        nulls_last = args.constant(count, "whether nulls are last") is not False if count < len(args) else True
        options = text_literal(json.dumps([descending, nulls_last]))
        return Value(call("tide_arrays_sorted", call("tide_pack_array", *arrays), options), "dynamic")

    return rule


def _array_index_of(args: Arguments) -> Value:
    array, value = args.as_type(0, "dynamic"), args.as_type(1, "any")
    if len(args) == 2:
        return Value(call("tide_array_index_of", array.sql, value.sql), "long")
    options = [args.constant(at, "an option") for at in range(2, len(args))]
    return Value(
        call("tide_array_index_from", array.sql, args.as_type(1, "text").sql, text_literal(json.dumps(options))), "long"
    )


def _make_timespan(args: Arguments) -> Value:
    kinds = ["real" if at == max(2, len(args) - 1) else "long" for at in range(len(args))]
    parts = [cast(args.as_type(at, kind).sql, kind) for at, kind in enumerate(kinds)]  # wide enough for their product
    if len(args) < 4:
        return Value(call("tide_make_timespan", *parts), "timespan")
    days = exp.Mul(this=exp.Paren(this=parts[0]), expression=exp.Literal.number(TICKS_PER_DAY))
    rest = call("tide_make_timespan", *parts[1:])
    return Value(exp.Paren(this=exp.Add(this=days, expression=rest)), "timespan")


def _make_string(args: Arguments) -> Value:
    items = [convert(args[at], "dynamic").sql for at in range(len(args))]
    codes = items[0] if len(items) == 1 else call("tide_pack_array", *items)
    return Value(call("tide_from_codepoints", codes), "string")


def _replace(args: Arguments) -> Value:
    """Replace by a regular expression, under the old name: the text comes last."""
    pattern, rewrite, subject = (args.as_type(at, "text").sql for at in range(3))
    return Value(call("tide_replace_regex", subject, pattern, rewrite), "string")


def _cosine(args: Arguments) -> Value:
    one, other = args.as_type(0, "dynamic").sql, args.as_type(1, "dynamic").sql
    if len(args) == 2:
        return Value(call("tide_series_cosine", one, other), "real")
    first = args.as_type(2, "real").sql
    second = args.as_type(3, "real").sql if len(args) > 3 else call("tide_series_magnitude", other.copy())
    sizes = exp.Mul(this=exp.Paren(this=first), expression=exp.Paren(this=second))
    return Value(call("tide_divide", call("tide_series_dot", one, other), exp.Paren(this=sizes)), "real")


def _stats(target: str) -> Rule:
    """Return a series' statistics; what is no number is left out, whether or not that is asked for."""
    return lambda args: Value(call(target, args.as_type(0, "dynamic").sql), "dynamic")


def _fill(target: str, *names: str) -> Rule:
    """Fill a series' gaps; the options are what fills, what else is a gap, and whether the ends are filled."""

    def rule(args: Arguments) -> Value:
        series = args.as_type(0, "dynamic")
        given = {name: args.constant(at, name) for at, name in enumerate(names[: len(args) - 1], start=1)}
        options = [given.get("constant", 0), given.get("missing"), given.get("edges", True)]
        return Value(call(target, series.sql, text_literal(json.dumps(options))), "dynamic")

    return rule


def _percentile_tdigest(args: Arguments) -> Value:
    """Return a percentile of the values that a digest keeps, as the type that is asked for."""
    share = args.as_type(1, "real").sql
    found = Value(call("tide_percentile_of", args.as_type(0, "dynamic").sql, share), "real")
    return convert(found, str(args.constant(2, "the type"))) if len(args) > 2 else found


def _ipv6_in_any(args: Arguments) -> Value:
    subject = args.as_type(0, "text").sql
    parts: list[exp.Expr] = []
    for at in range(1, len(args)):
        if args[at].type == "dynamic":
            parts.append(call("tide_ipv6_is_in_any", subject.copy(), args[at].sql))
        else:
            parts.append(call("tide_ipv6_is_match", subject.copy(), args.as_type(at, "text").sql))
    return Value(any_of(parts), "bool")


_ENTRIES: dict[str, tuple[int, int, Rule, str]] = {
    "array_sort_asc": (1, 64, _array_sort(False), "dynamic"),
    "array_sort_desc": (1, 64, _array_sort(True), "dynamic"),
    "array_index_of": (2, 5, _array_index_of, "long"),
    "replace": (3, 3, _replace, "string"),
    "make_timespan": (2, 4, _make_timespan, "timespan"),
    "make_string": (1, 64, _make_string, "string"),
    "unicode_codepoints_to_string": (1, 64, _make_string, "string"),
    "series_cosine_similarity": (2, 4, _cosine, "real"),
    "series_stats": (1, 2, _stats("tide_series_stats_list"), "dynamic"),
    "series_stats_dynamic": (1, 2, _stats("tide_series_stats"), "dynamic"),
    "series_fill_const": (2, 3, _fill("tide_series_fill_const", "constant", "missing"), "dynamic"),
    "series_fill_forward": (1, 2, _fill("tide_series_fill_forward", "missing"), "dynamic"),
    "series_fill_backward": (1, 2, _fill("tide_series_fill_backward", "missing"), "dynamic"),
    "series_fill_linear": (1, 4, _fill("tide_series_fill_linear", "missing", "edges", "constant"), "dynamic"),
    "percentile_tdigest": (2, 3, _percentile_tdigest, "real"),
    "ipv6_is_in_any_range": (2, 64, _ipv6_in_any, "bool"),
}

VARIED: Mapping[str, ScalarFunction] = {name: ScalarFunction(name, *entry) for name, entry in _ENTRIES.items()}
