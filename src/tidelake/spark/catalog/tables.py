"""Load, make, alter, rename and drop tables for Spark's catalog.

A table that is made from a query, or that takes another's place, is staged: it gets its rows under a name of its own,
``logs__staged_…``, and then takes the wanted name at once, so that nobody sees half of it and a query that fails takes
nothing away. A driver that dies in between leaves the staged table to collection. It does not write rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from pyspark.sql.types import StructField, StructType, _parse_datatype_json_string

from tidelake.catalog.names import staged_name
from tidelake.errors import InvalidInputError, NotFoundError, UnavailableError
from tidelake.handle.lake_handle import LakeHandle
from tidelake.handle.opening import LOG_SCHEME
from tidelake.handle.table_handle import TableHandle
from tidelake.maintain.collect import collect_garbage
from tidelake.model.schema import DataType, Schema
from tidelake.model.settings import TableSettings
from tidelake.spark.catalog.names import lake_of, place_of, table_name, table_of, told_name
from tidelake.spark.catalog.properties import (
    COMMENT,
    clustering_of,
    read_properties,
    read_property,
    shown_properties,
)
from tidelake.spark.catalog.told import about
from tidelake.spark.changing import key_names
from tidelake.spark.types import own_names, spark_schema, table_type
from tidelake.write.alter import CHANGEABLE, add_column, change_settings, rename_table, widen
from tidelake.write.create import create_table, time_of

COLUMN_COMMENT = "comment:"  # the setting of a column's comment begins so; the column's name follows
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UNSUPPORTED = {
    "RenameColumn": "a column keeps its name",
    "DeleteColumn": "a column cannot be dropped: select the others, or write them to another table",
    "UpdateColumnNullability": "every column but the time column takes nulls",
    "UpdateColumnPosition": "columns are in the order in which they came",
    "UpdateColumnDefaultValue": "a column has no default",
}


def load(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return what Spark must know of a table, of its newest snapshot or of one by number, id or time."""
    past = _past(question)
    try:
        return _loaded(question, table_of(question, table_name(question), **past))
    except NotFoundError as error:
        named = told_name(question)
        if error.kind != "no_table" or named is None:
            raise
    return about(table_of(question, named[0], **past), named[1])


def create(question: Mapping[str, Any]) -> dict[str, Any]:
    """Make a table."""
    return _loaded(question, _created(lake_of(question), table_name(question), question))


def stage(question: Mapping[str, Any]) -> dict[str, Any]:
    """Make a table that will get its name when its rows are in."""
    lake, name, mode = lake_of(question), table_name(question), question["mode"]
    is_there = _is_there(lake, name)
    if mode == "replace" and not is_there:
        raise NotFoundError("no such table", table=name, kind="no_table")
    is_segmented = TableSettings.of(read_properties(question["properties"], question["default_source"])).is_segmented
    if is_segmented or lake.address.startswith(LOG_SCHEME):  # a table that keeps its name
        if is_there:
            raise UnavailableError(
                "a table with a scope or a key, or of a log, cannot take another's place: drop that first", table=name
            )
        return _loaded(question, _created(lake, name, question)) | {"final": name}
    staged = staged_name(name)
    answer = _loaded(question, _created(lake, staged, question, is_staged=True))
    return answer | {"name": name, "staged": staged, "final": name, "replace": mode != "create"}


def publish(question: Mapping[str, Any]) -> dict[str, Any]:
    """Give a staged table its name, and drop who has it if that is to be replaced."""
    if staged := question.get("staged"):
        rename_table(lake_of(question), staged, question["final"], replace=question["replace"])
    return {}


def discard(question: Mapping[str, Any]) -> dict[str, Any]:
    """Take a staged table away, unless it has its name already."""
    lake, name = lake_of(question), question.get("staged") or question["final"]
    if _is_there(lake, name):
        lake.catalog.drop_table(name)
    return {}


def alter(question: Mapping[str, Any]) -> dict[str, Any]:
    """Add columns, widen them, or change properties; what a table cannot do is refused before anything is changed."""
    table = TableHandle.open(lake_of(question), table_name(question))
    settings: dict[str, Any] = {}
    columns: list[tuple[str, DataType]] = []
    for change in question["changes"]:
        match change["change"]:
            case "SetProperty" | "RemoveProperty" as which:
                settings[change["name"]] = None if which == "RemoveProperty" else _changed(change)
            case "AddColumn" | "UpdateColumnType":
                columns.append(_column_of(table.schema, change))
                if change.get("comment"):
                    settings[COLUMN_COMMENT + columns[-1][0]] = change["comment"]
            case "UpdateColumnComment":
                settings[COLUMN_COMMENT + _commented(table.schema, change["column"])] = change["comment"]
            case "ClusterBy":
                settings["cluster_by"] = change["columns"] or None
            case other:
                raise UnavailableError(
                    f"tables of a lake cannot be altered so: {_UNSUPPORTED.get(other, other)}", kind="unsupported"
                )
    for name, kind in columns:
        add_column(table, name, kind)
    _change(table, settings)
    return _loaded(question, table)


