"""Declare the functions of bags: dynamic values that have keys.

Of a key that several bags have, the first counts. It does not know arrays.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import zip_longest

from sqlglot import exp

from tidelake.query.functions.declaration import Function, declare
from tidelake.query.functions.python import dumped


def _bag_merge_duckdb(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    """Merge bags: of a key that several have, the first counts."""
    bag = "coalesce(CAST(CASE WHEN json_type({0}) = 'OBJECT' THEN {0} END AS MAP(VARCHAR, JSON)), MAP {{}})"
    return f"to_json(map_concat({', '.join(bag.format(text) for text in reversed(texts))}))"


def _bag_merge_spark(nodes: Sequence[exp.Expr], texts: Sequence[str]) -> str:
    """Merge bags: of a key that several have, the first counts."""
    maps = [
        f"coalesce(try_cast({text} AS MAP<STRING, VARIANT>), CAST(map() AS MAP<STRING, VARIANT>))" for text in texts
    ]
    found = maps[-1]
    for text in reversed(maps[:-1]):
        found = f"map_concat(map_filter({found}, (k, v) -> NOT map_contains_key({text}, k)), {text})"
    return f"to_variant_object({found})"


def bag_zip(keys: str, values: str) -> str:
    """Make a bag of keys and values: a key without a value has null, and what is no text is no key."""
    names, held = json.loads(keys), json.loads(values)
    if not isinstance(names, list) or not isinstance(held, list):
        raise ValueError("no arrays")
    given = zip_longest(names, held[: len(names)])
    return dumped({name: value for name, value in given if isinstance(name, str)})


def bag_without(bag: str, keys: str) -> str:
    """Leave out keys of a bag, also nested ones, which are written as paths."""
    found = json.loads(bag)
    for key in json.loads(keys):
        *before, last = str(key)[2:].split(".") if str(key).startswith("$.") else [str(key)]
        at = found
        for step in before:
            at = at.get(step) if isinstance(at, dict) else None
        if isinstance(at, dict):
            at.pop(last, None)
    return json.dumps(found, ensure_ascii=False)


def bag_set_key(bag: str, options: str) -> str:
    found, (key, value) = json.loads(bag), json.loads(options)
    path = str(key)[2:].split(".") if str(key).startswith("$.") else [str(key)]
    at = found
    for step in path[:-1]:
        at = at.setdefault(step, {})
    at[path[-1]] = value
    return dumped(found)


FUNCTIONS: tuple[Function, ...] = (
    declare("pack", returns="dynamic", duckdb="json_object({*})", spark="to_variant_object(map({*}))"),
    declare(
        "bag_keys",
        returns="dynamic",
        duckdb="to_json(json_keys(CASE WHEN json_type({0}) = 'OBJECT' THEN {0} END))",
        spark="CAST(map_keys(<bag {0}>) AS VARIANT)",
    ),
    declare(
        "bag_has_key",
        returns="bool",
        duckdb="coalesce(list_contains(json_keys({0}), {1}), FALSE)",
        spark="coalesce(array_contains(map_keys(<bag {0}>), {1}), FALSE)",
    ),
    declare("bag_merge", returns="dynamic", duckdb=_bag_merge_duckdb, spark=_bag_merge_spark),
    declare("bag_zip", returns="dynamic", python=bag_zip, arity=2),
    declare("bag_set_key", returns="dynamic", python=bag_set_key, arity=2),
    declare(
        "bag_remove_keys",
        returns="dynamic",
        duckdb="let[[{0}]][[to_json(map_from_entries(list_transform(list_filter(json_keys(@), lambda k: NOT "
        "list_contains(<texts {1}>, k)), lambda k: {'k': k, 'v': json_extract(@, <pointer k>)})))]]",
        spark="to_variant_object(map_filter(<bag {0}>, (k, v) -> NOT array_contains(<texts {1}>, k)))",
    ),
    declare("bag_without", returns="dynamic", python=bag_without, arity=2),
    declare(
        "bag_filled",
        returns="dynamic",
        duckdb="let[[{0}]][[to_json(map_from_entries(list_transform(list_filter(json_keys(@), lambda k: "
        "coalesce(json_extract_string(@, <pointer k>), '') <> ''), lambda k: {'k': k, 'v': "
        "json_extract(@, <pointer k>)})))]]",
        spark="to_variant_object(map_filter(<bag {0}>, (k, v) -> v IS NOT NULL AND NOT is_variant_null(v) AND "
        "coalesce(try_cast(v AS STRING), '-') <> ''))",
    ),
    declare(
        "prefix_keys",
        returns="dynamic",
        duckdb="let[[{0}]][[CASE WHEN json_type(@) = 'OBJECT' THEN "
        "to_json(map_from_entries(list_transform(json_keys(@), lambda k: {'k': {1} || k, 'v': "
        "json_extract(@, <pointer k>)}))) END]]",
        spark="to_variant_object(transform_keys(<bag {0}>, (k, v) -> concat({1}, k)))",
    ),
)
