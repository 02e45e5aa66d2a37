"""Declare what Spark does to lists and maps, with or without a function given as ``x -> …``.

Places in a list are counted from zero for such a function in Spark, and from one in DuckDB. It does not run SQL.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from tidelake.errors import QueryError
from tidelake.query.functions.declaration import Function, of_spark
from tidelake.query.functions.templates import Writer


def _body(node: exp.Expr, text: str, *arguments: str) -> str:
    """Return what a function gives for some arguments, each a name or a short expression."""
    if not isinstance(node, exp.Lambda):
        return text  # a value that is the same for all
    made = node.this.copy()
    held = exp.Paren(this=made)
    named = dict(zip([each.name for each in node.expressions], arguments, strict=False))
    for column in list(held.find_all(exp.Column, exp.Identifier)):
        if isinstance(column, exp.Identifier) and isinstance(column.parent, exp.Column | exp.Lambda | exp.PropertyEQ):
            continue
        bare = column.parts[0].name if isinstance(column, exp.Column) and len(column.parts) > 1 else column.name
        if bare in named and not (isinstance(column, exp.Column) and len(column.parts) > 2):
            rest = f".{column.name}" if isinstance(column, exp.Column) and len(column.parts) > 1 else ""
            column.replace(exp.Var(this=named[bare] + rest))
    return f"({held.this.sql('duckdb')})"


def _two(node: exp.Expr) -> bool:
    return isinstance(node, exp.Lambda) and len(node.expressions) > 1


def _transform(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    if _two(nodes[1]):
        return f"list_transform({texts[0]}, lambda tide_x, tide_i: {_body(nodes[1], texts[1], 'tide_x', '(CAST(tide_i AS INTEGER) - 1)')})"
    return f"list_transform({texts[0]}, lambda tide_x: {_body(nodes[1], texts[1], 'tide_x')})"


def _filter(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    if _two(nodes[1]):
        return f"list_filter({texts[0]}, lambda tide_x, tide_i: {_body(nodes[1], texts[1], 'tide_x', '(CAST(tide_i AS INTEGER) - 1)')})"
    return f"list_filter({texts[0]}, lambda tide_x: {_body(nodes[1], texts[1], 'tide_x')})"


def _any_of(whole: str) -> Writer:
    """Write whether some or all of a list hold; of an empty one the ``whole`` answer is known."""
    function = "list_bool_or" if whole == "FALSE" else "list_bool_and"

    def write(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
        held = f"list_transform({texts[0]}, lambda tide_x: {_body(nodes[1], texts[1], 'tide_x')})"
        deciding = "TRUE" if whole == "FALSE" else "FALSE"
        return (
            f"CASE WHEN ({texts[0]}) IS NULL THEN NULL WHEN len({texts[0]}) = 0 THEN {whole} "
            f"WHEN {function}({held}) = {deciding} THEN {deciding} WHEN list_count({held}) < len({held}) THEN NULL ELSE {whole} END"
        )

    return write


def _reduce(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    step = (
        f"list_reduce({texts[0]}, lambda tide_s, tide_x: {_body(nodes[2], texts[2], 'tide_s', 'tide_x')}, {texts[1]})"
    )
    if len(nodes) < 4:
        return step
    return f"list_transform([{step}], lambda tide_r: {_body(nodes[3], texts[3], 'tide_r')})[1]"


def _zip_with(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    one, other = texts[0], texts[1]
    body = _body(nodes[2], texts[2], f"({one})[tide_i]", f"({other})[tide_i]")
    return f"list_transform(range(1, greatest(len({one}), len({other})) + 1), lambda tide_i: {body})"


def _map_filter(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    body = _body(nodes[1], texts[1], "tide_e.key", "tide_e.value")
    return f"map_from_entries(list_filter(map_entries({texts[0]}), lambda tide_e: {body}))"


def _transform_values(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    body = _body(nodes[1], texts[1], "tide_e.key", "tide_e.value")
    made = "{'k': tide_e.key, 'v': " + body + "}"
    return f"map_from_entries(list_transform(map_entries({texts[0]}), lambda tide_e: {made}))"


def _transform_keys(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    body = _body(nodes[1], texts[1], "tide_e.key", "tide_e.value")
    made = "{'k': " + body + ", 'v': tide_e.value}"
    return f"map_from_entries(list_transform(map_entries({texts[0]}), lambda tide_e: {made}))"


def _map_zip_with(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    one, other = texts[0], texts[1]
    body = _body(nodes[2], texts[2], "tide_k", f"({one})[tide_k]", f"({other})[tide_k]")
    keys = f"list_distinct(list_concat(map_keys({one}), map_keys({other})))"
    return f"map_from_entries(list_transform({keys}, lambda tide_k: {{'k': tide_k, 'v': {body}}}))"


def _sort_array(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    """Write a sorting, ascending with nulls first unless it is told to descend."""
    if len(texts) < 2:
        return f"list_sort({texts[0]}, 'ASC', 'NULLS FIRST')"
    return (
        f"CASE WHEN {texts[1]} THEN list_sort({texts[0]}, 'ASC', 'NULLS FIRST') "
        f"WHEN NOT ({texts[1]}) THEN list_sort({texts[0]}, 'DESC', 'NULLS LAST') END"
    )


def _array_sort(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    if len(texts) > 1:
        raise QueryError("array_sort takes no function in process: ask with engine='spark'", kind="unsupported")
    return f"list_sort({texts[0]}, 'ASC', 'NULLS LAST')"


def _array_insert(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    """Write an insertion, counted from one, or from the end; places between are null."""
    items, place, item = texts
    before = f"list_resize(list_slice({items}, 1, CAST({place} AS BIGINT) - 1), CAST({place} AS BIGINT) - 1)"
    after = f"list_slice({items}, CAST({place} AS BIGINT), len({items}))"
    back_before = f"list_slice({items}, 1, len({items}) + CAST({place} AS BIGINT) + 1)"
    back_after = f"list_slice({items}, len({items}) + CAST({place} AS BIGINT) + 2, len({items}))"
    gap = f"list_resize([{item}], CAST(greatest(-({place}) - len({items}), 1) AS BIGINT))"
    return (
        f"CASE WHEN ({place}) > 0 THEN list_concat({before}, [{item}], {after}) "
        f"WHEN -({place}) > len({items}) THEN list_concat({gap}, {items}) "
        f"WHEN ({place}) < 0 THEN list_concat({back_before}, [{item}], {back_after}) END"
    )


NESTED: tuple[Function, ...] = (
    of_spark("transform", duckdb=_transform),
    of_spark("filter", duckdb=_filter),
    of_spark("exists", returns="bool", duckdb=_any_of("FALSE")),
    of_spark("forall", returns="bool", duckdb=_any_of("TRUE")),
    *(of_spark(name, duckdb=_reduce) for name in ("aggregate", "reduce")),
    of_spark("zip_with", duckdb=_zip_with),
    of_spark("map_filter", duckdb=_map_filter),
    of_spark("transform_values", duckdb=_transform_values),
    of_spark("transform_keys", duckdb=_transform_keys),
    of_spark("map_zip_with", duckdb=_map_zip_with),
    of_spark("array_sort", duckdb=_array_sort),
    of_spark("sort_array", duckdb=_sort_array),
    of_spark("array_insert", duckdb=_array_insert),
)