def drop(question: Mapping[str, Any]) -> dict[str, Any]:
    """Drop a table, and delete what it held at once if that is asked for."""
    lake, name = lake_of(question), table_name(question)
    if not _is_there(lake, name):
        return {"dropped": False}
    info = lake.catalog.drop_table(name)
    if question["purge"]:
        lake.catalog.purge_tables(before_us=(info.dropped_us or 0) + 1, table_id=info.id)
        collect_garbage(lake)
    return {"dropped": True}


def rename(question: Mapping[str, Any]) -> dict[str, Any]:
    """Give a table another name."""
    rename_table(lake_of(question), table_name(question), table_name(question["to"]))
    return {}


def _created(lake: LakeHandle, name: str, question: Mapping[str, Any], *, is_staged: bool = False) -> TableHandle:
    schema = cast(StructType, _parse_datatype_json_string(question["schema"]))
    told = read_properties(question["properties"], question["default_source"])
    if clustered := clustering_of(question["partitioning"]):
        told["cluster_by"] = clustered
    columns = Schema.of({field.name: table_type(field.dataType, field.name) for field in schema})
    time, comments = time_of(columns, told.get("time")), {COMMENT: told.pop(COMMENT, None)}
    for field in schema:
        _check_nullable(field, time, told.get("key") or ())
        comments[COLUMN_COMMENT + field.name] = field.metadata.get("comment")
    create_table(lake.catalog, name, columns, is_staged=is_staged, **told)
    table = TableHandle.open(lake, name)
    if said := {key: text for key, text in comments.items() if text is not None}:
        widen(table, (), said)
    return table


def _loaded(question: Mapping[str, Any], table: TableHandle) -> dict[str, Any]:
    head = table.snapshot
    comments = {name: text for name, text in head.settings.items() if name.startswith(COLUMN_COMMENT)}
    shown = spark_schema(head.schema)
    own = dict(zip(shown.fieldNames(), head.schema.names, strict=True))
    keys = key_names(head)
    fields = [
        StructField(each.name, each.dataType, each.name not in keys, {"comment": text} if text else None)
        for each in shown
        for text in [comments.get(COLUMN_COMMENT + own[each.name])]
    ]
    return {
        "id": str(table.place),
        "version": str(head.sequence),
        "name": table.name,
        "key": keys,
        "schema": StructType(fields).json(),
        "properties": shown_properties(head.settings) | {"provider": "tidelake"},
        "options": place_of(question).options() | {"table": table.name} | ({"user": table.user} if table.user else {}),
    }


def _past(question: Mapping[str, Any]) -> dict[str, Any]:
    """Return which snapshot is asked for, if one is."""
    if (version := question.get("version")) is not None:
        return {"snapshot": int(version) if version.isdecimal() and len(version) < 19 else version}
    if (at_us := question.get("time_us")) is not None:
        return {"as_of": _EPOCH + timedelta(microseconds=at_us)}
    return {}


def _is_there(lake: LakeHandle, name: str) -> bool:
    try:
        lake.catalog.table(name)
    except NotFoundError:
        return False
    return True


def _changed(change: Mapping[str, Any]) -> Any:
    name = change["name"]
    value = read_property(name, change["value"])
    if name not in (*CHANGEABLE, COMMENT):
        raise InvalidInputError(
            f"the property {name} is for a new table", changeable=", ".join(CHANGEABLE), kind="bad_property"
        )
    return value


def _column_of(schema: Schema, change: Mapping[str, Any]) -> tuple[str, DataType]:
    names = change["column"]
    if len(names) != 1:
        raise UnavailableError("fields inside of a column keep as they are", column=".".join(names), kind="unsupported")
    if change.get("position"):
        raise UnavailableError("a new column comes last", column=names[0], kind="unsupported")
    if change.get("nullable") is False:
        raise InvalidInputError("a new column takes nulls: old rows have none", column=names[0])
    if change.get("default"):
        raise UnavailableError("a column has no default", column=names[0], kind="unsupported")
    kind = _parse_datatype_json_string(change["type"])
    name = names[0] if change["change"] == "AddColumn" else own_names(schema, names)[names[0]]
    return name, table_type(kind, names[0])


def _commented(schema: Schema, names: Sequence[str]) -> str:
    if len(names) != 1:
        raise UnavailableError("fields inside of a column have no comment", column=".".join(names), kind="unsupported")
    return own_names(schema, names)[names[0]]


def _change(table: TableHandle, settings: Mapping[str, Any]) -> None:
    comments = {name: value for name, value in settings.items() if name.startswith(COMMENT)}
    if own := {name: value for name, value in settings.items() if name not in comments}:
        change_settings(table, own)
    if comments:
        widen(table, (), comments)


def _check_nullable(field: StructField, time: str | None, keys: Sequence[str]) -> None:
    if not field.nullable and field.name not in (time, *keys):
        raise InvalidInputError(
            "only the time column and key columns can be NOT NULL", column=field.name, time=time, kind="bad_property"
        )
