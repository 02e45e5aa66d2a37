"""Translate the conditions that Spark pushes to a table of the catalog, count what they leave, and delete by them.

A condition is a tree of Spark's public predicates: ``{"name": "=", "children": [{"column": […]}, {"type": …, "value":
…}]}``; a path into a VARIANT is ``{"variant": […], "path": "$.a", "to": "string"}``. Values are as Spark keeps them
(times in microseconds UTC, dates in days), so that no time zone comes between.
A part that cannot be said in a predicate bounds nothing: reads let Spark check rows again, deletes and overwrites
refuse. It does not translate single comparisons: see ``filters``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple

from tidelake.errors import InvalidInputError
from tidelake.maintain.delete import delete
from tidelake.model.expression import parse_where
from tidelake.model.predicate import And, Or, Predicate, conjuncts_of
from tidelake.model.schema import Schema
from tidelake.model.settings import TableSettings
from tidelake.spark.catalog.path_conditions import path_bound
from tidelake.spark.filters import translate
from tidelake.spark.lines import pushed as d
from tidelake.spark.options import FIRST, LIMIT, known_options
from tidelake.spark.places import open_table
from tidelake.spark.reading import wanted_rows
from tidelake.spark.types import spark_names

LONGEST_SET = 1_000  # values of an IN that prunes: of more, which joins bring, their bounds do
IN_MEMORY = 4  # bytes of rows in Spark's memory for each that is stored
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_COMPARISONS: dict[str, type[Any]] = {
    "=": d.EqualTo, "<=>": d.EqualNullSafe, ">": d.GreaterThan, ">=": d.GreaterThanOrEqual, "<": d.LessThan,
    "<=": d.LessThanOrEqual, "STARTS_WITH": d.StringStartsWith, "ENDS_WITH": d.StringEndsWith,
    "CONTAINS": d.StringContains,
}  # fmt: skip
_ORDERED = frozenset({"tinyint", "smallint", "int", "bigint", "string", "date", "timestamp", "timestamp_ntz"})
_FLIPPED = {"=": "=", "<=>": "<=>", ">": "<", ">=": "<=", "<": ">", "<=": ">="}


class Meant(NamedTuple):
    """What a condition means: a predicate that every wanted row satisfies, and whether no other row does."""

    predicate: Predicate | None
    is_exact: bool


NOTHING = Meant(None, False)


def where(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the text of some conditions joined, and which of them it has; None if it must be exact and is not.

    For conditions that are to be exact, the text of none is empty. Otherwise the option ``where`` is joined to them.
    """
    options = known_options(question["options"], "batch")
    table = open_table(options)
    if question["exactly"]:
        found = [meant(tree, table.schema) for tree in question["predicates"]]
        said = [each.predicate for each in found if each.predicate is not None]
        is_exact = all(each.is_exact for each in found)
        return {"where": repr(_joined(said)) if said and is_exact else "" if is_exact else None}
    bounds = [bound(tree, table.schema) for tree in question["predicates"]]
    joined = wanted_rows(table, options.get("where"), [each for each in bounds if each is not None])
    return {"where": None if joined is None else repr(joined), "taken": [each is not None for each in bounds]}


