"""List namespaces and tables, and make and drop namespaces as far as a lake knows them.

A lake has a namespace while a table is in it, and ``default`` always. One that is created is remembered by this process
until a table comes, so that ``CREATE NAMESPACE``, ``USE`` and ``DROP NAMESPACE`` agree. It does not open tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tidelake.catalog.protocol import DEFAULT_NAMESPACE, parse_table_name
from tidelake.errors import InvalidInputError
from tidelake.spark.catalog.names import lake_of

_OF_SPARK = frozenset({"owner"})  # what Spark says of every namespace by itself
_CREATED: dict[str, set[str]] = {}  # by lake: namespaces that are empty still


def list_namespaces(question: Mapping[str, Any]) -> dict[str, Any]:
    lake = lake_of(question)
    held = {info.namespace for info in lake.catalog.tables()}
    return {"names": sorted({DEFAULT_NAMESPACE, *held, *_CREATED.get(lake.address, ())})}


def create_namespace(question: Mapping[str, Any]) -> dict[str, Any]:
    if given := sorted(set(question["properties"]) - _OF_SPARK):
        raise InvalidInputError("a namespace of a lake has no properties", given=", ".join(given))
    _CREATED.setdefault(lake_of(question).address, set()).add(_one(question["namespace"]))
    return {}


def drop_namespace(question: Mapping[str, Any]) -> dict[str, Any]:
    name, lake = _one(question["namespace"]), lake_of(question)
    held = lake.catalog.tables(name)
    if held and not question["cascade"]:
        raise InvalidInputError("the namespace has tables", namespace=name, kind="not_empty")
    if name == DEFAULT_NAMESPACE and not held:
        raise InvalidInputError("every lake has the namespace default: it cannot be dropped")
    for info in held:
        lake.catalog.drop_table(str(info))
    _CREATED.get(lake.address, set()).discard(name)
    return {}


def list_tables(question: Mapping[str, Any]) -> dict[str, Any]:
    namespace = question["namespace"]
    found = lake_of(question).catalog.tables(namespace[0] if namespace else DEFAULT_NAMESPACE)
    return {"names": [info.name for info in found]}


def _one(namespace: Sequence[str]) -> str:
    if len(namespace) != 1:
        raise InvalidInputError("a lake's namespaces have one part", namespace=".".join(namespace), kind="bad_name")
    return parse_table_name(f"{namespace[0]}.t")[0]
