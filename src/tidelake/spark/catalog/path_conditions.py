"""Bound conditions on paths of VARIANT columns: ``body:service = 'auth'``, ``variant_get(body, '$.n', 'int') > 5``.

Spark casts what is at a path before it compares: the text ``"5"`` and the number 5.4 both are 5 as INT. So what a
condition proves is little, and it is all that is said here: the path is there; and if a text is asked for that is no
other value's text, that text, or its bytes, is there. It prunes, and Spark checks the rows again. Of a path of several
keys only the presence is told, because one key with a dot in it (``"a.b"``) comes before two keys here, and not in
Spark. It does not read values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tidelake.model.predicate import DynamicPathEquals, DynamicPathExists, Or, Predicate
from tidelake.model.schema import Schema
from tidelake.spark.types import spark_names

MOST_TEXTS = 100  # of an IN that are looked for one by one
# Within quotes a bracket is part of a key in Spark, and an element of a list here.
_KEY = re.compile(r"""\.([^.\[\]'"]+)|\['([^'.\[]+)'\]|\["([^".\[]+)"\]""")
_PATH = re.compile(rf"\$(?:{_KEY.pattern})+")
_ORDERS = frozenset({"=", "<", "<=", ">", ">="})
_TESTS = frozenset({"IN", "STARTS_WITH", "ENDS_WITH", "CONTAINS", "IS_NOT_NULL"})
_OF_OTHERS = frozenset({"true", "false", "null", "nan", "infinity", "inf"})  # texts of values that are no texts


def path_bound(tree: Mapping[str, Any], schema: Schema) -> Predicate | None:
    """Return what is true of every row that satisfies a condition on a path; None if nothing is known."""
    name, children = tree.get("name"), tree.get("children", ())
    asked = [each for each in children if "variant" in each]
    rest = [each for each in children if "variant" not in each]
    if len(asked) != 1 or name not in _ORDERS | _TESTS or (name in _TESTS and "variant" not in children[0]):
        return None
    if any("type" not in each for each in rest) or (name != "IN" and any(each["value"] is None for each in rest)):
        return None
    column, keys = dynamic_column(asked[0]["variant"], schema), keys_of(asked[0]["path"])
    if column is None or keys is None:
        return None
    texts = [each["value"] for each in rest if each["value"] is not None]
    if name in ("=", "IN") and len(keys) == 1 and asked[0]["to"] == "string" and _are_texts_alone(texts):
        forms: list[str | bytes] = [form for text in texts for form in (text, text.encode())]
        return Or(tuple(DynamicPathEquals(column, keys[0], form) for form in forms))
    return DynamicPathExists(column, ".".join(keys))


def keys_of(path: str) -> list[str] | None:
    """Return the keys of a path, outermost first; None if it counts elements or a key has a dot or a bracket."""
    if _PATH.fullmatch(path) is None:
        return None
    return [next(filter(None, found.groups())) for found in _KEY.finditer(path)]


def outermost_key(path: str) -> str | None:
    """Return the first key of a path; None if it begins with none, or with one that has a dot or a bracket."""
    found = _KEY.match(path, 1) if path.startswith("$") else None
    if found is None or path[found.end() : found.end() + 1] not in ("", ".", "["):
        return None
    return str(next(filter(None, found.groups())))


def dynamic_column(names: Sequence[str], schema: Schema) -> str | None:
    """Return the column of a table that Spark's name is, if it is a dynamic one without another meaning."""
    own = spark_names(schema).get(names[0]) if len(names) == 1 else None
    if own is None or own not in schema:
        return None
    kind = schema[own].type
    return own if kind.kind == "dynamic" and kind.logical is None else None


def _are_texts_alone(texts: Sequence[Any]) -> bool:
    """Whether no number, time, object or list has one of these texts when it is cast."""
    return 0 < len(texts) <= MOST_TEXTS and all(
        isinstance(text, str) and text[:1].isalpha() and text.lower() not in _OF_OTHERS for text in texts
    )