def enough(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return options by which a scan gives rows enough of those that satisfy conditions; nothing if it cannot know.

    A scan can stop where it answers all conditions by itself; by an order, only if that is of the table's time.
    """
    options, trees, rows = known_options(question["options"], "batch"), question["predicates"], question["rows"]
    if "users" in options or any(_shortened(tree) is not tree for tree in trees):
        return {}
    table = open_table(options)
    found = [meant(tree, table.schema) for tree in trees]
    if not all(each.is_exact for each in found):
        return {}
    given = wanted_rows(table, options.get("where"), [each.predicate for each in found if each.predicate is not None])
    parts = {repr(each): each for each in conjuncts_of(given)}
    told = {"where": repr(_joined(list(parts.values())))} if parts else {}
    if "column" not in question:
        return told | {LIMIT: str(rows)}
    time = TableSettings.of(table.snapshot.settings).time
    if time is None or spark_names(table.schema).get(question["column"]) != time:
        return {}
    return told | {FIRST: f"{'newest' if question['descending'] else 'oldest'} {rows}"}


def statistics(question: Mapping[str, Any]) -> dict[str, Any]:
    """Count the rows and bytes that the catalog cannot exclude; no object is read."""
    options = known_options(question["options"], "batch")
    table = open_table(options)
    own = spark_names(table.schema)
    columns = [own[name] for name in question["columns"] if name in own]
    condition = options.get("where")
    parsed = None if condition is None else parse_where(condition, columns=table.schema.names)
    plan = table.outline(columns, parsed)
    rows = sum(task.extent.row_count for task in plan.tasks) + sum(batch.rows for batch in plan.hot)
    stored = sum(task.extent.byte_size for task in plan.tasks) * len(columns) // max(1, len(own))
    return {"rows": rows, "bytes": IN_MEMORY * stored + sum(len(batch.payload) for batch in plan.hot)}


def delete_rows(question: Mapping[str, Any]) -> dict[str, Any]:
    """Delete the rows that satisfy all of some conditions; of none, every row."""
    table = open_table(known_options(question["options"], "batch"))
    found = [meant(tree, table.schema) for tree in question["predicates"]]
    if not all(each.is_exact for each in found):
        raise InvalidInputError("a condition of this delete has no exact form: use tidelake.system.delete")
    said = [each.predicate for each in found if each.predicate is not None]
    report = delete(table, _joined(said)) if said else delete(table, all=True)
    return {"rows": report.rows}


def bound(tree: Mapping[str, Any], schema: Schema) -> Predicate | None:
    """Return what all rows satisfy that a condition is true of, to prune by; None if that is not known."""
    return meant(_shortened(tree), schema).predicate


def meant(tree: Mapping[str, Any], schema: Schema) -> Meant:
    """Return what a condition means for a table of a schema."""
    name, children = tree.get("name"), tree.get("children", ())
    if name == "ALWAYS_TRUE":
        return Meant(None, True)
    if name in ("AND", "OR"):
        sides = [meant(each, schema) for each in children]
        said = [each.predicate for each in sides if each.predicate is not None]
        is_exact = all(each.is_exact for each in sides)
        if name == "AND":
            return Meant(_joined(said), is_exact) if said else Meant(None, is_exact)
        if len(said) < len(sides):
            return Meant(None, is_exact)  # one side is true of all rows, or not known
        return Meant(Or(tuple(said)), is_exact)
    if any("variant" in each for each in children):
        return Meant(path_bound(tree, schema), False)
    leaf = _filter(tree)
    if leaf is None:
        return NOTHING
    wanted, left = translate([leaf], schema)
    return Meant(wanted[0], not left) if wanted else NOTHING


def _shortened(tree: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return bounds in place of a condition that lists very many values."""
    children = tree.get("children", ())
    if tree.get("name") != "IN" or len(children) <= LONGEST_SET + 1:
        return tree
    values = [each for each in children[1:] if each.get("value") is not None]
    if not values or {each.get("type") for each in values} - _ORDERED or len({each["type"] for each in values}) > 1:
        return tree
    low, high = (choose(values, key=lambda each: each["value"]) for choose in (min, max))
    bounds = [{"name": ">=", "children": [children[0], low]}, {"name": "<=", "children": [children[0], high]}]
    return {"name": "AND", "children": bounds}


def _joined(said: Sequence[Predicate]) -> Predicate:
    return said[0] if len(said) == 1 else And(tuple(said))


def _filter(tree: Mapping[str, Any]) -> d.Filter | None:
    """Return a single comparison as the data source has it; None for what it has not."""
    name, children = tree.get("name"), list(tree.get("children", ()))
    if name == "NOT":
        inner = _filter(children[0])
        return None if inner is None else d.Not(inner)
    if name == "<>":
        inner = _filter({"name": "=", "children": children})
        return None if inner is None else d.Not(inner)
    if name in _FLIPPED and len(children) == 2 and "column" in children[1]:
        name, children = _FLIPPED[name], children[::-1]
    if not children or "column" not in children[0]:
        return None
    column = tuple(children[0]["column"])
    if name in ("IS_NULL", "IS_NOT_NULL"):
        return d.IsNull(column) if name == "IS_NULL" else d.IsNotNull(column)
    try:
        values = [_value(each) for each in children[1:]]
    except (ValueError, OverflowError):
        return None
    if name == "IN":
        return d.In(column, tuple(values))
    kind = _COMPARISONS.get(name or "")
    return None if kind is None or len(values) != 1 else kind(column, values[0])


def _value(literal: Mapping[str, Any]) -> Any:
    """Return a literal as Python has it; ValueError for one of another sort."""
    if "type" not in literal:
        raise ValueError("no literal")
    kind, value = literal["type"], literal["value"]
    if value is None:
        return None
    match kind:
        case "tinyint" | "smallint" | "int" | "bigint":
            return int(value)
        case "float" | "double":
            if not math.isfinite(number := float(value)):
                raise ValueError("no finite number")
            return number
        case "string" | "boolean":
            return value
        case "timestamp":
            return _EPOCH + timedelta(microseconds=value)
        case "timestamp_ntz":
            return (_EPOCH + timedelta(microseconds=value)).replace(tzinfo=None)
        case "date":
            return date(1970, 1, 1) + timedelta(days=value)
        case _ if kind.startswith("decimal("):
            return Decimal(value)
        case _:
            raise ValueError(kind)
