"""Declare how plain values are read out of dynamic ones, and what dynamic values consist of.

``text``, ``number``, ``flag`` and ``time`` are strict: a value of another type is null, as it is in a scan's own
filter, so that a condition means the same wherever it is asked. ``as_…`` and ``shown`` convert what can be converted.
In DuckDB a dynamic value is JSON, in Spark a VARIANT. It does not know tables.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlglot import exp

from tidelake.query.functions.declaration import Function, declare
from tidelake.query.functions.patterns import duckdb_text, path_ways, spark_text
from tidelake.query.functions.python import dumped
from tidelake.query.functions.templates import literal_text, named


def _get_duckdb(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    path = literal_text(nodes[1])
    assert path is not None, "a path is a literal"
    ways = [_pointer(way) for way in path_ways(path)]
    if len(ways) == 1:
        return f"nullif(json_extract({texts[0]}, {ways[0]}), 'null'::JSON)"
    parts = ", ".join(f"json_extract(tide_v, {way})" for way in ways)
    found = named(texts[0], f"coalesce({parts})", "duckdb")
    return f"nullif({found}, 'null'::JSON)"


def _pointer(way: Sequence[str | int]) -> str:
    steps = "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in way)
    return duckdb_text(steps)


def _parse_json_spark(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    if (written := literal_text(nodes[0])) is not None:
        if not written.strip():
            return "CAST(NULL AS VARIANT)"
        return _not_null(f"coalesce(try_parse_json({texts[0]}), CAST({texts[0]} AS VARIANT))")
    parsed = "CASE WHEN trim(tide_v) <> '' THEN coalesce(try_parse_json(tide_v), CAST(tide_v AS VARIANT)) END"
    return _not_null(named(texts[0], parsed, "spark"))


def _at_spark(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    index = f"CAST(CASE WHEN {texts[1]} < 0 THEN size(tide_v) + {texts[1]} ELSE {texts[1]} END AS INT)"
    return _not_null(named(f"try_cast({texts[0]} AS ARRAY<VARIANT>)", f"get(tide_v, {index})", "spark"))


def _key_spark(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    return _not_null(f"element_at(try_cast({texts[0]} AS MAP<STRING, VARIANT>), {texts[1]})")


def _item_spark(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    return _not_null(f"get({texts[0]}, CAST({texts[1]} AS INT))")


def _get_spark(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    path = literal_text(nodes[1])
    assert path is not None, "a path is a literal"
    ways = [spark_text(_json_path(way)) for way in path_ways(path)]
    if len(ways) == 1:
        return _not_null(f"try_variant_get({texts[0]}, {ways[0]}, 'variant')")
    parts = ", ".join(f"try_variant_get(tide_v, {way}, 'variant')" for way in ways)
    return _not_null(named(texts[0], f"coalesce({parts})", "spark"))


def _json_path(way: Sequence[str | int]) -> str:
    return "$" + "".join(f"[{step}]" if isinstance(step, int) else _member(step) for step in way)


def _member(key: str) -> str:
    return f"['{key}']" if '"' in key else f'["{key}"]'


def _not_null(sql: str) -> str:
    """Return a variant with JSON's null as SQL's."""
    return named(sql, "CASE WHEN is_variant_null(tide_v) THEN NULL ELSE tide_v END", "spark")


def build_schema(values: str) -> str:
    """Describe the types that values have: one, or several as a list; bags by key, arrays under ``indexer``."""
    kinds: list[Any] = []
    bags: dict[str, list[Any]] = {}
    items: list[Any] = []
    for value in json.loads(values):
        match value:
            case dict():
                for key, inner in value.items():
                    bags.setdefault(key, []).append(inner)
                kinds.append("bag")
            case list():
                items += value
                kinds.append("array")
            case bool() | int() | float() | str():
                name = {bool: "bool", int: "long", float: "double", str: "string"}[type(value)]
                kinds.append(name)
    found: list[Any] = []
    for kind in dict.fromkeys(kinds):
        if kind == "bag":
            found.append({key: json.loads(build_schema(json.dumps(inner))) for key, inner in bags.items()})
        elif kind == "array":
            found.append({"`indexer`": json.loads(build_schema(json.dumps(items)))})
        else:
            found.append(kind)
    return dumped(found[0] if len(found) == 1 else found or None)


def treepath(value: str) -> str:
    """List the paths of everything within a value, as KQL writes them."""
    found: list[str] = []

    def walk(item: Any, path: str) -> None:
        if isinstance(item, dict):
            for key, inner in item.items():
                found.append(f"{path}['{key}']")
                walk(inner, f"{path}['{key}']")
        elif isinstance(item, list) and item:
            found.append(f"{path}[0]")
            walk(item[0], f"{path}[0]")

    walk(json.loads(value), "")
    return dumped(found)


FUNCTIONS: tuple[Function, ...] = (
    declare(
        "text",
        returns="text",
        duckdb="CASE WHEN json_type({0}) = 'VARCHAR' THEN json_extract_string({0}, '$') END",
        spark="CASE WHEN schema_of_variant({0}) = 'STRING' THEN try_variant_get({0}, '$', 'string') END",
        is_tree=True,
    ),
    declare(
        "number",
        returns="real",
        duckdb="CASE WHEN json_type({0}) IN ('BIGINT', 'UBIGINT', 'DOUBLE', 'HUGEINT', 'UHUGEINT')"
        " THEN CAST({0} AS DOUBLE) END",
        spark="CASE WHEN (schema_of_variant({0}) IN ('BIGINT', 'DOUBLE', 'FLOAT', 'INT', 'SMALLINT', 'TINYINT')"
        " OR schema_of_variant({0}) LIKE 'DECIMAL%')"
        " THEN try_variant_get({0}, '$', 'double') END",
        is_tree=True,
    ),
    declare(
        "flag",
        returns="bool",
        duckdb="CASE WHEN json_type({0}) = 'BOOLEAN' THEN CAST({0} AS BOOLEAN) END",
        spark="CASE WHEN schema_of_variant({0}) = 'BOOLEAN' THEN try_variant_get({0}, '$', 'boolean') END",
        is_tree=True,
    ),
    declare(
        "time",
        returns="time",
        duckdb="CASE WHEN json_type({0}) = 'VARCHAR' THEN TRY_CAST(json_extract_string({0}, '$') AS TIMESTAMPTZ) END",
        spark="CASE WHEN schema_of_variant({0}) IN ('STRING', 'TIMESTAMP') THEN"
        " try_variant_get({0}, '$', 'timestamp') END",
        is_tree=True,
    ),
    declare(
        "shown",
        returns="text",
        duckdb="json_extract_string({0}, '$')",
        spark="CASE WHEN schema_of_variant({0}) = 'STRING' THEN try_variant_get({0}, '$', 'string') "
        "ELSE to_json({0}) END",
        is_tree=True,
    ),
    declare(
        "as_long",
        returns="long",
        duckdb="CAST(TRUNC(TRY_CAST(json_extract_string({0}, '$') AS DOUBLE)) AS BIGINT)",
        spark="CAST(TRY_CAST(try_variant_get({0}, '$', 'string') AS DOUBLE) AS BIGINT)",
        is_tree=True,
    ),
    declare(
        "as_real",
        returns="real",
        duckdb="TRY_CAST(json_extract_string({0}, '$') AS DOUBLE)",
        spark="TRY_CAST(try_variant_get({0}, '$', 'string') AS DOUBLE)",
        is_tree=True,
    ),
    declare(
        "as_bool",
        returns="bool",
        duckdb="TRY_CAST(json_extract_string({0}, '$') AS BOOLEAN)",
        spark="TRY_CAST(try_variant_get({0}, '$', 'string') AS BOOLEAN)",
        is_tree=True,
    ),
    declare(
        "as_time",
        returns="time",
        duckdb="TRY_CAST(json_extract_string({0}, '$') AS TIMESTAMPTZ)",
        spark="TRY_CAST(try_variant_get({0}, '$', 'string') AS TIMESTAMP)",
        is_tree=True,
    ),
    declare(
        "parse_json",
        returns="dynamic",
        duckdb="let[[{0}]][[CASE WHEN trim(@) = '' THEN NULL WHEN json_valid(@) THEN nullif(json(@), "
        "'null'::JSON) ELSE to_json(@) END]]",
        spark=_parse_json_spark,
    ),
    declare("get", returns="dynamic", duckdb=_get_duckdb, spark=_get_spark),
    declare(
        "at",
        returns="dynamic",
        duckdb="nullif(json_extract({0}, CASE WHEN {1} < 0 THEN '$[#' || CAST({1} AS VARCHAR) || ']' ELSE '$[' "
        "|| CAST({1} AS VARCHAR) || ']' END), 'null'::JSON)",
        spark=_at_spark,
    ),
    declare(
        "key", returns="dynamic", duckdb="nullif(json_extract({0}, <pointer {1}>), 'null'::JSON)", spark=_key_spark
    ),
    declare(
        "items_bag",
        duckdb="let[[{0}]][[<items> WHEN json_type(@) = 'OBJECT' THEN list_transform(json_keys(@), lambda k: "
        "json_object(k, json_extract(@, <pointer k>))) ELSE [@] END]]",
        spark="let[[{0}]][[<items> WHEN startswith(schema_of_variant(@), 'OBJECT') THEN "
        "transform(map_entries(<bag @>), e -> to_variant_object(map(e.key, e.value))) ELSE array(@) END]]",
    ),
    declare(
        "items_array",
        duckdb="let[[{0}]][[<items> WHEN json_type(@) = 'OBJECT' THEN list_transform(json_keys(@), lambda k: "
        "to_json([to_json(k), json_extract(@, <pointer k>)])) ELSE [@] END]]",
        spark="let[[{0}]][[<items> WHEN startswith(schema_of_variant(@), 'OBJECT') THEN "
        "transform(map_entries(<bag @>), e -> CAST(array(CAST(e.key AS VARIANT), e.value) AS VARIANT)) "
        "ELSE array(@) END]]",
    ),
    declare(
        "type_of",
        returns="text",
        duckdb="CASE json_type(to_json({0})) WHEN 'VARCHAR' THEN 'string' WHEN 'OBJECT' THEN 'dictionary' WHEN "
        "'ARRAY' THEN 'array' WHEN 'BOOLEAN' THEN 'bool' WHEN 'DOUBLE' THEN 'double' WHEN 'NULL' THEN "
        "'null' ELSE CASE WHEN {0} IS NULL THEN 'null' ELSE 'long' END END",
        spark="let[[schema_of_variant({0})]][[CASE WHEN startswith(@, 'OBJECT') THEN 'dictionary' WHEN "
        "startswith(@, 'ARRAY') THEN 'array' WHEN @ = 'STRING' THEN 'string' WHEN @ = 'BOOLEAN' THEN "
        "'bool' WHEN @ = 'BIGINT' THEN 'long' WHEN @ = 'VOID' OR @ IS NULL THEN 'null' ELSE 'double' "
        "END]]",
    ),
    declare("build_schema", returns="dynamic", python=build_schema, arity=1),
    declare("treepath", returns="dynamic", python=treepath, arity=1),
    declare("item", returns="dynamic", duckdb="list_extract({0}, CAST({1} + 1 AS BIGINT))", spark=_item_spark),
)
