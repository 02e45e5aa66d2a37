"""Declare the functions of arrays and sets, and of the lists and rows that steps of a query hold meanwhile.

In DuckDB an array is JSON, in Spark a VARIANT; a list is the engine's own. It does not know bags.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlglot import exp

from tidelake.query.functions.declaration import Function, declare
from tidelake.query.functions.macros import MACROS
from tidelake.query.functions.python import dumped
from tidelake.query.functions.templates import Writer, literal_text
from tidelake.query.kql.literals import format_span

MAX_REPEAT = 1_000_000


def _row_duckdb(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    return f"struct_pack({', '.join(f'f{at} := {text}' for at, text in enumerate(texts))})"


def _lists_duckdb(texts: Sequence[str]) -> list[str]:
    return [f"coalesce(TRY_CAST({text} AS JSON[]), [])" for text in texts]


def _array_concat_duckdb(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    return f"to_json(flatten([{', '.join(_lists_duckdb(texts))}]))"


def _set_union_duckdb(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    return f"to_json(list_sort(list_distinct(flatten([{', '.join(_lists_duckdb(texts))}]))))"


def _set_fold_duckdb(negation: str) -> Writer:
    def write(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
        lists = _lists_duckdb(texts)
        asked = any(node.find(exp.Subquery) for node in nodes)  # no lambda may hold a query: it is named before
        first, *rest = [f"l{at}" for at, _ in enumerate(lists)] if asked else lists
        found = f"list_distinct({first})"
        for other in rest:
            found = f"list_filter({found}, lambda e: {negation}list_contains({other}, e))"
        written = f"to_json(list_sort({found}))"
        if not asked:
            return written
        return f"(SELECT {written} FROM (SELECT {', '.join(f'{each} AS l{at}' for at, each in enumerate(lists))}))"

    return write


def _zip_duckdb(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    lists = _lists_duckdb(texts)
    length = f"greatest({', '.join(f'len({item})' for item in lists)})"
    cells = ", ".join(f"list_extract({item}, i + 1)" for item in lists)
    return f"to_json(list_transform(range(CAST({length} AS BIGINT)), lambda i: [{cells}]))"


def _row_spark(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    fields = ", ".join(f"'f{at}', {text}" for at, text in enumerate(texts))
    return f"named_struct({fields})"


def _field_spark(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    return f"{texts[0]}.{literal_text(nodes[1])}"


def _lists_spark(texts: Sequence[str]) -> list[str]:
    return [f"coalesce(try_cast({text} AS ARRAY<VARIANT>), array())" for text in texts]


def _array_concat_spark(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    return f"CAST(concat({', '.join(_lists_spark(texts))}) AS VARIANT)"


def _json_texts(texts: Sequence[str]) -> list[str]:
    return [f"transform({item}, e -> to_json(e))" for item in _lists_spark(texts)]


def _set_fold_spark(function: str) -> Writer:
    def write(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
        first, *rest = _json_texts(texts)
        found = f"array_distinct({first})"
        for other in rest:
            found = f"{function}({found}, {other})"
        return f"CAST(transform(sort_array({found}), e -> parse_json(e)) AS VARIANT)"

    return write


def _zip_spark(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    lists = _lists_spark(texts)
    length = f"greatest({', '.join(f'size({item})' for item in lists)})" if len(lists) > 1 else f"size({lists[0]})"
    cells = ", ".join(f"get({item}, CAST(i AS INT))" for item in lists)
    indexes = MACROS["counted"]["spark"].replace("#", length)
    return f"CAST(transform({indexes}, i -> array({cells})) AS VARIANT)"


def array_shift(array: str, options: str, direction: int) -> str:
    items, (places, fill) = json.loads(array), json.loads(options)
    shift = direction * int(places)
    kept = items[shift:] if shift >= 0 else items[:shift]
    padding = [fill] * min(abs(shift), len(items))
    return dumped(kept + padding if shift >= 0 else padding + kept)


def array_iff(conditions: str, yes: str, no: str) -> str:
    """Choose item by item; a side that is no array stands for each item."""
    tests, sides = json.loads(conditions), [json.loads(side) for side in (yes, no)]

    def item(side: Any, at: int) -> Any:
        return (side[at] if at < len(side) else None) if isinstance(side, list) else side

    def chosen(test: Any, at: int) -> Any:
        return item(sides[not test], at) if isinstance(test, bool | int | float) else None

    return dumped([chosen(test, at) for at, test in enumerate(tests)])


def range_timespan(first: str, last: str, step: str) -> str:
    low, high, by = int(first), int(last), int(step)
    count = (high - low) // by + 1
    if count > MAX_REPEAT:
        raise ValueError("too many")
    return dumped([format_span(low + at * by) for at in range(max(count, 0))])


def array_split(array: str, options: str) -> str:
    """Cut an array at some places; one from the end is counted back."""
    items, (places,) = json.loads(array), json.loads(options)
    cuts = [int(place) for place in (places if isinstance(places, list) else [places])]
    cuts = [max(0, cut + len(items)) if cut < 0 else min(cut, len(items)) for cut in cuts]
    bounds = [0, *cuts, len(items)]
    return dumped([items[bounds[at] : bounds[at + 1]] for at in range(len(bounds) - 1)])


def arrays_sorted(arrays: str, options: str) -> str:
    """Sort the first of some arrays, and the others along with it; one of another length is null.

    Numbers come before texts, and those before the rest; nulls stand at an end. Of one array there is one.
    """
    held, (descending, nulls_last) = json.loads(arrays), json.loads(options)
    first = held[0]
    known = [at for at, item in enumerate(first) if item is not None]
    nulls = [at for at, item in enumerate(first) if item is None]
    for kind in (2, 1, 0):  # from the last kind on, each is put before those after it
        of_kind = sorted((at for at in known if _rank(first[at])[0] == kind), key=lambda at: _rank(first[at])[1])
        known = (of_kind[::-1] if descending else of_kind) + [at for at in known if _rank(first[at])[0] != kind]
    order = known + nulls if nulls_last else nulls + known
    found = [[each[at] for at in order] if each and len(each) == len(first) else None for each in held]
    return dumped(found if len(found) > 1 else found[0] if first else [])


def _rank(item: Any) -> tuple[int, Any]:
    if isinstance(item, int | float) and not isinstance(item, bool):
        return 0, item
    return (1, item) if isinstance(item, str) else (2, dumped(item))


def array_index(array: str, value: str, options: str) -> int:
    """Find a value from a place on, within some length, the so manieth time; a place below zero counts from the end."""
    given: list[int] = json.loads(options)
    start, length, occurrence = (*given, *(0, -1, 1)[len(given) :])
    items = json.loads(array)
    begin = max(0, start + len(items)) if start < 0 else start
    end = len(items) if length < 0 else min(len(items), begin + length)
    places = [
        at for at in range(begin, end) if (items[at] if isinstance(items[at], str) else dumped(items[at])) == value
    ]
    return places[occurrence - 1] if 0 < occurrence <= len(places) else -1


def repeat(value: str, options: str) -> str:
    (count,) = json.loads(options)
    if not 0 <= int(count) <= MAX_REPEAT:
        raise ValueError("too many")
    return dumped([json.loads(value)] * int(count))


def jaccard(one: str, other: str) -> float:
    first, second = ({json.dumps(item, sort_keys=True) for item in json.loads(side)} for side in (one, other))
    return len(first & second) / len(first | second)


def array_rotate(array: str, places: str, direction: int) -> str:
    items = json.loads(array)
    shift = direction * int(places) % len(items) if items else 0
    return dumped(items[shift:] + items[:shift])


FUNCTIONS: tuple[Function, ...] = (
    declare("pack_array", returns="dynamic", duckdb="json_array({*})", spark="CAST(array({*}) AS VARIANT)"),
    declare(
        "array_length",
        returns="long",
        duckdb="CAST(json_array_length(CASE WHEN json_type({0}) = 'ARRAY' THEN {0} END) AS BIGINT)",
        spark="CAST(size(<list_or_null {0}>) AS BIGINT)",
    ),
    declare(
        "array_join", returns="text", duckdb="array_to_string(<texts {0}>, {1})", spark="array_join(<texts {0}>, {1})"
    ),
    declare(
        "array_reverse",
        returns="dynamic",
        duckdb="to_json(list_reverse(<list {0}>))",
        spark="CAST(reverse(<list {0}>) AS VARIANT)",
    ),
    declare(
        "array_sum",
        returns="real",
        duckdb="list_sum(list_transform(<texts {0}>, lambda e: TRY_CAST(e AS DOUBLE)))",
        spark="aggregate(<texts {0}>, 0D, (a, e) -> a + coalesce(try_cast(e AS DOUBLE), 0D))",
    ),
    declare(
        "array_sort_asc",
        returns="dynamic",
        duckdb="let[[<list_or_null {0}>]][[CASE WHEN @ IS NOT NULL THEN "
        "to_json(flatten([list_transform(list_sort(list_transform(list_filter(@, lambda e: <numeric>), "
        "lambda e: {'k': TRY_CAST(e AS DOUBLE), 'v': e})), lambda s: s.v), list_sort(list_filter(@, "
        "lambda e: json_type(e) = 'VARCHAR')), list_filter(@, lambda e: NOT <numeric> AND json_type(e) "
        "NOT IN ('VARCHAR', 'NULL')), list_filter(@, lambda e: coalesce(json_type(e), 'NULL') = "
        "'NULL')])) END]]",
        spark="let[[<list_or_null {0}>]][[CASE WHEN @ IS NOT NULL THEN "
        "CAST(concat(transform(sort_array(transform(filter(@, e -> <numeric>), e -> named_struct('k', "
        "try_cast(e AS DOUBLE), 'v', to_json(e)))), s -> parse_json(s.v)), "
        "transform(sort_array(transform(filter(@, e -> schema_of_variant(e) = 'STRING'), e -> try_cast(e "
        "AS STRING))), s -> CAST(s AS VARIANT)), filter(@, e -> NOT <numeric> AND schema_of_variant(e) "
        "NOT IN ('STRING', 'VOID')), filter(@, e -> coalesce(schema_of_variant(e), 'VOID') = 'VOID')) AS "
        "VARIANT) END]]",
    ),
    declare(
        "array_sort_desc",
        returns="dynamic",
        duckdb="let[[<list_or_null {0}>]][[CASE WHEN @ IS NOT NULL THEN "
        "to_json(flatten([list_transform(list_reverse_sort(list_transform(list_filter(@, lambda e: "
        "<numeric>), lambda e: {'k': TRY_CAST(e AS DOUBLE), 'v': e})), lambda s: s.v), "
        "list_reverse_sort(list_filter(@, lambda e: json_type(e) = 'VARCHAR')), list_filter(@, lambda e: "
        "NOT <numeric> AND json_type(e) NOT IN ('VARCHAR', 'NULL')), list_filter(@, lambda e: "
        "coalesce(json_type(e), 'NULL') = 'NULL')])) END]]",
        spark="let[[<list_or_null {0}>]][[CASE WHEN @ IS NOT NULL THEN "
        "CAST(concat(transform(sort_array(transform(filter(@, e -> <numeric>), e -> named_struct('k', "
        "try_cast(e AS DOUBLE), 'v', to_json(e))), false), s -> parse_json(s.v)), "
        "transform(sort_array(transform(filter(@, e -> schema_of_variant(e) = 'STRING'), e -> try_cast(e "
        "AS STRING)), false), s -> CAST(s AS VARIANT)), filter(@, e -> NOT <numeric> AND "
        "schema_of_variant(e) NOT IN ('STRING', 'VOID')), filter(@, e -> coalesce(schema_of_variant(e), "
        "'VOID') = 'VOID')) AS VARIANT) END]]",
    ),
    declare("arrays_sorted", returns="dynamic", python=arrays_sorted, arity=2),
    declare(
        "array_index_of",
        returns="long",
        duckdb="coalesce(list_position(<texts {0}>, CAST({1} AS VARCHAR)), 0) - 1",
        spark="CAST(coalesce(array_position(<texts {0}>, CAST({1} AS STRING)), 0) - 1 AS BIGINT)",
    ),
    declare("array_index_from", returns="long", python=array_index, arity=3),
    declare(
        "array_slice",
        returns="dynamic",
        duckdb="let[[<list_or_null {0}>]][[to_json(list_slice(@, CASE WHEN {1} < 0 THEN greatest(len(@) + {1}, "
        "0) ELSE {1} END + 1, CASE WHEN {2} < 0 THEN len(@) + {2} ELSE {2} END + 1))]]",
        spark="let[[<list_or_null {0}>]][[CAST(slice(@, CAST(CASE WHEN {1} < 0 THEN greatest(size(@) + {1}, 0) "
        "ELSE {1} END + 1 AS INT), CAST(greatest(CASE WHEN {2} < 0 THEN size(@) + {2} ELSE {2} END - "
        "CASE WHEN {1} < 0 THEN greatest(size(@) + {1}, 0) ELSE {1} END + 1, 0) AS INT)) AS VARIANT)]]",
    ),
    declare("array_split", returns="dynamic", python=array_split, arity=2),
    declare("array_concat", returns="dynamic", duckdb=_array_concat_duckdb, spark=_array_concat_spark),
    declare("array_rotate_left", returns="dynamic", python=lambda a, n: array_rotate(a, n, 1), arity=2),
    declare("array_rotate_right", returns="dynamic", python=lambda a, n: array_rotate(a, n, -1), arity=2),
    declare("array_shift", returns="dynamic", python=lambda array, options: array_shift(array, options, 1), arity=2),
    declare(
        "array_shift_right", returns="dynamic", python=lambda array, options: array_shift(array, options, -1), arity=2
    ),
    declare("array_iff", returns="dynamic", python=array_iff, arity=3),
    declare("repeat", returns="dynamic", python=repeat, arity=2),
    declare("zip", returns="dynamic", duckdb=_zip_duckdb, spark=_zip_spark),
    declare("set_union", returns="dynamic", duckdb=_set_union_duckdb, spark=_set_fold_spark("array_union")),
    declare("set_intersect", returns="dynamic", duckdb=_set_fold_duckdb(""), spark=_set_fold_spark("array_intersect")),
    declare(
        "set_difference", returns="dynamic", duckdb=_set_fold_duckdb("NOT "), spark=_set_fold_spark("array_except")
    ),
    declare(
        "set_equals",
        returns="bool",
        duckdb="(list_sort(list_distinct(<list {0}>)) = list_sort(list_distinct(<list {1}>)))",
        spark="(sort_array(array_distinct(transform(<list {0}>, e -> to_json(e)))) = "
        "sort_array(array_distinct(transform(<list {1}>, e -> to_json(e)))))",
    ),
    declare("jaccard", returns="real", python=jaccard, arity=2),
    declare(
        "range_long",
        returns="dynamic",
        duckdb="to_json(range({0}, CASE WHEN (CAST({1} AS DOUBLE) - {0}) / ({2}) >= 1048576 THEN {0} + ({2}) * "
        "1048576 ELSE {1} + sign({2})::BIGINT END, {2}))",
        spark="CAST(CASE WHEN (({1}) - ({0})) * sign({2}) < 0 THEN array() ELSE sequence(CAST({0} AS BIGINT), "
        "CASE WHEN (CAST({1} AS DOUBLE) - ({0})) / ({2}) >= 1048576 THEN CAST({0} AS BIGINT) + CAST({2} "
        "AS BIGINT) * 1048575 ELSE CAST({1} AS BIGINT) END, CAST({2} AS BIGINT)) END AS VARIANT)",
    ),
    declare(
        "range_real",
        returns="dynamic",
        duckdb="to_json(list_transform(range(0, least(CAST(floor((({1}) - ({0})) / ({2})) AS BIGINT) + 1, "
        "1048576)), lambda i: ({0}) + i * ({2})))",
        spark="CAST(transform(<counted least(CAST(floor((({1}) - ({0})) / ({2})) AS BIGINT) + 1, 1048576)>, i "
        "-> ({0}) + i * ({2})) AS VARIANT)",
    ),
    declare(
        "range_datetime",
        returns="dynamic",
        duckdb="to_json(list_transform(range(0, least(CAST(floor((epoch_us({1}) - epoch_us({0})) / (({2}) / "
        "10.0)) AS BIGINT) + 1, 1048576)), lambda i: strftime(make_timestamptz(CAST(epoch_us({0}) + i * "
        "(({2}) // 10) AS BIGINT)), <time_shape>)))",
        spark="CAST(transform(<counted least(CAST(floor((unix_micros({1}) - unix_micros({0})) / (({2}) / 10)) "
        "AS BIGINT) + 1, 1048576)>, i -> date_format(timestamp_micros(unix_micros({0}) + i * (({2}) div "
        "10)), <time_shape>)) AS VARIANT)",
    ),
    declare("range_timespan", returns="dynamic", python=range_timespan, arity=3),
    declare("list_length", returns="long", duckdb="CAST(len({0}) AS BIGINT)", spark="CAST(size({0}) AS BIGINT)"),
    declare(
        "indexes",
        duckdb="range(0, CAST({0} AS BIGINT))",
        spark="let[[CAST({0} AS BIGINT)]][[CASE WHEN @ <= 0 THEN array() ELSE sequence(0L, @ - 1) END]]",
    ),
    declare("explode", duckdb="unnest({0})", spark="explode({0})", makes_rows=True),
    declare("row", duckdb=_row_duckdb, spark=_row_spark),
    declare("field", duckdb="struct_extract({0}, {1})", spark=_field_spark),
    declare("long_pairs", duckdb="CAST({0} AS BIGINT[][])", spark="try_cast({0} AS ARRAY<ARRAY<BIGINT>>)"),
    declare("pair_item", duckdb="list_extract({0}, {1} + 1)", spark="get({0}, CAST({1} AS INT))"),
)
